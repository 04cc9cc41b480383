/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What nbdkit's command line says that its plugin interface does not.
 */
#ifndef UBD_CMDLINE_H
#define UBD_CMDLINE_H

#include <stdbool.h>

/* Was nbdkit started with -r?  nbdkit says so only when a client connects,
 * which is too late: the image is opened and locked before, so that errors are
 * seen at start.  False also if /proc is not mounted.
 */
bool ubd_cmdline_is_readonly(void);

#endif
