/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters and latency histograms.  They are read for reporting and never
 * decide anything, hence relaxed.
 */
#ifndef UBD_STATS_H
#define UBD_STATS_H

#include "shard.h"
#include "ubd.h"

struct ubd_stats_shard {
    _Alignas(UBD_CACHE_LINE) atomic_uint_fast64_t requests[UBD_NR_KINDS];
    atomic_uint_fast64_t bytes[UBD_NR_KINDS];
    atomic_uint_fast64_t fua[UBD_NR_KINDS];
    atomic_uint_fast64_t errors[UBD_NR_KINDS];
    atomic_uint_fast64_t counter[UBD_NR_COUNTERS];
    struct {
        atomic_uint_fast64_t bucket[UBD_NR_BUCKETS];
        atomic_uint_fast64_t sum_ns;
    } histogram[UBD_NR_HISTOGRAMS];
};

struct ubd_stats_shards {
    struct ubd_stats_shard shard[UBD_NR_SHARDS];
};

void ubd_stats_request(struct ubd_stats_shards *s, enum ubd_kind kind,
                       uint64_t bytes, bool is_fua, int result);
void ubd_stats_count(struct ubd_stats_shards *s, enum ubd_counter counter);
void ubd_stats_time(struct ubd_stats_shards *s, enum ubd_histogram histogram,
                    uint64_t ns);

/* Everything but volatile_bytes, which only durability.c knows. */
void ubd_stats_sum(const struct ubd_stats_shards *s,
                   struct ubd_stats *ret_stats);

#endif
