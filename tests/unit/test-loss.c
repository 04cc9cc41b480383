/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lost data: what is remembered and what is not (rules D3, D4 and D7), with
 * the requests that could hide a loss held where they would do it.
 */
#include "unit.h"

#include <string.h>

#define SIZE (64 * KIB)
#define VICTIM (32 * KIB) /* Where a block is that will be lost. */

static const char block[4096] = "a block";
static const char zeroes[4096];

/* A durable write, on a host that does @fault to it as often as it is tried.
 * Its error must be told, and not be taken for a loss.
 */
static void
fail_durable_write(struct ubd_disk *disk, struct fake *fake,
                   enum fake_fault fault)
{
    fake_fault(fake, FAKE_DURABLE, fault, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -ENOSPC);
    ck_assert_int_eq(ubd_loss(disk), 0);
    fake_heal(fake);
}

static void
write_victim(struct ubd_disk *disk)
{
    ck_assert_int_eq(ubd_write(disk, block, 4096, VICTIM, 0), 0);
}

/* A FUA write whose own writeback fails while nothing else could be lost: it
 * says so, and its lane alone has reported it.
 */
static void
fail_harmlessly(struct ubd_disk *disk, struct fake *fake)
{
    fail_durable_write(disk, fake, FAKE_LOSE);
}

START_TEST(failed_sync_fails_every_later_flush_and_durable_change)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    char buf[4096];

    write_victim(disk);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);

    /* The host would answer all of these with success. */
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_zero(disk, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_trim(disk, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_MERGED), 0);

    ck_assert_int_eq(ubd_read(disk, buf, 4096, VICTIM), 0);
    ck_assert_mem_eq(buf, block, 4096);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(fua_write_after_a_loss_fails)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    write_victim(disk);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    for (unsigned i = 0; i < 40; i++) /* More than there are lanes. */
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_in_the_background_fails_the_flush)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    write_victim(disk);
    fake_lose(fake, -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(fua_write_that_takes_the_report_of_a_loss_does_not_hide_it)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    write_victim(disk);
    fake_lose(fake, -EIO);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_sync_of_a_fua_zero_is_a_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_zero(disk, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

/* (D4) A FUA write takes the report and has not been judged yet, while the
 * sync that a flush waits for ends.
 */
START_TEST(fua_write_that_took_a_report_does_not_let_a_concurrent_flush_pass)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job flush, fua;

    write_victim(disk);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    unit_start_flush(&flush, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    fake_lose(fake, -EIO);
    fake_hold(fake, FAKE_DURABLE, FAKE_ENDED);
    unit_start(&fua, disk, UBD_KIND_WRITE, block, 4096, 0, UBD_FUA);
    fake_wait_held(fake, FAKE_DURABLE, 1);

    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&flush), -EIO);
    fake_unhold(fake, FAKE_DURABLE);
    ck_assert_int_eq(unit_join(&fua), -EIO);
    unit_close(disk, fake);
}
END_TEST

/* (D4) The same between two flushes. */
START_TEST(flush_that_took_a_report_does_not_let_a_concurrent_flush_pass)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job first, second;

    write_victim(disk);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    unit_start_flush(&first, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    ck_assert_int_eq(ubd_write(disk, block, 512, 0, 0), 0);
    unit_start_flush(&second, disk);
    fake_wait_held(fake, FAKE_SYNC, 2);
    fake_lose(fake, -EIO);

    fake_hold(fake, FAKE_SYNC, FAKE_ENDED);
    fake_release(fake, FAKE_SYNC, 1); /* The second takes its report... */
    fake_wait_held(fake, FAKE_SYNC, 2);
    fake_release(fake, FAKE_SYNC, 0); /* ...and the first ends before it. */
    fake_wait_held(fake, FAKE_SYNC, 2);
    fake_release(fake, FAKE_SYNC, 1);
    ck_assert_int_eq(unit_join(&first), -EIO);
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&second), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_answers_everyone_who_joined_or_waits)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job job[12];
    unsigned nr = 0;

    unit_limit_syncs(disk, 1);
    write_victim(disk);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    for (; nr < 6; nr++)
        unit_start_flush(&job[nr], disk);
    unit_wait_flushers(disk, 5);
    write_victim(disk);
    for (; nr < 12; nr++)
        unit_start_flush(&job[nr], disk);
    unit_wait_flushers(disk, 11);
    fake_unhold(fake, FAKE_SYNC);
    for (unsigned i = 0; i < nr; i++)
        ck_assert_int_eq(unit_join(&job[i]), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_fua_write_is_not_remembered_if_nothing_was_volatile)
{
    for (unsigned i = 0; i < 4; i++) {
        struct fake *fake = fake_new(SIZE);
        /* Also if it is the first request of all. */
        struct ubd_disk *disk =
            i / 2 ? unit_settled_disk(fake) : unit_disk(fake, "barrier");

        fail_durable_write(disk, fake, i % 2 ? FAKE_FAIL : FAKE_LOSE);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
        ck_assert_int_eq(ubd_flush(disk), 0);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(repeated_failures_of_fua_writes_are_not_remembered)
{
    static const enum fake_fault faults[] = {FAKE_FAIL, FAKE_LOSE};

    for (unsigned i = 0; i < 2; i++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = unit_settled_disk(fake);

        for (unsigned n = 0; n < 5; n++)
            fail_durable_write(disk, fake, faults[i]);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
        ck_assert_int_eq(ubd_flush(disk), 0);
        unit_close(disk, fake);
    }
}
END_TEST

/* What the host says when it has no room. */
START_TEST(failed_fua_write_is_not_remembered_if_a_witness_saw_no_loss)
{
    static const int errors[] = {-ENOSPC, -EDQUOT, -EFBIG};

    for (unsigned i = 0; i < 3; i++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = unit_settled_disk(fake);

        write_victim(disk);
        fake_fault(fake, FAKE_DURABLE, FAKE_FAIL, errors[i]);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), errors[i]);
        fake_heal(fake);
        ck_assert_mem_eq(fake->stable + VICTIM, block, 4096);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
        ck_assert_int_eq(ubd_flush(disk), 0);
        unit_close(disk, fake);
    }
}
END_TEST

/* The host cannot say whose loss it was, so it counts as one. */
START_TEST(failed_writeback_of_a_fua_write_is_a_loss_if_something_was_volatile)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    write_victim(disk);
    fake_fault_once(fake, FAKE_DURABLE, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(osync_remembers_no_failure)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "osync");

    fail_durable_write(disk, fake, FAKE_LOSE);
    fail_durable_write(disk, fake, FAKE_FAIL);
    for (unsigned i = 0; i < 40; i++) /* More than there are lanes. */
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    fake_fault(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_zero(disk, 4096, 0, 0), -EIO);
    fake_heal(fake);
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_int_eq(ubd_zero(disk, 4096, 0, 0), 0);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    }
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

/* All 31 other lanes for writes and 4 for syncs still hold the report. */
START_TEST(harmless_failure_does_not_fail_what_comes_later_on_other_lanes)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job job[31];

    fail_harmlessly(disk, fake);
    fake_hold(fake, FAKE_DURABLE, FAKE_RUNNING);
    for (unsigned i = 0; i < 31; i++) {
        unit_start(&job[i], disk, UBD_KIND_WRITE, block, 512, 512 * i, UBD_FUA);
        fake_wait_held(fake, FAKE_DURABLE, i + 1);
    }
    fake_unhold(fake, FAKE_DURABLE);
    for (unsigned i = 0; i < 31; i++)
        ck_assert_int_eq(unit_join(&job[i]), 0);
    for (unsigned i = 0; i < 8; i++) {
        write_victim(disk);
        ck_assert_int_eq(ubd_flush(disk), 0);
    }
    ck_assert_int_eq(ubd_loss(disk), 0);
    ck_assert_mem_eq(fake->stable + VICTIM, block, 4096);
    unit_close(disk, fake);
}
END_TEST

/* A FUA write has borrowed the only fresh lane and is held. */
static void
hold_fresh_lane(struct ubd_disk *disk, struct fake *fake,
                struct unit_job *fresh)
{
    fake_hold(fake, FAKE_DURABLE, FAKE_RUNNING);
    unit_start(fresh, disk, UBD_KIND_WRITE, block, 512, 0, UBD_FUA);
    fake_wait_held(fake, FAKE_DURABLE, 1);
    fake_hold_no_more(fake, FAKE_DURABLE);
}

START_TEST(stale_lane_does_not_fail_a_fua_write_while_data_is_volatile)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job fresh, stale;

    fail_harmlessly(disk, fake);
    write_victim(disk);
    hold_fresh_lane(disk, fake, &fresh);
    unit_start(&stale, disk, UBD_KIND_WRITE, block, 512, 512, UBD_FUA);
    unit_give_way(&stale);
    fake_unhold(fake, FAKE_DURABLE);
    ck_assert_int_eq(unit_join(&fresh), 0);
    ck_assert_int_eq(unit_join(&stale), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(flush_on_a_stale_lane_while_the_fresh_one_is_busy_is_no_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job fresh, flush;

    fail_harmlessly(disk, fake);
    write_victim(disk);
    hold_fresh_lane(disk, fake, &fresh);
    fake_hold(fake, FAKE_SYNC, FAKE_ENDED);
    unit_start_flush(&flush, disk);
    fake_wait_held(fake, FAKE_SYNC, 1); /* It has the old report. */
    fake_release(fake, FAKE_SYNC, 0);
    fake_unhold(fake, FAKE_SYNC);
    unit_give_way(&flush); /* It may wait for the fresh lane. */
    fake_unhold(fake, FAKE_DURABLE);
    ck_assert_int_eq(unit_join(&fresh), 0);
    ck_assert_int_eq(unit_join(&flush), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(second_harmless_failure_while_data_is_volatile_is_no_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    fail_harmlessly(disk, fake);
    write_victim(disk);
    fail_durable_write(disk, fake, FAKE_FAIL);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_mem_eq(fake->stable + VICTIM, block, 4096);
    unit_close(disk, fake);
}
END_TEST

/* A flush that syncs for nothing but what a failed write has left behind takes
 * the report of another failing write, which has not been judged yet.
 */
START_TEST(flush_that_takes_the_report_of_a_failing_fua_write_is_no_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job fua;

    fail_harmlessly(disk, fake);
    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    fake_hold(fake, FAKE_DURABLE, FAKE_ENDED);
    unit_start(&fua, disk, UBD_KIND_WRITE, block, 4096, 0, UBD_FUA);
    fake_wait_held(fake, FAKE_DURABLE, 1);
    (void)ubd_flush(disk); /* May fail, */
    fake_unhold(fake, FAKE_DURABLE);
    ck_assert_int_eq(unit_join(&fua), -ENOSPC);
    ck_assert_int_eq(ubd_loss(disk), 0); /* but nothing was at stake. */
    unit_close(disk, fake);
}
END_TEST

START_TEST(real_loss_after_a_harmless_failure_is_a_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);

    fail_harmlessly(disk, fake);
    write_victim(disk);
    fake_lose(fake, -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(fua_write_on_a_stale_lane_does_not_hide_a_real_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job fresh, stale;

    fail_harmlessly(disk, fake);
    write_victim(disk);
    hold_fresh_lane(disk, fake, &fresh);
    fake_lose(fake, -EIO); /* The stale lanes will report both as one. */
    unit_start(&stale, disk, UBD_KIND_WRITE, block, 512, 512, UBD_FUA);
    unit_give_way(&stale);
    fake_unhold(fake, FAKE_DURABLE);
    (void)unit_join(&stale); /* May see it or not, */
    (void)unit_join(&fresh); /* and so may this. */
    ck_assert_int_lt(ubd_flush(disk), 0);
    ck_assert_int_lt(ubd_write(disk, block, 512, 512, UBD_FUA), 0);
    unit_close(disk, fake);
}
END_TEST

/* The data of a plain write can be lost before the write has returned: a
 * large one is throttled while what it has copied is written back.  Meanwhile
 * a FUA write takes the report, and may fail itself as well.
 */
static void
lose_before_return(bool fua_fails_too)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job write, fua;

    fake_hold(fake, FAKE_WRITE, FAKE_ENDED);
    unit_start(&write, disk, UBD_KIND_WRITE, block, 4096, VICTIM, 0);
    fake_wait_held(fake, FAKE_WRITE, 1);
    fake_lose(fake, -ENOSPC);
    if (fua_fails_too)
        fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    unit_start(&fua, disk, UBD_KIND_WRITE, block, 512, 0, UBD_FUA);
    unit_give_way(&fua);
    fake_unhold(fake, FAKE_WRITE);
    (void)unit_join(&fua); /* It took the report, and may succeed. */
    fake_heal(fake);
    if (unit_join(&write) == 0)
        ck_assert_int_eq(ubd_flush(disk), -ENOSPC);
    unit_close(disk, fake);
}

START_TEST(loss_of_a_write_that_has_not_returned_yet_is_not_taken_for_harmless)
{
    lose_before_return(false);
    lose_before_return(true);
}
END_TEST

/* In osync a write may take the report of another request's zeroes; and then
 * it may succeed when it is tried again, or fail itself.
 */
static void
lose_zeroes(bool write_fails_too)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "osync");
    struct unit_job zero, write;

    fake_fault(fake, FAKE_ALLOCATE, FAKE_FAIL, -EOPNOTSUPP);
    ck_assert_int_eq(ubd_write(disk, block, 4096, VICTIM, 0), 0);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    unit_start(&zero, disk, UBD_KIND_ZERO, NULL, 4096, VICTIM, 0);
    fake_wait_held(fake, FAKE_SYNC, 1);
    fake_lose(fake, -EIO);
    if (write_fails_too)
        fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -EIO);
    unit_start(&write, disk, UBD_KIND_WRITE, block, 512, 0, 0);
    unit_give_way(&write);
    fake_unhold(fake, FAKE_SYNC);
    (void)unit_join(&write); /* It took the report, and may succeed. */
    fake_heal(fake);
    if (unit_join(&zero) == 0)
        ck_assert_mem_eq(fake->stable + VICTIM, zeroes, 4096);
    ck_assert_int_eq(ubd_zero(disk, 4096, VICTIM, 0), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}

START_TEST(osync_does_not_acknowledge_zeroes_whose_loss_another_one_was_told)
{
    lose_zeroes(false);
    lose_zeroes(true);
}
END_TEST

/* The same for two requests that both zero, one of which syncs too early. */
START_TEST(osync_does_not_acknowledge_zeroes_whose_loss_another_sync_was_told)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "osync");
    struct unit_job zero, other;

    fake_fault(fake, FAKE_ALLOCATE, FAKE_FAIL, -EOPNOTSUPP);
    ck_assert_int_eq(ubd_write(disk, block, 4096, VICTIM, 0), 0);
    fake_hold(fake, FAKE_WRITE, FAKE_ENDED);
    unit_start(&zero, disk, UBD_KIND_ZERO, NULL, 4096, VICTIM, 0);
    fake_wait_held(fake, FAKE_WRITE, 1);
    fake_hold_no_more(fake, FAKE_WRITE);
    fake_lose(fake, -EIO);
    unit_start(&other, disk, UBD_KIND_ZERO, NULL, 512, 0, 0);
    unit_give_way(&other);
    fake_unhold(fake, FAKE_WRITE);
    (void)unit_join(&other); /* Its sync took a report, and it may fail. */
    if (unit_join(&zero) == 0)
        ck_assert_mem_eq(fake->stable + VICTIM, zeroes, 4096);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        failed_sync_fails_every_later_flush_and_durable_change,
        fua_write_after_a_loss_fails,
        loss_in_the_background_fails_the_flush,
        fua_write_that_takes_the_report_of_a_loss_does_not_hide_it,
        failed_sync_of_a_fua_zero_is_a_loss,
        fua_write_that_took_a_report_does_not_let_a_concurrent_flush_pass,
        flush_that_took_a_report_does_not_let_a_concurrent_flush_pass,
        loss_answers_everyone_who_joined_or_waits,
        failed_fua_write_is_not_remembered_if_nothing_was_volatile,
        repeated_failures_of_fua_writes_are_not_remembered,
        failed_fua_write_is_not_remembered_if_a_witness_saw_no_loss,
        failed_writeback_of_a_fua_write_is_a_loss_if_something_was_volatile,
        osync_remembers_no_failure,
        harmless_failure_does_not_fail_what_comes_later_on_other_lanes,
        stale_lane_does_not_fail_a_fua_write_while_data_is_volatile,
        flush_on_a_stale_lane_while_the_fresh_one_is_busy_is_no_loss,
        second_harmless_failure_while_data_is_volatile_is_no_loss,
        flush_that_takes_the_report_of_a_failing_fua_write_is_no_loss,
        real_loss_after_a_harmless_failure_is_a_loss,
        fua_write_on_a_stale_lane_does_not_hide_a_real_loss,
        loss_of_a_write_that_has_not_returned_yet_is_not_taken_for_harmless,
        osync_does_not_acknowledge_zeroes_whose_loss_another_one_was_told,
        osync_does_not_acknowledge_zeroes_whose_loss_another_sync_was_told,
        NULL,
    };

    return unit_run("loss", tests);
}
