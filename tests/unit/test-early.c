/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Write-out that begins with the write, since a flush is expected to wait for
 * it: when one is expected, and that nothing is durable or hidden by it.
 */
#include "by-hand.h"

#define SIZE (256 * KIB) /* Some places. */
#define MIB (UINT64_C(1) << 20)
#define TO_LEARN 40 /* Flushes, after the first large one that is assumed. */

static const char block[4096] = "a block";

/* One flush after @bytes were written. */
static void
write_and_flush(struct ubd_durability *d, uint64_t bytes)
{
    ubd_durability_completed(d, bytes);
    ck_assert_int_eq(flush_alone(d, 0), 0);
}

/* Each processor counts for itself. */
static void
stay_here(void)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
}

static void
learn_to_expect(struct ubd_durability *d)
{
    ubd_durability_init(d, false, 1);
    ck_assert(!ubd_durability_expects_flush(d, 1, 0));
    for (unsigned i = 0; i < TO_LEARN; i++)
        write_and_flush(d, 4096);
}

START_TEST(flush_is_expected_when_little_was_written_between_others)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    write_and_flush(&d, MIB << 20); /* One burst does not end it for long. */
    for (unsigned i = 0; i < TO_LEARN; i++)
        write_and_flush(&d, 4096);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(no_flush_is_expected_when_much_was_written_between_others)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    for (unsigned i = 0; i < TO_LEARN; i++)
        write_and_flush(&d, 1 * MIB);
    ck_assert(!ubd_durability_expects_flush(&d, 4096, 0));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(flush_that_does_not_come_is_no_longer_expected)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    stay_here();
    for (unsigned i = 0; i < 64; i++) /* 256 KiB. */
        ck_assert(ubd_durability_expects_flush(&d, 4096, i * 64 * KIB));
    ck_assert(!ubd_durability_expects_flush(&d, 4096, 64 * 64 * KIB));
    write_and_flush(&d, 4096);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(nothing_is_written_out_early_twice_at_one_place)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    stay_here();
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    ck_assert(!ubd_durability_expects_flush(&d, 4096, 60 * KIB));
    ck_assert(ubd_durability_expects_flush(&d, 4096, 64 * KIB));
    write_and_flush(&d, 4096);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 64 * KIB));
    ubd_durability_destroy(&d);
}
END_TEST

/* @nr flushes that share a sync, after @bytes were written. */
static void
flush_together(struct ubd_durability *d, unsigned nr, uint64_t bytes)
{
    struct flush f[16];

    ubd_durability_completed(d, bytes);
    ck_assert_int_eq(arrive(d, &f[0]), UBD_FLUSH_LEAD);
    for (unsigned i = 1; i < nr; i++)
        ck_assert_int_eq(arrive(d, &f[i]), UBD_FLUSH_WAIT);
    ck_assert_int_eq(finish(d, &f[0], 0), 0);
    for (unsigned i = 1; i < nr; i++)
        ck_assert_int_eq(answer_of(d, &f[i]), 0);
}

START_TEST(flushes_that_share_a_sync_share_what_was_written)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    for (unsigned i = 0; i < TO_LEARN; i++)
        flush_together(&d, 4, 800 * KIB);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(what_many_flush_together_is_left_to_their_sync)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    flush_together(&d, 8, 32 * KIB); /* Once does not make a crowd. */
    flush_together(&d, 4, 16 * KIB);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    for (unsigned i = 0; i < TO_LEARN; i++)
        flush_together(&d, 8, 32 * KIB);
    ck_assert(!ubd_durability_expects_flush(&d, 4096, 0));
    for (unsigned i = 0; i < TO_LEARN; i++)
        flush_together(&d, 4, 16 * KIB);
    ck_assert(ubd_durability_expects_flush(&d, 4096, 0));
    ubd_durability_destroy(&d);
}
END_TEST

/* Four and a third on the mean: neither does that make one. */
START_TEST(crowd_that_thins_out_a_little_stays_one)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    for (int was_crowd = 0; was_crowd < 2; was_crowd++) {
        for (unsigned i = 0; i < TO_LEARN; i++) {
            flush_together(&d, i % 3 ? 4 : 5, 16 * KIB);
            ck_assert_int_eq(ubd_durability_expects_flush(&d, 4096, 0),
                             !was_crowd);
        }
        for (unsigned i = 0; i < TO_LEARN; i++)
            flush_together(&d, 8, 32 * KIB);
    }
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(nobody_hurries_before_a_slow_sync)
{
    struct ubd_durability d;
    struct flush f;

    learn_to_expect(&d);
    for (unsigned i = 0; i < TO_LEARN; i++) {
        ubd_durability_completed(&d, 4096);
        ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
        f.sync.ns = 1200000;
        ck_assert_int_eq(ubd_durability_finish(&d, &f.sync, 0), 0);
    }
    ck_assert(!ubd_durability_expects_flush(&d, 4096, 0));
    ubd_durability_destroy(&d);
}
END_TEST

/* However slow the syncs of a busy machine are. */
static void
expect_flush(struct ubd_disk *disk)
{
    struct ubd_durability *d = &disk->durability;

    atomic_store(&d->awaits_flush, d->nr_syncs);
}

/* Each of many flushes comes after a write of 4 KiB. */
static void
write_and_flush_disk(struct ubd_disk *disk)
{
    for (unsigned i = 0; i < TO_LEARN; i++) {
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
        ck_assert_int_eq(ubd_flush(disk), 0);
    }
}

START_TEST(write_out_begins_with_the_write_and_flushes_sync_all_the_same)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    struct fake_piece piece[TO_LEARN];
    unsigned nr;

    write_and_flush_disk(disk);
    expect_flush(disk);
    nr = fake_count(fake, FAKE_SUBMIT_WRITEOUT);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), TO_LEARN);

    ck_assert_int_eq(ubd_write(disk, block, 4096, 8192, 0), 0);
    ck_assert_uint_eq(fake_pieces(fake, FAKE_SUBMIT_WRITEOUT, piece, TO_LEARN),
                      nr + 1);
    ck_assert_uint_eq(piece[nr].offset, 8192);
    ck_assert_uint_eq(piece[nr].len, 4096);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_EARLY), nr + 1);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), TO_LEARN + 1);
    ck_assert_mem_eq(fake->stable + 8192, block, 4096);
    unit_close(disk, fake);
}
END_TEST

START_TEST(only_writes_to_the_page_cache_are_written_out_early)
{
    static const char *const modes[] = {"unsafe", "osync"};
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 512, 512);
    unsigned nr;

    write_and_flush_disk(disk);
    ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), 0);
    unit_close(disk, fake);
    for (unsigned i = 0; i < 2; i++) {
        fake = fake_new(SIZE);
        disk = unit_disk(fake, modes[i]);
        write_and_flush_disk(disk);
        ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), 0);
        unit_close(disk, fake);
    }
    fake = fake_new(SIZE);
    disk = unit_disk(fake, "barrier");
    write_and_flush_disk(disk);
    expect_flush(disk);
    nr = fake_count(fake, FAKE_SUBMIT_WRITEOUT);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, UBD_FUA), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), nr);
    unit_close(disk, fake);
}
END_TEST

/* (D4) */
START_TEST(
    loss_that_early_write_out_meets_is_known_before_the_write_is_answered)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    write_and_flush_disk(disk);
    expect_flush(disk);
    fake_fault_once(fake, FAKE_SUBMIT_WRITEOUT, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

/* (D4) What it took was to be written by a sync that is running. */
START_TEST(no_success_is_answered_before_early_write_out_beside_it_has_ended)
{
    for (int is_fua = 0; is_fua < 2; is_fua++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = unit_disk(fake, "barrier");
        struct unit_job writer, other;

        write_and_flush_disk(disk);
        expect_flush(disk);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 64 * KIB, 0), 0);
        fake_fault_once(fake, FAKE_SUBMIT_WRITEOUT, FAKE_LOSE, -EIO);
        fake_hold(fake, FAKE_SUBMIT_WRITEOUT, FAKE_ENDED);
        unit_start(&writer, disk, UBD_KIND_WRITE, block, 4096, 0, 0);
        fake_wait_held(fake, FAKE_SUBMIT_WRITEOUT, 1);
        if (is_fua)
            unit_start(&other, disk, UBD_KIND_WRITE, block, 4096, 8192,
                       UBD_FUA);
        else
            unit_start_flush(&other, disk);
        while (!atomic_load(&disk->writeout.nr_waiting))
            sched_yield();
        fake_unhold(fake, FAKE_SUBMIT_WRITEOUT);
        ck_assert_int_eq(unit_join(&writer), 0);
        ck_assert_int_eq(unit_join(&other), -EIO);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(nothing_is_written_out_early_while_somebody_waits_for_that_to_end)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    struct unit_job writer, flush;
    unsigned nr;

    write_and_flush_disk(disk);
    expect_flush(disk);
    fake_hold(fake, FAKE_SUBMIT_WRITEOUT, FAKE_ENDED);
    unit_start(&writer, disk, UBD_KIND_WRITE, block, 4096, 0, 0);
    fake_wait_held(fake, FAKE_SUBMIT_WRITEOUT, 1);
    unit_start_flush(&flush, disk);
    while (!atomic_load(&disk->writeout.nr_waiting))
        sched_yield();
    nr = fake_count(fake, FAKE_SUBMIT_WRITEOUT);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 128 * KIB, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), nr);
    fake_unhold(fake, FAKE_SUBMIT_WRITEOUT);
    ck_assert_int_eq(unit_join(&writer), 0);
    ck_assert_int_eq(unit_join(&flush), 0);
    expect_flush(disk);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 192 * KIB, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), nr + 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_write_is_not_written_out_early)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    unsigned nr;

    write_and_flush_disk(disk);
    expect_flush(disk);
    nr = fake_count(fake, FAKE_SUBMIT_WRITEOUT);
    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), -ENOSPC);
    ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), nr);
    unit_close(disk, fake);
}
END_TEST

START_TEST(early_write_out_that_fails_harmlessly_is_given_up)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    unsigned nr;

    write_and_flush_disk(disk);
    expect_flush(disk);
    fake_fault_once(fake, FAKE_SUBMIT_WRITEOUT, FAKE_FAIL, -ENOMEM);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    nr = fake_count(fake, FAKE_SUBMIT_WRITEOUT);
    write_and_flush_disk(disk);
    ck_assert_uint_eq(fake_count(fake, FAKE_SUBMIT_WRITEOUT), nr);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        flush_is_expected_when_little_was_written_between_others,
        no_flush_is_expected_when_much_was_written_between_others,
        flush_that_does_not_come_is_no_longer_expected,
        nothing_is_written_out_early_twice_at_one_place,
        flushes_that_share_a_sync_share_what_was_written,
        what_many_flush_together_is_left_to_their_sync,
        crowd_that_thins_out_a_little_stays_one,
        nobody_hurries_before_a_slow_sync,
        write_out_begins_with_the_write_and_flushes_sync_all_the_same,
        only_writes_to_the_page_cache_are_written_out_early,
        loss_that_early_write_out_meets_is_known_before_the_write_is_answered,
        no_success_is_answered_before_early_write_out_beside_it_has_ended,
        nothing_is_written_out_early_while_somebody_waits_for_that_to_end,
        failed_write_is_not_written_out_early,
        early_write_out_that_fails_harmlessly_is_given_up,
        NULL,
    };

    return unit_run("early", tests);
}
