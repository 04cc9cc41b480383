/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small things about bytes and nanoseconds that several files need.
 */
#ifndef UBD_UNITS_H
#define UBD_UNITS_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
ubd_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline uint64_t
ubd_round_down(uint64_t value, uint64_t to)
{
    return value / to * to;
}

static inline uint64_t
ubd_round_up(uint64_t value, uint64_t to)
{
    return ubd_round_down(value + to - 1, to);
}

#endif
