/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opens, checks, measures and locks the host file.
 */
#include "host.h"

#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static int
refuse(int error, const char *why, const char **ret_why)
{
    *ret_why = why;
    return error;
}

static int
check_type(mode_t mode, const char **ret_why)
{
    const char *what = "is of an unknown type";

    if (S_ISREG(mode) || S_ISBLK(mode))
        return 0;
    if (S_ISDIR(mode))
        what = "is a directory; expected a regular file or block device";
    else if (S_ISCHR(mode))
        what = "is a character device; expected a regular file or block "
               "device";
    else if (S_ISFIFO(mode))
        what = "is a FIFO; expected a regular file or block device";
    else if (S_ISSOCK(mode))
        what = "is a socket; expected a regular file or block device";
    return refuse(-EINVAL, what, ret_why);
}

static int
explain_missing(const char *path, int error, const char **ret_why)
{
    struct stat st;

    if (error == -ENOENT && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        *ret_why = "is a dangling symbolic link; expected an existing image";
    else if (error == -ENOENT)
        *ret_why = "does not exist; expected an existing image";
    else if (error == -ELOOP)
        *ret_why = "is a loop of symbolic links; expected an existing image";
    return error;
}

/* Linux opens a write-protected block device for writing all the same. */
static bool
is_readonly_device(int fd)
{
    int is_readonly = 0;

    return ioctl(fd, BLKROGET, &is_readonly) == 0 && is_readonly;
}

/* No fallback: a disk asked for read-write is never served read-only.  Looked
 * at before opened, since opening a FIFO or a device can block or do things;
 * looked at again by the caller, since the name may mean another file by then.
 */
static int
open_checked(const struct ubd_host_config *config, const char **ret_why)
{
    const int mode = config->readonly ? O_RDONLY : O_RDWR;
    struct stat st;
    int fd, r;

    if (stat(config->path, &st) < 0)
        return explain_missing(config->path, -errno, ret_why);
    r = check_type(st.st_mode, ret_why);
    if (r < 0)
        return r;
    fd = open(config->path, mode | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0 && (config->readonly || !is_readonly_device(fd)))
        return fd;
    r = fd < 0 ? -errno : -EROFS;
    ubd_cleanup_close(&fd);
    if (!config->readonly && (r == -EACCES || r == -EROFS || r == -EPERM))
        *ret_why = "cannot be written; use -r to serve it read-only";
    return r;
}

static int
clear_nonblock(int fd)
{
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -errno;
    return 0;
}

/* OFD locks belong to the open file: they outlive a close of another
 * descriptor of the same file, unlike classic POSIX locks, and conflict with
 * those of UML and of qemu.
 */
static int
lock_range(int fd, short type, off_t start, off_t len)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

    return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

/* Does somebody hold byte @start?  Whoever has locked all the file for reading
 * (User-Mode Linux) is not meant.
 */
static int
test_byte(int fd, off_t start)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};

    if (fcntl(fd, F_OFD_GETLK, &lock) < 0)
        return -errno;
    if (lock.l_type == F_UNLCK || (lock.l_type == F_RDLCK && lock.l_len == 0))
        return 0;
    return -EAGAIN;
}

/* A reader and qemu.  qemu says which rights it uses by read locks on bytes
 * from 100 on and which ones it does not share by read locks on bytes from 200
 * on (consistent read 0, write 1, resize 3 are those that matter), and looks
 * for conflicts by testing for a write lock.  So a reader leaves those bytes
 * alone but for its own: it reads (100), and shares neither write nor resize
 * (201, 203); and it is refused if somebody writes or resizes (101, 103).
 */
static int
lock_for_reading(int fd)
{
    static const struct {
        off_t start, len; /* A length of 0 is "to the end". */
    } ranges[] = {
        {0,   101},
        {105, 95 },
        {201, 1  },
        {203, 1  },
        {205, 0  }
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof ranges / sizeof ranges[0]; i++)
        r = lock_range(fd, F_RDLCK, ranges[i].start, ranges[i].len);
    if (r == 0)
        r = test_byte(fd, 101);
    if (r == 0)
        r = test_byte(fd, 103);
    return r;
}

static int
lock_host_file(struct ubd_host *host, bool readonly, const char **ret_why)
{
    const int r = readonly ? lock_for_reading(host->fd)
                           : lock_range(host->fd, F_WRLCK, 0, 0);

    if (r == -EAGAIN || r == -EACCES)
        return refuse(-EBUSY,
                      readonly ? "is locked: somebody else writes to it (use "
                                 "lock=false to serve it all the same)"
                               : "is locked: somebody else has it open (use "
                                 "lock=false to serve it all the same)",
                      ret_why);
    host->lock_error = -r;
    return 0;
}

static bool
read_is_rotational(const struct stat *st)
{
    const dev_t dev = S_ISBLK(st->st_mode) ? st->st_rdev : st->st_dev;
    char path[96];
    CLEANUP_CLOSE int fd = -1;
    char value = '0';

    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/queue/rotational",
             major(dev), minor(dev));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &value, 1) == 1 && value == '1';
}

static int
measure(struct ubd_host *host, const char **ret_why)
{
    struct stat st;
    off_t size;
    int sector = 512;
    int r;

    if (fstat(host->fd, &st) < 0)
        return -errno;
    r = check_type(st.st_mode, ret_why);
    if (r < 0)
        return r;
    size = lseek(host->fd, 0, SEEK_END); /* st_size is 0 for devices. */
    if (size < 0)
        return -errno;
    host->size = size;
    host->is_block_device = S_ISBLK(st.st_mode);
    host->is_rotational = read_is_rotational(&st);
    if (!host->is_block_device)
        host->block_size = st.st_blksize;
    else if (ioctl(host->fd, BLKSSZGET, &sector) == 0)
        host->block_size = sector < 4096 ? 4096 : sector; /* Page cache. */
    else
        return -errno;
    return 0;
}

static int
find_alignment(struct ubd_host *host, const char **ret_why)
{
    struct statx stx = {0};
    int sector;

    if (statx(host->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
        (stx.stx_mask & STATX_DIOALIGN)) {
        if (stx.stx_dio_offset_align == 0)
            return refuse(
                -EINVAL,
                "does not support O_DIRECT; expected direct=false here, and no "
                "cache=none or cache=directsync",
                ret_why);
        host->align = stx.stx_dio_offset_align;
        host->mem_align = stx.stx_dio_mem_align;
    } else if (host->is_block_device && /* Linux before 6.1. */
               ioctl(host->fd, BLKSSZGET, &sector) == 0) {
        host->align = host->mem_align = sector;
    } else {
        host->align = host->mem_align = 4096; /* Holds almost everywhere. */
    }
    return 0;
}

/* The descriptor that was checked and locked stays; the direct one comes
 * beside it.
 */
static int
open_direct(struct ubd_host *host, int mode, const char **ret_why)
{
    int r;

    host->fd = ubd_reopen(host->fd_buffered, mode | O_DIRECT);
    if (host->fd < 0)
        return refuse(
            -errno,
            "does not support O_DIRECT; expected direct=false here, and no "
            "cache=none or cache=directsync",
            ret_why);
    host->is_direct = true;
    r = find_alignment(host, ret_why);
    if (host->block_size < host->align)
        host->block_size = host->align;
    return r;
}

int
ubd_host_open(struct ubd_host *host, const struct ubd_host_config *config,
              const char **ret_why)
{
    const int mode = config->readonly ? O_RDONLY : O_RDWR;
    const int flags = config->direct ? mode | O_DIRECT : mode;
    int r;

    *host = (struct ubd_host){
        .fd_buffered = -1, .fd_writeout = -1, .align = 1, .mem_align = 1};
    *ret_why = NULL;
    host->fd = open_checked(config, ret_why);
    if (host->fd < 0)
        return host->fd;
    host->fd_buffered = host->fd;
    r = measure(host, ret_why);
    if (r == 0)
        r = clear_nonblock(host->fd);
    if (r == 0 && config->lock)
        r = lock_host_file(host, config->readonly, ret_why);
    if (r == 0 && config->direct)
        r = open_direct(host, mode, ret_why);
    if (r == 0 && config->nr_syncs)
        r = ubd_lanes_open(&host->sync_lanes, host->fd, flags,
                           config->nr_syncs);
    if (r == 0 && config->nr_syncs)
        r = ubd_lanes_open(&host->witness, host->fd, flags, 1);
    if (r == 0 && config->nr_writes)
        r = ubd_lanes_open(&host->write_lanes, host->fd, flags,
                           config->nr_writes);
    if (r == 0 && config->writes_out) {
        host->fd_writeout = ubd_reopen(host->fd_buffered, mode);
        r = host->fd_writeout < 0 ? host->fd_writeout : 0;
    }
    return r;
}

void
ubd_host_close(struct ubd_host *host)
{
    ubd_lanes_close(&host->witness);
    ubd_cleanup_close(&host->fd_writeout);
    ubd_lanes_close(&host->write_lanes);
    ubd_lanes_close(&host->sync_lanes);
    if (host->fd_buffered != host->fd)
        ubd_cleanup_close(&host->fd_buffered);
    ubd_cleanup_close(&host->fd);
    host->fd = host->fd_buffered = host->fd_writeout = -1;
}

bool
ubd_host_can_seek_data(const struct ubd_host *host)
{
    if (host->is_block_device || host->size == 0)
        return false;
    return lseek(host->fd, 0, SEEK_HOLE) >= 0;
}

int
ubd_host_extent(const struct ubd_host *host, uint64_t offset, uint64_t *ret_end,
                bool *ret_is_hole)
{
    off_t end = lseek(host->fd, offset, SEEK_DATA);
    struct stat st;

    if (end < 0 && errno == ENXIO) { /* A hole up to the end of the file. */
        if (fstat(host->fd, &st) < 0)
            return -errno;
        /* What has been cut off does not read as zeroes. */
        *ret_is_hole = (uint64_t)st.st_size > offset;
        *ret_end = *ret_is_hole && (uint64_t)st.st_size < host->size
                       ? (uint64_t)st.st_size
                       : host->size;
        return 0;
    }
    if (end < 0)
        return -errno;
    if ((uint64_t)end > offset) {
        *ret_end = end;
        *ret_is_hole = true;
        return 0;
    }
    end = lseek(host->fd, offset, SEEK_HOLE);
    if (end < 0)
        return -errno;
    *ret_end = end;
    *ret_is_hole = false;
    return 0;
}
