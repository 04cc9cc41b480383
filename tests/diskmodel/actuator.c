/* SPDX-License-Identifier: BSD-3-Clause */
/* Seeks, turns and the diary of the actuator; see actuator.h. */
#include <stddef.h>

#include "actuator.h"

#define NS_PER_S 1000000000ULL

uint64_t
actuator_start(const struct actuator *a, uint64_t now)
{
    return now > a->free_at_ns ? now : a->free_at_ns;
}

void
actuator_book(struct actuator *a, uint64_t start, uint64_t end)
{
    a->free_at_ns = end;
    a->busy_ns += end - start;
}

/* Linear in the distance.  Two random places are a third of the disk apart on
 * average, which makes the mean what the user asked for.
 */
static uint64_t
seek_time(const struct actuator *a, uint64_t offset)
{
    const uint64_t seek_ns = a->settings->seek_ns;
    const uint64_t distance =
        offset > a->head ? offset - a->head : a->head - offset;
    const double part = (double)distance / (double)a->disk_size;

    return seek_ns / 8 + (uint64_t)(part * 21 / 8 * (double)seek_ns);
}

/* The platter turns by the clock: a head that comes a little late for the next
 * sector waits a whole turn.  That is what makes small synchronous writes slow.
 */
uint64_t
actuator_move(struct actuator *a, uint64_t t, uint64_t offset, uint64_t len)
{
    const double rate = (double)a->settings->rate;
    const uint64_t turn_ns = 60 * NS_PER_S / a->settings->rpm;
    const uint64_t track = (uint64_t)(rate * (double)turn_ns / 1e9) + 1;
    const uint64_t angle_ns =
        (uint64_t)((double)(offset % track) / (double)track * (double)turn_ns);
    uint64_t wait_ns;

    if (offset != a->head && offset / track != a->head / track)
        t += seek_time(a, offset);
    wait_ns = (angle_ns + turn_ns - t % turn_ns) % turn_ns;
    /* Rounding in a stream of sectors is not a lost turn: 1 us is in time. */
    if (offset != a->head || turn_ns - wait_ns > 1000)
        t += wait_ns;
    a->head = offset + len;
    return t + (uint64_t)((double)len / rate * 1e9);
}

static struct extent *
merge_sorted(struct extent *a, struct extent *b)
{
    struct extent *head = NULL, **tail = &head;

    while (a && b) {
        struct extent **least = a->offset <= b->offset ? &a : &b;

        *tail = *least;
        tail = &(*tail)->next;
        *least = *tail;
    }
    *tail = a ? a : b;
    return head;
}

/* A merge sort that needs no memory: the caller holds a lock. */
static struct extent *
sort_by_offset(struct extent *list)
{
    struct extent *runs[64] = {NULL}; /* runs[i] has 2^i elements. */
    struct extent *sorted = NULL;
    unsigned i;

    while (list) {
        struct extent *run = list;

        list = list->next;
        run->next = NULL;
        for (i = 0; runs[i]; i++) {
            run = merge_sorted(runs[i], run);
            runs[i] = NULL;
        }
        runs[i] = run;
    }
    for (i = 0; i < 64; i++)
        sorted = merge_sorted(runs[i], sorted);
    return sorted;
}

uint64_t
actuator_destage(struct actuator *a, uint64_t t, struct extent *list)
{
    const struct extent *e;

    for (e = sort_by_offset(list); e; e = e->next)
        t = actuator_move(a, t, e->offset, e->len);
    return t;
}
