/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lines of a trace, as the manual page describes them.
 */
#ifndef UBD_TRACE_JSON_H
#define UBD_TRACE_JSON_H

#include "ubd-trace-ring.h"

#include <stddef.h>

/* What the first line begins with, and each record. */
#define UBD_TRACE_FIRST_WORDS "{\"ubd_trace\""
#define UBD_TRACE_RECORD_WORDS "{\"id\""

/* No line of a record is longer, nor one that is not about a path. */
#define UBD_TRACE_LINE_MAX 1024

/* Each writes a line with its newline to @out and returns its length; nothing
 * is terminated.
 */
size_t ubd_trace_record_line(char *out, const struct ubd_trace_record *record);
size_t ubd_trace_drop_line(char *out, uint64_t nr_dropped, uint64_t total);
/* What ubd_trace_drop_line has been given as @nr_dropped. */
uint64_t ubd_trace_drops_of(const char *line);
size_t ubd_trace_end_line(char *out, uint64_t now_ns, uint64_t nr_records,
                          uint64_t nr_dropped);

/* Needs UBD_TRACE_LINE_MAX and six bytes for each one of @file. */
size_t ubd_trace_first_line(char *out, const char *file,
                            const struct ubd_info *info, long pid,
                            uint64_t now_ns);

#endif
