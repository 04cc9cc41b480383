/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Plain system calls on a real file, and the loop that every io shares.
 */
#include "unit.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ubd_io *
open_io(void)
{
    struct ubd_io *io;

    ck_assert_int_eq(ubd_io_syscalls_open(&io), 0);
    return io;
}

/* Run a request of @op for [0, @len) of @fd. */
static int
run(int fd, enum ubd_op op, void *buf, uint64_t len, int mode)
{
    const struct ubd_req req = {
        .op = op, .fd = fd, .buf = buf, .len = len, .mode = mode};
    struct ubd_io *io = open_io();
    const int r = ubd_io_run(io, &req);

    io->ops->close(io);
    return r;
}

START_TEST(what_was_written_is_read_back)
{
    char path[64], out[10000], in[10000];
    const int fd = unit_file(sizeof out, path);

    memset(out, 'x', sizeof out);
    ck_assert_int_eq(run(fd, UBD_OP_WRITE, out, sizeof out, 0), 0);
    ck_assert_int_eq(run(fd, UBD_OP_READ, in, sizeof in, 0), 0);
    ck_assert_mem_eq(in, out, sizeof in);
    ck_assert_int_eq(run(fd, UBD_OP_SYNC, NULL, 0, 0), 0);
    ck_assert_int_eq(run(fd, UBD_OP_SYNC_PAGE, NULL, 0, 100), 0);
    ck_assert_int_eq(run(fd, UBD_OP_PREFETCH, NULL, sizeof in, 0), 0);
    close(fd);
}
END_TEST

START_TEST(read_behind_the_end_is_eio)
{
    char path[64], buf[200];
    const int fd = unit_file(100, path);

    ck_assert_int_eq(run(fd, UBD_OP_READ, buf, 100, 0), 0);
    ck_assert_int_eq(run(fd, UBD_OP_READ, buf, 101, 0), -EIO);
    close(fd);
}
END_TEST

START_TEST(durable_write_reaches_the_file)
{
    char path[64], out[] = "durable", in[8];
    const int fd = unit_file(4096, path);
    const struct ubd_req req = {.op = UBD_OP_WRITE,
                                .fd = fd,
                                .buf = out,
                                .len = 8,
                                .offset = 100,
                                .is_durable = true};
    struct ubd_io *io = open_io();

    ck_assert_int_eq(ubd_io_run(io, &req), 0);
    io->ops->close(io);
    ck_assert_int_eq(pread(fd, in, 8, 100), 8);
    ck_assert_str_eq(in, out);
    close(fd);
}
END_TEST

START_TEST(hole_is_punched_and_the_length_kept)
{
    static const char zeroes[8192];
    char path[64], buf[8192];
    const int fd = unit_file(8192, path);
    struct stat st;

    memset(buf, 'x', sizeof buf);
    ck_assert_int_eq(run(fd, UBD_OP_WRITE, buf, sizeof buf, 0), 0);
    ck_assert_int_eq(run(fd, UBD_OP_ALLOCATE, NULL, sizeof buf,
                         FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE),
                     0);
    ck_assert_int_eq(run(fd, UBD_OP_READ, buf, sizeof buf, 0), 0);
    ck_assert_mem_eq(buf, zeroes, sizeof buf);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_blocks, 0);
    ck_assert_int_eq(st.st_size, sizeof buf);
    close(fd);
}
END_TEST

START_TEST(failure_is_the_errno_of_the_call)
{
    char path[64], buf[16] = "";
    const int fd = unit_file(4096, path);
    const int readonly = open(path, O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(readonly, 0);
    ck_assert_int_eq(run(readonly, UBD_OP_WRITE, buf, 16, 0), -EBADF);
    ck_assert_int_eq(run(-1, UBD_OP_READ, buf, 16, 0), -EBADF);
    ck_assert_int_eq(run(-1, UBD_OP_SYNC, NULL, 0, 0), -EBADF);
    ck_assert_int_eq(run(-1, UBD_OP_SYNC_PAGE, NULL, 0, 0), -EBADF);
    ck_assert_int_eq(run(-1, UBD_OP_PREFETCH, NULL, 16, 0), -EBADF);
    ck_assert_int_eq(run(readonly, UBD_OP_ALLOCATE, NULL, 16, 0), -EBADF);
    ck_assert_int_eq(run(fd, UBD_OP_ZEROOUT, NULL, 4096, 0), -ENOTTY);
    ck_assert_int_eq(run(fd, UBD_OP_DISCARD, NULL, 4096, 0), -ENOTTY);
    close(readonly);
    close(fd);
}
END_TEST

/* An io that moves no bytes and notes what it was asked for. */
struct counting_io {
    struct ubd_io io;
    uint64_t largest, sum, next_offset;
    unsigned nr;
};

static int64_t
count_attempt(struct ubd_io *io, const struct ubd_req *req)
{
    struct counting_io *c = (struct counting_io *)io;

    ck_assert_uint_eq(req->offset, c->next_offset);
    if (req->len > c->largest)
        c->largest = req->len;
    c->sum += req->len;
    c->next_offset += req->len;
    c->nr++;
    return req->len;
}

START_TEST(no_transfer_is_larger_than_linux_can_do)
{
    static const struct ubd_io_ops ops = {.attempt = count_attempt};
    struct counting_io c = {.io.ops = &ops, .next_offset = 512};
    static char buf[1]; /* Never looked at. */
    const struct ubd_req req = {
        .op = UBD_OP_WRITE, .buf = buf, .offset = 512, .len = UINT32_MAX};

    ck_assert_int_eq(ubd_io_run(&c.io, &req), 0);
    ck_assert_uint_le(c.largest, INT32_MAX - 4095);
    ck_assert_uint_eq(c.largest % 4096, 0);
    ck_assert_uint_eq(c.sum, UINT32_MAX);
}
END_TEST

START_TEST(request_without_a_transfer_is_made_once_in_full)
{
    static const struct ubd_io_ops ops = {.attempt = count_attempt};
    struct counting_io c = {.io.ops = &ops};
    const struct ubd_req req = {.op = UBD_OP_ALLOCATE, .len = UINT32_MAX};

    ck_assert_int_eq(ubd_io_run(&c.io, &req), 0);
    ck_assert_uint_eq(c.nr, 1);
    ck_assert_uint_eq(c.sum, UINT32_MAX);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        what_was_written_is_read_back,
        read_behind_the_end_is_eio,
        durable_write_reaches_the_file,
        hole_is_punched_and_the_length_kept,
        failure_is_the_errno_of_the_call,
        no_transfer_is_larger_than_linux_can_do,
        request_without_a_transfer_is_made_once_in_full,
        NULL,
    };

    return unit_run("io-syscalls", tests);
}
