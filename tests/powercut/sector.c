/* SPDX-License-Identifier: BSD-3-Clause */
/* See sector.h. */
#include <string.h>

#include "sector.h"

#define DISK_ID 0x7562642d63757421ULL /* "ubd-cut!" */

enum { W_DISK, W_RUN, W_NR, W_SEQ, W_SUM, W_DATA };

void
sector_make(uint64_t *words, uint64_t run, uint64_t nr, uint64_t seq)
{
    uint64_t state = run * 0x9e3779b97f4a7c15ULL ^ nr << 32 ^ seq;
    uint64_t sum = DISK_ID;
    unsigned i;

    words[W_DISK] = DISK_ID;
    words[W_RUN] = run;
    words[W_NR] = nr;
    words[W_SEQ] = seq;
    for (i = W_DATA; i < SECTOR_WORDS; i++) {
        words[i] = next_random(&state);
        sum = (sum ^ words[i]) * 0x100000001b3ULL;
    }
    words[W_SUM] = sum ^ run ^ nr ^ seq;
}

bool
sector_is_zero(const uint64_t *words)
{
    static const uint64_t zero[SECTOR_WORDS];

    return memcmp(words, zero, SECTOR) == 0;
}

bool
sector_parse(const uint64_t *words, uint64_t nr, uint64_t *ret_run,
             uint64_t *ret_seq)
{
    uint64_t expected[SECTOR_WORDS];

    sector_make(expected, words[W_RUN], nr, words[W_SEQ]);
    if (memcmp(words, expected, SECTOR) != 0)
        return false;
    *ret_run = words[W_RUN];
    *ret_seq = words[W_SEQ];
    return true;
}
