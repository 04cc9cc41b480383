/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ops table through which every request reaches the file's data.
 * io-uring.c and io-syscalls.c ship; tests/unit/io-fake.c delays, reorders,
 * shortens and fails requests, and loses power.
 */
#ifndef UBD_IO_H
#define UBD_IO_H

#include "ubd.h"

#include <stdbool.h>
#include <stdint.h>

enum ubd_op {
    UBD_OP_READ,
    UBD_OP_WRITE,
    UBD_OP_SYNC,      /* fdatasync: data, size and what is needed to read it. */
    UBD_OP_SYNC_PAGE, /* The same, but only of the data of the page at .offset:
                       * if that is clean, a flush of the disk's cache, with
                       * whatever the file system thinks is part of it (its
                       * journal; on btrfs and FUSE perhaps all of the file).
                       */
    UBD_OP_ALLOCATE,  /* fallocate with .mode */
    UBD_OP_ZEROOUT,   /* BLKZEROOUT, block devices only */
    UBD_OP_DISCARD,   /* BLKDISCARD, block devices only */
    UBD_OP_PREFETCH,  /* Read into the page cache, without waiting. */
    UBD_OP_START_WRITEOUT,  /* Start to write dirty pages of a range, but those
                             * that are locked or being written already.  Only
                             * by writeout.h.
                             */
    UBD_OP_SUBMIT_WRITEOUT, /* The same at once: a ring's hand-over would take
                             * longer than the call.
                             */
    UBD_OP_WAIT_WRITEOUT,   /* Wait for that; may take a report of a loss. */
    UBD_OP_WAIT_WRITING,    /* The same call, before a START or an eviction
                             * (tests tell them apart).
                             */
    UBD_OP_EVICT,           /* Drop clean pages of a range from the cache. */
};

/* Modes of both WAITs: wait only; or write first what has been left, whatever
 * it is that keeps it (locks, lack of memory).
 */
#define UBD_WAIT_WRITEOUT_FLAGS SYNC_FILE_RANGE_WAIT_BEFORE
#define UBD_FINISH_WRITEOUT_FLAGS SYNC_FILE_RANGE_WRITE_AND_WAIT

/* A request's buffer is the io's until run returns, also after a signal. */
struct ubd_req {
    enum ubd_op op;
    int fd;
    void *buf; /* READ, WRITE; a write only reads it. */
    uint64_t offset;
    uint64_t len;
    int mode;        /* ALLOCATE: FALLOC_FL_*; WAIT_*: UBD_*_FLAGS. */
    bool is_durable; /* WRITE: RWF_DSYNC. */
    bool is_direct;  /* READ, WRITE: @fd has O_DIRECT; no page cache. */
};

struct ubd_io;

struct ubd_io_ops {
    const char *name;

    /* A plain write to the page cache is nothing but pwrite(2) here, so that
     * whoever has one may call that: ubd_io_write_cached.
     */
    bool calls_pwrite;

    /* One attempt.  Returns the bytes transferred (0 for what transfers
     * nothing), which may be fewer than asked for, or a negative errno.
     */
    int64_t (*attempt)(struct ubd_io *io, const struct ubd_req *req);

    /* Free @io.  Nothing may be running. */
    void (*close)(struct ubd_io *io);
};

struct ubd_io {
    const struct ubd_io_ops *ops;
};

/* Run @req to its end and return 0 or a negative errno, never a short count:
 * short transfers and interruptions are continued.  A file that ends too
 * early is -EIO.
 */
int ubd_io_run(struct ubd_io *io, const struct ubd_req *req);

/* A plain write to the page cache by the shortest way: true if all of it is
 * there; else it is to be run as any other request, from its beginning.  The
 * long way takes 130 ns more, 2 % of a 4 KiB write: docs/performance.md.
 */
bool ubd_io_write_cached(const struct ubd_io *io, int fd, const void *buf,
                         uint64_t len, uint64_t offset);

/* Plain system calls.  Cannot fail but for memory. */
int ubd_io_syscalls_open(struct ubd_io **ret_io);

/* One attempt by a plain system call; also what the ring leaves to us. */
int64_t ubd_io_syscall(const struct ubd_req *req);

/* As ubd_io_syscall for a READ that the page cache can serve without waiting;
 * -EAGAIN if it cannot, -EOPNOTSUPP if it cannot tell.
 */
int64_t ubd_io_cached_read(const struct ubd_req *req);

/* Rings.  With @insist every sync and durable write goes through one; else only
 * what blocks and gains by it.  Fails with the reason why the host refuses
 * them.
 */
int ubd_io_uring_open(bool insist, struct ubd_io **ret_io);
int ubd_io_uring_probe(void);

#endif
