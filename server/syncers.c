/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The threads that lead the syncs of a crowd.
 */
#include "syncers.h"

#include "thread.h"

static void *
lead_all(void *opaque)
{
    struct ubd_syncers *s = opaque;
    struct ubd_sync sync;

    while (ubd_durability_take(s->durability, &sync))
        s->lead(s->opaque, &sync);
    return NULL;
}

int
ubd_syncers_start(struct ubd_syncers *s, struct ubd_durability *d,
                  void (*lead)(void *opaque, struct ubd_sync *sync),
                  void *opaque)
{
    int r = 0;

    *s = (struct ubd_syncers){.durability = d, .lead = lead, .opaque = opaque};
    while (r == 0 && s->nr < UBD_NR_SYNCERS) {
        r = ubd_start_thread(&s->threads[s->nr], lead_all, s);
        if (r == 0)
            s->nr++;
    }
    return r;
}

void
ubd_syncers_stop(struct ubd_syncers *s)
{
    if (s->nr == 0)
        return;
    ubd_durability_stop(s->durability);
    while (s->nr > 0)
        pthread_join(s->threads[--s->nr], NULL);
}
