/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The plugin's parameters: one table of key, value, default, parser and help
 * line.  nbdkit --help is made of it; the manual page is compared with it.
 */
#ifndef UBD_OPTIONS_H
#define UBD_OPTIONS_H

#include "ubd.h"

struct ubd_options {
    struct ubd_config config; /* config.path is absolute. */
    char *file;               /* Owned; config.path points to it. */
    char *cache;              /* Owned, or NULL. */
    char *metrics;            /* Owned, absolute, or NULL. */
    char *trace;              /* Likewise. */
    bool is_not_direct;       /* direct=false was given. */
    unsigned given;           /* Bit i: row i of the table has been given. */
};

extern struct ubd_options ubd_options;

/* For struct nbdkit_plugin: one line per parameter. */
extern const char ubd_options_help[];

/* nbdkit's .config: 0, or -1 with a message printed. */
int ubd_options_set(const char *key, const char *value);

/* Everything required was given?  0, or -1 with a message printed. */
int ubd_options_complete(void);

void ubd_options_free(void);

#endif
