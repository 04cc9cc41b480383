/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Plain system calls on a real file, and the loop that every io shares.
 */
#include "unit.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The linker puts these in the place of the calls (--wrap in meson.build); they
 * note what they are asked for, and ask it.
 */
#define WRAP(type, name, ...)        \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

static struct {
    const char *name;
    uint64_t offset, len;
    unsigned long flags;
} asked; /* The last one. */

static int nr_mapped;

static void
note(const char *name, uint64_t offset, uint64_t len, unsigned long flags)
{
    asked.name = name;
    asked.offset = offset;
    asked.len = len;
    asked.flags = flags;
}

WRAP(ssize_t, preadv64v2, int fd, const struct iovec *iov, int nr, off_t offset,
     int flags)
{
    note("preadv2", offset, iov->iov_len, flags);
    return __real_preadv64v2(fd, iov, nr, offset, flags);
}

WRAP(ssize_t, pwritev64v2, int fd, const struct iovec *iov, int nr,
     off_t offset, int flags)
{
    note("pwritev2", offset, iov->iov_len, flags);
    return __real_pwritev64v2(fd, iov, nr, offset, flags);
}

WRAP(int, sync_file_range, int fd, off_t offset, off_t len, unsigned flags)
{
    note("sync_file_range", offset, len, flags);
    return __real_sync_file_range(fd, offset, len, flags);
}

WRAP(int, posix_fadvise64, int fd, off_t offset, off_t len, int advice)
{
    note("posix_fadvise", offset, len, advice);
    return __real_posix_fadvise64(fd, offset, len, advice);
}

WRAP(int, fdatasync, int fd)
{
    note("fdatasync", 0, 0, 0);
    return __real_fdatasync(fd);
}

WRAP(void *, mmap64, void *at, size_t len, int prot, int flags, int fd,
     off_t offset)
{
    void *map = __real_mmap64(at, len, prot, flags, fd, offset);

    nr_mapped += map != MAP_FAILED;
    asked.offset = offset;
    return map;
}

WRAP(int, munmap, void *map, size_t len)
{
    nr_mapped--;
    return __real_munmap(map, len);
}

WRAP(int, msync, void *map, size_t len, int flags)
{
    note("msync", asked.offset, len, flags);
    return __real_msync(map, len, flags);
}

int __wrap_ioctl(int fd, unsigned long request, ...);

int
__wrap_ioctl(int fd, unsigned long request, ...) /* Of no file of ours. */
{
    va_list args;
    const uint64_t *range;

    va_start(args, request);
    range = va_arg(args, const uint64_t *);
    va_end(args);
    note("ioctl", range[0], range[1], request);
    errno = fd < 0 ? EBADF : ENOTTY;
    return -1;
}

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

/* A file may not grow here beyond @max bytes. */
static void
limit_files(rlim_t max)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(write_by_the_shortest_way_is_all_or_to_be_run)
{
    char path[64], out[8192], in[8192];
    const int fd = unit_file(0, path);
    struct ubd_io *io = open_io();
    const struct ubd_io_ops other = {.name = "without pwrite"};
    const struct ubd_io without = {.ops = &other};

    memset(out, 'x', sizeof out);
    ck_assert(ubd_io_write_cached(io, fd, out, 4096, 0));
    ck_assert_int_eq(pread(fd, in, sizeof in, 0), 4096);
    ck_assert_mem_eq(in, out, 4096);
    limit_files(4096); /* Linux writes what still fits, and says how much. */
    ck_assert(!ubd_io_write_cached(io, fd, out, 8192, 0));
    ck_assert(!ubd_io_write_cached(io, fd, out, 4096, 4096));
    limit_files(RLIM_INFINITY);
    ck_assert(!ubd_io_write_cached(&without, fd, out, 8192, 0));
    ck_assert_int_eq(pread(fd, in, sizeof in, 0), 4096);
    io->ops->close(io);
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

/* Whether the file can do it does not matter here. */
static void
check_asked(int64_t result, const char *name, uint64_t offset, uint64_t len,
            unsigned long flags)
{
    ck_assert_int_le(result, 8192);
    ck_assert_ptr_nonnull(asked.name);
    ck_assert_str_eq(asked.name, name);
    ck_assert_uint_eq(asked.offset, offset);
    ck_assert_uint_eq(asked.len, len);
    ck_assert_uint_eq(asked.flags, flags);
    note(NULL, 0, 0, 0);
}

START_TEST(every_request_is_the_call_that_does_it)
{
    char path[64], buf[8192] = "";
    const int fd = unit_file(64 * KIB, path);
    struct ubd_req req = {.fd = fd, .buf = buf, .offset = 4096, .len = 8192};

    req.op = UBD_OP_READ;
    check_asked(ubd_io_cached_read(&req), "preadv2", 4096, 8192, RWF_NOWAIT);
    req.op = UBD_OP_WRITE;
    req.is_durable = true;
    check_asked(ubd_io_syscall(&req), "pwritev2", 4096, 8192, RWF_DSYNC);
    req.op = UBD_OP_SYNC;
    check_asked(ubd_io_syscall(&req), "fdatasync", 0, 0, 0);
    req.op = UBD_OP_ZEROOUT;
    check_asked(ubd_io_syscall(&req), "ioctl", 4096, 8192, BLKZEROOUT);
    req.op = UBD_OP_DISCARD;
    check_asked(ubd_io_syscall(&req), "ioctl", 4096, 8192, BLKDISCARD);
    req.op = UBD_OP_START_WRITEOUT;
    check_asked(ubd_io_syscall(&req), "sync_file_range", 4096, 8192,
                SYNC_FILE_RANGE_WRITE);
    req.op = UBD_OP_WAIT_WRITING;
    req.mode = UBD_FINISH_WRITEOUT_FLAGS;
    check_asked(ubd_io_syscall(&req), "sync_file_range", 4096, 8192,
                SYNC_FILE_RANGE_WRITE_AND_WAIT);
    req.op = UBD_OP_SUBMIT_WRITEOUT;
    check_asked(ubd_io_syscall(&req), "sync_file_range", 4096, 8192,
                SYNC_FILE_RANGE_WRITE);
    req.op = UBD_OP_WAIT_WRITEOUT;
    req.mode = UBD_WAIT_WRITEOUT_FLAGS;
    check_asked(ubd_io_syscall(&req), "sync_file_range", 4096, 8192,
                SYNC_FILE_RANGE_WAIT_BEFORE);
    req.op = UBD_OP_PREFETCH;
    check_asked(ubd_io_syscall(&req), "posix_fadvise", 4096, 8192,
                POSIX_FADV_WILLNEED);
    req.op = UBD_OP_EVICT;
    check_asked(ubd_io_syscall(&req), "posix_fadvise", 4096, 8192,
                POSIX_FADV_DONTNEED);
    close(fd);
}
END_TEST

START_TEST(sync_of_a_page_is_of_that_page_and_leaves_no_mapping)
{
    const long page = sysconf(_SC_PAGESIZE);
    char path[64];
    const int fd = unit_file(4 * page, path);
    const struct ubd_req req = {
        .op = UBD_OP_SYNC_PAGE, .fd = fd, .offset = 2 * page + 100};

    nr_mapped = 0;
    check_asked(ubd_io_syscall(&req), "msync", 2 * page, page, MS_SYNC);
    ck_assert_int_eq(nr_mapped, 0);
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

/* An io whose first attempt fails. */
struct failing_io {
    struct ubd_io io;
    int error;
    unsigned nr;
};

static int64_t
fail_first_attempt(struct ubd_io *io, const struct ubd_req *req)
{
    struct failing_io *f = (struct failing_io *)io;

    return f->nr++ == 0 ? -f->error : (int64_t)req->len;
}

struct failing_case {
    enum ubd_op op;
    bool is_durable;
};

/* What a request comes to whose first attempt fails with @error. */
static int
run_failing(const struct failing_case *what, int error, unsigned *ret_nr)
{
    static const struct ubd_io_ops ops = {.attempt = fail_first_attempt};
    struct failing_io f = {.io.ops = &ops, .error = error};
    const struct ubd_req req = {
        .op = what->op, .len = 4096, .is_durable = what->is_durable};
    const int r = ubd_io_run(&f.io, &req);

    *ret_nr = f.nr;
    return r;
}

START_TEST(what_may_report_a_loss_is_asked_once_whatever_its_errno)
{
    static const struct failing_case cases[] = {
        {UBD_OP_SYNC,          false},
        {UBD_OP_SYNC_PAGE,     false},
        {UBD_OP_WAIT_WRITEOUT, false},
        {UBD_OP_WRITE,         true },
    };
    unsigned nr;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(run_failing(&cases[i], EAGAIN, &nr), -EIO);
        ck_assert_uint_eq(nr, 1);
        ck_assert_int_eq(run_failing(&cases[i], EINTR, &nr), -EIO);
        ck_assert_uint_eq(nr, 1);
        ck_assert_int_eq(run_failing(&cases[i], ENOSPC, &nr), -ENOSPC);
        ck_assert_uint_eq(nr, 1);
    }
}
END_TEST

/* Its errno may be the only report of what it lost. */
START_TEST(start_of_write_out_is_asked_once_and_says_what_it_was_told)
{
    static const struct failing_case cases[] = {
        {UBD_OP_START_WRITEOUT,  false},
        {UBD_OP_SUBMIT_WRITEOUT, false},
    };
    unsigned nr;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(run_failing(&cases[i], EAGAIN, &nr), -EAGAIN);
        ck_assert_uint_eq(nr, 1);
        ck_assert_int_eq(run_failing(&cases[i], EIO, &nr), -EIO);
        ck_assert_uint_eq(nr, 1);
    }
}
END_TEST

START_TEST(what_reports_no_loss_is_asked_again_if_interrupted)
{
    static const struct failing_case cases[] = {
        {UBD_OP_READ,     false},
        {UBD_OP_WRITE,    false},
        {UBD_OP_ALLOCATE, false},
    };
    unsigned nr;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(run_failing(&cases[i], EAGAIN, &nr), 0);
        ck_assert_uint_eq(nr, 2);
        ck_assert_int_eq(run_failing(&cases[i], EINTR, &nr), 0);
        ck_assert_uint_eq(nr, 2);
        ck_assert_int_eq(run_failing(&cases[i], EIO, &nr), -EIO);
        ck_assert_uint_eq(nr, 1);
    }
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        what_was_written_is_read_back,
        write_by_the_shortest_way_is_all_or_to_be_run,
        read_behind_the_end_is_eio,
        durable_write_reaches_the_file,
        hole_is_punched_and_the_length_kept,
        failure_is_the_errno_of_the_call,
        every_request_is_the_call_that_does_it,
        sync_of_a_page_is_of_that_page_and_leaves_no_mapping,
        no_transfer_is_larger_than_linux_can_do,
        request_without_a_transfer_is_made_once_in_full,
        what_may_report_a_loss_is_asked_once_whatever_its_errno,
        start_of_write_out_is_asked_once_and_says_what_it_was_told,
        what_reports_no_loss_is_asked_again_if_interrupted,
        NULL,
    };

    return unit_run("io-syscalls", tests);
}
