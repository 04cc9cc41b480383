/* SPDX-License-Identifier: BSD-3-Clause */
/* The control socket: one command a line, one line of answer.
 *
 *   arm ops=N [seed=S] [mode=M]  cut the power before the N-th write, zero or
 *                                flush from here is received (1: the next)
 *   disarm                       do not
 *   cut [seed=S] [mode=M]        cut it now
 *   fail [writes=N] [flushes=N]  the N-th write or zero from here fails once,
 *                                the N-th flush (1: the next)
 *   power-on                     the disk comes back with what was durable
 *   set NAME=VALUE...            all of them, or none if one is wrong
 *   stats                        counters and settings
 *
 * Modes: none, all, prefix, write, sector, torn (the default).  Seed: 0 is the
 * default.  The answer is a JSON object: {"error": "..."} if the command
 * failed, the statistics after it if not.
 */
#ifndef DISKMODEL_CONTROL_H
#define DISKMODEL_CONTROL_H

#include <stddef.h>
#include <stdio.h>

#include "model.h"

/* Run one command and write the answer, with its newline, to @out.  @line is
 * modified.
 */
void control_run(struct diskmodel *m, char *line, FILE *out);

/* Serve the socket @path from threads that never end.  Not while another
 * process serves it; a socket that nobody serves is replaced.
 */
int control_start(struct diskmodel *m, const char *path);

#endif
