/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is written out, when and in which order, and who waits.  Losses that
 * the write-out meets are in test-writeback-loss.c.
 *
 * Where a test needs to know when a piece was taken, the write-out is held at
 * its first request: what it asks for tells.
 */
#include "unit.h"

#include <sched.h>
#include <string.h>

#define PAGE UINT64_C(4096)
#define WORD (UBD_MAP_WORD * PAGE)
#define MIB (1024 * KIB)
#define SIZE (16 * MIB)

/* The smallest limit that a user can give: 248 of its 256 pages are admitted
 * and 64 start the write-out, or 240 that are written again and again.  A
 * thread or two processors have up to 10 pages of room in hand, which count as
 * dirty.
 */
#define SMALL MIB
#define EARLY 64
#define LATE 240
#define UNTOLD 10

static const char data[4 * MIB] = "some data";

static void
write_at(struct ubd_disk *disk, uint64_t offset, uint32_t len)
{
    ck_assert_int_eq(ubd_write(disk, data, len, offset, 0), 0);
}

static void
write_page(struct ubd_disk *disk, uint64_t page)
{
    write_at(disk, page * PAGE, PAGE);
}

/* Pages @first to @first + @nr - 1, each by itself. */
static void
write_pages(struct ubd_disk *disk, uint64_t first, uint64_t nr)
{
    for (uint64_t i = first; i < first + nr; i++)
        write_page(disk, i);
}

static void
start_write(struct unit_job *job, struct ubd_disk *disk, uint64_t offset,
            uint32_t len)
{
    unit_start(job, disk, UBD_KIND_WRITE, data, len, offset, 0);
}

static struct ubd_stats
stats_of(struct ubd_disk *disk)
{
    struct ubd_stats stats;

    ubd_stats(disk, &stats);
    return stats;
}

static void
wait_written(struct ubd_disk *disk, uint64_t bytes)
{
    while (stats_of(disk).writeout_bytes < bytes)
        sched_yield();
}

/* A moment for a thread to do what it must not. */
static void
give_way(void)
{
    for (unsigned i = 0; i < 2000; i++)
        sched_yield();
}

static struct fake_piece
nth_piece(struct fake *fake, enum fake_kind kind, unsigned nth)
{
    struct fake_piece pieces[FAKE_PIECES];

    ck_assert_uint_gt(fake_pieces(fake, kind, pieces, FAKE_PIECES), nth);
    return pieces[nth];
}

/* ---- The limit ---- */

START_TEST(writer_that_would_pass_the_limit_waits_until_there_is_room)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);
    struct unit_job job;

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    start_write(&job, disk, 0, 4 * MIB); /* Larger than the limit, too. */
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    while (!atomic_load(&disk->writeback.nr_waiters))
        sched_yield();
    ck_assert(!job.has_ended);
    ck_assert_uint_le(stats_of(disk).dirty_bytes, SMALL);
    ck_assert_uint_ge(stats_of(disk).dirty_bytes, EARLY * PAGE);

    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    ck_assert_int_eq(unit_join(&job), 0);
    ck_assert_uint_gt(stats_of(disk).throttle_ns, 0);
    ck_assert_uint_le(fake_dirty_max(fake) * PAGE, SMALL);
    ck_assert_mem_eq(fake->cache, data, 4 * MIB);
    unit_close(disk, fake);
}
END_TEST

START_TEST(writer_that_finds_room_does_not_count_as_waiting)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);

    write_pages(disk, 0, 20);
    ck_assert_uint_eq(stats_of(disk).throttle_ns, 0);
    ck_assert_uint_eq(stats_of(disk).dirty_bytes, 20 * PAGE);
    unit_close(disk, fake);
}
END_TEST

#define NR_WRITERS 4

struct writer {
    pthread_t thread;
    struct ubd_disk *disk;
    uint64_t seed;
};

static void *
write_at_random(void *opaque)
{
    struct writer *w = opaque;

    for (unsigned i = 0; i < 300; i++) {
        const uint64_t random = fake_random(&w->seed);
        const uint32_t len = random % 4 == 0 ? 64 * KIB : 1 + random / 4 % 9000;

        write_at(w->disk, random / 65536 % (SIZE - len), len);
    }
    return NULL;
}

START_TEST(no_more_than_the_limit_and_what_is_under_way_is_ever_dirty)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);
    const uint64_t most = SMALL + NR_WRITERS * (64 * KIB + PAGE);
    struct writer writer[NR_WRITERS];

    fake->chaos = 3;
    for (unsigned i = 0; i < NR_WRITERS; i++) {
        writer[i] = (struct writer){.disk = disk, .seed = i};
        ck_assert_int_eq(pthread_create(&writer[i].thread, NULL,
                                        write_at_random, &writer[i]),
                         0);
    }
    for (unsigned i = 0; i < NR_WRITERS; i++)
        ck_assert_int_eq(pthread_join(writer[i].thread, NULL), 0);
    ck_assert_uint_le(stats_of(disk).dirty_bytes_max, most);
    ck_assert_uint_ge(stats_of(disk).dirty_bytes_max, EARLY * PAGE);
    ck_assert_uint_le(fake_dirty_max(fake) * PAGE, most);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(memcmp(fake->stable, fake->cache, SIZE), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(reads_and_flushes_pass_a_writer_that_waits)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);
    struct unit_job job;
    char buf[4096];

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, EARLY * PAGE);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    start_write(&job, disk, MIB, 4 * MIB);
    unit_give_way(&job);
    ck_assert(!job.has_ended);

    ck_assert_int_eq(ubd_read(disk, buf, 4096, 0), 0);
    ck_assert_mem_eq(buf, data, 4096);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), 0);
    ck_assert(!job.has_ended);

    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    ck_assert_int_eq(unit_join(&job), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(flush_makes_room_for_a_writer_that_waits)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);
    struct unit_job job, flush;

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, EARLY * PAGE);
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    start_write(&job, disk, MIB, 16 * 64 * KIB); /* 11 pieces find room. */
    fake_wait_count(fake, FAKE_WRITE, EARLY / 16 + 11);
    unit_give_way(&job);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), EARLY / 16 + 11);
    while (stats_of(disk).dirty_bytes < EARLY * PAGE + 11 * 64 * KIB)
        sched_yield();

    unit_start_flush(&flush, disk);
    ck_assert_int_eq(unit_join(&job), 0);
    fake_unhold(fake, FAKE_START_WRITEOUT); /* The flush waits for that. */
    ck_assert_int_eq(unit_join(&flush), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(what_is_being_written_out_is_dirty_until_it_has_been_waited_for)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, EARLY * PAGE);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    ck_assert_uint_eq(stats_of(disk).dirty_bytes, EARLY * PAGE);
    ck_assert_uint_eq(stats_of(disk).writeout_bytes, 0);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    wait_written(disk, EARLY / 2 * PAGE);
    while (stats_of(disk).dirty_bytes > EARLY / 2 * PAGE)
        sched_yield();
    unit_close(disk, fake);
}
END_TEST

/* ---- When, and in which order ---- */

START_TEST(scattered_pages_are_written_out_from_a_quarter_of_the_limit)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);
    struct fake_piece piece;

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    write_pages(disk, 0, EARLY - 1 - UNTOLD);
    give_way();
    ck_assert_uint_eq(fake_count(fake, FAKE_START_WRITEOUT), 0);
    write_pages(disk, EARLY - 1 - UNTOLD, 1 + UNTOLD);
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    piece = nth_piece(fake, FAKE_START_WRITEOUT, 0);
    ck_assert_uint_eq(piece.offset, 0);
    ck_assert_uint_eq(piece.len, WORD);
    fake_unhold(fake, FAKE_START_WRITEOUT);
    unit_close(disk, fake);
}
END_TEST

START_TEST(pages_written_again_and_again_are_left_alone_until_nearly_the_limit)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);
    struct fake_piece piece;

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    for (unsigned i = 0; i < LATE; i++) {
        for (unsigned n = 0; n < 10; n++)
            write_page(disk, i);
        if (i == LATE - 2 - UNTOLD)
            give_way();
        if (i < LATE - 1 - UNTOLD)
            ck_assert_uint_eq(fake_count(fake, FAKE_START_WRITEOUT), 0);
    }
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    piece = nth_piece(fake, FAKE_START_WRITEOUT, 0);
    ck_assert_uint_eq(piece.offset, 0);
    ck_assert_uint_eq(piece.len, 4 * WORD); /* After the 192nd page. */
    fake_unhold(fake, FAKE_START_WRITEOUT);
    unit_close(disk, fake);
}
END_TEST

START_TEST(scattered_pages_are_written_out_in_order_and_in_large_pieces)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk =
        unit_limited_disk(fake, "barrier", 16 * MIB, false); /* 1024 start. */
    uint64_t end = 0;

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    for (unsigned i = 0; i < 3072; i++) /* Most of the disk, in no order. */
        write_page(disk, i * 997 % (SIZE / PAGE));
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    fake_unhold(fake, FAKE_START_WRITEOUT);
    fake_wait_count(fake, FAKE_WAIT_WRITEOUT, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct fake_piece piece = nth_piece(fake, FAKE_START_WRITEOUT, i);

        ck_assert_uint_ge(piece.offset, end);
        ck_assert_uint_ge(piece.len, 2 * MIB);
        end = piece.offset + piece.len;
    }
    unit_close(disk, fake);
}
END_TEST

START_TEST(round_begins_again_at_the_start)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);

    write_pages(disk, 8 * MIB / PAGE, EARLY);
    wait_written(disk, EARLY / 2 * PAGE);
    write_pages(disk, 0, EARLY);
    fake_wait_count(fake, FAKE_WAIT_WRITEOUT, 2);
    ck_assert_uint_eq(nth_piece(fake, FAKE_WAIT_WRITEOUT, 0).offset, 8 * MIB);
    ck_assert_uint_eq(nth_piece(fake, FAKE_WAIT_WRITEOUT, 1).offset, 0);
    unit_close(disk, fake);
}
END_TEST

/* ---- Streams ---- */

START_TEST(streams_are_written_out_in_order_of_arrival_without_a_threshold)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk =
        unit_limited_disk(fake, "barrier", 256 * MIB, false);
    const uint64_t at[] = {8 * MIB, 12 * MIB, 0};

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    write_at(disk, at[0], 4 * MIB);
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    write_at(disk, at[1], 4 * MIB);
    write_at(disk, at[2], 4 * MIB);
    fake_unhold(fake, FAKE_START_WRITEOUT);
    fake_wait_count(fake, FAKE_WAIT_WRITEOUT, 3);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(nth_piece(fake, FAKE_START_WRITEOUT, i).offset,
                          at[i]);
        ck_assert_uint_eq(nth_piece(fake, FAKE_START_WRITEOUT, i).len, 4 * MIB);
    }
    unit_close(disk, fake);
}
END_TEST

START_TEST(stream_is_started_before_the_one_ahead_of_it_is_waited_for)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk =
        unit_limited_disk(fake, "barrier", 256 * MIB, false);

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, 4 * MIB);
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    write_at(disk, 4 * MIB, 4 * MIB);
    fake_release(fake, FAKE_START_WRITEOUT, 0);
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_WAIT_WRITEOUT), 0);
    fake_unhold(fake, FAKE_START_WRITEOUT);
    unit_close(disk, fake);
}
END_TEST

START_TEST(stream_is_evicted_only_after_its_write_out_was_waited_for)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", 256 * MIB, true);
    struct fake_piece evicted;
    char buf[4096];

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 4 * MIB, 4 * MIB);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    give_way();
    ck_assert_uint_eq(fake_count(fake, FAKE_EVICT), 0);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);

    fake_wait_count(fake, FAKE_EVICT, 1);
    evicted = nth_piece(fake, FAKE_EVICT, 0);
    ck_assert_uint_eq(evicted.offset, 4 * MIB);
    ck_assert_uint_eq(evicted.len, 4 * MIB);
    ck_assert_uint_eq(nth_piece(fake, FAKE_WAIT_WRITEOUT, 0).offset, 4 * MIB);
    ck_assert_uint_eq(nth_piece(fake, FAKE_WAIT_WRITEOUT, 0).len, 4 * MIB);
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 4 * MIB), 0);
    ck_assert_mem_eq(buf, data, 4096);
    unit_close(disk, fake);
}
END_TEST

START_TEST(stream_stays_in_the_cache_unless_it_is_to_be_evicted)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk =
        unit_limited_disk(fake, "barrier", 256 * MIB, false);

    write_at(disk, 0, 4 * MIB);
    wait_written(disk, 3 * MIB);
    while (stats_of(disk).dirty_bytes > MIB) /* Comes after the eviction. */
        sched_yield();
    ck_assert_uint_eq(fake_count(fake, FAKE_EVICT), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(scattered_pages_are_never_evicted)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, true);

    for (unsigned i = 0; i < 300; i++)
        write_page(disk, i * 13);
    while (stats_of(disk).dirty_bytes >= (EARLY + UNTOLD) * PAGE)
        sched_yield();
    ck_assert_uint_ge(stats_of(disk).writeout_bytes, EARLY * PAGE);
    ck_assert_uint_eq(fake_count(fake, FAKE_EVICT), 0);
    unit_close(disk, fake);
}
END_TEST

/* ---- Syncs ---- */

START_TEST(what_a_sync_has_taken_over_is_not_written_out_again)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);

    fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
    write_pages(disk, 0, 50);
    ck_assert_uint_eq(stats_of(disk).dirty_bytes, 50 * PAGE);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(stats_of(disk).dirty_bytes, 0);
    write_pages(disk, 1024, EARLY);
    fake_wait_held(fake, FAKE_START_WRITEOUT, 1);
    ck_assert_uint_eq(nth_piece(fake, FAKE_START_WRITEOUT, 0).offset, 4 * MIB);
    ck_assert_uint_eq(nth_piece(fake, FAKE_START_WRITEOUT, 0).len, WORD);
    fake_unhold(fake, FAKE_START_WRITEOUT);
    unit_close(disk, fake);
}
END_TEST

START_TEST(what_was_written_out_is_not_durable_until_it_is_flushed)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);

    ck_assert_int_eq(ubd_flush(disk), 0);
    write_at(disk, 0, EARLY * PAGE);
    wait_written(disk, EARLY / 2 * PAGE);
    while (stats_of(disk).dirty_bytes > EARLY / 2 * PAGE)
        sched_yield();
    ck_assert_uint_eq(stats_of(disk).volatile_bytes, EARLY * PAGE);
    ck_assert_int_ne(memcmp(fake->stable, data, 4096), 0);

    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 2);
    ck_assert_uint_eq(stats_of(disk).volatile_bytes, 0);
    fake_cut(fake, 1);
    ck_assert_mem_eq(fake->stable, data, EARLY * PAGE);
    unit_close(disk, fake);
}
END_TEST

/* ---- Which disks ---- */

START_TEST(close_does_not_wait_for_what_is_left_to_write_out)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", SMALL, false);

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, EARLY * PAGE);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    write_at(disk, MIB, EARLY * PAGE);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    unit_close(disk, fake);

    fake = fake_new(SIZE);
    disk = unit_limited_disk(fake, "barrier", 256 * MIB, true);
    write_at(disk, 0, 4 * MIB);
    write_at(disk, 8 * MIB, 4 * MIB); /* Whatever the thread is at. */
    unit_close(disk, fake);
}
END_TEST

START_TEST(unsafe_with_a_limit_writes_out_and_never_syncs)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "unsafe", SMALL, false);

    fake_script(fake, (struct fake_rule){.kind = FAKE_WAIT_WRITEOUT,
                                         .fault = FAKE_LOSE,
                                         .error = -EIO,
                                         .skip = 1,
                                         .times = 1});
    write_at(disk, 0, 4 * MIB);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_wait_count(fake, FAKE_WAIT_WRITEOUT, 3);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 0);
    ck_assert_uint_le(fake_dirty_max(fake) * PAGE, SMALL);
    unit_close(disk, fake);
}
END_TEST

START_TEST(disk_that_leaves_nothing_dirty_has_no_write_out)
{
    const char *const caches[] = {"osync", "none", "directsync"};

    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        struct fake *fake = fake_new(MIB);
        struct ubd_disk *disk = unit_limited_disk(fake, caches[i], SMALL, true);

        ck_assert(!disk->writeback.is_on);
        write_at(disk, 0, MIB);
        ck_assert_uint_eq(stats_of(disk).dirty_bytes, 0);
        ck_assert_int_eq(ubd_flush(disk), 0);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(long_writes_are_cut_shorter_where_the_pages_stay)
{
    const struct {
        int64_t limit;
        bool evict;
        unsigned nr; /* Of the writes that 2 MiB and a half make. */
    } cases[] = {
        {0,         false, 40},
        {0,         true,  40}, /* Without a limit nothing is evicted. */
        {256 * MIB, false, 40},
        {256 * MIB, true,  3 },
        {MIB,       true,  40}, /* Room for all workers. */
    };
    static char buf[2 * MIB + 512 * KIB];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake *fake = fake_new(4 * MIB);
        struct ubd_disk *disk =
            unit_limited_disk(fake, "barrier", cases[i].limit, cases[i].evict);

        write_at(disk, 100, sizeof buf);
        ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), cases[i].nr);
        ck_assert_int_eq(ubd_read(disk, buf, sizeof buf, 100), 0);
        ck_assert_mem_eq(buf, data, sizeof buf);
        unit_close(disk, fake);
    }
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        writer_that_would_pass_the_limit_waits_until_there_is_room,
        writer_that_finds_room_does_not_count_as_waiting,
        no_more_than_the_limit_and_what_is_under_way_is_ever_dirty,
        reads_and_flushes_pass_a_writer_that_waits,
        flush_makes_room_for_a_writer_that_waits,
        what_is_being_written_out_is_dirty_until_it_has_been_waited_for,
        scattered_pages_are_written_out_from_a_quarter_of_the_limit,
        pages_written_again_and_again_are_left_alone_until_nearly_the_limit,
        scattered_pages_are_written_out_in_order_and_in_large_pieces,
        round_begins_again_at_the_start,
        streams_are_written_out_in_order_of_arrival_without_a_threshold,
        stream_is_started_before_the_one_ahead_of_it_is_waited_for,
        stream_is_evicted_only_after_its_write_out_was_waited_for,
        stream_stays_in_the_cache_unless_it_is_to_be_evicted,
        scattered_pages_are_never_evicted,
        what_a_sync_has_taken_over_is_not_written_out_again,
        what_was_written_out_is_not_durable_until_it_is_flushed,
        close_does_not_wait_for_what_is_left_to_write_out,
        unsafe_with_a_limit_writes_out_and_never_syncs,
        disk_that_leaves_nothing_dirty_has_no_write_out,
        long_writes_are_cut_shorter_where_the_pages_stay,
        NULL,
    };

    return unit_run("writeback", tests);
}
