/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of durability.h as a state machine: no disk, no threads, no time.
 * A flush that waits is followed by hand: once it is woken,
 * ubd_durability_wait does not block.
 */
#include "unit.h"

/* One flush of the test, with the sync that it leads if it does. */
struct flush {
    struct ubd_flusher flusher;
    struct ubd_sync sync;
};

static enum ubd_flush_step
arrive(struct ubd_durability *d, struct flush *f)
{
    return ubd_durability_arrive(d, &f->flusher, &f->sync);
}

static bool
is_woken(struct flush *f)
{
    int value;

    sem_getvalue(&f->flusher.woken, &value);
    return value > 0;
}

static enum ubd_flush_step
wait_for(struct ubd_durability *d, struct flush *f)
{
    return ubd_durability_wait(d, &f->flusher, &f->sync);
}

static int
finish(struct ubd_durability *d, struct flush *f, int result)
{
    f->sync.ns = 1000; /* A fast disk, and no slower with two syncs at once. */
    return ubd_durability_finish(d, &f->sync, result);
}

/* It was woken with an answer; the answer. */
static int
answer_of(struct ubd_durability *d, struct flush *f)
{
    ck_assert(is_woken(f));
    ck_assert_int_eq(wait_for(d, f), UBD_FLUSH_DONE);
    return f->flusher.result;
}

/* It was woken to sync; now its sync runs. */
static void
lead(struct ubd_durability *d, struct flush *f)
{
    ck_assert(is_woken(f));
    ck_assert_int_eq(wait_for(d, f), UBD_FLUSH_LEAD);
}

/* A flush that nobody disturbs. */
static int
flush_alone(struct ubd_durability *d, int sync_result)
{
    struct flush f;

    ck_assert_int_eq(arrive(d, &f), UBD_FLUSH_LEAD);
    return finish(d, &f, sync_result);
}

static bool
is_clean(struct ubd_durability *d)
{
    struct flush f;

    if (arrive(d, &f) != UBD_FLUSH_DONE)
        ck_abort_msg("expected an answer at once");
    return f.flusher.result == 0 && f.flusher.is_clean;
}

START_TEST(a_flush_waits_for_a_sync_submitted_after_it)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);

    ck_assert_int_eq(finish(&d, &first, 0), 0);
    lead(&d, &second);
    ck_assert_int_eq(finish(&d, &second, 0), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(sync_does_not_cover_a_write_that_raced_with_it)
{
    struct ubd_durability d;
    struct flush f;

    ubd_durability_init(&d, false, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 5); /* The sync runs. */
    ck_assert_int_eq(finish(&d, &f, 0), 0);

    ck_assert_uint_eq(ubd_durability_volatile(&d), 5);
    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
    ck_assert_int_eq(finish(&d, &f, 0), 0);
    ck_assert_uint_eq(ubd_durability_volatile(&d), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(sync_of_a_woken_leader_covers_only_what_was_there_when_it_began)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    finish(&d, &first, 0);
    ubd_durability_completed(&d, 2); /* Before the sync begins. */
    lead(&d, &second);
    ubd_durability_completed(&d, 4); /* After it. */
    ck_assert_int_eq(finish(&d, &second, 0), 0);
    ck_assert_uint_eq(ubd_durability_volatile(&d), 4);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(flush_joins_a_running_sync_that_covers_it)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 2);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ck_assert(!is_woken(&second));
    ck_assert_int_eq(finish(&d, &first, 0), 0);
    ck_assert_int_eq(answer_of(&d, &second), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(all_who_wait_share_the_next_sync)
{
    struct ubd_durability d;
    struct flush first, waits[5], late;

    ubd_durability_init(&d, false, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    for (unsigned i = 0; i < 5; i++)
        ck_assert_int_eq(arrive(&d, &waits[i]), UBD_FLUSH_WAIT);
    finish(&d, &first, 0);
    ubd_durability_completed(&d, 1);
    /* The next leader is awake and has not begun yet. */
    ck_assert_int_eq(arrive(&d, &late), UBD_FLUSH_WAIT);
    lead(&d, &waits[0]);
    ck_assert_int_eq(finish(&d, &waits[0], 0), 0);
    for (unsigned i = 1; i < 5; i++)
        ck_assert_int_eq(answer_of(&d, &waits[i]), 0);
    ck_assert_int_eq(answer_of(&d, &late), 0);
    ck_assert(is_clean(&d));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(no_more_syncs_run_than_running_max)
{
    struct ubd_durability d;
    struct flush a, b, c, e;

    ubd_durability_init(&d, false, 2);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &c), UBD_FLUSH_WAIT);

    finish(&d, &b, 0);
    ubd_durability_completed(&d, 1);
    /* The turn is c's, who has not begun; a still runs. */
    ck_assert_int_eq(arrive(&d, &e), UBD_FLUSH_WAIT);
    finish(&d, &a, 0);
    lead(&d, &c);
    ck_assert_int_eq(finish(&d, &c, 0), 0);
    ck_assert_int_eq(answer_of(&d, &e), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(older_sync_that_ends_late_does_not_make_newer_data_volatile)
{
    struct ubd_durability d;
    struct flush a, b;

    ubd_durability_init(&d, false, 2);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_LEAD);
    finish(&d, &b, 0);
    finish(&d, &a, 0);
    ck_assert_uint_eq(ubd_durability_volatile(&d), 0);
    ck_assert(is_clean(&d));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(failed_sync_fails_every_later_flush)
{
    struct ubd_durability d;
    struct flush later;

    ubd_durability_init(&d, false, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(flush_alone(&d, -ENOSPC), -ENOSPC);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(arrive(&d, &later), UBD_FLUSH_DONE);
        ck_assert_int_eq(later.flusher.result, -ENOSPC);
        ubd_durability_completed(&d, 10);
    }
    ck_assert_int_eq(ubd_durability_error(&d), -ENOSPC);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(failed_sync_fails_all_who_joined_it_or_wait)
{
    struct ubd_durability d;
    struct flush first, joined[3], waiting[3];

    ubd_durability_init(&d, false, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(arrive(&d, &joined[i]), UBD_FLUSH_WAIT);
    ubd_durability_completed(&d, 10);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(arrive(&d, &waiting[i]), UBD_FLUSH_WAIT);

    ck_assert_int_eq(finish(&d, &first, -EIO), -EIO);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(answer_of(&d, &joined[i]), -EIO);
        ck_assert_int_eq(answer_of(&d, &waiting[i]), -EIO);
    }
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(sync_that_succeeds_after_another_one_failed_answers_with_the_failure)
{
    struct ubd_durability d;
    struct flush a, joined, b;

    ubd_durability_init(&d, false, 2);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &joined), UBD_FLUSH_WAIT);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_LEAD);

    ck_assert_int_eq(finish(&d, &b, -EIO), -EIO);
    ck_assert_int_eq(finish(&d, &a, 0), -EIO);
    ck_assert_int_eq(answer_of(&d, &joined), -EIO);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(leader_woken_before_a_loss_answers_with_the_loss)
{
    struct ubd_durability d;
    struct flush first, second, third;

    ubd_durability_init(&d, false, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ck_assert_int_eq(arrive(&d, &third), UBD_FLUSH_WAIT);
    ck_assert_int_eq(finish(&d, &first, 0), 0);
    ubd_durability_lost(&d, -EIO);
    ck_assert_int_eq(answer_of(&d, &third), -EIO);
    lead(&d, &second);
    ck_assert_int_eq(finish(&d, &second, 0), -EIO);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(the_first_loss_is_the_one_that_is_told)
{
    struct ubd_durability d;

    ubd_durability_init(&d, false, 1);
    ck_assert_int_eq(ubd_durability_error(&d), 0);
    ubd_durability_lost(&d, -ENOSPC);
    ubd_durability_lost(&d, -EIO);
    ck_assert_int_eq(ubd_durability_error(&d), -ENOSPC);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(first_flush_after_open_syncs)
{
    struct ubd_durability d;

    ubd_durability_init(&d, false, 1);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(flush_with_nothing_new_does_not_sync)
{
    struct ubd_durability d;

    ubd_durability_init(&d, false, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ck_assert(is_clean(&d));
    ck_assert(is_clean(&d));
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(failure_is_not_remembered_where_every_change_is_durable_at_once)
{
    struct ubd_durability d;

    ubd_durability_init(&d, true, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(flush_alone(&d, -ENOSPC), -ENOSPC);
    ck_assert_int_eq(ubd_durability_error(&d), 0);
    ck_assert_int_eq(flush_alone(&d, 0), 0); /* And is no clean one. */
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(waiters_go_on_after_a_failure_that_is_not_remembered)
{
    struct ubd_durability d;
    struct flush first, joined, waiting;

    ubd_durability_init(&d, true, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &joined), UBD_FLUSH_WAIT);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &waiting), UBD_FLUSH_WAIT);
    ck_assert_int_eq(finish(&d, &first, -ENOSPC), -ENOSPC);
    ck_assert_int_eq(answer_of(&d, &joined), -ENOSPC);
    lead(&d, &waiting);
    ck_assert_int_eq(finish(&d, &waiting, 0), 0);
    ubd_durability_destroy(&d);
}
END_TEST

/* Two flushes that come together on a disk whose syncs take 8 ms. */
static void
flush_slowly(struct ubd_durability *d)
{
    struct flush first, joined;

    ubd_durability_completed(d, 1);
    ck_assert_int_eq(arrive(d, &first), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(d, &joined), UBD_FLUSH_WAIT);
    first.sync.ns = 8000000;
    ck_assert_int_eq(ubd_durability_finish(d, &first.sync, 0), 0);
    ck_assert_int_eq(answer_of(d, &joined), 0);
}

START_TEST(sync_of_a_slow_disk_waits_for_those_who_flushed_together)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 1);
    flush_slowly(&d);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_GATHER);
    ck_assert(!is_woken(&first));
    ubd_durability_completed(&d, 2);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ck_assert(is_woken(&first));
    ubd_durability_gather(&d, &first.flusher, &first.sync);
    ubd_durability_completed(&d, 4); /* The sync has begun. */
    ck_assert_int_eq(finish(&d, &first, 0), 0);
    ck_assert_int_eq(answer_of(&d, &second), 0);
    ck_assert_uint_eq(ubd_durability_volatile(&d), 4);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(sync_of_a_slow_disk_does_not_wait_for_ever)
{
    struct ubd_durability d;
    struct flush f;

    ubd_durability_init(&d, false, 1);
    flush_slowly(&d);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_GATHER);
    ubd_durability_gather(&d, &f.flusher, &f.sync); /* Nobody comes. */
    ck_assert_int_eq(finish(&d, &f, 0), 0);
    ck_assert(is_clean(&d));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(loss_while_a_leader_gathers_fails_it_and_those_who_came)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 1);
    flush_slowly(&d);
    d.nr_expected = 3;
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_GATHER);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ubd_durability_lost(&d, -EIO);
    ck_assert_int_eq(answer_of(&d, &second), -EIO);
    ubd_durability_gather(&d, &first.flusher, &first.sync);
    ck_assert_int_eq(finish(&d, &first, 0), -EIO);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(disk_that_is_slower_with_two_syncs_gets_one_at_a_time)
{
    struct ubd_durability d;
    struct flush a, b;

    ubd_durability_init(&d, false, 2);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_LEAD);
    a.sync.ns = b.sync.ns = 2000; /* Alone it was 1000. */
    ubd_durability_finish(&d, &a.sync, 0);
    ubd_durability_finish(&d, &b.sync, 0);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_WAIT);
    finish(&d, &a, 0);
    lead(&d, &b);
    finish(&d, &b, 0);
    ubd_durability_destroy(&d);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        a_flush_waits_for_a_sync_submitted_after_it,
        sync_does_not_cover_a_write_that_raced_with_it,
        sync_of_a_woken_leader_covers_only_what_was_there_when_it_began,
        flush_joins_a_running_sync_that_covers_it,
        all_who_wait_share_the_next_sync,
        no_more_syncs_run_than_running_max,
        older_sync_that_ends_late_does_not_make_newer_data_volatile,
        failed_sync_fails_every_later_flush,
        failed_sync_fails_all_who_joined_it_or_wait,
        sync_that_succeeds_after_another_one_failed_answers_with_the_failure,
        leader_woken_before_a_loss_answers_with_the_loss,
        the_first_loss_is_the_one_that_is_told,
        first_flush_after_open_syncs,
        flush_with_nothing_new_does_not_sync,
        failure_is_not_remembered_where_every_change_is_durable_at_once,
        waiters_go_on_after_a_failure_that_is_not_remembered,
        sync_of_a_slow_disk_waits_for_those_who_flushed_together,
        sync_of_a_slow_disk_does_not_wait_for_ever,
        loss_while_a_leader_gathers_fails_it_and_those_who_came,
        disk_that_is_slower_with_two_syncs_gets_one_at_a_time,
        NULL,
    };

    return unit_run("durability", tests);
}
