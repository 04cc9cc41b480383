/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bugs on purpose, for a proof that the tests find them.  What ships has none
 * of this: only tests/powercut builds with UBD_MUTANTS, a plugin that is never
 * installed, and there the environment variable UBD_MUTANT chooses one.
 */
#ifndef UBD_MUTANT_H
#define UBD_MUTANT_H

#include <stdbool.h>

#ifdef UBD_MUTANTS

struct ubd_disk;

/* Is @name the one that was chosen? */
bool ubd_mutant_is(const char *name);

/* Flush @disk some time, and say at once that it is done. */
int ubd_mutant_flush_later(struct ubd_disk *disk);

#define UBD_MUTANT(name) ubd_mutant_is(#name)
#else
#define UBD_MUTANT(name) false
#define ubd_mutant_flush_later(disk) 0
#endif

#endif
