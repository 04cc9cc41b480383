/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The pool of open files of one image, and which of them may report old news.
 */
#include "lanes.h"

#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int
ubd_reopen(int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

int
ubd_lanes_open(struct ubd_lanes *lanes, int fd, int flags, unsigned nr)
{
    *lanes = (struct ubd_lanes){.flags = flags};
    pthread_mutex_init(&lanes->lock, NULL);
    pthread_cond_init(&lanes->given, NULL);
    lanes->lanes = calloc(nr, sizeof lanes->lanes[0]);
    if (!lanes->lanes)
        return -ENOMEM;

    for (; lanes->nr < nr; lanes->nr++) {
        struct ubd_lane *lane = &lanes->lanes[lanes->nr];

        lane->fd = ubd_reopen(fd, flags);
        if (lane->fd < 0)
            return lane->fd;
        lane->next = lanes->idle;
        lanes->idle = lane;
    }
    return 0;
}

void
ubd_lanes_close(struct ubd_lanes *lanes)
{
    if (!lanes->lanes)
        return;
    for (unsigned i = 0; i < lanes->nr; i++)
        ubd_cleanup_close(&lanes->lanes[i].fd);
    free(lanes->lanes);
    pthread_cond_destroy(&lanes->given);
    pthread_mutex_destroy(&lanes->lock);
    *lanes = (struct ubd_lanes){0};
}

/* Needs the lock. */
static void
unlink_lane(struct ubd_lanes *lanes, struct ubd_lane **link)
{
    struct ubd_lane *lane = *link;

    *link = lane->next;
    lane->since = lanes->nr_harmless;
}

/* Needs the lock. */
static struct ubd_lane *
pop_fresh(struct ubd_lanes *lanes)
{
    for (struct ubd_lane **link = &lanes->idle; *link; link = &(*link)->next) {
        struct ubd_lane *lane = *link;

        if (lane->seen == lanes->nr_harmless) {
            unlink_lane(lanes, link);
            return lane;
        }
    }
    return NULL;
}

struct ubd_lane *
ubd_lanes_take(struct ubd_lanes *lanes)
{
    struct ubd_lane *lane;

    pthread_mutex_lock(&lanes->lock);
    while (!lanes->idle)
        pthread_cond_wait(&lanes->given, &lanes->lock);
    lane = pop_fresh(lanes);
    if (!lane) {
        lane = lanes->idle;
        unlink_lane(lanes, &lanes->idle);
    }
    pthread_mutex_unlock(&lanes->lock);
    return lane;
}

bool
ubd_lanes_is_stale(struct ubd_lanes *lanes, struct ubd_lane *lane)
{
    bool is_stale;

    pthread_mutex_lock(&lanes->lock);
    is_stale = lane->seen < lanes->nr_harmless;
    pthread_mutex_unlock(&lanes->lock);
    return is_stale;
}

void
ubd_lanes_again(struct ubd_lanes *lanes, struct ubd_lane *lane)
{
    pthread_mutex_lock(&lanes->lock);
    if (lane->seen < lane->since)
        lane->seen = lane->since;
    lane->since = lanes->nr_harmless;
    pthread_mutex_unlock(&lanes->lock);
}

uint64_t
ubd_lanes_harmless(struct ubd_lanes *lanes)
{
    uint64_t nr;

    pthread_mutex_lock(&lanes->lock);
    nr = ++lanes->nr_harmless;
    pthread_mutex_unlock(&lanes->lock);
    return nr;
}

int
ubd_lanes_reopen(const struct ubd_lanes *lanes, const struct ubd_lane *lane)
{
    return ubd_reopen(lane->fd, lanes->flags);
}

void
ubd_lanes_renew(struct ubd_lanes *lanes, struct ubd_lane *lane, int fd,
                uint64_t nr_harmless)
{
    const int old = lane->fd;

    pthread_mutex_lock(&lanes->lock);
    lane->fd = fd;
    if (lane->seen < nr_harmless)
        lane->seen = nr_harmless;
    pthread_mutex_unlock(&lanes->lock);
    ubd_cleanup_close(&old);
}

void
ubd_lanes_give(struct ubd_lanes *lanes, struct ubd_lane *lane,
               bool has_reported)
{
    pthread_mutex_lock(&lanes->lock);
    if (has_reported && lane->seen < lane->since)
        lane->seen = lane->since;
    lane->next = lanes->idle;
    lanes->idle = lane;
    pthread_cond_signal(&lanes->given);
    pthread_mutex_unlock(&lanes->lock);
}
