/* SPDX-License-Identifier: BSD-3-Clause */
/* Which bug is in; see server/mutant.h. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "mutant.h"

static const char *chosen = "";

__attribute__((constructor)) static void
choose(void)
{
    const char *name = getenv("UBD_MUTANT");

    if (name)
        chosen = name;
}

bool
ubd_mutant_is(const char *name)
{
    return strcmp(name, chosen) == 0;
}

static void *
flush(void *disk)
{
    (void)ubd_disk_make_durable(disk, NULL); /* Nobody will know. */
    return NULL;
}

int
ubd_mutant_flush_later(struct ubd_disk *disk)
{
    pthread_t thread;
    const int r = pthread_create(&thread, NULL, flush, disk);

    if (r == 0)
        pthread_detach(thread);
    return -r;
}
