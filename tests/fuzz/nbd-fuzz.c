/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Random NBD requests against an oracle: every command with every flag, any
 * alignment and length, also what a polite client would not send, on several
 * connections at once.  The sequence depends on the seed only: requests go out
 * in batches in which no change overlaps anything, and a batch is over before
 * the next one begins.
 *
 *   nbd-fuzz SOCKET IMAGE SEED OPERATIONS CONNECTIONS
 *
 * Prints how many requests of each kind the server has let through to the disk.
 * At the end the image itself is compared, too.
 */
#include "fuzz-oracle.h"

#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH_MAX 24
#define CONNECTIONS_MAX 16
#define EXTENTS_MAX 4096
#define LEN_MAX (UINT32_C(1) << 20)

enum kind { READ, WRITE, ZERO, TRIM, FLUSH, CACHE, EXTENTS, NR_KINDS };

static const struct {
    const char *name;
    unsigned weight;
    uint32_t flags; /* That nbdkit takes with it. */
} kinds[NR_KINDS] = {
    [READ] = {"read",    30, LIBNBD_CMD_FLAG_FUA | LIBNBD_CMD_FLAG_DF     },
    [WRITE] = {"write",   30, LIBNBD_CMD_FLAG_FUA                          },
    [ZERO] = {"zero",    12,
              LIBNBD_CMD_FLAG_FUA | LIBNBD_CMD_FLAG_NO_HOLE |
                  LIBNBD_CMD_FLAG_FAST_ZERO                               },
    [TRIM] = {"trim",    10, LIBNBD_CMD_FLAG_FUA                          },
    [FLUSH] = {"flush",   6,  LIBNBD_CMD_FLAG_FUA                          },
    [CACHE] = {"cache",   4,  LIBNBD_CMD_FLAG_FUA                          },
    [EXTENTS] = {"extents", 8,  LIBNBD_CMD_FLAG_FUA | LIBNBD_CMD_FLAG_REQ_ONE},
};

struct request {
    enum kind kind;
    uint32_t flags, len;
    uint64_t offset;
    bool is_refused; /* It must be: range or flags are wrong. */
    unsigned connection;
    int64_t cookie;
    int error; /* What the server has answered. */
    unsigned char *buf;
    unsigned nr_extents;
    uint32_t extents[EXTENTS_MAX]; /* Length and flags in turn. */
};

static uint64_t seed, nr_done;
static uint64_t seed_state; /* Of the one sequence of random numbers. */
static const char *socket_path;
static struct oracle oracle;
static struct nbd_handle *nbd[CONNECTIONS_MAX];
static unsigned nr_connections;
static uint64_t passed[NR_KINDS], slow[NR_KINDS];
static struct request batch[BATCH_MAX];

static void
die(const struct request *r, const char *what)
{
    fprintf(stderr, "seed %llu, after %llu requests: %s\n",
            (unsigned long long)seed, (unsigned long long)nr_done, what);
    if (r)
        fprintf(stderr,
                "  %s of %u bytes at %llu, flags %#x, connection %u: %s\n",
                kinds[r->kind].name, r->len, (unsigned long long)r->offset,
                r->flags, r->connection,
                r->error ? strerror(r->error) : "succeeded");
    exit(1);
}

static struct nbd_handle *
connect_client(void)
{
    struct nbd_handle *h = nbd_create();

    if (!h || nbd_set_strict_mode(h, 0) == -1 ||
        nbd_add_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
        nbd_connect_unix(h, socket_path) == -1) {
        fprintf(stderr, "connect: %s\n", nbd_get_error());
        exit(1);
    }
    return h;
}

/* Sizes and offsets that people get wrong: around blocks, pages, ends. */
static void
choose_range(struct request *r)
{
    static const uint32_t units[] = {1, 512, 4096, 65536};
    const uint32_t unit = units[oracle_random(&seed_state) % 4];
    const unsigned how = oracle_random(&seed_state) % 32;
    uint64_t max = how < 24 ? 16384 : how < 31 ? 131072 : LEN_MAX;

    r->len = 1 + oracle_random(&seed_state) % max;
    r->offset = oracle_random(&seed_state) % oracle.size;
    if (oracle_random(&seed_state) % 3 == 0)
        r->offset = r->offset / unit * unit;
    if (oracle_random(&seed_state) % 3 == 0 && r->len > unit)
        r->len = r->len / unit * unit;
    if (oracle_random(&seed_state) % 24 == 0)
        r->offset = oracle.size - r->len; /* To the very end. */
    if (r->offset + r->len > oracle.size)
        r->len = oracle.size - r->offset;
}

/* Right behind another one of the batch, so that they share a block. */
static void
choose_neighbour(struct request *r, const struct request *other)
{
    if (other->is_refused || other->kind == FLUSH ||
        other->offset + other->len >= oracle.size)
        return;
    r->offset = other->offset + other->len;
    r->len = 1 + oracle_random(&seed_state) % 4096;
    if (r->offset + r->len > oracle.size)
        r->len = oracle.size - r->offset;
}

/* What a polite client would not send. */
static void
spoil(struct request *r)
{
    switch (oracle_random(&seed_state) % 5) {
    case 0:
        r->len = 0;
        break;
    case 1:
        r->offset = oracle.size - r->len + 1; /* One byte too far. */
        break;
    case 2:
        r->offset = UINT64_MAX - r->len + 1 - oracle_random(&seed_state) % 2;
        break;
    case 3:
        if (r->kind != READ && r->kind != WRITE)
            r->len = UINT32_MAX - oracle_random(&seed_state) % 4096;
        else
            r->offset = oracle.size;
        break;
    case 4:
        r->flags = UINT32_C(1) << oracle_random(&seed_state) % 16;
        r->is_refused = r->flags & ~kinds[r->kind].flags;
        return;
    }
    r->is_refused = r->kind != FLUSH; /* Which has no range. */
}

static void
choose_request(struct request *r, unsigned nr)
{
    unsigned which = oracle_random(&seed_state) % 100;

    *r = (struct request){.connection =
                              oracle_random(&seed_state) % nr_connections};
    while (which >= kinds[r->kind].weight)
        which -= kinds[r->kind++].weight;
    choose_range(r);
    if (nr > 0 && oracle_random(&seed_state) % 3 == 0)
        choose_neighbour(r, &batch[oracle_random(&seed_state) % nr]);
    r->flags = oracle_random(&seed_state) & oracle_random(&seed_state) &
               kinds[r->kind].flags;
    if (r->kind == FLUSH)
        r->len = r->offset = 0;
    if (oracle_random(&seed_state) % 20 == 0)
        spoil(r);
    if (r->kind == TRIM && nbd_can_trim(nbd[r->connection]) != 1)
        r->is_refused = true;
}

static bool
is_change(const struct request *r)
{
    return r->kind == WRITE || r->kind == ZERO || r->kind == TRIM;
}

static bool
is_in_conflict(const struct request *r, unsigned nr)
{
    for (unsigned i = 0; i < nr; i++)
        if ((is_change(r) || is_change(&batch[i])) && !r->is_refused &&
            !batch[i].is_refused &&
            r->offset < batch[i].offset + batch[i].len &&
            batch[i].offset < r->offset + r->len)
            return true;
    return false;
}

static int
note_extents(void *opaque, const char *context, uint64_t offset,
             uint32_t *entries, size_t nr, int *error)
{
    struct request *r = opaque;

    (void)context;
    (void)error;
    if (offset != r->offset || nr > EXTENTS_MAX)
        die(r, "extents that were not asked for");
    memcpy(r->extents, entries, nr * sizeof entries[0]);
    r->nr_extents = nr;
    return 0;
}

static void
send_request(struct request *r)
{
    struct nbd_handle *h = nbd[r->connection];
    const nbd_completion_callback none = NBD_NULL_COMPLETION;
    const nbd_extent_callback extents = {.callback = note_extents,
                                         .user_data = r};

    if (r->kind == READ || r->kind == WRITE)
        r->buf = malloc(r->len + 1);
    switch (r->kind) {
    case READ:
        memset(r->buf, 0xee, r->len + 1);
        r->cookie = nbd_aio_pread(h, r->buf, r->len, r->offset, none, r->flags);
        break;
    case WRITE:
        oracle_fill(r->buf, r->len, &seed_state);
        r->cookie =
            nbd_aio_pwrite(h, r->buf, r->len, r->offset, none, r->flags);
        break;
    case ZERO:
        r->cookie = nbd_aio_zero(h, r->len, r->offset, none, r->flags);
        break;
    case TRIM:
        r->cookie = nbd_aio_trim(h, r->len, r->offset, none, r->flags);
        break;
    case FLUSH:
        r->cookie = nbd_aio_flush(h, none, r->flags);
        break;
    case CACHE:
        r->cookie = nbd_aio_cache(h, r->len, r->offset, none, r->flags);
        break;
    default:
        r->cookie =
            nbd_aio_block_status(h, r->len, r->offset, extents, none, r->flags);
    }
    if (r->cookie == -1)
        die(r, nbd_get_error());
}

/* Is it answered?  Notes how. */
static bool
is_answered(struct request *r)
{
    const int done = nbd_aio_command_completed(nbd[r->connection], r->cookie);

    if (done == 0 && (nbd_aio_is_dead(nbd[r->connection]) == 1 ||
                      nbd_aio_is_closed(nbd[r->connection]) == 1))
        die(r, "the server has hung up");
    if (done == -1)
        r->error = nbd_get_errno() ? nbd_get_errno() : EIO;
    return done != 0;
}

static void
move_bytes(void)
{
    struct pollfd fds[CONNECTIONS_MAX];

    for (unsigned i = 0; i < nr_connections; i++) {
        const unsigned way = nbd_aio_get_direction(nbd[i]);

        fds[i] = (struct pollfd){
            .fd = nbd_aio_get_fd(nbd[i]),
            .events = (way & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                      (way & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0)};
    }
    if (poll(fds, nr_connections, -1) < 0 && errno != EINTR)
        die(NULL, "poll");
    for (unsigned i = 0; i < nr_connections; i++) {
        const unsigned way = nbd_aio_get_direction(nbd[i]);

        if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) &&
            (way & LIBNBD_AIO_DIRECTION_READ))
            nbd_aio_notify_read(nbd[i]);
        else if ((fds[i].revents & POLLOUT) &&
                 (way & LIBNBD_AIO_DIRECTION_WRITE))
            nbd_aio_notify_write(nbd[i]);
    }
}

static void
check_extents(struct request *r)
{
    uint64_t at = r->offset;

    for (unsigned i = 0; i < r->nr_extents; i += 2) {
        if (r->extents[i] == 0 ||
            (i + 2 < r->nr_extents && at + r->extents[i] >= r->offset + r->len))
            die(r, "an extent that is empty or begins behind the range");
        if (at + r->extents[i] > oracle.size)
            die(r, "an extent past the end of the disk");
        if ((r->extents[i + 1] & 2) &&
            !oracle_may_be_zero(&oracle, at,
                                at + r->extents[i] > r->offset + r->len
                                    ? r->offset + r->len - at
                                    : r->extents[i]))
            die(r, "a hole where there is data");
        at += r->extents[i];
    }
    if (at == r->offset)
        die(r, "no extent");
}

static void
apply(struct request *r)
{
    switch (r->kind) {
    case READ:
        if (!oracle_read(&oracle, r->buf, r->len, r->offset))
            die(r, "wrong data");
        if (r->buf[r->len] != 0xee)
            die(r, "more data than asked for");
        break;
    case WRITE:
        oracle_write(&oracle, r->buf, r->len, r->offset);
        break;
    case ZERO:
        oracle_zero(&oracle, r->len, r->offset);
        break;
    case TRIM:
        oracle_trim(&oracle, r->len, r->offset);
        break;
    case EXTENTS:
        check_extents(r);
        break;
    default:
        break;
    }
}

static void
check_answer(struct request *r)
{
    const bool is_fast = r->kind == ZERO && !r->is_refused &&
                         (r->flags & LIBNBD_CMD_FLAG_FAST_ZERO);

    if (r->is_refused && r->error != EINVAL && r->error != ENOSPC)
        die(r, "a bad request that is not refused as such");
    if (!r->is_refused && r->error &&
        !(is_fast && (r->error == ENOTSUP || r->error == EOPNOTSUPP)))
        die(r, "a good request that failed");
    if (r->error == 0)
        apply(r);
    if (!r->is_refused)
        passed[r->kind]++;
    if (is_fast && r->error)
        slow[r->kind]++;
    free(r->buf);
    r->buf = NULL;
}

static unsigned
run_batch(uint64_t nr_left)
{
    unsigned wanted = 1 + oracle_random(&seed_state) % BATCH_MAX;
    unsigned nr = 0, nr_answered = 0;
    bool answered[BATCH_MAX] = {false};

    if (wanted > nr_left)
        wanted = nr_left;
    for (; nr < wanted; nr++) {
        choose_request(&batch[nr], nr);
        if (is_in_conflict(&batch[nr], nr))
            break; /* It is forgotten. */
    }
    for (unsigned i = 0; i < nr; i++)
        send_request(&batch[i]);
    for (;;) {
        for (unsigned i = 0; i < nr; i++) {
            if (!answered[i] && is_answered(&batch[i])) {
                answered[i] = true;
                nr_answered++;
            }
        }
        if (nr_answered == nr)
            break;
        move_bytes();
    }
    for (unsigned i = 0; i < nr; i++)
        check_answer(&batch[i]);
    return nr;
}

/* Clients come and go, and do not always say goodbye. */
static void
replace_a_client(void)
{
    const unsigned i = oracle_random(&seed_state) % nr_connections;

    if (oracle_random(&seed_state) % 2)
        nbd_shutdown(nbd[i], 0);
    nbd_close(nbd[i]);
    nbd[i] = connect_client();
}

static void
compare_image(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *buf = malloc(oracle.size);
    uint64_t have = 0;

    while (fd >= 0 && have < oracle.size) {
        const ssize_t n = pread(fd, buf + have, oracle.size - have, have);

        if (n <= 0)
            break;
        have += n;
    }
    if (have != oracle.size)
        die(NULL, "the image cannot be read");
    if (!oracle_read(&oracle, buf, oracle.size, 0))
        die(NULL, "the image is not what the disk was");
    close(fd);
    free(buf);
}

int
main(int argc, char **argv)
{
    uint64_t nr_requests;

    if (argc != 6)
        return 2;
    socket_path = argv[1];
    seed = seed_state = strtoull(argv[3], NULL, 10);
    nr_requests = strtoull(argv[4], NULL, 10);
    nr_connections = strtoul(argv[5], NULL, 10);
    if (nr_connections < 1 || nr_connections > CONNECTIONS_MAX)
        return 2;
    for (unsigned i = 0; i < nr_connections; i++)
        nbd[i] = connect_client();
    oracle_init(&oracle, nbd_get_size(nbd[0]));
    while (nr_done < nr_requests) {
        nr_done += run_batch(nr_requests - nr_done);
        if (oracle_random(&seed_state) % 64 == 0)
            replace_a_client();
    }
    if (nbd_flush(nbd[0], 0) == -1)
        die(NULL, nbd_get_error());
    passed[FLUSH]++;
    for (unsigned i = 0; i < nr_connections; i++) {
        nbd_shutdown(nbd[i], 0);
        nbd_close(nbd[i]);
    }
    compare_image(argv[2]);
    for (unsigned i = 0; i < NR_KINDS; i++)
        printf("%s %llu %llu\n", kinds[i].name, (unsigned long long)passed[i],
               (unsigned long long)slow[i]);
    oracle_destroy(&oracle);
    return 0;
}
