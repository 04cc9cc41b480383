/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounds what is dirty in the host's page cache: when to start writing out, in
 * which order, and when to drop what was written from the cache.
 *
 * A thread of its own writes out: what is full in order of arrival, a MiB or
 * so at a time, since a stream will not come back to it; what is scattered in
 * order of offset, round and round, once a quarter of the limit is dirty, or
 * nearly all of it if the same pages are written again and again: those are
 * best left alone as long as they may be.  Only a write that would pass the
 * limit waits.
 *
 * sync_file_range(2) does it; RWF_DONTCACHE (Linux 6.14) would start and drop
 * by itself, but bounds nothing and was not faster: docs/performance.md.
 *
 * Written out is not durable: nothing here answers a flush.  Waiting for
 * writeback can take the report of a loss, so that is done on an open file of
 * our own, whose reports nobody else needs (durability.h, rule D4), and what
 * is heard there is passed on.  Starting it can lose data: writeout.h.
 */
#ifndef UBD_WRITEBACK_H
#define UBD_WRITEBACK_H

#include "dirty-map.h"
#include "io.h"
#include "shard.h"
#include "writeout.h"

#include <pthread.h>

#define UBD_FULL_QUEUE 1024 /* Full words (256 KiB) waiting to be noticed. */

struct ubd_writeback_config {
    struct ubd_io *io;
    struct ubd_writeout *writeout;
    int fd;         /* An open file that nobody else uses. */
    uint64_t size;  /* Of the disk. */
    uint64_t limit; /* Bytes. */
    bool evict;     /* Drop streams from the cache once they are written. */

    /* Writeback has failed; called by the thread, without a lock.  False if
     * it cannot be said yet what that means: then it is called again.
     */
    bool (*failed)(void *opaque);

    /* @bytes from @offset on have been written out.  Called by the thread,
     * without a lock; it may wait where the disk does not keep pace.
     * May be NULL.
     */
    void (*written)(void *opaque, uint64_t offset, uint64_t bytes);
    void *opaque;
};

struct ubd_writeback {
    bool is_on;                         /* (c) Else there is no limit. */
    struct ubd_writeback_config config; /* (c) */
    struct ubd_dirty_map map;
    int64_t admit_max;   /* (c) Pages; a write that would pass it waits. */
    int64_t start_early; /* (c) Pages; from here scattered ones are written, */
    int64_t start_late;  /* (c) or from here if they are written again. */
    int64_t batch;       /* (c) Pages of credit that a shard takes at a time. */

    /* Pages that a write will make dirty are taken from dirty's room before it,
     * and given back after it if they were dirty already.  Not one by one: each
     * shard has some in hand, so that not every write touches the one counter.
     */
    struct {
        _Alignas(UBD_CACHE_LINE) atomic_int_fast64_t credit; /* (a) Pages. */
        atomic_int_fast64_t touched; /* (a) Pages written of late, */
        atomic_int_fast64_t fresh;   /* (a) and those that were not dirty. */
    } shard[UBD_NR_SHARDS];

    _Alignas(UBD_CACHE_LINE)
        atomic_int_fast64_t dirty;    /* (a) Pages, with all credit. */
    atomic_int_fast64_t dirty_max;    /* (a) Pages. */
    atomic_int_fast64_t in_flight;    /* (a) Of dirty, being written out. */
    atomic_int_fast64_t start_at;     /* (a) One of the two above. */
    atomic_int_fast64_t again;        /* (a) Pages marked before, of 256. */
    atomic_uint nr_waiters;           /* (a) Writers that wait for room. */
    atomic_bool is_asleep;            /* (a) The thread waits for work. */
    atomic_uint_fast64_t written;     /* (a) Bytes, for the metrics. */
    atomic_uint_fast64_t throttle_ns; /* (a) Time that writers waited. */

    pthread_mutex_t lock;
    pthread_cond_t work;          /* Signalled when there may be work. */
    pthread_cond_t room;          /* Broadcast when dirty has shrunk. */
    bool must_stop;               /* (l) */
    size_t full[UBD_FULL_QUEUE];  /* (l) Words that became full, a ring. */
    unsigned full_head, full_len; /* (l) */
    bool has_failed;     /* (t) Writeback, once: nothing is evicted any more. */
    bool must_ask;       /* (t) What a failure means is not known yet. */
    size_t stream_ready; /* (c) Full words that start the write-out. */
    size_t cursor;       /* (t) Where the round has come to. */
    pthread_t thread;    /* (c) */
};
/* Locking key: (l) lock, (c) constant once started, (a) atomic, (t) the thread
 * that writes out.
 */

/* Errors: -ENOMEM, or as pthread_create. */
int ubd_writeback_start(struct ubd_writeback *wb,
                        const struct ubd_writeback_config *config);

/* No write may be running.  Accepts what was never started. */
void ubd_writeback_stop(struct ubd_writeback *wb);

/* Before a write to the page cache, the smaller the better: wait until there
 * is room.  No lock may be held.
 */
void ubd_writeback_admit(struct ubd_writeback *wb, uint64_t offset,
                         uint64_t len);

/* After it, also if it failed half way. */
void ubd_writeback_dirtied(struct ubd_writeback *wb, uint64_t offset,
                           uint64_t len);

/* A range was zeroed or trimmed without writing to it: the pages that it covers
 * in part are dirty.
 */
void ubd_writeback_zeroed(struct ubd_writeback *wb, uint64_t offset,
                          uint64_t len);

/* A sync is about to be submitted: what is dirty now is its business.  Returns
 * how much that is, to be given to ubd_writeback_synced when it has ended.
 */
int64_t ubd_writeback_sync(struct ubd_writeback *wb);
void ubd_writeback_synced(struct ubd_writeback *wb, int64_t pages);

/* For the metrics: bytes now, and at most so far. */
uint64_t ubd_writeback_dirty(struct ubd_writeback *wb);
uint64_t ubd_writeback_dirty_max(struct ubd_writeback *wb);

#endif
