/* SPDX-License-Identifier: BSD-3-Clause
 *
 * open.c: the one sync that a mode needs whose FLUSH does nothing, before it
 * serves anything (D6).  What else open does is in test-host.c.
 */
#include "unit.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The linker puts this in the place of fdatasync. */
int __wrap_fdatasync(int fd);

static unsigned nr_synced;
static ino_t synced; /* The file. */
static int error;    /* What it fails with, or 0. */

int
__wrap_fdatasync(int fd)
{
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    synced = st.st_ino;
    nr_synced++;
    errno = error;
    return error ? -1 : 0;
}

/* How often opening an image in the mode @cache syncs it. */
static unsigned
count_syncs(const char *cache, bool readonly)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const struct ubd_config config = {.path = path,
                                      .cache = cache,
                                      .readonly = readonly,
                                      .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    struct stat st;
    const char *why;

    nr_synced = 0;
    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    ubd_close(disk);
    ck_assert_int_eq(fstat(fd, &st), 0);
    close(fd);
    if (nr_synced)
        ck_assert_uint_eq(synced, st.st_ino);
    return nr_synced;
}

START_TEST(what_others_left_in_the_cache_is_durable_before_osync_serves_it)
{
    ck_assert_uint_eq(count_syncs("osync", false), 1);
    ck_assert_uint_eq(count_syncs("osync", true), 1);
    ck_assert_uint_eq(count_syncs("writethrough", false), 1);
}
END_TEST

START_TEST(open_syncs_nothing_where_flush_does_or_nothing_is_promised)
{
    ck_assert_uint_eq(count_syncs("barrier", false), 0);
    ck_assert_uint_eq(count_syncs("unsafe", false), 0);
}
END_TEST

START_TEST(image_that_cannot_be_synced_is_not_served_in_osync)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const struct ubd_config config = {
        .path = path, .cache = "osync", .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk = NULL;
    const char *why = NULL;

    error = EIO;
    ck_assert_int_eq(ubd_open(&config, &disk, &why), -EIO);
    ck_assert_ptr_null(disk);
    ck_assert_ptr_nonnull(why);
    ck_assert_ptr_nonnull(strstr(why, "could not be synced"));
    close(fd);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        what_others_left_in_the_cache_is_durable_before_osync_serves_it,
        open_syncs_nothing_where_flush_does_or_nothing_is_promised,
        image_that_cannot_be_synced_is_not_served_in_osync,
        NULL,
    };

    return unit_run("open", tests);
}
