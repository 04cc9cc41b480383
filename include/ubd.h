/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One virtual disk backed by one host file or block device: the whole public
 * interface of the engine.  nbdkit is one front; another could be put on it.
 *
 * Units:   offsets and lengths are bytes, times are nanoseconds.
 * Errors:  0 on success, a negative errno on failure; nothing here prints.
 * Threads: ubd_open, ubd_start and ubd_close belong to one thread; the rest
 *          may be called from any thread at any time in between.
 * Words:   HACKING.md section 1.  What is promised when: server/policy.c and
 *          server/durability.h.
 */
#ifndef UBD_H
#define UBD_H

#include <stdbool.h>
#include <stdint.h>

struct ubd_disk;

/* How requests reach the host. */
enum ubd_io_choice {
    UBD_IO_AUTO,     /* io_uring where it pays and where it is allowed */
    UBD_IO_URING,    /* every request through io_uring, or ubd_open fails */
    UBD_IO_SYSCALLS, /* plain system calls only */
};

#define UBD_DIRTY_LIMIT_AUTO (-1)     /* As the cache mode has it. */
#define UBD_DIRTY_LIMIT_MIN (1 << 20) /* Of those that are not 0. */

struct ubd_config {
    const char *path;
    const char *cache; /* A mode's name or alias; NULL is the default mode. */
    bool readonly;
    bool direct; /* O_DIRECT; also implied by some aliases of cache. */
    bool lock;   /* Refuse an image that somebody else has open. */
    bool trim;   /* Give space back to the host. */
    int64_t
        dirty_limit; /* Bytes dirty in the host's page cache; 0: no limit. */
    bool evict;      /* Drop streams from the cache once written out. */
    enum ubd_io_choice io;
    bool observe; /* ubd_observe will be used; else it does nothing. */

    /* Called once, from any thread, when acknowledged data was found lost;
     * @error is positive.  May be NULL.
     */
    void (*lost)(int error);
};

/* Constant between ubd_open and ubd_close. */
struct ubd_info {
    uint64_t size;        /* Never changes, whatever happens to the file. */
    uint32_t block_size;  /* Smallest request that needs no extra work. */
    const char *mode;     /* "barrier", ... */
    const char *survives; /* One sentence: what outlives which failure. */
    bool warn;            /* The mode can lose what it acknowledged. */
    const char *engine;   /* "io_uring" or "syscalls" */
    int uring_error;      /* Why io_uring is not used (errno), or 0. */
    int lock_error;       /* Locking is not supported here (errno), or 0. */
    bool readonly, direct, trim;
    bool can_extents; /* The host can tell data from holes. */
    bool rotational;
};

/* Open @config->path, lock it and find out what the host can do.  Creates and
 * changes nothing.  May be followed by a fork; starts no thread.
 *
 * On failure *@ret_why says in words what was expected where the errno alone
 * would not (else it is NULL):
 *   -ENOENT, -EACCES, -EROFS, -ELOOP...  as from open(2)
 *   -EINVAL   not a regular file or block device, unknown cache mode, or
 *             O_DIRECT refused
 *   -EBUSY    somebody else has locked the image
 *   other     io_uring was insisted on and refused
 */
int ubd_open(const struct ubd_config *config, struct ubd_disk **ret_disk,
             const char **ret_why);

/* Create rings and threads; nothing before this call would survive a fork. */
int ubd_start(struct ubd_disk *disk);

/* Nothing may be running.  Syncs nothing: what was not flushed is the host's
 * to write back.  Accepts NULL.
 */
void ubd_close(struct ubd_disk *disk);

const struct ubd_info *ubd_info(const struct ubd_disk *disk);

#define UBD_MODE_DEFAULT "barrier"

/* Every cache mode by number, from 0; NULL past the last. */
const char *ubd_mode_name(unsigned i);
/* The other names of modes (qemu's), likewise; *@ret_mode is what it means. */
const char *ubd_mode_alias(unsigned i, const char **ret_mode, bool *ret_direct);
bool ubd_mode_known(const char *name);

/* Does the host allow io_uring?  0 or the reason as a negative errno. */
int ubd_probe_uring(void);

enum {
    UBD_FUA = 1,       /* Durable before the call returns, if the mode can. */
    UBD_MAY_TRIM = 2,  /* A zeroed range may become a hole. */
    UBD_FAST_ONLY = 4, /* Fail with -EOPNOTSUPP rather than write zeroes. */
};

/* Read exactly @len bytes at @offset.
 *
 * Errors: -EIO  the host could not read, or the file was cut short
 */
int ubd_read(struct ubd_disk *disk, void *buf, uint32_t len, uint64_t offset);

/* Write exactly @len bytes at @offset.  On success later reads return the new
 * data; it is also durable if the cache mode or UBD_FUA says so.
 *
 * Errors: -ENOSPC  the host file system or quota is full (-EDQUOT, -EFBIG)
 *         -EIO     the host lost data, in this request or in an earlier one
 *                  (durability.h, rule D3)
 */
int ubd_write(struct ubd_disk *disk, const void *buf, uint32_t len,
              uint64_t offset, unsigned flags);

/* Make the range read as zeroes, exactly to the byte; errors as ubd_write. */
int ubd_zero(struct ubd_disk *disk, uint32_t len, uint64_t offset,
             unsigned flags);

/* The range's content is no longer needed.  Rounds inward to whole blocks. */
int ubd_trim(struct ubd_disk *disk, uint32_t len, uint64_t offset,
             unsigned flags);

/* In modes that flush: everything acknowledged before the call, to any caller,
 * is durable when it returns 0.
 *
 * Errors: the first loss of data since ubd_open, until ubd_close (rule D3)
 */
int ubd_flush(struct ubd_disk *disk);

/* Start to read the range into the host's cache; a hint. */
int ubd_cache(struct ubd_disk *disk, uint32_t len, uint64_t offset);

/* Report the range as pieces of data and holes, in order, without a gap and
 * never past its end.  Stops early when @add returns non-zero, and returns
 * that; after one piece with @one.
 */
typedef int (*ubd_add_extent)(void *opaque, uint64_t offset, uint64_t len,
                              bool is_hole);
int ubd_extents(struct ubd_disk *disk, uint32_t len, uint64_t offset, bool one,
                ubd_add_extent add, void *opaque);

/* What made a request durable. */
enum ubd_sync_how {
    UBD_SYNC_UNASKED, /* Nothing did: not asked for, or refused (rule D3). */
    UBD_SYNC_NONE,    /* Asked for, in a mode that does not sync for it. */
    UBD_SYNC_LED,     /* A sync of its own. */
    UBD_SYNC_JOINED,  /* A sync that another request led. */
    UBD_SYNC_CLEAN,   /* Everything was durable since an earlier sync. */
    UBD_SYNC_WRITE,   /* It was a durable write. */
};

struct ubd_sync_span {
    enum ubd_sync_how how;
    int tid;     /* The thread that made the call of the host. */
    int result;  /* Of that call: 0 or a negative errno. */
    uint64_t id; /* LED, JOINED, CLEAN: of the sync, from 1. */
    uint64_t submitted_ns, completed_ns; /* Not of CLEAN. */
};

/* One request, as seen from inside.  Times are of CLOCK_MONOTONIC. */
struct ubd_span {
    uint64_t start_ns; /* It left all waiting of ours; 0: it never waited. */
    struct ubd_sync_span sync;
};

/* Describe the calling thread's next request in *@span, which is zeroed; until
 * the next call of this, NULL at the latest when @span goes away.
 */
void ubd_observe(struct ubd_span *span);

/* The errno (positive) of the first loss of acknowledged data, or 0. */
int ubd_loss(struct ubd_disk *disk);

/* What a request was; the order of the metrics and of the manual page. */
#define UBD_KINDS(X)  \
    X(READ, "read")   \
    X(WRITE, "write") \
    X(TRIM, "trim")   \
    X(ZERO, "zero")   \
    X(FLUSH, "flush") \
    X(CACHE, "cache") \
    X(EXTENTS, "extents")
#define UBD_AS_KIND(id, name) UBD_KIND_##id,
enum ubd_kind { UBD_KINDS(UBD_AS_KIND) UBD_NR_KINDS };

/* One line per counter: identifier, metric, meaning. */
#define UBD_COUNTERS(X)                                                    \
    X(MERGED, "ubd_flushes_merged_total",                                  \
      "FLUSH requests answered by a sync that another request led")        \
    X(CLEAN, "ubd_flushes_clean_total",                                    \
      "FLUSH requests answered without a sync, since nothing had changed") \
    X(EARLY, "ubd_early_writeouts_total",                                  \
      "writes whose write-out began at once, as a flush was expected")     \
    X(CACHE_FLUSHES, "ubd_cache_flushes_total",                            \
      "flushes of the disk's cache that write-out asked for")              \
    X(SYNCS_SUBMITTED, "ubd_syncs_submitted_total",                        \
      "fdatasync calls sent to the host")                                  \
    X(SYNCS_COMPLETED, "ubd_syncs_completed_total",                        \
      "fdatasync calls that the host has answered")                        \
    X(SYNCS_FAILED, "ubd_syncs_failed_total",                              \
      "fdatasync calls that the host answered with an error")
#define UBD_AS_COUNTER(id, metric, help) UBD_COUNT_##id,
enum ubd_counter { UBD_COUNTERS(UBD_AS_COUNTER) UBD_NR_COUNTERS };

/* One line per latency histogram. */
#define UBD_HISTOGRAMS(X)                                            \
    X(FLUSH, "ubd_flush_seconds", "time to answer a FLUSH request")  \
    X(SYNC, "ubd_sync_seconds", "time of one fdatasync of the host") \
    X(FUA, "ubd_fua_seconds",                                        \
      "time of a write that is durable before its reply")
#define UBD_AS_HISTOGRAM(id, metric, help) UBD_HIST_##id,
enum ubd_histogram { UBD_HISTOGRAMS(UBD_AS_HISTOGRAM) UBD_NR_HISTOGRAMS };

/* Bucket i counts times of at most 2^i microseconds, the last one all. */
#define UBD_NR_BUCKETS 27

/* Sums over all threads, taken one after the other while they go on. */
struct ubd_stats {
    uint64_t requests[UBD_NR_KINDS];
    uint64_t bytes[UBD_NR_KINDS];
    uint64_t fua[UBD_NR_KINDS];
    uint64_t errors[UBD_NR_KINDS];
    uint64_t counter[UBD_NR_COUNTERS];
    struct {
        uint64_t bucket[UBD_NR_BUCKETS]; /* Not cumulative. */
        uint64_t sum_ns;
    } histogram[UBD_NR_HISTOGRAMS];
    uint64_t dirty_bytes, dirty_bytes_max; /* In the host's page cache. */
    uint64_t writeout_bytes;               /* Written out before any flush. */
    uint64_t throttle_ns;    /* Time that writers waited for room. */
    uint64_t volatile_bytes; /* Of changes acknowledged, not yet durable. */
};
void ubd_stats(struct ubd_disk *disk, struct ubd_stats *ret_stats);

#endif
