/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A bounded queue of records, from many threads to one.  Nobody ever waits:
 * what finds it full is counted and dropped.
 */
#ifndef UBD_TRACE_RING_H
#define UBD_TRACE_RING_H

#include "ubd.h"

#include <stdatomic.h>

/* One request that has been answered. */
struct ubd_trace_record {
    uint64_t id;   /* From 1, in order of arrival. */
    uint64_t conn; /* From 1, in order of connecting. */
    uint64_t offset;
    uint64_t arrival_ns, end_ns;
    struct ubd_span span;
    uint32_t len;
    uint32_t flags; /* UBD_FUA..., UBD_TRACE_REQ_ONE */
    int result;
    enum ubd_kind kind;
};

enum { UBD_TRACE_REQ_ONE = 8 }; /* Beside the flags of ubd.h. */

struct ubd_trace_slot {
    /* The turn that the slot waits for: n of whoever will write record n to
     * it, n + 1 of whoever will read that.  Its release and acquire carry the
     * record along.
     */
    atomic_uint_fast64_t turn; /* (a) */
    struct ubd_trace_record record;
};

struct ubd_trace_ring {
    struct ubd_trace_slot *slots; /* (c) */
    uint64_t nr;                  /* (c) A power of two. */
    /* What all writers change, on lines of its own. */
    _Alignas(64) atomic_uint_fast64_t nr_written; /* (a) Or about to be. */
    _Alignas(64) atomic_uint_fast64_t nr_dropped; /* (a) */
    _Alignas(64) uint64_t nr_read;                /* (t) The reader. */
};
/* Locking key: (c) constant once shared, (a) atomic, (t) used by one thread. */

/* @nr is a power of two.  0 or -ENOMEM. */
int ubd_trace_ring_init(struct ubd_trace_ring *ring, uint64_t nr);
/* Accepts a zeroed one. */
void ubd_trace_ring_destroy(struct ubd_trace_ring *ring);

/* From any thread, and never waits.  False if it was dropped. */
bool ubd_trace_ring_put(struct ubd_trace_ring *ring,
                        const struct ubd_trace_record *record);

/* By one thread at a time.  False if there is nothing (yet). */
bool ubd_trace_ring_get(struct ubd_trace_ring *ring,
                        struct ubd_trace_record *ret_record);

#endif
