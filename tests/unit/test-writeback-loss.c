/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Failures that the write-out meets: it is told of some of them before any
 * flush, and must neither keep them for itself nor make too much of them.
 */
#include "unit.h"

#include <sched.h>
#include <string.h>

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

static void
wait_loss(struct ubd_disk *disk)
{
    while (ubd_loss(disk) == 0)
        sched_yield();
}

/* What was dirty has been written out, or lost. */
static void
wait_clean(struct ubd_disk *disk)
{
    while (ubd_writeback_dirty(&disk->writeback) > 0)
        sched_yield();
}

static void
check_lost(struct ubd_disk *disk, int error)
{
    for (unsigned i = 0; i < 20; i++) { /* More than there are sync lanes. */
        ck_assert_int_eq(ubd_flush(disk), error);
        ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), error);
        ck_assert_int_eq(ubd_zero(disk, 4096, 0, UBD_FUA), error);
    }
    ck_assert_int_eq(ubd_loss(disk), -error);
}

START_TEST(loss_that_the_write_out_is_told_of_is_known_before_any_flush)
{
    for (int has_synced = 0; has_synced < 2; has_synced++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk =
            unit_limited_disk(fake, "barrier", LIMIT, false);
        char buf[4096];

        if (has_synced)
            ck_assert_int_eq(ubd_flush(disk), 0);
        fake_fault_once(fake, FAKE_WAIT_WRITEOUT, FAKE_LOSE, -ENOSPC);
        /* While the write is under way, nothing acknowledged is lost yet. */
        fake_hold(fake, FAKE_START_WRITEOUT, FAKE_RUNNING);
        write_at(disk, 0, START);
        fake_unhold(fake, FAKE_START_WRITEOUT);
        wait_loss(disk);
        check_lost(disk, -ENOSPC);
        ck_assert_int_eq(ubd_read(disk, buf, 4096, 0), 0);
        ck_assert_mem_eq(buf, data, 4096);
        write_at(disk, 0, 4 * MIB); /* Goes on, as it promises nothing. */
        unit_close(disk, fake);
    }
}
END_TEST

static bool
ignore(void *opaque)
{
    (void)opaque;
    return true;
}

START_TEST(stream_that_was_lost_stays_readable)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", 256 * MIB, true);
    struct ubd_stats stats;
    char buf[4096];

    fake_fault_once(fake, FAKE_WAIT_WRITEOUT, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, data, sizeof data, 0, 0), 0);
    do {
        sched_yield();
        ubd_stats(disk, &stats);
    } while (stats.dirty_bytes > MIB);
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 0), 0);
    ck_assert_mem_eq(buf, data, 4096);
    unit_close(disk, fake);
}
END_TEST

START_TEST(report_that_the_write_out_takes_is_left_for_every_sync)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);
    const struct ubd_lanes *lanes = &disk->host.sync_lanes;

    disk->writeback.config.failed = ignore; /* As if it told nobody. */
    for (unsigned i = 0; i < lanes->nr; i++)
        ck_assert_int_ne(disk->host.fd_writeout, lanes->lanes[i].fd);
    ck_assert_int_ne(disk->host.fd_writeout, disk->host.fd);
    fake_fault_once(fake, FAKE_WAIT_WRITEOUT, FAKE_LOSE, -EIO);
    write_at(disk, 0, START);
    wait_clean(disk);
    ck_assert_int_eq(ubd_loss(disk), 0);
    check_lost(disk, -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_that_only_the_start_of_write_out_is_told_of_is_known)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);

    ck_assert_int_eq(ubd_flush(disk), 0);
    write_at(disk, 0, 4096);
    fake_lose(fake, -EIO);
    write_at(disk, MIB, START);
    wait_loss(disk);
    check_lost(disk, -EIO);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failure_that_lost_nothing_acknowledged_does_not_disable_the_disk)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -ENOSPC);
    fake_heal(fake);
    write_at(disk, MIB, START); /* Its start is told of that. */
    wait_clean(disk);
    ck_assert_uint_ge(fake_count(fake, FAKE_WAIT_WRITEOUT), 1);
    unit_wait_asleep(disk);
    write_at(disk, 2 * MIB, START);
    wait_clean(disk);
    ck_assert_int_eq(ubd_loss(disk), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), 0);
    ck_assert_mem_eq(fake->stable + MIB, data, START);
    unit_close(disk, fake);
}
END_TEST

START_TEST(host_that_refuses_to_write_out_is_synced_instead)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);

    fake_fault(fake, FAKE_START_WRITEOUT, FAKE_FAIL, -EPERM);
    fake_fault(fake, FAKE_WAIT_WRITEOUT, FAKE_FAIL, -EPERM);
    for (unsigned i = 0; i < 64; i++)
        write_at(disk, i * 64 * KIB, 64 * KIB);
    fake_wait_count(fake, FAKE_SYNC, 1);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(loss_while_a_flush_is_under_way_fails_that_flush)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, false);
    struct unit_job flush;

    unit_limit_syncs(disk, 1); /* So that write-out's question has to wait. */
    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault_once(fake, FAKE_WAIT_WRITEOUT, FAKE_LOSE, -EIO);
    fake_hold(fake, FAKE_WAIT_WRITEOUT, FAKE_RUNNING);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    write_at(disk, 0, START);
    fake_wait_held(fake, FAKE_WAIT_WRITEOUT, 1);
    unit_start_flush(&flush, disk);
    fake_wait_held(fake, FAKE_SYNC, 1);
    fake_unhold(fake, FAKE_WAIT_WRITEOUT); /* Both are told. */
    unit_wait_flushers(disk, 1);
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&flush), -EIO);
    check_lost(disk, -EIO);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        loss_that_the_write_out_is_told_of_is_known_before_any_flush,
        stream_that_was_lost_stays_readable,
        report_that_the_write_out_takes_is_left_for_every_sync,
        loss_that_only_the_start_of_write_out_is_told_of_is_known,
        failure_that_lost_nothing_acknowledged_does_not_disable_the_disk,
        host_that_refuses_to_write_out_is_synced_instead,
        loss_while_a_flush_is_under_way_fails_that_flush,
        NULL,
    };

    return unit_run("writeback-loss", tests);
}
