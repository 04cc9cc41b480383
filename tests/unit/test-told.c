/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A loss is told to whoever runs the disk exactly once, and at once, whichever
 * call finds it.
 */
#include "unit.h"

#include <sched.h>

#define MIB (1024 * KIB)
#define SIZE (4 * MIB)

static const char data[MIB] = "some data";
static atomic_uint nr_told;
static atomic_int told; /* The error. */

static void
hear(int error)
{
    atomic_store(&told, error);
    atomic_fetch_add(&nr_told, 1);
}

/* From now on @disk tells us; it has nothing volatile. */
static struct ubd_disk *
listen_to(struct ubd_disk *disk)
{
    ck_assert_int_eq(ubd_flush(disk), 0);
    atomic_store(&nr_told, 0);
    disk->lost = hear;
    return disk;
}

static void
write_plain(struct ubd_disk *disk)
{
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, 0), 0);
}

/* It has been told, and whatever comes later does not tell it again. */
static void
check_told_once(struct ubd_disk *disk, int error)
{
    ck_assert_uint_eq(nr_told, 1);
    ck_assert_int_eq(told, error);
    for (unsigned i = 0; i < 3; i++) {
        write_plain(disk);
        ck_assert_int_eq(ubd_flush(disk), -error);
        ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -error);
        ck_assert_int_eq(ubd_trim(disk, 4096, 0, UBD_FUA), -error);
    }
    ck_assert_uint_eq(nr_told, 1);
}

START_TEST(loss_that_a_flush_finds_is_told_once)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = listen_to(unit_disk(fake, "barrier"));

    write_plain(disk);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -ENOSPC);
    ck_assert_int_eq(ubd_flush(disk), -ENOSPC);
    check_told_once(disk, ENOSPC);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_that_a_fua_write_finds_is_told_before_its_reply)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = listen_to(unit_disk(fake, "barrier"));

    write_plain(disk);
    fake_fault_once(fake, FAKE_DURABLE, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -EIO);
    check_told_once(disk, EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_that_a_fua_trim_finds_is_told_before_its_reply)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = listen_to(unit_disk(fake, "barrier"));

    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_trim(disk, 4096, 0, UBD_FUA), -EIO);
    check_told_once(disk, EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_that_the_write_out_finds_is_told_without_a_flush)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk =
        listen_to(unit_limited_disk(fake, "barrier", MIB, false));

    fake_fault_once(fake, FAKE_WAIT_WRITEOUT, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, data, MIB, 0, 0), 0);
    while (!atomic_load(&nr_told))
        sched_yield();
    check_told_once(disk, EIO);
    unit_close(disk, fake);
}
END_TEST

#define NR_FLUSHES 12

/* Some join a sync that fails, the others wait for the one after it. */
START_TEST(loss_that_many_flushes_hear_of_is_told_once)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = listen_to(unit_disk(fake, "barrier"));
    struct unit_job job[NR_FLUSHES];

    unit_limit_syncs(disk, 1);
    write_plain(disk);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -EIO);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    for (unsigned i = 0; i < NR_FLUSHES; i++) {
        if (i == NR_FLUSHES / 2) {
            unit_wait_flushers(disk, i - 1);
            write_plain(disk);
        }
        unit_start_flush(&job[i], disk);
    }
    unit_wait_flushers(disk, NR_FLUSHES - 1);
    ck_assert_uint_eq(nr_told, 0);
    fake_unhold(fake, FAKE_SYNC);
    for (unsigned i = 0; i < NR_FLUSHES; i++)
        ck_assert_int_eq(unit_join(&job[i]), -EIO);
    check_told_once(disk, EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failure_that_lost_nothing_is_not_told)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = listen_to(unit_disk(fake, "barrier"));

    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    fake_fault(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, 0), -ENOSPC);
    fake_fault_once(fake, FAKE_SYNC, FAKE_LOSE, -ENOSPC);
    ck_assert_int_eq(ubd_flush(disk), -ENOSPC); /* What was left of those. */
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(nr_told, 0);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        loss_that_a_flush_finds_is_told_once,
        loss_that_a_fua_write_finds_is_told_before_its_reply,
        loss_that_a_fua_trim_finds_is_told_before_its_reply,
        loss_that_the_write_out_finds_is_told_without_a_flush,
        loss_that_many_flushes_hear_of_is_told_once,
        failure_that_lost_nothing_is_not_told,
        NULL,
    };

    return unit_run("told", tests);
}
