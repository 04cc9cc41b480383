/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Locks on byte ranges, shared or exclusive.  Only O_DIRECT needs them: a
 * write of part of a block must read the rest, and nobody may change the block
 * in between.  The mutex inside is not held while a range is.
 */
#ifndef UBD_RANGE_LOCK_H
#define UBD_RANGE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A held or wanted range; lives on its owner's stack. */
struct ubd_range {
    uint64_t start, end;
    bool is_exclusive;
    struct ubd_range *next; /* (l) */
};

struct ubd_range_locks {
    pthread_mutex_t lock;
    pthread_cond_t released; /* Broadcast when a range is released. */
    struct ubd_range *first; /* (l) Held or wanted, in order of arrival. */
};

void ubd_range_locks_init(struct ubd_range_locks *locks);
void ubd_range_locks_destroy(struct ubd_range_locks *locks);

/* Wait until no range that came earlier overlaps @range and is exclusive, or
 * would be excluded by it; then hold it.
 */
void ubd_range_lock(struct ubd_range_locks *locks, struct ubd_range *range);
void ubd_range_unlock(struct ubd_range_locks *locks, struct ubd_range *range);

#endif
