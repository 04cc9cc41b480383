/* SPDX-License-Identifier: BSD-3-Clause */
/* Which sectors of which writes survive a power cut: decided by a seed. */
#ifndef DISKMODEL_SURVIVORS_H
#define DISKMODEL_SURVIVORS_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

struct survivors {
    enum diskmodel_cut_mode mode;
    uint64_t random;
    uint64_t writes_kept; /* In DISKMODEL_CUT_PREFIX. */
    uint64_t writes_seen;
    uint64_t sectors_kept; /* Of the write at hand; not per sector. */
};

/* The generator known as splitmix64: any seed, 0 included, is a good one. */
static inline uint64_t
next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

void survivors_init(struct survivors *s, enum diskmodel_cut_mode mode,
                    uint64_t seed, uint64_t nr_writes);

/* Go to the next write; it has so many sectors, at least one. */
void survivors_next_write(struct survivors *s, uint64_t nr_sectors);

/* Does sector @i of this write survive?  To be asked once for each, in order.
 */
bool survivors_keep(struct survivors *s, uint64_t i);

#endif
