/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the modes promise, counted at the host, and what requests do that the
 * host shortens, interrupts or fails.  Losses are in test-loss.c.
 */
#include "unit.h"

#include <string.h>

#define SIZE (64 * KIB)

static const char block[4096] = "a block";

START_TEST(flush_syncs_once_for_any_number_of_writes)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(ubd_write(disk, block, 4096, i * 4096, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(first_flush_after_open_syncs)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(flush_with_nothing_new_does_not_sync)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_CLEAN), 2);
    unit_close(disk, fake);
}
END_TEST

START_TEST(fua_write_is_one_durable_write_and_needs_no_later_sync)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1); /* The first flush. */
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
    fake_cut(fake, 1);
    ck_assert_mem_eq(fake->stable, block, 4096);
    unit_close(disk, fake);
}
END_TEST

/* On a host that zeroes by @method; the change must be on the disk. */
static void
check_fua_space(enum ubd_kind kind, const char *cache, unsigned flags)
{
    static const char zeroes[4096];
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, cache);

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    if (kind == UBD_KIND_ZERO)
        ck_assert_int_eq(ubd_zero(disk, 4096, 0, flags), 0);
    else
        ck_assert_int_eq(ubd_trim(disk, 4096, 0, flags), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
    ck_assert_mem_eq(fake->stable, zeroes, 4096);
    unit_close(disk, fake);
}

START_TEST(fua_zero_and_fua_trim_sync_before_they_return)
{
    check_fua_space(UBD_KIND_ZERO, "barrier", UBD_FUA);
    check_fua_space(UBD_KIND_ZERO, "barrier", UBD_FUA | UBD_MAY_TRIM);
    check_fua_space(UBD_KIND_TRIM, "barrier", UBD_FUA);
}
END_TEST

START_TEST(osync_makes_every_change_durable_before_it_returns)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "osync");

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 1);
    ck_assert_mem_eq(fake->stable, block, 4096);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
    unit_close(disk, fake);

    check_fua_space(UBD_KIND_ZERO, "osync", 0);
    check_fua_space(UBD_KIND_TRIM, "osync", 0);
}
END_TEST

START_TEST(osync_syncs_zeroes_that_it_has_to_write)
{
    static const char zeroes[4096];
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "osync");

    fake_fault(fake, FAKE_ALLOCATE, FAKE_FAIL, -EOPNOTSUPP);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_zero(disk, 4096, 0, 0), 0);
    ck_assert_mem_eq(fake->stable, zeroes, 4096);
    unit_close(disk, fake);
}
END_TEST

START_TEST(unsafe_never_syncs)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "unsafe");
    struct ubd_stats stats;

    for (unsigned flags = 0; flags <= UBD_FUA; flags++) {
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, flags), 0);
        ck_assert_int_eq(ubd_zero(disk, 4096, 0, flags), 0);
        ck_assert_int_eq(ubd_trim(disk, 4096, 0, flags), 0);
        ck_assert_int_eq(ubd_flush(disk), 0);
    }
    ubd_stats(disk, &stats);
    ck_assert_uint_eq(stats.requests[UBD_KIND_FLUSH], 2);
    ck_assert_uint_eq(stats.fua[UBD_KIND_WRITE], 1);
    ubd_close(disk);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 0);
    fake_free(fake);
}
END_TEST

START_TEST(close_does_not_sync)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ubd_close(disk);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    fake_free(fake);
}
END_TEST

START_TEST(change_that_failed_half_way_is_synced_by_the_next_flush)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_script(fake, (struct fake_rule){.kind = FAKE_WRITE,
                                         .fault = FAKE_SHORT,
                                         .bytes = 512,
                                         .times = 1});
    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), -ENOSPC);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 2);
    ck_assert_mem_eq(fake->stable, block, 512);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_plain_write_is_not_remembered)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), -ENOSPC);
    ck_assert_int_eq(ubd_trim(disk, 32 * KIB, 0, 0), 0);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(flush_after_a_failed_fua_write_syncs)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault(fake, FAKE_DURABLE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -ENOSPC);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 2);
    unit_close(disk, fake);
}
END_TEST

START_TEST(zero_counts_as_a_change_for_the_next_flush)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_zero(disk, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_trim(disk, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 3);
    unit_close(disk, fake);
}
END_TEST

START_TEST(reads_and_writes_flow_while_a_sync_runs)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    struct unit_job flush;
    char buf[4096];

    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    unit_start_flush(&flush, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 4096, UBD_FUA), 0);
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 0), 0);
    ck_assert_mem_eq(buf, block, 4096);
    ck_assert_int_eq(ubd_zero(disk, 4096, 0, 0), 0);
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&flush), 0);
    unit_close(disk, fake);
}
END_TEST

#define NR_FLUSHES 24

START_TEST(concurrent_flushes_share_syncs)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    const unsigned max = disk->durability.syncs.max;
    struct unit_job flush[NR_FLUSHES];
    unsigned nr = 0;

    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    for (; nr < max; nr++) { /* As many syncs as may run. */
        ck_assert_int_eq(ubd_write(disk, block, 512, 512 * nr, 0), 0);
        unit_start_flush(&flush[nr], disk);
        fake_wait_held(fake, FAKE_SYNC, nr + 1);
    }
    ck_assert_int_eq(ubd_write(disk, block, 512, 8192, 0), 0);
    for (; nr < NR_FLUSHES; nr++)
        unit_start_flush(&flush[nr], disk);
    unit_wait_flushers(disk, NR_FLUSHES - max);
    fake_unhold(fake, FAKE_SYNC);
    for (unsigned i = 0; i < NR_FLUSHES; i++)
        ck_assert_int_eq(unit_join(&flush[i]), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), max + 1);
    ck_assert_uint_eq(fake->running_max[FAKE_SYNC], max);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_MERGED),
                      NR_FLUSHES - max - 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(flush_that_arrives_after_a_write_is_not_answered_by_an_older_sync)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    struct unit_job older, newer;

    unit_limit_syncs(disk, 1);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    unit_start_flush(&older, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    unit_start_flush(&newer, disk);
    unit_wait_flushers(disk, 1);
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&older), 0);
    ck_assert_int_eq(unit_join(&newer), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 2);
    ck_assert_mem_eq(fake->stable, block, 4096);
    unit_close(disk, fake);
}
END_TEST

START_TEST(short_and_interrupted_transfers_are_continued)
{
    static const int errors[] = {-EINTR, -EAGAIN};
    static const enum fake_kind kinds[] = {FAKE_WRITE, FAKE_DURABLE, FAKE_READ};
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    char data[4096], buf[4096];

    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = i * 7 + i / 256;
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned i = 0; i < 4; i++) {
            fake_script(fake, (struct fake_rule){.kind = kinds[k],
                                                 .fault = FAKE_SHORT,
                                                 .bytes = 1 + 333 * i,
                                                 .times = 1});
            if (kinds[k] == FAKE_DURABLE)
                continue;
            fake_fault_once(fake, kinds[k], FAKE_FAIL, errors[i % 2]);
        }
    }
    ck_assert_int_eq(ubd_write(disk, data, 4096, 100, 0), 0);
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 100), 0);
    ck_assert_mem_eq(buf, data, 4096);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 8200, UBD_FUA), 0);
    ck_assert_mem_eq(fake->stable + 8200, data, 4096);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 5);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 9);
    unit_close(disk, fake);
}
END_TEST

/* The errno of a failed writeback may be any, and it is reported once. */
START_TEST(sync_that_says_try_again_is_not_asked_again)
{
    static const int errors[] = {-EINTR, -EAGAIN};

    for (unsigned i = 0; i < 2; i++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = unit_disk(fake, "barrier");

        fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, errors[i]);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
        ck_assert_int_eq(ubd_flush(disk), -EIO);
        ck_assert_int_eq(ubd_flush(disk), -EIO);
        ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(syncs_are_counted_and_so_are_those_that_failed)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    fake_fault(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    for (unsigned i = 0; i < 3; i++) { /* With nothing at stake. */
        ck_assert_int_eq(ubd_flush(disk), 0);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), -ENOSPC);
    }
    fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_SYNCS_SUBMITTED), 4);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_SYNCS_COMPLETED), 4);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_SYNCS_FAILED), 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(read_behind_the_end_of_a_cut_short_file_is_eio)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    char buf[4096];

    fake->end = 6000;
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 0), 0);
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 4096), -EIO);
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 32768), -EIO);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 4);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(volatile_bytes_are_those_acknowledged_and_not_durable)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    struct ubd_stats stats;

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
    ck_assert_int_eq(ubd_zero(disk, 512, 0, 0), 0);
    ubd_stats(disk, &stats);
    ck_assert_uint_eq(stats.volatile_bytes, 4096 + 512);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ubd_stats(disk, &stats);
    ck_assert_uint_eq(stats.volatile_bytes, 0);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        flush_syncs_once_for_any_number_of_writes,
        first_flush_after_open_syncs,
        flush_with_nothing_new_does_not_sync,
        fua_write_is_one_durable_write_and_needs_no_later_sync,
        fua_zero_and_fua_trim_sync_before_they_return,
        osync_makes_every_change_durable_before_it_returns,
        osync_syncs_zeroes_that_it_has_to_write,
        unsafe_never_syncs,
        close_does_not_sync,
        change_that_failed_half_way_is_synced_by_the_next_flush,
        failed_plain_write_is_not_remembered,
        flush_after_a_failed_fua_write_syncs,
        zero_counts_as_a_change_for_the_next_flush,
        reads_and_writes_flow_while_a_sync_runs,
        concurrent_flushes_share_syncs,
        flush_that_arrives_after_a_write_is_not_answered_by_an_older_sync,
        short_and_interrupted_transfers_are_continued,
        sync_that_says_try_again_is_not_asked_again,
        syncs_are_counted_and_so_are_those_that_failed,
        read_behind_the_end_of_a_cut_short_file_is_eio,
        volatile_bytes_are_those_acknowledged_and_not_durable,
        NULL,
    };

    return unit_run("disk", tests);
}
