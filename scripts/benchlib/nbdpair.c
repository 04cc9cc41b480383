/* SPDX-License-Identifier: BSD-3-Clause */
/* Several servers at once, each asked for a slice of some milliseconds by
 * turns, for scripts/bench --paired: whatever else the machine does lasts
 * longer than a turn and hits all of them alike.
 *
 *   nbdpair LOAD key=value... stat=PATH... URI...
 *
 * LOAD: read, write (@depth random ones in flight on each connection), fsync
 * (a write, then a flush), fua or flush.  Prints one JSON object: for each
 * cycle the requests a second of each server, in the order of the URIs, and
 * for each server its requests and what the disks, whose files in sysfs are
 * given, completed during its slices.  The order of turns is drawn anew for
 * every cycle, with a fixed seed, as are the offsets.  A failed request ends
 * the program with exit status 1.
 *
 * Where no disk is waited for, a thread of the idle class spins on each
 * processor.  Without it a processor of a virtual machine sleeps whenever a
 * request travels, and is woken by the hypervisor, which takes from 10 us to 1
 * ms as its other guests allow: more than what is measured.  Where a disk is
 * waited for they would be what is measured: the hypervisor's thread that
 * serves the disk has to share the machine's processor time with them, and
 * where that is limited all of the machine stands still for some ms now and
 * then (Linux 6.18 on Firecracker: 2.9 ms for a flush instead of 0.15).
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include <libnbd.h>

#include "load.h"

#define MAX_SERVERS 16
#define MAX_DISKS 16
#define MAX_CONNS 64
#define MAX_DEPTH 64
#define MAX_BS 65536

/* Parameters; sizes in bytes. */
static uint64_t p_area = 256 << 20, p_bs = 4096, p_conns = 1, p_cycles = 100;
static uint64_t p_depth = 1, p_ms = 20;

struct server;

/* One connection and the thread that drives it. */
struct client {
    struct server *server;
    struct nbd_handle *nbd;
    pthread_t thread;
    uint64_t rnd;
    uint64_t nr_done, start_ns, until_ns, end_ns; /* Of the slice. */
};

/* What disks have completed. */
struct work {
    uint64_t flushes, writes, bytes;
};

struct server {
    uint64_t nr_done;
    struct work work;
    pthread_barrier_t start, end;
    bool is_over; /* No more slices. */
    struct client clients[MAX_CONNS];
};

static char block[MAX_BS]; /* What all write, and nobody reads. */

static uint64_t
random_offset(struct client *c)
{
    return next_random(&c->rnd) % (p_area / p_bs) * p_bs;
}

static void
must(int r, const char *what)
{
    if (r == -1)
        die("%s: %s", what, nbd_get_error());
}

struct slot {
    char buf[MAX_BS];
    bool is_busy;
};

static int
slot_done(void *data, int *error)
{
    if (*error)
        die("request: %s", strerror(*error));
    ((struct slot *)data)->is_busy = false;
    return 1;
}

/* Keep @p_depth requests in flight until the slice is over, then drain. */
static void
run_deep(struct client *c, bool is_write)
{
    static _Thread_local struct slot slots[MAX_DEPTH];
    bool is_over = false;

    for (;;) {
        uint64_t nr_busy = 0;

        is_over = is_over || now_ns() >= c->until_ns;
        for (uint64_t i = 0; i < p_depth; i++) {
            const nbd_completion_callback done = {.callback = slot_done,
                                                  .user_data = &slots[i]};
            int64_t cookie;

            if (slots[i].is_busy) {
                nr_busy++;
                continue;
            }
            if (is_over)
                continue;
            slots[i].is_busy = true;
            if (is_write)
                cookie = nbd_aio_pwrite(c->nbd, block, p_bs, random_offset(c),
                                        done, 0);
            else
                cookie = nbd_aio_pread(c->nbd, slots[i].buf, p_bs,
                                       random_offset(c), done, 0);
            must(cookie == -1 ? -1 : 0, "request");
            nr_busy++;
            c->nr_done++;
        }
        if (nr_busy == 0)
            return;
        must(nbd_poll(c->nbd, -1), "poll");
    }
}

static void
run_read(struct client *c)
{
    run_deep(c, false);
}

static void
run_write(struct client *c)
{
    run_deep(c, true);
}

static void
run_fsync(struct client *c)
{
    for (; now_ns() < c->until_ns; c->nr_done++) {
        must(nbd_pwrite(c->nbd, block, p_bs, random_offset(c), 0), "write");
        must(nbd_flush(c->nbd, 0), "flush");
    }
}

static void
run_fua(struct client *c)
{
    for (; now_ns() < c->until_ns; c->nr_done++)
        must(nbd_pwrite(c->nbd, block, p_bs, random_offset(c),
                        LIBNBD_CMD_FLAG_FUA),
             "FUA write");
}

static void
run_flush(struct client *c)
{
    for (; now_ns() < c->until_ns; c->nr_done++)
        must(nbd_flush(c->nbd, 0), "flush");
}

struct load {
    const char *name;
    void (*run)(struct client *c);
    bool waits_for_disk;
};

static const struct load loads[] = {
    {"read",  run_read,  false},
    {"write", run_write, false},
    {"fsync", run_fsync, true },
    {"fua",   run_fua,   true },
    {"flush", run_flush, false}, /* With nothing to make durable. */
};

static const struct load *load;

static void *
drive(void *data)
{
    struct client *c = data;
    struct server *s = c->server;

    for (;;) {
        pthread_barrier_wait(&s->start);
        if (s->is_over)
            return NULL;
        c->nr_done = 0;
        c->start_ns = now_ns();
        c->until_ns = c->start_ns + p_ms * 1000000;
        load->run(c);
        c->end_ns = now_ns();
        pthread_barrier_wait(&s->end);
    }
}

static void
start_server(struct server *s, const char *uri)
{
    pthread_barrier_init(&s->start, NULL, p_conns + 1);
    pthread_barrier_init(&s->end, NULL, p_conns + 1);
    for (uint64_t i = 0; i < p_conns; i++) {
        struct client *c = &s->clients[i];

        /* All servers get the same requests. */
        *c = (struct client){.server = s, .rnd = FIRST_SEED + i};
        c->nbd = nbd_create();
        if (!c->nbd || nbd_connect_uri(c->nbd, uri) == -1)
            die("connect: %s", nbd_get_error());
        if (pthread_create(&c->thread, NULL, drive, c))
            die("cannot start a thread");
    }
}

static void
stop_server(struct server *s)
{
    s->is_over = true;
    pthread_barrier_wait(&s->start);
    for (uint64_t i = 0; i < p_conns; i++) {
        pthread_join(s->clients[i].thread, NULL);
        must(nbd_shutdown(s->clients[i].nbd, 0), "shutdown");
        nbd_close(s->clients[i].nbd);
    }
}

static const char *disks[MAX_DISKS];
static unsigned nr_disks;

/* Documentation/block/stat.rst of Linux: fields 5, 7 and 16. */
static struct work
read_disks(void)
{
    struct work sum = {0};

    for (unsigned i = 0; i < nr_disks; i++) {
        uint64_t writes, sectors, flushes;
        FILE *f = fopen(disks[i], "re");

        if (!f || fscanf(f,
                         "%*u %*u %*u %*u %" SCNu64 " %*u %" SCNu64
                         " %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64,
                         &writes, &sectors, &flushes) != 3)
            die("%s: expected 16 numbers of a disk", disks[i]);
        fclose(f);
        sum.writes += writes;
        sum.bytes += sectors * 512;
        sum.flushes += flushes;
    }
    return sum;
}

/* Requests a second of one slice. */
static double
run_slice(struct server *s)
{
    uint64_t nr = 0, start = UINT64_MAX, end = 0;
    const struct work before = read_disks();
    struct work after;

    pthread_barrier_wait(&s->start);
    pthread_barrier_wait(&s->end);
    for (uint64_t i = 0; i < p_conns; i++) {
        const struct client *c = &s->clients[i];

        nr += c->nr_done;
        start = c->start_ns < start ? c->start_ns : start;
        end = c->end_ns > end ? c->end_ns : end;
    }
    after = read_disks();
    s->nr_done += nr;
    s->work.flushes += after.flushes - before.flushes;
    s->work.writes += after.writes - before.writes;
    s->work.bytes += after.bytes - before.bytes;
    return nr * 1e9 / (end - start);
}

static void
shuffle(unsigned *order, unsigned nr, uint64_t *rnd)
{
    for (unsigned i = nr - 1; i > 0; i--) {
        const unsigned j = next_random(rnd) % (i + 1), kept = order[i];

        order[i] = order[j];
        order[j] = kept;
    }
}

static void *
spin(void *data)
{
    const struct sched_param none = {0};

    (void)data;
    if (sched_setscheduler(0, SCHED_IDLE, &none) == 0)
        for (;;)
            ;
    return NULL;
}

/* One spinning thread for each processor that we may use; they end with us. */
static void
keep_awake(void)
{
    cpu_set_t all;

    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        pthread_attr_t attr;
        pthread_t thread;
        cpu_set_t one;

        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_attr_init(&attr);
        pthread_attr_setaffinity_np(&attr, sizeof one, &one);
        if (pthread_create(&thread, &attr, spin, NULL))
            die("cannot start a thread");
        pthread_attr_destroy(&attr);
    }
}

static void
print_sums(const char *name, const struct server *servers, unsigned nr,
           size_t field)
{
    printf(", \"%s\": [", name);
    for (unsigned i = 0; i < nr; i++)
        printf("%s%" PRIu64, i ? ", " : "",
               *(const uint64_t *)((const char *)&servers[i] + field));
    printf("]");
}

static const struct param params[] = {
    {"area",   &p_area,   MAX_BS, UINT64_MAX},
    {"bs",     &p_bs,     512,    MAX_BS    },
    {"conns",  &p_conns,  1,      MAX_CONNS },
    {"cycles", &p_cycles, 1,      1000000   },
    {"depth",  &p_depth,  1,      MAX_DEPTH },
    {"ms",     &p_ms,     1,      60000     },
};

int
main(int argc, char **argv)
{
    static struct server servers[MAX_SERVERS];
    unsigned order[MAX_SERVERS], nr = 0;
    uint64_t rnd = FIRST_SEED;
    int i = 2;

    for (size_t j = 0; argc > 1 && j < sizeof loads / sizeof loads[0]; j++)
        if (!strcmp(argv[1], loads[j].name))
            load = &loads[j];
    if (!load)
        die("usage: nbdpair read|write|fsync|fua|flush key=value... URI...");
    for (; i < argc && !strstr(argv[i], "://"); i++) {
        if (!strncmp(argv[i], "stat=", 5)) {
            if (nr_disks == MAX_DISKS)
                die("expected at most %d disks", MAX_DISKS);
            disks[nr_disks++] = argv[i] + 5;
            continue;
        }
        set_param(argv[i], params, sizeof params / sizeof params[0]);
    }
    if (i == argc || argc - i > MAX_SERVERS)
        die("expected 1 to %d addresses", MAX_SERVERS);
    for (; i < argc; i++, nr++) {
        order[nr] = nr;
        start_server(&servers[nr], argv[i]);
    }
    if (!load->waits_for_disk)
        keep_awake();
    for (unsigned j = 0; j < nr; j++) {
        (void)run_slice(&servers[j]); /* What comes first is never warm. */
        servers[j].nr_done = 0;
        servers[j].work = (struct work){0};
    }
    printf("{\"cycles\": [");
    for (uint64_t c = 0; c < p_cycles; c++) {
        double rate[MAX_SERVERS];

        shuffle(order, nr, &rnd);
        for (unsigned j = 0; j < nr; j++)
            rate[order[j]] = run_slice(&servers[order[j]]);
        for (unsigned j = 0; j < nr; j++)
            printf("%s%.1f", j ? ", " : c ? "], [" : "[", rate[j]);
        if (fflush(stdout) != 0)
            die("stdout: %s", strerror(errno));
    }
    printf("]]");
    print_sums("requests", servers, nr, offsetof(struct server, nr_done));
    print_sums("host_flushes", servers, nr,
               offsetof(struct server, work.flushes));
    print_sums("host_writes", servers, nr,
               offsetof(struct server, work.writes));
    print_sums("host_bytes", servers, nr, offsetof(struct server, work.bytes));
    printf("}\n");
    for (unsigned j = 0; j < nr; j++)
        stop_server(&servers[j]);
    return fflush(stdout) == 0 ? 0 : 1;
}
