/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The queue of trace records: one compare-and-swap for each that is put.
 */
#include "ubd-trace-ring.h"

#include <errno.h>
#include <stdlib.h>

int
ubd_trace_ring_init(struct ubd_trace_ring *ring, uint64_t nr)
{
    *ring = (struct ubd_trace_ring){.nr = nr};
    ring->slots = calloc(nr, sizeof *ring->slots);
    if (!ring->slots)
        return -ENOMEM;
    for (uint64_t i = 0; i < nr; i++)
        atomic_init(&ring->slots[i].turn, i);
    return 0;
}

void
ubd_trace_ring_destroy(struct ubd_trace_ring *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}

bool
ubd_trace_ring_put(struct ubd_trace_ring *ring,
                   const struct ubd_trace_record *record)
{
    uint64_t n = atomic_load_explicit(&ring->nr_written, memory_order_relaxed);

    for (;;) {
        struct ubd_trace_slot *slot = &ring->slots[n & (ring->nr - 1)];
        const uint64_t turn =
            atomic_load_explicit(&slot->turn, memory_order_acquire);

        if (turn < n) { /* It still holds the record of the last round. */
            atomic_fetch_add_explicit(&ring->nr_dropped, 1,
                                      memory_order_relaxed);
            return false;
        }
        if (turn > n) { /* Somebody else has written n. */
            n = atomic_load_explicit(&ring->nr_written, memory_order_relaxed);
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&ring->nr_written, &n, n + 1,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed)) {
            slot->record = *record;
            atomic_store_explicit(&slot->turn, n + 1, memory_order_release);
            return true;
        }
    }
}

bool
ubd_trace_ring_get(struct ubd_trace_ring *ring,
                   struct ubd_trace_record *ret_record)
{
    struct ubd_trace_slot *slot = &ring->slots[ring->nr_read & (ring->nr - 1)];

    if (atomic_load_explicit(&slot->turn, memory_order_acquire) !=
        ring->nr_read + 1)
        return false;
    *ret_record = slot->record;
    atomic_store_explicit(&slot->turn, ring->nr_read + ring->nr,
                          memory_order_release);
    ring->nr_read++;
    return true;
}
