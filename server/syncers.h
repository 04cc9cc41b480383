/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads that lead the syncs of a crowd.  Where many flush at a time the
 * processors are busy, and a flusher that is woken to lead the next sync waits
 * for one of them, while the disk has nothing to do.  A thread that leads one
 * sync after the other begins the next one at once.
 */
#ifndef UBD_SYNCERS_H
#define UBD_SYNCERS_H

#include "durability.h"

#include <pthread.h>

#define UBD_NR_SYNCERS 1 /* Two serve half as many each, for more time. */

struct ubd_syncers {
    struct ubd_durability *durability; /* (c) */
    /* Run a sync that has begun, and ubd_durability_finish; without a lock. */
    void (*lead)(void *opaque, struct ubd_sync *sync); /* (c) */
    void *opaque;                                      /* (c) */
    pthread_t threads[UBD_NR_SYNCERS];                 /* (c) */
    unsigned nr;                                       /* (c) Of those. */
};
/* (c): constant once started. */

/* Errors: as pthread_create, negative; those that were started stay. */
int ubd_syncers_start(struct ubd_syncers *s, struct ubd_durability *d,
                      void (*lead)(void *opaque, struct ubd_sync *sync),
                      void *opaque);

/* Nobody may flush any more.  Accepts a zeroed object. */
void ubd_syncers_stop(struct ubd_syncers *s);

#endif
