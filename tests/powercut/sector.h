/* SPDX-License-Identifier: BSD-3-Clause */
/* Sectors that describe themselves: whose disk, which run, which sector, which
 * change, and a checksum; the rest follows from those by a generator, so that
 * every byte can be checked.
 */
#ifndef POWERCUT_SECTOR_H
#define POWERCUT_SECTOR_H

#include <stdbool.h>
#include <stdint.h>

#define SECTOR 512
#define SECTOR_WORDS (SECTOR / sizeof(uint64_t))

/* What the image held before any run; see history.h. */
#define RUN_BASE 0

/* The generator known as splitmix64, which any state suits. */
static inline uint64_t
next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* What change @seq of @run writes to sector number @nr. */
void sector_make(uint64_t *words, uint64_t run, uint64_t nr, uint64_t seq);

bool sector_is_zero(const uint64_t *words);

/* Is it what some change wrote to @nr?  Then whose. */
bool sector_parse(const uint64_t *words, uint64_t nr, uint64_t *ret_run,
                  uint64_t *ret_seq);

#endif
