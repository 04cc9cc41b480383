/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests as plain system calls: for hosts that refuse rings, and for what a
 * ring would only delay.  Also the loop that every way of doing I/O shares.
 */
#include "cleanup.h"
#include "io.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* One transfer moves at most this much; Linux stops at 2 GiB - 4 KiB. */
#define TRANSFER_MAX (UINT64_C(1) << 30)

static bool
is_transfer(const struct ubd_req *req)
{
    return req->op == UBD_OP_READ || req->op == UBD_OP_WRITE;
}

/* The report of a failed writeback bears whatever errno it failed with. */
static bool
may_report_loss(const struct ubd_req *req)
{
    return req->op == UBD_OP_SYNC || req->op == UBD_OP_WAIT_WRITEOUT ||
           req->op == UBD_OP_SYNC_PAGE || req->op == UBD_OP_WAIT_WRITING ||
           (req->op == UBD_OP_WRITE && req->is_durable);
}

static bool
starts_writeout(const struct ubd_req *req)
{
    return req->op == UBD_OP_START_WRITEOUT ||
           req->op == UBD_OP_SUBMIT_WRITEOUT;
}

int
ubd_io_run(struct ubd_io *io, const struct ubd_req *req)
{
    struct ubd_req left = *req;

    for (;;) {
        const uint64_t wanted = left.len;
        int64_t done;

        if (is_transfer(req) && left.len > TRANSFER_MAX)
            left.len = TRANSFER_MAX;
        done = io->ops->attempt(io, &left);
        left.len = wanted;
        if (may_report_loss(req) && (done == -EINTR || done == -EAGAIN))
            return -EIO; /* Perhaps the only report; not to be asked again. */
        if (starts_writeout(req)) /* Nothing was started, or see writeout.h. */
            return done < 0 ? done : 0;
        if (done == -EINTR)
            continue;
        if (done == -EAGAIN) {
            sched_yield();
            continue;
        }
        if (done < 0)
            return done;
        if (!is_transfer(req))
            return 0;
        if (done == 0) /* The file ends here, though the disk does not. */
            return -EIO;
        if ((uint64_t)done >= left.len)
            return 0;
        left.buf = (char *)left.buf + done;
        left.offset += done;
        left.len -= done;
    }
}

static int64_t
transfer(const struct ubd_req *req, int flags)
{
    const struct iovec iov = {.iov_base = req->buf, .iov_len = req->len};
    ssize_t r;

    if (req->op == UBD_OP_READ)
        r = flags ? preadv2(req->fd, &iov, 1, req->offset, flags)
                  : pread(req->fd, req->buf, req->len, req->offset);
    else
        r = flags ? pwritev2(req->fd, &iov, 1, req->offset, flags)
                  : pwrite(req->fd, req->buf, req->len, req->offset);
    return r < 0 ? -errno : r;
}

bool
ubd_io_write_cached(const struct ubd_io *io, int fd, const void *buf,
                    uint64_t len, uint64_t offset)
{
    return io->ops->calls_pwrite &&
           pwrite(fd, buf, len, offset) == (ssize_t)len;
}

int64_t
ubd_io_cached_read(const struct ubd_req *req)
{
    return transfer(req, RWF_NOWAIT);
}

/* fdatasync(2) knows no range, but msync(2) does. */
static int
sync_page(int fd, uint64_t offset)
{
    const uint64_t page = sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, page, PROT_READ, MAP_SHARED, fd,
                     ubd_round_down(offset, page));
    int r, error;

    if (map == MAP_FAILED)
        return fdatasync(fd);
    r = msync(map, page, MS_SYNC);
    error = errno;
    munmap(map, page);
    errno = error;
    return r;
}

int64_t
ubd_io_syscall(const struct ubd_req *req)
{
    uint64_t range[2] = {req->offset, req->len};
    int r = 0;

    switch (req->op) {
    case UBD_OP_READ:
    case UBD_OP_WRITE:
        return transfer(req, req->is_durable ? RWF_DSYNC : 0);
    case UBD_OP_SYNC:
        r = fdatasync(req->fd);
        break;
    case UBD_OP_SYNC_PAGE:
        r = sync_page(req->fd, req->offset);
        break;
    case UBD_OP_ALLOCATE:
        r = fallocate(req->fd, req->mode, req->offset, req->len);
        break;
    case UBD_OP_ZEROOUT:
        r = ioctl(req->fd, BLKZEROOUT, range);
        break;
    case UBD_OP_DISCARD:
        r = ioctl(req->fd, BLKDISCARD, range);
        break;
    case UBD_OP_START_WRITEOUT:
    case UBD_OP_SUBMIT_WRITEOUT:
        r = sync_file_range(req->fd, req->offset, req->len,
                            SYNC_FILE_RANGE_WRITE);
        break;
    case UBD_OP_WAIT_WRITING:
    case UBD_OP_WAIT_WRITEOUT:
        r = sync_file_range(req->fd, req->offset, req->len, req->mode);
        break;
    case UBD_OP_PREFETCH: /* These two return the error number. */
        return -posix_fadvise(req->fd, req->offset, req->len,
                              POSIX_FADV_WILLNEED);
    case UBD_OP_EVICT:
        return -posix_fadvise(req->fd, req->offset, req->len,
                              POSIX_FADV_DONTNEED);
    }
    return r < 0 ? -errno : 0;
}

static int64_t
syscalls_attempt(struct ubd_io *io, const struct ubd_req *req)
{
    (void)io; /* Has no state. */
    return ubd_io_syscall(req);
}

static void
syscalls_close(struct ubd_io *io)
{
    free(io);
}

static const struct ubd_io_ops syscalls_ops = {
    .name = "syscalls",
    .calls_pwrite = true,
    .attempt = syscalls_attempt,
    .close = syscalls_close,
};

int
ubd_io_syscalls_open(struct ubd_io **ret_io)
{
    struct ubd_io *io = malloc(sizeof *io);

    if (!io)
        return -ENOMEM;
    io->ops = &syscalls_ops;
    *ret_io = io;
    return 0;
}
