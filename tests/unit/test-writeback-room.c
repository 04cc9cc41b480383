/* SPDX-License-Identifier: BSD-3-Clause
 *
 * writeback.c: a writer that waits for room gets it, whatever is dirty: the
 * thread writes out for it what it would have left alone.
 */
#include "unit.h"

#include <sched.h>
#include <time.h>

#define PAGE UINT64_C(4096)
#define MIB (1024 * KIB)
#define SIZE (16 * MIB)

static const char data[MIB] = "some data";

/* Dirty pages 0 to @nr - 1 times @step, again and again, and then a stream. */
static void
rewrite_then_stream(uint64_t limit, bool evict, unsigned nr, unsigned step,
                    uint32_t len)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", limit, evict);

    for (unsigned i = 0; i < nr; i++) {
        for (unsigned n = 0; n < 6; n++)
            ck_assert_int_eq(ubd_write(disk, data, PAGE, i * step * PAGE, 0),
                             0);
        if (i % 64 == 63)
            fake_write_back(fake); /* Else its list of changes gets long. */
    }
    ck_assert_int_eq(ubd_write(disk, data, len, 15 * MIB, 0), 0);
    ck_assert_uint_le(fake_dirty_max(fake) * PAGE, limit + len);
    unit_close(disk, fake);
}

START_TEST(long_write_after_a_few_pages_gets_its_room)
{
    rewrite_then_stream(MIB, true, 10, 1, MIB);
    rewrite_then_stream(MIB, false, 63, 3, MIB);
}
END_TEST

START_TEST(writer_gets_room_from_pages_that_are_written_again_and_again)
{
    for (unsigned nr = 225; nr < 256; nr += 6)
        rewrite_then_stream(MIB, false, nr, 1, 64 * KIB);
    rewrite_then_stream(4 * MIB, true, 720, 5, MIB);
    rewrite_then_stream(8 * MIB, true, 1850, 1, MIB);
}
END_TEST

START_TEST(peak_is_never_less_than_what_is_dirty)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", MIB, true);
    struct ubd_stats stats;

    for (unsigned i = 0; i < 9; i++)
        ck_assert_int_eq(ubd_write(disk, data, PAGE, i * PAGE, 0), 0);
    ubd_stats(disk, &stats);
    ck_assert_uint_eq(stats.dirty_bytes, 9 * PAGE);
    ck_assert_uint_ge(stats.dirty_bytes_max, stats.dirty_bytes);
    unit_close(disk, fake);
}
END_TEST

START_TEST(stream_is_evicted_with_the_smallest_limit_too)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", MIB, true);

    for (unsigned i = 0; i < 15; i++)
        ck_assert_int_eq(ubd_write(disk, data, MIB, i * MIB, 0), 0);
    fake_wait_count(fake, FAKE_EVICT, 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(limit_holds_where_write_out_is_refused_once)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "unsafe", MIB, false);
    const struct fake_rule refuse = {.kind = FAKE_START_WRITEOUT,
                                     .fault = FAKE_FAIL,
                                     .error = -EIO,
                                     .times = 1};

    fake_script(fake, refuse);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(ubd_write(disk, data, MIB, i * MIB, 0), 0);
    ck_assert_uint_le(fake_dirty_max(fake) * PAGE, MIB);
    unit_close(disk, fake);
}
END_TEST

static uint64_t
dirty_after_zero(uint32_t len, uint64_t offset)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", MIB, false);
    uint64_t dirty;

    ck_assert_int_eq(ubd_zero(disk, len, offset, UBD_MAY_TRIM), 0);
    dirty = ubd_writeback_dirty(&disk->writeback);
    unit_close(disk, fake);
    return dirty / PAGE;
}

START_TEST(pages_that_are_zeroed_in_part_are_dirty)
{
    ck_assert_uint_eq(dirty_after_zero(4 * PAGE, PAGE), 0);
    ck_assert_uint_eq(dirty_after_zero(4 * PAGE - 1, PAGE + 1), 1);
    ck_assert_uint_eq(dirty_after_zero(4 * PAGE + 1, PAGE), 1);
    ck_assert_uint_eq(dirty_after_zero(4 * PAGE, PAGE + 1), 2);
}
END_TEST

/* Nothing is written out early for somebody who does not wait any more. */
START_TEST(pages_are_left_alone_again_once_a_waiting_writer_got_its_room)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", MIB, false);
    struct unit_job writer;
    unsigned nr;

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    unit_start(&writer, disk, UBD_KIND_WRITE, data, MIB, 0, 0);
    while (atomic_load(&disk->writeback.nr_waiters) == 0)
        sched_yield();
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    ck_assert_int_eq(unit_join(&writer), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    while (ubd_writeback_dirty(&disk->writeback) > 0)
        sched_yield();
    nr = fake_count(fake, FAKE_START_WRITEOUT);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(ubd_write(disk, data, PAGE, i * 9 * PAGE, 0), 0);
    for (unsigned i = 0; i < 2000; i++)
        sched_yield();
    ck_assert_uint_eq(fake_count(fake, FAKE_START_WRITEOUT), nr);
    unit_close(disk, fake);
}
END_TEST

static bool
fail_never(void *opaque)
{
    (void)opaque;
    ck_abort_msg("nothing was written");
    return true;
}

START_TEST(huge_disk_with_a_small_limit_has_thresholds_above_0)
{
    static struct ubd_writeback wb;
    struct fake *fake = fake_new(SIZE);
    const struct ubd_writeback_config config = {.io = &fake->io,
                                                .size = UINT64_C(1) << 50,
                                                .limit = MIB,
                                                .failed = fail_never};

    ck_assert_int_eq(ubd_writeback_start(&wb, &config), 0);
    ck_assert_int_gt(wb.start_early, 0);
    ck_assert_int_gt(wb.start_late, 0);
    ck_assert_int_gt(wb.admit_max, 0);
    ubd_writeback_stop(&wb);
    fake_free(fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        long_write_after_a_few_pages_gets_its_room,
        writer_gets_room_from_pages_that_are_written_again_and_again,
        peak_is_never_less_than_what_is_dirty,
        stream_is_evicted_with_the_smallest_limit_too,
        limit_holds_where_write_out_is_refused_once,
        pages_that_are_zeroed_in_part_are_dirty,
        pages_are_left_alone_again_once_a_waiting_writer_got_its_room,
        huge_disk_with_a_small_limit_has_thresholds_above_0,
        NULL,
    };

    return unit_run("writeback-room", tests);
}
