/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the disk works, from what it books; nothing here takes long. */
#include "actuator.h"
#include "test-disk.h"

/* Long enough that the second comes while the first runs, on any machine. */
START_TEST(flushes_are_served_one_at_a_time)
{
    struct diskmodel_settings settings = {.flush_ns = 1000000000000ULL};
    struct diskmodel_op *first, *second;

    diskmodel_set_settings(disk, &settings);
    first = begin_flush();
    second = begin_flush();
    ck_assert_uint_eq(diskmodel_due_ns(second) - diskmodel_due_ns(first),
                      settings.flush_ns);
    finish(second);
    finish(first);
}
END_TEST

START_TEST(a_write_into_the_cache_does_not_wait_for_a_flush)
{
    struct diskmodel_settings settings = {.flush_ns = 1000000000000ULL};
    struct diskmodel_op *flush, *write;

    diskmodel_set_settings(disk, &settings);
    flush = begin_flush();
    write = begin(1, 0, 1, false);
    ck_assert_uint_lt(diskmodel_due_ns(write), diskmodel_due_ns(flush));
    finish(write);
    finish(flush);
}
END_TEST

/* The due times of 20 writes after the first, which all come at once. */
static void
random_delays(uint64_t seed, uint64_t *ret_delays)
{
    struct diskmodel_settings settings = {
        .write_ns = 1000000000000ULL, .write_delay_ns = 1000000, .seed = ~seed};
    struct diskmodel_op *op, *first;
    unsigned i;

    diskmodel_set_settings(disk, &settings);
    settings.seed = seed; /* Another one: the sequence starts anew. */
    diskmodel_set_settings(disk, &settings);
    first = begin(1, 0, 1, false);
    for (i = 0; i < 20; i++) {
        op = begin(1, 0, 1, false);
        ret_delays[i] = diskmodel_due_ns(op) - diskmodel_due_ns(first) -
                        (i + 1) * settings.write_ns;
        finish(op);
    }
    finish(first);
}

START_TEST(the_same_seed_delays_the_same)
{
    uint64_t a[20], b[20], c[20];

    random_delays(1, a);
    random_delays(1, b);
    random_delays(2, c);
    ck_assert_mem_eq(a, b, sizeof a);
    ck_assert_mem_ne(a, c, sizeof a);
}
END_TEST

START_TEST(a_flush_with_nothing_to_do_may_have_its_own_cost)
{
    struct diskmodel_settings settings = {
        .flush_ns = 8000000, .flush_clean_ns = 1000, .has_flush_clean = true};
    struct diskmodel_op *first, *second;

    diskmodel_set_settings(disk, &settings);
    put(1, 0, 1);
    first = begin_flush();
    second = begin_flush(); /* All there is to do, the first one does. */
    ck_assert_uint_eq(stats().flushes_clean, 1);
    ck_assert_uint_eq(stats().busy_ns, 8001000);
    finish(first);
    finish(second);
}
END_TEST

START_TEST(each_write_may_cost_and_fua_costs_a_flush_more)
{
    struct diskmodel_settings settings = {.write_ns = 1000, .flush_ns = 5000};

    diskmodel_set_settings(disk, &settings);
    put(1, 0, 1);
    ck_assert_uint_eq(stats().busy_ns, 1000);
    finish(begin(1, 0, 1, true));
    ck_assert_uint_eq(stats().busy_ns, 7000);
}
END_TEST

/* 7,200 turns a minute (8.33 ms each) and 120 MB/s: 1 MB a turn. */
static const struct diskmodel_settings rotating = {
    .rpm = 7200, .seek_ns = 8000000, .rate = 120000000};

START_TEST(a_late_head_waits_a_turn_and_a_stream_does_not)
{
    struct actuator a = {.settings = &rotating, .disk_size = 1ULL << 30};
    const uint64_t turn = 60000000000ULL / 7200;
    uint64_t t = actuator_move(&a, 0, 0, 12000);

    ck_assert_uint_eq(t, 100000);
    ck_assert_uint_le(actuator_move(&a, t, 12000, 12000), 201000);
    /* 20 us late for the next sector. */
    t = actuator_move(&a, 220000, 24000, 12000);
    ck_assert_uint_ge(t, turn + 299000);
    ck_assert_uint_le(t, turn + 301000);
}
END_TEST

START_TEST(a_write_into_a_full_cache_waits_for_all_of_it)
{
    struct diskmodel_settings settings = rotating;
    unsigned i;

    settings.cache_bytes = 64 * SECTOR;
    diskmodel_set_settings(disk, &settings);
    for (i = 0; i < 4; i++)
        put(1, i * 16, 16);
    ck_assert_uint_eq(stats().busy_ns, 0);
    ck_assert_uint_eq(stats().volatile_bytes, 64 * SECTOR);
    put(1, 64, 16);
    ck_assert_uint_gt(stats().busy_ns, 0);
    ck_assert_uint_eq(stats().volatile_bytes, 16 * SECTOR);
}
END_TEST

START_TEST(destaging_goes_in_the_order_of_offsets)
{
    struct actuator a = {.settings = &rotating, .disk_size = 1ULL << 30};
    struct actuator b = a;
    struct extent scattered[100], *list = NULL;
    uint64_t sorted, in_order = 0;
    unsigned i;

    for (i = 0; i < 100; i++) {
        scattered[i] = (struct extent){
            .offset = i * 37 % 100 * 10000000ULL, .len = 4096, .next = list};
        list = &scattered[i];
        in_order = actuator_move(&b, in_order, list->offset, list->len);
    }
    sorted = actuator_destage(&a, 0, list);
    ck_assert_uint_lt(sorted, in_order);
    ck_assert_uint_eq(a.head, 99 * 10000000ULL + 4096);
    for (list = &scattered[0], i = 1; list->next; list = list->next, i++)
        ck_assert_uint_lt(list->offset, list->next->offset);
    ck_assert_uint_eq(i, 100);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        flushes_are_served_one_at_a_time,
        a_write_into_the_cache_does_not_wait_for_a_flush,
        the_same_seed_delays_the_same,
        a_flush_with_nothing_to_do_may_have_its_own_cost,
        each_write_may_cost_and_fua_costs_a_flush_more,
        a_late_head_waits_a_turn_and_a_stream_does_not,
        a_write_into_a_full_cache_waits_for_all_of_it,
        destaging_goes_in_the_order_of_offsets,
    };

    return run_tests("disk model: timing", tests,
                     sizeof tests / sizeof tests[0]);
}
