/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of cache modes: what each one promises, not how it is kept.
 */
#ifndef UBD_POLICY_H
#define UBD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum ubd_durable {
    UBD_DURABLE_NEVER,  /* Neither FUA nor a mode makes a change durable. */
    UBD_DURABLE_ON_FUA, /* A change with FUA, before its reply. */
    UBD_DURABLE_ALWAYS, /* Every change, before its reply. */
};

struct ubd_policy {
    const char *name;
    enum ubd_durable durable;
    bool flush_syncs;    /* A FLUSH must reach the host's disk. */
    int64_t dirty_limit; /* Bytes in the page cache, by default; 0 is none. */
    const char *survives;
};

/* The mode called @name, or the default one for NULL; NULL if there is none.
 * *@ret_direct is set if the name is an alias that also asks for O_DIRECT.
 */
const struct ubd_policy *ubd_policy_find(const char *name, bool *ret_direct);

#endif
