/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a request did, for whoever looks on (ubd_observe).  Measures nothing
 * when nobody does.
 */
#include "disk.h"

#include "units.h"

#include <unistd.h>

/* (t) Where the thread's request is described, or NULL. */
static _Thread_local struct ubd_span *span_of_thread;

void
ubd_observe(struct ubd_span *span)
{
    span_of_thread = span;
}

/* NULL if nobody looks on. */
static inline struct ubd_span *
find_span(const struct ubd_disk *disk)
{
    return __builtin_expect(disk->is_observed, false) ? span_of_thread : NULL;
}

/* The first thing that a request asks of the host ends its waiting here.  A
 * durable write may be several calls, of which the last one counts: what was
 * written before is durable by then.
 */
static int
run_observed(struct ubd_disk *disk, const struct ubd_req *req,
             struct ubd_span *span)
{
    struct ubd_sync_span *sync = &span->sync;
    const uint64_t start_ns = ubd_now_ns();
    const int r = ubd_io_run(disk->io, req);

    if (!span->start_ns)
        span->start_ns = start_ns;
    if (req->is_durable) {
        if (sync->how != UBD_SYNC_WRITE)
            sync->submitted_ns = start_ns;
        sync->how = UBD_SYNC_WRITE;
        sync->completed_ns = ubd_now_ns();
        sync->tid = gettid();
        sync->result = r;
    }
    return r;
}

int
ubd_disk_run(struct ubd_disk *disk, const struct ubd_req *req)
{
    struct ubd_span *span = find_span(disk);

    return span ? run_observed(disk, req, span) : ubd_io_run(disk->io, req);
}

int
ubd_disk_run_write(struct ubd_disk *disk, int fd, const void *buf, uint64_t len,
                   uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_WRITE,
                                .fd = fd,
                                .buf = (void *)buf, /* Only read. */
                                .offset = offset,
                                .len = len};
    struct ubd_span *span = find_span(disk);

    if (span && !span->start_ns)
        span->start_ns = ubd_now_ns();
    if (ubd_io_write_cached(disk->io, fd, buf, len, offset))
        return 0;
    return ubd_disk_run(disk, &req);
}

void
ubd_observed_sync(struct ubd_disk *disk, const struct ubd_sync_span *sync)
{
    struct ubd_span *span = find_span(disk);

    if (span)
        span->sync = *sync;
}

void
ubd_observed_flush(struct ubd_disk *disk, const struct ubd_sync_span *sync)
{
    struct ubd_span *span = find_span(disk);

    if (!span)
        return;
    span->sync = *sync;
    span->start_ns = sync->submitted_ns ? sync->submitted_ns : ubd_now_ns();
}
