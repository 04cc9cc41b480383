/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is on stable storage, and who must sync next.  durability.h has the
 * rules; this file is a state machine behind one lock and calls nothing that
 * reads, writes or syncs.
 */
#include "durability.h"

#include "mutant.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

/* On a disk whose sync takes that long, and where one runs at a time, it pays
 * to wait a little before one, for those who flushed together last time: else
 * half of them come too late, and every sync serves half.
 */
#define SLOW_SYNC_NS 1000000
#define GATHER_NS(sync_ns) ((sync_ns) / 8 < 2000000 ? (sync_ns) / 8 : 2000000)

/* A flush is soon if no more than that is written before it (by one processor,
 * where it is asked after each write).  To start its write-out costs a write
 * some microseconds, and spares the flush the wait for it: 10 % of the time
 * with one write before each flush.  Where a sync is slow it gains nothing, and
 * what is written meanwhile is in its way.
 */
#define SOON_BYTES (UINT64_C(256) << 10)

/* In 256ths.  So many flushes at a time keep the processors busy, and then what
 * spares them work is faster: to start no write-out early, as the shorter sync
 * gains less than that costs; and a sync for each flush, on a disk that takes
 * several at once, as nobody has to be woken then who has not waited for the
 * disk himself.
 */
#define CROWD (9 * 256 / 2)
#define CROWD_ENDS (4 * 256 + 16) /* Four, for certain, are none. */

/* Syncs at a time where fewer flush: with four of them the fourth shares one
 * with whoever comes next.
 */
#define FEW 3

/* Linux writes a folio at a time: what comes to one that is being written has
 * to wait for that, and is written once more.
 */
#define PLACE_BYTES (UINT64_C(64) << 10)

/* Of the mean: one burst is forgotten after some 16 flushes. */
#define BETWEEN_MAX (UINT64_C(16) << 20)

void
ubd_durability_init(struct ubd_durability *d, bool always,
                    unsigned running_limit)
{
    *d = (struct ubd_durability){.always = always,
                                 .running_limit = running_limit,
                                 .between = BETWEEN_MAX};
    ubd_concurrency_init(&d->syncs, running_limit < FEW ? running_limit : FEW);
    d->waiting_end = &d->waiting;
    pthread_mutex_init(&d->lock, NULL); /* Cannot fail without attributes, */
    pthread_cond_init(&d->ended, NULL); /* nor can this. */
}

void
ubd_durability_destroy(struct ubd_durability *d)
{
    assert(!d->nr_running && !d->waiting && !d->nr_inside);
    pthread_cond_destroy(&d->ended);
    pthread_mutex_destroy(&d->lock);
}

void
ubd_durability_begun(struct ubd_durability *d, uint64_t bytes)
{
    atomic_fetch_add(&d->changes[ubd_shard()].begun, bytes);
}

void
ubd_durability_completed(struct ubd_durability *d, uint64_t bytes)
{
    atomic_fetch_add_explicit(&d->changes[ubd_shard()].completed, bytes,
                              memory_order_release);
}

static uint64_t
read_relaxed(atomic_uint_fast64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void
set_relaxed(atomic_uint_fast64_t *value, uint64_t n)
{
    atomic_store_explicit(value, n, memory_order_relaxed);
}

bool
ubd_durability_expects_flush(struct ubd_durability *d, uint64_t bytes,
                             uint64_t offset)
{
    const uint64_t sync =
        atomic_load_explicit(&d->awaits_flush, memory_order_relaxed);
    const uint64_t place = offset / PLACE_BYTES;
    const unsigned i = ubd_shard();
    bool is_here = false;

    if (!sync)
        return false;
    /* Another thread of the shard may undo it: it is a guess all the same. */
    if (read_relaxed(&d->changes[i].seen) == sync) {
        bytes += read_relaxed(&d->changes[i].bytes);
        is_here = read_relaxed(&d->changes[i].place) == place;
    } else {
        set_relaxed(&d->changes[i].seen, sync);
    }
    set_relaxed(&d->changes[i].bytes, bytes);
    set_relaxed(&d->changes[i].place, place);
    return bytes <= SOON_BYTES && !is_here;
}

void
ubd_durability_failed_durable(struct ubd_durability *d, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    ubd_durability_begun(d, bytes);
    d->failed += bytes;
    ubd_durability_completed(d, bytes);
    pthread_mutex_unlock(&d->lock);
}

void
ubd_durability_failed(struct ubd_durability *d, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->failed += bytes;
    ubd_durability_completed(d, bytes);
    pthread_mutex_unlock(&d->lock);
}

/* Needs the lock, so that a later sum is never smaller. */
static uint64_t
sum_completed(struct ubd_durability *d)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < UBD_NR_SHARDS; i++)
        sum += atomic_load_explicit(&d->changes[i].completed,
                                    memory_order_acquire);
    return sum;
}

/* Needs the lock. */
static uint64_t
sum_begun(struct ubd_durability *d)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < UBD_NR_SHARDS; i++)
        sum += atomic_load(&d->changes[i].begun);
    return sum;
}

/* Needs the lock. */
static struct ubd_sync *
find_covering_sync(struct ubd_durability *d, uint64_t target)
{
    struct ubd_sync *found = NULL;

    for (struct ubd_sync *s = d->running; s; s = s->next)
        if (s->covered >= target || UBD_MUTANT(joins_running_sync)) /* (D2) */
            found = s; /* The earliest is the last one in the list. */
    return found;
}

/* Needs the lock.  May one more sync run?  In a trial of several they are few:
 * where one at a time is right, more would cost more.
 */
static bool
may_start(const struct ubd_durability *d)
{
    const bool are_many = d->syncs.max > 1 && d->syncs.used > 1 && d->is_crowd;

    return d->nr_running < (are_many ? d->running_limit : d->syncs.max) &&
           !d->is_leader_chosen;
}

/* Needs the lock.  Is the next flush soon, its sync a fast one, and its own? */
static bool
is_flush_soon(const struct ubd_durability *d)
{
    return d->between <= SOON_BYTES && d->sync_ns < SLOW_SYNC_NS &&
           !d->is_crowd;
}

/* Needs the lock. */
static void
start_sync(struct ubd_durability *d, struct ubd_sync *sync)
{
    *sync = (struct ubd_sync){
        .id = ++d->nr_syncs,
        .covered = sum_completed(d), /* Before submitting, not after: (D2). */
        .covered_failed = d->failed,
        .safe = d->durable + (d->failed - d->failed_durable),
        .had_company = d->running != NULL,
        .followers = d->waiting, /* They arrived earlier. */
        .next = d->running,
    };
    sync->bytes = sync->covered - d->began;
    d->began = sync->covered;
    atomic_store_explicit(&d->awaits_flush, is_flush_soon(d) ? sync->id : 0,
                          memory_order_relaxed);
    for (struct ubd_sync *s = d->running; s; s = s->next)
        s->had_company = true;
    d->running = sync;
    d->waiting = NULL;
    d->waiting_end = &d->waiting;
    d->nr_waiting = 0;
    d->gatherer = NULL;
    d->is_leader_chosen = false;
}

/* Needs the lock.  @nr_here: flushes that the sync would serve now. */
static bool
should_gather(const struct ubd_durability *d, unsigned nr_here)
{
    return d->syncs.max == 1 && !d->running && d->sync_ns >= SLOW_SYNC_NS &&
           nr_here < d->nr_expected;
}

/* Needs the lock. */
static void
join_waiting(struct ubd_durability *d, struct ubd_flusher *f)
{
    *d->waiting_end = f;
    d->waiting_end = &f->next;
    d->nr_waiting++;
    if (d->gatherer && d->nr_waiting + 1 >= d->nr_expected) {
        sem_post(&d->gatherer->woken);
        d->gatherer = NULL;
    }
}

/* Needs the lock. */
static void
follow(struct ubd_sync *sync, struct ubd_flusher *f)
{
    f->next = sync->followers;
    sync->followers = f;
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
        f->span =
            (struct ubd_sync_span){.how = UBD_SYNC_CLEAN, .id = d->id_good};
        return UBD_FLUSH_DONE;
    }
    d->nr_inside++;
    if (!may_start(d)) {
        sync = find_covering_sync(d, f->target);
        if (sync)
            follow(sync, f);
        else
            join_waiting(d, f);
        return UBD_FLUSH_WAIT;
    }
    /* Also if a running one would cover it: a disk that takes several at once
     * is kept busy by that, and nobody has to be woken.
     */
    d->nr_running++;
    if (should_gather(d, d->nr_waiting + 1)) {
        d->is_leader_chosen = true;
        d->gatherer = f;
        return UBD_FLUSH_GATHER;
    }
    start_sync(d, own);
    return UBD_FLUSH_LEAD;
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
ubd_durability_wait(struct ubd_durability *d, struct ubd_flusher *f,
                    struct ubd_sync *own)
{
    bool must_gather;

    while (sem_wait(&f->woken) != 0) /* Only a signal can interrupt it. */
        assert(errno == EINTR);
    if (!f->must_lead)
        return UBD_FLUSH_DONE;
    pthread_mutex_lock(&d->lock);
    must_gather = should_gather(d, d->nr_waiting + 1);
    if (must_gather)
        d->gatherer = f;
    else
        start_sync(d, own);
    pthread_mutex_unlock(&d->lock);
    return must_gather ? UBD_FLUSH_GATHER : UBD_FLUSH_LEAD;
}

void
ubd_durability_gather(struct ubd_durability *d, struct ubd_flusher *f,
                      struct ubd_sync *own)
{
    struct timespec until;
    uint64_t ns;

    pthread_mutex_lock(&d->lock);
    ns = GATHER_NS(d->sync_ns);
    pthread_mutex_unlock(&d->lock);

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (sem_clockwait(&f->woken, CLOCK_MONOTONIC, &until) != 0 &&
           errno == EINTR)
        continue;

    pthread_mutex_lock(&d->lock);
    start_sync(d, own);
    pthread_mutex_unlock(&d->lock);
}

/* Needs the lock.  As SOON_BYTES asks. */
static void
learn_between(struct ubd_durability *d, const struct ubd_sync *sync,
              unsigned nr_flushes)
{
    const uint64_t bytes = sync->bytes / nr_flushes;

    d->between =
        (d->between * 3 + (bytes < BETWEEN_MAX ? bytes : BETWEEN_MAX)) / 4;
}

/* Needs the lock.  Learns from a sync that has ended, and answered so many. */
static void
learn(struct ubd_durability *d, const struct ubd_sync *sync,
      unsigned nr_flushes)
{
    const bool is_crowded =
        sync->had_company || nr_flushes > 1 || d->nr_waiting > 0;

    if (!d->sync_ns)
        d->sync_ns = sync->ns;
    else if (!sync->had_company)
        d->sync_ns = (d->sync_ns * 3 + sync->ns) / 4;
    ubd_concurrency_guess(&d->syncs, d->sync_ns >= SLOW_SYNC_NS);
    d->nr_expected = nr_flushes + d->nr_waiting;
    d->crowd = (d->crowd * 7 + (d->nr_inside + nr_flushes) * 256) / 8;
    d->is_crowd = d->crowd >= (d->is_crowd ? CROWD_ENDS : CROWD);
    learn_between(d, sync, nr_flushes);
    ubd_concurrency_ended(&d->syncs, sync->submitted_ns,
                          sync->submitted_ns + sync->ns, nr_flushes,
                          is_crowded);
}

/* Needs the lock.  Could the failure that @sync has reported be the loss of
 * something acknowledged?  Yes, if anything but failed changes has begun that
 * was not durable when it was submitted.  Before the first good sync, who
 * knows: (D6).
 */
static bool
is_anything_at_stake(struct ubd_durability *d, const struct ubd_sync *sync)
{
    return !d->has_synced ||
           sum_begun(d) > sync->safe + (d->failed - sync->covered_failed);
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

struct ubd_sync_span
ubd_sync_describe(const struct ubd_sync *sync, enum ubd_sync_how how)
{
    return (struct ubd_sync_span){
        .how = how,
        .tid = sync->tid,
        .result = sync->result,
        .id = sync->id,
        .submitted_ns = sync->submitted_ns,
        .completed_ns = sync->submitted_ns + sync->ns,
    };
}

/* Needs the lock.  Moves @list to *@woken with @result as the answer, which
 * @sync has brought if it is not NULL; returns how many there were.
 */
static unsigned
answer(struct ubd_durability *d, struct ubd_flusher *list, int result,
       const struct ubd_sync *sync, struct ubd_flusher **woken)
{
    unsigned nr = 0;

    for (; list; nr++) {
        struct ubd_flusher *f = list;

        list = f->next;
        f->result = result;
        if (sync)
            f->span = ubd_sync_describe(sync, UBD_SYNC_JOINED);
        f->next = *woken;
        *woken = f;
    }
    d->nr_inside -= nr;
    return nr;
}

/* Needs the lock.  One leader is enough: it takes all others along. */
static void
choose_leader(struct ubd_durability *d, struct ubd_flusher **woken)
{
    struct ubd_flusher *f = d->waiting;

    if (!f || !may_start(d))
        return;
    d->waiting = f->next;
    if (!d->waiting)
        d->waiting_end = &d->waiting;
    d->nr_waiting--;
    d->nr_running++;
    d->is_leader_chosen = true;
    f->must_lead = true;
    f->next = *woken;
    *woken = f;
}

/* Needs the lock.  @sync has found it, or is NULL. */
static void
remember_loss(struct ubd_durability *d, int error, const struct ubd_sync *sync,
              struct ubd_flusher **woken)
{
    if (!d->error)
        d->error = error; /* (D3) */
    answer(d, d->waiting, d->error, sync, woken);
    d->waiting = NULL;
    d->waiting_end = &d->waiting;
    d->nr_waiting = 0;
    if (UBD_MUTANT(sticky_error_forgotten))
        d->error = 0;
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

/* Needs the lock.  Does any sync up to @last run that is not waiting for the
 * others, too?
 */
static bool
is_anything_unjudged(const struct ubd_durability *d, uint64_t last)
{
    for (const struct ubd_sync *s = d->running; s; s = s->next)
        if (s->id <= last && !s->is_settling)
            return true;
    return false;
}

void
ubd_durability_settle(struct ubd_durability *d, struct ubd_sync *sync)
{
    uint64_t last;

    pthread_mutex_lock(&d->lock);
    last = d->nr_syncs; /* Who comes later has not failed yet: no end else. */
    sync->is_settling = true;
    d->nr_settling++;
    pthread_cond_broadcast(&d->ended);
    while (is_anything_unjudged(d, last))
        pthread_cond_wait(&d->ended, &d->lock);
    d->nr_settling--;
    pthread_mutex_unlock(&d->lock);
}

int
ubd_durability_finish(struct ubd_durability *d, struct ubd_sync *sync,
                      int result)
{
    struct ubd_flusher *woken = NULL;
    unsigned nr_flushes;

    sync->result = result;
    pthread_mutex_lock(&d->lock);
    remove_running(d, sync);
    if (UBD_MUTANT(dirty_flag_cleared_after_sync))
        sync->covered = sum_completed(d);
    if (result < 0)
        d->nr_failed++;
    if (result < 0 && !d->always && is_anything_at_stake(d, sync)) /* (D7) */
        remember_loss(d, result, sync, &woken);
    if (d->error) /* Also if another sync has failed meanwhile. */
        result = d->error;
    if (result == 0) {
        d->has_synced = true;
        if (sync->covered >= d->durable)
            d->id_good = sync->id;
        if (sync->covered > d->durable) {
            d->durable = sync->covered;
            d->failed_durable = sync->covered_failed;
        }
    }
    nr_flushes = answer(d, sync->followers, result, sync, &woken) + 1;
    d->nr_inside--; /* The leader. */
    learn(d, sync, nr_flushes);
    choose_leader(d, &woken);
    if (d->nr_settling)
        pthread_cond_broadcast(&d->ended);
    pthread_mutex_unlock(&d->lock);

    wake(woken);
    return result;
}

void
ubd_durability_lost(struct ubd_durability *d, int error)
{
    struct ubd_flusher *woken = NULL;

    pthread_mutex_lock(&d->lock);
    remember_loss(d, error, NULL, &woken);
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
ubd_durability_nr_failed(struct ubd_durability *d)
{
    uint64_t nr;

    pthread_mutex_lock(&d->lock);
    nr = d->nr_failed;
    pthread_mutex_unlock(&d->lock);
    return nr;
}

uint64_t
ubd_durability_volatile(struct ubd_durability *d)
{
    uint64_t bytes;

    pthread_mutex_lock(&d->lock);
    bytes = sum_completed(d) - d->durable;
    bytes -= d->failed - d->failed_durable;
    pthread_mutex_unlock(&d->lock);
    return bytes;
}

bool
ubd_durability_is_all_durable(struct ubd_durability *d)
{
    bool is_all_durable;

    pthread_mutex_lock(&d->lock);
    is_all_durable =
        sum_begun(d) <= d->durable + (d->failed - d->failed_durable);
    pthread_mutex_unlock(&d->lock);
    return is_all_durable;
}
