/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Locks on byte ranges: a list, as there are never more than threads.
 */
#include "range-lock.h"

void
ubd_range_locks_init(struct ubd_range_locks *locks)
{
    *locks = (struct ubd_range_locks){0};
    pthread_mutex_init(&locks->lock, NULL);
    pthread_cond_init(&locks->released, NULL);
}

void
ubd_range_locks_destroy(struct ubd_range_locks *locks)
{
    pthread_cond_destroy(&locks->released);
    pthread_mutex_destroy(&locks->lock);
}

/* Needs the lock.  Whoever came earlier goes first, so that nobody starves. */
static bool
is_blocked(const struct ubd_range_locks *locks, const struct ubd_range *wanted)
{
    for (const struct ubd_range *r = locks->first; r != wanted; r = r->next)
        if (r->start < wanted->end && wanted->start < r->end &&
            (r->is_exclusive || wanted->is_exclusive))
            return true;
    return false;
}

void
ubd_range_lock(struct ubd_range_locks *locks, struct ubd_range *range)
{
    struct ubd_range **link = &locks->first;

    pthread_mutex_lock(&locks->lock);
    while (*link)
        link = &(*link)->next;
    range->next = NULL;
    *link = range;
    while (is_blocked(locks, range))
        pthread_cond_wait(&locks->released, &locks->lock);
    pthread_mutex_unlock(&locks->lock);
}

void
ubd_range_unlock(struct ubd_range_locks *locks, struct ubd_range *range)
{
    struct ubd_range **link = &locks->first;

    pthread_mutex_lock(&locks->lock);
    while (*link != range)
        link = &(*link)->next;
    *link = range->next;
    pthread_cond_broadcast(&locks->released);
    pthread_mutex_unlock(&locks->lock);
}
