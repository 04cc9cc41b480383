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

/* Somebody other than the open file @fd has locked that byte. */
static bool
is_locked(int fd, off_t byte)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &lock), 0);
    return lock.l_type != F_UNLCK;
}

START_TEST(reader_locks_what_tells_qemu_that_it_reads_and_nothing_more)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const struct ubd_config config = {
        .path = path, .readonly = true, .lock = true, .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    for (off_t byte = 0; byte < 300; byte++) {
        const bool is_right = byte > 100 && byte < 105; /* Others than read. */
        const bool is_shared = byte == 200 || byte == 202 || byte == 204;

        ck_assert_msg(is_locked(fd, byte) == !(is_right || is_shared),
                      "byte %u", (unsigned)byte);
    }
    ck_assert(is_locked(fd, (off_t)1 << 40));
    ubd_close(disk);
    close(fd);
}
END_TEST

START_TEST(writer_locks_every_byte)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const struct ubd_config config = {
        .path = path, .lock = true, .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    for (off_t byte = 0; byte < 300; byte++)
        ck_assert(is_locked(fd, byte));
    ck_assert(is_locked(fd, (off_t)1 << 40));
    ubd_close(disk);
    close(fd);
}
END_TEST

/* What opening for reading says while @fd has a read lock of that range. */
static int
try_beside(int fd, const char *path, off_t start, off_t len)
{
    struct flock lock = {.l_type = F_RDLCK,
                         .l_whence = SEEK_SET,
                         .l_start = start,
                         .l_len = len};
    const char *why;
    int r;

    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
    r = try_open(path, true, true, &why);
    lock.l_type = F_UNLCK;
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return r;
}

START_TEST(reader_is_refused_beside_a_qemu_that_writes_or_resizes)
{
    char path[64];
    const int fd = unit_file(4096, path);

    ck_assert_int_eq(try_beside(fd, path, 101, 1), -EBUSY);
    ck_assert_int_eq(try_beside(fd, path, 103, 1), -EBUSY);
    ck_assert_int_eq(try_beside(fd, path, 100, 1), 0); /* It reads. */
    ck_assert_int_eq(try_beside(fd, path, 102, 1), 0);
    ck_assert_int_eq(try_beside(fd, path, 201, 1), 0); /* It shares not. */
    ck_assert_int_eq(try_beside(fd, path, 0, 0), 0);   /* User-Mode Linux. */
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

START_TEST(descriptor_can_do_what_was_asked_for_and_no_more)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const char *why;

    for (int readonly = 0; readonly < 2; readonly++) {
        const struct ubd_config config = {
            .path = path, .readonly = readonly, .io = UBD_IO_SYSCALLS};
        struct ubd_disk *disk;
        int flags;

        ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
        flags = fcntl(disk->host.fd, F_GETFL);
        ck_assert_int_eq(flags & O_ACCMODE, readonly ? O_RDONLY : O_RDWR);
        ck_assert_int_eq(flags & O_NONBLOCK, 0);
        ck_assert_int_eq(fcntl(disk->host.fd, F_GETFD), FD_CLOEXEC);
        ubd_close(disk);
    }
    close(fd);
}
END_TEST

/* Nobody may write this one, root included. */
START_TEST(file_that_cannot_be_written_is_refused_with_what_can_be_done)
{
    const char *path = "/sys/kernel/uevent_seqnum", *why;
    int r;

    if (access(path, R_OK) != 0)
        return;
    r = try_open(path, false, true, &why);
    ck_assert(r == -EACCES || r == -EROFS);
    ck_assert_ptr_nonnull(why);
    ck_assert_ptr_nonnull(strstr(why, "use -r"));
}
END_TEST

static unsigned
count_descriptors(void)
{
    unsigned nr = 0;

    for (int fd = 0; fd < 1024; fd++)
        nr += fcntl(fd, F_GETFD) >= 0;
    return nr;
}

/* The position belongs to the open file, as the cursor of errors does. */
START_TEST(lanes_are_as_many_as_asked_for_and_write_out_has_a_file_of_its_own)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const struct ubd_host_config config = {
        .path = path, .nr_syncs = 2, .nr_writes = 3, .writes_out = true};
    struct ubd_host host;
    const char *why;

    ck_assert_int_eq(ubd_host_open(&host, &config, &why), 0);
    ck_assert_uint_eq(host.sync_lanes.nr, 2);
    ck_assert_uint_eq(host.write_lanes.nr, 3);
    ck_assert_uint_eq(host.witness.nr, 1);
    ck_assert_int_eq(lseek(host.fd, 7, SEEK_SET), 7);
    ck_assert_int_eq(lseek(host.fd_writeout, 0, SEEK_CUR), 0);
    ubd_host_close(&host);
    close(fd);
}
END_TEST

static bool
has_direct(int fd)
{
    return fcntl(fd, F_GETFL) & O_DIRECT;
}

START_TEST(direct_is_on_all_descriptors_but_the_one_of_the_page_cache)
{
    const int fd = open(path_of("image"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct ubd_config config = {
        .path = path_of("image"), .direct = true, .io = UBD_IO_SYSCALLS};
    struct ubd_lane *lane;
    struct ubd_disk *disk;
    const char *why;
    char *buf;
    unsigned before;

    ck_assert_int_eq(ftruncate(fd, 1024 * KIB), 0);
    close(fd);
    before = count_descriptors();
    if (ubd_open(&config, &disk, &why) == -EINVAL)
        return; /* This file system refuses O_DIRECT. */
    ck_assert(ubd_info(disk)->direct);
    ck_assert(has_direct(disk->host.fd));
    ck_assert(!has_direct(disk->host.fd_buffered));
    lane = ubd_lanes_take(&disk->host.write_lanes);
    ck_assert(has_direct(lane->fd));
    ubd_lanes_give(&disk->host.write_lanes, lane, false);
    ck_assert_uint_ge(ubd_info(disk)->block_size, disk->host.align);
    ck_assert_uint_ge(disk->host.block_size, disk->host.align);

    /* The least that it says is possible is. */
    buf = aligned_alloc(65536, 2 * 65536);
    ck_assert_int_eq(pread(disk->host.fd, buf + disk->host.mem_align,
                           disk->host.align, disk->host.align),
                     disk->host.align);
    free(buf);
    ubd_close(disk);
    ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

START_TEST(failed_open_leaks_no_descriptor)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const unsigned before = count_descriptors();
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const char *why;

    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(try_open("/dev/null", false, true, &why), -EINVAL);
        ck_assert_int_eq(try_open(path, false, true, &why), -EBUSY);
    }
    ck_assert_uint_eq(count_descriptors(), before);
    close(fd);
}
END_TEST

START_TEST(closed_disk_leaves_no_descriptor)
{
    char path[64];
    const int fd = unit_file(4096, path);
    const unsigned before = count_descriptors();
    const char *why;

    for (unsigned i = 0; i < 6; i++) {
        const struct ubd_config config = {.path = path,
                                          .cache = ubd_mode_name(i / 2),
                                          .readonly = i % 2,
                                          .dirty_limit = UBD_DIRTY_LIMIT_AUTO,
                                          .io = UBD_IO_SYSCALLS};
        struct ubd_disk *disk;

        ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
        ubd_close(disk);
        ck_assert_uint_eq(count_descriptors(), before);
    }
    close(fd);
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

START_TEST(what_has_been_cut_off_is_no_hole)
{
    char path[64];
    const int fd = unit_file(8 * 4096, path);
    const struct ubd_config config = {.path = path, .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;
    uint64_t end;
    bool is_hole;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    ck_assert_int_eq(ubd_start(disk), 0);
    ck_assert_str_eq(map_of(disk, 8 * 4096, 0, false).letters, "HHHHHHHH");
    ck_assert_int_eq(ftruncate(fd, 3 * 4096), 0);
    ck_assert_str_eq(map_of(disk, 8 * 4096, 0, false).letters, "HHHDDDDD");
    ck_assert_str_eq(map_of(disk, 2 * 4096, 3 * 4096, false).letters, "DD");
    ck_assert_str_eq(map_of(disk, 4096, 2 * 4096, false).letters, "H");
    for (unsigned block = 3; block < 8; block++) {
        ck_assert_int_eq(
            ubd_host_extent(&disk->host, block * 4096, &end, &is_hole), 0);
        ck_assert(!is_hole);
        ck_assert_uint_eq(end, 8 * 4096);
    }
    ck_assert_int_eq(ftruncate(fd, 12 * 4096), 0);
    ck_assert_str_eq(map_of(disk, 8 * 4096, 0, false).letters, "HHHHHHHH");
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
    static const char *const names[] = {"fifo", "socket", "dangling", "loop",
                                        "image"};

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
        reader_locks_what_tells_qemu_that_it_reads_and_nothing_more,
        writer_locks_every_byte,
        reader_is_refused_beside_a_qemu_that_writes_or_resizes,
        size_is_that_of_the_file_when_it_was_opened,
        descriptor_can_do_what_was_asked_for_and_no_more,
        file_that_cannot_be_written_is_refused_with_what_can_be_done,
        direct_is_on_all_descriptors_but_the_one_of_the_page_cache,
        lanes_are_as_many_as_asked_for_and_write_out_has_a_file_of_its_own,
        failed_open_leaks_no_descriptor,
        closed_disk_leaves_no_descriptor,
        extents_cover_the_request_and_no_more,
        what_has_been_cut_off_is_no_hole,
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
