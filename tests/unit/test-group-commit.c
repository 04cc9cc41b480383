/* SPDX-License-Identifier: BSD-3-Clause
 *
 * durability.c: how many syncs run at a time, who shares them, and for whom a
 * leader waits.
 */
#include "by-hand.h"

/* Of durability.c. */
enum { ALONE, IN_COMPANY };
#define UNSEEN_MAX 64

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

/* One runs, @nr more wait for the next one. */
static void
run_and_wait(struct ubd_durability *d, struct flush *running,
             struct flush *waits, unsigned nr)
{
    ubd_durability_completed(d, 1);
    ck_assert_int_eq(arrive(d, running), UBD_FLUSH_LEAD);
    ubd_durability_completed(d, 1);
    for (unsigned i = 0; i < nr; i++)
        ck_assert_int_eq(arrive(d, &waits[i]), UBD_FLUSH_WAIT);
}

START_TEST(who_comes_after_those_who_waited_is_not_forgotten)
{
    struct ubd_durability d;
    struct flush first, waits[2], late;

    ubd_durability_init(&d, false, 1);
    run_and_wait(&d, &first, waits, 2);
    finish(&d, &first, 0);
    lead(&d, &waits[0]);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &late), UBD_FLUSH_WAIT);
    finish(&d, &waits[0], 0);
    ck_assert_int_eq(answer_of(&d, &waits[1]), 0);
    lead(&d, &late);
    finish(&d, &late, 0);
    ck_assert(is_clean(&d));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(as_many_flushes_are_expected_as_came_during_the_last_sync)
{
    struct ubd_durability d;
    struct flush first, waits[2], late;

    ubd_durability_init(&d, false, 1);
    run_and_wait(&d, &first, waits, 2);
    finish(&d, &first, 0);
    ck_assert_uint_eq(d.nr_expected, 3); /* It, and the two who wait. */
    lead(&d, &waits[0]);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &late), UBD_FLUSH_WAIT);
    finish(&d, &waits[0], 0);
    ck_assert_uint_eq(d.nr_expected, 3); /* Those two, and the late one. */
    lead(&d, &late);
    finish(&d, &late, 0);
    ck_assert_uint_eq(d.nr_expected, 1);
    ck_assert_int_eq(answer_of(&d, &waits[1]), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(sync_of_a_slow_disk_does_not_wait_if_all_are_there)
{
    struct ubd_durability d;
    struct flush first, waits[2];

    ubd_durability_init(&d, false, 1);
    flush_slowly(&d);
    d.nr_expected = 1;
    run_and_wait(&d, &first, waits, 2);
    finish(&d, &first, 0);
    d.sync_ns[ALONE] = 8000000;
    d.nr_expected = 2; /* As many as there are. */
    lead(&d, &waits[0]);
    finish(&d, &waits[0], 0);
    ck_assert_int_eq(answer_of(&d, &waits[1]), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(leader_whose_turn_has_come_waits_for_the_others_too)
{
    struct ubd_durability d;
    struct flush first, next, late;

    ubd_durability_init(&d, false, 1);
    flush_slowly(&d);
    d.nr_expected = 1;
    run_and_wait(&d, &first, &next, 1);
    first.sync.ns = 8000000;
    ubd_durability_finish(&d, &first.sync, 0);
    ck_assert(is_woken(&next));
    ck_assert_int_eq(wait_for(&d, &next), UBD_FLUSH_GATHER);
    ck_assert(!is_woken(&next));
    ck_assert_int_eq(arrive(&d, &late), UBD_FLUSH_WAIT);
    ck_assert(is_woken(&next));
    ubd_durability_gather(&d, &next.flusher, &next.sync);
    finish(&d, &next, 0);
    ck_assert_int_eq(answer_of(&d, &late), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(only_one_leader_gathers)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 2);
    flush_slowly(&d);
    d.nr_expected = 3;
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_GATHER);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ubd_durability_gather(&d, &first.flusher, &first.sync);
    finish(&d, &first, 0);
    ck_assert_int_eq(answer_of(&d, &second), 0);
    ubd_durability_destroy(&d);
}
END_TEST

/* It may be gone by then. */
START_TEST(leader_that_has_gathered_is_not_woken_by_who_comes_later)
{
    struct ubd_durability d;
    struct flush first, second;

    ubd_durability_init(&d, false, 1);
    flush_slowly(&d);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_GATHER);
    ubd_durability_gather(&d, &first.flusher, &first.sync);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &second), UBD_FLUSH_WAIT);
    ck_assert(!is_woken(&first));
    finish(&d, &first, 0);
    ck_assert(is_woken(&second));
    d.nr_expected = 1;
    lead(&d, &second);
    finish(&d, &second, 0);
    ubd_durability_destroy(&d);
}
END_TEST

/* Two syncs run at once, and each takes @ns; one may end when the other still
 * runs.  How many may run from then on?
 */
static unsigned
max_after_company(uint64_t ns, bool older_ends_first)
{
    struct ubd_durability d;
    struct flush older, newer;
    struct flush *first = older_ends_first ? &older : &newer;
    struct flush *second = older_ends_first ? &newer : &older;
    unsigned max;

    ubd_durability_init(&d, false, 2);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ck_assert_uint_eq(d.sync_ns[ALONE], 1000); /* From the first one on. */
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &older), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &newer), UBD_FLUSH_LEAD);
    first->sync.ns = second->sync.ns = ns;
    ubd_durability_finish(&d, &first->sync, 0);
    max = d.running_max;
    ubd_durability_finish(&d, &second->sync, 0);
    ck_assert_uint_eq(d.running_max, max);
    ubd_durability_destroy(&d);
    return max;
}

START_TEST(company_that_costs_half_as_much_again_is_avoided)
{
    for (int older_ends_first = 0; older_ends_first < 2; older_ends_first++) {
        ck_assert_uint_eq(max_after_company(1499, older_ends_first), 2);
        ck_assert_uint_eq(max_after_company(1500, older_ends_first), 1);
        ck_assert_uint_eq(max_after_company(9000, older_ends_first), 1);
    }
}
END_TEST

START_TEST(other_number_of_syncs_is_tried_now_and_then)
{
    struct ubd_durability d;
    struct flush a, b;

    ubd_durability_init(&d, false, 3);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    d.sync_ns[IN_COMPANY] = 5000; /* Company was bad. */
    for (unsigned i = 1; i < UNSEEN_MAX; i++) {
        ck_assert_uint_eq(d.running_max, i == 1 ? 3 : 1);
        ubd_durability_completed(&d, 1);
        ck_assert_int_eq(flush_alone(&d, 0), 0);
    }
    ck_assert_uint_eq(d.running_max, 2);

    d.sync_ns[IN_COMPANY] = 1000; /* It has become good. */
    for (unsigned i = 0; i < UNSEEN_MAX / 2; i++) {
        ubd_durability_completed(&d, 1);
        ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
        ubd_durability_completed(&d, 1);
        ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_LEAD);
        finish(&d, &a, 0);
        ck_assert_uint_eq(d.running_max, 3);
        finish(&d, &b, 0);
    }
    ck_assert_uint_eq(d.running_max, 1);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(no_more_syncs_are_tried_than_may_run)
{
    struct ubd_durability d;

    ubd_durability_init(&d, false, 1);
    for (unsigned i = 0; i < UNSEEN_MAX + 1; i++) {
        ubd_durability_completed(&d, 1);
        ck_assert_int_eq(flush_alone(&d, 0), 0);
        ck_assert_uint_eq(d.running_max, 1);
    }
    ubd_durability_destroy(&d);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        sync_of_a_slow_disk_waits_for_those_who_flushed_together,
        sync_of_a_slow_disk_does_not_wait_for_ever,
        loss_while_a_leader_gathers_fails_it_and_those_who_came,
        disk_that_is_slower_with_two_syncs_gets_one_at_a_time,
        who_comes_after_those_who_waited_is_not_forgotten,
        as_many_flushes_are_expected_as_came_during_the_last_sync,
        sync_of_a_slow_disk_does_not_wait_if_all_are_there,
        leader_whose_turn_has_come_waits_for_the_others_too,
        only_one_leader_gathers,
        leader_that_has_gathered_is_not_woken_by_who_comes_later,
        company_that_costs_half_as_much_again_is_avoided,
        other_number_of_syncs_is_tried_now_and_then,
        no_more_syncs_are_tried_than_may_run,
        NULL,
    };

    return unit_run("group-commit", tests);
}
