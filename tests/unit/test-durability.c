/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of durability.h as a state machine.  How many syncs run and who
 * shares them is in test-group-commit.c.
 */
#include "by-hand.h"

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

    ubd_durability_init(&d, false, 1);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ck_assert(!is_woken(&second));
    ck_assert_int_eq(finish(&d, &first, 0), 0);
    ck_assert_int_eq(answer_of(&d, &second), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(flush_that_may_sync_itself_does_not_join)
{
    struct ubd_durability d;
    struct flush first, second, third;

    ubd_durability_init(&d, false, 2);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &third), UBD_FLUSH_WAIT);
    ck_assert_int_eq(finish(&d, &first, 0), 0);
    ck_assert_int_eq(finish(&d, &second, 0), 0);
    ck_assert_int_eq(answer_of(&d, &third), 0);
    ck_assert_uint_eq(d.nr_syncs, 2);
    ubd_durability_destroy(&d);
}
END_TEST

/* It ends first. */
START_TEST(flush_joins_the_earliest_of_those_that_cover_it)
{
    struct ubd_durability d;
    struct flush first, second, joined;

    ubd_durability_init(&d, false, 2);
    ubd_durability_completed(&d, 10);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &joined), UBD_FLUSH_WAIT);
    ck_assert_int_eq(finish(&d, &first, 0), 0);
    ck_assert_int_eq(answer_of(&d, &joined), 0);
    ck_assert_int_eq(finish(&d, &second, 0), 0);
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

START_TEST(no_more_syncs_run_than_may)
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
    d.syncs.max = 1;
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ck_assert_int_eq(arrive(&d, &joined), UBD_FLUSH_WAIT);
    d.syncs.max = 2;
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

/* A change of @bytes fails, and a part of it may be there. */
static void
fail_change(struct ubd_durability *d, uint64_t bytes)
{
    ubd_durability_begun(d, bytes);
    ubd_durability_failed(d, bytes);
}

static void
change(struct ubd_durability *d, uint64_t bytes)
{
    ubd_durability_begun(d, bytes);
    ubd_durability_completed(d, bytes);
}

START_TEST(failed_change_is_neither_volatile_nor_at_stake)
{
    struct ubd_durability d;
    struct flush f;

    ubd_durability_init(&d, false, 1);
    change(&d, 100);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    fail_change(&d, 10);
    ck_assert(ubd_durability_is_all_durable(&d));
    ck_assert_uint_eq(ubd_durability_volatile(&d), 0);

    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
    fail_change(&d, 5); /* Also one that fails meanwhile. */
    ck_assert_int_eq(finish(&d, &f, -EIO), -EIO);
    ck_assert_int_eq(ubd_durability_error(&d), 0);
    ck_assert_uint_eq(ubd_durability_volatile(&d), 0);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ck_assert_uint_eq(ubd_durability_volatile(&d), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(failed_change_that_was_synced_hides_no_later_loss)
{
    for (int is_durable = 0; is_durable < 2; is_durable++) {
        struct ubd_durability d;

        ubd_durability_init(&d, false, 1);
        if (is_durable)
            ubd_durability_failed_durable(&d, 10);
        else
            fail_change(&d, 10);
        ck_assert_int_eq(flush_alone(&d, 0), 0);
        change(&d, 4);
        ck_assert(!ubd_durability_is_all_durable(&d));
        ck_assert_uint_eq(ubd_durability_volatile(&d), 4);
        ck_assert_int_eq(flush_alone(&d, -EIO), -EIO);
        ck_assert_int_eq(ubd_durability_error(&d), -EIO);
        ubd_durability_destroy(&d);
    }
}
END_TEST

START_TEST(change_that_is_under_way_when_a_sync_fails_is_at_stake)
{
    struct ubd_durability d;
    struct flush f;

    ubd_durability_init(&d, false, 1);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    fail_change(&d, 10);
    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
    ubd_durability_begun(&d, 1);
    ck_assert_int_eq(finish(&d, &f, -EIO), -EIO);
    ck_assert_int_eq(ubd_durability_error(&d), -EIO);
    ubd_durability_completed(&d, 1);
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
        flush_that_may_sync_itself_does_not_join,
        flush_joins_the_earliest_of_those_that_cover_it,
        all_who_wait_share_the_next_sync,
        no_more_syncs_run_than_may,
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
        failed_change_is_neither_volatile_nor_at_stake,
        failed_change_that_was_synced_hides_no_later_loss,
        change_that_is_under_way_when_a_sync_fails_is_at_stake,
        NULL,
    };

    return unit_run("durability", tests);
}
