/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ways to zero and to trim, on hosts that lack some of them.
 */
#include "unit.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (64 * KIB)

/* A disk full of 'x'. */
static struct ubd_disk *
full_disk(struct fake *fake)
{
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    memset(fake->cache, 'x', fake->size);
    return disk;
}

/* The host answers fallocate with all flags of @mode by @error. */
static void
refuse(struct fake *fake, int mode, int error)
{
    fake_script(fake, (struct fake_rule){.kind = FAKE_ALLOCATE,
                                         .fault = FAKE_FAIL,
                                         .mode = mode,
                                         .error = error});
}

/* Only [@offset, @offset + @len) is zero. */
static void
check_zeroed(struct fake *fake, uint64_t len, uint64_t offset)
{
    for (uint64_t i = 0; i < fake->size; i++) {
        const bool is_inside = i >= offset && i < offset + len;

        if (fake->cache[i] != (is_inside ? 0 : 'x'))
            ck_abort_msg("wrong byte at %lu", (unsigned long)i);
    }
}

static void
become_block_device(struct ubd_disk *disk)
{
    disk->host.is_block_device = true;
    disk->host.block_size = 4096;
}

START_TEST(zero_punches_where_it_may_and_allocates_where_it_may_not)
{
    for (unsigned flags = 0; flags <= UBD_MAY_TRIM; flags += UBD_MAY_TRIM) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = full_disk(fake);

        refuse(fake, flags ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE, -EIO);
        ck_assert_int_eq(ubd_zero(disk, 5000, 3, flags), 0);
        check_zeroed(fake, 5000, 3);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(zero_does_not_punch_if_trimming_is_switched_off)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    disk->info.trim = false;
    refuse(fake, FALLOC_FL_PUNCH_HOLE, -EIO);
    ck_assert_int_eq(ubd_zero(disk, 5000, 3, UBD_MAY_TRIM), 0);
    check_zeroed(fake, 5000, 3);
    unit_close(disk, fake);
}
END_TEST

/* The host lacks what the first @nr_lacking ways need. */
static void
lack(struct fake *fake, unsigned nr_lacking)
{
    static const int modes[] = {FALLOC_FL_ZERO_RANGE, FALLOC_FL_PUNCH_HOLE};

    for (unsigned i = 0; i < nr_lacking; i++)
        refuse(fake, modes[i], -EOPNOTSUPP);
}

START_TEST(zero_is_exact_to_the_byte_whatever_the_host_lacks)
{
    uint64_t seed = 1;

    for (unsigned i = 0; i < 120; i++) {
        const uint64_t offset = fake_random(&seed) % SIZE;
        const uint64_t len = 1 + fake_random(&seed) % (SIZE - offset);
        const unsigned flags = i % 2 ? UBD_MAY_TRIM : 0;
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = full_disk(fake);

        lack(fake, i % 3);
        if (i % 4 == 3) {
            become_block_device(disk);
            if (i % 8 == 7)
                fake_fault(fake, FAKE_ZEROOUT, FAKE_FAIL, -EOPNOTSUPP);
        }
        ck_assert_int_eq(ubd_zero(disk, len, offset, flags), 0);
        check_zeroed(fake, len, offset);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(what_is_unsupported_is_remembered)
{
    static const int errors[] = {-EOPNOTSUPP, -ENOSYS, -ENOTTY, -EINVAL};

    for (unsigned i = 0; i < 4; i++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = full_disk(fake);
        unsigned nr;

        refuse(fake, 0, errors[i]);
        ck_assert_int_eq(ubd_zero(disk, 100, 0, 0), 0);
        nr = fake_count(fake, FAKE_ALLOCATE);
        ck_assert_uint_gt(nr, 0);
        ck_assert_int_eq(ubd_zero(disk, 100, 200, 0), 0);
        ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE), nr);
        ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 2);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(failure_that_says_nothing_about_support_is_told_and_not_remembered)
{
    static const int errors[] = {-ENOSPC, -EIO, -EFBIG};

    for (unsigned i = 0; i < 3; i++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = full_disk(fake);

        fake_fault_once(fake, FAKE_ALLOCATE, FAKE_FAIL, errors[i]);
        ck_assert_int_eq(ubd_zero(disk, 100, 0, 0), errors[i]);
        ck_assert_int_eq(ubd_zero(disk, 100, 0, 0), 0);
        ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE), 2);
        ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(zero_keeps_the_space_where_only_holes_can_be_made)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    lack(fake, 1);
    ck_assert_int_eq(ubd_zero(disk, 5000, 3, 0), 0);
    /* ZERO_RANGE, refused; a hole; and space for it. */
    ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE), 3);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
    check_zeroed(fake, 5000, 3);
    unit_close(disk, fake);
}
END_TEST

START_TEST(fast_zero_never_writes)
{
    for (unsigned lacking = 1; lacking <= 2; lacking++) {
        for (unsigned flags = 0; flags <= UBD_MAY_TRIM; flags += UBD_MAY_TRIM) {
            struct fake *fake = fake_new(SIZE);
            struct ubd_disk *disk = full_disk(fake);
            int r;

            lack(fake, lacking);
            r = ubd_zero(disk, 5000, 3, flags | UBD_FAST_ONLY);
            if (flags && lacking == 1) {
                ck_assert_int_eq(r, 0);
                check_zeroed(fake, 5000, 3);
            } else {
                ck_assert_int_eq(r, -EOPNOTSUPP);
                check_zeroed(fake, 0, 0);
            }
            ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
            unit_close(disk, fake);
        }
    }
}
END_TEST

START_TEST(fast_zero_of_a_block_device_never_writes)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    become_block_device(disk);
    /* Less than a block, and without an offload. */
    ck_assert_int_eq(ubd_zero(disk, 100, 3, UBD_FAST_ONLY), -EOPNOTSUPP);
    ck_assert_int_eq(ubd_zero(disk, 8192, 0, UBD_FAST_ONLY), -EOPNOTSUPP);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_ZEROOUT), 0);
    check_zeroed(fake, 0, 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(block_device_zeroes_whole_blocks_and_the_rest_is_written)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    become_block_device(disk);
    refuse(fake, 0, -EOPNOTSUPP);
    ck_assert_int_eq(ubd_zero(disk, 12000, 100, 0), 0);
    check_zeroed(fake, 12000, 100);
    ck_assert_uint_eq(fake_count(fake, FAKE_ZEROOUT), 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 2);
    unit_close(disk, fake);
}
END_TEST

START_TEST(zeroes_that_span_no_whole_block_are_only_written)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    become_block_device(disk);
    ck_assert_int_eq(ubd_zero(disk, 200, 4000, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 1);
    check_zeroed(fake, 200, 4000);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failure_of_a_part_of_a_zero_is_the_answer)
{
    static const enum fake_kind kinds[] = {FAKE_ALLOCATE, FAKE_WRITE};

    for (unsigned i = 0; i < 2; i++) { /* The middle, or an edge. */
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = full_disk(fake);

        become_block_device(disk);
        fake_fault(fake, kinds[i], FAKE_FAIL, -EIO);
        ck_assert_int_eq(ubd_zero(disk, 12000, 100, 0), -EIO);
        ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), i);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(zeroes_that_are_written_to_a_file_are_written_to_their_end)
{
    const uint64_t size = 3 * UBD_BOUNCE_SIZE;
    struct fake *fake = fake_new(size);
    struct ubd_disk *disk = full_disk(fake);

    refuse(fake, 0, -EOPNOTSUPP);
    ck_assert_int_eq(ubd_zero(disk, size - 200, 100, 0), 0);
    check_zeroed(fake, size - 200, 100);
    ck_assert_int_eq(ubd_trim(disk, size, 0, 0), 0);
    /* Only block devices know these. */
    ck_assert_uint_eq(fake_count(fake, FAKE_ZEROOUT), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DISCARD), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(block_device_is_not_asked_to_reserve_space)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    become_block_device(disk);
    lack(fake, 1);
    ck_assert_int_eq(ubd_zero(disk, 8192, 0, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE), 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_ZEROOUT), 1);
    check_zeroed(fake, 8192, 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(trim_rounds_inward_to_whole_blocks)
{
    static const struct {
        uint64_t len, offset, trimmed, from;
    } cases[] = {
        {8192,  4096,  8192,  4096 },
        {8192,  4097,  4096,  8192 },
        {8191,  4096,  4096,  4096 },
        {4096,  1,     0,     0    },
        {100,   4096,  0,     0    },
        {100,   1,     0,     0    },
        {SIZE,  0,     SIZE,  0    },
        {12290, 16383, 12288, 16384},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = full_disk(fake);

        disk->host.block_size = 4096;
        ck_assert_int_eq(ubd_trim(disk, cases[i].len, cases[i].offset, 0), 0);
        ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE),
                          cases[i].trimmed > 0);
        check_zeroed(fake, cases[i].trimmed, cases[i].from);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(trim_up_to_the_end_includes_the_last_piece)
{
    struct fake *fake = fake_new(10000);
    struct ubd_disk *disk = full_disk(fake);

    disk->host.block_size = 4096;
    ck_assert_int_eq(ubd_trim(disk, 5000, 5000, 0), 0);
    check_zeroed(fake, 10000 - 8192, 8192);
    unit_close(disk, fake);
}
END_TEST

START_TEST(trim_that_the_host_cannot_do_succeeds_and_changes_nothing)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    refuse(fake, 0, -EOPNOTSUPP);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(ubd_trim(disk, SIZE, 0, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_ALLOCATE), 1);
    check_zeroed(fake, 0, 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(trim_of_a_block_device_discards_where_it_cannot_punch)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    become_block_device(disk);
    refuse(fake, 0, -EOPNOTSUPP);
    ck_assert_int_eq(ubd_trim(disk, 8192, 0, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DISCARD), 1);
    unit_close(disk, fake);
}
END_TEST

/* Linux drops it, and a flush that comes before the zeroes would miss it. */
START_TEST(what_a_zero_is_about_to_drop_is_written_out_first)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);
    struct unit_job zero;

    fake_hold(fake, FAKE_ALLOCATE, FAKE_RUNNING);
    unit_start(&zero, disk, UBD_KIND_ZERO, NULL, 8192, 4096, 0);
    fake_wait_held(fake, FAKE_ALLOCATE, 1);
    ck_assert_uint_eq(fake->piece[0].kind, FAKE_SUBMIT_WRITEOUT);
    ck_assert_uint_eq(fake->piece[1].kind, FAKE_WAIT_WRITEOUT);
    ck_assert_int_eq(fake->piece[1].mode, UBD_FINISH_WRITEOUT_FLAGS);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_uint_eq(fake->piece[i].offset, 4096);
        ck_assert_uint_eq(fake->piece[i].len, 8192);
    }
    fake_release(fake, FAKE_ALLOCATE, 0);
    ck_assert_int_eq(unit_join(&zero), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_trim_is_told)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = full_disk(fake);

    refuse(fake, 0, -EIO);
    ck_assert_int_eq(ubd_trim(disk, 8192, 0, 0), -EIO);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        zero_punches_where_it_may_and_allocates_where_it_may_not,
        zero_does_not_punch_if_trimming_is_switched_off,
        zero_is_exact_to_the_byte_whatever_the_host_lacks,
        what_is_unsupported_is_remembered,
        failure_that_says_nothing_about_support_is_told_and_not_remembered,
        zero_keeps_the_space_where_only_holes_can_be_made,
        fast_zero_never_writes,
        fast_zero_of_a_block_device_never_writes,
        block_device_zeroes_whole_blocks_and_the_rest_is_written,
        zeroes_that_span_no_whole_block_are_only_written,
        failure_of_a_part_of_a_zero_is_the_answer,
        zeroes_that_are_written_to_a_file_are_written_to_their_end,
        block_device_is_not_asked_to_reserve_space,
        trim_rounds_inward_to_whole_blocks,
        trim_up_to_the_end_includes_the_last_piece,
        trim_that_the_host_cannot_do_succeeds_and_changes_nothing,
        trim_of_a_block_device_discards_where_it_cannot_punch,
        what_a_zero_is_about_to_drop_is_written_out_first,
        failed_trim_is_told,
        NULL,
    };

    return unit_run("zero", tests);
}
