/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The promises of the modes under random concurrent load: after a power cut at
 * a random moment, what was promised is on the disk.  Each run is made by a
 * seed that is printed if it fails; UNIT_SEED=N runs that seed only.
 *
 * Every block belongs to one thread, and every write of it has a version.  A
 * sector must hold one that is at least as new as what was promised, and not
 * newer than what was written; never anything else.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR_THREADS 4
#define NR_BLOCKS 48 /* Neighbours belong to different threads. */
#define BLOCK 1024   /* Two sectors that can be torn apart. */
#define NR_STEPS 40
#define MAX_VERSIONS 64 /* More than a block can get. */

struct block {
    unsigned issued;            /* (t) Its thread. */
    bool is_zero[MAX_VERSIONS]; /* (t) */
    atomic_uint acked;          /* (a) Newest version acknowledged. */
    unsigned promised;          /* (l) Must survive. */
};

struct load {
    struct ubd_disk *disk;
    uint64_t seed;
    bool is_always; /* Each acknowledged version is promised. */
    bool can_trim;  /* Else a trim succeeds and changes nothing. */
    pthread_mutex_t lock;
    struct block block[NR_BLOCKS];
};

struct worker {
    pthread_t thread;
    struct load *load;
    unsigned index;
    uint64_t seed;
};

struct scenario {
    const char *cache;
    bool is_direct;
    bool must_write_zeroes;
    bool loses;      /* A writeback fails before the power does. */
    bool writes_out; /* All the time, with a limit of a few pages. */
};

/* The eight bytes at @word of version @version. */
static uint64_t
content(const struct load *load, unsigned block, unsigned version,
        unsigned word)
{
    uint64_t state = ((uint64_t)block << 40) + ((uint64_t)version << 20) + word;

    if (version == 0 || load->block[block].is_zero[version])
        return 0;
    return fake_random(&state) | 1; /* Never 0. */
}

static void
promise(struct load *load, unsigned block, unsigned version)
{
    pthread_mutex_lock(&load->lock);
    if (load->block[block].promised < version)
        load->block[block].promised = version;
    pthread_mutex_unlock(&load->lock);
}

static int
change_block(struct worker *w, unsigned index, unsigned flags)
{
    struct load *load = w->load;
    struct block *block = &load->block[index];
    const unsigned version = block->issued + 1;
    const unsigned how = fake_random(&w->seed) % 8;
    uint64_t buf[BLOCK / 8];

    block->is_zero[version] = how < 2;
    block->issued = version;
    if (how == 0 && load->can_trim)
        return ubd_trim(load->disk, BLOCK, (uint64_t)index * BLOCK, flags);
    if (how < 2)
        return ubd_zero(load->disk, BLOCK, (uint64_t)index * BLOCK,
                        flags | UBD_MAY_TRIM);
    for (unsigned i = 0; i < BLOCK / 8; i++)
        buf[i] = content(load, index, version, i);
    return ubd_write(load->disk, buf, BLOCK, (uint64_t)index * BLOCK, flags);
}

static void
change_something(struct worker *w)
{
    const unsigned nr_own = NR_BLOCKS / NR_THREADS;
    const unsigned index =
        fake_random(&w->seed) % nr_own * NR_THREADS + w->index;
    const unsigned flags = fake_random(&w->seed) % 6 == 0 ? UBD_FUA : 0;
    struct block *block = &w->load->block[index];

    if (change_block(w, index, flags) < 0)
        return;
    block->acked = block->issued;
    if (flags || w->load->is_always)
        promise(w->load, index, block->issued);
}

static void
flush_everything(struct worker *w)
{
    struct load *load = w->load;
    unsigned acked[NR_BLOCKS];

    for (unsigned i = 0; i < NR_BLOCKS; i++)
        acked[i] = load->block[i].acked;
    if (ubd_flush(load->disk) < 0)
        return;
    for (unsigned i = 0; i < NR_BLOCKS; i++)
        promise(load, i, acked[i]);
}

static void *
work(void *opaque)
{
    struct worker *w = opaque;

    for (unsigned i = 0; i < NR_STEPS; i++) {
        if (fake_random(&w->seed) % 6 == 0)
            flush_everything(w);
        else
            change_something(w);
    }
    return NULL;
}

static bool
is_allowed(const struct load *load, unsigned index, unsigned word,
           uint64_t value)
{
    const struct block *block = &load->block[index];

    for (unsigned v = block->promised; v <= block->issued; v++)
        if (content(load, index, v, word) == value)
            return true;
    return false;
}

static void
check_survivors(const struct load *load, const struct fake *fake)
{
    for (unsigned b = 0; b < NR_BLOCKS; b++) {
        for (unsigned i = 0; i < BLOCK / 8; i++) {
            uint64_t value;

            memcpy(&value, fake->stable + b * BLOCK + i * 8, 8);
            if (!is_allowed(load, b, i, value))
                ck_abort_msg("seed %lu: block %u, byte %u: promised version "
                             "%u of %u is not on the disk",
                             (unsigned long)load->seed, b, i * 8,
                             load->block[b].promised, load->block[b].issued);
        }
    }
}

/* A limit of pages where users have one of MiB. */
static struct ubd_disk *
open_limited_disk(struct fake *fake, const char *cache)
{
    struct ubd_disk *disk = unit_limited_disk(fake, cache, 1024 * KIB, false);
    struct ubd_writeback *wb = &disk->writeback;

    wb->batch = 1;
    wb->admit_max = 6;
    wb->start_at = wb->start_early = 2;
    wb->start_late = 4;
    return disk;
}

static struct ubd_disk *
open_disk(struct fake *fake, const struct scenario *s)
{
    struct ubd_disk *disk;

    if (s->is_direct)
        disk = unit_direct_disk(fake, s->cache, 4096, 512);
    else if (s->writes_out)
        disk = open_limited_disk(fake, s->cache);
    else
        disk = unit_disk(fake, s->cache);

    disk->host.block_size = BLOCK; /* So that trims do something. */
    if (s->must_write_zeroes)
        fake_fault(fake, FAKE_ALLOCATE, FAKE_FAIL, -EOPNOTSUPP);
    return disk;
}

static void
run_workers(struct load *load)
{
    struct worker worker[NR_THREADS];

    for (unsigned i = 0; i < NR_THREADS; i++) {
        worker[i] = (struct worker){
            .load = load, .index = i, .seed = load->seed * NR_THREADS + i};
        ck_assert_int_eq(
            pthread_create(&worker[i].thread, NULL, work, &worker[i]), 0);
    }
    for (unsigned i = 0; i < NR_THREADS; i++)
        ck_assert_int_eq(pthread_join(worker[i].thread, NULL), 0);
}

static void
run_seed(const struct scenario *s, uint64_t seed)
{
    struct fake *fake = fake_new(NR_BLOCKS * BLOCK);
    struct load *load = calloc(1, sizeof *load);
    uint64_t random = seed;

    load->disk = open_disk(fake, s);
    load->seed = seed;
    load->can_trim = !s->must_write_zeroes;
    load->is_always = load->disk->policy->durable == UBD_DURABLE_ALWAYS;
    pthread_mutex_init(&load->lock, NULL);
    fake->chaos = seed;
    fake->cut_after = 20 + fake_random(&random) % 200;
    if (s->loses && seed % 2)
        fake->lose_after = 1 + fake_random(&random) % fake->cut_after;
    else if (s->loses)
        fake_lose_starting(fake, fake_random(&random) % 16, -EIO);
    run_workers(load);
    fake_cut(fake, seed);
    check_survivors(load, fake);
    unit_close(load->disk, fake);
    pthread_mutex_destroy(&load->lock);
    free(load);
}

#ifndef __has_feature
#define __has_feature(x) 0 /* How clang says what gcc has macros for. */
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define NR_SEEDS 60 /* They make everything ten times slower. */
#else
#define NR_SEEDS 250
#endif

static void
run_seeds(const struct scenario *s)
{
    const char *only = getenv("UNIT_SEED");

    if (only) {
        run_seed(s, strtoull(only, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= NR_SEEDS; seed++)
        run_seed(s, seed);
}

START_TEST(what_was_flushed_or_written_with_fua_survives_a_power_cut)
{
    run_seeds(&(struct scenario){.cache = "barrier"});
}
END_TEST

START_TEST(it_survives_where_zeroes_have_to_be_written)
{
    run_seeds(
        &(struct scenario){.cache = "barrier", .must_write_zeroes = true});
}
END_TEST

START_TEST(it_survives_with_o_direct)
{
    run_seeds(&(struct scenario){.cache = "barrier", .is_direct = true});
}
END_TEST

START_TEST(everything_acknowledged_in_osync_survives_a_power_cut)
{
    run_seeds(&(struct scenario){.cache = "osync"});
    run_seeds(&(struct scenario){
        .cache = "osync", .is_direct = true, .must_write_zeroes = true});
}
END_TEST

START_TEST(nothing_is_acknowledged_for_durable_after_it_was_lost)
{
    run_seeds(&(struct scenario){.cache = "barrier", .loses = true});
}
END_TEST

START_TEST(nothing_is_acknowledged_in_osync_after_it_was_lost)
{
    run_seeds(&(struct scenario){
        .cache = "osync", .must_write_zeroes = true, .loses = true});
}
END_TEST

START_TEST(it_survives_with_a_limit_of_dirty_data)
{
    run_seeds(&(struct scenario){.cache = "barrier", .writes_out = true});
}
END_TEST

START_TEST(it_survives_with_a_limit_where_zeroes_have_to_be_written)
{
    run_seeds(&(struct scenario){
        .cache = "barrier", .must_write_zeroes = true, .writes_out = true});
}
END_TEST

START_TEST(write_out_takes_no_report_of_a_loss_that_a_flush_needs)
{
    run_seeds(&(struct scenario){
        .cache = "barrier", .loses = true, .writes_out = true});
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        what_was_flushed_or_written_with_fua_survives_a_power_cut,
        it_survives_where_zeroes_have_to_be_written,
        it_survives_with_o_direct,
        everything_acknowledged_in_osync_survives_a_power_cut,
        nothing_is_acknowledged_for_durable_after_it_was_lost,
        nothing_is_acknowledged_in_osync_after_it_was_lost,
        it_survives_with_a_limit_of_dirty_data,
        it_survives_with_a_limit_where_zeroes_have_to_be_written,
        write_out_takes_no_report_of_a_loss_that_a_flush_needs,
        NULL,
    };

    return unit_run("power", tests);
}
