/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The only owner of "what is on stable storage".  Does no I/O: it says who
 * must sync, who may wait for whom, and what each flush is answered.
 *
 * (D1) A flush succeeds only if every change acknowledged before it arrived,
 *      on any connection, is durable.
 *      [tests/model/durability.pml: D1]
 *
 * (D2) A sync covers only changes that completed before it was submitted.  A
 *      flush may wait for a sync that is already running only if that sync
 *      covers the flush; otherwise it needs a later one.  Several may run.
 *      [tests/model/durability.pml: D2]
 *
 * (D3) Once the host has failed to write something back that was acknowledged,
 *      every later flush and durable change fails with the same errno until
 *      the disk is closed.  Linux reports such a failure once per open file
 *      and then marks the pages clean, so asking again would get "success" for
 *      lost data.  Of a failed flush of the disk only the call is told that
 *      asked for it: so while the engine flushes the disk on its own account
 *      (cache-flush.h), no sync's or durable write's success is answered; and
 *      none of a sync beside which another one is known to have failed, before
 *      that is judged.  (Not covered: two calls, syncs of flushes or
 *      durable writes or one of each, of which the disk has failed the flush of
 *      one, and the other one is answered before the thread that was told has
 *      recorded it; or that one has lost, with its errno for the only report,
 *      what the other one was to write, too.)
 *      [tests/model/durability.pml: D3]
 *
 * (D4) Every call that can take such a report (fdatasync, also of a page only,
 *      a write with RWF_DSYNC, sync_file_range with a WAIT flag) has an open
 *      file to itself while it runs (lanes.h), so that it cannot take the
 *      report that another call's success depends on; and its failure is judged
 *      here or by a sync on another open file before anything is answered.
 *      [tests/model/durability.pml: D4]
 *      A call that only starts to write takes no report, but its errno may be
 *      the only one of what it lost itself: that is a loss, and no success of a
 *      sync or durable write is answered before every such call that had begun
 *      has ended (writeout.h; not in the model).
 *
 * (D5) A durable write carries RWF_DSYNC.  O_DSYNC and RWF_DSYNC do not cover
 *      fallocate, so a durable zero or trim is followed by a sync.
 *      [tests/model/durability.pml: D5]
 *
 * (D6) A flush needs no sync if no change has completed since the last good
 *      sync was submitted.  The first flush after open always syncs: whoever
 *      wrote the file before may have left it in the page cache.
 *      [tests/model/durability.pml: D6]
 *
 * (D7) A failure that lost nothing acknowledged is not remembered: the request
 *      that failed says so, and the next one has its own chance.  A durable
 *      write that failed is such a case if every change that has begun, on
 *      whatever connection, has failed itself or is durable: one that is under
 *      way may be in the page cache already, be lost, and be acknowledged next.
 *      [tests/model/durability.pml: D7]
 *
 * (D8) A change counts as completed before its reply.  One that failed half
 *      way needs a sync like any other, but nothing acknowledged is lost with
 *      it (D7).  A durable write that succeeded needs no sync, and does not
 *      count.
 *      [tests/model/durability.pml: D8]
 *
 * Rules that belong to other files: a mode that promises nothing never syncs
 * (disk.c), no lock is held across I/O (everywhere).
 */
#ifndef UBD_DURABILITY_H
#define UBD_DURABILITY_H

#include "concurrency.h"
#include "shard.h"
#include "ubd.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* Somebody who wants everything up to @target durable; lives on its stack. */
struct ubd_flusher {
    uint64_t target;           /* (c) Completed bytes when it arrived. */
    int result;                /* (l) until woken. */
    bool must_lead;            /* (l) until woken: its turn to sync has come. */
    bool is_clean;             /* Answered at once, without a sync. */
    struct ubd_sync_span span; /* (l) until woken: what answered it. */
    sem_t woken;
    struct ubd_flusher *next; /* (l) */
};

/* One running sync; lives on its leader's stack. */
struct ubd_sync {
    uint64_t ns;                   /* (t) The leader says how long it took, */
    uint64_t submitted_ns;         /* (t) when it began, */
    int tid;                       /* (t) and which thread it is. */
    int result;                    /* (t) The host's answer. */
    uint64_t id;                   /* (c) From 1. */
    uint64_t covered;              /* (c) Completed when it was submitted. */
    uint64_t covered_failed;       /* (c) Of that, not acknowledged. */
    uint64_t bytes;                /* (c) Of that, since the one before. */
    uint64_t safe;                 /* (c) What was durable or failed then. */
    bool had_company;              /* (l) Another one ran at the same time. */
    bool is_settling;              /* (l) It waits for the others' verdict. */
    struct ubd_flusher *followers; /* (l) Wait for this sync. */
    struct ubd_sync *next;         /* (l) */
};

struct ubd_durability {
    /* The last sync that has begun, if the next one is soon expected, or 0.  By
     * itself, as every write reads it.
     */
    _Alignas(UBD_CACHE_LINE) atomic_uint_fast64_t awaits_flush; /* (a) */

    /* Bytes of changes that have begun, and that reached the page cache; they
     * only grow.  In shards, so that writers share no cache line; sums are
     * taken with the lock held, so that they grow as well.  A release here and
     * an acquire in the sum order a change before the sync that covers it.
     */
    struct {
        _Alignas(UBD_CACHE_LINE) atomic_uint_fast64_t begun; /* (a) */
        atomic_uint_fast64_t completed;                      /* (a) */

        /* Of ubd_durability_expects_flush, since sync @seen has begun. */
        atomic_uint_fast64_t seen, bytes, place; /* (a) */
    } changes[UBD_NR_SHARDS];

    pthread_mutex_t lock;
    bool always; /* (c) Changes are durable when acknowledged (policy). */
    unsigned running_limit; /* (c) Syncs that may ever run at a time. */

    uint64_t durable;            /* (l) All changes up to here are durable. */
    uint64_t failed;             /* (l) Bytes completed, not acknowledged. */
    uint64_t failed_durable;     /* (l) Of those, covered by a good sync. */
    uint64_t nr_failed;          /* (l) Syncs. */
    uint64_t nr_syncs;           /* (l) That have begun: the last one's id. */
    uint64_t id_good;            /* (l) The sync that made @durable so. */
    bool has_synced;             /* (l) A sync has succeeded since open. */
    int error;                   /* (l) First loss, never cleared: (D3). */
    unsigned nr_running;         /* (l) Syncs running or about to. */
    bool is_leader_chosen;       /* (l) It takes all who wait along. */
    struct ubd_sync *running;    /* (l) */
    struct ubd_flusher *waiting; /* (l) For a sync that has yet to start. */
    struct ubd_flusher **waiting_end; /* (l) */
    unsigned nr_waiting;              /* (l) */

    /* What the disk has shown: (l) all. */
    struct ubd_concurrency syncs; /* How many at a time. */
    uint64_t began;               /* Bytes completed when the last one began, */
    uint64_t between;             /* and mean bytes for each flush so far. */
    uint64_t sync_ns;             /* Mean time of one alone. */
    unsigned nr_expected;         /* Flushes that may come together. */
    struct ubd_flusher *gatherer; /* The leader that waits for them. */
    unsigned nr_inside;           /* Flushes that lead a sync or wait, */
    unsigned crowd;               /* their mean in 256ths, when one ends, */
    bool is_crowd;                /* and if those are many. */

    pthread_cond_t ended; /* Broadcast when a sync has been finished, */
    unsigned nr_settling; /* (l) if so many wait for that. */
};
/* Locking key: (l) lock, (c) constant once published, (a) atomic, (t) used by
 * the leader of that sync only.
 */

/* @always: the mode makes every change durable before its reply.
 * @running_limit: syncs that may ever run at a time.
 */
void ubd_durability_init(struct ubd_durability *d, bool always,
                         unsigned running_limit);
void ubd_durability_destroy(struct ubd_durability *d);

/* A change of @bytes that is not durable by itself begins: (D7). */
void ubd_durability_begun(struct ubd_durability *d, uint64_t bytes);

/* It is in the page cache: (D8). */
void ubd_durability_completed(struct ubd_durability *d, uint64_t bytes);

/* A write of @bytes at @offset has completed: is a flush expected before much
 * more is written, and was nothing written here since the last one?  Then it
 * pays to start its write-out now, so that the flush finds it on its way.
 */
bool ubd_durability_expects_flush(struct ubd_durability *d, uint64_t bytes,
                                  uint64_t offset);

/* It failed, and a part of it may be there. */
void ubd_durability_failed(struct ubd_durability *d, uint64_t bytes);

/* The same for a durable write, of which nothing was said before. */
void ubd_durability_failed_durable(struct ubd_durability *d, uint64_t bytes);

/* How @sync has served a flush. */
struct ubd_sync_span ubd_sync_describe(const struct ubd_sync *sync,
                                       enum ubd_sync_how how);

enum ubd_flush_step {
    UBD_FLUSH_DONE,   /* Answer flusher->result. */
    UBD_FLUSH_WAIT,   /* ubd_durability_wait, then lead or answer. */
    UBD_FLUSH_GATHER, /* ubd_durability_gather, then as LEAD. */
    UBD_FLUSH_LEAD,   /* Submit a sync, then ubd_durability_finish. */
};

/* A flush has come.  For LEAD, @own is the caller's sync and has begun: all
 * that completed so far is covered, and whoever waits has joined it.
 */
enum ubd_flush_step ubd_durability_arrive(struct ubd_durability *d,
                                          struct ubd_flusher *f,
                                          struct ubd_sync *own);

/* Sleep until the flush is answered (DONE) or must be led (LEAD); in the
 * second case @own has begun, as with arrive.
 */
enum ubd_flush_step ubd_durability_wait(struct ubd_durability *d,
                                        struct ubd_flusher *f,
                                        struct ubd_sync *own);

/* On a slow disk: wait a little for others that are about to flush, so that
 * one sync serves them all; then @own has begun.
 */
void ubd_durability_gather(struct ubd_durability *d, struct ubd_flusher *f,
                           struct ubd_sync *own);

/* @sync has succeeded, but another one has failed meanwhile, perhaps a flush
 * of the disk that has cost what this one would answer for: wait until all who
 * run now have been judged.
 */
void ubd_durability_settle(struct ubd_durability *d, struct ubd_sync *sync);

/* The sync was answered @result.  Wakes those who joined it and the next
 * leader; returns the answer for the one who led.
 */
int ubd_durability_finish(struct ubd_durability *d, struct ubd_sync *sync,
                          int result);

/* Acknowledged data was lost, as another call than a sync found out. */
void ubd_durability_lost(struct ubd_durability *d, int error);

/* The first loss (negative errno), or 0. */
int ubd_durability_error(struct ubd_durability *d);

/* How many syncs have failed.  Where failures are not remembered (@always), a
 * sync that fails may take the report of a change that has not asked for its
 * own sync yet: so a change is durable only if none has failed since it began.
 */
uint64_t ubd_durability_nr_failed(struct ubd_durability *d);

/* Is every change that has begun so far durable, or failed?  Rule (D7). */
bool ubd_durability_is_all_durable(struct ubd_durability *d);

/* Bytes of changes acknowledged and not known to be durable. */
uint64_t ubd_durability_volatile(struct ubd_durability *d);

#endif
