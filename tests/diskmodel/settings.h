/* SPDX-License-Identifier: BSD-3-Clause */
/* The names, units and limits that users see, on the command line of the
 * program and on its control socket.
 */
#ifndef DISKMODEL_SETTINGS_H
#define DISKMODEL_SETTINGS_H

#include <stdio.h>

#include "model.h"

/* Set @name ("flush_ms") to @value ("8").
 *
 * Errors: -ENOENT  no such setting
 *         -EINVAL  not a number, or out of range
 */
int settings_set(struct diskmodel_settings *s, const char *name,
                 const char *value);

/* A JSON object, without a newline. */
void settings_print_json(const struct diskmodel_settings *s, FILE *out);

/* One line each: name, default, meaning. */
void settings_print_help(FILE *out);

/* What a disk is like if nobody says otherwise: fast, with 64 MiB of cache. */
extern const struct diskmodel_settings settings_default;

/* "none", "all", ...; -EINVAL if there is no such mode. */
int settings_parse_cut_mode(const char *name,
                            enum diskmodel_cut_mode *ret_mode);

/* Decimal or 0x; all of 64 bits.  -EINVAL if it is anything else. */
int settings_parse_number(const char *text, uint64_t *ret_number);

/* "1G", "256M", "4096"; -EINVAL if it is anything else. */
int settings_parse_size(const char *text, uint64_t *ret_size);

#endif
