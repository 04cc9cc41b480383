/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ways to make a range read as zeroes and to give space back.  What a host
 * can do differs by file system, device and kernel, so the ways are tried in
 * order, from the cheapest, and one that is unsupported is remembered.
 *
 * Nothing here changes the length of the file: KEEP_SIZE is everywhere.
 */
#include "disk.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>

enum method {
    PUNCH,      /* A hole: fast, gives space back. */
    ZERO_RANGE, /* Allocated and unwritten: fast, keeps space. */
    REALLOCATE, /* A hole, then space for it: keeps space (tmpfs). */
    ZEROOUT,    /* The block layer writes zeroes, or the device does. */
    DISCARD,    /* Trim only: content undefined. */
};

/* Written where nothing else helps; large enough for the disk, aligned for
 * O_DIRECT, and never written to, so that it costs no memory.
 */
static const _Alignas(65536) char zeroes[UBD_BOUNCE_SIZE];

static int
allocate(struct ubd_disk *disk, int mode, uint64_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_ALLOCATE,
                                .fd = disk->host.fd,
                                .offset = offset,
                                .len = len,
                                .mode = mode | FALLOC_FL_KEEP_SIZE};

    return ubd_disk_run(disk, &req);
}

static int
block_ioctl(struct ubd_disk *disk, enum ubd_op op, uint64_t len,
            uint64_t offset)
{
    const struct ubd_req req = {
        .op = op, .fd = disk->host.fd, .offset = offset, .len = len};

    if (!disk->host.is_block_device)
        return -EOPNOTSUPP;
    return ubd_disk_run(disk, &req);
}

static int
run_method(struct ubd_disk *disk, enum method method, uint64_t len,
           uint64_t offset)
{
    int r = -EOPNOTSUPP;

    switch (method) {
    case PUNCH:
        return allocate(disk, FALLOC_FL_PUNCH_HOLE, len, offset);
    case ZERO_RANGE:
        return allocate(disk, FALLOC_FL_ZERO_RANGE, len, offset);
    case REALLOCATE:
        if (disk->host.is_block_device)
            return r; /* There is no space to reserve. */
        r = allocate(disk, FALLOC_FL_PUNCH_HOLE, len, offset);
        return r < 0 ? r : allocate(disk, 0, len, offset);
    case ZEROOUT:
        return block_ioctl(disk, UBD_OP_ZEROOUT, len, offset);
    case DISCARD:
        return block_ioctl(disk, UBD_OP_DISCARD, len, offset);
    }
    return r;
}

/* -EOPNOTSUPP if the host cannot do it, now or as it once said. */
static int
try_method(struct ubd_disk *disk, enum method method, uint64_t len,
           uint64_t offset)
{
    const unsigned bit = 1u << method;
    int r;

    if (atomic_load_explicit(&disk->unsupported, memory_order_relaxed) & bit)
        return -EOPNOTSUPP;
    r = run_method(disk, method, len, offset);
    if (r == 0)
        atomic_fetch_or_explicit(&disk->proven, bit, memory_order_relaxed);
    if (r != -EOPNOTSUPP && r != -ENOSYS && r != -ENOTTY && r != -EINVAL)
        return r;
    /* A range that is refused says nothing of a way that has worked before. */
    if (r != -EINVAL || !(atomic_load(&disk->proven) & bit))
        atomic_fetch_or_explicit(&disk->unsupported, bit, memory_order_relaxed);
    return -EOPNOTSUPP;
}

static int
write_zeroes(struct ubd_disk *disk, uint64_t len, uint64_t offset)
{
    while (len > 0) {
        const uint64_t n = len < sizeof zeroes ? len : sizeof zeroes;
        const int r = ubd_disk_write(disk, zeroes, n, offset, false);

        if (r < 0)
            return r;
        offset += n;
        len -= n;
    }
    return 0;
}

/* May a way be tried that must leave everything as it was if it fails?  On a
 * block device Linux drops what is cached of the range before it finds out
 * that the device cannot do it (6.18, blkdev_fallocate), so there it must have
 * worked before.
 */
static bool
can_try(struct ubd_disk *disk, enum method method, unsigned flags)
{
    return !(flags & UBD_FAST_ONLY) || !disk->host.is_block_device ||
           (atomic_load_explicit(&disk->proven, memory_order_relaxed) &
            (1u << method));
}

/* Linux drops what is dirty in the page cache of a range before it zeroes that
 * on the disk (6.18: blkdev_fallocate, ext4_punch_hole).  A flush in between
 * would find nothing to write, succeed, and a power cut would bring back what
 * was there before either.  So it is written out first, as XFS does itself; the
 * flush's sync then covers it: (D1).  The first call tells what it loses
 * itself (writeout.h), the second one leaves nothing; if it is told of a loss,
 * this open file, which is no lane, is told in vain, and every lane will be:
 * (D4).
 */
static void
write_out_first(struct ubd_disk *disk, uint64_t len, uint64_t offset)
{
    struct ubd_req req = {.op = UBD_OP_SUBMIT_WRITEOUT,
                          .fd = disk->host.fd,
                          .offset = offset,
                          .len = len,
                          .mode = UBD_FINISH_WRITEOUT_FLAGS};

    if (!disk->policy->flush_syncs || disk->host.is_direct)
        return;
    (void)ubd_writeout_start(&disk->writeout, disk->io, &req, false);
    req.op = UBD_OP_WAIT_WRITEOUT;
    (void)ubd_disk_run(disk, &req);
}

static int
zero_whole(struct ubd_disk *disk, uint64_t len, uint64_t offset, unsigned flags)
{
    int r = -EOPNOTSUPP;

    write_out_first(disk, len, offset);
    if ((flags & UBD_MAY_TRIM) && disk->info.trim &&
        can_try(disk, PUNCH, flags))
        r = try_method(disk, PUNCH, len, offset);
    /* A block device without an offload would write here. */
    if (r == -EOPNOTSUPP &&
        !(disk->host.is_block_device && (flags & UBD_FAST_ONLY)))
        r = try_method(disk, ZERO_RANGE, len, offset);
    if (r != -EOPNOTSUPP || (flags & UBD_FAST_ONLY))
        return r;
    r = try_method(disk, REALLOCATE, len, offset);
    if (r == -EOPNOTSUPP)
        r = try_method(disk, ZEROOUT, len, offset);
    if (r == -EOPNOTSUPP)
        r = write_zeroes(disk, len, offset);
    return r;
}

/* File systems zero to the byte; block devices only whole blocks, and what is
 * cached of a page that is zeroed in part would be in doubt.
 */
int
ubd_zero_range(struct ubd_disk *disk, uint64_t len, uint64_t offset,
               unsigned flags)
{
    const uint64_t unit =
        disk->host.is_block_device ? disk->host.block_size : 1;
    const uint64_t start = ubd_round_up(offset, unit);
    const uint64_t end = ubd_round_down(offset + len, unit);
    int r;

    if (start >= end)
        return flags & UBD_FAST_ONLY ? -EOPNOTSUPP
                                     : write_zeroes(disk, len, offset);
    r = zero_whole(disk, end - start, start, flags);
    if (r == 0 && start > offset)
        r = write_zeroes(disk, start - offset, offset);
    if (r == 0 && offset + len > end)
        r = write_zeroes(disk, offset + len - end, end);
    return r;
}

int
ubd_trim_range(struct ubd_disk *disk, uint64_t len, uint64_t offset)
{
    const uint64_t unit = disk->host.block_size;
    const uint64_t start = ubd_round_up(offset, unit);
    uint64_t end = ubd_round_down(offset + len, unit);
    int r;

    if (offset + len == disk->host.size && !disk->host.is_block_device)
        end = offset + len; /* Nobody else shares the last block. */
    if (start >= end)
        return 0;
    r = try_method(disk, PUNCH, end - start, start);
    if (r == -EOPNOTSUPP)
        r = try_method(disk, DISCARD, end - start, start);
    return r == -EOPNOTSUPP ? 0 : r; /* A hint, after all. */
}
