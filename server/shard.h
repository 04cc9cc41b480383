/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters that many threads raise at once are kept in shards, a cache line
 * or more each, so that two requests on two processors do not pass a line to
 * and fro.  A shard belongs to a processor, not to a thread: threads wander,
 * and would drag their lines along.  A reader sums all shards.
 */
#ifndef UBD_SHARD_H
#define UBD_SHARD_H

#include <sched.h>
#include <stdatomic.h>

#define UBD_NR_SHARDS 16 /* Enough for as many processors. */
#define UBD_CACHE_LINE 64

/* The shard of the processor that we are on, below UBD_NR_SHARDS.  It may be
 * another one by the time it is used, hence atomics; 0 if that is not known.
 */
static inline unsigned
ubd_shard(void)
{
    const int cpu = sched_getcpu();

    return cpu < 0 ? 0 : cpu % UBD_NR_SHARDS;
}

#endif
