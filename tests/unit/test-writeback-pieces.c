/* SPDX-License-Identifier: BSD-3-Clause
 *
 * writeback.c: what one piece of the write-out goes through, also where the
 * host refuses or fails a part of it.
 */
#include "unit.h"

#include <fcntl.h>
#include <sched.h>

#define PAGE UINT64_C(4096)
#define MIB (1024 * KIB)
#define SIZE (16 * MIB)
#define LIMIT MIB
#define START (256 * KIB) /* Bytes from which on it writes out. */

static const char data[4 * MIB] = "some data";

static void
write_at(struct ubd_disk *disk, uint64_t offset, uint32_t len)
{
    ck_assert_int_eq(ubd_write(disk, data, len, offset, 0), 0);
}

/* DONTNEED would start to write that, and drop it however that ends. */
START_TEST(what_became_dirty_again_is_written_before_a_stream_is_evicted)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", 256 * MIB, true);
    struct fake_piece wait[8];
    unsigned nr;

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, 4 * MIB);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    write_at(disk, 5 * PAGE, PAGE);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    fake_wait_count(fake, FAKE_EVICT, 1);
    ubd_writeback_stop(&disk->writeback);
    ck_assert(!fake->was_evicted_dirty);
    nr = fake_pieces(fake, FAKE_WAIT_WRITING, wait, 8);
    ck_assert_int_eq(wait[nr - 1].mode, UBD_FINISH_WRITEOUT_FLAGS);
    unit_close(disk, fake);
}
END_TEST

/* Where nothing is evicted, another look at the range would only cost. */
START_TEST(what_became_dirty_again_and_stays_is_left_for_the_next_round)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk =
        unit_limited_disk(fake, "barrier", 256 * MIB, false);

    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, 4 * MIB);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    write_at(disk, 5 * PAGE, PAGE);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    while (ubd_writeback_dirty(&disk->writeback) > PAGE)
        sched_yield();
    ubd_writeback_stop(&disk->writeback);
    ck_assert_uint_eq(fake_dirty(fake), 1);
    unit_close(disk, fake);
}
END_TEST

/* What is being written already is waited for before. */
START_TEST(piece_whose_wait_brought_an_old_report_is_started_all_the_same)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);
    struct fake_piece piece[2];

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 8 * MIB, UBD_FUA), -ENOSPC);
    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    write_at(disk, 0, START);
    /* First the lane of the sync that is to judge it is asked. */
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    fake_release(fake, FAKE_WAIT_WRITEOUT, 0);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_WAIT_WRITING), 1);
    ck_assert_uint_eq(fake_pieces(fake, FAKE_START_WRITEOUT, piece, 2), 1);
    ck_assert_uint_eq(piece[0].offset, 0);
    ck_assert_uint_eq(piece[0].len, START);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT);
    unit_close(disk, fake);
}
END_TEST

/* Counts what it is asked, and answers for the disk. */
static atomic_uint nr_asked;
static bool (*answer)(void *);

static bool
ask_disk(void *opaque)
{
    const bool is_known = answer(opaque);

    atomic_fetch_add(&nr_asked, 1);
    return is_known;
}

/* A long write is under way: it has begun, and nothing of it has completed, so
 * that no sync can tell yet whose the failure is.
 */
START_TEST(failure_that_cannot_be_judged_yet_is_judged_later_without_a_flush)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);
    struct unit_job job;

    ck_assert_int_eq(ubd_flush(disk), 0);
    answer = disk->writeback.config.failed;
    disk->writeback.config.failed = ask_disk;
    fake_fault_once(fake, FAKE_WAIT_WRITEOUT, FAKE_LOSE, -EIO);
    fake_hold(fake, FAKE_WRITE, FAKE_RUNNING);
    unit_start(&job, disk, UBD_KIND_WRITE, data, START + 64 * KIB, 0, 0);
    for (unsigned i = 0; i < START / (64 * KIB); i++)
        fake_release(fake, FAKE_WRITE, 0);
    while (!nr_asked)
        sched_yield();
    ck_assert_int_eq(ubd_loss(disk), 0);
    fake_unhold(fake, FAKE_WRITE);
    ck_assert_int_eq(unit_join(&job), 0);
    while (!ubd_loss(disk))
        sched_yield();
    ck_assert_int_eq(ubd_loss(disk), EIO);
    unit_close(disk, fake);
}
END_TEST

/* ---- A disk larger than the fake host holds ---- */

static uint64_t piece_max;
static atomic_uint nr_waited;

static int64_t
measure(struct ubd_io *io, const struct ubd_req *req)
{
    (void)io;
    if (req->len > piece_max)
        piece_max = req->len;
    if (req->op == UBD_OP_WAIT_WRITEOUT)
        atomic_fetch_add(&nr_waited, 1);
    return 0;
}

static bool
fail_never(void *opaque)
{
    (void)opaque;
    ck_abort_msg("nothing failed");
    return true;
}

START_TEST(piece_is_never_longer_than_a_ring_takes)
{
    static const struct ubd_io_ops ops = {.attempt = measure};
    static struct ubd_writeback wb;
    struct ubd_io io = {.ops = &ops};
    struct ubd_writeout writeout;
    const struct ubd_writeback_config config = {.io = &io,
                                                .writeout = &writeout,
                                                .size = 65536 * MIB,
                                                .limit = LIMIT,
                                                .failed = fail_never};

    ubd_writeout_init(&writeout, NULL, NULL);
    ck_assert_int_eq(ubd_writeback_start(&wb, &config), 0);
    for (uint64_t i = 0; i < 512; i++) { /* Over 32 GiB. */
        ubd_writeback_admit(&wb, i * 64 * MIB, PAGE);
        ubd_writeback_dirtied(&wb, i * 64 * MIB, PAGE);
    }
    while (!nr_waited)
        sched_yield();
    ubd_writeback_stop(&wb);
    ck_assert_uint_gt(piece_max, 64 * MIB); /* Gaps are bridged, */
    ck_assert_uint_le(piece_max, 256 * MIB);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        what_became_dirty_again_is_written_before_a_stream_is_evicted,
        what_became_dirty_again_and_stays_is_left_for_the_next_round,
        piece_whose_wait_brought_an_old_report_is_started_all_the_same,
        failure_that_cannot_be_judged_yet_is_judged_later_without_a_flush,
        piece_is_never_longer_than_a_ring_takes,
        NULL,
    };

    return unit_run("writeback-pieces", tests);
}
