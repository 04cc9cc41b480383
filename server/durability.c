/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is on stable storage, and who must sync next.  durability.h has the
 * rules; this file is a state machine behind one lock and calls nothing that
 * reads, writes or syncs.
 */
#include "durability.h"

#include <assert.h>
#include <errno.h>

atomic_uint ubd_shard_next;

void
ubd_durability_init(struct ubd_durability *d, bool always, unsigned running_max)
{
    *d = (struct ubd_durability){.always = always, .running_max = running_max};
    d->waiting_end = &d->waiting;
    pthread_mutex_init(&d->lock, NULL); /* Cannot fail without attributes. */
}

void
ubd_durability_destroy(struct ubd_durability *d)
{
    assert(!d->nr_running && !d->waiting);
    pthread_mutex_destroy(&d->lock);
}

void
ubd_durability_completed(struct ubd_durability *d, uint64_t bytes)
{
    atomic_fetch_add_explicit(&d->completed[ubd_shard()].bytes, bytes,
                              memory_order_release);
}

/* Needs the lock, so that a later sum is never smaller. */
static uint64_t
sum_completed(struct ubd_durability *d)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < UBD_NR_SHARDS; i++)
        sum +=
            atomic_load_explicit(&d->completed[i].bytes, memory_order_acquire);
    return sum;
}

/* Needs the lock. */
static struct ubd_sync *
find_covering_sync(struct ubd_durability *d, uint64_t target)
{
    for (struct ubd_sync *s = d->running; s; s = s->next)
        if (s->covered >= target) /* (D2) */
            return s;
    return NULL;
}

/* Needs the lock. */
static void
start_sync(struct ubd_durability *d, struct ubd_sync *sync)
{
    sync->covered = sum_completed(d); /* Before submitting, not after: (D2). */
    sync->followers = d->waiting;     /* They arrived earlier. */
    d->waiting = NULL;
    d->waiting_end = &d->waiting;
    sync->next = d->running;
    d->running = sync;
}

/* Needs the lock. */
static enum ubd_flush_step
choose_step(struct ubd_durability *d, struct ubd_flusher *f,
            struct ubd_sync *own)
{
    struct ubd_sync *sync;

    if (d->error) { /* (D3) */
        f->result = d->error;
        return UBD_FLUSH_DONE;
    }
    f->target = sum_completed(d);                   /* (D1) */
    if (d->has_synced && f->target <= d->durable) { /* (D6) */
        f->is_clean = true;
        return UBD_FLUSH_DONE;
    }
    sync = find_covering_sync(d, f->target);
    if (sync) {
        f->next = sync->followers;
        sync->followers = f;
        return UBD_FLUSH_WAIT;
    }
    if (d->nr_running < d->running_max && !d->is_leader_woken) {
        d->nr_running++;
        start_sync(d, own);
        return UBD_FLUSH_LEAD;
    }
    *d->waiting_end = f;
    d->waiting_end = &f->next;
    return UBD_FLUSH_WAIT;
}

enum ubd_flush_step
ubd_durability_arrive(struct ubd_durability *d, struct ubd_flusher *f,
                      struct ubd_sync *own)
{
    enum ubd_flush_step step;

    *f = (struct ubd_flusher){0};
    sem_init(&f->woken, 0, 0); /* Cannot fail: 0 is a valid value. */
    pthread_mutex_lock(&d->lock);
    step = choose_step(d, f, own);
    pthread_mutex_unlock(&d->lock);
    return step;
}

enum ubd_flush_step
ubd_durability_wait(struct ubd_flusher *f)
{
    while (sem_wait(&f->woken) != 0) /* Only a signal can interrupt it. */
        assert(errno == EINTR);
    return f->must_lead ? UBD_FLUSH_LEAD : UBD_FLUSH_DONE;
}

void
ubd_durability_lead(struct ubd_durability *d, struct ubd_sync *sync)
{
    pthread_mutex_lock(&d->lock);
    d->is_leader_woken = false;
    start_sync(d, sync);
    pthread_mutex_unlock(&d->lock);
}

/* Needs the lock. */
static void
remove_running(struct ubd_durability *d, const struct ubd_sync *sync)
{
    struct ubd_sync **link = &d->running;

    while (*link != sync)
        link = &(*link)->next;
    *link = sync->next;
    d->nr_running--;
}

/* Needs the lock.  Moves @list to *@woken with @result as the answer. */
static void
answer(struct ubd_flusher *list, int result, struct ubd_flusher **woken)
{
    while (list) {
        struct ubd_flusher *f = list;

        list = f->next;
        f->result = result;
        f->next = *woken;
        *woken = f;
    }
}

/* Needs the lock.  One leader is enough: it takes all others along. */
static void
start_waiting(struct ubd_durability *d, struct ubd_flusher **woken)
{
    struct ubd_flusher *f = d->waiting;

    if (!f || d->nr_running >= d->running_max || d->is_leader_woken)
        return;
    d->waiting = f->next;
    if (!d->waiting)
        d->waiting_end = &d->waiting;
    d->nr_running++;
    d->is_leader_woken = true;
    f->must_lead = true;
    f->next = *woken;
    *woken = f;
}

/* Needs the lock. */
static void
remember_loss(struct ubd_durability *d, int error, struct ubd_flusher **woken)
{
    if (!d->error)
        d->error = error; /* (D3) */
    answer(d->waiting, d->error, woken);
    d->waiting = NULL;
    d->waiting_end = &d->waiting;
}

static void
wake(struct ubd_flusher *list)
{
    while (list) {
        struct ubd_flusher *next = list->next; /* Gone once it is awake. */

        sem_post(&list->woken);
        list = next;
    }
}

int
ubd_durability_finish(struct ubd_durability *d, struct ubd_sync *sync,
                      int result)
{
    struct ubd_flusher *woken = NULL;

    pthread_mutex_lock(&d->lock);
    remove_running(d, sync);
    if (result < 0 && !d->always) /* (D7): else nothing acknowledged is lost. */
        remember_loss(d, result, &woken);
    if (d->error) /* Also if another sync has failed meanwhile. */
        result = d->error;
    if (result == 0) {
        d->has_synced = true;
        if (sync->covered > d->durable)
            d->durable = sync->covered;
    }
    answer(sync->followers, result, &woken);
    start_waiting(d, &woken);
    pthread_mutex_unlock(&d->lock);

    wake(woken);
    return result;
}

void
ubd_durability_lost(struct ubd_durability *d, int error)
{
    struct ubd_flusher *woken = NULL;

    pthread_mutex_lock(&d->lock);
    remember_loss(d, error, &woken);
    pthread_mutex_unlock(&d->lock);
    wake(woken);
}

int
ubd_durability_error(struct ubd_durability *d)
{
    int error;

    pthread_mutex_lock(&d->lock);
    error = d->error;
    pthread_mutex_unlock(&d->lock);
    return error;
}

uint64_t
ubd_durability_volatile(struct ubd_durability *d)
{
    uint64_t bytes = 0;

    if (d->always)
        return 0;
    pthread_mutex_lock(&d->lock);
    bytes = sum_completed(d) - d->durable;
    pthread_mutex_unlock(&d->lock);
    return bytes;
}

bool
ubd_durability_is_all_durable(struct ubd_durability *d)
{
    return ubd_durability_volatile(d) == 0;
}
