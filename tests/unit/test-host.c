/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening an image: what is refused and why, locks, size, extents.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/ubd-unit-XXXXXX"; /* main removes it. */

static const char *
path_of(const char *name)
{
    static char path[64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int
try_open(const char *path, bool readonly, bool lock, const char **ret_why)
{
    const struct ubd_config config = {.path = path,
                                      .readonly = readonly,
                                      .lock = lock,
                                      .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk = NULL;
    const int r = ubd_open(&config, &disk, ret_why);

    if (r == 0)
        ubd_close(disk);
    return r;
}

static void
check_refused(const char *name, int error, const char *word)
{
    const char *path = name[0] == '/' ? name : path_of(name);
    const char *why;

    for (int readonly = 0; readonly < 2; readonly++) {
        ck_assert_int_eq(try_open(path, readonly, true, &why), error);
        ck_assert_ptr_nonnull(why);
        if (!strstr(why, word))
            ck_abort_msg("%s: \"%s\" does not say \"%s\"", name, why, word);
    }
}

static void
make_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, path_of("socket"));
    ck_assert_int_eq(bind(fd, (void *)&address, sizeof address), 0);
    close(fd);
}

START_TEST(what_is_no_image_is_refused_with_the_reason)
{
    ck_assert_int_eq(mkfifo(path_of("fifo"), 0600), 0);
    ck_assert_int_eq(symlink("nowhere", path_of("dangling")), 0);
    ck_assert_int_eq(symlink("loop", path_of("loop")), 0);
    make_socket();
    check_refused(folder, -EINVAL, "directory");
    check_refused("fifo", -EINVAL, "FIFO");
    check_refused("socket", -EINVAL, "socket");
    check_refused("/dev/null", -EINVAL, "character device");
    check_refused("missing", -ENOENT, "not exist");
    check_refused("dangling", -ENOENT, "dangling");
    check_refused("loop", -ELOOP, "loop");
}
END_TEST

START_TEST(unknown_mode_is_refused_before_the_file_is_touched)
{
    const struct ubd_config config = {.path = "/nowhere", .cache = "writeonce"};
    struct ubd_disk *disk;
    const char *why;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "cache mode"));
}
END_TEST

START_TEST(writer_excludes_everybody_and_readers_share)
{
    char path[64];
    const int fd = unit_file(4096, path);
    struct ubd_config config = {
        .path = path, .lock = true, .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    ck_assert_int_eq(try_open(path, false, true, &why), -EBUSY);
    ck_assert_ptr_nonnull(strstr(why, "locked"));
    ck_assert_int_eq(try_open(path, true, true, &why), -EBUSY);
    ck_assert_int_eq(try_open(path, false, false, &why), 0);
    ubd_close(disk);

    config.readonly = true;
    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    ck_assert_int_eq(try_open(path, true, true, &why), 0);
    ck_assert_int_eq(try_open(path, false, true, &why), -EBUSY);
    ubd_close(disk);
    ck_assert_int_eq(try_open(path, false, true, &why), 0);
    close(fd);
}
END_TEST

START_TEST(size_is_that_of_the_file_when_it_was_opened)
{
    char path[64];
    const int fd = unit_file(12345, path);
    const struct ubd_config config = {.path = path, .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;
    char buf[512];

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    ck_assert_int_eq(ubd_start(disk), 0);
    ck_assert_uint_eq(ubd_info(disk)->size, 12345);
    ck_assert_int_eq(ftruncate(fd, 1000), 0);
    ck_assert_uint_eq(ubd_info(disk)->size, 12345);
    ck_assert_int_eq(ubd_read(disk, buf, 512, 0), 0);
    ck_assert_int_eq(ubd_read(disk, buf, 512, 900), -EIO);
    ck_assert_int_eq(ubd_read(disk, buf, 512, 5000), -EIO);
    ubd_close(disk);
    close(fd);
}
END_TEST

START_TEST(failed_open_leaks_no_descriptor)
{
    const char *why;
    const int before = dup(0);
    int after;

    for (unsigned i = 0; i < 3; i++)
        try_open("/dev/null", false, true, &why);
    after = dup(0);
    ck_assert_int_eq(after, before + 1);
    close(after);
    close(before);
}
END_TEST

/* Extents as a string of D and H, a letter for each block. */
struct map {
    char letters[64];
    uint64_t at; /* Where the next piece must begin. */
    unsigned nr_pieces;
};

static int
add_piece(void *opaque, uint64_t offset, uint64_t len, bool is_hole)
{
    struct map *map = opaque;

    ck_assert_uint_eq(offset, map->at);
    ck_assert_uint_gt(len, 0);
    map->at += len;
    map->nr_pieces++;
    for (uint64_t i = 0; i < len / 4096; i++)
        strcat(map->letters, is_hole ? "H" : "D");
    return 0;
}

static struct map
map_of(struct ubd_disk *disk, uint32_t len, uint64_t offset, bool one)
{
    struct map map = {.at = offset};

    ck_assert_int_eq(ubd_extents(disk, len, offset, one, add_piece, &map), 0);
    ck_assert_uint_le(map.at, offset + len);
    return map;
}

START_TEST(extents_cover_the_request_and_no_more)
{
    char path[64], block[4096] = "x";
    const int fd = unit_file(8 * 4096, path);
    const struct ubd_config config = {.path = path, .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    ck_assert_int_eq(ubd_start(disk), 0);
    ck_assert(ubd_info(disk)->can_extents);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 2 * 4096, 0), 0);
    ck_assert_int_eq(ubd_write(disk, block, 4096, 3 * 4096, 0), 0);
    ck_assert_str_eq(map_of(disk, 8 * 4096, 0, false).letters, "HHDDHHHH");
    ck_assert_str_eq(map_of(disk, 2 * 4096, 4096, false).letters, "HD");
    ck_assert_str_eq(map_of(disk, 4096, 3 * 4096, false).letters, "D");
    ck_assert_str_eq(map_of(disk, 4096, 7 * 4096, false).letters, "H");
    ck_assert_uint_eq(map_of(disk, 8 * 4096, 0, true).nr_pieces, 1);
    ck_assert_str_eq(map_of(disk, 8 * 4096, 0, true).letters, "HH");
    ubd_close(disk);
    close(fd);
}
END_TEST

static int
stop_at_once(void *opaque, uint64_t offset, uint64_t len, bool is_hole)
{
    (void)offset;
    (void)len;
    (void)is_hole;
    ++*(unsigned *)opaque;
    return 5;
}

START_TEST(extents_stop_when_they_are_told_to)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    unsigned nr = 0;

    ck_assert_int_eq(ubd_extents(disk, 64 * KIB, 0, false, stop_at_once, &nr),
                     5);
    ck_assert_uint_eq(nr, 1);
    unit_close(disk, fake);
}
END_TEST

static void
remove_folder(void)
{
    static const char *const names[] = {"fifo", "socket", "dangling", "loop"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(path_of(names[i])); /* May not have been made. */
    (void)rmdir(folder);
}

int
main(void)
{
    const TTest *const tests[] = {
        what_is_no_image_is_refused_with_the_reason,
        unknown_mode_is_refused_before_the_file_is_touched,
        writer_excludes_everybody_and_readers_share,
        size_is_that_of_the_file_when_it_was_opened,
        failed_open_leaks_no_descriptor,
        extents_cover_the_request_and_no_more,
        extents_stop_when_they_are_told_to,
        NULL,
    };
    int r;

    if (!mkdtemp(folder)) {
        perror(folder);
        return EXIT_FAILURE;
    }
    r = unit_run("host", tests);
    remove_folder();
    return r;
}
