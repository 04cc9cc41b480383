/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of cache modes.  No other file names a mode; the manual page has
 * the same table, and a test compares the two.
 */
#include "policy.h"

#include "ubd.h"

#include <stddef.h>
#include <string.h>

/* Bounds a flush to a fraction of a second; see docs/performance.md. */
#define DIRTY_LIMIT ((int64_t)256 << 20)

static const char barrier_survives[] =
    "acknowledged writes survive the death of this server and of the guest; "
    "what was flushed or written with FUA survives a power cut of the host";
static const char osync_survives[] =
    "every acknowledged write survives the death of this server, of the "
    "guest, and a power cut of the host";
static const char unsafe_survives[] =
    "acknowledged writes survive the death of this server and of the guest; "
    "a power cut of the host can lose or corrupt everything, flushed or not";

/* Columns: name, when an acknowledged change is durable, whether FLUSH reaches
 * the disk, how much may be dirty by default, what survives.  The first row is
 * the default.
 */
static const struct ubd_policy policies[] = {
    {"barrier", UBD_DURABLE_ON_FUA, true,  DIRTY_LIMIT, barrier_survives},
    {"osync",   UBD_DURABLE_ALWAYS, false, 0,           osync_survives  },
    {"unsafe",  UBD_DURABLE_NEVER,  false, 0,           unsafe_survives },
};

/* What qemu calls these modes. */
static const struct {
    const char *name;
    const char *mode;
    bool direct;
} aliases[] = {
    {"writeback",    "barrier", false},
    {"none",         "barrier", true },
    {"writethrough", "osync",   false},
    {"directsync",   "osync",   true },
};

#define NR(array) (sizeof(array) / sizeof((array)[0]))

const struct ubd_policy *
ubd_policy_find(const char *name, bool *ret_direct)
{
    bool direct = false;

    if (!name)
        name = policies[0].name;
    for (size_t i = 0; i < NR(aliases); i++) {
        if (strcmp(aliases[i].name, name) == 0) {
            name = aliases[i].mode;
            direct = aliases[i].direct;
            break;
        }
    }
    for (size_t i = 0; i < NR(policies); i++) {
        if (strcmp(policies[i].name, name) == 0) {
            *ret_direct = direct;
            return &policies[i];
        }
    }
    return NULL;
}

const char *
ubd_mode_name(unsigned i)
{
    return i < NR(policies) ? policies[i].name : NULL;
}

const char *
ubd_mode_alias(unsigned i, const char **ret_mode, bool *ret_direct)
{
    if (i >= NR(aliases))
        return NULL;
    *ret_mode = aliases[i].mode;
    *ret_direct = aliases[i].direct;
    return aliases[i].name;
}

bool
ubd_mode_known(const char *name)
{
    bool direct;

    return name && ubd_policy_find(name, &direct);
}
