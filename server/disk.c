/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests.  Each asks the policy what was promised, changes or reads the
 * host file, and tells durability.c what has happened.
 */
#include "disk.h"

#include "cleanup.h"
#include "mutant.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Must this change be durable before its reply? */
static bool
is_durable_change(const struct ubd_disk *disk, unsigned flags)
{
    switch (disk->policy->durable) {
    case UBD_DURABLE_ALWAYS:
        return true;
    case UBD_DURABLE_ON_FUA:
        return (flags & UBD_FUA) && !UBD_MUTANT(fua_ignored);
    case UBD_DURABLE_NEVER:
        break;
    }
    return false;
}

/* What a durable write has reported lost nothing that was acknowledged: (D7).
 * All other lanes still have that report before them.  The witness gets a new
 * cursor that is past it, and past nothing that matters: for everything that
 * has begun is still found durable once the cursor is there.
 */
static void
forget_failure(struct ubd_disk *disk)
{
    struct ubd_host *host = &disk->host;
    struct ubd_lane *witness = ubd_lanes_take(&host->witness);
    uint64_t nr_harmless;
    int fd;

    ubd_lanes_harmless(&host->sync_lanes);
    ubd_lanes_harmless(&host->write_lanes);
    nr_harmless = ubd_lanes_harmless(&host->witness);
    fd = ubd_lanes_reopen(&host->witness, witness);
    if (fd >= 0 && ubd_durability_is_all_durable(&disk->durability))
        ubd_lanes_renew(&host->witness, witness, fd, nr_harmless);
    else
        ubd_cleanup_close(&fd);
    ubd_lanes_give(&host->witness, witness, false);
}

/* The lanes that a sync has used.  They are given back only when its failure
 * has been recorded: the next borrower would not get the report again, and
 * would be believed.
 */
struct used_lanes {
    struct ubd_lane *lane, *witness;
    unsigned nr_unjudged; /* Calls that have failed on them. */
};

/* A sync has failed.  First that it has yet to be judged: who finds it counted
 * finds that, too, or its verdict.
 */
static void
note_failed(struct ubd_disk *disk, struct used_lanes *used)
{
    used->nr_unjudged++;
    atomic_fetch_add(&disk->nr_unjudged, 1);
    atomic_fetch_add(&disk->nr_failed, 1);
}

/* The sync of a flush: all of the file. */
static const struct ubd_req whole_file = {.op = UBD_OP_SYNC};

static int
run_sync(struct ubd_disk *disk, const struct ubd_req *sync,
         const struct ubd_lane *lane, struct used_lanes *used)
{
    const uint64_t start_ns = ubd_now_ns();
    struct ubd_req req = *sync;
    int r;

    req.fd = lane->fd;
    if (req.op == UBD_OP_SYNC_PAGE) {
        ubd_stats_count(&disk->stats, UBD_COUNT_CACHE_FLUSHES);
        r = ubd_disk_run(disk, &req);
        if (r < 0)
            note_failed(disk, used);
        return r;
    }
    if (UBD_MUTANT(sync_file_range_trusted)) {
        req.op = UBD_OP_WAIT_WRITEOUT;
        req.mode = UBD_FINISH_WRITEOUT_FLAGS;
    }
    ubd_stats_count(&disk->stats, UBD_COUNT_SYNCS_SUBMITTED);
    r = ubd_disk_run(disk, &req);
    ubd_stats_count(&disk->stats, UBD_COUNT_SYNCS_COMPLETED);
    ubd_stats_time(&disk->stats, UBD_HIST_SYNC, ubd_now_ns() - start_ns);
    if (r < 0) {
        ubd_stats_count(&disk->stats, UBD_COUNT_SYNCS_FAILED);
        note_failed(disk, used);
    }
    return r;
}

/* A stale lane has reported @error, which may be old news.  The witness knows,
 * unless it is stale as well; then we assume the worst.  Its sync is as good as
 * one on the lane.
 */
static int
ask_witness(struct ubd_disk *disk, const struct ubd_req *sync,
            struct used_lanes *used, int error)
{
    struct ubd_lanes *lanes = &disk->host.witness;

    used->witness = ubd_lanes_take(lanes);
    if (ubd_lanes_is_stale(lanes, used->witness))
        return error;
    return run_sync(disk, sync, used->witness, used);
}

/* Take what @lane has yet to report, by a call that does not flush the disk: a
 * flush that fails is told once, and must not be taken for old news.
 */
static int
drain_lane(struct ubd_disk *disk, struct ubd_lane *lane)
{
    const struct ubd_req wait = {.op = UBD_OP_WAIT_WRITEOUT,
                                 .mode = UBD_WAIT_WRITEOUT_FLAGS,
                                 .fd = lane->fd,
                                 .len = 1};
    const int r = ubd_disk_run(disk, &wait);

    ubd_lanes_again(&disk->host.sync_lanes, lane);
    return r;
}

/* The host has no room for a write: what was written before is not touched. */
static bool
is_lack_of_space(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -EFBIG;
}

/* One sync of the host file, or of a page of it, on a lane: (D4). */
static int
sync_host(struct ubd_disk *disk, const struct ubd_req *sync,
          struct used_lanes *used)
{
    struct ubd_lanes *lanes = &disk->host.sync_lanes;
    /* Where every change is durable, what this sync is for is not acknowledged
     * yet and does not count when failures are judged: no witness can speak
     * for it.
     */
    const bool may_ask = disk->policy->durable != UBD_DURABLE_ALWAYS;
    int r = 0;

    *used = (struct used_lanes){.lane = ubd_lanes_take(lanes)};
    if (may_ask && ubd_lanes_is_stale(lanes, used->lane))
        r = drain_lane(disk, used->lane);
    if (r < 0)
        return ask_witness(disk, sync, used, r);
    r = run_sync(disk, sync, used->lane, used);
    /* It has become stale meanwhile, by a failure that may be this one; but not
     * if the disk has failed a flush, which only this call was told of.
     */
    if (is_lack_of_space(r) && may_ask && ubd_lanes_is_stale(lanes, used->lane))
        r = ask_witness(disk, sync, used, r);
    return r;
}

/* What has failed on them is judged, or had cost nothing. */
static void
note_judged(struct ubd_disk *disk, const struct used_lanes *used)
{
    if (used->nr_unjudged > 0)
        atomic_fetch_sub(&disk->nr_unjudged, used->nr_unjudged);
}

static void
give_lanes(struct ubd_disk *disk, const struct used_lanes *used)
{
    ubd_lanes_give(&disk->host.sync_lanes, used->lane, true);
    if (used->witness)
        ubd_lanes_give(&disk->host.witness, used->witness, true);
}

/* Sync, and tell everybody whom it serves. */
static int
lead_sync(struct ubd_disk *disk, struct ubd_sync *sync)
{
    struct ubd_durability *d = &disk->durability;
    const int64_t dirty = ubd_writeback_sync(&disk->writeback);
    const uint64_t mark = ubd_cache_flush_mark(&disk->cache_flush);
    const unsigned nr_failed = atomic_load(&disk->nr_failed);
    const uint64_t start_ns = ubd_now_ns();
    struct used_lanes used;
    int r = sync_host(disk, &whole_file, &used);

    sync->ns = ubd_now_ns() - start_ns;
    sync->submitted_ns = start_ns;
    ubd_writeback_synced(&disk->writeback, dirty);
    if (disk->is_observed)
        sync->tid = gettid();
    if (r == 0) {
        /* Nothing is left to record, and the flush of the cache that we may
         * have to wait for needs lanes and the witness itself.
         */
        give_lanes(disk, &used);
        ubd_cache_flush_synced(&disk->cache_flush, mark); /* (D3) */
        ubd_writeout_settle(&disk->writeout);             /* (D4) */
        if (atomic_load(&disk->nr_failed) != nr_failed ||
            atomic_load(&disk->nr_unjudged) > 0)
            ubd_durability_settle(d, sync); /* (D3) */
        r = ubd_durability_finish(d, sync, 0);
        note_judged(disk, &used);
    } else {
        r = ubd_durability_finish(d, sync, r);
        note_judged(disk, &used);
        give_lanes(disk, &used);
    }
    if (r < 0 && ubd_durability_error(d) == 0)
        forget_failure(disk);
    return r;
}

/* Once, and at once: nobody may flush for a while. */
static void
tell_of_loss(struct ubd_disk *disk)
{
    const int error = ubd_durability_error(&disk->durability);

    if (error && disk->lost && !atomic_flag_test_and_set(&disk->has_told))
        disk->lost(-error);
}

void
ubd_disk_lost(void *opaque, int error)
{
    struct ubd_disk *disk = opaque;

    if (!disk->policy->flush_syncs)
        return;
    ubd_durability_lost(&disk->durability, error); /* (D3) */
    tell_of_loss(disk);
}

void
ubd_disk_flush_cache(struct ubd_disk *disk, uint64_t offset)
{
    struct ubd_durability *d = &disk->durability;
    const bool was_safe = ubd_durability_is_all_durable(d);
    const struct ubd_req page = {.op = UBD_OP_SYNC_PAGE, .offset = offset};
    struct used_lanes used;
    const int r = sync_host(disk, &page, &used);
    const bool is_lost =
        r < 0 && !(was_safe && ubd_durability_is_all_durable(d)); /* (D7) */

    if (is_lost)
        ubd_durability_lost(d, r); /* (D3) */
    note_judged(disk, &used);
    give_lanes(disk, &used);
    if (is_lost)
        tell_of_loss(disk);
    else if (r < 0)
        forget_failure(disk);
}

int
ubd_disk_make_durable(struct ubd_disk *disk, struct ubd_sync_span *ret_sync)
{
    struct ubd_durability *d = &disk->durability;
    struct ubd_flusher flusher;
    struct ubd_sync sync;
    enum ubd_flush_step step = ubd_durability_arrive(d, &flusher, &sync);

    if (step == UBD_FLUSH_WAIT)
        step = ubd_durability_wait(d, &flusher, &sync);
    if (step == UBD_FLUSH_GATHER)
        ubd_durability_gather(d, &flusher, &sync);
    if (step == UBD_FLUSH_GATHER || step == UBD_FLUSH_LEAD) {
        flusher.result = lead_sync(disk, &sync);
        flusher.span = ubd_sync_describe(&sync, UBD_SYNC_LED);
    }
    if (flusher.result < 0)
        tell_of_loss(disk);
    if (ret_sync)
        *ret_sync = flusher.span;
    return flusher.result;
}

/* Longer writes to the page cache make large folios (Linux 6.18, ext4), into
 * which a later 4 KiB write costs several times as much; but what is dropped
 * from the cache once it is written out has no later, and is faster that way:
 * docs/performance.md.
 */
#define WRITE_MAX (UINT64_C(64) << 10)
#define WRITE_MAX_EVICTED (UINT64_C(1) << 20)

static uint64_t
longest_write(const struct ubd_disk *disk)
{
    const uint64_t share = disk->dirty_limit / 32; /* Room for all workers. */

    if (!disk->writeback.is_on || !disk->evict || share < WRITE_MAX)
        return WRITE_MAX;
    return share < WRITE_MAX_EVICTED ? share : WRITE_MAX_EVICTED;
}

/* Into the page cache, as fast as the limit lets it in. */
static int
write_cached(struct ubd_disk *disk, const char *buf, uint64_t len,
             uint64_t offset)
{
    struct ubd_writeback *wb = &disk->writeback;
    const uint64_t len_max = len <= WRITE_MAX ? len : longest_write(disk);
    int r = 0;

    while (r == 0 && len > 0) {
        const uint64_t n = len < len_max ? len : len_max;

        ubd_writeback_admit(wb, offset, n);
        r = ubd_disk_run_write(disk, disk->host.fd, buf, n, offset);
        ubd_writeback_dirtied(wb, offset, n);
        buf += n;
        offset += n;
        len -= n;
    }
    return r;
}

/* A durable write on @lane failed: is it its own failure, or the report of a
 * loss?  Its own, if nothing acknowledged could be lost: (D7).  Else a sync
 * decides, on an open file of its own, which gets the same report; but not of
 * a flush that the disk has failed, which only this call was told of, and which
 * may have cost what was in the disk's cache.  Returns the loss or 0.
 */
static int
find_loss(struct ubd_disk *disk, struct ubd_lane *lane, int error)
{
    if (disk->policy->durable == UBD_DURABLE_ALWAYS ||
        ubd_durability_is_all_durable(&disk->durability))
        return 0;
    if (!is_lack_of_space(error) &&
        !ubd_lanes_is_stale(&disk->host.write_lanes, lane)) {
        ubd_durability_lost(&disk->durability, error);
        tell_of_loss(disk);
        return ubd_durability_error(&disk->durability);
    }
    return ubd_disk_make_durable(disk, NULL);
}

#define DURABLE_TRIES 4

/* A durable write.  A flush of the disk that has failed meanwhile may have cost
 * what this write had left in the disk's cache, and its own flush found
 * nothing, even if nothing acknowledged was lost: then once more.
 */
static int
write_undisturbed(struct ubd_disk *disk, const struct ubd_req *req)
{
    int r;

    for (unsigned i = 0; i < DURABLE_TRIES; i++) {
        const unsigned nr_failed = atomic_load(&disk->nr_failed);

        r = ubd_disk_run(disk, req);
        if (r < 0)
            return r;
        ubd_cache_flush_settle(&disk->cache_flush);
        ubd_writeout_settle(&disk->writeout); /* (D4) */
        if (atomic_load(&disk->nr_failed) == nr_failed)
            return 0;
    }
    return -EIO;
}

int
ubd_disk_write_durable(struct ubd_disk *disk, const void *buf, uint64_t len,
                       uint64_t offset)
{
    struct ubd_lanes *lanes = &disk->host.write_lanes;
    struct ubd_lane *lane = ubd_lanes_take(lanes);
    const struct ubd_req req = {.op = UBD_OP_WRITE,
                                .fd = lane->fd,
                                .buf = (void *)buf, /* Only read. */
                                .offset = offset,
                                .len = len,
                                .is_durable = true, /* (D5) */
                                .is_direct = disk->host.is_direct};
    int r = write_undisturbed(disk, &req);
    const bool was_stale = r < 0 && ubd_lanes_is_stale(lanes, lane);
    int loss = r < 0 ? find_loss(disk, lane, r) : 0;

    /* If nothing is lost, a stale lane's report may be of somebody else's write
     * that failed.  Written again in full, what is reported then is about this
     * write or newer.  A failure of its own is told: that it went well the
     * second time proves little.  (Linux 6.18, ext4: of a hole whose first
     * write failed, tests/powercut/ext4_forgets_a_hole_whose_write_failed.py.)
     */
    if (was_stale && loss == 0) {
        ubd_lanes_again(lanes, lane);
        r = write_undisturbed(disk, &req);
        loss = r < 0 ? find_loss(disk, lane, r) : 0;
    }
    if (r < 0 && loss == 0)
        forget_failure(disk);
    if (r == 0)
        loss = ubd_durability_error(&disk->durability); /* (D3) */
    ubd_lanes_give(lanes, lane, true);
    return loss < 0 ? loss : r;
}

int
ubd_disk_write(struct ubd_disk *disk, const void *buf, uint64_t len,
               uint64_t offset, bool is_durable)
{
    if (disk->host.is_direct)
        return ubd_direct_write(disk, buf, len, offset, is_durable);
    if (is_durable)
        return ubd_disk_write_durable(disk, buf, len, offset);
    return write_cached(disk, buf, len, offset);
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

/* A flush is expected that will have to write it: start now.  Nothing is
 * durable by that.
 */
static void
write_out_early(struct ubd_disk *disk, uint64_t len, uint64_t offset)
{
    const struct ubd_req req = {.op = UBD_OP_SUBMIT_WRITEOUT,
                                .fd = disk->host.fd,
                                .offset = offset,
                                .len = len};
    int r;

    if (atomic_load_explicit(&disk->no_early, memory_order_relaxed))
        return;
    r = ubd_writeout_start(&disk->writeout, disk->io, &req, true);
    if (r == 0)
        ubd_stats_count(&disk->stats, UBD_COUNT_EARLY);
    else if (r < 0)
        atomic_store(&disk->no_early, true);
}

static int
write_now(struct ubd_disk *disk, const void *buf, uint32_t len, uint64_t offset,
          bool is_durable)
{
    struct ubd_durability *d = &disk->durability;
    struct ubd_range range;
    int r = 0;

    if (is_durable)
        r = ubd_durability_error(d); /* (D3) */
    if (r < 0)
        return r;
    if (!is_durable)
        ubd_durability_begun(d, len); /* (D7) */
    lock_blocks(disk, &range, len, offset);
    r = ubd_disk_write(disk, buf, len, offset, is_durable);
    unlock_blocks(disk, &range);
    if (r < 0 && is_durable)
        ubd_durability_failed_durable(d, len);
    else if (r < 0)
        ubd_durability_failed(d, len);
    else if (!is_durable)
        ubd_durability_completed(d, len); /* (D8) */
    if (r == 0 && !is_durable && !disk->host.is_direct &&
        ubd_durability_expects_flush(d, len, offset))
        write_out_early(disk, len, offset);
    return r;
}

/* Of a change that the mode does not make durable. */
static const struct ubd_sync_span *
no_sync(unsigned flags)
{
    static const struct ubd_sync_span unasked = {.how = UBD_SYNC_UNASKED};
    static const struct ubd_sync_span none = {.how = UBD_SYNC_NONE};

    return flags & UBD_FUA ? &none : &unasked;
}

int
ubd_write(struct ubd_disk *disk, const void *buf, uint32_t len, uint64_t offset,
          unsigned flags)
{
    const bool is_durable = is_durable_change(disk, flags);
    const uint64_t start_ns = is_durable ? ubd_now_ns() : 0;
    const int r = write_now(disk, buf, len, offset, is_durable);

    if (!is_durable)
        ubd_observed_sync(disk, no_sync(flags));
    if (is_durable)
        ubd_stats_time(&disk->stats, UBD_HIST_FUA, ubd_now_ns() - start_ns);
    ubd_stats_request(&disk->stats, UBD_KIND_WRITE, len, flags & UBD_FUA, r);
    return r;
}

static int
change_space_now(struct ubd_disk *disk, enum ubd_kind kind, uint32_t len,
                 uint64_t offset, unsigned flags)
{
    struct ubd_durability *d = &disk->durability;
    const uint64_t nr_failed = ubd_durability_nr_failed(d);
    struct ubd_sync_span sync = {.how = UBD_SYNC_UNASKED};
    struct ubd_range range;
    int r;

    ubd_durability_begun(d, len); /* (D7) */
    lock_blocks(disk, &range, len, offset);
    r = kind == UBD_KIND_ZERO ? ubd_zero_range(disk, len, offset, flags)
                              : ubd_trim_range(disk, len, offset);
    unlock_blocks(disk, &range);
    ubd_writeback_zeroed(&disk->writeback, offset, len);
    if (r < 0)
        ubd_durability_failed(d, len);
    else
        ubd_durability_completed(d, len); /* (D8) */
    if (r == 0 && is_durable_change(disk, flags) &&
        !UBD_MUTANT(trim_zero_not_synced))
        r = ubd_disk_make_durable(disk, &sync); /* (D5) */
    ubd_observed_sync(disk,
                      is_durable_change(disk, flags) ? &sync : no_sync(flags));
    if (r == 0 && disk->policy->durable == UBD_DURABLE_ALWAYS &&
        ubd_durability_nr_failed(d) != nr_failed)
        r = -EIO; /* That sync may have been told of our loss. */
    return r;
}

/* What zero and trim share: the change, then its durability. */
static int
change_space(struct ubd_disk *disk, enum ubd_kind kind, uint32_t len,
             uint64_t offset, unsigned flags)
{
    int r = 0;

    if (is_durable_change(disk, flags))
        r = ubd_durability_error(&disk->durability); /* (D3) */
    if (r == 0)
        r = change_space_now(disk, kind, len, offset, flags);
    /* Somebody else's failure?  Then it goes well if done again in full. */
    if (r < 0 && disk->policy->durable == UBD_DURABLE_ALWAYS)
        r = change_space_now(disk, kind, len, offset, flags);
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
    struct ubd_sync_span sync = {.how = UBD_SYNC_NONE};
    const uint64_t start_ns = ubd_now_ns();
    int r = 0;

    if (UBD_MUTANT(reply_before_sync))
        r = ubd_mutant_flush_later(disk);
    else if (disk->policy->flush_syncs && !UBD_MUTANT(flush_ignored))
        r = ubd_disk_make_durable(disk, &sync);
    ubd_observed_flush(disk, &sync);
    if (sync.how == UBD_SYNC_JOINED)
        ubd_stats_count(&disk->stats, UBD_COUNT_MERGED);
    if (sync.how == UBD_SYNC_CLEAN)
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
    ret_stats->dirty_bytes = ubd_writeback_dirty(&disk->writeback);
    ret_stats->dirty_bytes_max = ubd_writeback_dirty_max(&disk->writeback);
    ret_stats->writeout_bytes = atomic_load(&disk->writeback.written);
    ret_stats->throttle_ns = atomic_load(&disk->writeback.throttle_ns);
    ret_stats->volatile_bytes = ubd_durability_volatile(&disk->durability);
}
