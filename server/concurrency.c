/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tries how many syncs at a time suit the disk.
 */
#include "concurrency.h"

/* A trial is one epoch of the other number in twenty, later in nearly seventy:
 * if that is half as fast, it costs 5 %, then 1.5 %.
 */
#define EPOCH_SYNCS 32
#define RESTS_FIRST 1
#define RESTS_MIN 16
#define RESTS_MAX 64

/* And an epoch is not shorter: 16 flushes that have each a sync of their own
 * end together, twice in 32, which is chance.
 */
#define EPOCH_NS 50000000

/* If no sync runs for so long, nobody flushes: that time does not count. */
#define IDLE_NS 1000000

/* Syncs between two epochs: what ran when the number changed counts for
 * neither.
 */
#define SETTLE_SYNCS 4

static void
start_epoch(struct ubd_concurrency *c)
{
    c->nr_syncs = c->nr_crowded = 0;
    c->nr_flushes = 0;
    c->start_ns = 0;
}

/* Go on with what is used, and try the other one later. */
static void
start_rest(struct ubd_concurrency *c, unsigned nr_rests)
{
    c->phase = UBD_TRIAL_REST;
    c->max = c->used;
    c->nr_rests = c->rests_max = nr_rests < RESTS_MAX ? nr_rests : RESTS_MAX;
}

void
ubd_concurrency_init(struct ubd_concurrency *c, unsigned limit)
{
    *c = (struct ubd_concurrency){.limit = limit, .used = limit};
    start_rest(c, RESTS_FIRST);
}

void
ubd_concurrency_guess(struct ubd_concurrency *c, bool is_slow)
{
    if (c->is_proven || c->phase != UBD_TRIAL_REST)
        return;
    c->max = c->used = is_slow ? 1 : c->limit;
}

static unsigned
other_of(const struct ubd_concurrency *c)
{
    return c->used == 1 ? c->limit : 1;
}

static void
judge(struct ubd_concurrency *c)
{
    const uint64_t before = c->rate[UBD_TRIAL_BEFORE];
    const uint64_t after = c->rate[UBD_TRIAL_AFTER];
    const uint64_t best = before > after ? before : after;

    if (c->rate[UBD_TRIAL_OTHER] > best + best / 10) {
        c->used = other_of(c);
        start_rest(c, RESTS_MIN);
    } else {
        start_rest(c, c->is_proven ? c->rests_max * 2 : RESTS_MIN);
    }
    c->is_proven = true;
}

/* An epoch has ended in which flushes competed; @rate is its. */
static void
end_epoch(struct ubd_concurrency *c, uint64_t rate)
{
    c->rate[c->phase] = rate;
    switch (c->phase) {
    case UBD_TRIAL_REST:
        if (c->nr_rests > 0)
            c->nr_rests--;
        else
            c->phase = UBD_TRIAL_BEFORE;
        break;
    case UBD_TRIAL_BEFORE:
        c->phase = UBD_TRIAL_OTHER;
        c->max = other_of(c);
        break;
    case UBD_TRIAL_OTHER:
        c->phase = UBD_TRIAL_AFTER;
        c->max = c->used;
        break;
    default:
        judge(c);
    }
}

void
ubd_concurrency_ended(struct ubd_concurrency *c, uint64_t begin_ns,
                      uint64_t end_ns, unsigned nr_flushes, bool is_crowded)
{
    uint64_t ns;

    if (end_ns < c->last_ns) /* It was held up after that. */
        end_ns = c->last_ns;
    if (begin_ns > c->last_ns + IDLE_NS)
        c->start_ns += begin_ns - c->last_ns;
    c->last_ns = end_ns;
    if (++c->nr_syncs <= SETTLE_SYNCS) {
        c->start_ns = end_ns;
        return;
    }
    c->nr_flushes += nr_flushes;
    c->nr_crowded += is_crowded;
    if (c->nr_syncs < SETTLE_SYNCS + EPOCH_SYNCS ||
        end_ns < c->start_ns + EPOCH_NS)
        return;
    ns = end_ns - c->start_ns;
    if (c->nr_crowded < (c->nr_syncs - SETTLE_SYNCS) / 2) {
        if (c->phase != UBD_TRIAL_REST) /* It would prove nothing: later. */
            start_rest(c, RESTS_FIRST);
    } else {
        end_epoch(c, c->nr_flushes * UINT64_C(1000000000000) / ns);
    }
    start_epoch(c);
}
