/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests through rings, on a real file.  Skipped where the host refuses
 * rings; that this is handled is tested with a whole server.
 */
#include "unit.h"

#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <linux/falloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SKIP 77

/* The linker puts these in the place of what the engine calls (meson.build). */
static atomic_uint nr_cached_reads;
static int answer; /* 0: it is cached. */
static atomic_uint nr_rings;
static unsigned rings_max = UINT_MAX; /* The host refuses more of them. */

static bool has_no_workers; /* The kernel cannot make a thread for us. */

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned nr);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned nr);
int64_t __wrap_ubd_io_cached_read(const struct ubd_req *req);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring,
                               unsigned flags);
int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring,
                               unsigned flags);

int64_t
__wrap_ubd_io_cached_read(const struct ubd_req *req)
{
    atomic_fetch_add(&nr_cached_reads, 1);
    return answer < 0 ? answer : ubd_io_syscall(req);
}

int
__wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned nr)
{
    const int r = __real_io_uring_submit_and_wait(ring, nr);
    struct io_uring_cqe *cqe;

    if (has_no_workers && io_uring_peek_cqe(ring, &cqe) == 0)
        cqe->res = -ECANCELED;
    return r;
}

int
__wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring,
                           unsigned flags)
{
    if (atomic_fetch_add(&nr_rings, 1) >= rings_max)
        return -ENOMEM;
    return __real_io_uring_queue_init(entries, ring, flags);
}

static int
run(struct ubd_io *io, int fd, enum ubd_op op, void *buf, uint64_t len,
    uint64_t offset)
{
    const struct ubd_req req = {.op = op,
                                .fd = fd,
                                .buf = buf,
                                .len = len,
                                .offset = offset,
                                .mode =
                                    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};

    return ubd_io_run(io, &req);
}

static struct ubd_io *
open_io(bool insist)
{
    struct ubd_io *io;

    ck_assert_int_eq(ubd_io_uring_open(insist, &io), 0);
    return io;
}

START_TEST(every_operation_does_what_the_system_call_does)
{
    static const char zeroes[4096];
    char path[64], out[8192], in[8192];
    const int fd = unit_file(sizeof out, path);

    for (int insist = 0; insist < 2; insist++) {
        struct ubd_io *io = open_io(insist);

        memset(out, 'a' + insist, sizeof out);
        ck_assert_int_eq(run(io, fd, UBD_OP_WRITE, out, 8192, 0), 0);
        ck_assert_int_eq(run(io, fd, UBD_OP_SYNC, NULL, 0, 0), 0);
        ck_assert_int_eq(run(io, fd, UBD_OP_SYNC_PAGE, NULL, 0, 4096), 0);
        ck_assert_int_eq(run(io, fd, UBD_OP_PREFETCH, NULL, 8192, 0), 0);
        ck_assert_int_eq(run(io, fd, UBD_OP_ALLOCATE, NULL, 4096, 0), 0);
        ck_assert_int_eq(run(io, fd, UBD_OP_READ, in, 8192, 0), 0);
        ck_assert_mem_eq(in, zeroes, 4096);
        ck_assert_mem_eq(in + 4096, out, 4096);
        ck_assert_int_eq(run(io, fd, UBD_OP_ZEROOUT, NULL, 4096, 0), -ENOTTY);
        io->ops->close(io);
    }
    close(fd);
}
END_TEST

START_TEST(failure_is_the_errno_of_the_system_call)
{
    char path[64], buf[512] = "";
    const int fd = unit_file(4096, path);

    for (int insist = 0; insist < 2; insist++) {
        struct ubd_io *io = open_io(insist);

        ck_assert_int_eq(run(io, fd, UBD_OP_READ, buf, 512, 4000), -EIO);
        ck_assert_int_eq(run(io, -1, UBD_OP_READ, buf, 512, 0), -EBADF);
        ck_assert_int_eq(run(io, -1, UBD_OP_WRITE, buf, 512, 0), -EBADF);
        ck_assert_int_eq(run(io, -1, UBD_OP_SYNC, NULL, 0, 0), -EBADF);
        ck_assert_int_eq(run(io, -1, UBD_OP_SYNC_PAGE, NULL, 0, 0), -EBADF);
        io->ops->close(io);
    }
    close(fd);
}
END_TEST

#define NR_THREADS 48 /* More than there are rings. */

struct user {
    pthread_t thread;
    struct ubd_io *io;
    int fd;
    unsigned index;
    bool was_wrong;
};

static void *
use_rings(void *opaque)
{
    struct user *user = opaque;
    const uint64_t offset = user->index * 512;
    char out[512], in[512];

    for (unsigned i = 0; i < 20; i++) {
        memset(out, user->index + i, sizeof out);
        if (run(user->io, user->fd, UBD_OP_WRITE, out, 512, offset) < 0 ||
            run(user->io, user->fd, UBD_OP_READ, in, 512, offset) < 0 ||
            memcmp(in, out, sizeof in) != 0)
            user->was_wrong = true;
    }
    return NULL;
}

static void
serve_many(bool insist)
{
    char path[64];
    const int fd = unit_file(NR_THREADS * 512, path);
    struct user user[NR_THREADS];
    struct ubd_io *io = open_io(insist);

    for (unsigned i = 0; i < NR_THREADS; i++) {
        user[i] = (struct user){.io = io, .fd = fd, .index = i};
        ck_assert_int_eq(
            pthread_create(&user[i].thread, NULL, use_rings, &user[i]), 0);
    }
    for (unsigned i = 0; i < NR_THREADS; i++) {
        ck_assert_int_eq(pthread_join(user[i].thread, NULL), 0);
        ck_assert(!user[i].was_wrong);
    }
    io->ops->close(io);
    close(fd);
}

START_TEST(more_threads_than_rings_are_all_served)
{
    answer = -EAGAIN; /* All reads wait for the disk. */
    for (int insist = 0; insist < 2; insist++) {
        atomic_store(&nr_rings, 0);
        rings_max = UINT_MAX;
        serve_many(insist);
        ck_assert_uint_le(atomic_load(&nr_rings), 32);
        /* And if the host gives only some of those. */
        atomic_store(&nr_rings, 0);
        rings_max = 2;
        serve_many(insist);
    }
}
END_TEST

/* Of a sync it would be taken for a loss. */
START_TEST(request_for_which_the_kernel_has_no_thread_is_a_system_call)
{
    char path[64], buf[512] = "";
    const int fd = unit_file(4096, path);
    struct ubd_io *io = open_io(true);

    has_no_workers = true;
    answer = -EAGAIN;
    ck_assert_int_eq(run(io, fd, UBD_OP_WRITE, buf, sizeof buf, 0), 0);
    ck_assert_int_eq(run(io, fd, UBD_OP_READ, buf, sizeof buf, 0), 0);
    ck_assert_int_eq(run(io, fd, UBD_OP_SYNC, NULL, 0, 0), 0);
    ck_assert_int_eq(run(io, fd, UBD_OP_SYNC_PAGE, NULL, 0, 0), 0);
    io->ops->close(io);
    close(fd);
}
END_TEST

struct waiter {
    pthread_t thread;
    struct ubd_io *io;
    int fd, result;
};

static void *
wait_for_byte(void *opaque)
{
    struct waiter *w = opaque;
    char byte;

    w->result = run(w->io, w->fd, UBD_OP_READ, &byte, 1, 0);
    return NULL;
}

/* Each of many readers of an empty pipe has a ring to itself or waits for one;
 * a system call would fail on a pipe, which has no offsets.
 */
static void
read_pipe_at_once(unsigned max, unsigned tried)
{
    struct ubd_io *io;
    struct waiter w[40];
    int ends[2];

    answer = -EAGAIN;
    atomic_store(&nr_rings, 0);
    rings_max = max;
    io = open_io(true);
    ck_assert_int_eq(pipe(ends), 0);
    for (unsigned i = 0; i < 40; i++) {
        w[i] = (struct waiter){.io = io, .fd = ends[0]};
        ck_assert_int_eq(
            pthread_create(&w[i].thread, NULL, wait_for_byte, &w[i]), 0);
    }
    while (atomic_load(&nr_rings) < tried)
        sched_yield();
    for (unsigned i = 0; i < 10000; i++) /* For one that is too many. */
        sched_yield();
    for (unsigned i = 0; i < 40; i++)
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
    for (unsigned i = 0; i < 40; i++) {
        pthread_join(w[i].thread, NULL);
        ck_assert_int_eq(w[i].result, 0);
    }
    ck_assert_uint_le(atomic_load(&nr_rings), 32);
    close(ends[0]);
    close(ends[1]);
    io->ops->close(io);
}

START_TEST(no_more_rings_are_made_than_are_allowed)
{
    read_pipe_at_once(UINT_MAX, 32);
    read_pipe_at_once(2, 3); /* At least one was refused. */
}
END_TEST

START_TEST(ring_is_made_when_none_is_idle)
{
    char path[64], buf[512];
    const int fd = unit_file(4096, path);
    struct ubd_io *io;

    atomic_store(&nr_rings, 0);
    io = open_io(false);
    answer = 0;
    for (unsigned i = 0; i < 100; i++)
        ck_assert_int_eq(run(io, fd, UBD_OP_READ, buf, sizeof buf, 0), 0);
    answer = -EAGAIN; /* One after the other they need no second one. */
    for (unsigned i = 0; i < 100; i++)
        ck_assert_int_eq(run(io, fd, UBD_OP_READ, buf, sizeof buf, 0), 0);
    ck_assert_uint_eq(atomic_load(&nr_rings), 1);
    io->ops->close(io);
    close(fd);
}
END_TEST

/* How many of @nr reads ask whether they would wait? */
static unsigned
count_asking(struct ubd_io *io, int fd, unsigned nr)
{
    char buf[512];

    atomic_store(&nr_cached_reads, 0);
    for (unsigned i = 0; i < nr; i++)
        ck_assert_int_eq(run(io, fd, UBD_OP_READ, buf, sizeof buf, 0), 0);
    return atomic_load(&nr_cached_reads);
}

/* Hits are counted for each processor. */
static void
stay_here(void)
{
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    ck_assert_int_eq(sched_setaffinity(0, sizeof here, &here), 0);
}

START_TEST(few_reads_ask_while_all_is_cached_and_all_after_a_miss)
{
    char path[64];
    const int fd = unit_file(4096, path);
    struct ubd_io *io = open_io(false);

    stay_here();
    for (unsigned i = 0; i < 3; i++) {
        answer = i == 1 ? -EOPNOTSUPP : 0; /* Of a host that cannot tell. */
        ck_assert_uint_eq(count_asking(io, fd, 100), 100);
        (void)count_asking(io, fd, 1000);
        ck_assert_uint_eq(count_asking(io, fd, 3200), 100);
        answer = -EAGAIN;
        ck_assert_uint_ge(count_asking(io, fd, 32), 1);
        ck_assert_uint_eq(count_asking(io, fd, 1000), 1000);
    }
    io->ops->close(io);
    close(fd);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        every_operation_does_what_the_system_call_does,
        failure_is_the_errno_of_the_system_call,
        more_threads_than_rings_are_all_served,
        request_for_which_the_kernel_has_no_thread_is_a_system_call,
        no_more_rings_are_made_than_are_allowed,
        ring_is_made_when_none_is_idle,
        few_reads_ask_while_all_is_cached_and_all_after_a_miss,
        NULL,
    };
    const int r = ubd_io_uring_probe();

    if (r < 0) {
        printf("io_uring is refused by this host: %s\n", strerror(-r));
        return SKIP;
    }
    return unit_run("io-uring", tests);
}
