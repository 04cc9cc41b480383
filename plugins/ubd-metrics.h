/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Keeps the metrics file: Prometheus text, replaced atomically once a second
 * while something changes, and at the end.
 */
#ifndef UBD_METRICS_H
#define UBD_METRICS_H

#include "ubd.h"

/* Write @path for the first time, so that a bad one is noticed at start.
 * Replaces nothing but an older metrics file.  0 or a negative errno, with
 * *@ret_why in words if there is more to say.  @file must outlive
 * ubd_metrics_stop.
 */
int ubd_metrics_open(struct ubd_disk *disk, const char *path, const char *file,
                     const char **ret_why);

/* Start the thread that keeps it. */
int ubd_metrics_start(void);

/* Write it for the last time and end the thread.  Harmless if not started. */
void ubd_metrics_stop(void);

#endif
