/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A turn: a number that many may wait for to change, and one system call that
 * wakes them all.  A condition variable would send each of them through its
 * mutex, and a semaphore for each is a system call for each.
 */
#ifndef UBD_TURN_H
#define UBD_TURN_H

#include <stdatomic.h>

/* Sleep until @turn is not @seen; may return without reason. */
void ubd_turn_wait(atomic_uint *turn, unsigned seen);

/* Change it.  Everything written before is seen by those who wake. */
void ubd_turn_end(atomic_uint *turn);

#endif
