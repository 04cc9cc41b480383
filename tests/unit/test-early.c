/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Write-out that begins with the write, since a flush is expected to wait for
 * it: when one is expected, and that nothing is durable or hidden by it.
 */
#include "by-hand.h"

#define SIZE (64 * KIB)
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

static void
learn_to_expect(struct ubd_durability *d)
{
    ubd_durability_init(d, false, 1);
    ck_assert(!ubd_durability_expects_flush(d, 1));
    for (unsigned i = 0; i < TO_LEARN; i++)
        write_and_flush(d, 4096);
}

START_TEST(flush_is_expected_when_little_was_written_between_others)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    ck_assert(ubd_durability_expects_flush(&d, 4096));
    write_and_flush(&d, MIB << 20); /* One burst does not end it for long. */
    for (unsigned i = 0; i < TO_LEARN; i++)
        write_and_flush(&d, 4096);
    ck_assert(ubd_durability_expects_flush(&d, 4096));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(no_flush_is_expected_when_much_was_written_between_others)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    for (unsigned i = 0; i < TO_LEARN; i++)
        write_and_flush(&d, 1 * MIB);
    ck_assert(!ubd_durability_expects_flush(&d, 4096));
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(flush_that_does_not_come_is_no_longer_expected)
{
    struct ubd_durability d;

    learn_to_expect(&d);
    for (unsigned i = 0; i < UBD_NR_SHARDS; i++) /* We may wander. */
        for (unsigned kib = 0; kib < 256; kib += 4)
            (void)ubd_durability_expects_flush(&d, 4096);
    ck_assert(!ubd_durability_expects_flush(&d, 4096));
    write_and_flush(&d, 4096);
    ck_assert(ubd_durability_expects_flush(&d, 4096));
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
        f.sync.ns = 8000000;
        ck_assert_int_eq(ubd_durability_finish(&d, &f.sync, 0), 0);
    }
    ck_assert(!ubd_durability_expects_flush(&d, 4096));
    ubd_durability_destroy(&d);
}
END_TEST

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
    nr = fake_count(fake, FAKE_SUBMIT_WRITEOUT);
    ck_assert_uint_gt(nr, 0);
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
    fake_fault_once(fake, FAKE_SUBMIT_WRITEOUT, FAKE_FAIL, -EIO);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_loss(disk), EIO);
    ck_assert_int_eq(ubd_flush(disk), -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(early_write_out_that_fails_harmlessly_is_given_up)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    unsigned nr;

    write_and_flush_disk(disk);
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
        nobody_hurries_before_a_slow_sync,
        write_out_begins_with_the_write_and_flushes_sync_all_the_same,
        only_writes_to_the_page_cache_are_written_out_early,
        loss_that_early_write_out_meets_is_known_before_the_write_is_answered,
        early_write_out_that_fails_harmlessly_is_given_up,
        NULL,
    };

    return unit_run("early", tests);
}
