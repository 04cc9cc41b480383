/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Write-out that is started early, in order, and waited for in the background.
 */
#include "writeback.h"

#include "units.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#define MAP_MEMORY_MAX ((size_t)64 << 20) /* 2 TiB of disk in 4 KiB pages. */
#define STREAM_WORDS 16    /* 4 MiB: large enough for any disk's best rate. */
#define STREAM_READY 16    /* Full words after which write-out starts. */
#define SCATTER_PAGES 512  /* 2 MiB in one piece, with gaps. */
#define SCATTER_WORDS 1024 /* 256 MiB from its first page to its last. */
#define PIECES_MAX 4 /* One is written, one is queued, and some to spare. */

/* A share of pages that were dirty already, of 256, from which on scattered
 * data is better left in the cache as long as the limit allows.
 */
#define AGAIN_MUCH 48

struct piece {
    uint64_t offset, len;
    int64_t pages;
    bool is_stream;
};

static int64_t
pages_of(const struct ubd_writeback *wb, uint64_t bytes)
{
    return ubd_round_up(bytes, UINT64_C(1) << wb->map.page_shift) >>
           wb->map.page_shift;
}

static uint64_t
bytes_of(const struct ubd_writeback *wb, int64_t pages)
{
    return pages > 0 ? (uint64_t)pages << wb->map.page_shift : 0;
}

static void
raise_max(atomic_int_fast64_t *max, int64_t value)
{
    int64_t old = atomic_load_explicit(max, memory_order_relaxed);

    while (value > old && !atomic_compare_exchange_weak(max, &old, value))
        continue;
}

static bool
has_room(struct ubd_writeback *wb, int64_t pages)
{
    const int64_t dirty = atomic_load(&wb->dirty);

    /* A write larger than the limit waits until it is alone. */
    return dirty <= 0 || dirty + pages <= wb->admit_max;
}

/* Needs the lock. */
static bool
has_work(struct ubd_writeback *wb)
{
    return wb->full_len >= STREAM_READY ||
           atomic_load(&wb->dirty) - atomic_load(&wb->in_flight) >=
               atomic_load(&wb->start_at);
}

static void
wake_thread(struct ubd_writeback *wb)
{
    if (!atomic_load(&wb->is_asleep))
        return;
    pthread_mutex_lock(&wb->lock);
    pthread_cond_signal(&wb->work);
    pthread_mutex_unlock(&wb->lock);
}

void
ubd_writeback_admit(struct ubd_writeback *wb, uint64_t len)
{
    const int64_t pages = wb->is_on ? pages_of(wb, len) + 1 : 0;
    uint64_t start_ns;

    if (!wb->is_on || has_room(wb, pages))
        return;
    start_ns = ubd_now_ns();
    pthread_mutex_lock(&wb->lock);
    while (!has_room(wb, pages)) {
        pthread_cond_signal(&wb->work);
        pthread_cond_wait(&wb->room, &wb->lock);
    }
    pthread_mutex_unlock(&wb->lock);
    atomic_fetch_add_explicit(&wb->throttle_ns, ubd_now_ns() - start_ns,
                              memory_order_relaxed);
}

/* A word has become full.  If the queue is too, it is found by the round. */
static void
note_full(struct ubd_writeback *wb, size_t word)
{
    bool must_wake;

    pthread_mutex_lock(&wb->lock);
    if (wb->full_len < UBD_FULL_QUEUE) {
        wb->full[(wb->full_head + wb->full_len) % UBD_FULL_QUEUE] = word;
        wb->full_len++;
    }
    must_wake = wb->full_len >= STREAM_READY;
    if (must_wake)
        pthread_cond_signal(&wb->work);
    pthread_mutex_unlock(&wb->lock);
}

/* @pages of @touched were not dirty before. */
static void
learn_again(struct ubd_writeback *wb, int64_t pages, int64_t touched)
{
    int64_t again = atomic_load_explicit(&wb->again, memory_order_relaxed);

    if (touched > 0)
        again = (again * 15 + (touched - pages) * 256 / touched) / 16;
    atomic_store_explicit(&wb->again, again, memory_order_relaxed);
    atomic_store_explicit(&wb->start_at,
                          again < AGAIN_MUCH ? wb->start_early : wb->start_late,
                          memory_order_relaxed);
}

static void
count_dirty(struct ubd_writeback *wb, int64_t pages, int64_t touched)
{
    const unsigned shard = ubd_shard();
    atomic_int_fast64_t *pending = &wb->pending[shard].pages;
    atomic_int_fast64_t *pending_touched = &wb->pending[shard].touched;
    int64_t dirty;

    atomic_fetch_add_explicit(pending_touched, touched, memory_order_relaxed);
    if (!pages)
        return;
    pages += atomic_fetch_add_explicit(pending, pages, memory_order_relaxed);
    if (pages < wb->batch)
        return;
    pages = atomic_exchange_explicit(pending, 0, memory_order_relaxed);
    touched =
        atomic_exchange_explicit(pending_touched, 0, memory_order_relaxed);
    learn_again(wb, pages, touched);
    dirty = atomic_fetch_add(&wb->dirty, pages) + pages;
    raise_max(&wb->dirty_max, dirty);
    if (dirty - atomic_load(&wb->in_flight) >= atomic_load(&wb->start_at))
        wake_thread(wb);
}

void
ubd_writeback_dirtied(struct ubd_writeback *wb, uint64_t offset, uint64_t len)
{
    int64_t pages = 0;
    size_t last;

    if (!wb->is_on)
        return;
    last = ubd_dirty_map_word(&wb->map, offset + len - 1);
    for (size_t word = ubd_dirty_map_word(&wb->map, offset); word <= last;
         word++) {
        bool is_full;

        pages += ubd_dirty_map_mark(&wb->map, word, offset, len, &is_full);
        if (is_full)
            note_full(wb, word);
    }
    count_dirty(wb, pages, pages_of(wb, len));
}

/* Pages are no longer dirty. */
static void
uncount_dirty(struct ubd_writeback *wb, int64_t pages)
{
    atomic_fetch_sub(&wb->dirty, pages);
    pthread_mutex_lock(&wb->lock);
    pthread_cond_broadcast(&wb->room);
    pthread_mutex_unlock(&wb->lock);
}

int64_t
ubd_writeback_sync(struct ubd_writeback *wb)
{
    int64_t pages = 0;

    if (!wb->is_on)
        return 0;
    for (size_t word = ubd_dirty_map_next(&wb->map, 0); word != UBD_MAP_NONE;
         word = ubd_dirty_map_next(&wb->map, word + 1))
        pages += ubd_dirty_map_take(&wb->map, word);
    atomic_fetch_add(&wb->in_flight, pages);
    return pages;
}

void
ubd_writeback_synced(struct ubd_writeback *wb, int64_t pages)
{
    if (pages == 0)
        return;
    atomic_fetch_sub(&wb->in_flight, pages);
    uncount_dirty(wb, pages);
}

static void
make_piece(struct ubd_writeback *wb, size_t first, size_t last, int64_t pages,
           struct piece *ret_piece)
{
    const uint64_t end = ubd_dirty_map_offset(&wb->map, last + 1);

    ret_piece->offset = ubd_dirty_map_offset(&wb->map, first);
    ret_piece->len =
        (end < wb->config.size ? end : wb->config.size) - ret_piece->offset;
    ret_piece->pages = pages;
}

/* The oldest full word and the full ones beside it. */
static bool
take_stream(struct ubd_writeback *wb, struct piece *ret_piece)
{
    size_t first, last;
    int64_t pages = 0;

    pthread_mutex_lock(&wb->lock);
    do {
        if (wb->full_len < STREAM_READY) {
            pthread_mutex_unlock(&wb->lock);
            return false;
        }
        first = wb->full[wb->full_head];
        wb->full_head = (wb->full_head + 1) % UBD_FULL_QUEUE;
        wb->full_len--;
    } while (!ubd_dirty_map_is_full(&wb->map, first));
    pthread_mutex_unlock(&wb->lock);

    last = first;
    while (last - first + 1 < STREAM_WORDS &&
           ubd_dirty_map_is_full(&wb->map, last + 1))
        last++;
    while (last - first + 1 < STREAM_WORDS && first > 0 &&
           ubd_dirty_map_is_full(&wb->map, first - 1))
        first--;
    for (size_t word = first; word <= last; word++)
        pages += ubd_dirty_map_take(&wb->map, word);
    make_piece(wb, first, last, pages, ret_piece);
    ret_piece->is_stream = true;
    return true;
}

/* The next dirty pages of the round, with what lies between them. */
static bool
take_scattered(struct ubd_writeback *wb, struct piece *ret_piece)
{
    size_t first, last, word;
    int64_t pages = 0;

    if (atomic_load(&wb->dirty) - atomic_load(&wb->in_flight) <
        atomic_load(&wb->start_at))
        return false;
    first = ubd_dirty_map_next(&wb->map, wb->cursor);
    if (first == UBD_MAP_NONE)
        first = ubd_dirty_map_next(&wb->map, 0);
    if (first == UBD_MAP_NONE)
        return false; /* A sync has taken them. */
    for (last = word = first;
         word != UBD_MAP_NONE && word - first < SCATTER_WORDS &&
         pages < SCATTER_PAGES;
         word = ubd_dirty_map_next(&wb->map, word + 1)) {
        pages += ubd_dirty_map_take(&wb->map, word);
        last = word;
    }
    wb->cursor = last + 1;
    make_piece(wb, first, last, pages, ret_piece);
    ret_piece->is_stream = false;
    return true;
}

static int
run_on_piece(struct ubd_writeback *wb, enum ubd_op op,
             const struct piece *piece)
{
    const struct ubd_req req = {.op = op,
                                .fd = wb->config.fd,
                                .offset = piece->offset,
                                .len = piece->len};

    return ubd_io_run(wb->config.io, &req);
}

static void
start_piece(struct ubd_writeback *wb, const struct piece *piece)
{
    atomic_fetch_add(&wb->in_flight, piece->pages);
    if (run_on_piece(wb, UBD_OP_START_WRITEOUT, piece) < 0)
        wb->config.failed(wb->config.opaque);
}

static void
end_piece(struct ubd_writeback *wb, const struct piece *piece)
{
    if (run_on_piece(wb, UBD_OP_WAIT_WRITEOUT, piece) < 0)
        wb->config.failed(wb->config.opaque);
    else
        atomic_fetch_add_explicit(&wb->written, bytes_of(wb, piece->pages),
                                  memory_order_relaxed);
    if (piece->is_stream && wb->config.evict)
        (void)run_on_piece(wb, UBD_OP_EVICT, piece); /* A hint. */
    atomic_fetch_sub(&wb->in_flight, piece->pages);
    uncount_dirty(wb, piece->pages);
}

/* Sleep until there is work; false if it is time to end. */
static bool
wait_for_work(struct ubd_writeback *wb, bool may_sleep)
{
    bool goes_on;

    pthread_mutex_lock(&wb->lock);
    while (may_sleep && !wb->must_stop && !has_work(wb)) {
        atomic_store(&wb->is_asleep, true);
        if (!has_work(wb)) /* Whoever made some may have missed the flag. */
            pthread_cond_wait(&wb->work, &wb->lock);
        atomic_store(&wb->is_asleep, false);
    }
    goes_on = !wb->must_stop;
    pthread_mutex_unlock(&wb->lock);
    return goes_on;
}

static void *
write_out(void *opaque)
{
    struct ubd_writeback *wb = opaque;
    struct piece pieces[PIECES_MAX]; /* A ring, the oldest at head. */
    unsigned head = 0, nr = 0;

    while (wait_for_work(wb, nr == 0)) {
        struct piece *next = &pieces[(head + nr) % PIECES_MAX];

        if (nr < PIECES_MAX &&
            (take_stream(wb, next) || take_scattered(wb, next))) {
            start_piece(wb, next);
            nr++;
        } else if (nr > 0) {
            end_piece(wb, &pieces[head]);
            head = (head + 1) % PIECES_MAX;
            nr--;
        } else {
            sched_yield(); /* A sync took it between two looks. */
        }
    }
    return NULL;
}

static int
start_thread(struct ubd_writeback *wb)
{
    sigset_t all, old;
    int error;

    sigfillset(&all); /* Signals are for the threads of the front. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&wb->thread, NULL, write_out, wb);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}

int
ubd_writeback_start(struct ubd_writeback *wb,
                    const struct ubd_writeback_config *config)
{
    int64_t limit;
    int r;

    *wb = (struct ubd_writeback){.config = *config};
    r = ubd_dirty_map_init(&wb->map, config->size, MAP_MEMORY_MAX);
    if (r < 0)
        return r;
    limit = config->limit >> wb->map.page_shift;
    wb->batch = limit / (4 * UBD_NR_SHARDS) < 16
                    ? limit / (4 * UBD_NR_SHARDS) + 1
                    : 16; /* 1 MiB in all. */
    wb->admit_max = limit - wb->batch * UBD_NR_SHARDS;
    wb->start_early = limit / 4;
    wb->start_late = wb->admit_max - limit / 32;
    wb->start_at = wb->start_early;
    pthread_mutex_init(&wb->lock, NULL);
    pthread_cond_init(&wb->work, NULL);
    pthread_cond_init(&wb->room, NULL);
    r = start_thread(wb);
    if (r < 0) {
        ubd_dirty_map_destroy(&wb->map);
        return r;
    }
    wb->is_on = true;
    return 0;
}

void
ubd_writeback_stop(struct ubd_writeback *wb)
{
    if (!wb->is_on)
        return;
    pthread_mutex_lock(&wb->lock);
    wb->must_stop = true;
    pthread_cond_signal(&wb->work);
    pthread_mutex_unlock(&wb->lock);
    pthread_join(wb->thread, NULL);
    pthread_cond_destroy(&wb->room);
    pthread_cond_destroy(&wb->work);
    pthread_mutex_destroy(&wb->lock);
    ubd_dirty_map_destroy(&wb->map);
    wb->is_on = false;
}

uint64_t
ubd_writeback_dirty(struct ubd_writeback *wb)
{
    int64_t pages = atomic_load(&wb->dirty);

    if (!wb->is_on)
        return 0;
    for (unsigned i = 0; i < UBD_NR_SHARDS; i++)
        pages +=
            atomic_load_explicit(&wb->pending[i].pages, memory_order_relaxed);
    return bytes_of(wb, pages);
}

uint64_t
ubd_writeback_dirty_max(struct ubd_writeback *wb)
{
    return wb->is_on ? bytes_of(wb, atomic_load(&wb->dirty_max)) : 0;
}
