/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What has been written out is flushed out of the disk's cache as well: how
 * much may be there, who waits for whom, and what a failure means.
 */
#include "unit.h"

#include <sched.h>
#include <string.h>

#define MIB (1024 * KIB)
#define SIZE (16 * MIB)
#define LIMIT MIB
#define SHARE (SIZE / 8) /* As the image is small. */

static const char data[MIB] = "some data";

/* More than a share, not all of which need be written out yet. */
static void
stream(struct ubd_disk *disk)
{
    for (uint64_t at = 0; at < SHARE + 2 * LIMIT; at += MIB)
        ck_assert_int_eq(ubd_write(disk, data, MIB, at, 0), 0);
}

static void
wait_loss(struct ubd_disk *disk)
{
    while (ubd_loss(disk) == 0)
        sched_yield();
}

START_TEST(disk_is_flushed_each_time_a_share_is_written_out)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, true);

    for (unsigned n = 1; n <= 3; n++) {
        stream(disk);
        fake_wait_count(fake, FAKE_SYNC_PAGE, n);
    }
    ck_assert_uint_le(fake_count(fake, FAKE_SYNC_PAGE),
                      3 * (SHARE + 2 * LIMIT) / SHARE);
    ck_assert_uint_ge(unit_counter(disk, UBD_COUNT_CACHE_FLUSHES), 3);
    /* It is no sync, and a flush needs one as before. */
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 0);
    ck_assert_uint_eq(unit_counter(disk, UBD_COUNT_SYNCS_SUBMITTED), 0);
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC), 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(mode_that_never_syncs_never_flushes_the_disk)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "unsafe", LIMIT, true);

    for (unsigned n = 0; n < 3; n++)
        stream(disk);
    ck_assert_uint_ge(fake_count(fake, FAKE_WAIT_WRITEOUT), 1);
    ck_assert(!disk->cache_flush.is_on);
    ck_assert_uint_eq(fake_count(fake, FAKE_SYNC_PAGE), 0);
    unit_close(disk, fake);
}
END_TEST

/* The disk has told only this call; no later one hears of it. */
START_TEST(flush_of_the_disk_that_failed_is_a_loss)
{
    for (int fails = 0; fails < 2; fails++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, true);

        ck_assert_int_eq(ubd_flush(disk), 0);
        fake_fault_once(fake, FAKE_SYNC_PAGE, fails ? FAKE_FAIL : FAKE_LOSE,
                        -EIO);
        stream(disk);
        wait_loss(disk);
        for (unsigned i = 0; i < 5; i++) {
            ck_assert_int_eq(ubd_flush(disk), -EIO);
            ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -EIO);
        }
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(report_of_what_lost_nothing_is_no_loss)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, true);

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault(fake, FAKE_DURABLE, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -EIO);
    fake_heal(fake);
    for (unsigned n = 1; n <= 5; n++) { /* On every lane. */
        stream(disk);
        fake_wait_count(fake, FAKE_SYNC_PAGE, n);
    }
    ck_assert_int_eq(ubd_flush(disk), 0);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), 0);
    unit_close(disk, fake);
}
END_TEST

/* Its sync has succeeded, perhaps because there was nothing left to flush. */
START_TEST(success_is_answered_after_the_flush_that_runs)
{
    for (int is_fua = 0; is_fua < 2; is_fua++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, true);
        struct unit_job job;

        ck_assert_int_eq(ubd_flush(disk), 0);
        fake_fault_once(fake, FAKE_SYNC_PAGE, FAKE_FAIL, -EIO);
        fake_hold(fake, FAKE_SYNC_PAGE, FAKE_RUNNING);
        stream(disk);
        fake_wait_held(fake, FAKE_SYNC_PAGE, 1);
        if (is_fua)
            unit_start(&job, disk, UBD_KIND_WRITE, data, 4096, 0, UBD_FUA);
        else
            unit_start_flush(&job, disk);
        fake_wait_count(fake, is_fua ? FAKE_DURABLE : FAKE_SYNC, 1 + !is_fua);
        unit_give_way(&job);
        ck_assert(!job.has_ended);
        fake_unhold(fake, FAKE_SYNC_PAGE);
        ck_assert_int_eq(unit_join(&job), -EIO);
        unit_close(disk, fake);
    }
}
END_TEST

/* Nothing acknowledged can be lost by the flush that fails, but the write that
 * has just found nothing left to flush could be.
 */
START_TEST(durable_write_beside_a_flush_that_fails_is_written_again)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, true);
    struct unit_job job;

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault_once(fake, FAKE_SYNC_PAGE, FAKE_FAIL, -EIO);
    fake_hold(fake, FAKE_SYNC_PAGE, FAKE_RUNNING);
    ubd_cache_flush_written(&disk->cache_flush, 0, SHARE + 1);
    fake_wait_held(fake, FAKE_SYNC_PAGE, 1);
    unit_start(&job, disk, UBD_KIND_WRITE, data, 4096, 0, UBD_FUA);
    fake_wait_count(fake, FAKE_DURABLE, 1);
    unit_give_way(&job);
    ck_assert(!job.has_ended);
    fake_unhold(fake, FAKE_SYNC_PAGE);
    ck_assert_int_eq(unit_join(&job), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 2);
    ck_assert_int_eq(ubd_loss(disk), 0);
    unit_close(disk, fake);
}
END_TEST

/* All lanes are stale.  A sync that has asked the witness, and waits for the
 * flush that runs, must not keep it from that flush.
 */
START_TEST(sync_and_flush_do_not_wait_for_each_other)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_limited_disk(fake, "barrier", LIMIT, true);
    struct unit_job job;

    ck_assert_int_eq(ubd_flush(disk), 0);
    fake_fault_once(fake, FAKE_DURABLE, FAKE_LOSE, -EIO);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, UBD_FUA), -EIO);
    ck_assert_int_eq(ubd_write(disk, data, 4096, 0, 0), 0);
    fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
    unit_start_flush(&job, disk);
    fake_wait_held(fake, FAKE_SYNC, 1); /* On the witness. */
    ubd_cache_flush_written(&disk->cache_flush, 0, SHARE + 1);
    fake_wait_count(fake, FAKE_WAIT_WRITEOUT, 2); /* It asks as well. */
    fake_unhold(fake, FAKE_SYNC);
    ck_assert_int_eq(unit_join(&job), 0);
    unit_close(disk, fake);
}
END_TEST

/* The linker puts this in the place of pthread_create (meson.build). */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *opaque);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *opaque);

static bool has_no_threads;

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                      void *(*run)(void *), void *opaque)
{
    return has_no_threads ? EAGAIN
                          : __real_pthread_create(thread, attr, run, opaque);
}

/* A flush that takes until it is let go. */
struct slow {
    sem_t begun, go_on;
    atomic_uint nr;
    uint64_t offset;
};

static void
flush_slowly(void *opaque, uint64_t offset)
{
    struct slow *slow = opaque;

    slow->offset = offset;
    atomic_fetch_add(&slow->nr, 1);
    sem_post(&slow->begun);
    while (sem_wait(&slow->go_on) != 0)
        continue;
}

static void
start_slow(struct ubd_cache_flush *c, struct slow *slow)
{
    const struct ubd_cache_flush_config config = {
        .share = 10, .limit = 20, .flush = flush_slowly, .opaque = slow};

    *slow = (struct slow){0};
    sem_init(&slow->begun, 0, 0);
    sem_init(&slow->go_on, 0, 0);
    ck_assert_int_eq(ubd_cache_flush_start(c, &config), 0);
}

START_TEST(thread_that_cannot_be_made_is_an_error_and_leaves_it_off)
{
    const struct ubd_cache_flush_config config = {.share = 10, .limit = 20};
    struct ubd_cache_flush c;

    has_no_threads = true;
    ck_assert_int_eq(ubd_cache_flush_start(&c, &config), -EAGAIN);
    ck_assert(!c.is_on);
    ubd_cache_flush_written(&c, 0, 100); /* Nobody would let it go. */
    ubd_cache_flush_stop(&c);
    ubd_cache_flush_destroy(&c);
}
END_TEST

static void
wait_begun(struct slow *slow)
{
    while (sem_wait(&slow->begun) != 0)
        continue;
}

struct writer {
    pthread_t thread;
    struct ubd_cache_flush *c;
    atomic_bool has_ended;
};

static void *
write_too_much(void *opaque)
{
    struct writer *w = opaque;

    ubd_cache_flush_written(w->c, 0, 15); /* 25 with the 10 before. */
    atomic_store(&w->has_ended, true);
    return NULL;
}

static void
start_writer(struct writer *w, struct ubd_cache_flush *c)
{
    *w = (struct writer){.c = c};
    ck_assert_int_eq(pthread_create(&w->thread, NULL, write_too_much, w), 0);
}

START_TEST(write_out_waits_while_the_disk_has_too_much)
{
    struct ubd_cache_flush c;
    struct slow slow;
    struct writer w;

    start_slow(&c, &slow);
    ubd_cache_flush_written(&c, 4096, 9);
    ck_assert_uint_eq(atomic_load(&slow.nr), 0);
    ubd_cache_flush_written(&c, 8192, 1);
    wait_begun(&slow);
    ck_assert_uint_eq(slow.offset, 8192);
    start_writer(&w, &c);
    for (unsigned i = 0; i < 1000; i++)
        sched_yield();
    ck_assert(!atomic_load(&w.has_ended));
    sem_post(&slow.go_on); /* Then 15 are left: a share, below the limit. */
    pthread_join(w.thread, NULL);
    wait_begun(&slow);
    sem_post(&slow.go_on);
    ubd_cache_flush_stop(&c);
    ubd_cache_flush_destroy(&c);
    ck_assert_uint_eq(atomic_load(&slow.nr), 2);
}
END_TEST

START_TEST(what_a_sync_has_flushed_needs_no_other_flush)
{
    struct ubd_cache_flush c;
    struct slow slow;
    uint64_t mark;

    start_slow(&c, &slow);
    ubd_cache_flush_written(&c, 0, 8);
    mark = ubd_cache_flush_mark(&c);
    ck_assert_uint_eq(mark, 8);
    ubd_cache_flush_written(&c, 0, 1); /* After the sync was submitted. */
    ubd_cache_flush_synced(&c, mark);
    ck_assert_uint_eq(c.flushed_bytes, 8);
    ubd_cache_flush_written(&c, 0, 8);
    for (unsigned i = 0; i < 1000; i++)
        sched_yield();
    ck_assert_uint_eq(atomic_load(&slow.nr), 0);
    ubd_cache_flush_written(&c, 0, 1);
    wait_begun(&slow);
    sem_post(&slow.go_on);
    ubd_cache_flush_stop(&c);
    ubd_cache_flush_destroy(&c);
}
END_TEST

/* It was submitted before the flush began, and has ended after it. */
START_TEST(sync_that_is_older_than_a_flush_takes_nothing_back)
{
    struct ubd_cache_flush c;
    struct slow slow;
    uint64_t mark;

    start_slow(&c, &slow);
    ubd_cache_flush_written(&c, 0, 8);
    mark = ubd_cache_flush_mark(&c);
    ubd_cache_flush_written(&c, 0, 2);
    wait_begun(&slow);
    sem_post(&slow.go_on);
    ubd_cache_flush_settle(&c);
    ubd_cache_flush_synced(&c, mark);
    ck_assert_uint_eq(c.flushed_bytes, 10);
    ubd_cache_flush_stop(&c);
    ubd_cache_flush_destroy(&c);
}
END_TEST

START_TEST(stop_lets_the_write_out_go)
{
    struct ubd_cache_flush c;
    struct slow slow;
    struct writer w;

    start_slow(&c, &slow);
    ubd_cache_flush_written(&c, 0, 10);
    wait_begun(&slow);
    start_writer(&w, &c);
    sem_post(&slow.go_on); /* So that stop can end; the next one is held. */
    wait_begun(&slow);
    ubd_cache_flush_written(&c, 0, 1);
    sem_post(&slow.go_on);
    ubd_cache_flush_stop(&c);
    pthread_join(w.thread, NULL);
    ubd_cache_flush_written(&c, 0, 100);
    ubd_cache_flush_settle(&c);
    ubd_cache_flush_destroy(&c);
    ck_assert(!c.is_on);
}
END_TEST

/* There is more than the limit, and less than a flush is made for. */
START_TEST(stop_lets_the_write_out_go_also_if_no_flush_will)
{
    const struct ubd_cache_flush_config config = {.share = 100, .limit = 20};
    struct ubd_cache_flush c;
    struct writer w;

    ck_assert_int_eq(ubd_cache_flush_start(&c, &config), 0);
    ubd_cache_flush_written(&c, 0, 20); /* Not above the limit. */
    start_writer(&w, &c);
    while (ubd_cache_flush_mark(&c) < 35) /* Then it waits. */
        sched_yield();
    ck_assert(!atomic_load(&w.has_ended));
    ubd_cache_flush_stop(&c);
    pthread_join(w.thread, NULL);
    ubd_cache_flush_destroy(&c);
}
END_TEST

static void *
stop(void *opaque)
{
    struct writer *w = opaque;

    ubd_cache_flush_stop(w->c);
    atomic_store(&w->has_ended, true);
    return NULL;
}

START_TEST(stop_waits_for_the_flush_that_runs)
{
    struct ubd_cache_flush c;
    struct writer stopper = {.c = &c};
    struct slow slow;

    start_slow(&c, &slow);
    ubd_cache_flush_written(&c, 0, 10);
    wait_begun(&slow);
    ck_assert_int_eq(pthread_create(&stopper.thread, NULL, stop, &stopper), 0);
    for (unsigned i = 0; i < 1000; i++)
        sched_yield();
    ck_assert(!atomic_load(&stopper.has_ended));
    sem_post(&slow.go_on);
    pthread_join(stopper.thread, NULL);
    ubd_cache_flush_destroy(&c);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        disk_is_flushed_each_time_a_share_is_written_out,
        mode_that_never_syncs_never_flushes_the_disk,
        flush_of_the_disk_that_failed_is_a_loss,
        report_of_what_lost_nothing_is_no_loss,
        success_is_answered_after_the_flush_that_runs,
        durable_write_beside_a_flush_that_fails_is_written_again,
        sync_and_flush_do_not_wait_for_each_other,
        write_out_waits_while_the_disk_has_too_much,
        what_a_sync_has_flushed_needs_no_other_flush,
        sync_that_is_older_than_a_flush_takes_nothing_back,
        stop_lets_the_write_out_go,
        stop_lets_the_write_out_go_also_if_no_flush_will,
        stop_waits_for_the_flush_that_runs,
        thread_that_cannot_be_made_is_an_error_and_leaves_it_off,
        NULL,
    };

    return unit_run("cache-flush", tests);
}
