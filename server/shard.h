/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters that many threads raise at once are kept in shards, a cache line
 * or more each, so that two requests on two processors do not pass a line to
 * and fro.  A thread sticks to one shard; a reader sums them all.
 */
#ifndef UBD_SHARD_H
#define UBD_SHARD_H

#include <stdatomic.h>

#define UBD_NR_SHARDS 16 /* Enough for as many processors. */
#define UBD_CACHE_LINE 64

/* The calling thread's shard, below UBD_NR_SHARDS. */
static inline unsigned
ubd_shard(void)
{
    /* One too high, 0 is "none yet".  Found without a call. */
    static _Thread_local unsigned mine
        __attribute__((tls_model("initial-exec")));
    extern atomic_uint ubd_shard_next;

    if (!mine)
        mine = atomic_fetch_add_explicit(&ubd_shard_next, 1,
                                         memory_order_relaxed) %
                   UBD_NR_SHARDS +
               1;
    return mine - 1;
}

#endif
