/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A disk's beginning and end, and what it says about itself.
 */
#include "cleanup.h"
#include "disk.h"

#include <errno.h>
#include <string.h>

#define SYNCS_MAX 16 /* At a time, of a crowd on a disk that likes it. */
#define SYNC_LANES (SYNCS_MAX + 1) /* And one for the flushes of the cache. */
#define WRITE_LANES 32 /* Durable writes at a time; more of them wait. */

int
ubd_probe_uring(void)
{
    return ubd_io_uring_probe();
}

/* Rings are refused here rather than in ubd_start, whose failure the user of a
 * daemon would not see.
 */
static int
probe_io(struct ubd_disk *disk, const char **ret_why)
{
    int r;

    disk->info.engine = "syscalls";
    if (disk->io_choice == UBD_IO_SYSCALLS)
        return 0;
    r = ubd_io_uring_probe();
    if (r < 0 && disk->io_choice == UBD_IO_URING) {
        *ret_why = "io_uring is refused by this host";
        return r;
    }
    disk->info.uring_error = -r;
    if (r == 0)
        disk->info.engine = "io_uring";
    return 0;
}

static int
find_policy(struct ubd_disk *disk, const struct ubd_config *config,
            bool *ret_direct, const char **ret_why)
{
    disk->policy = ubd_policy_find(config->cache, ret_direct);
    if (!disk->policy) {
        *ret_why = "unknown cache mode";
        return -EINVAL;
    }
    *ret_direct = *ret_direct || config->direct;
    return 0;
}

static int
open_host(struct ubd_disk *disk, const struct ubd_config *config, bool direct,
          const char **ret_why)
{
    const bool never = disk->policy->durable == UBD_DURABLE_NEVER;
    const int64_t limit = config->dirty_limit == UBD_DIRTY_LIMIT_AUTO
                              ? disk->policy->dirty_limit
                              : config->dirty_limit;
    /* What is written with O_DIRECT, or durably, leaves nothing dirty. */
    const bool leaves_dirty = !direct && !config->readonly &&
                              disk->policy->durable != UBD_DURABLE_ALWAYS;
    const struct ubd_host_config host_config = {
        .path = config->path,
        .readonly = config->readonly,
        .direct = direct,
        .lock = config->lock,
        .nr_syncs = never ? 0 : SYNC_LANES,
        .nr_writes = never || config->readonly ? 0 : WRITE_LANES,
        .writes_out = limit > 0 && leaves_dirty,
    };

    disk->dirty_limit = host_config.writes_out ? limit : 0;
    disk->evict = config->evict;

    return ubd_host_open(&disk->host, &host_config, ret_why);
}

static void
fill_info(struct ubd_disk *disk, const struct ubd_config *config)
{
    const struct ubd_host *host = &disk->host;

    disk->info.size = host->size;
    disk->info.block_size = host->align > 1 ? host->align : 1;
    disk->info.mode = disk->policy->name;
    disk->info.survives = disk->policy->survives;
    disk->info.warn = disk->policy->durable == UBD_DURABLE_NEVER;
    disk->info.lock_error = host->lock_error;
    disk->info.readonly = config->readonly;
    disk->info.direct = host->is_direct;
    disk->info.trim = config->trim;
    disk->info.can_extents = ubd_host_can_seek_data(host);
    disk->info.rotational = host->is_rotational;
}

/* Where a FLUSH does nothing, what others have left in the page cache before
 * must be durable from the start: (D6).
 */
static int
settle(struct ubd_disk *disk, const char **ret_why)
{
    const struct ubd_req req = {.op = UBD_OP_SYNC, .fd = disk->host.fd};
    const int r = ubd_io_syscall(&req);

    if (r < 0)
        *ret_why = "could not be synced before it is served";
    return r;
}

static int
open_disk(struct ubd_disk *disk, const struct ubd_config *config,
          const char **ret_why)
{
    bool direct;
    int r = find_policy(disk, config, &direct, ret_why);

    if (r == 0)
        r = open_host(disk, config, direct, ret_why);
    if (r == 0)
        r = probe_io(disk, ret_why);
    if (r == 0 && disk->policy->durable == UBD_DURABLE_ALWAYS)
        r = settle(disk, ret_why);
    return r;
}

int
ubd_open(const struct ubd_config *config, struct ubd_disk **ret_disk,
         const char **ret_why)
{
    /* Shards are aligned to cache lines, which calloc is not. */
    struct ubd_disk *disk = aligned_alloc(UBD_CACHE_LINE, sizeof *disk);
    int r;

    *ret_why = NULL;
    if (!disk)
        return -ENOMEM;
    memset(disk, 0, sizeof *disk);
    disk->io_choice = config->io;
    disk->lost = config->lost;
    disk->is_observed = config->observe;
    disk->host.fd = disk->host.fd_buffered = disk->host.fd_writeout = -1;
    r = open_disk(disk, config, ret_why);
    if (r < 0) {
        ubd_host_close(&disk->host);
        free(disk);
        return r;
    }
    fill_info(disk, config);
    ubd_durability_init(&disk->durability,
                        disk->policy->durable == UBD_DURABLE_ALWAYS, SYNCS_MAX);
    ubd_writeout_init(&disk->writeout, ubd_disk_lost, disk);
    ubd_range_locks_init(&disk->ranges);
    pthread_mutex_init(&disk->bounce.lock, NULL);
    *ret_disk = disk;
    return 0;
}

/* Write-out has met a failure.  Whether something acknowledged is lost is for
 * a sync to say, on an open file whose cursor is known (durability.h, D4).
 */
static bool
writeback_failed(void *opaque)
{
    struct ubd_disk *disk = opaque;
    struct ubd_sync_span sync;

    if (!disk->policy->flush_syncs)
        return true;
    (void)ubd_disk_make_durable(disk, &sync); /* It remembers a loss. */
    /* No sync for what has not completed: that may be what was lost. */
    return sync.how != UBD_SYNC_CLEAN ||
           ubd_durability_is_all_durable(&disk->durability);
}

static void
writeback_written(void *opaque, uint64_t offset, uint64_t bytes)
{
    struct ubd_disk *disk = opaque;

    ubd_cache_flush_written(&disk->cache_flush, offset, bytes);
}

static void
flush_cache(void *opaque, uint64_t offset)
{
    ubd_disk_flush_cache(opaque, offset);
}

/* A share is what a disk should flush in a tenth of a second, or in half of one
 * if it is slow.  With smaller ones the flushes cost time
 * (docs/performance.md); but an eighth of an image is always enough.
 */
#define SHARE_MIN (UINT64_C(16) << 20)
#define SHARE_TINY (UINT64_C(64) << 10)
#define SHARE_MAX (UINT64_C(64) << 20)

static uint64_t
clamp(uint64_t value, uint64_t min, uint64_t max)
{
    if (value < min)
        return min;
    return value > max ? max : value;
}

static int
start_cache_flush(struct ubd_disk *disk)
{
    const uint64_t most = clamp(disk->host.size / 8, SHARE_TINY, SHARE_MAX);
    const uint64_t share =
        clamp(clamp(disk->dirty_limit / 4, SHARE_MIN, SHARE_MAX), 0, most);
    const struct ubd_cache_flush_config config = {
        .share = share,
        .limit = clamp(disk->dirty_limit, 2 * share, UINT64_MAX),
        .flush = flush_cache,
        .opaque = disk,
    };

    if (!disk->policy->flush_syncs)
        return 0;
    return ubd_cache_flush_start(&disk->cache_flush, &config);
}

static int
start_writeback(struct ubd_disk *disk)
{
    const struct ubd_writeback_config config = {
        .io = disk->io,
        .writeout = &disk->writeout,
        .fd = disk->host.fd_writeout,
        .size = disk->host.size,
        .limit = disk->dirty_limit,
        .evict = disk->evict,
        .failed = writeback_failed,
        .written = writeback_written,
        .opaque = disk,
    };

    const int r = start_cache_flush(disk);

    return r < 0 ? r : ubd_writeback_start(&disk->writeback, &config);
}

int
ubd_start(struct ubd_disk *disk)
{
    int r = -ENOSYS;

    if (disk->io_choice != UBD_IO_SYSCALLS && !disk->info.uring_error)
        r = ubd_io_uring_open(disk->io_choice == UBD_IO_URING, &disk->io);
    if (r < 0 && disk->io_choice != UBD_IO_URING) {
        r = ubd_io_syscalls_open(&disk->io);
        disk->info.engine = "syscalls";
    }
    if (r == 0 && disk->dirty_limit)
        r = start_writeback(disk);
    return r;
}

void
ubd_close(struct ubd_disk *disk)
{
    if (!disk)
        return;
    ubd_cache_flush_stop(&disk->cache_flush); /* The write-out may wait. */
    ubd_writeback_stop(&disk->writeback);
    ubd_cache_flush_destroy(&disk->cache_flush);
    if (disk->io)
        disk->io->ops->close(disk->io);
    ubd_bounce_destroy(&disk->bounce);
    ubd_range_locks_destroy(&disk->ranges);
    ubd_writeout_destroy(&disk->writeout);
    ubd_durability_destroy(&disk->durability);
    ubd_host_close(&disk->host);
    free(disk);
}

const struct ubd_info *
ubd_info(const struct ubd_disk *disk)
{
    return &disk->info;
}
