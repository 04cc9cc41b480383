/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many syncs at a time are found right for disks of several kinds, which
 * are simulated here, with clients that flush again as soon as they can.
 */
#include "concurrency.h"
#include "unit.h"

#define LIMIT 4
#define SYNC_NS UINT64_C(8000000) /* Epochs are of 32 syncs then. */

enum kind {
    PARALLEL, /* Takes as long, however many run. */
    SERIAL,   /* Serves one after the other. */
    SLEEPY,   /* Alone, each has to wake it up. */
};

#define CLIENTS_MAX 16

struct sim {
    struct ubd_concurrency c;
    enum kind kind;
    unsigned nr_clients;
    uint64_t now_ns;
    struct {
        uint64_t flushes_ns; /* When it will, or did. */
        unsigned sync;       /* That answers it, from 1; 0: none yet. */
    } client[CLIENTS_MAX];
    struct {
        uint64_t begin_ns, end_ns;
        unsigned nr_flushes; /* 0: not running. */
        bool had_company;
    } running[LIMIT];
    unsigned nr_running;
    uint64_t nr_syncs_of[LIMIT + 1]; /* By the number that might run. */
};

static struct sim
make_sim(enum kind kind, unsigned nr_clients, unsigned limit)
{
    struct sim s = {.kind = kind, .nr_clients = nr_clients};

    ubd_concurrency_init(&s.c, limit);
    return s;
}

static uint64_t
end_of_new(const struct sim *s)
{
    uint64_t from_ns = s->now_ns;

    if (s->kind == SLEEPY)
        return s->now_ns + (s->nr_running ? SYNC_NS : 4 * SYNC_NS);
    for (unsigned i = 0; s->kind == SERIAL && i < LIMIT; i++)
        if (s->running[i].nr_flushes && s->running[i].end_ns > from_ns)
            from_ns = s->running[i].end_ns;
    return from_ns + SYNC_NS;
}

/* Who has flushed and has no sync yet; they all join @sync if it is not 0. */
static unsigned
count_waiting(struct sim *s, unsigned sync)
{
    unsigned nr = 0;

    for (unsigned i = 0; i < s->nr_clients; i++) {
        if (s->client[i].sync || s->client[i].flushes_ns > s->now_ns)
            continue;
        s->client[i].sync = sync;
        nr++;
    }
    return nr;
}

static void
start_sync(struct sim *s)
{
    unsigned i = 0;

    if (s->nr_running >= s->c.max || count_waiting(s, 0) == 0)
        return;
    while (s->running[i].nr_flushes)
        i++;
    s->running[i].begin_ns = s->now_ns;
    s->running[i].end_ns = end_of_new(s);
    s->running[i].nr_flushes = count_waiting(s, i + 1);
    s->nr_running++;
    for (unsigned j = 0; j < LIMIT; j++)
        s->running[j].had_company =
            s->nr_running > 1 &&
            (j == i || s->running[j].had_company || s->running[j].nr_flushes);
}

/* A client does something else for half as long as a sync takes, more or less,
 * before it flushes again.
 */
static void
end_sync(struct sim *s, unsigned i)
{
    const unsigned nr = s->running[i].nr_flushes;

    s->running[i].nr_flushes = 0;
    s->nr_running--;
    s->nr_syncs_of[s->c.max]++;
    ubd_concurrency_ended(&s->c, s->running[i].begin_ns, s->now_ns, nr,
                          s->running[i].had_company || nr > 1 ||
                              count_waiting(s, 0) > 0);
    for (unsigned j = 0; j < s->nr_clients; j++) {
        if (s->client[j].sync != i + 1)
            continue;
        s->client[j].sync = 0;
        s->client[j].flushes_ns = s->now_ns + SYNC_NS / 4 + SYNC_NS / 32 * j;
    }
}

/* Go to the next moment at which anything happens; returns 1 if it was the end
 * of a sync.
 */
static unsigned
step(struct sim *s)
{
    uint64_t next_ns = UINT64_MAX;
    unsigned ended = LIMIT;

    start_sync(s);
    for (unsigned i = 0; i < s->nr_clients; i++)
        if (!s->client[i].sync && s->client[i].flushes_ns > s->now_ns &&
            s->client[i].flushes_ns < next_ns)
            next_ns = s->client[i].flushes_ns;
    for (unsigned i = 0; i < LIMIT; i++) {
        if (!s->running[i].nr_flushes || s->running[i].end_ns > next_ns)
            continue;
        next_ns = s->running[i].end_ns;
        ended = i;
    }
    if (next_ns > s->now_ns) /* Else the machine was held up. */
        s->now_ns = next_ns;
    if (ended == LIMIT)
        return 0;
    end_sync(s, ended);
    return 1;
}

static void
run(struct sim *s, unsigned nr_syncs)
{
    while (nr_syncs > 0)
        nr_syncs -= step(s);
}

/* From then on: is nearly all of @nr_syncs spent with @max at a time? */
static void
check_settled(struct sim *s, unsigned max, unsigned nr_syncs)
{
    const uint64_t before = s->nr_syncs_of[max];

    run(s, nr_syncs);
    ck_assert_uint_eq(s->c.used, max);
    ck_assert_uint_ge((s->nr_syncs_of[max] - before) * 100, nr_syncs * 96);
}

START_TEST(disk_that_takes_several_gets_several)
{
    struct sim s = make_sim(PARALLEL, 16, LIMIT);

    check_settled(&s, LIMIT, 20000);
    ck_assert_uint_gt(s.nr_syncs_of[1], 0); /* It was tried all the same. */
}
END_TEST

START_TEST(disk_that_serves_one_after_the_other_gets_one)
{
    struct sim s = make_sim(SERIAL, 16, LIMIT);

    run(&s, 1000);
    check_settled(&s, 1, 20000);
    ck_assert_uint_gt(s.nr_syncs_of[LIMIT], 0);
}
END_TEST

/* Of the sleepy disk's syncs each takes four times as long if it is alone: by
 * the time of a sync nobody could tell it from one that is merely quicker.
 */
START_TEST(wrong_guess_is_found_out)
{
    static const enum kind kinds[] = {PARALLEL, SLEEPY};

    for (unsigned i = 0; i < 2; i++) {
        struct sim s = make_sim(kinds[i], kinds[i] == SLEEPY ? 4 : 16, LIMIT);

        ubd_concurrency_guess(&s.c, true);
        ck_assert_uint_eq(s.c.max, 1);
        run(&s, 1000);
        check_settled(&s, LIMIT, 20000);
    }
}
END_TEST

START_TEST(right_guess_is_kept)
{
    struct sim s = make_sim(SERIAL, 16, LIMIT);

    ubd_concurrency_guess(&s.c, true);
    check_settled(&s, 1, 20000);
}
END_TEST

START_TEST(disk_that_changes_is_followed)
{
    struct sim s = make_sim(PARALLEL, 16, LIMIT);

    run(&s, 20000);
    for (unsigned i = 0; i < 3; i++) {
        s.kind = SERIAL;
        run(&s, 3000); /* The longest rest, and a trial. */
        check_settled(&s, 1, 20000);
        s.kind = PARALLEL;
        run(&s, 3000);
        check_settled(&s, LIMIT, 20000);
    }
}
END_TEST

START_TEST(nothing_is_tried_for_who_is_alone)
{
    struct sim s = make_sim(PARALLEL, 1, LIMIT);

    run(&s, 5000);
    ck_assert_uint_eq(s.nr_syncs_of[LIMIT], 5000);
}
END_TEST

START_TEST(guess_counts_until_a_trial_has_shown_better)
{
    struct sim s = make_sim(PARALLEL, 16, LIMIT);

    for (unsigned i = 0; i < 50; i++) {
        ubd_concurrency_guess(&s.c, i % 2 == 0);
        ck_assert_uint_eq(s.c.max, i % 2 == 0 ? 1 : LIMIT);
        run(&s, 1);
    }
    run(&s, 1000);
    ubd_concurrency_guess(&s.c, true);
    ck_assert_uint_eq(s.c.max, LIMIT);
}
END_TEST

START_TEST(trial_is_not_disturbed_by_guesses)
{
    struct sim s = make_sim(PARALLEL, 16, LIMIT);

    ubd_concurrency_guess(&s.c, true);
    while (s.c.phase != UBD_TRIAL_OTHER)
        run(&s, 1);
    ubd_concurrency_guess(&s.c, true);
    ck_assert_uint_eq(s.c.max, LIMIT);
}
END_TEST

/* Whoever was alone for a while has not changed what is known of the rest. */
START_TEST(times_alone_do_not_put_off_the_next_trial)
{
    struct sim s = make_sim(PARALLEL, 16, LIMIT);

    s.c.used = s.c.max = 1;
    s.c.is_proven = true;
    s.c.nr_rests = s.c.rests_max = 64;
    for (unsigned i = 0; i < 10; i++) {
        s.nr_clients = 16;
        run(&s, 1000);
        s.nr_clients = 1;
        run(&s, 40);
    }
    ck_assert_uint_eq(s.c.used, LIMIT);
}
END_TEST

/* The machine is held up while one number is measured: it shows in one of the
 * two epochs around the other one at most.
 */
START_TEST(stall_is_not_taken_for_the_worse_number)
{
    for (int phase = UBD_TRIAL_BEFORE; phase <= UBD_TRIAL_AFTER; phase++) {
        struct sim s = make_sim(PARALLEL, 16, LIMIT);

        for (unsigned i = 0; i < 20000; i++) {
            const bool is_new = s.c.nr_syncs == 10;

            run(&s, 1);
            if (is_new && (int)s.c.phase == phase)
                s.now_ns += 1000 * SYNC_NS;
            ck_assert_uint_eq(s.c.used, LIMIT);
        }
    }
}
END_TEST

/* Clients that flush in bursts, and pause where it misleads most. */
START_TEST(time_in_which_nobody_flushes_does_not_count)
{
    struct ubd_concurrency c;
    uint64_t now_ns = 1;
    unsigned nr_of_one = 0;

    ubd_concurrency_init(&c, LIMIT);
    for (unsigned i = 0; i < 20000; i++) {
        if (c.phase != UBD_TRIAL_OTHER && c.nr_syncs == 10)
            now_ns += UINT64_C(10000000000);
        ubd_concurrency_ended(&c, now_ns, now_ns + 1000000, 1, true);
        now_ns += 1000000;
        ck_assert_uint_eq(c.used, LIMIT);
        nr_of_one += c.max == 1;
    }
    ck_assert_uint_gt(nr_of_one, 0);    /* There were trials, */
    ck_assert_uint_lt(nr_of_one, 2000); /* that went on, too. */
}
END_TEST

/* Its leader may have to wait before it can say so. */
START_TEST(end_that_is_told_late_does_not_set_the_clock_back)
{
    struct ubd_concurrency c;

    ubd_concurrency_init(&c, LIMIT);
    for (unsigned i = 0; i < 5; i++)
        ubd_concurrency_ended(&c, 1000000000, 2000000000, 1, true);
    ubd_concurrency_ended(&c, 1000000000, 1500000000, 1, true);
    ck_assert_uint_eq(c.last_ns, 2000000000);
}
END_TEST

static void
add_sync(struct ubd_concurrency *c, uint64_t *now_ns, uint64_t ns)
{
    ubd_concurrency_ended(c, *now_ns, *now_ns + ns, 1, true);
    *now_ns += ns;
}

START_TEST(epoch_lasts_for_some_time_however_fast_the_syncs)
{
    struct ubd_concurrency c;
    uint64_t now_ns = 1;

    ubd_concurrency_init(&c, LIMIT);
    for (unsigned i = 0; i < 450; i++) /* 45 ms. */
        add_sync(&c, &now_ns, 100000);
    ck_assert_uint_eq(c.nr_syncs, 450);
    for (unsigned i = 0; i < 60; i++)
        add_sync(&c, &now_ns, 100000);
    ck_assert_uint_lt(c.nr_syncs, 60);
}
END_TEST

START_TEST(small_advantage_is_not_followed)
{
    struct ubd_concurrency c;

    for (int is_large = 0; is_large < 2; is_large++) {
        uint64_t now_ns = 1;

        ubd_concurrency_init(&c, LIMIT);
        for (unsigned i = 0; i < 1000; i++) {
            const uint64_t begin_ns = now_ns;

            now_ns += c.max == LIMIT ? 11100000
                      : is_large     ? 10000000
                                     : 10200000;
            ubd_concurrency_ended(&c, begin_ns, now_ns, 1, true);
        }
        ck_assert_uint_eq(c.used, is_large ? 1 : LIMIT);
    }
}
END_TEST

START_TEST(where_only_one_may_run_nothing_is_tried)
{
    struct sim s = make_sim(PARALLEL, 16, 1);

    run(&s, 5000);
    ck_assert_uint_eq(s.nr_syncs_of[1], 5000);
    ubd_concurrency_guess(&s.c, true);
    ck_assert_uint_eq(s.c.max, 1);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        disk_that_takes_several_gets_several,
        disk_that_serves_one_after_the_other_gets_one,
        wrong_guess_is_found_out,
        right_guess_is_kept,
        disk_that_changes_is_followed,
        nothing_is_tried_for_who_is_alone,
        guess_counts_until_a_trial_has_shown_better,
        trial_is_not_disturbed_by_guesses,
        times_alone_do_not_put_off_the_next_trial,
        stall_is_not_taken_for_the_worse_number,
        time_in_which_nobody_flushes_does_not_count,
        end_that_is_told_late_does_not_set_the_clock_back,
        epoch_lasts_for_some_time_however_fast_the_syncs,
        small_advantage_is_not_followed,
        where_only_one_may_run_nothing_is_tried,
        NULL,
    };

    return unit_run("concurrency", tests);
}
