/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One disk, as the files of server/ see it.  Public functions are in ubd.h;
 * disk.c has the requests, direct.c what O_DIRECT adds, zero.c the ways to
 * zero and trim, observe.c what is told of requests, open.c the rest.
 *
 * No lock is held across I/O.  There is no order of locks: nobody takes one
 * while holding another.
 */
#ifndef UBD_DISK_H
#define UBD_DISK_H

#include "cache-flush.h"
#include "durability.h"
#include "host.h"
#include "io.h"
#include "policy.h"
#include "range-lock.h"
#include "stats.h"
#include "ubd.h"
#include "writeback.h"
#include "writeout.h"

/* Buffers for what O_DIRECT cannot take as it comes. */
#define UBD_BOUNCE_SIZE (UINT64_C(1) << 20) /* One large write to the disk. */
#define UBD_BOUNCE_KEPT 16 /* As many as requests of one usual client. */

struct ubd_bounce {
    pthread_mutex_t lock;
    void *kept[UBD_BOUNCE_KEPT]; /* (l) */
    unsigned nr_kept;            /* (l) */
};

struct ubd_disk {
    struct ubd_info info;            /* (c) */
    struct ubd_host host;            /* (c) */
    const struct ubd_policy *policy; /* (c) */
    enum ubd_io_choice io_choice;    /* (c) */
    uint64_t dirty_limit;            /* (c) Bytes; 0 is none. */
    bool evict;                      /* (c) */
    bool is_observed;                /* (c) Somebody may call ubd_observe. */
    struct ubd_io *io;               /* (c) After ubd_start. */
    void (*lost)(int error);         /* (c) As in struct ubd_config. */
    atomic_flag has_told;            /* (a) It has been called. */
    struct ubd_durability durability;
    struct ubd_stats_shards stats;
    struct ubd_writeout writeout;
    struct ubd_writeback writeback;     /* Off with O_DIRECT. */
    struct ubd_cache_flush cache_flush; /* Off without writeback or syncs. */
    struct ubd_range_locks ranges;      /* Used with O_DIRECT only. */
    struct ubd_bounce bounce;
    atomic_bool no_early;    /* (a) Early write-out has failed: given up. */
    atomic_uint nr_failed;   /* (a) Syncs, of all or of a page, */
    atomic_uint nr_unjudged; /* (a) and those whose loss is not known yet. */
    atomic_uint unsupported; /* (a) Methods of zero.c that the host refused, */
    atomic_uint proven;      /* (a) and those that have worked. */
};

/* Run one request on the host file; 0 or -errno.  Nothing is counted. */
int ubd_disk_run(struct ubd_disk *disk, const struct ubd_req *req);

/* The same for a plain write to the page cache. */
int ubd_disk_run_write(struct ubd_disk *disk, int fd, const void *buf,
                       uint64_t len, uint64_t offset);

/* Write through a lane: durable when it returns. */
int ubd_disk_write_durable(struct ubd_disk *disk, const void *buf, uint64_t len,
                           uint64_t offset);

/* Write to the disk, in whatever alignment. */
int ubd_disk_write(struct ubd_disk *disk, const void *buf, uint64_t len,
                   uint64_t offset, bool is_durable);

/* A flush of the engine's own: everything completed so far is durable when it
 * returns 0.  Says how it was answered; @ret_sync may be NULL.
 */
int ubd_disk_make_durable(struct ubd_disk *disk,
                          struct ubd_sync_span *ret_sync);

/* Flush the disk's cache, at a page that is written out: nothing is durable by
 * that, and a loss that it finds is remembered.
 */
void ubd_disk_flush_cache(struct ubd_disk *disk, uint64_t offset);

/* For ubd_writeout_init; @disk is a struct ubd_disk. */
void ubd_disk_lost(void *disk, int error);

/* observe.c: whatever has been durable on the way, this made the request so. */
void ubd_observed_sync(struct ubd_disk *disk, const struct ubd_sync_span *sync);
/* A flush has waited until its sync was submitted, or was not needed. */
void ubd_observed_flush(struct ubd_disk *disk,
                        const struct ubd_sync_span *sync);

/* direct.c: O_DIRECT with any offset, length and buffer.  A change holds its
 * ubd_direct_range; a read locks what it must itself.
 */
struct ubd_range ubd_direct_range(const struct ubd_disk *disk, uint64_t len,
                                  uint64_t offset);
int ubd_direct_read(struct ubd_disk *disk, void *buf, uint64_t len,
                    uint64_t offset);
int ubd_direct_write(struct ubd_disk *disk, const void *buf, uint64_t len,
                     uint64_t offset, bool is_durable);
void ubd_bounce_destroy(struct ubd_bounce *bounce);

/* zero.c: neither counts nor syncs. */
int ubd_zero_range(struct ubd_disk *disk, uint64_t len, uint64_t offset,
                   unsigned flags);
int ubd_trim_range(struct ubd_disk *disk, uint64_t len, uint64_t offset);

#endif
