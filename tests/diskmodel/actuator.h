/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a disk needs: one actuator, which serves one request at a time.
 *
 * It sleeps for nobody and reads no clock; it keeps a diary and says when a
 * request that comes at a given time would be done.
 *
 * Units:   offsets and lengths are bytes, times are nanoseconds.
 * Threads: the caller locks.
 */
#ifndef DISKMODEL_ACTUATOR_H
#define DISKMODEL_ACTUATOR_H

#include <stdint.h>

#include "model.h"

/* Bytes that must get to the platter; a list for actuator_destage. */
struct extent {
    uint64_t offset;
    uint64_t len;
    struct extent *next;
};

struct actuator {
    const struct diskmodel_settings *settings;
    uint64_t disk_size;
    uint64_t free_at_ns; /* The end of its last appointment. */
    uint64_t head;       /* Offset under the head at that time. */
    uint64_t busy_ns;    /* Sum of all appointments. */
};

/* A request that comes at @now starts then, or later if others are first. */
uint64_t actuator_start(const struct actuator *a, uint64_t now);

/* It works from @start to @end. */
void actuator_book(struct actuator *a, uint64_t start, uint64_t end);

/* When the head, free from @t on, has passed over these bytes.  For rotating
 * disks only.
 */
uint64_t actuator_move(struct actuator *a, uint64_t t, uint64_t offset,
                       uint64_t len);

/* The same for all of @list, in the order of their offsets. */
uint64_t actuator_destage(struct actuator *a, uint64_t t, struct extent *list);

#endif
