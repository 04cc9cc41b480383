/* SPDX-License-Identifier: BSD-3-Clause */
/* The loads that fio's nbd engine cannot make: FUA writes, FLUSH alone, and
 * runs with phases (fill, then flush) whose parts are timed one by one.
 *
 *   nbdload URI COMMAND [key=value...]
 *
 * Prints one JSON object; scripts/bench reads it and owns all judgement about
 * the figures.  Offsets come from fixed seeds, so every server gets the same
 * requests.  Any failed request ends the program with exit status 1: a figure
 * with errors in it is not a figure.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <libnbd.h>

#include "load.h"

#define MAX_DEPTH 64 /* Twice the deepest queue that a load asks for. */
#define MAX_CONNS 64
#define FILL_BS (1024 * 1024)

/* Parameters; sizes in bytes. */
static uint64_t p_area = 256 << 20, p_bs = 4096, p_conns = 1, p_count = 100000;
static uint64_t p_depth = 1, p_dirty = 500 << 20, p_episodes = 4, p_ms = 1000;
static uint64_t p_total = 1 << 30, p_writes = 50;
static uint64_t p_flush_every = UINT64_MAX; /* Bytes. */
static uint64_t p_watch = NO_WATCH;         /* The image, as a descriptor. */
static const char *uri;

struct samples {
    uint64_t *ns;
    size_t nr, room;
};

static void
add_sample(struct samples *s, uint64_t ns)
{
    if (s->nr == s->room) {
        s->room = s->room ? s->room * 2 : 65536;
        s->ns = must_alloc(realloc(s->ns, s->room * sizeof *s->ns));
    }
    s->ns[s->nr++] = ns;
}

static int
compare_ns(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Print the percentiles of @s as fields named @name_p50_us and so on. */
static void
print_samples(const char *name, struct samples *s)
{
    static const struct {
        const char *name;
        double share;
    } points[] = {
        {"p50",  0.5  },
        {"p99",  0.99 },
        {"p999", 0.999},
        {"max",  1    }
    };

    printf("\"%s_samples\": %zu, ", name, s->nr);
    if (s->nr == 0)
        return;
    qsort(s->ns, s->nr, sizeof *s->ns, compare_ns);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        size_t rank = s->nr * points[i].share;

        if (rank >= s->nr)
            rank = s->nr - 1;
        printf("\"%s_%s_us\": %.1f, ", name, points[i].name, s->ns[rank] / 1e3);
    }
}

static struct nbd_handle *
open_nbd(void)
{
    struct nbd_handle *nbd = nbd_create();

    if (!nbd || nbd_connect_uri(nbd, uri) == -1)
        die("connect: %s", nbd_get_error());
    return nbd;
}

static void
close_nbd(struct nbd_handle *nbd)
{
    if (nbd_shutdown(nbd, 0) == -1)
        die("shutdown: %s", nbd_get_error());
    nbd_close(nbd);
}

static uint64_t
timed_flush(struct nbd_handle *nbd)
{
    const uint64_t start = now_ns();

    if (nbd_flush(nbd, 0) == -1)
        die("flush: %s", nbd_get_error());
    return now_ns() - start;
}

static uint64_t
timed_fua_write(struct nbd_handle *nbd, uint64_t *rnd, uint64_t base)
{
    static char block[65536];
    const uint64_t offset = base + next_random(rnd) % (p_area / p_bs) * p_bs;
    const uint64_t start = now_ns();

    if (nbd_pwrite(nbd, block, p_bs, offset, LIBNBD_CMD_FLAG_FUA) == -1)
        die("FUA write: %s", nbd_get_error());
    return now_ns() - start;
}

/* Requests in flight: a callback may not call libnbd for its own connection,
 * so it only marks its slot and the loop starts the next request.
 */
enum slot_state { IDLE, READING, WRITING };

struct slot {
    char *buf;
    uint64_t offset;
    enum slot_state state;
    bool done;
};

static int
slot_done(void *data, int *error)
{
    struct slot *slot = data;

    if (*error)
        die("request at %" PRIu64 ": %s", slot->offset, strerror(*error));
    slot->done = true;
    return 1;
}

static void
start_request(struct nbd_handle *nbd, struct slot *slot, uint64_t bs,
              enum slot_state state)
{
    nbd_completion_callback done = {.callback = slot_done, .user_data = slot};
    int64_t cookie;

    slot->state = state;
    slot->done = false;
    if (state == READING)
        cookie = nbd_aio_pread(nbd, slot->buf, bs, slot->offset, done, 0);
    else
        cookie = nbd_aio_pwrite(nbd, slot->buf, bs, slot->offset, done, 0);
    if (cookie == -1)
        die("request: %s", nbd_get_error());
}

/* A buffer of @bs bytes for slot @i.  They are kept: filling them takes time,
 * which is not the server's.
 */
static char *
buffer_of(uint64_t i, uint64_t bs)
{
    static struct {
        char *bytes;
        uint64_t room;
    } kept[MAX_DEPTH];
    static uint64_t noise = 0x9e3779b97f4a7c15ull;

    if (kept[i].room < bs) {
        kept[i].bytes = must_alloc(realloc(kept[i].bytes, bs));
        kept[i].room = bs;
        for (uint64_t j = 0; j < bs; j++) /* Nothing may compress it. */
            kept[i].bytes[j] = next_random(&noise);
    }
    return kept[i].bytes;
}

/* Run @count requests of @bs bytes with @depth in flight: sequential writes
 * from @base, or with @rnd random reads of @p_area that are each changed and
 * written back.  @seen, one byte per block, collects which were written.
 */
static void
run_slots(struct nbd_handle *nbd, uint64_t count, uint64_t bs, uint64_t depth,
          uint64_t base, uint64_t *rnd, unsigned char *seen)
{
    struct slot slots[MAX_DEPTH] = {0};
    uint64_t started = 0, finished = 0;

    for (uint64_t i = 0; i < depth; i++)
        slots[i].buf = buffer_of(i, bs);
    while (finished < count) {
        bool progress = false;

        for (uint64_t i = 0; i < depth; i++) {
            struct slot *slot = &slots[i];

            if (slot->state != IDLE && !slot->done)
                continue;
            if (slot->state == READING) {
                slot->buf[0]++;
                start_request(nbd, slot, bs, WRITING);
                progress = true;
                continue;
            }
            if (slot->state == WRITING) {
                finished++;
                slot->state = IDLE;
            }
            if (started == count)
                continue;
            if (rnd) {
                const uint64_t block = next_random(rnd) % (p_area / bs);

                slot->offset = base + block * bs;
                seen[block] = 1;
            } else {
                slot->offset = base + started * bs;
            }
            started++;
            progress = true;
            start_request(nbd, slot, bs, rnd ? READING : WRITING);
        }
        if (!progress && finished < count && nbd_poll(nbd, -1) == -1)
            die("poll: %s", nbd_get_error());
    }
}

/* fua: @p_conns connections, each with one FUA write in flight. */
struct fua_worker {
    pthread_t thread;
    struct nbd_handle *nbd;
    struct samples lat;
    uint64_t rnd;
};

static void *
fua_worker(void *data)
{
    struct fua_worker *w = data;
    const uint64_t end = now_ns() + p_ms * 1000000;

    while (now_ns() < end)
        add_sample(&w->lat, timed_fua_write(w->nbd, &w->rnd, 0));
    return NULL;
}

static void
run_fua(void)
{
    static struct fua_worker workers[MAX_CONNS];
    struct samples all = {0};
    uint64_t start;

    for (uint64_t i = 0; i < p_conns; i++) {
        workers[i].nbd = open_nbd();
        workers[i].rnd = FIRST_SEED + i;
    }
    start = now_ns();
    for (uint64_t i = 0; i < p_conns; i++)
        if (pthread_create(&workers[i].thread, NULL, fua_worker, &workers[i]))
            die("cannot start a thread");
    for (uint64_t i = 0; i < p_conns; i++)
        pthread_join(workers[i].thread, NULL);
    printf("\"seconds\": %.6f, ", (now_ns() - start) / 1e9);
    for (uint64_t i = 0; i < p_conns; i++) {
        for (size_t j = 0; j < workers[i].lat.nr; j++)
            add_sample(&all, workers[i].lat.ns[j]);
        close_nbd(workers[i].nbd);
    }
    printf("\"requests\": %zu, \"fua\": %zu, ", all.nr, all.nr);
    print_samples("req", &all);
}

/* flush: nothing is written.  The first flush is not counted: after a start
 * nobody knows what the server before left behind.
 */
static void
run_flush(void)
{
    struct nbd_handle *nbd = open_nbd();
    struct samples lat = {0};
    uint64_t start, end;

    (void)timed_flush(nbd);
    start = now_ns();
    end = start + p_ms * 1000000;
    while (now_ns() < end)
        add_sample(&lat, timed_flush(nbd));
    printf("\"seconds\": %.6f, \"requests\": %zu, \"flushes\": %zu, ",
           (now_ns() - start) / 1e9, lat.nr, lat.nr);
    print_samples("req", &lat);
    close_nbd(nbd);
}

/* fill: @p_total bytes in order with a flush after every @p_flush_every, and
 * one at the end, which is the one that is timed.
 */
static void
run_fill(void)
{
    struct nbd_handle *nbd = open_nbd();
    const uint64_t total = p_total / p_bs * p_bs;
    const uint64_t every = p_flush_every / p_bs * p_bs;
    uint64_t flushes = 1, last_ns, start;

    for (uint64_t i = 0; i < p_depth; i++)
        (void)buffer_of(i, p_bs);
    start = now_ns();
    for (uint64_t at = 0, len; at < total; at += len) {
        len = total - at < every ? total - at : every;
        run_slots(nbd, len / p_bs, p_bs, p_depth, at, NULL, NULL);
        if (at + len < total) {
            (void)timed_flush(nbd);
            flushes++;
        }
    }
    print_dirty(p_watch);
    last_ns = timed_flush(nbd);
    printf("\"seconds\": %.6f, \"flush_seconds\": %.6f, "
           "\"requests\": %" PRIu64 ", \"flushes\": %" PRIu64 ", "
           "\"writes\": %" PRIu64 ", \"distinct_bytes\": %" PRIu64 ", ",
           (now_ns() - start) / 1e9, last_ns / 1e9, total / p_bs + flushes,
           flushes, total / p_bs, total);
    close_nbd(nbd);
}

/* scatter: read, change and write back random blocks, then one flush. */
static void
run_scatter(void)
{
    struct nbd_handle *nbd = open_nbd();
    unsigned char *seen = must_alloc(calloc(p_area / p_bs, 1));
    uint64_t rnd = FIRST_SEED, distinct = 0;
    const uint64_t start = now_ns();
    uint64_t flush_ns;

    run_slots(nbd, p_count, p_bs, p_depth, 0, &rnd, seen);
    print_dirty(p_watch);
    flush_ns = timed_flush(nbd);
    for (uint64_t i = 0; i < p_area / p_bs; i++)
        distinct += seen[i];
    printf("\"seconds\": %.6f, \"flush_seconds\": %.6f, "
           "\"requests\": %" PRIu64 ", \"flushes\": 1, "
           "\"writes\": %" PRIu64 ", \"distinct_bytes\": %" PRIu64 ", ",
           (now_ns() - start) / 1e9, flush_ns / 1e9, p_count * 2 + 1, p_count,
           distinct * p_bs);
    free(seen);
    close_nbd(nbd);
}

/* fua-dirty: FUA writes below @p_area, first with nothing else dirty, then
 * after @p_dirty bytes above it were written and not flushed.  A server that
 * syncs the whole file pays once per episode; with 50 writes in each of 4
 * episodes that is 2 % of the samples, so the p99 shows it.
 */
static void
run_fua_dirty(void)
{
    struct nbd_handle *filler = open_nbd(), *writer = open_nbd();
    struct samples clean = {0}, dirty = {0};
    uint64_t rnd = FIRST_SEED;
    const uint64_t start = now_ns();

    (void)timed_flush(filler);
    for (uint64_t i = 0; i < p_episodes * p_writes; i++)
        add_sample(&clean, timed_fua_write(writer, &rnd, 0));
    for (uint64_t e = 0; e < p_episodes; e++) {
        run_slots(filler, p_dirty / FILL_BS, FILL_BS, 8, p_area, NULL, NULL);
        for (uint64_t i = 0; i < p_writes; i++)
            add_sample(&dirty, timed_fua_write(writer, &rnd, 0));
    }
    printf("\"seconds\": %.6f, \"requests\": %" PRIu64 ", \"fua\": %zu, "
           "\"flushes\": 1, ",
           (now_ns() - start) / 1e9,
           clean.nr + dirty.nr + p_episodes * (p_dirty / FILL_BS) + 1,
           clean.nr + dirty.nr);
    print_samples("req", &dirty);
    print_samples("clean", &clean);
    close_nbd(writer);
    close_nbd(filler);
}

/* read-flush: 4k reads of [0, @p_area) while a flush of @p_dirty bytes above
 * it runs.  Only reads that were started during the flush count.
 */
enum phase { STARTING, READY, FLUSHING, OVER };

static atomic_int phase;

struct reader {
    struct nbd_handle *nbd;
    struct samples lat;
    uint64_t rnd;
};

static void *
read_until_over(void *data)
{
    struct reader *r = data;
    char block[4096];
    int now;

    while ((now = atomic_load(&phase)) != OVER) {
        const uint64_t offset =
            next_random(&r->rnd) % (p_area / sizeof block) * sizeof block;
        const uint64_t start = now_ns();

        if (nbd_pread(r->nbd, block, sizeof block, offset, 0) == -1)
            die("read: %s", nbd_get_error());
        if (now == FLUSHING)
            add_sample(&r->lat, now_ns() - start);
        else if (now == STARTING)
            atomic_store(&phase, READY);
    }
    return NULL;
}

static void
run_read_flush(void)
{
    struct nbd_handle *filler = open_nbd();
    struct reader reader = {.nbd = open_nbd(), .rnd = FIRST_SEED};
    uint64_t flush_ns = 0;
    const uint64_t start = now_ns();

    for (uint64_t e = 0; e < p_episodes; e++) {
        pthread_t thread;

        run_slots(filler, p_dirty / FILL_BS, FILL_BS, 8, p_area, NULL, NULL);
        atomic_store(&phase, STARTING);
        if (pthread_create(&thread, NULL, read_until_over, &reader))
            die("cannot start a thread");
        while (atomic_load(&phase) == STARTING)
            sched_yield();
        atomic_store(&phase, FLUSHING);
        flush_ns += timed_flush(filler);
        atomic_store(&phase, OVER);
        pthread_join(thread, NULL);
    }
    printf("\"seconds\": %.6f, \"flush_seconds\": %.6f, "
           "\"requests\": %" PRIu64 ", \"flushes\": %" PRIu64 ", ",
           (now_ns() - start) / 1e9, flush_ns / 1e9 / p_episodes,
           reader.lat.nr + p_episodes * (p_dirty / FILL_BS + 1), p_episodes);
    print_samples("req", &reader.lat);
    close_nbd(reader.nbd);
    close_nbd(filler);
}

static const struct {
    const char *name;
    void (*run)(void);
} commands[] = {
    {"fua",        run_fua       },
    {"flush",      run_flush     },
    {"fill",       run_fill      },
    {"scatter",    run_scatter   },
    {"fua-dirty",  run_fua_dirty },
    {"read-flush", run_read_flush},
};

static const struct param params[] = {
    {"area",     &p_area,        65536,   UINT64_MAX},
    {"bs",       &p_bs,          512,     FILL_BS   },
    {"conns",    &p_conns,       1,       MAX_CONNS },
    {"count",    &p_count,       1,       UINT64_MAX},
    {"depth",    &p_depth,       1,       MAX_DEPTH },
    {"dirty",    &p_dirty,       FILL_BS, UINT64_MAX},
    {"episodes", &p_episodes,    1,       1000      },
    {"every",    &p_flush_every, FILL_BS, UINT64_MAX},
    {"ms",       &p_ms,          1,       3600000   },
    {"total",    &p_total,       FILL_BS, UINT64_MAX},
    {"watch",    &p_watch,       0,       INT32_MAX },
    {"writes",   &p_writes,      1,       1000000   },
};

int
main(int argc, char **argv)
{
    if (argc < 3)
        die("usage: nbdload URI COMMAND [key=value...]");
    uri = argv[1];
    for (int i = 3; i < argc; i++)
        set_param(argv[i], params, sizeof params / sizeof params[0]);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[2], commands[i].name))
            continue;
        printf("{");
        commands[i].run();
        printf("\"command\": \"%s\"}\n", argv[2]);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    die("unknown command '%s'", argv[2]);
}
