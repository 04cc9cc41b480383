/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Starting to write dirty pages out: sync_file_range(2) with WRITE alone.
 *
 * It takes no report of an earlier failure, but it may lose data itself, and
 * then its errno is the only report: where ext4 cannot find room on the disk
 * for what was written to a hole, it drops the pages and marks nothing (Linux
 * 6.18).  So an error is a loss, unless it says that nothing was started; and
 * a sync or durable write beside it, which found nothing left to write, is not
 * answered before it is known (durability.h, D4).
 *
 * Not covered: what Linux starts to write by itself, or while it evicts, and
 * fails so; nobody is told of that.
 */
#ifndef UBD_WRITEOUT_H
#define UBD_WRITEOUT_H

#include "io.h"

#include <pthread.h>
#include <stdatomic.h>

struct ubd_writeout {
    /* Data that was acknowledged may be lost; called without a lock. */
    void (*lost)(void *opaque, int error); /* (c) */
    void *opaque;                          /* (c) */
    atomic_uint nr_running;                /* (a) Calls. */
    atomic_uint nr_waiting;                /* (a) For those to end. */
    pthread_mutex_t lock;
    pthread_cond_t idle; /* Broadcast when none runs any more, if they wait. */
    uint64_t nr_idle;    /* (l) How often that was. */
};
/* Locking key: (l) lock, (c) constant after init, (a) atomic. */

void ubd_writeout_init(struct ubd_writeout *w,
                       void (*lost)(void *opaque, int error), void *opaque);

/* Nothing may be running. */
void ubd_writeout_destroy(struct ubd_writeout *w);

/* Run @req, a START_WRITEOUT or SUBMIT_WRITEOUT.  0 or a negative errno.  With
 * @may_skip 1, and nothing done, if somebody waits for those that run.
 */
int ubd_writeout_start(struct ubd_writeout *w, struct ubd_io *io,
                       const struct ubd_req *req, bool may_skip);

/* All that had begun have ended, and what they lost was told. */
void ubd_writeout_settle(struct ubd_writeout *w);

#endif
