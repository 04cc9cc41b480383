/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Write-out that is started early, in order, and waited for in the background.
 */
#include "writeback.h"

#include "thread.h"
#include "units.h"

#include <fcntl.h>
#include <stdlib.h>

#define PAGE_SHIFT 12 /* Of the host's page cache, at the least. */
#define MAP_MEMORY_MAX ((size_t)64 << 20) /* 2 TiB of disk in 4 KiB pages. */
#define STREAM_WORDS 16   /* 4 MiB: large enough for any disk's best rate. */
#define STREAM_READY 16   /* Full words after which write-out starts. */
#define SCATTER_PAGES 512 /* 2 MiB in one piece, with gaps. */
#define SCATTER_BYTES (UINT64_C(256) << 20) /* From its first page on. */
#define PIECES_MAX 4 /* One is written, one is queued, and some to spare. */

/* A share of pages that were dirty already, of 256, from which on scattered
 * data is better left in the cache as long as the limit allows.
 */
#define AGAIN_MUCH 48
#define LEARN_PAGES 64

struct piece {
    uint64_t offset, len;
    int64_t pages;
    bool is_stream;
};

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

/* The pages that a write touches, and makes dirty at the most. */
static int64_t
need_of(const struct ubd_writeback *wb, uint64_t offset, uint64_t len)
{
    const unsigned shift = wb->map.page_shift;

    return ((offset + len - 1) >> shift) - (offset >> shift) + 1;
}

/* Take @pages of room; false if there is too little.  A write that is larger
 * than the limit gets its room when nothing else is dirty.
 */
static bool
take_room(struct ubd_writeback *wb, int64_t pages)
{
    int64_t dirty = atomic_load(&wb->dirty);

    do {
        if (dirty > 0 && dirty + pages > wb->admit_max)
            return false;
    } while (!atomic_compare_exchange_weak(&wb->dirty, &dirty, dirty + pages));
    raise_max(&wb->dirty_max, dirty + pages);
    return true;
}

static bool
take_credit(struct ubd_writeback *wb, int64_t pages)
{
    atomic_int_fast64_t *mine = &wb->shard[ubd_shard()].credit;
    int64_t credit = atomic_load_explicit(mine, memory_order_relaxed);

    while (credit >= pages)
        if (atomic_compare_exchange_weak(mine, &credit, credit - pages))
            return true;
    return false;
}

static bool
admit_now(struct ubd_writeback *wb, int64_t pages)
{
    if (take_room(wb, pages + wb->batch)) {
        atomic_fetch_add(&wb->shard[ubd_shard()].credit, wb->batch);
        return true;
    }
    return take_room(wb, pages);
}

/* Somebody waits: nobody may keep room in hand. */
static void
collect_credit(struct ubd_writeback *wb)
{
    for (unsigned i = 0; i < UBD_NR_SHARDS; i++)
        atomic_fetch_sub(&wb->dirty, atomic_exchange(&wb->shard[i].credit, 0));
}

/* Is there so much that scattered pages are written?  While somebody waits for
 * room, every page is.
 */
static bool
has_much(struct ubd_writeback *wb)
{
    const int64_t enough =
        atomic_load(&wb->nr_waiters) ? 1 : atomic_load(&wb->start_at);

    return atomic_load(&wb->dirty) - atomic_load(&wb->in_flight) >= enough;
}

/* Needs the lock.  What is written again and again is no stream. */
static bool
has_stream(struct ubd_writeback *wb)
{
    return wb->full_len >= wb->stream_ready &&
           atomic_load(&wb->again) < AGAIN_MUCH;
}

/* Needs the lock. */
static bool
has_work(struct ubd_writeback *wb)
{
    return has_stream(wb) || has_much(wb);
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

static void
wait_for_room(struct ubd_writeback *wb, int64_t pages)
{
    const uint64_t start_ns = ubd_now_ns();

    pthread_mutex_lock(&wb->lock);
    atomic_fetch_add(&wb->nr_waiters, 1);
    for (;;) {
        collect_credit(wb);
        if (take_room(wb, pages))
            break;
        pthread_cond_signal(&wb->work);
        pthread_cond_wait(&wb->room, &wb->lock);
    }
    atomic_fetch_sub(&wb->nr_waiters, 1);
    pthread_mutex_unlock(&wb->lock);
    atomic_fetch_add_explicit(&wb->throttle_ns, ubd_now_ns() - start_ns,
                              memory_order_relaxed);
}

void
ubd_writeback_admit(struct ubd_writeback *wb, uint64_t offset, uint64_t len)
{
    int64_t pages;

    if (!wb->is_on)
        return;
    pages = need_of(wb, offset, len);
    if (!take_credit(wb, pages) && !admit_now(wb, pages))
        wait_for_room(wb, pages);
}

/* Pages are no longer dirty, or their room was not needed. */
static void
give_room(struct ubd_writeback *wb, int64_t pages)
{
    atomic_fetch_sub(&wb->dirty, pages);
    pthread_mutex_lock(&wb->lock);
    pthread_cond_broadcast(&wb->room);
    pthread_mutex_unlock(&wb->lock);
}

/* Room that a write has left over: to the shard's hand, unless that is full or
 * somebody waits.
 */
static void
give_credit(struct ubd_writeback *wb, int64_t pages)
{
    atomic_int_fast64_t *mine = &wb->shard[ubd_shard()].credit;

    if (atomic_load(&wb->nr_waiters)) {
        give_room(wb, pages);
        return;
    }
    pages += atomic_fetch_add(mine, pages);
    if (pages > 2 * wb->batch)
        give_room(wb, atomic_exchange(mine, 0));
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
    must_wake = has_stream(wb);
    if (must_wake)
        pthread_cond_signal(&wb->work);
    pthread_mutex_unlock(&wb->lock);
}

static int64_t
read_relaxed(atomic_int_fast64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void
set_relaxed(atomic_int_fast64_t *value, int64_t n)
{
    atomic_store_explicit(value, n, memory_order_relaxed);
}

/* Are pages written again while they are dirty?  Learned from a shard's last
 * LEARN_PAGES pages or so.  An addition that another thread of the shard undoes
 * now and then does no harm here, and a locked one would cost more than all
 * the rest.
 */
static void
learn(struct ubd_writeback *wb, int64_t touched, int64_t fresh)
{
    const unsigned i = ubd_shard();
    int64_t again = read_relaxed(&wb->again);

    touched += read_relaxed(&wb->shard[i].touched);
    fresh += read_relaxed(&wb->shard[i].fresh);
    set_relaxed(&wb->shard[i].touched, touched < LEARN_PAGES ? touched : 0);
    set_relaxed(&wb->shard[i].fresh, touched < LEARN_PAGES ? fresh : 0);
    if (touched < LEARN_PAGES || fresh > touched)
        return;
    again = (again * 15 + (touched - fresh) * 256 / touched) / 16;
    set_relaxed(&wb->again, again);
    set_relaxed(&wb->start_at,
                again < AGAIN_MUCH ? wb->start_early : wb->start_late);
}

void
ubd_writeback_dirtied(struct ubd_writeback *wb, uint64_t offset, uint64_t len)
{
    int64_t need, pages = 0;
    size_t last;

    if (!wb->is_on)
        return;
    need = need_of(wb, offset, len);
    last = ubd_dirty_map_word(&wb->map, offset + len - 1);
    for (size_t word = ubd_dirty_map_word(&wb->map, offset); word <= last;
         word++) {
        bool is_full;

        pages += ubd_dirty_map_mark(&wb->map, word, offset, len, &is_full);
        if (is_full)
            note_full(wb, word);
    }
    if (need > pages)
        give_credit(wb, need - pages);
    learn(wb, need, pages);
    if (pages && has_much(wb))
        wake_thread(wb);
}

void
ubd_writeback_zeroed(struct ubd_writeback *wb, uint64_t offset, uint64_t len)
{
    const uint64_t page = UINT64_C(1) << PAGE_SHIFT;
    const uint64_t end = offset + len;

    if (offset % page) {
        ubd_writeback_admit(wb, offset, 1);
        ubd_writeback_dirtied(wb, offset, 1);
    }
    if (end % page) {
        ubd_writeback_admit(wb, end - 1, 1);
        ubd_writeback_dirtied(wb, end - 1, 1);
    }
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
    give_room(wb, pages);
    atomic_fetch_sub(&wb->in_flight, pages);
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
        if (!has_stream(wb)) {
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
    /* A ring takes a length of 32 bits. */
    const size_t words_max =
        SCATTER_BYTES >> wb->map.page_shift >> UBD_MAP_WORD_SHIFT;
    size_t first, last, word;
    int64_t pages = 0;

    if (!has_much(wb))
        return false;
    first = ubd_dirty_map_next(&wb->map, wb->cursor);
    if (first == UBD_MAP_NONE)
        first = ubd_dirty_map_next(&wb->map, 0);
    if (first == UBD_MAP_NONE)
        return false;            /* A sync has taken them. */
    ret_piece->is_stream = true; /* Unless there is a gap. */
    for (last = word = first;
         word != UBD_MAP_NONE && (word == first || word - first < words_max) &&
         pages < SCATTER_PAGES;
         word = ubd_dirty_map_next(&wb->map, word + 1)) {
        if (word > last + 1 || !ubd_dirty_map_is_full(&wb->map, word))
            ret_piece->is_stream = false;
        pages += ubd_dirty_map_take(&wb->map, word);
        last = word;
    }
    wb->cursor = last + 1;
    make_piece(wb, first, last, pages, ret_piece);
    return true;
}

static bool
will_evict(const struct ubd_writeback *wb, const struct piece *piece)
{
    return piece->is_stream && wb->config.evict && !wb->has_failed;
}

static struct ubd_req
on_piece(const struct ubd_writeback *wb, enum ubd_op op, int mode,
         const struct piece *piece)
{
    return (struct ubd_req){.op = op,
                            .fd = wb->config.fd,
                            .offset = piece->offset,
                            .len = piece->len,
                            .mode = mode};
}

/* @mode: for a WAIT; see io.h. */
static int
run_on_piece(struct ubd_writeback *wb, enum ubd_op op, int mode,
             const struct piece *piece)
{
    const struct ubd_req req = on_piece(wb, op, mode, piece);

    return ubd_io_run(wb->config.io, &req);
}

static int
start_on_piece(struct ubd_writeback *wb, enum ubd_op op,
               const struct piece *piece)
{
    const struct ubd_req req = on_piece(wb, op, 0, piece);

    return ubd_writeout_start(wb->config.writeout, wb->config.io, &req, false);
}

/* From now on nothing is evicted: which piece was lost is not known, as one
 * wait can take another one's report, and the cache has the only copy.
 */
static void
note_failure(struct ubd_writeback *wb)
{
    wb->has_failed = true;
    wb->must_ask = !wb->config.failed(wb->config.opaque);
}

/* Linux skips a page that is being written already, also if it has become
 * dirty again: so such a one is waited for first.
 */
static void
start_piece(struct ubd_writeback *wb, const struct piece *piece)
{
    atomic_fetch_add(&wb->in_flight, piece->pages);
    if (run_on_piece(wb, UBD_OP_WAIT_WRITING, UBD_WAIT_WRITEOUT_FLAGS, piece) <
        0)
        note_failure(wb);
    if (start_on_piece(wb, UBD_OP_START_WRITEOUT, piece) < 0) {
        note_failure(wb);
        /* The limit holds only if it is written: once more. */
        (void)start_on_piece(wb, UBD_OP_START_WRITEOUT, piece);
    }
}

/* Write what has been left, so that nothing is dirty when it is evicted: for
 * posix_fadvise(DONTNEED) would start to write that, and drop it, whether or
 * not it was written well.  First what can tell of its own losses, then what
 * leaves nothing.
 */
static int
finish_piece(struct ubd_writeback *wb, const struct piece *piece)
{
    const int r = start_on_piece(wb, UBD_OP_SUBMIT_WRITEOUT, piece);
    const int r2 =
        run_on_piece(wb, UBD_OP_WAIT_WRITING, UBD_FINISH_WRITEOUT_FLAGS, piece);

    return r < 0 ? r : r2;
}

static void
end_piece(struct ubd_writeback *wb, const struct piece *piece)
{
    const uint64_t bytes = bytes_of(wb, piece->pages);
    int r =
        run_on_piece(wb, UBD_OP_WAIT_WRITEOUT, UBD_WAIT_WRITEOUT_FLAGS, piece);

    if (r == 0 && will_evict(wb, piece))
        r = finish_piece(wb, piece);
    if (r < 0)
        note_failure(wb);
    else
        atomic_fetch_add_explicit(&wb->written, bytes, memory_order_relaxed);
    if (will_evict(wb, piece))
        (void)run_on_piece(wb, UBD_OP_EVICT, 0, piece); /* A hint. */
    give_room(wb, piece->pages);
    atomic_fetch_sub(&wb->in_flight, piece->pages);
    if (r == 0 && wb->config.written)
        wb->config.written(wb->config.opaque, piece->offset, bytes);
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

static void
rest(struct ubd_writeback *wb)
{
    const uint64_t until_ns = ubd_now_ns() + 1000000;
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};

    pthread_mutex_lock(&wb->lock);
    if (!wb->must_stop)
        (void)pthread_cond_timedwait(&wb->work, &wb->lock, &until);
    pthread_mutex_unlock(&wb->lock);
}

static void *
write_out(void *opaque)
{
    struct ubd_writeback *wb = opaque;
    struct piece pieces[PIECES_MAX]; /* A ring, the oldest at head. */
    unsigned head = 0, nr = 0;

    while (wait_for_work(wb, nr == 0 && !wb->must_ask)) {
        struct piece *next = &pieces[(head + nr) % PIECES_MAX];

        if (wb->must_ask)
            wb->must_ask = !wb->config.failed(wb->config.opaque);

        if (nr < PIECES_MAX &&
            (take_stream(wb, next) || take_scattered(wb, next))) {
            start_piece(wb, next);
            nr++;
        } else if (nr > 0) {
            end_piece(wb, &pieces[head]);
            head = (head + 1) % PIECES_MAX;
            nr--;
        } else {
            rest(wb); /* What is counted is in a sync, or in hand. */
        }
    }
    return NULL;
}

/* On a disk so huge that a page of the map is as large as the limit. */
static int64_t
at_least_one(int64_t pages)
{
    return pages > 1 ? pages : 1;
}

int
ubd_writeback_start(struct ubd_writeback *wb,
                    const struct ubd_writeback_config *config)
{
    pthread_condattr_t attr;
    int64_t limit;
    int r;

    *wb = (struct ubd_writeback){.config = *config};
    r = ubd_dirty_map_init(&wb->map, config->size, MAP_MEMORY_MAX);
    if (r < 0)
        return r;
    limit = config->limit >> wb->map.page_shift;
    wb->batch = limit / (8 * UBD_NR_SHARDS) < 16 ? limit / (8 * UBD_NR_SHARDS)
                                                 : 16; /* 1 MiB in all. */
    /* Linux leaves a page or two dirty that were written out now and then. */
    wb->admit_max = at_least_one(limit - limit / 32);
    wb->stream_ready = limit / (8 * UBD_MAP_WORD) < STREAM_READY
                           ? at_least_one(limit / (8 * UBD_MAP_WORD))
                           : STREAM_READY;
    wb->start_early = at_least_one(limit / 4);
    wb->start_late = at_least_one(wb->admit_max - limit / 32);
    wb->start_at = wb->start_early;
    pthread_mutex_init(&wb->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* For rest. */
    pthread_cond_init(&wb->work, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&wb->room, NULL);
    r = ubd_start_thread(&wb->thread, write_out, wb);
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
        pages -=
            atomic_load_explicit(&wb->shard[i].credit, memory_order_relaxed);
    return bytes_of(wb, pages);
}

uint64_t
ubd_writeback_dirty_max(struct ubd_writeback *wb)
{
    return wb->is_on ? bytes_of(wb, atomic_load(&wb->dirty_max)) : 0;
}
