/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The trace: one line of JSON for each request, from a thread of its own.  It
 * never holds up a request: what it cannot keep up with is dropped and counted.
 */
#ifndef UBD_TRACE_H
#define UBD_TRACE_H

#include "ubd-trace-ring.h"

/* Open @path, which must be a trace, empty, or not there; a pipe, or a device
 * that nothing is kept on.  Changes nothing that exists.  @image and @metrics
 * (or NULL) are other files of the server, and refused.  0 or a negative
 * errno, with *@ret_why in words if there is more to say.  @path must outlive
 * ubd_trace_stop.
 */
int ubd_trace_open(const char *path, const char *image, const char *metrics,
                   const char **ret_why);

/* It will not be used after all: remove what ubd_trace_open has created. */
void ubd_trace_abandon(void);

/* Begin the file anew and start the thread that writes it.  Harmless if it was
 * not opened.
 */
int ubd_trace_start(struct ubd_disk *disk, const char *file);

/* Write what is left and the last line.  Waits for nobody who reads a pipe
 * and does not go on.  No request may be running.
 */
void ubd_trace_stop(void);

/* Lines written so far, and requests that have none. */
void ubd_trace_counts(uint64_t *ret_records, uint64_t *ret_dropped);

extern bool ubd_trace_is_on; /* (c) Once started. */

void ubd_trace_arrived(struct ubd_trace_record *record, uint64_t conn,
                       enum ubd_kind kind, uint32_t len, uint64_t offset,
                       unsigned flags);
void ubd_trace_answered(struct ubd_trace_record *record, int result);

/* Around each request; @record is the caller's and need not be initialised. */
static inline void
ubd_trace_begin(struct ubd_trace_record *record, uint64_t conn,
                enum ubd_kind kind, uint32_t len, uint64_t offset,
                unsigned flags)
{
    if (__builtin_expect(ubd_trace_is_on, false))
        ubd_trace_arrived(record, conn, kind, len, offset, flags);
}

static inline void
ubd_trace_end(struct ubd_trace_record *record, int result)
{
    if (__builtin_expect(ubd_trace_is_on, false))
        ubd_trace_answered(record, result);
}

#endif
