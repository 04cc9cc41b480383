/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The glue: nbdkit's callbacks in, engine calls out.
 */
#include "ubd-cmdline.h"
#include "ubd-metrics.h"
#include "ubd-options.h"
#include "ubd-trace.h"
#include "ubd.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static struct ubd_disk *disk; /* One for all connections; multi-conn is safe. */

static int
get_ready_failed(int error, const char *why)
{
    const char *path = ubd_options.config.path;

    if (why && error != -EINVAL && error != -EBUSY && error != -ENOENT &&
        error != -ELOOP)
        nbdkit_error("file=%s: %s: %s", path, why, strerror(-error));
    else
        nbdkit_error("file=%s: %s", path, why ? why : strerror(-error));
    return -1;
}

static int
other_file_failed(const char *key, const char *path, int error, const char *why)
{
    if (why)
        nbdkit_error("%s=%s: %s", key, path, why);
    else
        nbdkit_error("%s=%s: cannot be written: %s; expected a path in a "
                     "folder that exists",
                     key, path, strerror(-error));
    return -1;
}

static void
lost(int error)
{
    nbdkit_error("file=%s: the host lost acknowledged data (%s); every flush "
                 "and durable write fails from now on, until the server is "
                 "restarted",
                 ubd_options.file, strerror(error));
}

static void
announce(void)
{
    const struct ubd_info *info = ubd_info(disk);

    if (info->uring_error)
        fprintf(stderr,
                "nbdkit: ubd: warning: io_uring is refused here (%s); serving "
                "through plain system calls with the same promises\n",
                strerror(info->uring_error));
    if (info->lock_error)
        fprintf(stderr,
                "nbdkit: ubd: warning: file=%s cannot be locked (%s); nothing "
                "keeps others from writing to it\n",
                ubd_options.config.path, strerror(info->lock_error));
    fprintf(stderr, "nbdkit: ubd: %scache=%s%s%s: %s\n",
            info->warn && !info->readonly ? "warning: " : "", info->mode,
            info->direct ? " direct=true" : "",
            info->readonly ? " (read-only)" : "",
            info->readonly ? "nothing is ever written" : info->survives);
}

/* The files besides the image; if one fails, nothing is left of the other. */
static int
open_other_files(void)
{
    const char *why = NULL;
    int r = 0;

    if (ubd_options.trace) {
        r = ubd_trace_open(ubd_options.trace, ubd_options.file,
                           ubd_options.metrics, &why);
        if (r < 0)
            return other_file_failed("trace", ubd_options.trace, r, why);
    }
    if (ubd_options.metrics)
        r = ubd_metrics_open(disk, ubd_options.metrics, ubd_options.file, &why);
    if (r < 0) {
        ubd_trace_abandon();
        return other_file_failed("metrics", ubd_options.metrics, r, why);
    }
    return 0;
}

/* Everything that can fail is done here, where the user sees it: open, lock,
 * and a trial of io_uring.
 */
static int
ubd_get_ready(void)
{
    const char *why;
    int r;

    r = ubd_cmdline_is_readonly();
    if (r < 0) {
        nbdkit_error("file=%s: needs /proc, which cannot be read: %s; expected "
                     "it to be mounted",
                     ubd_options.file, strerror(-r));
        return -1;
    }
    ubd_options.config.readonly = r;
    ubd_options.config.lost = lost;
    r = ubd_open(&ubd_options.config, &disk, &why);
    if (r < 0)
        return get_ready_failed(r, why);
    if (open_other_files() < 0)
        return -1;
    announce();
    return 0;
}

static int
ubd_after_fork(void)
{
    int r = ubd_start(disk);

    /* A file size limit is an EFBIG, not a death; but not for the command of
     * --run, which has been forked by now.
     */
    signal(SIGXFSZ, SIG_IGN);
    if (r == 0)
        r = ubd_trace_start(disk, ubd_options.file);
    if (r == 0)
        r = ubd_metrics_start();
    if (r < 0)
        nbdkit_error("cannot start: %s", strerror(-r));
    return r < 0 ? -1 : 0;
}

static void
ubd_cleanup(void)
{
    ubd_trace_stop(); /* First, as the metrics count its lines. */
    ubd_metrics_stop();
}

static void
ubd_unload(void)
{
    ubd_trace_stop(); /* First, as the metrics count its lines. */
    ubd_metrics_stop();
    ubd_close(disk);
    ubd_options_free();
}

static void
ubd_dump_plugin(void)
{
    const int r = ubd_probe_uring();
    const char *name, *mode;
    struct utsname kernel;
    bool direct;

    printf("ubd_modes=");
    for (unsigned i = 0; (name = ubd_mode_name(i)); i++)
        printf("%s%s", i ? " " : "", name);
    printf("\nubd_mode_default=%s\n", ubd_mode_name(0));
    for (unsigned i = 0; (name = ubd_mode_alias(i, &mode, &direct)); i++)
        printf("ubd_alias_%s=%s%s\n", name, mode, direct ? "+direct" : "");
    printf("ubd_io_uring=%s\n", r == 0 ? "yes" : strerror(-r));
    printf("ubd_engine=%s\n", r == 0 ? "io_uring" : "syscalls");
    if (uname(&kernel) == 0)
        printf("ubd_kernel=%s\n", kernel.release);
}

/* A connection has nothing but a number, so that is its handle. */
static void *
ubd_open_connection(int readonly)
{
    static atomic_uintptr_t nr_connections;

    if (!readonly && ubd_info(disk)->readonly) {
        nbdkit_error("file=%s: was opened read-only", ubd_options.file);
        return NULL;
    }
    return (void *)(atomic_fetch_add(&nr_connections, 1) + 1);
}

static int64_t
ubd_get_size(void *handle)
{
    (void)handle;
    return ubd_info(disk)->size;
}

static int
answer_yes(void *handle)
{
    (void)handle;
    return 1;
}

static int
ubd_can_write(void *handle)
{
    (void)handle;
    return !ubd_info(disk)->readonly;
}

static int
ubd_can_trim(void *handle)
{
    (void)handle;
    return ubd_info(disk)->trim && !ubd_info(disk)->readonly;
}

static int
ubd_can_fua(void *handle)
{
    (void)handle;
    return NBDKIT_FUA_NATIVE;
}

static int
ubd_can_cache(void *handle)
{
    (void)handle;
    return NBDKIT_CACHE_NATIVE;
}

static int
ubd_can_extents(void *handle)
{
    (void)handle;
    return ubd_info(disk)->can_extents;
}

static int
ubd_is_rotational(void *handle)
{
    (void)handle;
    return ubd_info(disk)->rotational;
}

static int
ubd_block_size(void *handle, uint32_t *minimum, uint32_t *preferred,
               uint32_t *maximum)
{
    const uint32_t block = ubd_info(disk)->block_size;

    (void)handle;
    *minimum = 1; /* Every request is exact to the byte. */
    *preferred = block > 4096 ? block : 4096;
    *maximum = 0xffffffff;
    return 0;
}

/* What NBD has a number for is passed on; the rest would become EINVAL, as if
 * the client had made a mistake.
 */
static int
nbd_errno(int error)
{
    switch (error) {
    case EPERM:
    case EROFS:
    case EIO:
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EINVAL:
    case ESHUTDOWN:
    case EOPNOTSUPP:
        return error;
    }
    return EIO;
}

/* The one place that answers a failure and says so, once for each kind, as a
 * guest may try very often; what follows from a loss, lost() has said.
 */
static int
failed(int r, enum ubd_kind kind, uint32_t count, uint64_t offset)
{
    static const char *const kinds[] = {
#define AS_NAME(id, name) name,
        UBD_KINDS(AS_NAME)};
    static atomic_uint told[UBD_NR_KINDS];

    if (!ubd_loss(disk) && r != -EOPNOTSUPP &&
        !(atomic_fetch_or(&told[kind], 1u << (-r % 32)) & 1u << (-r % 32)))
        nbdkit_error("file=%s: %s of %u bytes at %llu failed: %s (said once "
                     "for each kind of failure)",
                     ubd_options.file, kinds[kind], count,
                     (unsigned long long)offset, strerror(-r));
    nbdkit_set_error(nbd_errno(-r));
    return -1;
}

static unsigned
engine_flags(uint32_t flags)
{
    return (flags & NBDKIT_FLAG_FUA ? UBD_FUA : 0) |
           (flags & NBDKIT_FLAG_MAY_TRIM ? UBD_MAY_TRIM : 0) |
           (flags & NBDKIT_FLAG_FAST_ZERO ? UBD_FAST_ONLY : 0);
}

/* A request has come. */
static inline void
begin(struct ubd_trace_record *record, void *handle, enum ubd_kind kind,
      uint32_t count, uint64_t offset, uint32_t flags)
{
    ubd_trace_begin(record, (uintptr_t)handle, kind, count, offset,
                    engine_flags(flags) |
                        (flags & NBDKIT_FLAG_REQ_ONE ? UBD_TRACE_REQ_ONE : 0));
}

/* It is answered with @r. */
static inline int
answer(struct ubd_trace_record *record, int r, enum ubd_kind kind,
       uint32_t count, uint64_t offset)
{
    ubd_trace_end(record, r);
    return r < 0 ? failed(r, kind, count, offset) : 0;
}

static int
ubd_pread(void *handle, void *buf, uint32_t count, uint64_t offset,
          uint32_t flags)
{
    struct ubd_trace_record record;

    begin(&record, handle, UBD_KIND_READ, count, offset, flags);
    return answer(&record, ubd_read(disk, buf, count, offset), UBD_KIND_READ,
                  count, offset);
}

static int
ubd_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
           uint32_t flags)
{
    struct ubd_trace_record record;
    int r;

    begin(&record, handle, UBD_KIND_WRITE, count, offset, flags);
    r = ubd_write(disk, buf, count, offset, engine_flags(flags));
    return answer(&record, r, UBD_KIND_WRITE, count, offset);
}

static int
ubd_zero_callback(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct ubd_trace_record record;
    int r;

    begin(&record, handle, UBD_KIND_ZERO, count, offset, flags);
    r = ubd_zero(disk, count, offset, engine_flags(flags));
    /* For anything but a fast zero nbdkit would take this as a request to
     * write zeroes itself, which it does wrongly above 64 MiB (1.32).
     */
    if (r == -EOPNOTSUPP && !(flags & NBDKIT_FLAG_FAST_ZERO))
        r = -EIO;
    return answer(&record, r, UBD_KIND_ZERO, count, offset);
}

static int
ubd_trim_callback(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct ubd_trace_record record;
    int r;

    begin(&record, handle, UBD_KIND_TRIM, count, offset, flags);
    r = ubd_trim(disk, count, offset, engine_flags(flags));
    return answer(&record, r, UBD_KIND_TRIM, count, offset);
}

static int
ubd_flush_callback(void *handle, uint32_t flags)
{
    struct ubd_trace_record record;

    begin(&record, handle, UBD_KIND_FLUSH, 0, 0, flags);
    return answer(&record, ubd_flush(disk), UBD_KIND_FLUSH, 0, 0);
}

static int
ubd_cache_callback(void *handle, uint32_t count, uint64_t offset,
                   uint32_t flags)
{
    struct ubd_trace_record record;

    begin(&record, handle, UBD_KIND_CACHE, count, offset, flags);
    return answer(&record, ubd_cache(disk, count, offset), UBD_KIND_CACHE,
                  count, offset);
}

static int
add_extent(void *extents, uint64_t offset, uint64_t len, bool is_hole)
{
    return nbdkit_add_extent(extents, offset, len,
                             is_hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO
                                     : 0);
}

static int
ubd_extents_callback(void *handle, uint32_t count, uint64_t offset,
                     uint32_t flags, struct nbdkit_extents *extents)
{
    struct ubd_trace_record record;
    int r;

    begin(&record, handle, UBD_KIND_EXTENTS, count, offset, flags);
    r = ubd_extents(disk, count, offset, flags & NBDKIT_FLAG_REQ_ONE,
                    add_extent, extents);
    return answer(&record, r, UBD_KIND_EXTENTS, count, offset);
}

static struct nbdkit_plugin plugin = {
    .name = "ubd",
    .longname = "ubd durable disk plugin",
    .version = UBD_VERSION,
    .description = "serves a host file or block device as a disk that keeps "
                   "its promises about durability",
    .magic_config_key = "file",
    .config_help = ubd_options_help,
    .config = ubd_options_set,
    .config_complete = ubd_options_complete,
    .dump_plugin = ubd_dump_plugin,
    .get_ready = ubd_get_ready,
    .after_fork = ubd_after_fork,
    .cleanup = ubd_cleanup,
    .unload = ubd_unload,
    .open = ubd_open_connection,
    .get_size = ubd_get_size,
    .block_size = ubd_block_size,
    .can_write = ubd_can_write,
    .can_flush = answer_yes,
    .can_trim = ubd_can_trim,
    .can_zero = answer_yes,
    .can_fast_zero = answer_yes,
    .can_fua = ubd_can_fua,
    .can_multi_conn = answer_yes,
    .can_cache = ubd_can_cache,
    .can_extents = ubd_can_extents,
    .is_rotational = ubd_is_rotational,
    .pread = ubd_pread,
    .pwrite = ubd_pwrite,
    .flush = ubd_flush_callback,
    .trim = ubd_trim_callback,
    .zero = ubd_zero_callback,
    .cache = ubd_cache_callback,
    .extents = ubd_extents_callback,
};

NBDKIT_REGISTER_PLUGIN(plugin)
