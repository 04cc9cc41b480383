/* SPDX-License-Identifier: BSD-3-Clause */
/* Scattered updates as a program makes them that maps its file: no server, no
 * requests, and one msync at the end.  The blocks are those of nbdload's
 * scatter.
 *
 *   mmapload FILE scatter [key=value...]
 *
 * Prints one JSON object with the fields of nbdload.
 */
#include <fcntl.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include "load.h"

#define MAX_BS 65536

static uint64_t p_area = 1 << 30, p_bs = 8192, p_count = 100000;
static uint64_t p_depth = 1, p_watch = NO_WATCH;

static const struct param params[] = {
    {"area",  &p_area,  MAX_BS, UINT64_MAX},
    {"bs",    &p_bs,    512,    MAX_BS    },
    {"count", &p_count, 1,      UINT64_MAX},
    {"depth", &p_depth, 1,      UINT64_MAX}, /* Of no use here. */
    {"watch", &p_watch, 0,      INT32_MAX },
};

static char *
map_file(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    char *map;

    if (fd == -1 || fstat(fd, &st) == -1)
        die("%s: %s", path, strerror(errno));
    if ((uint64_t)st.st_size < p_area)
        die("%s: smaller than area=%" PRIu64, path, p_area);
    map = mmap(NULL, p_area, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        die("%s: mmap: %s", path, strerror(errno));
    close(fd);
    return map;
}

int
main(int argc, char **argv)
{
    char block[MAX_BS];
    uint64_t rnd = FIRST_SEED, distinct = 0, start, flush_start, end;
    unsigned char *seen;
    char *map;

    if (argc < 3 || strcmp(argv[2], "scatter"))
        die("usage: mmapload FILE scatter [key=value...]");
    for (int i = 3; i < argc; i++)
        set_param(argv[i], params, sizeof params / sizeof params[0]);
    map = map_file(argv[1]);
    seen = must_alloc(calloc(p_area / p_bs, 1));

    start = now_ns();
    for (uint64_t i = 0; i < p_count; i++) {
        const uint64_t nr = next_random(&rnd) % (p_area / p_bs);

        memcpy(block, map + nr * p_bs, p_bs);
        block[0]++;
        memcpy(map + nr * p_bs, block, p_bs);
        seen[nr] = 1;
    }
    printf("{");
    print_dirty(p_watch);
    flush_start = now_ns();
    if (msync(map, p_area, MS_SYNC) == -1)
        die("msync: %s", strerror(errno));
    end = now_ns();

    for (uint64_t i = 0; i < p_area / p_bs; i++)
        distinct += seen[i];
    printf("\"seconds\": %.6f, \"flush_seconds\": %.6f, "
           "\"requests\": %" PRIu64 ", \"flushes\": 1, "
           "\"distinct_bytes\": %" PRIu64 ", \"command\": \"scatter\"}\n",
           (end - start) / 1e9, (end - flush_start) / 1e9, p_count,
           distinct * p_bs);
    return fflush(stdout) == 0 ? 0 : 1;
}
