/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the unit tests share.
 */
#include "unit.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The linker puts these in the place of open (--wrap in meson.build): what the
 * engine opens has a cursor of its own.  Large offsets and fortified builds
 * have other names for it.
 */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
    __attribute__((alias("__wrap_open")));
int __wrap___open_2(const char *path, int flags);
int __wrap___open64_2(const char *path, int flags)
    __attribute__((alias("__wrap___open_2")));

int
__wrap_open(const char *path, int flags, ...)
{
    va_list args;
    int mode, fd;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    fd = __real_open(path, flags | O_LARGEFILE, mode);
    fake_opened(fd);
    return fd;
}

int
__wrap___open_2(const char *path, int flags)
{
    return __wrap_open(path, flags);
}

#define TIMEOUT_S 60 /* For a test that hangs; sanitizers are slow. */

int
unit_run(const char *name, const TTest *const *tests)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    SRunner *runner;
    int nr_failed;

    tcase_set_timeout(tcase, TIMEOUT_S);
    for (; *tests; tests++)
        tcase_add_test(tcase, *tests);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    nr_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return nr_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int
unit_file(uint64_t size, char path[64])
{
    const int fd = memfd_create("unit", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, size), 0);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* The write-out starts again, on @io. */
static void
move_writeback(struct ubd_disk *disk, struct ubd_io *io)
{
    struct ubd_writeback_config config = disk->writeback.config;

    if (!disk->writeback.is_on)
        return;
    ubd_writeback_stop(&disk->writeback);
    config.io = io;
    ck_assert_int_eq(ubd_writeback_start(&disk->writeback, &config), 0);
}

struct ubd_disk *
unit_disk(struct fake *fake, const char *cache)
{
    return unit_limited_disk(fake, cache, 0, false);
}

struct ubd_disk *
unit_settled_disk(struct fake *fake)
{
    struct ubd_disk *disk = unit_disk(fake, "barrier");

    ck_assert_int_eq(ubd_flush(disk), 0);
    return disk;
}

struct ubd_disk *
unit_limited_disk(struct fake *fake, const char *cache, int64_t limit,
                  bool evict)
{
    char path[64];
    const int fd = unit_file(fake->size, path);
    const struct ubd_config config = {.path = path,
                                      .cache = cache,
                                      .trim = true,
                                      .dirty_limit = limit,
                                      .evict = evict,
                                      .io = UBD_IO_SYSCALLS};
    struct ubd_disk *disk;
    const char *why;

    ck_assert_int_eq(ubd_open(&config, &disk, &why), 0);
    close(fd);
    ck_assert_int_eq(ubd_start(disk), 0);
    move_writeback(disk, &fake->io);
    disk->io->ops->close(disk->io);
    disk->io = &fake->io;
    /* A pause of a busy machine is not a slow disk. */
    disk->durability.syncs.is_proven = true;
    unit_wait_asleep(disk);
    return disk;
}

void
unit_wait_asleep(struct ubd_disk *disk)
{
    while (disk->writeback.is_on && !atomic_load(&disk->writeback.is_asleep))
        sched_yield();
}

struct ubd_disk *
unit_direct_disk(struct fake *fake, const char *cache, uint32_t align,
                 uint32_t mem_align)
{
    struct ubd_disk *disk = unit_disk(fake, cache);

    disk->host.is_direct = true;
    disk->host.align = fake->align = align;
    disk->host.mem_align = fake->mem_align = mem_align;
    return disk;
}

void
unit_limit_syncs(struct ubd_disk *disk, unsigned max)
{
    ubd_concurrency_init(&disk->durability.syncs, max);
}

void
unit_close(struct ubd_disk *disk, struct fake *fake)
{
    ck_assert(!fake->has_grown);
    ck_assert(!fake->is_misaligned);
    ck_assert(!fake->was_evicted_early);
    ubd_close(disk);
    fake_free(fake);
}

static void *
run_job(void *opaque)
{
    struct unit_job *job = opaque;

    switch (job->kind) {
    case UBD_KIND_WRITE:
        job->result =
            ubd_write(job->disk, job->buf, job->len, job->offset, job->flags);
        break;
    case UBD_KIND_ZERO:
        job->result = ubd_zero(job->disk, job->len, job->offset, job->flags);
        break;
    case UBD_KIND_TRIM:
        job->result = ubd_trim(job->disk, job->len, job->offset, job->flags);
        break;
    case UBD_KIND_FLUSH:
        job->result = ubd_flush(job->disk);
        break;
    default:
        abort();
    }
    job->has_ended = true;
    return NULL;
}

void
unit_start(struct unit_job *job, struct ubd_disk *disk, enum ubd_kind kind,
           const void *buf, uint32_t len, uint64_t offset, unsigned flags)
{
    job->disk = disk;
    job->kind = kind;
    job->buf = buf;
    job->len = len;
    job->offset = offset;
    job->flags = flags;
    job->has_ended = false;
    ck_assert_int_eq(pthread_create(&job->thread, NULL, run_job, job), 0);
}

void
unit_start_flush(struct unit_job *job, struct ubd_disk *disk)
{
    unit_start(job, disk, UBD_KIND_FLUSH, NULL, 0, 0, 0);
}

int
unit_join(struct unit_job *job)
{
    ck_assert_int_eq(pthread_join(job->thread, NULL), 0);
    return job->result;
}

void
unit_give_way(struct unit_job *job)
{
    for (unsigned i = 0; i < 2000 && !job->has_ended; i++)
        sched_yield();
}

static unsigned
count_list(const struct ubd_flusher *f)
{
    unsigned nr = 0;

    for (; f; f = f->next)
        nr++;
    return nr;
}

static unsigned
count_flushers(struct ubd_durability *d)
{
    unsigned nr;

    pthread_mutex_lock(&d->lock);
    nr = count_list(d->waiting);
    for (const struct ubd_sync *s = d->running; s; s = s->next)
        nr += count_list(s->followers);
    pthread_mutex_unlock(&d->lock);
    return nr;
}

void
unit_wait_flushers(struct ubd_disk *disk, unsigned nr)
{
    while (count_flushers(&disk->durability) < nr)
        sched_yield();
}

uint64_t
unit_counter(struct ubd_disk *disk, enum ubd_counter counter)
{
    struct ubd_stats stats;

    ubd_stats(disk, &stats);
    return stats.counter[counter];
}
