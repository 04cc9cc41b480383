/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Locks on byte ranges: who excludes whom.
 */
#include "unit.h"

#include <sched.h>

/* Somebody who locks a range in a thread and gives it back at once. */
struct locker {
    pthread_t thread;
    struct ubd_range_locks *locks;
    struct ubd_range range;
    atomic_bool was_served;
};

static void *
run_locker(void *opaque)
{
    struct locker *locker = opaque;

    ubd_range_lock(locker->locks, &locker->range);
    locker->was_served = true;
    ubd_range_unlock(locker->locks, &locker->range);
    return NULL;
}

static void
start(struct locker *locker, struct ubd_range_locks *locks, uint64_t from,
      uint64_t to, bool is_exclusive)
{
    locker->locks = locks;
    locker->range = (struct ubd_range){
        .start = from, .end = to, .is_exclusive = is_exclusive};
    locker->was_served = false;
    ck_assert_int_eq(pthread_create(&locker->thread, NULL, run_locker, locker),
                     0);
}

/* Does a holder of [10, 20) make one who wants [from, to) wait? */
static bool
excludes(bool holder_is_exclusive, uint64_t from, uint64_t to,
         bool is_exclusive)
{
    struct ubd_range_locks locks;
    struct ubd_range held = {
        .start = 10, .end = 20, .is_exclusive = holder_is_exclusive};
    struct locker locker;
    bool had_to_wait;

    ubd_range_locks_init(&locks);
    ubd_range_lock(&locks, &held);
    start(&locker, &locks, from, to, is_exclusive);
    /* One who need not wait is served soon; one who must, never. */
    for (unsigned i = 0; i < 1000 && !locker.was_served; i++)
        sched_yield();
    had_to_wait = !locker.was_served;
    ubd_range_unlock(&locks, &held);
    ck_assert_int_eq(pthread_join(locker.thread, NULL), 0);
    ck_assert(locker.was_served);
    ubd_range_locks_destroy(&locks);
    return had_to_wait;
}

START_TEST(exclusive_range_excludes_all_that_overlap)
{
    for (int is_exclusive = 0; is_exclusive < 2; is_exclusive++) {
        ck_assert(excludes(true, 10, 20, is_exclusive));
        ck_assert(excludes(true, 0, 11, is_exclusive));
        ck_assert(excludes(true, 19, 30, is_exclusive));
        ck_assert(excludes(true, 12, 13, is_exclusive));
        ck_assert(excludes(true, 0, 30, is_exclusive));
    }
}
END_TEST

START_TEST(shared_range_excludes_exclusive_ones_that_overlap)
{
    ck_assert(excludes(false, 10, 20, true));
    ck_assert(excludes(false, 19, 30, true));
}
END_TEST

/* These would hang if it were false. */
static void
hold_both(bool first_is_exclusive, uint64_t from, uint64_t to,
          bool is_exclusive)
{
    struct ubd_range_locks locks;
    struct ubd_range a = {
        .start = 10, .end = 20, .is_exclusive = first_is_exclusive};
    struct ubd_range b = {
        .start = from, .end = to, .is_exclusive = is_exclusive};

    ubd_range_locks_init(&locks);
    ubd_range_lock(&locks, &a);
    ubd_range_lock(&locks, &b);
    ubd_range_unlock(&locks, &a);
    ubd_range_unlock(&locks, &b);
    ubd_range_locks_destroy(&locks);
}

START_TEST(shared_ranges_do_not_exclude_each_other)
{
    hold_both(false, 10, 20, false);
    hold_both(false, 0, 30, false);
}
END_TEST

START_TEST(ranges_that_do_not_overlap_do_not_exclude_each_other)
{
    hold_both(true, 0, 10, true);
    hold_both(true, 20, 30, true);
}
END_TEST

#define NR_BLOCKS 4
#define NR_THREADS 6
#define NR_ROUNDS 300

/* Counters that only a lock protects; the thread sanitizer looks on. */
struct blocks {
    struct ubd_range_locks locks;
    unsigned value[NR_BLOCKS];
};

static void *
count_up(void *opaque)
{
    struct blocks *blocks = opaque;

    for (unsigned i = 0; i < NR_ROUNDS; i++) {
        const unsigned first = i % NR_BLOCKS;
        const unsigned last = first + 1 < NR_BLOCKS ? first + 1 : first;
        struct ubd_range range = {
            .start = first, .end = last + 1, .is_exclusive = true};

        ubd_range_lock(&blocks->locks, &range);
        for (unsigned b = first; b <= last; b++)
            blocks->value[b]++;
        ubd_range_unlock(&blocks->locks, &range);
    }
    return NULL;
}

START_TEST(overlapping_exclusive_ranges_are_held_one_at_a_time)
{
    static struct blocks blocks;
    pthread_t thread[NR_THREADS];
    unsigned sum = 0;

    ubd_range_locks_init(&blocks.locks);
    for (unsigned i = 0; i < NR_THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, count_up, &blocks),
                         0);
    for (unsigned i = 0; i < NR_THREADS; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    for (unsigned b = 0; b < NR_BLOCKS; b++)
        sum += blocks.value[b];
    /* The last block of each round of four has no neighbour. */
    ck_assert_uint_eq(sum, NR_THREADS * NR_ROUNDS / 4 * 7);
    ubd_range_locks_destroy(&blocks.locks);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        exclusive_range_excludes_all_that_overlap,
        shared_range_excludes_exclusive_ones_that_overlap,
        shared_ranges_do_not_exclude_each_other,
        ranges_that_do_not_overlap_do_not_exclude_each_other,
        overlapping_exclusive_ranges_are_held_one_at_a_time,
        NULL,
    };

    return unit_run("range-lock", tests);
}
