/* SPDX-License-Identifier: BSD-3-Clause
 *
 * durability.c: how many syncs run at a time, who shares them, and for whom a
 * leader waits.
 */
#include "by-hand.h"

/* Two flushes that come together on a disk whose syncs take 8 ms. */
static void
flush_slowly(struct ubd_durability *d)
{
    struct flush first, joined;

    d->syncs.max = 1; /* As it will be once that is known. */
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
    d.sync_ns = 8000000;
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

START_TEST(where_several_may_run_nobody_is_waited_for)
{
    struct ubd_durability d;
    struct flush f;

    ubd_durability_init(&d, false, 2);
    flush_slowly(&d);
    d.syncs.max = 2; /* This disk likes it, slow as it is. */
    d.nr_expected = 3;
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
    finish(&d, &f, 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(only_a_sync_that_ran_alone_says_how_long_one_takes)
{
    struct ubd_durability d;
    struct flush a, b;

    ubd_durability_init(&d, false, 2);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ck_assert_uint_eq(d.sync_ns, 1000); /* From the first one on. */
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &b), UBD_FLUSH_LEAD);
    a.sync.ns = b.sync.ns = 9000;
    ubd_durability_finish(&d, &a.sync, 0);
    ubd_durability_finish(&d, &b.sync, 0);
    ck_assert_uint_eq(d.sync_ns, 1000);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &a), UBD_FLUSH_LEAD);
    a.sync.ns = 9000;
    ubd_durability_finish(&d, &a.sync, 0);
    ck_assert_uint_eq(d.sync_ns, 3000); /* A quarter of the way. */
    ubd_durability_destroy(&d);
}
END_TEST

/* The first one may have had nothing to do. */
START_TEST(slow_disk_gets_one_sync_at_a_time_as_soon_as_it_is_known)
{
    static const uint64_t ns[] = {999999, 1000003, 999000};
    struct ubd_durability d;
    struct flush f;

    ubd_durability_init(&d, false, 4);
    for (int i = 0; i < 3; i++) {
        ubd_durability_completed(&d, 1);
        ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
        f.sync.ns = ns[i];
        ubd_durability_finish(&d, &f.sync, 0);
        ck_assert_uint_eq(d.syncs.max, i == 1 ? 1 : 3);
    }
    ubd_durability_destroy(&d);
}
END_TEST

/* What concurrency.c is told: it judges by that. */
START_TEST(every_sync_is_told_with_the_flushes_it_answered_and_who_competed)
{
    struct ubd_durability d;
    struct flush first, waits[3];

    ubd_durability_init(&d, false, 2);
    d.syncs.is_proven = true;
    d.syncs.max = 1;
    d.syncs.nr_syncs = 3; /* Its epoch begins with the next one. */
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &first), UBD_FLUSH_LEAD);
    first.sync.submitted_ns = 5000;
    finish(&d, &first, 0);
    ck_assert_uint_eq(d.syncs.start_ns, 6000); /* When that had ended. */
    ck_assert_uint_eq(d.syncs.nr_flushes, 0);
    run_and_wait(&d, &first, waits, 3);
    finish(&d, &first, 0);
    ck_assert_uint_eq(d.syncs.nr_flushes, 1);
    ck_assert_uint_eq(d.syncs.nr_crowded, 1); /* Three wait. */
    lead(&d, &waits[0]);
    finish(&d, &waits[0], 0);
    ck_assert_uint_eq(d.syncs.nr_flushes, 4);
    ck_assert_uint_eq(d.syncs.nr_crowded, 2);
    for (unsigned i = 1; i < 3; i++)
        ck_assert_int_eq(answer_of(&d, &waits[i]), 0);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(flush_alone(&d, 0), 0);
    ck_assert_uint_eq(d.syncs.nr_flushes, 5);
    ck_assert_uint_eq(d.syncs.nr_crowded, 2);
    d.syncs.max = 2;
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &waits[0]), UBD_FLUSH_LEAD);
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &waits[1]), UBD_FLUSH_LEAD);
    finish(&d, &waits[1], 0);
    finish(&d, &waits[0], 0); /* It has been alone of late, but was not. */
    ck_assert_uint_eq(d.syncs.nr_flushes, 7);
    ck_assert_uint_eq(d.syncs.nr_crowded, 4);
    ubd_durability_destroy(&d);
}
END_TEST

/* So many flush, each after a write of its own; returns how many synced at
 * once, and had not to wait for any other.
 */
static unsigned
flush_in_a_crowd(struct ubd_durability *d, unsigned nr)
{
    struct flush f[16];
    bool has_led[16];
    unsigned nr_led = 0;

    for (unsigned i = 0; i < nr; i++) {
        ubd_durability_completed(d, 1);
        has_led[i] = arrive(d, &f[i]) == UBD_FLUSH_LEAD;
        nr_led += has_led[i];
    }
    for (unsigned i = 0; i < nr; i++)
        if (has_led[i])
            finish(d, &f[i], 0);
    for (unsigned i = 0; i < nr; i++) {
        if (has_led[i])
            continue;
        if (f[i].flusher.must_lead) {
            lead(d, &f[i]);
            finish(d, &f[i], 0);
        } else {
            ck_assert_int_eq(answer_of(d, &f[i]), 0);
        }
    }
    return nr_led;
}

START_TEST(in_a_crowd_each_flush_syncs_on_a_disk_that_takes_several)
{
    struct ubd_durability d;

    ubd_durability_init(&d, false, 16);
    ck_assert_uint_eq(flush_in_a_crowd(&d, 16), 3);
    for (unsigned i = 0; i < 8; i++)
        flush_in_a_crowd(&d, 16);
    ck_assert_uint_eq(flush_in_a_crowd(&d, 16), 16);
    for (unsigned i = 0; i < 40; i++) /* Four are no crowd. */
        flush_in_a_crowd(&d, 4);
    ck_assert_uint_eq(flush_in_a_crowd(&d, 16), 3);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(crowd_gets_no_more_syncs_than_may_ever_run_or_are_tried)
{
    struct ubd_durability d;

    ubd_durability_init(&d, false, 5);
    for (unsigned i = 0; i < 8; i++)
        flush_in_a_crowd(&d, 16);
    ck_assert_uint_eq(flush_in_a_crowd(&d, 16), 5);
    d.syncs.max = 1; /* A trial of one. */
    ck_assert_uint_eq(flush_in_a_crowd(&d, 16), 1);
    d.syncs.used = 1;
    d.syncs.max = 3; /* A trial of several. */
    ck_assert_uint_eq(flush_in_a_crowd(&d, 16), 3);
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
        who_comes_after_those_who_waited_is_not_forgotten,
        as_many_flushes_are_expected_as_came_during_the_last_sync,
        sync_of_a_slow_disk_does_not_wait_if_all_are_there,
        leader_whose_turn_has_come_waits_for_the_others_too,
        only_one_leader_gathers,
        leader_that_has_gathered_is_not_woken_by_who_comes_later,
        where_several_may_run_nobody_is_waited_for,
        only_a_sync_that_ran_alone_says_how_long_one_takes,
        slow_disk_gets_one_sync_at_a_time_as_soon_as_it_is_known,
        every_sync_is_told_with_the_flushes_it_answered_and_who_competed,
        in_a_crowd_each_flush_syncs_on_a_disk_that_takes_several,
        crowd_gets_no_more_syncs_than_may_ever_run_or_are_tried,
        NULL,
    };

    return unit_run("group-commit", tests);
}
