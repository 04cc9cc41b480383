/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests through io_uring; the only file that knows liburing.
 *
 * A caller borrows a ring, submits its one request and waits for it in the
 * same system call, and gives the ring back.  One shared ring would need a
 * thread that reaps and wakes, or a lock around its queues: two more system
 * calls and a context switch per request.  Rings are made when they are needed,
 * up to a fixed number; whoever gets none waits, or makes a plain system call
 * where the user has not insisted on rings.
 */
#include "cleanup.h"
#include "io.h"
#include "shard.h"
#include "units.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

/* Deeper queues than this are rare.  Not made in advance: with 32 idle rings a
 * server of cached reads was 13 % slower on Linux 6.18 (docs/performance.md).
 */
#define RINGS_MAX 32
#define RING_ENTRIES 1

/* An fsync on a ring is always handed to a kernel thread, which costs 10 to
 * 40 us (docs/performance.md).  That is nothing to a disk that takes longer
 * than this for a sync, 4 % of the time of one that takes a millisecond, and a
 * third of one that takes 50 us.
 */
#define SHORT_SYNC_NS 10000000

/* To ask for a read that does not wait costs an eighth of a cached 4 KiB read
 * (docs/performance.md).  So after this many hits in a row only one of some is
 * asked for that way, to find out when the cache is no longer all there; one
 * that misses is the end of that.
 */
#define HITS_TRUSTED 256
#define HITS_PER_PROBE 32

struct cached_reads {
    _Alignas(UBD_CACHE_LINE) atomic_uint nr; /* (a) In a row. */
};

struct ring {
    struct io_uring uring; /* (t) Whoever has borrowed it. */
    bool is_broken;        /* (t) Could not be set up again. */
    bool is_taken;         /* (l) There is a ring, or is about to be. */
    struct ring *next;     /* (l) */
};

/* After the host has refused another ring, none is asked for so long. */
#define REFUSED_NS UINT64_C(1000000000)

struct uring_io {
    struct ubd_io io;
    bool insist; /* (c) */
    pthread_mutex_t lock;
    pthread_cond_t given;         /* Signalled when a ring is given back. */
    struct ring *idle;            /* (l) */
    uint64_t refused_ns;          /* (l) When the host refused another one. */
    atomic_uint_fast64_t sync_ns; /* (a) Of recent syncs, on the average. */
    struct cached_reads cached[UBD_NR_SHARDS];
    struct ring rings[RINGS_MAX];
};
/* Locking key: (l) lock, (c) constant after open, (t) the borrower. */

static int
init_ring(struct io_uring *uring)
{
    /* Saves an interrupt per completion on Linux 5.19 and newer: only the
     * thread that waits has an interest in it.
     */
    int r = io_uring_queue_init(RING_ENTRIES, uring, IORING_SETUP_COOP_TASKRUN);

    return r == -EINVAL ? io_uring_queue_init(RING_ENTRIES, uring, 0) : r;
}

static bool
supports_all(struct io_uring *uring)
{
    static const int needed[] = {IORING_OP_READ,    IORING_OP_WRITE,
                                 IORING_OP_FSYNC,   IORING_OP_FALLOCATE,
                                 IORING_OP_FADVISE, IORING_OP_SYNC_FILE_RANGE};
    struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
    bool supports = probe != NULL;

    for (size_t i = 0; supports && i < sizeof needed / sizeof needed[0]; i++)
        supports = io_uring_opcode_supported(probe, needed[i]);
    if (probe)
        io_uring_free_probe(probe);
    return supports;
}

int
ubd_io_uring_probe(void)
{
    struct ubd_io *io;
    int r = ubd_io_uring_open(true, &io);

    if (r < 0)
        return r;
    io->ops->close(io);
    return 0;
}

/* Needs the lock, and gives it up in between.  NULL if there are enough, or the
 * host refuses.
 */
static struct ring *
add_ring(struct uring_io *u)
{
    struct ring *ring = u->rings;
    int r;

    if (u->refused_ns && ubd_now_ns() - u->refused_ns < REFUSED_NS)
        return NULL;
    while (ring < u->rings + RINGS_MAX && ring->is_taken)
        ring++;
    if (ring == u->rings + RINGS_MAX)
        return NULL;
    ring->is_taken = true;
    pthread_mutex_unlock(&u->lock);
    r = init_ring(&ring->uring);
    pthread_mutex_lock(&u->lock);
    if (r == 0)
        return ring;
    ring->is_taken = false;
    u->refused_ns = ubd_now_ns();
    return NULL;
}

/* NULL if none is to be had, and the user does not insist. */
static struct ring *
take_ring(struct uring_io *u)
{
    struct ring *ring = NULL;

    pthread_mutex_lock(&u->lock);
    if (!u->idle)
        ring = add_ring(u);
    if (!ring) {
        while (!u->idle && u->insist)
            pthread_cond_wait(&u->given, &u->lock);
        ring = u->idle;
        if (ring)
            u->idle = ring->next;
    }
    pthread_mutex_unlock(&u->lock);
    return ring;
}

static void
give_ring(struct uring_io *u, struct ring *ring)
{
    pthread_mutex_lock(&u->lock);
    ring->next = u->idle;
    u->idle = ring;
    pthread_cond_signal(&u->given);
    pthread_mutex_unlock(&u->lock);
}

static void
prepare(struct io_uring_sqe *sqe, const struct ubd_req *req)
{
    switch (req->op) {
    case UBD_OP_READ:
        io_uring_prep_read(sqe, req->fd, req->buf, req->len, req->offset);
        break;
    case UBD_OP_WRITE:
        io_uring_prep_write(sqe, req->fd, req->buf, req->len, req->offset);
        if (req->is_durable)
            sqe->rw_flags = RWF_DSYNC;
        break;
    case UBD_OP_SYNC:
        io_uring_prep_fsync(sqe, req->fd, IORING_FSYNC_DATASYNC);
        break;
    case UBD_OP_SYNC_PAGE:
        io_uring_prep_fsync(sqe, req->fd, IORING_FSYNC_DATASYNC);
        sqe->off = req->offset;
        sqe->len = 1;
        break;
    case UBD_OP_ALLOCATE:
        io_uring_prep_fallocate(sqe, req->fd, req->mode, req->offset, req->len);
        break;
    case UBD_OP_PREFETCH:
        io_uring_prep_fadvise(sqe, req->fd, req->offset, req->len,
                              POSIX_FADV_WILLNEED);
        break;
    case UBD_OP_EVICT:
        io_uring_prep_fadvise(sqe, req->fd, req->offset, req->len,
                              POSIX_FADV_DONTNEED);
        break;
    case UBD_OP_START_WRITEOUT:
        io_uring_prep_sync_file_range(sqe, req->fd, req->len, req->offset,
                                      SYNC_FILE_RANGE_WRITE);
        break;
    case UBD_OP_WAIT_WRITING:
    case UBD_OP_WAIT_WRITEOUT:
        io_uring_prep_sync_file_range(sqe, req->fd, req->len, req->offset,
                                      req->mode);
        break;
    case UBD_OP_SUBMIT_WRITEOUT:
    case UBD_OP_ZEROOUT:
    case UBD_OP_DISCARD:
        assert(!"has_ring_operation is asked first");
    }
}

/* Submit what is prepared and wait for its completion.  Returns false if the
 * kernel did not take it; else it has ended, and its buffer is the caller's.
 */
static bool
submit_and_wait(struct io_uring *uring, int64_t *ret_result)
{
    struct io_uring_cqe *cqe;
    int r;

    do
        r = io_uring_submit_and_wait(uring, 1);
    while ((r == -EINTR || r == -EAGAIN || r == -EBUSY) &&
           io_uring_sq_ready(uring) > 0);
    if (io_uring_sq_ready(uring) > 0)
        return false;
    do
        r = io_uring_wait_cqe(uring, &cqe);
    while (r == -EINTR || r == -EAGAIN);
    assert(r == 0); /* There is no way on: the kernel may use the buffer. */
    *ret_result = cqe->res;
    io_uring_cqe_seen(uring, cqe);
    return true;
}

/* A request that was not taken would go out with the next one. */
static void
rebuild_ring(struct ring *ring)
{
    io_uring_queue_exit(&ring->uring);
    ring->is_broken = init_ring(&ring->uring) < 0;
}

static int64_t
run_on_ring(struct uring_io *u, const struct ubd_req *req)
{
    struct ring *ring = take_ring(u);
    struct io_uring_sqe *sqe;
    int64_t r;

    if (!ring)
        return ubd_io_syscall(req);
    if (ring->is_broken) {
        r = ubd_io_syscall(req);
    } else {
        sqe = io_uring_get_sqe(&ring->uring);
        prepare(sqe, req);
        if (!submit_and_wait(&ring->uring, &r)) {
            rebuild_ring(ring);
            r = ubd_io_syscall(req);
        }
    }
    /* The kernel could not make the thread that would have done it, and nothing
     * has been done.  We cancel nothing.
     */
    if (r == -ECANCELED)
        r = ubd_io_syscall(req);
    give_ring(u, ring);
    return r;
}

static bool
has_ring_operation(const struct ubd_req *req)
{
    return req->op != UBD_OP_ZEROOUT && req->op != UBD_OP_DISCARD &&
           req->op != UBD_OP_SUBMIT_WRITEOUT;
}

/* Whoever syncs waits for it anyhow, so while syncs are short it makes the
 * call itself.
 */
static int64_t
sync_by_shortest_way(struct uring_io *u, const struct ubd_req *req)
{
    const uint64_t start_ns = ubd_now_ns();
    const uint64_t recent_ns =
        atomic_load_explicit(&u->sync_ns, memory_order_relaxed);
    const int64_t r = !u->insist && recent_ns < SHORT_SYNC_NS
                          ? ubd_io_syscall(req)
                          : run_on_ring(u, req);

    atomic_store_explicit(&u->sync_ns,
                          (recent_ns * 7 + ubd_now_ns() - start_ns) / 8,
                          memory_order_relaxed);
    return r;
}

/* Two that count at once may count as one: it is a guess all the same. */
static int64_t
read_by_shortest_way(struct uring_io *u, const struct ubd_req *req)
{
    atomic_uint *nr = &u->cached[ubd_shard()].nr;
    const unsigned hits = atomic_load_explicit(nr, memory_order_relaxed);
    int64_t r;

    atomic_store_explicit(nr, hits + 1, memory_order_relaxed);
    if (hits >= HITS_TRUSTED && hits % HITS_PER_PROBE != 0)
        return ubd_io_syscall(req);
    r = ubd_io_cached_read(req);
    if (r == -EOPNOTSUPP) /* tmpfs, FUSE: a ring would ask a kernel thread. */
        return ubd_io_syscall(req);
    if (r != -EAGAIN)
        return r;
    atomic_store_explicit(nr, 0, memory_order_relaxed);
    return run_on_ring(u, req);
}

/* What goes to a ring is what waits for the disk.  A buffered write does not
 * (the ring hands it to a kernel thread on ext4), nor does fallocate; a read
 * of cached data is served on the spot; a sync goes the way that is shorter,
 * unless rings were insisted on.
 */
static int64_t
uring_attempt(struct ubd_io *io, const struct ubd_req *req)
{
    struct uring_io *u = (struct uring_io *)io;

    if (!has_ring_operation(req))
        return ubd_io_syscall(req);
    switch (req->op) {
    case UBD_OP_READ:
        if (req->is_direct)
            return run_on_ring(u, req);
        return read_by_shortest_way(u, req);
    case UBD_OP_WRITE:
        return req->is_direct || (req->is_durable && u->insist)
                   ? run_on_ring(u, req)
                   : ubd_io_syscall(req);
    case UBD_OP_START_WRITEOUT:
    case UBD_OP_WAIT_WRITING:
    case UBD_OP_WAIT_WRITEOUT:
    case UBD_OP_SYNC_PAGE:
        return run_on_ring(u, req);
    case UBD_OP_SYNC:
        return sync_by_shortest_way(u, req);
    default:
        return ubd_io_syscall(req);
    }
}

static void
uring_close(struct ubd_io *io)
{
    struct uring_io *u = (struct uring_io *)io;

    for (unsigned i = 0; i < RINGS_MAX; i++)
        if (u->rings[i].is_taken && !u->rings[i].is_broken)
            io_uring_queue_exit(&u->rings[i].uring);
    pthread_cond_destroy(&u->given);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

static const struct ubd_io_ops uring_ops = {
    .name = "io_uring",
    .calls_pwrite = true,
    .attempt = uring_attempt,
    .close = uring_close,
};

int
ubd_io_uring_open(bool insist, struct ubd_io **ret_io)
{
    struct uring_io *u = aligned_alloc(UBD_CACHE_LINE, sizeof *u);
    int r;

    if (!u)
        return -ENOMEM;
    *u = (struct uring_io){.io = {.ops = &uring_ops}, .insist = insist};
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->given, NULL);
    r = init_ring(&u->rings[0].uring);
    if (r == 0) {
        u->rings[0].is_taken = true;
        u->idle = &u->rings[0];
        if (!supports_all(&u->rings[0].uring))
            r = -ENOSYS;
    }
    if (r < 0) {
        uring_close(&u->io);
        return r;
    }
    *ret_io = &u->io;
    return 0;
}
