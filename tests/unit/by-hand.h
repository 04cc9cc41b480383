/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Flushes that a test follows by hand through durability.c: no disk, no
 * threads, no time.  Once one that waits is woken, ubd_durability_wait does not
 * block.
 */
#ifndef BY_HAND_H
#define BY_HAND_H

#include "unit.h"

/* One flush of the test, with the sync that it leads if it does. */
struct flush {
    struct ubd_flusher flusher;
    struct ubd_sync sync;
};

static inline enum ubd_flush_step
arrive(struct ubd_durability *d, struct flush *f)
{
    return ubd_durability_arrive(d, &f->flusher, &f->sync);
}

static inline bool
is_woken(struct flush *f)
{
    int value;

    sem_getvalue(&f->flusher.woken, &value);
    return value > 0;
}

static inline enum ubd_flush_step
wait_for(struct ubd_durability *d, struct flush *f)
{
    return ubd_durability_wait(d, &f->flusher, &f->sync);
}

static inline int
finish(struct ubd_durability *d, struct flush *f, int result)
{
    f->sync.ns = 1000; /* A fast disk, and no slower with two syncs at once. */
    return ubd_durability_finish(d, &f->sync, result);
}

/* It was woken with an answer; the answer. */
static inline int
answer_of(struct ubd_durability *d, struct flush *f)
{
    ck_assert(is_woken(f));
    ck_assert_int_eq(wait_for(d, f), UBD_FLUSH_DONE);
    return f->flusher.result;
}

/* It was woken to sync; now its sync runs. */
static inline void
lead(struct ubd_durability *d, struct flush *f)
{
    ck_assert(is_woken(f));
    ck_assert_int_eq(wait_for(d, f), UBD_FLUSH_LEAD);
}

/* A flush that nobody disturbs. */
static inline int
flush_alone(struct ubd_durability *d, int sync_result)
{
    struct flush f;

    ck_assert_int_eq(arrive(d, &f), UBD_FLUSH_LEAD);
    return finish(d, &f, sync_result);
}

static inline bool
is_clean(struct ubd_durability *d)
{
    struct flush f;

    if (arrive(d, &f) != UBD_FLUSH_DONE)
        ck_abort_msg("expected an answer at once");
    return f.flusher.result == 0 && f.flusher.is_clean;
}

#endif
