/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A host file in memory that does what a script says: delay, reorder, shorten,
 * interrupt and fail requests, and lose power.  It behaves like Linux where
 * that matters for durability:
 *
 * - A plain change is in the page cache and may be on the disk.  A sync puts
 *   those changes there that had returned when it was submitted, and no other;
 *   a write with RWF_DSYNC only itself.
 * - A failed writeback leaves the pages clean: what it lost stays readable and
 *   is never written again.  It is reported once through each open file, by
 *   the next sync, RWF_DSYNC write or wait for write-out there.
 * - Write-out puts nothing on the disk for certain: only a sync does, of the
 *   whole file.  One of a page loses what it touches, if it fails.
 * - A power cut keeps any subset of what was not synced, by 512-byte sectors.
 */
#ifndef IO_FAKE_H
#define IO_FAKE_H

#include "io.h"

#include <pthread.h>

enum fake_kind {
    FAKE_READ,
    FAKE_WRITE,
    FAKE_DURABLE, /* A write with RWF_DSYNC. */
    FAKE_SYNC,
    FAKE_ALLOCATE,
    FAKE_ZEROOUT,
    FAKE_DISCARD,
    FAKE_PREFETCH,
    FAKE_SYNC_PAGE,
    FAKE_START_WRITEOUT, /* This one and those below are logged. */
    FAKE_SUBMIT_WRITEOUT,
    FAKE_WAIT_WRITING,
    FAKE_WAIT_WRITEOUT,
    FAKE_EVICT,
    FAKE_NR_KINDS,
};

enum fake_fault {
    FAKE_NONE,
    FAKE_FAIL,  /* Returns .error; nothing else happens. */
    FAKE_SHORT, /* Transfers .bytes only. */
    FAKE_LOSE,  /* Its own writeback fails with .error (SYNC, SYNC_PAGE,
                 * DURABLE, WAIT_WRITEOUT); of START_WRITEOUT and
                 * SUBMIT_WRITEOUT that is the only report, as on ext4.
                 */
};

/* What happens to requests of @kind after @skip of them, @times times. */
struct fake_rule {
    enum fake_kind kind;
    enum fake_fault fault;
    int error;
    uint64_t bytes;
    int mode;       /* ALLOCATE: only if all these flags are set. */
    unsigned skip;  /* (l) */
    unsigned times; /* (l) 0 is for ever. */
    struct fake_rule *next;
};

/* Where a request can be held. */
enum fake_stage {
    FAKE_RUNNING, /* Submitted.  A plain change is not in the page cache yet, a
                   * durable one is but not on the disk, a sync has yet to
                   * write.
                   */
    FAKE_ENDED,   /* Everything is done but the return. */
    FAKE_NR_STAGES,
};

struct fake_change; /* In the page cache and not on the disk. */

/* A request that stands still. */
struct fake_held {
    enum fake_kind kind;
    bool is_released;
    struct fake_held *next;
};

/* A request of the write-out. */
struct fake_piece {
    enum fake_kind kind;
    uint64_t offset, len;
    int mode;
};

#define FAKE_FDS 1024
#define FAKE_PIECES 256 /* More than a test looks at. */

struct fake {
    struct ubd_io io;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* Broadcast when anything below changes. */

    uint64_t size;
    uint64_t end;       /* (l) Where the file ends; below size if cut short. */
    uint32_t align;     /* (c) Of direct requests. */
    uint32_t mem_align; /* (c) */
    unsigned char *cache;  /* (l) What reads return. */
    unsigned char *stable; /* (l) What is on the disk for certain. */
    uint32_t *stable_seq;  /* (l) For each byte, the change that made it. */

    unsigned char *page;   /* (l) Clean, dirty or being written out. */
    unsigned nr_dirty;     /* (l) Pages that are not clean. */
    unsigned nr_dirty_max; /* (l) */
    struct fake_piece piece[FAKE_PIECES]; /* (l) In order of submission. */
    unsigned nr_pieces;                   /* (l) */

    struct fake_change *changes;      /* (l) Oldest first. */
    struct fake_change **changes_end; /* (l) */
    uint32_t nr_entered;              /* (l) Changes that got into the cache. */
    uint64_t nr_returned;             /* (l) Changes that have returned. */

    struct fake_rule *rules;                        /* (l) */
    struct fake_held *held;                         /* (l) Oldest first. */
    bool is_holding[FAKE_NR_KINDS][FAKE_NR_STAGES]; /* (l) */
    unsigned count[FAKE_NR_KINDS];                  /* (l) Attempts. */
    unsigned running[FAKE_NR_KINDS];                /* (l) */
    unsigned running_max[FAKE_NR_KINDS];            /* (l) */

    unsigned error_seq;        /* (l) Writebacks that failed. */
    bool is_error_seen;        /* (l) Somebody has reported the last one. */
    int error;                 /* (l) How the last one failed. */
    unsigned cursor[FAKE_FDS]; /* (l) What each open file has reported. */

    uint64_t chaos;         /* (c) Seed of random delays and shortness, or 0. */
    uint64_t lose_after;    /* (l) Attempts until a writeback fails, or 0. */
    uint64_t cut_after;     /* (l) Attempts until the power fails, or 0. */
    uint64_t nr_attempts;   /* (l) */
    bool has_no_power;      /* (l) */
    bool has_grown;         /* (l) Something tried to change the length. */
    bool is_misaligned;     /* (l) A direct request was. */
    bool was_evicted_early; /* (l) A page was, before it had been waited for. */
    bool was_evicted_dirty; /* (l) One was that had been written to since. */
};
/* Locking key: (l) lock, (c) constant while requests run. */

struct fake *fake_new(uint64_t size);
void fake_free(struct fake *fake);

void fake_script(struct fake *fake, struct fake_rule rule);
/* From now on requests of @kind meet @fault; or only the next one does. */
void fake_fault(struct fake *fake, enum fake_kind kind, enum fake_fault fault,
                int error);
void fake_fault_once(struct fake *fake, enum fake_kind kind,
                     enum fake_fault fault, int error);
/* Forget all rules. */
void fake_heal(struct fake *fake);

/* Hold all requests of @kind that come to @stage from now on. */
void fake_hold(struct fake *fake, enum fake_kind kind, enum fake_stage stage);
/* Hold no more. */
void fake_hold_no_more(struct fake *fake, enum fake_kind kind);
/* Hold no more, and let all go. */
void fake_unhold(struct fake *fake, enum fake_kind kind);
/* Wait until @nr requests of @kind are held. */
void fake_wait_held(struct fake *fake, enum fake_kind kind, unsigned nr);
/* Let the one go that has been held @nth longest, from 0, and wait until it
 * has left the place.
 */
void fake_release(struct fake *fake, enum fake_kind kind, unsigned nth);

/* The host file was opened once more; the linker makes open() tell us. */
void fake_opened(int fd);

unsigned fake_count(struct fake *fake, enum fake_kind kind);
/* Wait until there have been @nr attempts. */
void fake_wait_count(struct fake *fake, enum fake_kind kind, unsigned nr);

/* Pages that are not clean, now and at most. */
unsigned fake_dirty(struct fake *fake);
unsigned fake_dirty_max(struct fake *fake);

/* What was asked of the write-out, oldest first; returns how many, at most
 * @max.
 */
unsigned fake_pieces(struct fake *fake, enum fake_kind kind,
                     struct fake_piece *pieces, unsigned max);

/* The kernel writes back everything that is not on the disk, and fails. */
void fake_lose(struct fake *fake, int error);

/* After @nr of them, one that starts to write out loses its range instead. */
void fake_lose_starting(struct fake *fake, unsigned nr, int error);

/* The kernel writes back everything, and succeeds. */
void fake_write_back(struct fake *fake);

/* Cut the power: nothing works any more, and what is on the disk is in
 * fake->stable.
 */
void fake_cut(struct fake *fake, uint64_t seed);

/* The next number of a sequence that *@state is the seed of. */
uint64_t fake_random(uint64_t *state);

#endif
