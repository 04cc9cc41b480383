/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The queue of trace records (plugins/).
 */
#include "unit.h"

#include "ubd-trace-ring.h"

#include <sched.h>

START_TEST(records_come_out_as_they_were_put_and_in_that_order)
{
    struct ubd_trace_ring ring;
    struct ubd_trace_record record;

    ck_assert_int_eq(ubd_trace_ring_init(&ring, 8), 0);
    ck_assert(!ubd_trace_ring_get(&ring, &record));
    for (uint64_t round = 0; round < 5; round++) { /* Around its end, too. */
        for (uint64_t i = 0; i < 5; i++) {
            const struct ubd_trace_record put = {.id = round * 5 + i,
                                                 .conn = i,
                                                 .offset = ~i,
                                                 .len = i,
                                                 .result = -(int)i};

            ck_assert(ubd_trace_ring_put(&ring, &put));
        }
        for (uint64_t i = 0; i < 5; i++) {
            ck_assert(ubd_trace_ring_get(&ring, &record));
            ck_assert_uint_eq(record.id, round * 5 + i);
            ck_assert_uint_eq(record.conn, i);
            ck_assert_uint_eq(record.offset, ~i);
            ck_assert_uint_eq(record.len, i);
            ck_assert_int_eq(record.result, -(int)i);
        }
        ck_assert(!ubd_trace_ring_get(&ring, &record));
    }
    ck_assert_uint_eq(ring.nr_dropped, 0);
    ubd_trace_ring_destroy(&ring);
}
END_TEST

START_TEST(what_finds_the_ring_full_is_dropped_and_counted)
{
    struct ubd_trace_ring ring;
    struct ubd_trace_record record = {0};

    ck_assert_int_eq(ubd_trace_ring_init(&ring, 8), 0);
    for (record.id = 0; record.id < 11; record.id++)
        ck_assert_int_eq(ubd_trace_ring_put(&ring, &record), record.id < 8);
    ck_assert_uint_eq(ring.nr_dropped, 3);

    ck_assert(ubd_trace_ring_get(&ring, &record)); /* The oldest is kept. */
    ck_assert_uint_eq(record.id, 0);
    record.id = 11;
    ck_assert(ubd_trace_ring_put(&ring, &record)); /* There is room again. */
    ck_assert(!ubd_trace_ring_put(&ring, &record));
    for (unsigned i = 1; i < 8; i++) {
        ck_assert(ubd_trace_ring_get(&ring, &record));
        ck_assert_uint_eq(record.id, i);
    }
    ck_assert(ubd_trace_ring_get(&ring, &record));
    ck_assert_uint_eq(record.id, 11);
    ck_assert(!ubd_trace_ring_get(&ring, &record));
    ck_assert_uint_eq(ring.nr_dropped, 4);
    ubd_trace_ring_destroy(&ring);
}
END_TEST

#define NR_WRITERS 4
#define NR_EACH 20000

struct writer {
    pthread_t thread;
    pthread_barrier_t *start; /* Else one has done before the next begins. */
    struct ubd_trace_ring *ring;
    uint64_t number;
    uint64_t nr_put;
    atomic_bool has_ended;
};

static void *
write_records(void *opaque)
{
    struct writer *w = opaque;

    pthread_barrier_wait(w->start);
    for (uint64_t i = 1; i <= NR_EACH; i++) {
        const struct ubd_trace_record record = {
            .id = i, .conn = w->number, .offset = i * 3, .end_ns = i * 7};

        if (ubd_trace_ring_put(w->ring, &record))
            w->nr_put++;
        else
            sched_yield();
    }
    w->has_ended = true;
    return NULL;
}

static bool
have_ended(const struct writer *writers)
{
    bool have = true;

    for (unsigned i = 0; i < NR_WRITERS; i++)
        have = have && writers[i].has_ended;
    return have;
}

/* One record: whole, and newer than the last one of the same writer. */
static void
check_record(const struct ubd_trace_record *record, uint64_t *last)
{
    ck_assert_uint_lt(record->conn, NR_WRITERS);
    ck_assert_uint_gt(record->id, last[record->conn]);
    ck_assert_uint_eq(record->offset, record->id * 3);
    ck_assert_uint_eq(record->end_ns, record->id * 7);
    last[record->conn] = record->id;
}

START_TEST(no_record_is_torn_or_doubled_and_each_is_read_or_dropped)
{
    struct ubd_trace_ring ring;
    struct ubd_trace_record record;
    struct writer writers[NR_WRITERS];
    uint64_t last[NR_WRITERS] = {0};
    uint64_t nr_read = 0, nr_put = 0;
    pthread_barrier_t start;
    bool is_last;

    ck_assert_int_eq(ubd_trace_ring_init(&ring, 256), 0);
    pthread_barrier_init(&start, NULL, NR_WRITERS);
    for (unsigned i = 0; i < NR_WRITERS; i++) {
        writers[i] =
            (struct writer){.start = &start, .ring = &ring, .number = i};
        ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_records,
                                        &writers[i]),
                         0);
    }
    do {
        is_last = have_ended(writers); /* Before the ring is empty. */
        while (ubd_trace_ring_get(&ring, &record)) {
            check_record(&record, last);
            nr_read++;
        }
        sched_yield();
    } while (!is_last);
    for (unsigned i = 0; i < NR_WRITERS; i++) {
        ck_assert_int_eq(pthread_join(writers[i].thread, NULL), 0);
        nr_put += writers[i].nr_put;
    }
    pthread_barrier_destroy(&start);
    ck_assert_uint_eq(nr_read, nr_put);
    ck_assert_uint_eq(nr_read + ring.nr_dropped, NR_WRITERS * NR_EACH);
    ubd_trace_ring_destroy(&ring);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        records_come_out_as_they_were_put_and_in_that_order,
        what_finds_the_ring_full_is_dropped_and_counted,
        no_record_is_torn_or_doubled_and_each_is_read_or_dropped,
        NULL,
    };

    return unit_run("trace-ring", tests);
}
