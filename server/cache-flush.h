/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounds what the host's disk holds in its own volatile cache of what has been
 * written out.  A virtual disk may keep hundreds of megabytes there, and the
 * next flush of the disk, whoever asks for it, has to wait for all of them.
 *
 * A thread of its own asks for a flush of the disk's cache each time a share
 * has been written out, beside the write-out, which waits only where the disk
 * does not keep pace.  Nothing is acknowledged by that: a FLUSH still syncs.
 */
#ifndef UBD_CACHE_FLUSH_H
#define UBD_CACHE_FLUSH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ubd_cache_flush_config {
    uint64_t share; /* Bytes written out after which the disk is flushed, */
    uint64_t limit; /* and after which the write-out waits for that. */

    /* Flush the disk's cache; the page at @offset is not dirty, unless it was
     * written since.  Called by the thread, without a lock.  A failure is dealt
     * with there.
     */
    void (*flush)(void *opaque, uint64_t offset);
    void *opaque;
};

struct ubd_cache_flush {
    bool is_on;                           /* (c) */
    struct ubd_cache_flush_config config; /* (c) */
    pthread_t thread;                     /* (c) */
    pthread_mutex_t lock;
    pthread_cond_t work;    /* Signalled when a share has been written out. */
    pthread_cond_t flushed; /* Broadcast when a flush has ended. */
    bool must_stop;         /* (l) */
    uint64_t written_bytes; /* (l) Out, to the disk. */
    uint64_t flushed_bytes; /* (l) Of those, before the last flush began. */
    uint64_t offset;        /* (l) Of what was written out last. */
    uint64_t nr_begun, nr_ended; /* (l) Flushes. */
};
/* Locking key: (l) lock, (c) constant once started. */

/* Errors: as pthread_create, negative. */
int ubd_cache_flush_start(struct ubd_cache_flush *c,
                          const struct ubd_cache_flush_config *config);

/* Lets the write-out go, and returns when no flush runs.  This and all below
 * accept what was never started.
 */
void ubd_cache_flush_stop(struct ubd_cache_flush *c);

/* Once it has stopped and nobody is left in it. */
void ubd_cache_flush_destroy(struct ubd_cache_flush *c);

/* @bytes from @offset on have been written out.  Waits while the disk has too
 * much to flush; no lock may be held.
 */
void ubd_cache_flush_written(struct ubd_cache_flush *c, uint64_t offset,
                             uint64_t bytes);

/* Before a success is answered that relies on another call's flush of the disk:
 * wait for the flush of ours that runs, if one does.  Should it fail, it may
 * have cost what that call found flushed already (durability.h, D3).
 */
void ubd_cache_flush_settle(struct ubd_cache_flush *c);

/* A sync flushes the disk's cache as well: what has been written out before it
 * is submitted, and that it has succeeded; the latter settles, too.
 */
uint64_t ubd_cache_flush_mark(struct ubd_cache_flush *c);
void ubd_cache_flush_synced(struct ubd_cache_flush *c, uint64_t mark);

#endif
