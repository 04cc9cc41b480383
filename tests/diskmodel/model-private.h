/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of a disk, for model.c and cut.c only. */
#ifndef DISKMODEL_MODEL_PRIVATE_H
#define DISKMODEL_MODEL_PRIVATE_H

#include <pthread.h>
#include <sys/queue.h>

#include "actuator.h"
#include "image.h"
#include "model.h"

struct diskmodel_op {
    TAILQ_ENTRY(diskmodel_op) link; /* (l) In running or in cached. */
    struct extent where;            /* (c) Except next: (l). */
    enum diskmodel_kind kind;       /* (c) */
    bool fua;                       /* (c) */
    bool makes_room;                /* (c) Waits for all of a full cache. */
    bool is_charged;      /* (l) The actuator has an appointment for it. */
    uint64_t cuts;        /* (c) stats.cuts when it was received. */
    uint64_t serial;      /* (l) Last completion when it came; then its own. */
    uint64_t due_ns;      /* (c) When it would complete. */
    unsigned char data[]; /* (c) Only of DISKMODEL_WRITE. */
};

TAILQ_HEAD(op_list, diskmodel_op);

struct diskmodel {
    pthread_mutex_t lock;
    pthread_cond_t cut; /* Broadcast when stats.cuts changes. */

    struct image image;       /* (l) Its size: (c). */
    struct op_list running;   /* (l) Received, in that order. */
    struct op_list cached;    /* (l) Completed, in that order. */
    uint64_t completed;       /* (l) Serial of the last completion. */
    struct actuator actuator; /* (l) */
    uint64_t delay_rng;       /* (l) */

    struct diskmodel_settings settings; /* (l) */
    struct diskmodel_stats stats;       /* (l) */

    uint64_t armed_seed;                /* (l) Of stats.cut_in_ops. */
    enum diskmodel_cut_mode armed_mode; /* (l) */
};
/* Locking key: (l) lock, (c) constant once published. */

/* Put bytes @from to @to of @op, counted from its start, in @state.  This and
 * what follows need the lock.
 */
void model_apply(struct diskmodel *m, unsigned char *state,
                 const struct diskmodel_op *op, uint64_t from, uint64_t to);

/* Forget that @op, which is in the cache, ever was; frees it. */
void model_forget(struct diskmodel *m, struct diskmodel_op *op);

/* The power is on, and goes. */
void model_cut_power(struct diskmodel *m, uint64_t seed,
                     enum diskmodel_cut_mode mode);

#endif
