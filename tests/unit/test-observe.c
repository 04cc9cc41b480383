/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is told of a request to those who look on: when it had done with
 * waiting, and what made it durable.
 */
#include "unit.h"

#include "units.h"

#include <sched.h>
#include <unistd.h>

#define SIZE (64 * KIB)

static const char block[4096] = "a block";

static struct ubd_disk *
observed_disk(struct fake *fake, const char *cache)
{
    struct ubd_disk *disk = unit_disk(fake, cache);

    disk->is_observed = true;
    return disk;
}

/* One request of this thread, and what is told of it. */
static struct ubd_span
observe(struct ubd_disk *disk, enum ubd_kind kind, unsigned flags, int result)
{
    struct ubd_span span = {0};
    char buf[4096];
    int r = -1;

    ubd_observe(&span);
    if (kind == UBD_KIND_READ)
        r = ubd_read(disk, buf, 4096, 0);
    if (kind == UBD_KIND_WRITE)
        r = ubd_write(disk, block, 4096, 0, flags);
    if (kind == UBD_KIND_ZERO)
        r = ubd_zero(disk, 4096, 0, flags);
    if (kind == UBD_KIND_TRIM)
        r = ubd_trim(disk, 4096, 0, flags);
    if (kind == UBD_KIND_FLUSH)
        r = ubd_flush(disk);
    ubd_observe(NULL);
    ck_assert_int_eq(r, result);
    return span;
}

/* By this thread, some time between @since_ns and now. */
static void
check_sync(const struct ubd_sync_span *sync, enum ubd_sync_how how, uint64_t id,
           uint64_t since_ns)
{
    ck_assert_int_eq(sync->how, how);
    ck_assert_uint_eq(sync->id, id);
    ck_assert_int_eq(sync->tid, gettid());
    ck_assert_int_eq(sync->result, 0);
    ck_assert_uint_ge(sync->submitted_ns, since_ns);
    ck_assert_uint_ge(sync->completed_ns, sync->submitted_ns);
    ck_assert_uint_le(sync->completed_ns, ubd_now_ns());
}

START_TEST(nothing_is_told_unless_the_disk_is_observed)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    static const struct ubd_span nothing;

    for (unsigned kind = 0; kind <= UBD_KIND_FLUSH; kind++) {
        const struct ubd_span span = observe(disk, kind, UBD_FUA, 0);

        ck_assert_mem_eq(&span, &nothing, sizeof span);
    }
    unit_close(disk, fake);
}
END_TEST

START_TEST(flush_leads_a_sync_and_the_next_one_is_clean_since_that)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = observed_disk(fake, "barrier");

    for (uint64_t id = 1; id < 4; id++) {
        const uint64_t since_ns = ubd_now_ns();
        struct ubd_span span;

        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
        span = observe(disk, UBD_KIND_FLUSH, 0, 0);
        check_sync(&span.sync, UBD_SYNC_LED, id, since_ns);
        ck_assert_uint_eq(span.start_ns, span.sync.submitted_ns);

        span = observe(disk, UBD_KIND_FLUSH, 0, 0);
        ck_assert_int_eq(span.sync.how, UBD_SYNC_CLEAN);
        ck_assert_uint_eq(span.sync.id, id);
        ck_assert_uint_eq(span.sync.submitted_ns, 0);
        ck_assert_uint_eq(span.sync.completed_ns, 0);
        ck_assert_uint_ge(span.start_ns, since_ns);
    }
    unit_close(disk, fake);
}
END_TEST

START_TEST(plain_request_asks_for_no_sync_and_starts_at_the_host)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = observed_disk(fake, "barrier");

    for (unsigned kind = 0; kind < UBD_KIND_FLUSH; kind++) {
        const uint64_t since_ns = ubd_now_ns();
        const struct ubd_span span = observe(disk, kind, 0, 0);

        ck_assert_int_eq(span.sync.how, UBD_SYNC_UNASKED);
        ck_assert_uint_ge(span.start_ns, since_ns);
        ck_assert_uint_le(span.start_ns, ubd_now_ns());
    }
    unit_close(disk, fake);
}
END_TEST

START_TEST(fua_write_is_one_durable_write)
{
    for (int osync = 0; osync < 2; osync++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk =
            observed_disk(fake, osync ? "osync" : "barrier");
        const uint64_t since_ns = ubd_now_ns();
        const struct ubd_span span =
            observe(disk, UBD_KIND_WRITE, osync ? 0 : UBD_FUA, 0);

        check_sync(&span.sync, UBD_SYNC_WRITE, 0, since_ns);
        ck_assert_uint_eq(span.start_ns, span.sync.submitted_ns);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(fua_zero_and_fua_trim_lead_a_sync_after_they_started)
{
    for (int osync = 0; osync < 2; osync++) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk =
            observed_disk(fake, osync ? "osync" : "barrier");
        const unsigned flags = osync ? 0 : UBD_FUA;
        const uint64_t since_ns = ubd_now_ns();
        struct ubd_span span = observe(disk, UBD_KIND_ZERO, flags, 0);

        check_sync(&span.sync, UBD_SYNC_LED, 1, since_ns);
        ck_assert_uint_lt(span.start_ns, span.sync.submitted_ns);
        span = observe(disk, UBD_KIND_TRIM, flags, 0);
        check_sync(&span.sync, UBD_SYNC_LED, 2, since_ns);
        ck_assert_uint_lt(span.start_ns, span.sync.submitted_ns);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(mode_that_does_not_sync_says_none_to_those_who_ask)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = observed_disk(fake, "unsafe");
    struct ubd_span span;

    for (unsigned kind = UBD_KIND_WRITE; kind <= UBD_KIND_FLUSH; kind++) {
        span = observe(disk, kind, UBD_FUA, 0);
        ck_assert_int_eq(span.sync.how, UBD_SYNC_NONE);
        ck_assert_uint_eq(span.sync.submitted_ns, 0);
    }
    span = observe(disk, UBD_KIND_WRITE, 0, 0);
    ck_assert_int_eq(span.sync.how, UBD_SYNC_UNASKED);
    unit_close(disk, fake);

    fake = fake_new(SIZE);
    disk = observed_disk(fake, "osync");
    span = observe(disk, UBD_KIND_FLUSH, 0, 0);
    ck_assert_int_eq(span.sync.how, UBD_SYNC_NONE);
    unit_close(disk, fake);
}
END_TEST

/* A plain write over the piece behind the last whole block, which is written
 * durably for reasons of its own.
 */
START_TEST(plain_write_that_became_durable_by_the_way_did_not_ask_for_it)
{
    struct fake *fake = fake_new(4096 * 3 + 100);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    struct ubd_span span = {0};

    disk->is_observed = true;
    ubd_observe(&span);
    ck_assert_int_eq(ubd_write(disk, block, 100, 4096 * 3, 0), 0);
    ubd_observe(NULL);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 1);
    ck_assert_int_eq(span.sync.how, UBD_SYNC_UNASKED);
    unit_close(disk, fake);
}
END_TEST

/* A job whose request is observed. */
struct watched {
    pthread_t thread;
    struct ubd_disk *disk;
    enum ubd_kind kind;
    uint64_t offset;
    struct ubd_span span;
    int tid, result;
};

static void *
run_watched(void *opaque)
{
    struct watched *w = opaque;

    w->tid = gettid();
    ubd_observe(&w->span);
    w->result = w->kind == UBD_KIND_FLUSH
                    ? ubd_flush(w->disk)
                    : ubd_write(w->disk, block, 4096, w->offset, 0);
    ubd_observe(NULL);
    return NULL;
}

static void
start_watched(struct watched *w, struct ubd_disk *disk, enum ubd_kind kind,
              uint64_t offset)
{
    *w = (struct watched){.disk = disk, .kind = kind, .offset = offset};
    ck_assert_int_eq(pthread_create(&w->thread, NULL, run_watched, w), 0);
}

static void
join_watched(struct watched *w, int result)
{
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
    ck_assert_int_eq(w->result, result);
}

static void
check_same_sync(const struct watched *one, const struct watched *leader)
{
    ck_assert_int_eq(one->span.sync.how, UBD_SYNC_JOINED);
    ck_assert_uint_eq(one->span.sync.id, leader->span.sync.id);
    ck_assert_int_eq(one->span.sync.tid, leader->tid);
    ck_assert_int_eq(one->span.sync.result, leader->span.sync.result);
    ck_assert_uint_eq(one->span.sync.submitted_ns,
                      leader->span.sync.submitted_ns);
    ck_assert_uint_eq(one->span.sync.completed_ns,
                      leader->span.sync.completed_ns);
    ck_assert_uint_eq(one->span.start_ns, leader->span.sync.submitted_ns);
}

/* The first one syncs; the second joins that sync; a write; the third and the
 * fourth need another one, which one of them leads.
 */
START_TEST(flush_that_joins_names_the_sync_that_covers_it)
{
    for (int error = 0; error >= -EIO; error -= EIO) {
        struct fake *fake = fake_new(SIZE);
        struct ubd_disk *disk = observed_disk(fake, "barrier");
        struct watched first, joins, third, fourth;
        uint64_t since_ns;

        unit_limit_syncs(disk, 1);
        if (error)
            fake_script(fake, (struct fake_rule){.kind = FAKE_SYNC,
                                                 .fault = FAKE_LOSE,
                                                 .error = error});
        fake_hold(fake, FAKE_SYNC, FAKE_RUNNING);
        start_watched(&first, disk, UBD_KIND_FLUSH, 0);
        fake_wait_held(fake, FAKE_SYNC, 1);
        start_watched(&joins, disk, UBD_KIND_FLUSH, 0);
        unit_wait_flushers(disk, 1);
        ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
        since_ns = ubd_now_ns();
        start_watched(&third, disk, UBD_KIND_FLUSH, 0);
        unit_wait_flushers(disk, 2);
        start_watched(&fourth, disk, UBD_KIND_FLUSH, 0);
        unit_wait_flushers(disk, 3);
        fake_unhold(fake, FAKE_SYNC);
        join_watched(&first, error);
        join_watched(&joins, error);
        join_watched(&third, error);
        join_watched(&fourth, error);

        ck_assert_int_eq(first.span.sync.how, UBD_SYNC_LED);
        ck_assert_uint_eq(first.span.sync.id, 1);
        ck_assert_int_eq(first.span.sync.tid, first.tid);
        ck_assert_int_eq(first.span.sync.result, error);
        check_same_sync(&joins, &first);
        if (error) { /* Its failure answers them, too. */
            check_same_sync(&third, &first);
            check_same_sync(&fourth, &first);
        } else {
            const bool third_led = third.span.sync.how == UBD_SYNC_LED;
            const struct watched *led = third_led ? &third : &fourth;

            ck_assert_int_eq(led->span.sync.how, UBD_SYNC_LED);
            ck_assert_uint_eq(led->span.sync.id, 2);
            ck_assert_uint_ge(led->span.sync.submitted_ns, since_ns);
            check_same_sync(third_led ? &fourth : &third, led);
        }
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(what_is_refused_for_an_older_loss_has_no_sync)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = observed_disk(fake, "barrier");
    struct ubd_span span;

    ck_assert_int_eq(ubd_write(disk, block, 4096, 0, 0), 0);
    fake_lose(fake, -ENOSPC);
    span = observe(disk, UBD_KIND_FLUSH, 0, -ENOSPC);
    ck_assert_int_eq(span.sync.how, UBD_SYNC_LED);
    ck_assert_int_eq(span.sync.result, -ENOSPC);
    for (unsigned kind = UBD_KIND_WRITE; kind <= UBD_KIND_FLUSH; kind++) {
        span = observe(disk, kind, UBD_FUA, -ENOSPC);
        ck_assert_int_eq(span.sync.how, UBD_SYNC_UNASKED);
        ck_assert_uint_eq(span.sync.id, 0);
    }
    unit_close(disk, fake);
}
END_TEST

static bool
is_range_waited_for(struct ubd_range_locks *locks)
{
    bool is_waited_for;

    pthread_mutex_lock(&locks->lock);
    is_waited_for = locks->first && locks->first->next;
    pthread_mutex_unlock(&locks->lock);
    return is_waited_for;
}

/* With O_DIRECT the second write of a block waits for the first. */
START_TEST(request_starts_when_it_has_the_range)
{
    struct fake *fake = fake_new(SIZE);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 512, 1);
    struct unit_job first;
    struct watched second;
    uint64_t since_ns;

    disk->is_observed = true;
    fake_hold(fake, FAKE_READ, FAKE_RUNNING);
    unit_start(&first, disk, UBD_KIND_WRITE, "x", 1, 1, 0);
    fake_wait_held(fake, FAKE_READ, 1);
    start_watched(&second, disk, UBD_KIND_WRITE, 0);
    while (!is_range_waited_for(&disk->ranges))
        sched_yield();
    since_ns = ubd_now_ns();
    fake_unhold(fake, FAKE_READ);
    ck_assert_int_eq(unit_join(&first), 0);
    join_watched(&second, 0);
    ck_assert_uint_ge(second.span.start_ns, since_ns);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        nothing_is_told_unless_the_disk_is_observed,
        flush_leads_a_sync_and_the_next_one_is_clean_since_that,
        plain_request_asks_for_no_sync_and_starts_at_the_host,
        fua_write_is_one_durable_write,
        fua_zero_and_fua_trim_lead_a_sync_after_they_started,
        mode_that_does_not_sync_says_none_to_those_who_ask,
        plain_write_that_became_durable_by_the_way_did_not_ask_for_it,
        flush_that_joins_names_the_sync_that_covers_it,
        what_is_refused_for_an_older_loss_has_no_sync,
        request_starts_when_it_has_the_range,
        NULL,
    };

    return unit_run("observe", tests);
}
