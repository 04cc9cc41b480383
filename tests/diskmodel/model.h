/* SPDX-License-Identifier: BSD-3-Clause */
/* A disk with a volatile write cache, whose power can be cut.
 *
 * It knows no front: fuse.c shows it as a file, test-model.c drives it without
 * threads.  A request is received (diskmodel_begin) and completed
 * (diskmodel_finish); in between anything may happen, a power cut included.
 *
 *   (M1) A read sees every write that completed before it, and no other.
 *   (M2) A FLUSH makes durable what completed before the FLUSH was received,
 *        when the FLUSH completes; not more, and not earlier.
 *   (M3) A write with FUA is durable when it completes; it makes nothing else
 *        durable.
 *   (M4) A cut decides for each 512-byte sector of each write that is not
 *        durable whether it survives.  Same requests, seed and mode: same
 *        outcome.  Writes that were received and not completed take part.
 *   (M5) From the cut on every request fails with EIO, also those that were
 *        received before it, until the power comes back.
 *   (M6) A request can be told to fail.  A write then changes nothing.  A FLUSH
 *        loses what the cache holds: it stays visible and is never durable.
 *
 * Units:   offsets and lengths are bytes, times are nanoseconds.
 * Errors:  0 on success, a negative errno on failure; nothing here prints.
 * Threads: open and close belong to one thread; the rest may be called from
 *          any thread at any time in between.
 */
#ifndef DISKMODEL_MODEL_H
#define DISKMODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define DISKMODEL_SECTOR 512

struct diskmodel;
struct diskmodel_op;

enum diskmodel_kind { DISKMODEL_WRITE, DISKMODEL_ZERO, DISKMODEL_FLUSH };

/* What happens to writes that are not durable when the power is cut. */
enum diskmodel_cut_mode {
    DISKMODEL_CUT_NONE,   /* Nothing survives. */
    DISKMODEL_CUT_ALL,    /* Everything survives. */
    DISKMODEL_CUT_PREFIX, /* The first few, in the order they completed. */
    DISKMODEL_CUT_WRITE,  /* Each write survives or not. */
    DISKMODEL_CUT_SECTOR, /* Each sector of each write survives or not. */
    DISKMODEL_CUT_TORN,   /* Each write: nothing, all, or its first sectors. */
    DISKMODEL_NR_CUT_MODES
};

/* How slow the disk is.  All zero: as fast as memory.  settings.c has the
 * names and units that users see.
 */
struct diskmodel_settings {
    uint64_t flush_ns;       /* Each FLUSH, and each write with FUA. */
    uint64_t flush_clean_ns; /* A FLUSH that finds nothing to do ... */
    bool has_flush_clean;    /* ... if that differs from flush_ns. */
    uint64_t write_ns;       /* Each write or zero. */
    uint64_t read_ns;        /* Each read. */
    uint64_t write_delay_ns; /* Random extra, 0 to this; not on the actuator, */
    uint64_t flush_delay_ns; /* so it reorders completions. */
    uint64_t rpm;            /* Not 0: a rotating disk; the two below count. */
    uint64_t seek_ns;        /* Average seek. */
    uint64_t rate;           /* Bytes per second under the head. */
    uint64_t cache_bytes;    /* Write cache; 0 is unlimited. */
    uint64_t seed;           /* Of the random delays. */
};

struct diskmodel_stats {
    uint64_t reads, writes, zeroes, flushes;     /* Received. */
    uint64_t read_bytes, write_bytes;            /* Received. */
    uint64_t fua_writes;                         /* Received. */
    uint64_t flushes_clean;                      /* Received, nothing to do. */
    uint64_t flushes_done;                       /* Completed. */
    uint64_t errors;                             /* Requests that failed. */
    uint64_t busy_ns;                            /* Time of the actuator. */
    uint64_t volatile_bytes, volatile_bytes_max; /* Not durable. */
    uint64_t cuts;
    uint64_t cut_sectors_kept, cut_sectors_lost; /* In the last cut. */
    uint64_t cut_writes_torn;                    /* In the last cut. */
    uint64_t ops;        /* Writes, zeroes and flushes received. */
    uint64_t cut_in_ops; /* Armed: the cut comes before this many more. */
    uint64_t fail_in_writes, fail_in_flushes; /* Likewise; 0: none fails. */
    bool is_off;                              /* The power has been cut. */
};

/* Open the durable state @path, made if missing.  @size is a multiple of 512,
 * or 0 for that of an existing file.
 */
int diskmodel_open(const char *path, uint64_t size,
                   const struct diskmodel_settings *settings,
                   struct diskmodel **ret_model);

/* What is not durable is lost, as in a cut.  No request may be running. */
void diskmodel_close(struct diskmodel *m);

uint64_t diskmodel_size(const struct diskmodel *m);

/* Requests that take their time.  Zeroing is also how a hole is punched.
 *
 * Errors: -EIO     the power is off
 *         -EINVAL  outside the disk
 *         -ENOMEM
 */
int diskmodel_read(struct diskmodel *m, void *buf, uint64_t len,
                   uint64_t offset);
int diskmodel_write(struct diskmodel *m, const void *buf, uint64_t len,
                    uint64_t offset, bool fua);
int diskmodel_zero(struct diskmodel *m, uint64_t len, uint64_t offset,
                   bool fua);
int diskmodel_flush(struct diskmodel *m);

/* The two halves of a change or a flush.  @data is copied; NULL unless @kind
 * is DISKMODEL_WRITE.  Finish takes @op also when it fails, and does not wait.
 */
int diskmodel_begin(struct diskmodel *m, enum diskmodel_kind kind,
                    const void *data, uint64_t len, uint64_t offset, bool fua,
                    struct diskmodel_op **ret_op);
int diskmodel_finish(struct diskmodel *m, struct diskmodel_op *op);

/* When @op should be finished, by CLOCK_MONOTONIC. */
uint64_t diskmodel_due_ns(const struct diskmodel_op *op);

/* Return then, or when the power is cut. */
void diskmodel_wait(struct diskmodel *m, const struct diskmodel_op *op);

/* Cut the power now; -EIO if it is off already. */
int diskmodel_cut(struct diskmodel *m, uint64_t seed,
                  enum diskmodel_cut_mode mode);

/* Cut it just before the @nr-th write, zero or flush from here is received
 * (1: the next).  0 disarms.
 */
void diskmodel_arm(struct diskmodel *m, uint64_t nr, uint64_t seed,
                   enum diskmodel_cut_mode mode);

/* The @nr_writes-th write or zero from here fails, and the @nr_flushes-th FLUSH
 * (1: the next; 0: none).
 */
void diskmodel_fail(struct diskmodel *m, uint64_t nr_writes,
                    uint64_t nr_flushes);

/* The disk comes back with what was durable; -EINVAL if it is not off. */
int diskmodel_power_on(struct diskmodel *m);

void diskmodel_get_settings(struct diskmodel *m,
                            struct diskmodel_settings *ret_settings);
void diskmodel_set_settings(struct diskmodel *m,
                            const struct diskmodel_settings *settings);
void diskmodel_get_stats(struct diskmodel *m,
                         struct diskmodel_stats *ret_stats);

#endif
