/* SPDX-License-Identifier: BSD-3-Clause */
/* See test-disk.h. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test-disk.h"

struct diskmodel *disk;
static char path[64];
static int path_fd;

static void
open_disk(void)
{
    const struct diskmodel_settings settings = {0};

    ck_assert_int_eq(diskmodel_open(path, DISK_SIZE, &settings, &disk), 0);
}

/* The durable state is anonymous memory that has a name while it is open. */
static void
setup(void)
{
    path_fd = memfd_create("durable", MFD_CLOEXEC);
    ck_assert_int_ge(path_fd, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", path_fd);
    open_disk();
}

static void
teardown(void)
{
    diskmodel_close(disk);
    close(path_fd);
}

struct diskmodel_op *
begin(int byte, uint64_t at, uint64_t nr, bool fua)
{
    unsigned char buf[64 * SECTOR];
    struct diskmodel_op *op;

    ck_assert_uint_le(nr, 64);
    memset(buf, byte, nr * SECTOR);
    ck_assert_int_eq(diskmodel_begin(disk, DISKMODEL_WRITE, buf, nr * SECTOR,
                                     at * SECTOR, fua, &op),
                     0);
    return op;
}

struct diskmodel_op *
begin_flush(void)
{
    struct diskmodel_op *op;

    ck_assert_int_eq(
        diskmodel_begin(disk, DISKMODEL_FLUSH, NULL, 0, 0, false, &op), 0);
    return op;
}

void
finish(struct diskmodel_op *op)
{
    ck_assert_int_eq(diskmodel_finish(disk, op), 0);
}

void
put(int byte, uint64_t at, uint64_t nr)
{
    finish(begin(byte, at, nr, false));
}

int
get(uint64_t at)
{
    unsigned char buf[SECTOR];
    unsigned i;

    ck_assert_int_eq(diskmodel_read(disk, buf, SECTOR, at * SECTOR), 0);
    for (i = 1; i < SECTOR; i++) {
        if (buf[i] != buf[0])
            return -1;
    }
    return buf[0];
}

void
cut(uint64_t seed, enum diskmodel_cut_mode mode)
{
    ck_assert_int_eq(diskmodel_cut(disk, seed, mode), 0);
    ck_assert_int_eq(diskmodel_power_on(disk), 0);
}

struct diskmodel_stats
stats(void)
{
    struct diskmodel_stats s;

    diskmodel_get_stats(disk, &s);
    return s;
}

void
reopen_disk(void)
{
    diskmodel_close(disk);
    open_disk();
}

int
run_tests(const char *name, const TTest *const *tests, size_t nr)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    SRunner *runner;
    size_t i;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    for (i = 0; i < nr; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
