/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whose report a failure is, and what it weighs.
 *
 * A leader that is held up between its sync and the recording of the result
 * must still have its open files: whoever borrowed one then would be told
 * nothing, and be believed.
 */
#include "unit.h"

#include <sched.h>

static const char block[4096] = "some data";
static atomic_bool must_hold, is_held;

int __real_ubd_durability_finish(struct ubd_durability *d,
                                 struct ubd_sync *sync, int result);
int __wrap_ubd_durability_finish(struct ubd_durability *d,
                                 struct ubd_sync *sync, int result);

/* The first leader to come here waits until it may go on. */
int
__wrap_ubd_durability_finish(struct ubd_durability *d, struct ubd_sync *sync,
                             int result)
{
    if (atomic_load(&must_hold) && !atomic_exchange(&is_held, true))
        while (atomic_load(&must_hold))
            sched_yield();
    return __real_ubd_durability_finish(d, sync, result);
}

static void
hold_next_verdict(void)
{
    atomic_store(&is_held, false);
    atomic_store(&must_hold, true);
}

static void
wait_verdict(void)
{
    while (!atomic_load(&is_held))
        sched_yield();
}

/* Until a flush waits for a verdict; or has been answered that all is well. */
static void
wait_settling(struct ubd_durability *d)
{
    bool is_settling = false;

    while (!is_settling && ubd_durability_volatile(d) > 0) {
        pthread_mutex_lock(&d->lock);
        is_settling = d->nr_settling == 1;
        pthread_mutex_unlock(&d->lock);
        sched_yield();
    }
}

START_TEST(lane_is_kept_until_the_result_is_recorded)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job first;

    ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
    fake_lose(fake, -EIO);
    hold_next_verdict();
    unit_start_flush(&first, disk);
    wait_verdict();
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    atomic_store(&must_hold, false);
    ck_assert_int_eq(unit_join(&first), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(witness_is_kept_until_the_result_is_recorded)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job first, second;

    /* A harmless failure, after which all lanes are stale. */
    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -ENOSPC);
    fake_heal(fake);
    ck_assert_int_eq(ubd_loss(disk), 0);

    ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
    fake_lose(fake, -EIO);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    hold_next_verdict();
    unit_start_flush(&first, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 4096, 0), 0);
    unit_start_flush(&second, disk);
    /* Both lanes have told their old news, and both ask the witness. */
    fake_wait_count(fake, FAKE_WAIT_WRITEOUT, 2);
    fake_unhold(fake, FAKE_SYNC);
    wait_verdict();
    unit_give_way(&second);
    atomic_store(&must_hold, false);
    ck_assert_int_eq(unit_join(&first), -EIO);
    ck_assert_int_eq(unit_join(&second), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    unit_close(disk, fake);
}
END_TEST

/* It is told to one call only, and that on a lane with old news of its own. */
START_TEST(failed_device_flush_on_a_stale_lane_is_a_loss)
{
    for (unsigned i = 0; i < 2; i++) {
        struct fake *fake = fake_new(64 * KIB);
        struct ubd_disk *disk = unit_settled_disk(fake);

        /* Harmless; with a report on every lane, or with none. */
        fake_fault_once(fake, FAKE_DURABLE, i ? FAKE_FAIL : FAKE_LOSE, -EIO);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
        fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, -EIO);
        ck_assert_int_eq(ubd_flush(disk), -EIO);
        ck_assert_int_eq(ubd_loss(disk), EIO);
        ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 2);
        unit_close(disk, fake);
    }
}
END_TEST

/* A device's flush that failed is told to this one call only. */
START_TEST(failed_device_flush_is_not_overruled_by_a_later_sync)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_settled_disk(fake);

    ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
    fake_fault_once(fake, FAKE_DURABLE, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    unit_close(disk, fake);
}
END_TEST

/* A write that went well is no reason to doubt what a lane says next. */
START_TEST(good_fua_write_leaves_every_report_its_weight)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_settled_disk(fake);

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
    fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    unit_close(disk, fake);
}
END_TEST

/* A flush that syncs for nothing but what a failed write has left behind takes
 * the report of a durable write that is not judged yet; and then another one
 * comes upon it, on a lane that has not told it, with something at stake.
 */
START_TEST(failure_that_a_flush_was_told_of_with_nothing_at_stake_is_old_news)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job fua, flush[2];

    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), -ENOSPC);
    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    fake_hold(fake, FAKE_DURABLE, FAKE_ENDED);
    unit_start(&fua, disk, UBD_KIND_WRITE, block, 4096, 0, UBD_FUA);
    fake_wait_held(fake, FAKE_DURABLE, 1);
    ck_assert_int_eq(ubd_flush(disk), -ENOSPC);

    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    for (unsigned i = 0; i < 2; i++) { /* On both lanes. */
        ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
        unit_start_flush(&flush[i], disk);
        fake_wait_held(fake, FAKE_SYNC, i + 1);
    }
    fake_unhold(fake, FAKE_SYNC);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(unit_join(&flush[i]), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    fake_unhold(fake, FAKE_DURABLE);
    ck_assert_int_eq(unit_join(&fua), -ENOSPC);
    unit_close(disk, fake);
}
END_TEST

/* That it would go well the second time proves little. */
START_TEST(own_failure_of_a_durable_write_is_told_at_once)
{
    static const char *const modes[] = {"barrier", "osync"};

    for (unsigned i = 0; i < 2; i++) {
        struct fake *fake = fake_new(64 * KIB);
        struct ubd_disk *disk = unit_disk(fake, modes[i]);

        ck_assert_int_eq(ubd_flush(disk), 0);
        fake_fault_once(fake, FAKE_DURABLE, FAKE_LOSE, -EIO);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), -EIO);
        ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 1);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
        ck_assert_int_eq(ubd_loss(disk), 0);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(fua_write_beside_a_sync_that_failed_is_not_acknowledged)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job fua;

    fake_hold(fake, FAKE_DURABLE, FAKE_ENDED);
    unit_start(&fua, disk, UBD_KIND_WRITE, block, 512, 0, UBD_FUA);
    fake_wait_held(fake, FAKE_DURABLE, 1);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 32 * KIB, 0), 0);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -ENOSPC);
    ck_assert_int_eq(ubd_flush(disk), -ENOSPC);
    fake_unhold(fake, FAKE_DURABLE);
    ck_assert_int_eq(unit_join(&fua), -ENOSPC);
    unit_close(disk, fake);
}
END_TEST

/* A flush that the disk has failed is told to one call only, and may have cost
 * what another flush of it then finds nothing of.
 */
START_TEST(flush_waits_for_the_verdict_of_a_sync_that_failed_meanwhile)
{
    struct fake *fake = fake_new(KIB * 1024);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job first, second;

    ck_assert_int_eq(ubd_write(disk, block, sizeof block, 0, 0), 0);
    fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, -EIO);
    fake_hold(fake, FAKE_SYNC, FAKE_ENDED);
    unit_start_flush(&first, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    unit_start_flush(&second, disk); /* All is well for this one. */
    fake_wait_held(fake, FAKE_SYNC, 2);
    atomic_store(&must_hold, true); /* Who comes to record its result. */
    fake_release(fake, FAKE_SYNC, 0);
    wait_verdict();
    fake_release(fake, FAKE_SYNC, 0);
    wait_settling(&disk->durability);
    atomic_store(&must_hold, false);
    ck_assert_int_eq(unit_join(&first), -EIO);
    ck_assert_int_eq(unit_join(&second), -EIO);
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

/* It begins when that failure is known, and its own sync finds nothing. */
START_TEST(flush_waits_for_the_verdict_of_a_sync_that_failed_before_it_began)
{
    struct fake *fake = fake_new(KIB * 1024);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job first, second;

    ck_assert_int_eq(ubd_write(disk, block, sizeof block, 0, 0), 0);
    fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, -EIO);
    hold_next_verdict();
    unit_start_flush(&first, disk);
    wait_verdict();
    unit_start_flush(&second, disk);
    wait_settling(&disk->durability);
    atomic_store(&must_hold, false);
    ck_assert_int_eq(unit_join(&first), -EIO);
    ck_assert_int_eq(unit_join(&second), -EIO);
    unit_close(disk, fake);
}
END_TEST

/* That is so for as long as it takes, and no longer. */
START_TEST(failure_that_is_judged_is_waited_for_no_more)
{
    struct fake *fake = fake_new(KIB * 1024);
    struct ubd_disk *disk = unit_settled_disk(fake);
    struct unit_job held;

    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), -ENOSPC);
    fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_flush(disk), -ENOSPC); /* Harmless. */
    ck_assert_int_eq(ubd_loss(disk), 0);
    ck_assert_uint_gt(atomic_load(&disk->nr_failed), 0);
    ck_assert_uint_eq(atomic_load(&disk->nr_unjudged), 0);

    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    unit_start_flush(&held, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    fake_hold_no_more(fake, FAKE_SYNC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_flush(disk), 0); /* Beside it. */
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&held), 0);
    unit_close(disk, fake);
}
END_TEST

struct flush_of {
    struct ubd_durability *d;
    struct ubd_sync sync;
};

static void *
settle(void *opaque)
{
    struct flush_of *f = opaque;

    ubd_durability_settle(f->d, &f->sync);
    ubd_durability_finish(f->d, &f->sync, 0);
    return NULL;
}

START_TEST(two_who_wait_for_the_verdict_of_others_do_not_wait_for_each_other)
{
    struct ubd_durability d;
    struct flush_of a = {.d = &d}, b = {.d = &d};
    struct ubd_flusher flushers[2];
    pthread_t thread;

    ubd_durability_init(&d, false, 2);
    ck_assert_int_eq(ubd_durability_arrive(&d, &flushers[0], &a.sync),
                     UBD_FLUSH_LEAD);
    ck_assert_int_eq(ubd_durability_arrive(&d, &flushers[1], &b.sync),
                     UBD_FLUSH_LEAD);
    ck_assert_int_eq(pthread_create(&thread, NULL, settle, &a), 0);
    settle(&b);
    pthread_join(thread, NULL);
    ubd_durability_destroy(&d);
}
END_TEST

/* Else it would wait for as long as others flush, one after the other. */
START_TEST(who_waits_for_a_verdict_does_not_wait_for_who_comes_later)
{
    struct ubd_durability d;
    struct flush_of waits = {.d = &d}, beside = {.d = &d}, later = {.d = &d};
    struct ubd_flusher flushers[3];
    pthread_t thread;

    ubd_durability_init(&d, false, 3);
    ck_assert_int_eq(ubd_durability_arrive(&d, &flushers[0], &waits.sync),
                     UBD_FLUSH_LEAD);
    ck_assert_int_eq(ubd_durability_arrive(&d, &flushers[1], &beside.sync),
                     UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, settle, &waits), 0);
    wait_settling(&d);
    ck_assert_int_eq(ubd_durability_arrive(&d, &flushers[2], &later.sync),
                     UBD_FLUSH_LEAD);
    ck_assert_int_eq(ubd_durability_finish(&d, &beside.sync, 0), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(ubd_durability_finish(&d, &later.sync, 0), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(flush_that_the_disk_failed_is_no_old_news_of_a_write)
{
    for (int is_space = 0; is_space < 2; is_space++) {
        const int error = is_space ? -ENOSPC : -EIO;
        const int answer = is_space ? 0 : -EIO;
        struct fake *fake = fake_new(KIB * 1024);
        struct ubd_disk *disk = unit_disk(fake, "barrier");
        struct unit_job flush;

        ck_assert_int_eq(ubd_flush(disk), 0);
        ck_assert_int_eq(ubd_write(disk, "x", 1, 0, 0), 0);
        fake_fault_once(fake, FAKE_SYNC, FAKE_FAIL, error);
        fake_hold(fake, FAKE_SYNC, FAKE_ENDED);
        unit_start_flush(&flush, disk);
        fake_wait_held(fake, FAKE_SYNC, 1);
        fake_hold_no_more(fake, FAKE_SYNC);
        /* Meanwhile a write has failed, without harm to others. */
        (void)ubd_lanes_harmless(&disk->host.sync_lanes);
        fake_unhold(fake, FAKE_SYNC);
        ck_assert_int_eq(unit_join(&flush), answer);
        ck_assert_int_eq(ubd_flush(disk), answer);
        unit_close(disk, fake);
    }
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        lane_is_kept_until_the_result_is_recorded,
        witness_is_kept_until_the_result_is_recorded,
        failed_device_flush_on_a_stale_lane_is_a_loss,
        failed_device_flush_is_not_overruled_by_a_later_sync,
        good_fua_write_leaves_every_report_its_weight,
        failure_that_a_flush_was_told_of_with_nothing_at_stake_is_old_news,
        own_failure_of_a_durable_write_is_told_at_once,
        fua_write_beside_a_sync_that_failed_is_not_acknowledged,
        flush_waits_for_the_verdict_of_a_sync_that_failed_meanwhile,
        flush_waits_for_the_verdict_of_a_sync_that_failed_before_it_began,
        failure_that_is_judged_is_waited_for_no_more,
        who_waits_for_a_verdict_does_not_wait_for_who_comes_later,
        two_who_wait_for_the_verdict_of_others_do_not_wait_for_each_other,
        flush_that_the_disk_failed_is_no_old_news_of_a_write,
        NULL,
    };

    return unit_run("verdict", tests);
}
