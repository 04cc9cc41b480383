/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What nbdkit's command line says that its plugin interface does not.
 */
#ifndef UBD_CMDLINE_H
#define UBD_CMDLINE_H

/* Was nbdkit started with -r?  nbdkit says so only when a client connects,
 * which is too late: the image is opened and locked before, so that errors are
 * seen at start.  1, 0, or a negative errno if /proc is not to be read.
 */
int ubd_cmdline_is_readonly(void);

#endif
