/* SPDX-License-Identifier: BSD-3-Clause */
/* What the load makers share: time, random numbers, latencies, parameters.
 * Each is one file and includes this once, so everything here is static.
 */
#ifndef UBD_LOAD_H
#define UBD_LOAD_H

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/syscall.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* The same on every architecture. */
#endif

#define NO_WATCH UINT64_MAX
#define FIRST_SEED 88172645463325252ull

static void __attribute__((format(printf, 1, 2), noreturn))
die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static inline void *
must_alloc(void *p)
{
    if (!p)
        die("out of memory");
    return p;
}

static inline uint64_t
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Print how much of the open file @fd is dirty or under write-out now, as a
 * field; nothing if @fd is NO_WATCH or the kernel cannot tell.
 */
static inline void
print_dirty(uint64_t fd)
{
    const uint64_t whole[2] = {0, 0};
    uint64_t pages[5];

    if (fd == NO_WATCH || syscall(SYS_cachestat, (int)fd, whole, pages, 0) != 0)
        return;
    printf("\"dirty_at_flush\": %" PRIu64 ", ",
           (pages[1] + pages[2]) * sysconf(_SC_PAGESIZE));
}

struct param {
    const char *name;
    uint64_t *value;
    uint64_t min, max;
};

static inline void
set_param(const char *arg, const struct param *params, size_t nr)
{
    const char *eq = strchr(arg, '=');

    for (size_t i = 0; eq && i < nr; i++) {
        char *end;

        if (strncmp(arg, params[i].name, eq - arg) || params[i].name[eq - arg])
            continue;
        errno = 0;
        *params[i].value = strtoull(eq + 1, &end, 10);
        if (errno || *end || end == eq + 1 ||
            *params[i].value < params[i].min ||
            *params[i].value > params[i].max)
            die("%s: expected a number from %" PRIu64 " to %" PRIu64, arg,
                params[i].min, params[i].max);
        return;
    }
    die("unknown parameter '%s'", arg);
}

#endif
