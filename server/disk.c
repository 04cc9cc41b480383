/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests.  Each asks the policy what was promised, changes or reads the
 * host file, and tells durability.c what has happened.
 */
#include "disk.h"

#include "cleanup.h"

#include "units.h"

#include <errno.h>

int
ubd_disk_run(struct ubd_disk *disk, const struct ubd_req *req)
{
    return ubd_io_run(disk->io, req);
}

/* Must this change be durable before its reply? */
static bool
is_durable_change(const struct ubd_disk *disk, unsigned flags)
{
    switch (disk->policy->durable) {
    case UBD_DURABLE_ALWAYS:
        return true;
    case UBD_DURABLE_ON_FUA:
        return flags & UBD_FUA;
    case UBD_DURABLE_NEVER:
        break;
    }
    return false;
}

/* A lane with a cursor that is past all failures known to be harmless, of
 * either kind, or NULL.
 */
static struct ubd_lane *
find_fresh_lane(struct ubd_disk *disk, struct ubd_lanes **ret_lanes)
{
    struct ubd_lane *lane = ubd_lanes_try_fresh(&disk->host.sync_lanes);

    *ret_lanes = &disk->host.sync_lanes;
    if (!lane) {
        lane = ubd_lanes_try_fresh(&disk->host.write_lanes);
        *ret_lanes = &disk->host.write_lanes;
    }
    return lane;
}

/* What @lane has reported lost nothing that was acknowledged: (D7).  Now all
 * other lanes are stale; this one shall not be, so that there is a witness.
 */
static void
forget_failure(struct ubd_disk *disk, struct ubd_lane *lane,
               struct ubd_lanes *lanes)
{
    const uint64_t nr_syncs = ubd_lanes_harmless(&disk->host.sync_lanes);
    const uint64_t nr_writes = ubd_lanes_harmless(&disk->host.write_lanes);
    const int fd = ubd_lanes_reopen(lanes, lane);

    if (fd < 0)
        return;
    if (ubd_durability_is_all_durable(&disk->durability))
        ubd_lanes_renew(lanes, lane, fd,
                        lanes == &disk->host.sync_lanes ? nr_syncs : nr_writes);
    else
        ubd_cleanup_close(&fd);
}

static int
run_sync(struct ubd_disk *disk, const struct ubd_lane *lane)
{
    const struct ubd_req req = {.op = UBD_OP_SYNC, .fd = lane->fd};
    const uint64_t start_ns = ubd_now_ns();
    int r;

    ubd_stats_count(&disk->stats, UBD_COUNT_SYNCS_SUBMITTED);
    r = ubd_disk_run(disk, &req);
    ubd_stats_count(&disk->stats, UBD_COUNT_SYNCS_COMPLETED);
    ubd_stats_time(&disk->stats, UBD_HIST_SYNC, ubd_now_ns() - start_ns);
    if (r < 0)
        ubd_stats_count(&disk->stats, UBD_COUNT_SYNCS_FAILED);
    return r;
}

/* One sync of the host file, on a lane: (D4). */
static int
sync_host(struct ubd_disk *disk)
{
    struct ubd_lanes *lanes = &disk->host.sync_lanes;
    struct ubd_lane *lane = ubd_lanes_take(lanes);
    int r = run_sync(disk, lane);

    if (r < 0 && ubd_lanes_is_stale(lanes, lane)) {
        struct ubd_lanes *fresh_lanes;
        struct ubd_lane *fresh = find_fresh_lane(disk, &fresh_lanes);

        if (fresh) { /* The report may be old news: ask a better witness. */
            ubd_lanes_give(lanes, lane, true);
            lane = fresh;
            lanes = fresh_lanes;
            r = run_sync(disk, lane);
        }
    }
    if (r < 0 && disk->policy->durable == UBD_DURABLE_ALWAYS)
        forget_failure(disk, lane, lanes); /* (D7) */
    ubd_lanes_give(lanes, lane, true);
    return r;
}

int
ubd_disk_make_durable(struct ubd_disk *disk, enum ubd_flush_how *ret_how)
{
    struct ubd_durability *d = &disk->durability;
    struct ubd_flusher flusher;
    struct ubd_sync sync;
    enum ubd_flush_how how = UBD_FLUSH_MERGED;
    enum ubd_flush_step step = ubd_durability_arrive(d, &flusher, &sync);

    if (step == UBD_FLUSH_WAIT)
        step = ubd_durability_wait(d, &flusher, &sync);
    if (step == UBD_FLUSH_GATHER)
        ubd_durability_gather(d, &flusher, &sync);
    if (step == UBD_FLUSH_GATHER || step == UBD_FLUSH_LEAD) {
        const uint64_t start_ns = ubd_now_ns();
        const int r = sync_host(disk);

        how = UBD_FLUSH_LED;
        sync.ns = ubd_now_ns() - start_ns;
        flusher.result = ubd_durability_finish(d, &sync, r);
    } else if (flusher.is_clean) {
        how = UBD_FLUSH_CLEAN;
    }
    if (ret_how)
        *ret_how = how;
    return flusher.result;
}

int
ubd_disk_write_plain(struct ubd_disk *disk, int fd, const void *buf,
                     uint64_t len, uint64_t offset, bool is_direct)
{
    const struct ubd_req req = {.op = UBD_OP_WRITE,
                                .fd = fd,
                                .buf = (void *)buf, /* Only read. */
                                .offset = offset,
                                .len = len,
                                .is_direct = is_direct};

    return ubd_disk_run(disk, &req);
}

/* A durable write on @lane failed: is it its own failure, or the report of an
 * older loss?  Its own, if nothing acknowledged could be lost: (D7).  Else a
 * sync decides, on an open file of its own, which gets the same report.
 */
static int
judge_failed_write(struct ubd_disk *disk, struct ubd_lane *lane, int error)
{
    if (!ubd_durability_is_all_durable(&disk->durability)) {
        const int r = ubd_disk_make_durable(disk, NULL);

        if (r < 0)
            return r;
    }
    forget_failure(disk, lane, &disk->host.write_lanes);
    return error;
}

int
ubd_disk_write_durable(struct ubd_disk *disk, const void *buf, uint64_t len,
                       uint64_t offset)
{
    struct ubd_lanes *lanes = &disk->host.write_lanes;
    struct ubd_lane *lane = ubd_lanes_take(lanes);
    struct ubd_req req = {.op = UBD_OP_WRITE,
                          .fd = lane->fd,
                          .buf = (void *)buf, /* Only read. */
                          .offset = offset,
                          .len = len,
                          .is_durable = true, /* (D5) */
                          .is_direct = disk->host.is_direct};
    int r = ubd_disk_run(disk, &req);

    /* Old news?  Write it again in full: what is reported then is about this
     * write or newer, and if something acknowledged is volatile, the sync of
     * judge_failed_write asks a witness of its own.
     */
    if (r < 0 && ubd_lanes_is_stale(lanes, lane)) {
        ubd_lanes_again(lanes, lane);
        if (ubd_durability_is_all_durable(&disk->durability))
            r = ubd_disk_run(disk, &req);
    }
    if (r < 0)
        r = judge_failed_write(disk, lane, r);
    ubd_lanes_give(lanes, lane, true);
    return r;
}

int
ubd_disk_write(struct ubd_disk *disk, const void *buf, uint64_t len,
               uint64_t offset, bool is_durable)
{
    if (disk->host.is_direct)
        return ubd_direct_write(disk, buf, len, offset, is_durable);
    if (is_durable)
        return ubd_disk_write_durable(disk, buf, len, offset);
    return ubd_disk_write_plain(disk, disk->host.fd, buf, len, offset, false);
}

/* With O_DIRECT a change has its blocks to itself as far as it must. */
static void
lock_blocks(struct ubd_disk *disk, struct ubd_range *range, uint64_t len,
            uint64_t offset)
{
    if (!disk->host.is_direct)
        return;
    *range = ubd_direct_range(disk, len, offset);
    ubd_range_lock(&disk->ranges, range);
}

static void
unlock_blocks(struct ubd_disk *disk, struct ubd_range *range)
{
    if (disk->host.is_direct)
        ubd_range_unlock(&disk->ranges, range);
}

int
ubd_read(struct ubd_disk *disk, void *buf, uint32_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_READ,
                                .fd = disk->host.fd,
                                .buf = buf,
                                .offset = offset,
                                .len = len};
    const int r = disk->host.is_direct ? ubd_direct_read(disk, buf, len, offset)
                                       : ubd_disk_run(disk, &req);

    ubd_stats_request(&disk->stats, UBD_KIND_READ, len, false, r);
    return r;
}

static int
write_now(struct ubd_disk *disk, const void *buf, uint32_t len, uint64_t offset,
          bool is_durable)
{
    struct ubd_range range;
    int r = 0;

    if (is_durable)
        r = ubd_durability_error(&disk->durability); /* (D3) */
    if (r < 0)
        return r;
    lock_blocks(disk, &range, len, offset);
    r = ubd_disk_write(disk, buf, len, offset, is_durable);
    unlock_blocks(disk, &range);
    if (r < 0)
        ubd_durability_failed(&disk->durability, len);
    else if (!is_durable)
        ubd_durability_completed(&disk->durability, len); /* (D8) */
    return r;
}

int
ubd_write(struct ubd_disk *disk, const void *buf, uint32_t len, uint64_t offset,
          unsigned flags)
{
    const bool is_durable = is_durable_change(disk, flags);
    const uint64_t start_ns = is_durable ? ubd_now_ns() : 0;
    const int r = write_now(disk, buf, len, offset, is_durable);

    if (is_durable)
        ubd_stats_time(&disk->stats, UBD_HIST_FUA, ubd_now_ns() - start_ns);
    ubd_stats_request(&disk->stats, UBD_KIND_WRITE, len, flags & UBD_FUA, r);
    return r;
}

/* What zero and trim share: the change, then its durability: (D5). */
static int
change_space(struct ubd_disk *disk, enum ubd_kind kind, uint32_t len,
             uint64_t offset, unsigned flags)
{
    const bool is_durable = is_durable_change(disk, flags);
    struct ubd_range range;
    int r = 0;

    if (is_durable)
        r = ubd_durability_error(&disk->durability); /* (D3) */
    if (r == 0) {
        lock_blocks(disk, &range, len, offset);
        r = kind == UBD_KIND_ZERO ? ubd_zero_range(disk, len, offset, flags)
                                  : ubd_trim_range(disk, len, offset);
        unlock_blocks(disk, &range);
        if (r < 0)
            ubd_durability_failed(&disk->durability, len);
        else
            ubd_durability_completed(&disk->durability, len); /* (D8) */
        if (r == 0 && is_durable)
            r = ubd_disk_make_durable(disk, NULL);
    }
    ubd_stats_request(&disk->stats, kind, len, flags & UBD_FUA, r);
    return r;
}

int
ubd_zero(struct ubd_disk *disk, uint32_t len, uint64_t offset, unsigned flags)
{
    return change_space(disk, UBD_KIND_ZERO, len, offset, flags);
}

int
ubd_trim(struct ubd_disk *disk, uint32_t len, uint64_t offset, unsigned flags)
{
    return change_space(disk, UBD_KIND_TRIM, len, offset, flags);
}

int
ubd_flush(struct ubd_disk *disk)
{
    enum ubd_flush_how how = UBD_FLUSH_LED;
    const uint64_t start_ns = ubd_now_ns();
    int r = 0;

    if (disk->policy->flush_syncs)
        r = ubd_disk_make_durable(disk, &how);
    if (how == UBD_FLUSH_MERGED)
        ubd_stats_count(&disk->stats, UBD_COUNT_MERGED);
    if (how == UBD_FLUSH_CLEAN)
        ubd_stats_count(&disk->stats, UBD_COUNT_CLEAN);
    ubd_stats_time(&disk->stats, UBD_HIST_FLUSH, ubd_now_ns() - start_ns);
    ubd_stats_request(&disk->stats, UBD_KIND_FLUSH, 0, false, r);
    return r;
}

int
ubd_cache(struct ubd_disk *disk, uint32_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_PREFETCH,
                                .fd = disk->host.fd,
                                .offset = offset,
                                .len = len};
    /* With O_DIRECT there is no cache that reads would use. */
    const int r = disk->host.is_direct ? 0 : ubd_disk_run(disk, &req);

    ubd_stats_request(&disk->stats, UBD_KIND_CACHE, len, false, r);
    return r;
}

static int
report_extents(struct ubd_disk *disk, uint64_t offset, uint64_t end, bool one,
               ubd_add_extent add, void *opaque)
{
    while (offset < end) {
        uint64_t next;
        bool is_hole;
        int r = ubd_host_extent(&disk->host, offset, &next, &is_hole);

        if (r < 0)
            return r;
        if (next <= offset) { /* It has become a hole in between. */
            next = end;
            is_hole = false;
        }
        if (next > end)
            next = end;
        r = add(opaque, offset, next - offset, is_hole);
        if (r != 0 || one)
            return r;
        offset = next;
    }
    return 0;
}

int
ubd_extents(struct ubd_disk *disk, uint32_t len, uint64_t offset, bool one,
            ubd_add_extent add, void *opaque)
{
    const int r = report_extents(disk, offset, offset + len, one, add, opaque);

    ubd_stats_request(&disk->stats, UBD_KIND_EXTENTS, len, false, r);
    return r;
}

int
ubd_loss(struct ubd_disk *disk)
{
    return -ubd_durability_error(&disk->durability);
}

void
ubd_stats(struct ubd_disk *disk, struct ubd_stats *ret_stats)
{
    ubd_stats_sum(&disk->stats, ret_stats);
    ret_stats->volatile_bytes = ubd_durability_volatile(&disk->durability);
}
