/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters and latency histograms, in shards, summed when somebody asks.
 */
#include "stats.h"

static void
add(atomic_uint_fast64_t *value, uint64_t n)
{
    atomic_fetch_add_explicit(value, n, memory_order_relaxed);
}

void
ubd_stats_request(struct ubd_stats_shards *s, enum ubd_kind kind,
                  uint64_t bytes, bool is_fua, int result)
{
    struct ubd_stats_shard *shard = &s->shard[ubd_shard()];

    add(&shard->requests[kind], 1);
    if (bytes)
        add(&shard->bytes[kind], bytes);
    if (is_fua)
        add(&shard->fua[kind], 1);
    if (result < 0)
        add(&shard->errors[kind], 1);
}

void
ubd_stats_count(struct ubd_stats_shards *s, enum ubd_counter counter)
{
    add(&s->shard[ubd_shard()].counter[counter], 1);
}

/* The first bucket whose bound, 2^i microseconds, is not below @ns. */
static unsigned
bucket_of(uint64_t ns)
{
    unsigned i = 0;

    while (i < UBD_NR_BUCKETS - 1 && ns > (UINT64_C(1000) << i))
        i++;
    return i;
}

void
ubd_stats_time(struct ubd_stats_shards *s, enum ubd_histogram histogram,
               uint64_t ns)
{
    struct ubd_stats_shard *shard = &s->shard[ubd_shard()];

    add(&shard->histogram[histogram].bucket[bucket_of(ns)], 1);
    add(&shard->histogram[histogram].sum_ns, ns);
}

static void
sum_up(uint64_t *sums, const atomic_uint_fast64_t *values, unsigned nr)
{
    for (unsigned i = 0; i < nr; i++)
        sums[i] += atomic_load_explicit(&values[i], memory_order_relaxed);
}

void
ubd_stats_sum(const struct ubd_stats_shards *s, struct ubd_stats *ret_stats)
{
    struct ubd_stats sum = {0};

    for (unsigned i = 0; i < UBD_NR_SHARDS; i++) {
        const struct ubd_stats_shard *shard = &s->shard[i];

        sum_up(sum.requests, shard->requests, UBD_NR_KINDS);
        sum_up(sum.bytes, shard->bytes, UBD_NR_KINDS);
        sum_up(sum.fua, shard->fua, UBD_NR_KINDS);
        sum_up(sum.errors, shard->errors, UBD_NR_KINDS);
        sum_up(sum.counter, shard->counter, UBD_NR_COUNTERS);
        for (unsigned h = 0; h < UBD_NR_HISTOGRAMS; h++) {
            sum_up(sum.histogram[h].bucket, shard->histogram[h].bucket,
                   UBD_NR_BUCKETS);
            sum_up(&sum.histogram[h].sum_ns, &shard->histogram[h].sum_ns, 1);
        }
    }
    *ret_stats = sum;
}
