/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters and histograms.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

static struct ubd_stats_shards *
new_shards(void)
{
    struct ubd_stats_shards *shards =
        aligned_alloc(UBD_CACHE_LINE, sizeof *shards);

    memset(shards, 0, sizeof *shards);
    return shards;
}

/* The bucket that a time of @ns goes to. */
static unsigned
bucket_of(uint64_t ns)
{
    struct ubd_stats_shards *shards = new_shards();
    struct ubd_stats sum;
    unsigned bucket = 0;

    ubd_stats_time(shards, UBD_HIST_SYNC, ns);
    ubd_stats_sum(shards, &sum);
    free(shards);
    ck_assert_uint_eq(sum.histogram[UBD_HIST_SYNC].sum_ns, ns);
    while (bucket < UBD_NR_BUCKETS - 1 &&
           sum.histogram[UBD_HIST_SYNC].bucket[bucket] == 0)
        bucket++;
    ck_assert_uint_eq(sum.histogram[UBD_HIST_SYNC].bucket[bucket], 1);
    return bucket;
}

START_TEST(bucket_holds_times_up_to_its_bound_and_no_longer_ones)
{
    ck_assert_uint_eq(bucket_of(0), 0);
    for (unsigned i = 0; i < UBD_NR_BUCKETS - 1; i++) {
        const uint64_t bound = UINT64_C(1000) << i;

        ck_assert_uint_eq(bucket_of(bound), i);
        ck_assert_uint_eq(bucket_of(bound + 1), i + 1);
    }
}
END_TEST

START_TEST(last_bucket_holds_everything_that_is_longer)
{
    ck_assert_uint_eq(bucket_of(UINT64_C(1) << 62), UBD_NR_BUCKETS - 1);
}
END_TEST

START_TEST(request_is_counted_by_kind)
{
    struct ubd_stats_shards *shards = new_shards();
    struct ubd_stats sum;

    ubd_stats_request(shards, UBD_KIND_WRITE, 100, true, 0);
    ubd_stats_request(shards, UBD_KIND_WRITE, 10, false, -EIO);
    ubd_stats_request(shards, UBD_KIND_READ, 1, false, 0);
    ubd_stats_sum(shards, &sum);
    free(shards);
    ck_assert_uint_eq(sum.requests[UBD_KIND_WRITE], 2);
    ck_assert_uint_eq(sum.bytes[UBD_KIND_WRITE], 110);
    ck_assert_uint_eq(sum.fua[UBD_KIND_WRITE], 1);
    ck_assert_uint_eq(sum.errors[UBD_KIND_WRITE], 1);
    ck_assert_uint_eq(sum.requests[UBD_KIND_READ], 1);
    ck_assert_uint_eq(sum.errors[UBD_KIND_READ], 0);
    ck_assert_uint_eq(sum.requests[UBD_KIND_FLUSH], 0);
}
END_TEST

static void *
count_a_lot(void *shards)
{
    for (unsigned i = 0; i < 1000; i++) {
        ubd_stats_count(shards, UBD_COUNT_CLEAN);
        ubd_stats_request(shards, UBD_KIND_TRIM, 3, false, 0);
    }
    return NULL;
}

START_TEST(nothing_is_lost_when_many_threads_count)
{
    struct ubd_stats_shards *shards = new_shards();
    pthread_t thread[UBD_NR_SHARDS + 4]; /* Some share a shard. */
    const unsigned nr = sizeof thread / sizeof thread[0];
    struct ubd_stats sum;

    for (unsigned i = 0; i < nr; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, count_a_lot, shards),
                         0);
    for (unsigned i = 0; i < nr; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    ubd_stats_sum(shards, &sum);
    free(shards);
    ck_assert_uint_eq(sum.counter[UBD_COUNT_CLEAN], 1000 * nr);
    ck_assert_uint_eq(sum.bytes[UBD_KIND_TRIM], 3000 * nr);
}
END_TEST

static void
fill_shard(struct ubd_stats_shard *shard)
{
    for (unsigned k = 0; k < UBD_NR_KINDS; k++) {
        shard->requests[k] = 1;
        shard->bytes[k] = 2;
        shard->fua[k] = 3;
        shard->errors[k] = 4;
    }
    for (unsigned c = 0; c < UBD_NR_COUNTERS; c++)
        shard->counter[c] = 5;
    for (unsigned h = 0; h < UBD_NR_HISTOGRAMS; h++) {
        for (unsigned b = 0; b < UBD_NR_BUCKETS; b++)
            shard->histogram[h].bucket[b] = 6;
        shard->histogram[h].sum_ns = 7;
    }
}

/* Whichever processors this runs on. */
START_TEST(sum_leaves_out_no_shard_and_no_value)
{
    struct ubd_stats_shards *shards = new_shards();
    struct ubd_stats sum;

    for (unsigned i = 0; i < UBD_NR_SHARDS; i++)
        fill_shard(&shards->shard[i]);
    ubd_stats_sum(shards, &sum);
    free(shards);
    for (unsigned k = 0; k < UBD_NR_KINDS; k++) {
        ck_assert_uint_eq(sum.requests[k], 1 * UBD_NR_SHARDS);
        ck_assert_uint_eq(sum.bytes[k], 2 * UBD_NR_SHARDS);
        ck_assert_uint_eq(sum.fua[k], 3 * UBD_NR_SHARDS);
        ck_assert_uint_eq(sum.errors[k], 4 * UBD_NR_SHARDS);
    }
    for (unsigned c = 0; c < UBD_NR_COUNTERS; c++)
        ck_assert_uint_eq(sum.counter[c], 5 * UBD_NR_SHARDS);
    for (unsigned h = 0; h < UBD_NR_HISTOGRAMS; h++) {
        for (unsigned b = 0; b < UBD_NR_BUCKETS; b++)
            ck_assert_uint_eq(sum.histogram[h].bucket[b], 6 * UBD_NR_SHARDS);
        ck_assert_uint_eq(sum.histogram[h].sum_ns, 7 * UBD_NR_SHARDS);
    }
}
END_TEST

START_TEST(time_goes_to_its_own_histogram)
{
    for (unsigned h = 0; h < UBD_NR_HISTOGRAMS; h++) {
        struct ubd_stats_shards *shards = new_shards();
        struct ubd_stats sum;

        ubd_stats_time(shards, h, 900);
        ubd_stats_sum(shards, &sum);
        free(shards);
        for (unsigned i = 0; i < UBD_NR_HISTOGRAMS; i++) {
            ck_assert_uint_eq(sum.histogram[i].bucket[0], i == h);
            ck_assert_uint_eq(sum.histogram[i].sum_ns, i == h ? 900 : 0);
        }
    }
}
END_TEST

START_TEST(disk_counts_its_requests_and_syncs)
{
    static const char block[4096];
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_disk(fake, "barrier");
    struct ubd_stats s;
    char buf[512];

    fake_script(fake, (struct fake_rule){.kind = FAKE_SYNC,
                                         .fault = FAKE_LOSE,
                                         .error = -EIO,
                                         .skip = 1,
                                         .times = 1});
    ubd_read(disk, buf, 512, 0);
    ubd_write(disk, block, 4096, 0, 0);
    ubd_write(disk, block, 1024, 0, UBD_FUA);
    ubd_cache(disk, 8192, 0);
    ubd_flush(disk); /* Syncs. */
    ubd_flush(disk); /* Is clean. */
    ubd_zero(disk, 100, 0, 0);
    ubd_flush(disk); /* Fails. */
    ubd_stats(disk, &s);
    ck_assert_uint_eq(s.bytes[UBD_KIND_READ], 512);
    ck_assert_uint_eq(s.requests[UBD_KIND_WRITE], 2);
    ck_assert_uint_eq(s.bytes[UBD_KIND_WRITE], 5120);
    ck_assert_uint_eq(s.fua[UBD_KIND_WRITE], 1);
    ck_assert_uint_eq(s.bytes[UBD_KIND_CACHE], 8192);
    ck_assert_uint_eq(s.bytes[UBD_KIND_ZERO], 100);
    ck_assert_uint_eq(s.requests[UBD_KIND_FLUSH], 3);
    ck_assert_uint_eq(s.errors[UBD_KIND_FLUSH], 1);
    ck_assert_uint_eq(s.counter[UBD_COUNT_CLEAN], 1);
    ck_assert_uint_eq(s.counter[UBD_COUNT_SYNCS_SUBMITTED], 2);
    ck_assert_uint_eq(s.counter[UBD_COUNT_SYNCS_COMPLETED], 2);
    ck_assert_uint_eq(s.counter[UBD_COUNT_SYNCS_FAILED], 1);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        bucket_holds_times_up_to_its_bound_and_no_longer_ones,
        last_bucket_holds_everything_that_is_longer,
        request_is_counted_by_kind,
        nothing_is_lost_when_many_threads_count,
        sum_leaves_out_no_shard_and_no_value,
        time_goes_to_its_own_histogram,
        disk_counts_its_requests_and_syncs,
        NULL,
    };

    return unit_run("stats", tests);
}
