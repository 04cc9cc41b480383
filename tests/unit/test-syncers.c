/* SPDX-License-Identifier: BSD-3-Clause
 *
 * syncers.c, and what durability.c does for it: where many flush at a time,
 * threads of the engine's own lead their syncs.
 */
#include "by-hand.h"
#include "syncers.h"

#include <limits.h>
#include <unistd.h>

/* A crowd, and syncers that are played by the test. */
static void
init(struct ubd_durability *d, unsigned max)
{
    ubd_durability_init(d, false, max);
    d->has_syncers = true;
    d->crowd = UINT_MAX / 16;
}

static void
come_to_wait(struct ubd_durability *d, struct flush *f, uint64_t bytes)
{
    ubd_durability_completed(d, bytes);
    ck_assert_int_eq(arrive(d, f), UBD_FLUSH_WAIT);
    ck_assert(!atomic_load(&f->flusher.is_answered));
}

static int
answer_together(struct ubd_durability *d, struct flush *f)
{
    ck_assert(atomic_load(&f->flusher.is_answered));
    ck_assert_int_eq(wait_for(d, f), UBD_FLUSH_DONE);
    return f->flusher.result;
}

static void
take(struct ubd_durability *d, struct flush *syncer)
{
    ck_assert_uint_gt(d->nr_appointed, 0); /* Or it would wait for ever. */
    ck_assert(ubd_durability_take(d, &syncer->sync));
}

START_TEST(in_a_crowd_a_syncer_serves_all_who_came_before)
{
    struct ubd_durability d;
    struct flush syncer, f[3], late;

    init(&d, 2);
    for (unsigned i = 0; i < 3; i++)
        come_to_wait(&d, &f[i], 1);
    take(&d, &syncer);
    ck_assert_uint_eq(d.nr_appointed, 0); /* One is enough. */
    come_to_wait(&d, &late, 1);           /* (D2) */
    ck_assert_int_eq(finish(&d, &syncer, 0), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(answer_together(&d, &f[i]), 0);
    ck_assert(!atomic_load(&late.flusher.is_answered));
    ck_assert_uint_eq(ubd_durability_volatile(&d), 1);
    take(&d, &syncer);
    ck_assert_int_eq(finish(&d, &syncer, 0), 0);
    ck_assert_int_eq(answer_together(&d, &late), 0);
    ck_assert(is_clean(&d));
    ck_assert_uint_eq(d.nr_inside, 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(one_of_those_whom_a_syncer_serves_is_said_to_have_led)
{
    struct ubd_durability d;
    struct flush syncer, f[3];
    unsigned nr_led = 0;

    init(&d, 1);
    for (unsigned i = 0; i < 3; i++)
        come_to_wait(&d, &f[i], 1);
    take(&d, &syncer);
    ck_assert_int_eq(finish(&d, &syncer, 0), 0);
    for (unsigned i = 0; i < 3; i++) {
        nr_led += f[i].flusher.span.how == UBD_SYNC_LED;
        ck_assert_uint_eq(f[i].flusher.span.id, syncer.sync.id);
    }
    ck_assert_uint_eq(nr_led, 1);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(who_joins_a_running_sync_is_not_said_to_have_led_it)
{
    struct ubd_durability d;
    struct flush syncer, first, joined;

    init(&d, 1);
    come_to_wait(&d, &first, 1);
    take(&d, &syncer);
    come_to_wait(&d, &joined, 0); /* It is covered by the sync that runs. */
    ck_assert_int_eq(finish(&d, &syncer, 0), 0);
    ck_assert_int_eq(answer_together(&d, &first), 0);
    ck_assert_int_eq(answer_together(&d, &joined), 0);
    ck_assert_int_eq(first.flusher.span.how, UBD_SYNC_LED);
    ck_assert_int_eq(joined.flusher.span.how, UBD_SYNC_JOINED);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(syncers_prove_nothing_about_how_many_syncs_suit_the_disk)
{
    struct ubd_durability d;
    struct flush syncer, f[2];

    init(&d, 3);
    for (unsigned i = 0; i < 1000; i++) {
        d.crowd = UINT_MAX / 16;
        come_to_wait(&d, &f[0], 1);
        come_to_wait(&d, &f[1], 1);
        take(&d, &syncer);
        syncer.sync.submitted_ns = (i + 1) * 2000;
        ck_assert_int_eq(finish(&d, &syncer, 0), 0);
        ck_assert_int_eq(answer_together(&d, &f[0]), 0);
        ck_assert_int_eq(answer_together(&d, &f[1]), 0);
        ck_assert_uint_eq(d.syncs.max, 3);
    }
    ck_assert(!d.syncs.is_proven);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(loss_is_told_to_all_and_the_next_syncer_has_nothing_to_do)
{
    struct ubd_durability d;
    struct flush first, second, f[2];

    init(&d, 2);
    come_to_wait(&d, &f[0], 1);
    take(&d, &first);
    come_to_wait(&d, &f[1], 1);
    ck_assert_uint_eq(d.nr_appointed, 1);
    ck_assert_int_eq(finish(&d, &first, -EIO), -EIO);
    ck_assert_int_eq(answer_together(&d, &f[0]), -EIO);
    ck_assert_int_eq(answer_together(&d, &f[1]), -EIO); /* (D3) */
    ubd_durability_stop(&d); /* Or it would wait for ever. */
    ck_assert(!ubd_durability_take(&d, &second.sync));
    ck_assert_int_eq(arrive(&d, &f[0]), UBD_FLUSH_DONE);
    ck_assert_int_eq(f[0].flusher.result, -EIO);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(syncer_takes_along_who_waits_by_itself)
{
    struct ubd_durability d;
    struct flush syncer, leader, alone, together;

    init(&d, 1);
    d.crowd = 0;
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &leader), UBD_FLUSH_LEAD);
    come_to_wait(&d, &alone, 1);
    d.crowd = UINT_MAX / 16;
    come_to_wait(&d, &together, 1);
    ck_assert_uint_eq(d.nr_appointed, 0); /* As many run as may. */
    d.crowd = 0; /* Whatever it is: one who waits together cannot lead. */
    ck_assert_int_eq(finish(&d, &leader, 0), 0);
    ck_assert(!is_woken(&alone));
    take(&d, &syncer);
    ck_assert_int_eq(finish(&d, &syncer, 0), 0);
    ck_assert_int_eq(answer_of(&d, &alone), 0);
    ck_assert_int_eq(answer_together(&d, &together), 0);
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(few_lead_themselves)
{
    struct ubd_durability d;
    struct flush f[16];

    init(&d, 1);
    d.crowd = 0;
    for (unsigned i = 0; i < 100; i++) { /* Four at a time are not many. */
        ubd_durability_completed(&d, 1);
        ck_assert_int_eq(arrive(&d, &f[0]), UBD_FLUSH_LEAD);
        for (unsigned k = 1; k < 4; k++)
            ck_assert_int_eq(arrive(&d, &f[k]), UBD_FLUSH_WAIT);
        ck_assert_int_eq(finish(&d, &f[0], 0), 0);
        for (unsigned k = 1; k < 4; k++)
            ck_assert_int_eq(answer_of(&d, &f[k]), 0);
    }
    ubd_durability_destroy(&d);
}
END_TEST

START_TEST(nobody_but_flushers_leads_on_a_slow_disk)
{
    struct ubd_durability d;
    struct flush f;

    init(&d, 2);
    d.sync_ns = 8000000;
    ubd_durability_completed(&d, 1);
    ck_assert_int_eq(arrive(&d, &f), UBD_FLUSH_LEAD);
    ck_assert_int_eq(finish(&d, &f, 0), 0);
    ubd_durability_destroy(&d);
}
END_TEST

#define NR_FLUSHERS 12
#define NR_FLUSHES 150

static struct {
    struct ubd_durability durability;
    atomic_uint_fast64_t synced; /* Bytes that a sync has covered. */
    atomic_uint nr_by_syncers, nr_by_flushers;
} crowd;

static void
run_sync(struct ubd_sync *sync)
{
    uint64_t synced = atomic_load(&crowd.synced);

    usleep(100);
    while (synced < sync->covered &&
           !atomic_compare_exchange_weak(&crowd.synced, &synced, sync->covered))
        continue;
    sync->ns = 100000;
    ck_assert_int_eq(ubd_durability_finish(&crowd.durability, sync, 0), 0);
}

static void
lead_for_crowd(void *opaque, struct ubd_sync *sync)
{
    ck_assert_ptr_eq(opaque, &crowd);
    atomic_fetch_add(&crowd.nr_by_syncers, 1);
    run_sync(sync);
}

static void *
flush_often(void *opaque)
{
    struct ubd_durability *d = &crowd.durability;

    for (unsigned i = 0; i < NR_FLUSHES; i++) {
        struct flush f;
        enum ubd_flush_step step;

        ubd_durability_begun(d, 1);
        ubd_durability_completed(d, 1);
        step = arrive(d, &f);
        if (step == UBD_FLUSH_WAIT)
            step = wait_for(d, &f);
        if (step == UBD_FLUSH_LEAD) {
            atomic_fetch_add(&crowd.nr_by_flushers, 1);
            run_sync(&f.sync);
        }
        ck_assert_int_eq(f.flusher.result, 0);
        ck_assert_uint_ge(atomic_load(&crowd.synced), f.flusher.target);
    }
    return opaque;
}

START_TEST(crowd_is_served_by_syncers_and_everybody_gets_what_was_promised)
{
    pthread_t flusher[NR_FLUSHERS];
    struct ubd_syncers syncers;
    unsigned nr_syncs;

    ubd_durability_init(&crowd.durability, false, 3);
    ck_assert_int_eq(
        ubd_syncers_start(&syncers, &crowd.durability, lead_for_crowd, &crowd),
        0);
    crowd.durability.has_syncers = true;
    for (unsigned i = 0; i < NR_FLUSHERS; i++)
        pthread_create(&flusher[i], NULL, flush_often, NULL);
    for (unsigned i = 0; i < NR_FLUSHERS; i++)
        pthread_join(flusher[i], NULL);
    ubd_syncers_stop(&syncers);
    nr_syncs = crowd.nr_by_syncers + crowd.nr_by_flushers;
    ck_assert_uint_gt(crowd.nr_by_syncers, nr_syncs / 4);
    ck_assert_uint_lt(nr_syncs, NR_FLUSHERS * NR_FLUSHES);
    ck_assert_uint_eq(crowd.durability.nr_inside, 0);
    ubd_durability_destroy(&crowd.durability);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        in_a_crowd_a_syncer_serves_all_who_came_before,
        one_of_those_whom_a_syncer_serves_is_said_to_have_led,
        who_joins_a_running_sync_is_not_said_to_have_led_it,
        syncers_prove_nothing_about_how_many_syncs_suit_the_disk,
        loss_is_told_to_all_and_the_next_syncer_has_nothing_to_do,
        syncer_takes_along_who_waits_by_itself,
        few_lead_themselves,
        nobody_but_flushers_leads_on_a_slow_disk,
        crowd_is_served_by_syncers_and_everybody_gets_what_was_promised,
        NULL,
    };

    return unit_run("syncers", tests);
}
