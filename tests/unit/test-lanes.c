/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The pool of open files: who gets which, and who is stale.
 */
#include "unit.h"

#include <fcntl.h>
#include <unistd.h>

static void
open_lanes(struct ubd_lanes *lanes, unsigned nr)
{
    char path[64];
    const int fd = unit_file(4096, path);

    ck_assert_int_eq(ubd_lanes_open(lanes, fd, O_RDWR, nr), 0);
    close(fd);
}

START_TEST(every_lane_is_an_open_file_of_its_own)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane[4];

    open_lanes(&lanes, 4);
    for (unsigned i = 0; i < 4; i++) {
        lane[i] = ubd_lanes_take(&lanes);
        /* The position belongs to the open file, as the cursor does. */
        ck_assert_int_eq(lseek(lane[i]->fd, 0, SEEK_CUR), 0);
        ck_assert_int_eq(lseek(lane[i]->fd, 1 + i, SEEK_SET), 1 + i);
    }
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(lseek(lane[i]->fd, 0, SEEK_CUR), 1 + i);
    for (unsigned i = 0; i < 4; i++)
        ubd_lanes_give(&lanes, lane[i], true);
    ubd_lanes_close(&lanes);
}
END_TEST

/* The one that is borrowed next; a fresh one, if any is. */
static bool
is_next_stale(struct ubd_lanes *lanes)
{
    struct ubd_lane *lane = ubd_lanes_take(lanes);
    const bool is_stale = ubd_lanes_is_stale(lanes, lane);

    ubd_lanes_give(lanes, lane, false); /* Nothing was called on it. */
    return is_stale;
}

static void *
take_one(void *lanes)
{
    return ubd_lanes_take(lanes);
}

START_TEST(who_finds_no_lane_waits_until_one_is_given_back)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane;
    pthread_t thread;
    void *taken;

    open_lanes(&lanes, 1);
    lane = ubd_lanes_take(&lanes);
    ck_assert_int_eq(pthread_create(&thread, NULL, take_one, &lanes), 0);
    ubd_lanes_give(&lanes, lane, true);
    ck_assert_int_eq(pthread_join(thread, &taken), 0);
    ck_assert_ptr_eq(taken, lane);
    ubd_lanes_give(&lanes, lane, true);
    ubd_lanes_close(&lanes);
}
END_TEST

struct crowd {
    struct ubd_lanes *lanes;
    atomic_int users[3]; /* By lane. */
    atomic_bool was_shared;
};

static void *
take_often(void *opaque)
{
    struct crowd *crowd = opaque;

    for (unsigned i = 0; i < 500; i++) {
        struct ubd_lane *lane = ubd_lanes_take(crowd->lanes);
        atomic_int *users = &crowd->users[lane - crowd->lanes->lanes];

        if (atomic_fetch_add(users, 1) != 0)
            crowd->was_shared = true;
        atomic_fetch_sub(users, 1);
        ubd_lanes_give(crowd->lanes, lane, i % 2);
    }
    return NULL;
}

START_TEST(no_lane_is_ever_borrowed_twice_at_a_time)
{
    struct ubd_lanes lanes;
    struct crowd crowd = {.lanes = &lanes};
    pthread_t thread[8];

    open_lanes(&lanes, 3);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, take_often, &crowd),
                         0);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    ck_assert(!crowd.was_shared);
    ubd_lanes_close(&lanes);
}
END_TEST

/* Give @lane a cursor that is past all harmless failures so far. */
static void
renew(struct ubd_lanes *lanes, struct ubd_lane *lane, uint64_t nr_harmless)
{
    const int fd = ubd_lanes_reopen(lanes, lane);

    ck_assert_int_ge(fd, 0);
    ubd_lanes_renew(lanes, lane, fd, nr_harmless);
}

START_TEST(harmless_failure_makes_all_lanes_stale)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane, *other;

    open_lanes(&lanes, 3);
    lane = ubd_lanes_take(&lanes);
    other = ubd_lanes_take(&lanes);
    ck_assert(!ubd_lanes_is_stale(&lanes, lane));
    ubd_lanes_harmless(&lanes);
    ck_assert(ubd_lanes_is_stale(&lanes, lane));
    ck_assert(ubd_lanes_is_stale(&lanes, other));
    /* Borrowed before the failure: what they have seen is unknown. */
    ubd_lanes_give(&lanes, lane, true);
    ubd_lanes_give(&lanes, other, true);
    ck_assert(is_next_stale(&lanes));
    ubd_lanes_close(&lanes);
}
END_TEST

START_TEST(renewed_lane_is_fresh_and_taken_before_a_stale_one)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane, *other;

    open_lanes(&lanes, 2);
    lane = ubd_lanes_take(&lanes);
    other = ubd_lanes_take(&lanes);
    renew(&lanes, lane, ubd_lanes_harmless(&lanes));
    ck_assert(!ubd_lanes_is_stale(&lanes, lane));
    ubd_lanes_give(&lanes, lane, true);
    ubd_lanes_give(&lanes, other, true);
    ck_assert_ptr_eq(ubd_lanes_take(&lanes), lane);
    ck_assert(is_next_stale(&lanes));
    ubd_lanes_give(&lanes, lane, true);
    ubd_lanes_close(&lanes);
}
END_TEST

START_TEST(renewed_lane_is_another_open_file)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane;

    open_lanes(&lanes, 1);
    lane = ubd_lanes_take(&lanes);
    ck_assert_int_eq(lseek(lane->fd, 7, SEEK_SET), 7);
    renew(&lanes, lane, 0);
    ck_assert_int_eq(lseek(lane->fd, 0, SEEK_CUR), 0);
    ubd_lanes_give(&lanes, lane, true);
    ubd_lanes_close(&lanes);
}
END_TEST

START_TEST(stale_lane_is_fresh_once_it_has_reported)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane;

    open_lanes(&lanes, 1);
    ubd_lanes_harmless(&lanes);
    lane = ubd_lanes_take(&lanes);
    ck_assert(ubd_lanes_is_stale(&lanes, lane));
    ubd_lanes_give(&lanes, lane, false); /* Nothing was called on it. */
    ck_assert(is_next_stale(&lanes));

    lane = ubd_lanes_take(&lanes);
    ubd_lanes_give(&lanes, lane, true);
    ck_assert(!is_next_stale(&lanes));
    ubd_lanes_close(&lanes);
}
END_TEST

START_TEST(lane_renewed_for_one_failure_is_stale_after_the_next)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane;
    uint64_t nr_harmless;

    open_lanes(&lanes, 2);
    lane = ubd_lanes_take(&lanes);
    nr_harmless = ubd_lanes_harmless(&lanes);
    ubd_lanes_harmless(&lanes); /* While the file is opened. */
    renew(&lanes, lane, nr_harmless);
    ck_assert(ubd_lanes_is_stale(&lanes, lane));
    ubd_lanes_give(&lanes, lane, true);
    ck_assert(is_next_stale(&lanes));
    ubd_lanes_close(&lanes);
}
END_TEST

START_TEST(lane_that_is_asked_again_is_past_what_was_known_then)
{
    struct ubd_lanes lanes;
    struct ubd_lane *lane;

    open_lanes(&lanes, 1);
    lane = ubd_lanes_take(&lanes);
    ubd_lanes_harmless(&lanes);
    ck_assert(ubd_lanes_is_stale(&lanes, lane));
    ubd_lanes_again(&lanes, lane);
    ubd_lanes_give(&lanes, lane, true);
    ck_assert(!is_next_stale(&lanes));
    ubd_lanes_close(&lanes);
}
END_TEST

START_TEST(lanes_that_could_not_be_opened_can_be_closed)
{
    struct ubd_lanes lanes = {0};

    ubd_lanes_close(&lanes);
    ck_assert_int_eq(ubd_lanes_open(&lanes, -1, O_RDWR, 2), -ENOENT);
    ubd_lanes_close(&lanes);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        every_lane_is_an_open_file_of_its_own,
        who_finds_no_lane_waits_until_one_is_given_back,
        no_lane_is_ever_borrowed_twice_at_a_time,
        harmless_failure_makes_all_lanes_stale,
        renewed_lane_is_fresh_and_taken_before_a_stale_one,
        renewed_lane_is_another_open_file,
        stale_lane_is_fresh_once_it_has_reported,
        lane_renewed_for_one_failure_is_stale_after_the_next,
        lane_that_is_asked_again_is_past_what_was_known_then,
        lanes_that_could_not_be_opened_can_be_closed,
        NULL,
    };

    return unit_run("lanes", tests);
}
