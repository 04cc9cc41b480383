/* SPDX-License-Identifier: BSD-3-Clause */
/* A random load on an NBD server until the power is cut or the server is
 * killed: several connections, many requests in flight, all from one thread.
 *
 * Threads: one.
 */
#ifndef POWERCUT_LOAD_H
#define POWERCUT_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "history.h"

struct load_config {
    const char *socket;  /* Of the server. */
    const char *control; /* Of the disk model; NULL: nothing to cut. */
    const char *cut;     /* The command that cuts: "cut seed=1 mode=torn". */
    const char *begin;   /* NULL or one that arms a cut or a failure. */
    pid_t kill;          /* Or the server, which gets SIGKILL instead. */
    uint64_t seed;
    uint64_t connections, depth; /* Requests in flight on each. */
    uint64_t requests;           /* At most so many. */
    uint64_t sectors_max;        /* Of one change. */
    uint64_t align;              /* Sectors; where changes begin and end. */
    uint64_t write, zero, trim, flush; /* Shares. */
    uint64_t fua;                      /* Percent of the changes. */
    uint64_t acks; /* Cut at this acknowledgement; 0: at the end. */
    bool go_on;    /* After an error; else it means that the power is off. */
};

struct load_result {
    uint64_t requests, flushes, fua; /* Acknowledged. */
    uint64_t errors;
    bool was_cut; /* By us, and not before. */
};

/* Nothing is in flight when it returns.
 *
 * Errors: -ECONNREFUSED  no server came up
 *         -ETIMEDOUT     a request was not answered for a long time
 *         -EPROTO        the model did not understand
 */
int load_run(const struct load_config *config, struct history *h,
             struct load_result *ret_result);

#endif
