/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests on their way through the disk: received, in the cache, durable.
 *
 * Three places hold data.  The visible state (image.c) is what reads see.  The
 * list `cached` has every write that completed and is not known to be durable,
 * in the order of completion.  The durable state is what a cut leaves.  A write
 * that was received and did not complete is on the list `running`, and nowhere
 * else.  How long things take is in actuator.c, what a cut leaves in cut.c.
 *
 * The rules M1 to M6 are in model.h.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model-private.h"
#include "survivors.h"

#define NS_PER_S 1000000000ULL

static uint64_t
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

void
model_apply(struct diskmodel *m, unsigned char *state,
            const struct diskmodel_op *op, uint64_t from, uint64_t to)
{
    const unsigned char *data =
        op->kind == DISKMODEL_WRITE ? op->data + from : NULL;

    if (from < to)
        image_put(&m->image, state, data, to - from, op->where.offset + from);
}

/* ---- Time ---- */

/* Give all of the cache an appointment; what has one already waits for that.
 * Returns when this part is on the platter.  Needs the lock.
 */
static uint64_t
destage_until(struct diskmodel *m, uint64_t t, bool *ret_is_clean)
{
    struct diskmodel_op *op;
    struct extent *list = NULL;

    *ret_is_clean = true;
    for (op = TAILQ_FIRST(&m->cached); op; op = TAILQ_NEXT(op, link)) {
        if (op->is_charged)
            continue;
        op->is_charged = true;
        *ret_is_clean = false;
        if (op->kind == DISKMODEL_ZERO)
            continue; /* A note in the disk's tables; it costs nothing. */
        op->where.next = list;
        list = &op->where;
    }
    return m->settings.rpm ? actuator_destage(&m->actuator, t, list) : t;
}

/* Room that @op takes; zeroes need none. */
static uint64_t
cache_room(const struct diskmodel_op *op)
{
    return op->kind == DISKMODEL_WRITE ? op->where.len : 0;
}

static bool
cache_is_full(const struct diskmodel *m, uint64_t more)
{
    const uint64_t max = m->settings.cache_bytes;

    return max && m->stats.volatile_bytes + more > max;
}

/* Needs the lock. */
static uint64_t
random_delay(struct diskmodel *m, uint64_t max_ns)
{
    return max_ns ? next_random(&m->delay_rng) % (max_ns + 1) : 0;
}

/* When this FLUSH completes.  Even one that costs nothing waits for its turn:
 * what it covers may be on its way to the platter.  Needs the lock.
 */
static uint64_t
schedule_flush(struct diskmodel *m)
{
    const struct diskmodel_settings *s = &m->settings;
    const uint64_t start = actuator_start(&m->actuator, now_ns());
    bool is_clean;
    uint64_t end = destage_until(m, start, &is_clean);

    m->stats.flushes_clean += is_clean;
    end += is_clean && s->has_flush_clean ? s->flush_clean_ns : s->flush_ns;
    actuator_book(&m->actuator, start, end);
    return end + random_delay(m, s->flush_delay_ns);
}

/* When this change completes.  The cache takes it at once if it can; one that
 * comes to a full cache waits until all of that is on the platter, as one long
 * stream, and not for the little that it needs itself.  Needs the lock.
 */
static uint64_t
schedule_change(struct diskmodel *m, struct diskmodel_op *op)
{
    const struct diskmodel_settings *s = &m->settings;
    const bool needs_platter =
        s->rpm && (op->fua || cache_is_full(m, cache_room(op)));
    const uint64_t now = now_ns();
    uint64_t start, end = now;
    bool is_clean;

    if (needs_platter || s->write_ns || (op->fua && s->flush_ns)) {
        start = actuator_start(&m->actuator, now);
        end = start + s->write_ns + (op->fua ? s->flush_ns : 0);
        if (needs_platter && op->fua && op->kind == DISKMODEL_WRITE)
            end = actuator_move(&m->actuator, end, op->where.offset,
                                op->where.len);
        op->makes_room = needs_platter && !op->fua;
        if (op->makes_room)
            end = destage_until(m, end, &is_clean);
        actuator_book(&m->actuator, start, end);
    }
    return end + random_delay(m, s->write_delay_ns);
}

/* Wait until @due_ns, or until the power is cut.  Needs the lock; gives it up
 * meanwhile.
 */
static void
wait_until(struct diskmodel *m, uint64_t due_ns, uint64_t cuts)
{
    const struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S),
                                 .tv_nsec = (long)(due_ns % NS_PER_S)};

    while (m->stats.cuts == cuts && now_ns() < due_ns)
        pthread_cond_timedwait(&m->cut, &m->lock, &due);
}

/* ---- The write cache; all of these need the lock ---- */

static void
cache_add(struct diskmodel *m, struct diskmodel_op *op)
{
    TAILQ_INSERT_TAIL(&m->cached, op, link);
    m->stats.volatile_bytes += cache_room(op);
    if (m->stats.volatile_bytes > m->stats.volatile_bytes_max)
        m->stats.volatile_bytes_max = m->stats.volatile_bytes;
}

void
model_forget(struct diskmodel *m, struct diskmodel_op *op)
{
    TAILQ_REMOVE(&m->cached, op, link);
    m->stats.volatile_bytes -= cache_room(op);
    free(op);
}

/* The oldest write becomes durable. */
static void
cache_destage_one(struct diskmodel *m)
{
    struct diskmodel_op *op = TAILQ_FIRST(&m->cached);

    model_apply(m, m->image.durable, op, 0, op->where.len);
    model_forget(m, op);
}

/* All that completed up to @serial becomes durable. */
static void
cache_destage(struct diskmodel *m, uint64_t serial)
{
    struct diskmodel_op *op;

    while ((op = TAILQ_FIRST(&m->cached)) && op->serial <= serial)
        cache_destage_one(m);
}

/* Takes @op. */
static void
complete_change(struct diskmodel *m, struct diskmodel_op *op)
{
    if (op->makes_room)
        cache_destage(m, op->serial);
    op->serial = ++m->completed;
    model_apply(m, m->image.visible, op, 0, op->where.len); /* (M1) */
    if (op->fua) {
        model_apply(m, m->image.durable, op, 0, op->where.len); /* (M3) */
        op->is_charged = true;
        /* An older write of the same sectors that is destaged later must not
         * come out on top, so it stays behind that one in the cache.
         */
        if (TAILQ_EMPTY(&m->cached)) {
            free(op);
            return;
        }
    }
    cache_add(m, op);
    while (cache_is_full(m, 0) && !TAILQ_EMPTY(&m->cached))
        cache_destage_one(m);
}

/* ---- Requests ---- */

static void
count_received(struct diskmodel *m, const struct diskmodel_op *op)
{
    m->stats.ops++;
    m->stats.flushes += op->kind == DISKMODEL_FLUSH;
    m->stats.writes += op->kind == DISKMODEL_WRITE;
    m->stats.zeroes += op->kind == DISKMODEL_ZERO;
    m->stats.fua_writes += op->fua;
    if (op->kind == DISKMODEL_WRITE)
        m->stats.write_bytes += op->where.len;
}

/* (M6) Is this the one?  Needs the lock. */
static bool
must_fail(struct diskmodel *m, const struct diskmodel_op *op)
{
    uint64_t *nr = op->kind == DISKMODEL_FLUSH ? &m->stats.fail_in_flushes
                                               : &m->stats.fail_in_writes;

    if (*nr == 0 || --*nr > 0)
        return false;
    while (op->kind == DISKMODEL_FLUSH && !TAILQ_EMPTY(&m->cached))
        model_forget(m, TAILQ_FIRST(&m->cached));
    return true;
}

void
diskmodel_fail(struct diskmodel *m, uint64_t nr_writes, uint64_t nr_flushes)
{
    pthread_mutex_lock(&m->lock);
    m->stats.fail_in_writes = nr_writes;
    m->stats.fail_in_flushes = nr_flushes;
    pthread_mutex_unlock(&m->lock);
}

static int
receive(struct diskmodel *m, struct diskmodel_op *op)
{
    int r = 0;

    pthread_mutex_lock(&m->lock);
    if (!m->stats.is_off && m->stats.cut_in_ops && --m->stats.cut_in_ops == 0)
        model_cut_power(m, m->armed_seed, m->armed_mode);
    if (m->stats.is_off || must_fail(m, op)) {
        m->stats.errors++;
        r = -EIO; /* (M5), (M6) */
    } else {
        count_received(m, op);
        op->serial = m->completed; /* (M2) Now, not when it completes. */
        op->cuts = m->stats.cuts;
        op->due_ns = op->kind == DISKMODEL_FLUSH ? schedule_flush(m)
                                                 : schedule_change(m, op);
        TAILQ_INSERT_TAIL(&m->running, op, link);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

static bool
is_outside(const struct diskmodel *m, uint64_t len, uint64_t offset)
{
    return offset > m->image.size || len > m->image.size - offset;
}

int
diskmodel_begin(struct diskmodel *m, enum diskmodel_kind kind, const void *data,
                uint64_t len, uint64_t offset, bool fua,
                struct diskmodel_op **ret_op)
{
    const size_t data_len = kind == DISKMODEL_WRITE ? len : 0;
    struct diskmodel_op *op;
    int r;

    if (is_outside(m, len, offset) || (kind != DISKMODEL_FLUSH && len == 0))
        return -EINVAL;
    op = calloc(1, sizeof *op + data_len);
    if (!op)
        return -ENOMEM;
    op->kind = kind;
    op->where.len = len;
    op->where.offset = offset;
    op->fua = fua && kind != DISKMODEL_FLUSH;
    if (data_len)
        memcpy(op->data, data, data_len);

    r = receive(m, op);
    if (r < 0)
        free(op);
    else
        *ret_op = op;
    return r;
}

int
diskmodel_finish(struct diskmodel *m, struct diskmodel_op *op)
{
    int r = 0;

    pthread_mutex_lock(&m->lock);
    if (op->cuts != m->stats.cuts) {
        m->stats.errors++;
        r = -EIO; /* (M5) */
        free(op);
    } else {
        TAILQ_REMOVE(&m->running, op, link);
        if (op->kind == DISKMODEL_FLUSH) {
            cache_destage(m, op->serial); /* (M2) */
            m->stats.flushes_done++;
            free(op);
        } else {
            complete_change(m, op);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

uint64_t
diskmodel_due_ns(const struct diskmodel_op *op)
{
    return op->due_ns;
}

void
diskmodel_wait(struct diskmodel *m, const struct diskmodel_op *op)
{
    if (op->due_ns <= now_ns())
        return;
    pthread_mutex_lock(&m->lock);
    wait_until(m, op->due_ns, op->cuts);
    pthread_mutex_unlock(&m->lock);
}

/* Needs the lock; gives it up while the disk works. */
static void
wait_for_read(struct diskmodel *m, uint64_t len, uint64_t offset)
{
    const uint64_t start = actuator_start(&m->actuator, now_ns());
    uint64_t end = start + m->settings.read_ns;

    if (m->settings.rpm)
        end = actuator_move(&m->actuator, end, offset, len);
    actuator_book(&m->actuator, start, end);
    wait_until(m, end, m->stats.cuts);
}

int
diskmodel_read(struct diskmodel *m, void *buf, uint64_t len, uint64_t offset)
{
    uint64_t cuts;
    int r = 0;

    if (is_outside(m, len, offset))
        return -EINVAL;
    pthread_mutex_lock(&m->lock);
    m->stats.reads++;
    m->stats.read_bytes += len;
    cuts = m->stats.cuts;
    if (!m->stats.is_off && (m->settings.read_ns || m->settings.rpm))
        wait_for_read(m, len, offset);
    if (m->stats.is_off || m->stats.cuts != cuts) {
        m->stats.errors++;
        r = -EIO; /* (M5) */
    } else {
        memcpy(buf, m->image.visible + offset, len); /* (M1) */
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

uint64_t
diskmodel_size(const struct diskmodel *m)
{
    return m->image.size;
}

void
diskmodel_get_settings(struct diskmodel *m,
                       struct diskmodel_settings *ret_settings)
{
    pthread_mutex_lock(&m->lock);
    *ret_settings = m->settings;
    pthread_mutex_unlock(&m->lock);
}

void
diskmodel_set_settings(struct diskmodel *m,
                       const struct diskmodel_settings *settings)
{
    pthread_mutex_lock(&m->lock);
    if (settings->seed != m->settings.seed)
        m->delay_rng = settings->seed;
    m->settings = *settings;
    pthread_mutex_unlock(&m->lock);
}

void
diskmodel_get_stats(struct diskmodel *m, struct diskmodel_stats *ret_stats)
{
    pthread_mutex_lock(&m->lock);
    *ret_stats = m->stats;
    ret_stats->busy_ns = m->actuator.busy_ns;
    pthread_mutex_unlock(&m->lock);
}

/* ---- Open and close ---- */

int
diskmodel_open(const char *path, uint64_t size,
               const struct diskmodel_settings *settings,
               struct diskmodel **ret_model)
{
    struct diskmodel *m = calloc(1, sizeof *m);
    pthread_condattr_t attr;
    int r;

    if (!m)
        return -ENOMEM;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->cut, &attr);
    pthread_condattr_destroy(&attr);
    TAILQ_INIT(&m->running);
    TAILQ_INIT(&m->cached);
    m->settings = *settings;
    m->delay_rng = settings->seed;

    r = image_open(&m->image, path, size);
    m->actuator =
        (struct actuator){.settings = &m->settings, .disk_size = m->image.size};
    if (r < 0)
        diskmodel_close(m);
    else
        *ret_model = m;
    return r;
}

void
diskmodel_close(struct diskmodel *m)
{
    struct diskmodel_op *op;

    if (!m)
        return;
    assert(TAILQ_EMPTY(&m->running));
    while ((op = TAILQ_FIRST(&m->cached)))
        model_forget(m, op);
    image_close(&m->image);
    pthread_cond_destroy(&m->cut);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
