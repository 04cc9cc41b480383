/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Random requests of any alignment and length from several threads, on a host
 * that fails, loses and at last has no power.  Each thread has a region of its
 * own that begins and ends within a block, so that neighbours meet in one.  A
 * read returns what its thread wrote; after the power cut every byte is one
 * that was written since it was last promised; a loss that was told stays told.
 *
 * Each run is made by a seed that is printed if it fails; UNIT_SEED=N runs that
 * seed only.
 */
#include "unit.h"

#include "../fuzz/fuzz-oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NR_THREADS 4
#define REGION 20011 /* A prime: no region begins with a block. */
#define NR_STEPS 60
#define LEN_MAX 6000

struct byte {
    uint64_t allowed[4]; /* A bit for each value it may have on the disk. */
};

struct worker {
    pthread_t thread;
    struct ubd_disk *disk;
    uint64_t start, seed, state;
    bool is_always, can_promise;
    bool was_told; /* A flush has failed. */
    struct oracle oracle;
    struct byte byte[REGION];
    unsigned char buf[LEN_MAX];
};

struct scenario {
    const char *cache;
    bool is_direct, writes_out, loses, fails;
};

static void
allow(struct worker *w, uint64_t offset, uint64_t len, const unsigned char *to)
{
    for (uint64_t i = 0; i < len; i++) {
        const unsigned value = to ? to[i] : 0;

        w->byte[offset + i].allowed[value / 64] |= UINT64_C(1) << (value % 64);
    }
}

/* What is there now is all that may be there. */
static void
promise(struct worker *w, uint64_t offset, uint64_t len)
{
    for (uint64_t i = offset; i < offset + len; i++) {
        w->byte[i] = (struct byte){{0}};
        allow(w, i, 1, &w->oracle.data[i]);
        if (w->oracle.is_trimmed[i])
            allow(w, i, 1, NULL);
    }
}

static void
complain(const struct worker *w, const char *what, uint64_t offset,
         uint64_t len)
{
    ck_abort_msg("seed %lu: %s, %lu bytes at %lu of thread %lu",
                 (unsigned long)w->seed, what, (unsigned long)len,
                 (unsigned long)offset, (unsigned long)(w->start / REGION));
}

static void
read_back(struct worker *w, uint64_t offset, uint64_t len, bool is_known)
{
    /* Without power nothing can be read. */
    if (ubd_read(w->disk, w->buf, len, w->start + offset) < 0)
        return;
    if (!is_known)
        oracle_write(&w->oracle, w->buf, len, offset);
    else if (!oracle_read(&w->oracle, w->buf, len, offset))
        complain(w, "wrong data", offset, len);
}

static int
change(struct worker *w, uint64_t offset, uint64_t len, unsigned flags)
{
    const unsigned how = oracle_random(&w->state) % 8;

    if (how == 0) {
        allow(w, offset, len, NULL);
        oracle_trim(&w->oracle, len, offset);
        return ubd_trim(w->disk, len, w->start + offset, flags);
    }
    if (how <= 2) {
        allow(w, offset, len, NULL);
        if (how == 2)
            flags |= UBD_MAY_TRIM;
        oracle_zero(&w->oracle, len, offset);
        return ubd_zero(w->disk, len, w->start + offset, flags);
    }
    oracle_fill(w->buf, len, &w->state);
    allow(w, offset, len, w->buf);
    oracle_write(&w->oracle, w->buf, len, offset);
    return ubd_write(w->disk, w->buf, len, w->start + offset, flags);
}

static void
change_something(struct worker *w, uint64_t offset, uint64_t len)
{
    const bool is_fua = oracle_random(&w->state) % 6 == 0;
    const int r = change(w, offset, len, is_fua ? UBD_FUA : 0);

    if (r < 0) { /* Anything between old and new may be there. */
        read_back(w, offset, len, false);
        return;
    }
    if ((is_fua && w->can_promise) || w->is_always) {
        if (w->was_told)
            complain(w, "durable after a loss that was told", offset, len);
        promise(w, offset, len);
    }
}

static void
flush(struct worker *w)
{
    const int r = ubd_flush(w->disk);

    if (!w->can_promise)
        return;
    if (r == 0 && w->was_told)
        complain(w, "a flush succeeded after a loss that was told", 0, 0);
    if (r == 0)
        promise(w, 0, REGION);
    else if (ubd_loss(w->disk)) /* Else it lost nothing: (D7). */
        w->was_told = true;
}

static void *
work(void *opaque)
{
    struct worker *w = opaque;

    for (unsigned i = 0; i < NR_STEPS; i++) {
        const unsigned how = oracle_random(&w->state) % 16;
        const uint64_t offset = oracle_random(&w->state) % REGION;
        uint64_t len = 1 + oracle_random(&w->state) % LEN_MAX;

        if (len > REGION - offset)
            len = REGION - offset;
        if (how < 3)
            flush(w);
        else if (how < 6)
            read_back(w, offset, len, true);
        else
            change_something(w, offset, len);
    }
    return NULL;
}

static void
start_work(struct worker *w, struct ubd_disk *disk, unsigned i, uint64_t seed)
{
    *w = (struct worker){.disk = disk,
                         .start = (uint64_t)i * REGION,
                         .seed = seed,
                         .state = seed * NR_THREADS + i};
    w->is_always = disk->policy->durable == UBD_DURABLE_ALWAYS;
    w->can_promise = disk->policy->flush_syncs;
    oracle_init(&w->oracle, REGION);
    promise(w, 0, REGION);
    ck_assert_int_eq(pthread_create(&w->thread, NULL, work, w), 0);
}

static void
check_survivors(const struct worker *w, const unsigned char *stable)
{
    for (uint64_t i = 0; i < REGION; i++) {
        const unsigned value = stable[w->start + i];

        if (!(w->byte[i].allowed[value / 64] >> (value % 64) & 1))
            complain(w, "not what was promised is on the disk", i, 1);
    }
}

/* Failures of single requests, which lose nothing that was acknowledged. */
static void
script_failures(struct fake *fake, uint64_t *state)
{
    static const struct fake_rule rules[] = {
        {.kind = FAKE_WRITE,    .fault = FAKE_FAIL,  .error = -ENOSPC    },
        {.kind = FAKE_WRITE,    .fault = FAKE_FAIL,  .error = -EDQUOT    },
        {.kind = FAKE_WRITE,    .fault = FAKE_SHORT, .bytes = 100        },
        {.kind = FAKE_DURABLE,  .fault = FAKE_FAIL,  .error = -ENOSPC    },
        {.kind = FAKE_DURABLE,  .fault = FAKE_SHORT, .bytes = 512        },
        {.kind = FAKE_ALLOCATE, .fault = FAKE_FAIL,  .error = -ENOSPC    },
        {.kind = FAKE_ALLOCATE, .fault = FAKE_FAIL,  .error = -EOPNOTSUPP},
    };

    for (unsigned i = 0; i < 4; i++) {
        struct fake_rule rule =
            rules[oracle_random(state) % (sizeof rules / sizeof rules[0])];

        rule.skip = oracle_random(state) % 40;
        rule.times = 1 + oracle_random(state) % 3;
        if (fake->align > 1 && rule.fault == FAKE_SHORT)
            rule.bytes = fake->align;
        fake_script(fake, rule);
    }
}

static struct ubd_disk *
open_disk(struct fake *fake, const struct scenario *s)
{
    struct ubd_disk *disk;

    if (s->is_direct)
        return unit_direct_disk(fake, s->cache, 4096, 512);
    if (!s->writes_out)
        return unit_disk(fake, s->cache);
    disk = unit_limited_disk(fake, s->cache, 1024 * KIB, false);
    disk->writeback.batch = 1; /* A limit of pages, not of MiB. */
    disk->writeback.admit_max = 6;
    disk->writeback.start_at = disk->writeback.start_early = 2;
    disk->writeback.start_late = 4;
    return disk;
}

static void
run_seed(const struct scenario *s, uint64_t seed)
{
    const uint64_t size = (NR_THREADS * REGION + 4095) / 4096 * 4096;
    struct fake *fake = fake_new(size);
    struct worker *worker = calloc(NR_THREADS, sizeof *worker);
    struct ubd_disk *disk = open_disk(fake, s);
    uint64_t state = seed;

    fake->chaos = seed;
    if (oracle_random(&state) % 2)
        fake->cut_after = 50 + oracle_random(&state) % 400;
    if (s->loses && seed % 2)
        fake->lose_after = 1 + oracle_random(&state) % 300;
    else if (s->loses)
        fake_lose_starting(fake, oracle_random(&state) % 16, -EIO);
    if (s->fails)
        script_failures(fake, &state);
    if (s->fails && !s->loses) /* Early write-out is given up then. */
        fake_script(fake, (struct fake_rule){.kind = FAKE_SUBMIT_WRITEOUT,
                                             .fault = FAKE_FAIL,
                                             .error = -ENOMEM,
                                             .skip = oracle_random(&state) % 40,
                                             .times = 1});
    for (unsigned i = 0; i < NR_THREADS; i++)
        start_work(&worker[i], disk, i, seed);
    for (unsigned i = 0; i < NR_THREADS; i++)
        ck_assert_int_eq(pthread_join(worker[i].thread, NULL), 0);
    fake_cut(fake, seed);
    for (unsigned i = 0; i < NR_THREADS; i++) {
        check_survivors(&worker[i], fake->stable);
        oracle_destroy(&worker[i].oracle);
    }
    unit_close(disk, fake);
    free(worker);
}

#ifndef __has_feature
#define __has_feature(x) 0 /* How clang says what gcc has macros for. */
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define NR_SEEDS 10 /* They make everything ten times slower. */
#else
#define NR_SEEDS 30
#endif

/* New seeds every time: who runs this often, tries much. */
static void
run_seeds(const struct scenario *s)
{
    const char *only = getenv("UNIT_SEED");
    struct timespec now;
    uint64_t first;

    clock_gettime(CLOCK_REALTIME, &now);
    first = (uint64_t)now.tv_nsec + 1;
    if (only) {
        run_seed(s, strtoull(only, NULL, 10));
        return;
    }
    for (uint64_t seed = first; seed < first + NR_SEEDS; seed++)
        run_seed(s, seed);
}

START_TEST(random_requests_keep_every_promise)
{
    run_seeds(&(struct scenario){.cache = "barrier"});
    run_seeds(&(struct scenario){.cache = "osync"});
    run_seeds(&(struct scenario){.cache = "barrier", .writes_out = true});
}
END_TEST

START_TEST(random_requests_keep_every_promise_with_o_direct)
{
    run_seeds(&(struct scenario){.cache = "barrier", .is_direct = true});
    run_seeds(&(struct scenario){.cache = "osync", .is_direct = true});
}
END_TEST

START_TEST(random_requests_keep_every_promise_where_requests_fail)
{
    run_seeds(&(struct scenario){.cache = "barrier", .fails = true});
    run_seeds(&(struct scenario){.cache = "osync", .fails = true});
    run_seeds(&(struct scenario){
        .cache = "barrier", .fails = true, .is_direct = true});
}
END_TEST

START_TEST(random_requests_keep_every_promise_after_a_loss)
{
    run_seeds(&(struct scenario){.cache = "barrier", .loses = true});
    run_seeds(&(struct scenario){
        .cache = "barrier", .loses = true, .fails = true, .writes_out = true});
}
END_TEST

START_TEST(random_requests_return_the_right_data_in_unsafe)
{
    run_seeds(&(struct scenario){.cache = "unsafe", .writes_out = true});
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        random_requests_keep_every_promise,
        random_requests_keep_every_promise_with_o_direct,
        random_requests_keep_every_promise_where_requests_fail,
        random_requests_keep_every_promise_after_a_loss,
        random_requests_return_the_right_data_in_unsafe,
        NULL,
    };

    return unit_run("random", tests);
}
