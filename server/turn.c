/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Turns, by futex(2).
 */
#include "turn.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void
ubd_turn_wait(atomic_uint *turn, unsigned seen)
{
    syscall(SYS_futex, turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void
ubd_turn_end(atomic_uint *turn)
{
    atomic_fetch_add(turn, 1);
    syscall(SYS_futex, turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
