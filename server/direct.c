/* SPDX-License-Identifier: BSD-3-Clause
 *
 * O_DIRECT wants offsets, lengths and buffers aligned; NBD clients do not know
 * that.  What is aligned goes straight through.  The rest is copied through an
 * aligned buffer, and a block that is changed in part is read first, under an
 * exclusive lock of its range, so that two neighbours in one block both
 * survive.
 *
 * If the size is not a whole number of blocks, the last piece goes through the
 * page cache: written directly it would make the file longer.  A direct write
 * must then be able to throw away what is cached around that piece: if the
 * cache is dirty or in use, Linux reports EIO as if data had been lost
 * (6.18, dio_warn_stale_pagecache).  So the piece is written at once, and it
 * is read and written under an exclusive lock of all that one folio of the
 * page cache may span.
 */
#include "cleanup.h"
#include "disk.h"
#include "units.h"

#include <errno.h>
#include <string.h>

#define FOLIO_MAX (UINT64_C(2) << 20) /* Of file systems, Linux 6.18, x86. */

static void *
take_buffer(struct ubd_bounce *bounce)
{
    void *buffer = NULL;

    pthread_mutex_lock(&bounce->lock);
    if (bounce->nr_kept)
        buffer = bounce->kept[--bounce->nr_kept];
    pthread_mutex_unlock(&bounce->lock);
    /* No disk is known to want more alignment than a page. */
    return buffer ? buffer : aligned_alloc(65536, UBD_BOUNCE_SIZE);
}

static void
give_buffer(struct ubd_bounce *bounce, void *buffer)
{
    pthread_mutex_lock(&bounce->lock);
    if (bounce->nr_kept < UBD_BOUNCE_KEPT) {
        bounce->kept[bounce->nr_kept++] = buffer;
        buffer = NULL;
    }
    pthread_mutex_unlock(&bounce->lock);
    free(buffer);
}

void
ubd_bounce_destroy(struct ubd_bounce *bounce)
{
    while (bounce->nr_kept)
        free(bounce->kept[--bounce->nr_kept]);
    pthread_mutex_destroy(&bounce->lock);
}

static bool
is_aligned(const struct ubd_host *host, uint64_t len, uint64_t offset)
{
    return offset % host->align == 0 && len % host->align == 0;
}

static bool
can_take(const struct ubd_host *host, const void *buf, uint64_t len,
         uint64_t offset)
{
    return is_aligned(host, len, offset) &&
           (uintptr_t)buf % host->mem_align == 0;
}

/* Up to where blocks are whole. */
static uint64_t
direct_end(const struct ubd_host *host)
{
    return ubd_round_down(host->size, host->align);
}

static int
read_blocks(struct ubd_disk *disk, void *buf, uint64_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_READ,
                                .fd = disk->host.fd,
                                .buf = buf,
                                .offset = offset,
                                .len = len,
                                .is_direct = true};

    return ubd_disk_run(disk, &req);
}

static int
write_blocks(struct ubd_disk *disk, const void *buf, uint64_t len,
             uint64_t offset, bool is_durable)
{
    const struct ubd_req req = {.op = UBD_OP_WRITE,
                                .fd = disk->host.fd,
                                .buf = (void *)buf, /* Only read. */
                                .offset = offset,
                                .len = len,
                                .is_direct = true};

    return is_durable ? ubd_disk_write_durable(disk, buf, len, offset)
                      : ubd_disk_run(disk, &req);
}

static int
bounce_read(struct ubd_disk *disk, char *buf, uint64_t len, uint64_t offset)
{
    const uint64_t align = disk->host.align;
    char *bounce = take_buffer(&disk->bounce);
    int r = 0;

    if (!bounce)
        return -ENOMEM;
    while (r == 0 && len > 0) {
        const uint64_t start = ubd_round_down(offset, align);
        const uint64_t skip = offset - start;
        const uint64_t n =
            len < UBD_BOUNCE_SIZE - skip ? len : UBD_BOUNCE_SIZE - skip;

        r = read_blocks(disk, bounce, ubd_round_up(skip + n, align), start);
        if (r == 0)
            memcpy(buf, bounce + skip, n);
        buf += n;
        offset += n;
        len -= n;
    }
    give_buffer(&disk->bounce, bounce);
    return r;
}

/* Fill the first and the last block of what will be written, where the caller
 * replaces only a part of them.
 */
static int
read_edges(struct ubd_disk *disk, char *bounce, uint64_t start, uint64_t skip,
           uint64_t n)
{
    const uint64_t align = disk->host.align;
    const uint64_t end = ubd_round_up(skip + n, align);
    const bool has_head = skip > 0;
    const bool has_tail = end > skip + n;
    const uint64_t last = end - align;
    int r = 0;

    if (has_head || (has_tail && last == 0))
        r = read_blocks(disk, bounce, align, start);
    if (r == 0 && has_tail && last > 0)
        r = read_blocks(disk, bounce + last, align, start + last);
    return r;
}

static int
bounce_write(struct ubd_disk *disk, const char *buf, uint64_t len,
             uint64_t offset, bool is_durable)
{
    const uint64_t align = disk->host.align;
    char *bounce = take_buffer(&disk->bounce);
    int r = 0;

    if (!bounce)
        return -ENOMEM;
    while (r == 0 && len > 0) {
        const uint64_t start = ubd_round_down(offset, align);
        const uint64_t skip = offset - start;
        const uint64_t n =
            len < UBD_BOUNCE_SIZE - skip ? len : UBD_BOUNCE_SIZE - skip;

        r = read_edges(disk, bounce, start, skip, n);
        memcpy(bounce + skip, buf, n);
        if (r == 0)
            r = write_blocks(disk, bounce, ubd_round_up(skip + n, align), start,
                             is_durable);
        buf += n;
        offset += n;
        len -= n;
    }
    give_buffer(&disk->bounce, bounce);
    return r;
}

/* The piece behind the last whole block. */
static int
read_end(struct ubd_disk *disk, void *buf, uint64_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_READ,
                                .fd = disk->host.fd_buffered,
                                .buf = buf,
                                .offset = offset,
                                .len = len};
    struct ubd_range range = ubd_direct_range(disk, len, offset);
    int r;

    ubd_range_lock(&disk->ranges, &range);
    r = ubd_disk_run(disk, &req);
    ubd_range_unlock(&disk->ranges, &range);
    return r;
}

/* Durable whether asked or not, but in a mode that never syncs, where a false
 * EIO is never heard of.  The open file is as good as a lane (D4): only
 * this takes reports from it, and one at a time.  A report may be older than
 * this write; asked again, it is not, and a loss is reported to the lanes.
 */
static int
write_end(struct ubd_disk *disk, const void *buf, uint64_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_WRITE,
                                .fd = disk->host.fd_buffered,
                                .buf = (void *)buf, /* Only read. */
                                .offset = offset,
                                .len = len,
                                .is_durable =
                                    disk->policy->durable != UBD_DURABLE_NEVER};
    const int r = ubd_disk_run(disk, &req);

    return r < 0 ? ubd_disk_run(disk, &req) : 0;
}

/* How much of the range lies in whole blocks. */
static uint64_t
direct_part(const struct ubd_host *host, uint64_t len, uint64_t offset)
{
    const uint64_t end = direct_end(host);

    if (offset >= end)
        return 0;
    return len < end - offset ? len : end - offset;
}

struct ubd_range
ubd_direct_range(const struct ubd_disk *disk, uint64_t len, uint64_t offset)
{
    const struct ubd_host *host = &disk->host;
    const uint64_t whole_end = direct_end(host);
    struct ubd_range range = {
        .start = ubd_round_down(offset, host->align),
        .end = ubd_round_up(offset + len, host->align),
        .is_exclusive = !is_aligned(host, len, offset),
    };

    if (offset + len > whole_end) {
        const uint64_t folio = ubd_round_down(whole_end, FOLIO_MAX);

        range.is_exclusive = true;
        if (range.start > folio)
            range.start = folio;
    }
    return range;
}

int
ubd_direct_read(struct ubd_disk *disk, void *buf, uint64_t len, uint64_t offset)
{
    const uint64_t part = direct_part(&disk->host, len, offset);
    int r = 0;

    if (part && can_take(&disk->host, buf, part, offset))
        r = read_blocks(disk, buf, part, offset);
    else if (part)
        r = bounce_read(disk, buf, part, offset);
    if (r == 0 && part < len)
        r = read_end(disk, (char *)buf + part, len - part, offset + part);
    return r;
}

int
ubd_direct_write(struct ubd_disk *disk, const void *buf, uint64_t len,
                 uint64_t offset, bool is_durable)
{
    const uint64_t part = direct_part(&disk->host, len, offset);
    int r = 0;

    if (part && can_take(&disk->host, buf, part, offset))
        r = write_blocks(disk, buf, part, offset, is_durable);
    else if (part)
        r = bounce_write(disk, buf, part, offset, is_durable);
    if (r == 0 && part < len)
        r = write_end(disk, (const char *)buf + part, len - part,
                      offset + part);
    return r;
}
