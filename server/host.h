/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The host file of a disk: its descriptors, size, alignment and lock.  Knows
 * nothing of what is read or written.
 */
#ifndef UBD_HOST_H
#define UBD_HOST_H

#include "lanes.h"

#include <stdbool.h>
#include <stdint.h>

struct ubd_host {
    int fd;          /* (c) With O_DIRECT if so asked; holds the lock. */
    int fd_writeout; /* (c) For the thread that writes out, or -1. */
    int fd_buffered; /* (c) Never with O_DIRECT; equal to fd if that is not. */
    uint64_t size;
    bool is_block_device;
    bool is_direct;
    bool is_rotational;
    uint32_t align;      /* Of offsets and lengths; 1 unless is_direct. */
    uint32_t mem_align;  /* Of buffers; 1 unless is_direct. */
    uint32_t block_size; /* The unit in which the host gives space back. */
    int lock_error;      /* errno, if the file system cannot lock. */
    struct ubd_lanes sync_lanes;  /* For fdatasync. */
    struct ubd_lanes write_lanes; /* For durable writes. */
    struct ubd_lanes witness;     /* One, for second opinions; with syncs. */
};
/* All fields are constant once opened. */

/* As ubd_open of ubd.h.  @nr_syncs and @nr_writes are the lanes of each kind;
 * with 0 there are none.
 */
struct ubd_host_config {
    const char *path;
    bool readonly, direct, lock;
    unsigned nr_syncs, nr_writes;
    bool writes_out; /* fd_writeout is wanted. */
};
int ubd_host_open(struct ubd_host *host, const struct ubd_host_config *config,
                  const char **ret_why);

/* Accepts what a failed open has left. */
void ubd_host_close(struct ubd_host *host);

/* Does the file system tell data from holes? */
bool ubd_host_can_seek_data(const struct ubd_host *host);

/* The piece at @offset: data or hole, and where it ends.  -errno if the host
 * cannot tell.
 */
int ubd_host_extent(const struct ubd_host *host, uint64_t offset,
                    uint64_t *ret_end, bool *ret_is_hole);

#endif
