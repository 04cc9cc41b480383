/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules M1 to M5 of model.h. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "test-disk.h"

START_TEST(a_read_sees_every_completed_write_and_no_other)
{
    struct diskmodel_op *op = begin(1, 0, 1, false);

    ck_assert_int_eq(get(0), 0);
    finish(op);
    ck_assert_int_eq(get(0), 1);
    put(2, 0, 1);
    ck_assert_int_eq(get(0), 2);
}
END_TEST

START_TEST(of_two_writes_the_one_that_completed_last_is_seen_and_flushed)
{
    struct diskmodel_op *first = begin(1, 0, 1, false);
    struct diskmodel_op *second = begin(2, 0, 1, false);

    finish(second);
    finish(first);
    ck_assert_int_eq(get(0), 1);
    ck_assert_int_eq(diskmodel_flush(disk), 0);
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 1);
}
END_TEST

START_TEST(a_flush_makes_durable_what_completed_before_it_was_received)
{
    put(1, 0, 8);
    put(2, 4, 8);
    finish(begin_flush());
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(3), 1);
    ck_assert_int_eq(get(4), 2);
    ck_assert_int_eq(get(11), 2);
}
END_TEST

START_TEST(a_flush_does_not_cover_a_write_that_completed_after_it_was_received)
{
    struct diskmodel_op *op = begin(1, 0, 1, false);
    struct diskmodel_op *flush = begin_flush();

    finish(op);
    put(2, 1, 1);
    finish(flush);
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 0);
    ck_assert_int_eq(get(1), 0);
}
END_TEST

START_TEST(a_flush_makes_nothing_durable_before_it_completes)
{
    struct diskmodel_op *flush;

    put(1, 0, 1);
    flush = begin_flush();
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 0);
    ck_assert_int_eq(diskmodel_finish(disk, flush), -EIO);
    ck_assert_uint_eq(stats().flushes_done, 0);
}
END_TEST

START_TEST(flushes_that_complete_out_of_order_cover_their_own_writes)
{
    struct diskmodel_op *first, *second;

    put(1, 0, 1);
    first = begin_flush();
    put(2, 1, 1);
    second = begin_flush();
    put(3, 2, 1);
    finish(second);
    finish(first);
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 1);
    ck_assert_int_eq(get(1), 2);
    ck_assert_int_eq(get(2), 0);
}
END_TEST

START_TEST(fua_is_durable_by_itself_and_covers_nothing_else)
{
    put(1, 0, 1);
    finish(begin(2, 1, 1, true));
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 0);
    ck_assert_int_eq(get(1), 2);
}
END_TEST

START_TEST(fua_is_not_overwritten_by_an_older_write_in_any_cut)
{
    enum diskmodel_cut_mode mode;
    uint64_t seed;

    for (mode = 0; mode < DISKMODEL_NR_CUT_MODES; mode++) {
        for (seed = 0; seed < 20; seed++) {
            put(1, 0, 4);
            finish(begin(2, 1, 2, true));
            cut(seed, mode);
            ck_assert_int_eq(get(1), 2);
            ck_assert_int_eq(get(2), 2);
        }
    }
}
END_TEST

START_TEST(fua_is_not_overwritten_by_an_older_write_in_a_flush)
{
    struct diskmodel_op *flush;

    put(1, 0, 4);
    flush = begin_flush(); /* Covers the old one, not the FUA. */
    finish(begin(2, 1, 2, true));
    finish(flush);
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 1);
    ck_assert_int_eq(get(1), 2);
}
END_TEST

START_TEST(fua_that_did_not_complete_is_not_promised)
{
    struct diskmodel_op *op = begin(1, 0, 1, true);

    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 0);
    ck_assert_int_eq(diskmodel_finish(disk, op), -EIO);
}
END_TEST

START_TEST(zeroes_are_volatile_until_flushed)
{
    unsigned pass;

    for (pass = 0; pass < 2; pass++) {
        put(1, 0, 64);
        ck_assert_int_eq(diskmodel_flush(disk), 0);
        /* Starts and ends within a page. */
        ck_assert_int_eq(diskmodel_zero(disk, 40 * SECTOR, SECTOR, false), 0);
        ck_assert_int_eq(get(0), 1);
        ck_assert_int_eq(get(1), 0);
        ck_assert_int_eq(get(40), 0);
        ck_assert_int_eq(get(41), 1);
        if (pass == 1)
            ck_assert_int_eq(diskmodel_flush(disk), 0);
        cut(0, DISKMODEL_CUT_NONE);
        ck_assert_int_eq(get(0), 1);
        ck_assert_int_eq(get(1), pass == 1 ? 0 : 1);
        ck_assert_int_eq(get(40), pass == 1 ? 0 : 1);
        ck_assert_int_eq(get(41), 1);
    }
}
END_TEST

/* 16 writes of 4 sectors each, nothing flushed; one did not complete.  A bit
 * for each sector that survived.
 */
static uint64_t
survivors_of(uint64_t seed, enum diskmodel_cut_mode mode)
{
    struct diskmodel_op *op;
    uint64_t i, map = 0;

    for (i = 0; i < 15; i++)
        put(1, i * 4, 4);
    op = begin(1, 60, 4, false);
    cut(seed, mode);
    ck_assert_int_eq(diskmodel_finish(disk, op), -EIO);
    for (i = 0; i < 64; i++)
        map |= (uint64_t)get(i) << i;
    ck_assert_int_eq(diskmodel_zero(disk, 64 * SECTOR, 0, true), 0);
    return map;
}

START_TEST(the_same_seed_and_mode_cut_the_same)
{
    enum diskmodel_cut_mode mode;
    uint64_t seed;

    for (mode = 0; mode < DISKMODEL_NR_CUT_MODES; mode++) {
        unsigned differ = 0;

        for (seed = 0; seed < 20; seed++) {
            const uint64_t map = survivors_of(seed, mode);

            ck_assert_uint_eq(map, survivors_of(seed, mode));
            differ += map != survivors_of(seed + 1, mode);
        }
        if (mode == DISKMODEL_CUT_NONE || mode == DISKMODEL_CUT_ALL)
            ck_assert_uint_eq(differ, 0);
        else
            ck_assert_uint_gt(differ, 10);
    }
}
END_TEST

START_TEST(none_loses_and_all_keeps_every_unflushed_sector)
{
    ck_assert_uint_eq(survivors_of(7, DISKMODEL_CUT_NONE), 0);
    ck_assert_uint_eq(stats().cut_sectors_kept, 0);
    ck_assert_uint_eq(stats().cut_sectors_lost, 64);
    ck_assert_uint_eq(survivors_of(7, DISKMODEL_CUT_ALL), UINT64_MAX);
    ck_assert_uint_eq(stats().cut_sectors_kept, 64);
}
END_TEST

START_TEST(prefix_keeps_the_first_writes_whole_and_no_later_one)
{
    unsigned lengths = 0;
    uint64_t seed;

    for (seed = 0; seed < 200; seed++) {
        const uint64_t map = survivors_of(seed, DISKMODEL_CUT_PREFIX);
        const int nr = __builtin_popcountll(map);

        ck_assert_int_eq(nr % 4, 0);
        ck_assert_uint_eq(map, nr == 64 ? UINT64_MAX : (1ULL << nr) - 1);
        lengths |= 1U << (nr / 4);
    }
    ck_assert_uint_eq(lengths, (1U << 17) - 1); /* 0 to 16 writes. */
}
END_TEST

START_TEST(write_keeps_or_loses_each_write_whole)
{
    uint64_t seed, seen = 0, always = UINT64_MAX, nibble;
    unsigned i;

    for (seed = 0; seed < 50; seed++) {
        const uint64_t map = survivors_of(seed, DISKMODEL_CUT_WRITE);

        for (i = 0; i < 16; i++) {
            nibble = map >> (4 * i) & 15;
            ck_assert(nibble == 0 || nibble == 15);
        }
        seen |= map;
        always &= map;
        ck_assert_uint_eq(stats().cut_writes_torn, 0);
    }
    ck_assert_uint_eq(seen, UINT64_MAX);
    ck_assert_uint_eq(always, 0);
}
END_TEST

START_TEST(sector_keeps_any_subset_of_a_write)
{
    unsigned subsets = 0;
    uint64_t seed;
    unsigned i;

    for (seed = 0; seed < 50; seed++) {
        const uint64_t map = survivors_of(seed, DISKMODEL_CUT_SECTOR);

        for (i = 0; i < 16; i++)
            subsets |= 1U << (map >> (4 * i) & 15);
    }
    ck_assert_uint_eq(subsets, 0xffff);
}
END_TEST

START_TEST(torn_keeps_nothing_all_or_the_first_sectors_of_a_write)
{
    unsigned subsets = 0, torn;
    uint64_t seed;
    unsigned i;

    for (seed = 0; seed < 50; seed++) {
        const uint64_t map = survivors_of(seed, DISKMODEL_CUT_TORN);

        torn = 0;
        for (i = 0; i < 16; i++) {
            const unsigned nibble = map >> (4 * i) & 15;

            subsets |= 1U << nibble;
            torn += nibble != 0 && nibble != 15;
        }
        ck_assert_uint_eq(stats().cut_writes_torn, torn);
    }
    ck_assert_uint_eq(subsets,
                      1U << 0 | 1U << 1 | 1U << 3 | 1U << 7 | 1U << 15);
}
END_TEST

START_TEST(a_sector_is_never_torn)
{
    enum diskmodel_cut_mode mode;
    uint64_t seed, i;

    for (mode = 0; mode < DISKMODEL_NR_CUT_MODES; mode++) {
        for (seed = 0; seed < 20; seed++) {
            put(1, 0, 16);
            put(2, 3, 16);
            cut(seed, mode);
            for (i = 0; i < 20; i++)
                ck_assert_int_ge(get(i), 0);
        }
    }
}
END_TEST

START_TEST(what_was_flushed_survives_in_every_mode)
{
    enum diskmodel_cut_mode mode;
    uint64_t seed, i;

    for (mode = 0; mode < DISKMODEL_NR_CUT_MODES; mode++) {
        for (seed = 0; seed < 20; seed++) {
            put(1, 0, 8);
            ck_assert_int_eq(diskmodel_flush(disk), 0);
            put(2, 4, 2);
            cut(seed, mode);
            for (i = 0; i < 8; i++) {
                if (i / 2 != 2)
                    ck_assert_int_eq(get(i), 1);
                else
                    ck_assert(get(i) == 1 || get(i) == 2);
            }
        }
    }
}
END_TEST

START_TEST(every_request_fails_after_the_cut_until_the_power_is_back)
{
    unsigned char buf[SECTOR] = {0};
    struct diskmodel_op *op = begin(1, 0, 1, false);
    struct diskmodel_op *flush = begin_flush();

    ck_assert_int_eq(diskmodel_power_on(disk), -EINVAL);
    ck_assert_int_eq(diskmodel_cut(disk, 0, DISKMODEL_CUT_ALL), 0);
    ck_assert_int_eq(diskmodel_cut(disk, 0, DISKMODEL_CUT_ALL), -EIO);
    ck_assert_int_eq(diskmodel_finish(disk, op), -EIO);
    ck_assert_int_eq(diskmodel_read(disk, buf, SECTOR, 0), -EIO);
    ck_assert_int_eq(diskmodel_write(disk, buf, SECTOR, 0, false), -EIO);
    ck_assert_int_eq(diskmodel_write(disk, buf, SECTOR, 0, true), -EIO);
    ck_assert_int_eq(diskmodel_zero(disk, SECTOR, 0, false), -EIO);
    ck_assert_int_eq(diskmodel_flush(disk), -EIO);
    ck_assert_int_eq(diskmodel_power_on(disk), 0);
    ck_assert_int_eq(get(0), 1);
    /* Received before the cut: the power of today does not help it. */
    ck_assert_int_eq(diskmodel_finish(disk, flush), -EIO);
    ck_assert_uint_eq(stats().errors, 7);
    ck_assert_int_eq(diskmodel_flush(disk), 0);
}
END_TEST

START_TEST(an_armed_cut_comes_just_before_that_operation)
{
    unsigned char buf[SECTOR] = {1};

    put(1, 0, 1);
    diskmodel_arm(disk, 3, 0, DISKMODEL_CUT_ALL);
    ck_assert_int_eq(get(0), 1); /* Reads do not count. */
    put(2, 1, 1);
    ck_assert_int_eq(diskmodel_flush(disk), 0);
    ck_assert_uint_eq(stats().cut_in_ops, 1);
    ck_assert_int_eq(diskmodel_write(disk, buf, SECTOR, 0, false), -EIO);
    ck_assert_int_eq(diskmodel_power_on(disk), 0);
    ck_assert_int_eq(get(0), 1); /* The third was not even received. */
    ck_assert_int_eq(get(1), 2);
    ck_assert_int_eq(diskmodel_flush(disk), 0); /* Not armed any more. */
}
END_TEST

START_TEST(a_write_told_to_fail_changes_nothing_and_the_next_one_works)
{
    unsigned char buf[SECTOR] = {1};

    diskmodel_fail(disk, 2, 0);
    put(1, 0, 1);
    ck_assert_int_eq(diskmodel_flush(disk), 0); /* It does not count. */
    ck_assert_int_eq(diskmodel_write(disk, buf, SECTOR, SECTOR, false), -EIO);
    ck_assert_int_eq(get(1), 0);
    put(2, 1, 1);
    ck_assert_int_eq(get(1), 2);
}
END_TEST

START_TEST(a_flush_told_to_fail_loses_the_cache_for_good)
{
    put(1, 0, 1);
    diskmodel_fail(disk, 0, 1);
    ck_assert_int_eq(diskmodel_flush(disk), -EIO);
    ck_assert_int_eq(get(0), 1); /* Visible ... */
    ck_assert_int_eq(diskmodel_flush(disk), 0);
    cut(0, DISKMODEL_CUT_ALL);
    ck_assert_int_eq(get(0), 0); /* ... and not durable, whoever asks. */
}
END_TEST

START_TEST(disarmed_it_does_not_come)
{
    diskmodel_arm(disk, 1, 0, DISKMODEL_CUT_ALL);
    diskmodel_arm(disk, 0, 0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(diskmodel_flush(disk), 0);
}
END_TEST

START_TEST(the_durable_state_outlives_the_program)
{
    put(1, 0, 1);
    ck_assert_int_eq(diskmodel_flush(disk), 0);
    put(2, 1, 1);
    reopen_disk();
    ck_assert_int_eq(get(0), 1);
    ck_assert_int_eq(get(1), 0);
}
END_TEST

START_TEST(a_full_cache_gives_up_its_oldest_writes)
{
    struct diskmodel_settings settings = {.cache_bytes = 8 * SECTOR};

    diskmodel_set_settings(disk, &settings);
    put(1, 0, 4);
    put(2, 4, 4);
    put(3, 8, 1);
    ck_assert_uint_eq(stats().volatile_bytes, 5 * SECTOR);
    cut(0, DISKMODEL_CUT_NONE);
    ck_assert_int_eq(get(0), 1);
    ck_assert_int_eq(get(4), 0);
    ck_assert_int_eq(get(8), 0);
}
END_TEST

START_TEST(a_request_outside_the_disk_is_refused)
{
    unsigned char buf[SECTOR] = {0};

    ck_assert_int_eq(diskmodel_read(disk, buf, SECTOR, DISK_SIZE), -EINVAL);
    ck_assert_int_eq(diskmodel_write(disk, buf, SECTOR, DISK_SIZE - 1, false),
                     -EINVAL);
    ck_assert_int_eq(diskmodel_zero(disk, UINT64_MAX, SECTOR, false), -EINVAL);
    ck_assert_uint_eq(stats().ops, 0);
}
END_TEST

static void *
flush_in_thread(void *arg)
{
    return (void *)(intptr_t)diskmodel_flush(arg);
}

/* If the cut did not end the wait, this test would run into its timeout. */
START_TEST(a_cut_ends_the_wait_of_a_running_request)
{
    struct diskmodel_settings settings = {.flush_ns = 1000000000000ULL};
    pthread_t thread;
    void *result;

    diskmodel_set_settings(disk, &settings);
    ck_assert_int_eq(pthread_create(&thread, NULL, flush_in_thread, disk), 0);
    while (stats().flushes == 0)
        sched_yield();
    ck_assert_int_eq(diskmodel_cut(disk, 0, DISKMODEL_CUT_NONE), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_int_eq((intptr_t)result, -EIO);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        a_read_sees_every_completed_write_and_no_other,
        of_two_writes_the_one_that_completed_last_is_seen_and_flushed,
        a_flush_makes_durable_what_completed_before_it_was_received,
        a_flush_does_not_cover_a_write_that_completed_after_it_was_received,
        a_flush_makes_nothing_durable_before_it_completes,
        flushes_that_complete_out_of_order_cover_their_own_writes,
        fua_is_durable_by_itself_and_covers_nothing_else,
        fua_is_not_overwritten_by_an_older_write_in_any_cut,
        fua_is_not_overwritten_by_an_older_write_in_a_flush,
        fua_that_did_not_complete_is_not_promised,
        zeroes_are_volatile_until_flushed,
        the_same_seed_and_mode_cut_the_same,
        none_loses_and_all_keeps_every_unflushed_sector,
        prefix_keeps_the_first_writes_whole_and_no_later_one,
        write_keeps_or_loses_each_write_whole,
        sector_keeps_any_subset_of_a_write,
        torn_keeps_nothing_all_or_the_first_sectors_of_a_write,
        a_sector_is_never_torn,
        what_was_flushed_survives_in_every_mode,
        every_request_fails_after_the_cut_until_the_power_is_back,
        an_armed_cut_comes_just_before_that_operation,
        a_write_told_to_fail_changes_nothing_and_the_next_one_works,
        a_flush_told_to_fail_loses_the_cache_for_good,
        disarmed_it_does_not_come,
        the_durable_state_outlives_the_program,
        a_full_cache_gives_up_its_oldest_writes,
        a_request_outside_the_disk_is_refused,
        a_cut_ends_the_wait_of_a_running_request,
    };

    return run_tests("disk model: rules", tests,
                     sizeof tests / sizeof tests[0]);
}
