/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many syncs at a time suit the disk?
 *
 * A disk that serves one flush after the other makes concurrent syncs queue;
 * then one at a time is right, and all who wait meanwhile share the next.  A
 * disk that takes several at once would be kept idle by that.  How long a sync
 * takes does not tell the two apart (a disk may be slower to each and yet serve
 * more), so now and then the other number is tried: flushes answered a second
 * with the number in use, with the other one, and with the first again.  If the
 * other was better than both by a tenth, it is used from then on.
 *
 * Nothing is learned while nobody waits or has company: then the number does
 * not matter.  No locks: durability.c calls this with its own.
 */
#ifndef UBD_CONCURRENCY_H
#define UBD_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

enum ubd_trial_phase {
    UBD_TRIAL_REST,
    UBD_TRIAL_BEFORE,
    UBD_TRIAL_OTHER,
    UBD_TRIAL_AFTER,
    UBD_TRIAL_PHASES,
};

struct ubd_concurrency {
    unsigned max;   /* Syncs that may run at a time now (in a crowd: more, */
    unsigned limit; /* if they are several), and most that are tried. */
    unsigned used;  /* 1 or limit: what is thought to be better. */
    bool is_proven; /* By a trial. */

    enum ubd_trial_phase phase;
    uint64_t rate[UBD_TRIAL_PHASES]; /* Flushes in 1000 s, of this trial. */
    unsigned nr_rests, rests_max;    /* Epochs without a trial. */

    uint64_t last_ns; /* When the last sync has ended. */

    /* The epoch: a number of syncs, and some time. */
    unsigned nr_syncs;
    unsigned nr_crowded; /* Of those, not alone. */
    uint64_t nr_flushes; /* That they have answered. */
    uint64_t start_ns;   /* Since when, without idle time; 0: not yet. */
};

/* @limit: at least 1. */
void ubd_concurrency_init(struct ubd_concurrency *c, unsigned limit);

/* Until a trial has shown better: on a slow disk one at a time is the better
 * guess.
 */
void ubd_concurrency_guess(struct ubd_concurrency *c, bool is_slow);

/* A sync that was submitted at @begin_ns has ended at @end_ns, and answered
 * @nr_flushes.  @is_crowded: others ran or waited meanwhile.  Sets c->max.
 */
void ubd_concurrency_ended(struct ubd_concurrency *c, uint64_t begin_ns,
                           uint64_t end_ns, unsigned nr_flushes,
                           bool is_crowded);

#endif
