/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Range locks: what does not conflict never waits (one thread would hang, and
 * libFuzzer's timeout finds it), what does would, and every order of release
 * leaves the list as it should be.
 */
#include "fuzz.h"

#include "range-lock.c" /* For is_blocked. */

#define HELD_MAX 16

static bool
is_in_conflict(const struct ubd_range *a, const struct ubd_range *b)
{
    return a->start < b->end && b->start < a->end &&
           (a->is_exclusive || b->is_exclusive);
}

static unsigned
count_list(const struct ubd_range_locks *locks)
{
    unsigned nr = 0;

    for (const struct ubd_range *r = locks->first; r; r = r->next) {
        for (const struct ubd_range *s = r->next; s; s = s->next)
            CHECK(!is_in_conflict(r, s));
        nr++;
    }
    return nr;
}

/* Would @wanted wait, if it came now? */
static bool
would_wait(struct ubd_range_locks *locks, struct ubd_range *wanted)
{
    struct ubd_range **link = &locks->first;
    bool is_waiting;

    while (*link)
        link = &(*link)->next;
    *link = wanted;
    is_waiting = is_blocked(locks, wanted);
    *link = NULL;
    return is_waiting;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct ubd_range range[HELD_MAX];
    bool is_held[HELD_MAX] = {false};
    unsigned nr_held = 0;
    struct ubd_range_locks locks;

    ubd_range_locks_init(&locks);
    while (in.size > 0) {
        const unsigned i = input_take(&in, 1) % HELD_MAX;
        const uint64_t start = input_take(&in, 2);
        struct ubd_range wanted = {.start = start,
                                   .end = start + input_take(&in, 1),
                                   .is_exclusive = input_take(&in, 1) % 2};
        bool must_wait = false;

        if (is_held[i]) {
            ubd_range_unlock(&locks, &range[i]);
            is_held[i] = false;
            nr_held--;
            CHECK(count_list(&locks) == nr_held);
            continue;
        }
        for (unsigned j = 0; j < HELD_MAX; j++)
            must_wait |= is_held[j] && is_in_conflict(&range[j], &wanted);
        CHECK(would_wait(&locks, &wanted) == must_wait);
        if (must_wait)
            continue;
        range[i] = wanted;
        ubd_range_lock(&locks, &range[i]);
        is_held[i] = true;
        nr_held++;
        CHECK(count_list(&locks) == nr_held);
    }
    for (unsigned i = 0; i < HELD_MAX; i++)
        if (is_held[i])
            ubd_range_unlock(&locks, &range[i]);
    CHECK(!locks.first);
    ubd_range_locks_destroy(&locks);
    return 0;
}
