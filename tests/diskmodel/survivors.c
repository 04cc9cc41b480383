/* SPDX-License-Identifier: BSD-3-Clause */
/* The modes of a power cut; see survivors.h. */
#include "survivors.h"

static bool
coin(struct survivors *s)
{
    return next_random(&s->random) >> 63;
}

void
survivors_init(struct survivors *s, enum diskmodel_cut_mode mode, uint64_t seed,
               uint64_t nr_writes)
{
    *s = (struct survivors){.mode = mode, .random = seed};
    s->writes_kept = next_random(&s->random) % (nr_writes + 1);
}

void
survivors_next_write(struct survivors *s, uint64_t nr_sectors)
{
    const uint64_t nr = s->writes_seen++;

    s->sectors_kept = 0;
    switch (s->mode) {
    case DISKMODEL_CUT_ALL:
        s->sectors_kept = nr_sectors;
        break;
    case DISKMODEL_CUT_PREFIX:
        s->sectors_kept = nr < s->writes_kept ? nr_sectors : 0;
        break;
    case DISKMODEL_CUT_WRITE:
        s->sectors_kept = coin(s) ? nr_sectors : 0;
        break;
    case DISKMODEL_CUT_TORN:
        /* Half of the writes are torn, where they have sectors to tear. */
        if (coin(s))
            s->sectors_kept = coin(s) ? nr_sectors : 0;
        else
            s->sectors_kept = next_random(&s->random) % nr_sectors;
        break;
    case DISKMODEL_CUT_NONE:
    case DISKMODEL_CUT_SECTOR:
    case DISKMODEL_NR_CUT_MODES:
        break;
    }
}

bool
survivors_keep(struct survivors *s, uint64_t i)
{
    if (s->mode == DISKMODEL_CUT_SECTOR)
        return coin(s);
    return i < s->sectors_kept;
}
