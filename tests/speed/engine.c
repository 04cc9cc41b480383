/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the engine itself adds to a request, without a client, a server and
 * their scheduler: 4 KiB writes and reads in random order on a file in the page
 * cache, one thread, plain pwrite(2) and pread(2) in turns with the engine.
 *
 *     build/tests/speed/engine FOLDER [ROUNDS]
 *
 * Prints the median of the rounds, in nanoseconds a request.  Not a test: the
 * figures are for docs/performance.md.
 */
#include "ubd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE (UINT64_C(256) << 20)
#define PAGE UINT64_C(4096)
#define REQUESTS 100000
#define ROUNDS_MAX 99

static char data[PAGE];

struct way {
    const char *name;
    bool is_read, is_plain, observe;
    enum ubd_io_choice io;
    int64_t dirty_limit;
    double ns[ROUNDS_MAX];
};

/* A limit that is not reached: what is measured is the counting. */
#define NEVER (INT64_C(1) << 40)

/* Columns: name, is it a read, without the engine, observed, io=, limit. */
static struct way ways[] = {
    {"write, pwrite(2)",             false, true,  false, UBD_IO_AUTO,     0,     {0}},
    {"write, engine, dirty-limit=0", false, false, false, UBD_IO_AUTO,     0,     {0}},
    {"write, engine, with a limit",
     false,                                 false,
     false,                                               UBD_IO_AUTO,
     NEVER,                                                                       {0}},
    {"write, the same, observed",    false, false, true,  UBD_IO_AUTO,     NEVER, {0}},
    {"read, pread(2)",               true,  true,  false, UBD_IO_AUTO,     0,     {0}},
    {"read, engine",                 true,  false, false, UBD_IO_AUTO,     0,     {0}},
    {"read, engine, io=syscalls",    true,  false, false, UBD_IO_SYSCALLS, 0,     {0}},
};
#define NR_WAYS (sizeof ways / sizeof ways[0])

static void
die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t
random_offset(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (*state >> 33) % (SIZE / PAGE) * PAGE;
}

static bool
is_done(const struct way *way, int fd, struct ubd_disk *disk, uint64_t offset)
{
    if (way->is_plain)
        return (way->is_read ? pread(fd, data, PAGE, offset)
                             : pwrite(fd, data, PAGE, offset)) == PAGE;
    return (way->is_read ? ubd_read(disk, data, PAGE, offset)
                         : ubd_write(disk, data, PAGE, offset, 0)) == 0;
}

static double
measure(const struct way *way, int fd, const char *path)
{
    const struct ubd_config config = {.path = path,
                                      .trim = true,
                                      .dirty_limit = way->dirty_limit,
                                      .io = way->io,
                                      .observe = way->observe};
    struct ubd_disk *disk = NULL;
    const char *why;
    struct ubd_span span;
    uint64_t state = 1, start_ns;

    if (ubd_open(&config, &disk, &why) < 0 || ubd_start(disk) < 0)
        die(path);
    start_ns = now_ns();
    for (unsigned i = 0; i < REQUESTS; i++) {
        if (way->observe) {
            memset(&span, 0, sizeof span);
            ubd_observe(&span);
        }
        if (!is_done(way, fd, disk, random_offset(&state)))
            die("request");
    }
    start_ns = now_ns() - start_ns;
    ubd_observe(NULL);
    ubd_close(disk);
    return (double)start_ns / REQUESTS;
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

int
main(int argc, char **argv)
{
    const int rounds = argc > 2 ? atoi(argv[2]) : 15;
    char path[4096];
    int fd;

    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "engine: expected FOLDER [ROUNDS, 1 to %d]\n",
                ROUNDS_MAX);
        return 2;
    }
    snprintf(path, sizeof path, "%s/engine-XXXXXX", argv[1]);
    fd = mkstemp(path);
    if (fd < 0)
        die(argv[1]);
    for (uint64_t at = 0; at < SIZE; at += PAGE)
        if (pwrite(fd, data, PAGE, at) != PAGE)
            die(path);
    for (int r = 0; r < rounds; r++)
        for (size_t i = 0; i < NR_WAYS; i++)
            ways[i].ns[r] = measure(&ways[i], fd, path);
    for (size_t i = 0; i < NR_WAYS; i++) {
        qsort(ways[i].ns, rounds, sizeof(double), compare);
        printf("%-32s %7.0f ns (%.0f..%.0f)\n", ways[i].name,
               ways[i].ns[rounds / 2], ways[i].ns[0], ways[i].ns[rounds - 1]);
    }
    close(fd);
    unlink(path);
    return 0;
}
