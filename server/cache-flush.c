/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The thread that flushes the disk's cache beside the write-out, and who waits
 * for it.
 */
#include "cache-flush.h"

#include "thread.h"

/* Needs the lock. */
static uint64_t
unflushed_bytes(const struct ubd_cache_flush *c)
{
    return c->written_bytes - c->flushed_bytes;
}

/* Needs the lock. */
static void
note_flushed(struct ubd_cache_flush *c, uint64_t bytes)
{
    if (bytes > c->flushed_bytes)
        c->flushed_bytes = bytes;
    pthread_cond_broadcast(&c->flushed);
}

static void *
flush_each_share(void *opaque)
{
    struct ubd_cache_flush *c = opaque;

    pthread_mutex_lock(&c->lock);
    while (!c->must_stop) {
        const uint64_t bytes = c->written_bytes, offset = c->offset;

        if (unflushed_bytes(c) < c->config.share) {
            pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        c->nr_begun++;
        pthread_mutex_unlock(&c->lock);
        c->config.flush(c->config.opaque, offset);
        pthread_mutex_lock(&c->lock);
        c->nr_ended++;
        note_flushed(c, bytes); /* If it failed, waiting would not help. */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int
ubd_cache_flush_start(struct ubd_cache_flush *c,
                      const struct ubd_cache_flush_config *config)
{
    int r;

    *c = (struct ubd_cache_flush){.config = *config};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->flushed, NULL);
    r = ubd_start_thread(&c->thread, flush_each_share, c);
    c->is_on = r == 0;
    return r;
}

void
ubd_cache_flush_stop(struct ubd_cache_flush *c)
{
    if (!c->is_on)
        return;
    pthread_mutex_lock(&c->lock);
    c->must_stop = true;
    pthread_cond_signal(&c->work);
    pthread_cond_broadcast(&c->flushed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
}

void
ubd_cache_flush_destroy(struct ubd_cache_flush *c)
{
    if (!c->is_on)
        return;
    pthread_cond_destroy(&c->flushed);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    c->is_on = false;
}

void
ubd_cache_flush_written(struct ubd_cache_flush *c, uint64_t offset,
                        uint64_t bytes)
{
    if (!c->is_on)
        return;
    pthread_mutex_lock(&c->lock);
    c->written_bytes += bytes;
    c->offset = offset;
    if (unflushed_bytes(c) >= c->config.share)
        pthread_cond_signal(&c->work);
    while (unflushed_bytes(c) > c->config.limit && !c->must_stop)
        pthread_cond_wait(&c->flushed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

/* Needs the lock, and gives it up in between. */
static void
wait_for_running(struct ubd_cache_flush *c)
{
    const uint64_t nr_begun = c->nr_begun;

    while (c->nr_ended < nr_begun)
        pthread_cond_wait(&c->flushed, &c->lock);
}

uint64_t
ubd_cache_flush_mark(struct ubd_cache_flush *c)
{
    uint64_t mark;

    if (!c->is_on)
        return 0;
    pthread_mutex_lock(&c->lock);
    mark = c->written_bytes;
    pthread_mutex_unlock(&c->lock);
    return mark;
}

void
ubd_cache_flush_synced(struct ubd_cache_flush *c, uint64_t mark)
{
    if (!c->is_on)
        return;
    pthread_mutex_lock(&c->lock);
    note_flushed(c, mark);
    wait_for_running(c);
    pthread_mutex_unlock(&c->lock);
}

void
ubd_cache_flush_settle(struct ubd_cache_flush *c)
{
    if (!c->is_on)
        return;
    pthread_mutex_lock(&c->lock);
    wait_for_running(c);
    pthread_mutex_unlock(&c->lock);
}
