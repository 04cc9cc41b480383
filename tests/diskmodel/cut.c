/* SPDX-License-Identifier: BSD-3-Clause */
/* The power goes, and comes back: rules M4 and M5 of model.h. */
#include <errno.h>
#include <stdlib.h>

#include "model-private.h"
#include "survivors.h"

/* Bytes of @op up to the end of its @nr-th sector. */
static uint64_t
end_of_sector(const struct diskmodel_op *op, uint64_t nr)
{
    const uint64_t first = op->where.offset / DISKMODEL_SECTOR;
    const uint64_t end = (first + nr + 1) * DISKMODEL_SECTOR - op->where.offset;

    return end < op->where.len ? end : op->where.len;
}

static uint64_t
nr_sectors(const struct diskmodel_op *op)
{
    const uint64_t first = op->where.offset / DISKMODEL_SECTOR;

    return (op->where.offset + op->where.len - 1) / DISKMODEL_SECTOR - first +
           1;
}

static void
cut_one(struct diskmodel *m, struct survivors *s, const struct diskmodel_op *op)
{
    const uint64_t nr = nr_sectors(op);
    uint64_t i, from = 0, kept = 0;

    survivors_next_write(s, nr);
    for (i = 0; i < nr; i++) {
        const uint64_t to = end_of_sector(op, i);

        if (survivors_keep(s, i)) {
            model_apply(m, m->image.durable, op, from, to);
            kept++;
        }
        from = to;
    }
    m->stats.cut_sectors_kept += kept;
    m->stats.cut_sectors_lost += nr - kept;
    m->stats.cut_writes_torn += kept > 0 && kept < nr;
}

void
model_cut_power(struct diskmodel *m, uint64_t seed,
                enum diskmodel_cut_mode mode)
{
    struct survivors survivors;
    struct diskmodel_op *op;
    uint64_t nr = 0;

    m->stats.is_off = true;
    m->stats.cuts++;
    m->stats.cut_in_ops = 0;
    m->stats.cut_sectors_kept = m->stats.cut_sectors_lost = 0;
    m->stats.cut_writes_torn = 0;

    for (op = TAILQ_FIRST(&m->cached); op; op = TAILQ_NEXT(op, link))
        nr++;
    for (op = TAILQ_FIRST(&m->running); op; op = TAILQ_NEXT(op, link))
        nr += op->kind != DISKMODEL_FLUSH;
    survivors_init(&survivors, mode, seed, nr);

    while ((op = TAILQ_FIRST(&m->cached))) {
        if (op->fua) /* It is durable; now it must come out on top again. */
            model_apply(m, m->image.durable, op, 0, op->where.len);
        else
            cut_one(m, &survivors, op);
        model_forget(m, op);
    }
    while ((op = TAILQ_FIRST(&m->running))) {
        if (op->kind != DISKMODEL_FLUSH)
            cut_one(m, &survivors, op);
        TAILQ_REMOVE(&m->running, op, link); /* (M5) Its owner frees it. */
    }
    pthread_cond_broadcast(&m->cut);
}

int
diskmodel_cut(struct diskmodel *m, uint64_t seed, enum diskmodel_cut_mode mode)
{
    int r = -EIO;

    pthread_mutex_lock(&m->lock);
    if (!m->stats.is_off) {
        model_cut_power(m, seed, mode);
        r = 0;
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

void
diskmodel_arm(struct diskmodel *m, uint64_t nr, uint64_t seed,
              enum diskmodel_cut_mode mode)
{
    pthread_mutex_lock(&m->lock);
    m->stats.cut_in_ops = nr;
    m->armed_seed = seed;
    m->armed_mode = mode;
    pthread_mutex_unlock(&m->lock);
}

int
diskmodel_power_on(struct diskmodel *m)
{
    int r = -EINVAL;

    pthread_mutex_lock(&m->lock);
    if (m->stats.is_off) {
        r = image_load(&m->image);
        if (r == 0) {
            m->stats.is_off = false;
            m->actuator.free_at_ns = 0;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}
