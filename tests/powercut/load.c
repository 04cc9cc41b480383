/* SPDX-License-Identifier: BSD-3-Clause */
/* See load.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libnbd.h>

#include "load.h"
#include "sector.h"

#define PATIENCE_MS 300000 /* Longer than any disk or busy machine needs. */
#define RETRY_US 500       /* Until a server that starts is asked again. */
#define CHOICES 4          /* Places to try for one that is free. */

struct load;

/* One request that may be in flight. */
struct slot {
    struct load *load;
    struct nbd_handle *nbd;
    bool is_busy;
    struct change *change; /* NULL: a FLUSH. */
    uint64_t flush_issued;
    uint64_t *data;
};

struct load {
    const struct load_config *config;
    struct history *h;
    struct load_result result;
    uint64_t rng;
    bool *is_taken; /* Each sector: a change of it is under way. */
    struct nbd_handle **nbd;
    struct slot *slots;
    uint64_t nr_slots, nr_busy, nr_issued;
    int control_fd;
    bool is_over; /* Nothing new is sent. */
    int error;
};

static uint64_t
draw(struct load *l, uint64_t below)
{
    return next_random(&l->rng) % below;
}

/* ---- The end ---- */

static int
connect_to(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r;

    if (fd < 0)
        return -errno;
    if (strlen(path) >= sizeof addr.sun_path) {
        close(fd);
        return -ENAMETOOLONG;
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0)
        return fd;
    r = -errno;
    close(fd);
    return r;
}

static int
command(struct load *l, const char *line)
{
    char answer[4096];

    if (dprintf(l->control_fd, "%s\n", line) < 0 ||
        read(l->control_fd, answer, sizeof answer) <= 0)
        return -EPROTO;
    return 0;
}

/* At once, and it is done when this returns.  The disk may be off already, if
 * the cut was armed for one of its operations.
 */
static void
end_it(struct load *l)
{
    const struct load_config *c = l->config;

    l->is_over = true;
    l->result.was_cut = true;
    if (c->kill)
        (void)kill(c->kill, SIGKILL); /* Gone is as good. */
    if (c->control && command(l, c->cut) < 0)
        l->error = -EPROTO;
}

/* ---- Replies ---- */

static void
count_reply(struct load *l, const struct slot *slot, int error)
{
    if (error) {
        l->result.errors++;
        if (!l->config->go_on)
            l->is_over = true;
        return;
    }
    l->result.requests++;
    l->result.flushes += !slot->change;
    l->result.fua += slot->change && slot->change->fua;
    if (l->result.requests == l->config->acks && !l->result.was_cut)
        end_it(l);
}

static int
take_reply(void *opaque, int *error)
{
    struct slot *slot = opaque;
    struct load *l = slot->load;
    struct change *c = slot->change;

    if (c) {
        memset(l->is_taken + c->first, false, c->nr);
        if (!*error)
            history_ack(l->h, c);
    } else if (!*error) {
        history_ack_flush(l->h, slot->flush_issued);
    }
    slot->is_busy = false;
    l->nr_busy--;
    count_reply(l, slot, *error);
    return 1; /* Retire it. */
}

/* ---- Requests ---- */

/* A range without a change under way; false if none was found. */
static bool
choose_range(struct load *l, uint32_t *ret_first, uint32_t *ret_nr)
{
    const uint64_t align = l->config->align;
    const uint64_t units = l->h->nr_sectors / align;
    const uint64_t units_max = l->config->sectors_max / align;

    for (int i = 0; i < CHOICES; i++) {
        uint64_t nr = 1 + draw(l, units_max < units ? units_max : units);
        const uint64_t first = draw(l, units - nr + 1) * align;

        nr *= align;
        if (memchr(l->is_taken + first, true, nr))
            continue;
        *ret_first = (uint32_t)first;
        *ret_nr = (uint32_t)nr;
        return true;
    }
    return false;
}

static void
send_flush(struct load *l, struct slot *slot, nbd_completion_callback cb)
{
    slot->change = NULL;
    slot->flush_issued = history_issue_flush(l->h);
    if (nbd_aio_flush(slot->nbd, cb, 0) == -1 && slot->is_busy) {
        int error = ENOTCONN;

        take_reply(slot, &error);
    }
}

static void
send_change(struct load *l, struct slot *slot, nbd_completion_callback cb,
            enum change_kind kind)
{
    const bool fua = draw(l, 100) < l->config->fua;
    const uint32_t flags = fua ? LIBNBD_CMD_FLAG_FUA : 0;
    struct change *c;
    uint32_t first, nr;
    int64_t r = -1;

    slot->change = NULL;
    if (!choose_range(l, &first, &nr) ||
        !(c = history_issue(l->h, kind, first, nr, fua))) {
        slot->is_busy = false;
        l->nr_busy--;
        return;
    }
    slot->change = c;
    memset(l->is_taken + first, true, nr);
    for (uint32_t i = 0; kind == CHANGE_WRITE && i < nr; i++)
        sector_make(slot->data + i * SECTOR_WORDS, l->h->run, first + i,
                    history_seq(l->h, c));
    if (kind == CHANGE_WRITE)
        r = nbd_aio_pwrite(slot->nbd, slot->data, (size_t)nr * SECTOR,
                           (uint64_t)first * SECTOR, cb, flags);
    else if (kind == CHANGE_ZERO)
        r = nbd_aio_zero(slot->nbd, (uint64_t)nr * SECTOR,
                         (uint64_t)first * SECTOR, cb,
                         flags | (draw(l, 2) ? LIBNBD_CMD_FLAG_NO_HOLE : 0));
    else
        r = nbd_aio_trim(slot->nbd, (uint64_t)nr * SECTOR,
                         (uint64_t)first * SECTOR, cb, flags);
    if (r == -1 && slot->is_busy) {
        int error = ENOTCONN;

        take_reply(slot, &error);
    }
}

static void
send_one(struct load *l, struct slot *slot)
{
    const struct load_config *c = l->config;
    const nbd_completion_callback cb = {.callback = take_reply,
                                        .user_data = slot};
    uint64_t share = draw(l, c->write + c->zero + c->trim + c->flush);

    slot->is_busy = true;
    l->nr_busy++;
    l->nr_issued++;
    if (share < c->flush) {
        send_flush(l, slot, cb);
        return;
    }
    share -= c->flush;
    send_change(l, slot, cb,
                share < c->write             ? CHANGE_WRITE
                : share < c->write + c->zero ? CHANGE_ZERO
                                             : CHANGE_TRIM);
}

static void
fill_slots(struct load *l)
{
    for (uint64_t i = 0; i < l->nr_slots && !l->is_over; i++) {
        if (l->slots[i].is_busy)
            continue;
        if (l->nr_issued == l->config->requests)
            return;
        send_one(l, &l->slots[i]);
    }
}

static int
wait_for_replies(struct load *l)
{
    const uint64_t nr = l->config->connections;
    struct pollfd fds[64]; /* As many as main.c allows. */

    for (uint64_t i = 0; i < nr; i++) {
        const unsigned dir = nbd_aio_get_direction(l->nbd[i]);

        fds[i] = (struct pollfd){.fd = nbd_aio_get_fd(l->nbd[i])};
        if (dir & LIBNBD_AIO_DIRECTION_READ)
            fds[i].events |= POLLIN;
        if (dir & LIBNBD_AIO_DIRECTION_WRITE)
            fds[i].events |= POLLOUT;
        if (fds[i].events == 0)
            fds[i].fd = -1; /* Dead; all of it was answered. */
    }
    if (poll(fds, nr, PATIENCE_MS) <= 0)
        return -ETIMEDOUT;
    /* Where an error means that a connection is dead, its requests have been
     * answered by that.
     */
    for (uint64_t i = 0; i < nr; i++) {
        if (fds[i].revents & POLLOUT)
            (void)nbd_aio_notify_write(l->nbd[i]);
        else if (fds[i].revents)
            (void)nbd_aio_notify_read(l->nbd[i]);
    }
    return l->error;
}

static int
run_requests(struct load *l)
{
    int r = 0;

    while (r == 0) {
        if (!l->is_over)
            fill_slots(l);
        if (l->nr_busy == 0) {
            if (l->is_over || l->nr_issued == l->config->requests)
                break;
            continue; /* No place was free; now all are. */
        }
        r = wait_for_replies(l);
    }
    if (r == 0 && !l->result.was_cut)
        end_it(l);
    return r < 0 ? r : l->error;
}

/* ---- Set up, tear down ---- */

static uint64_t
now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* The server may still be starting. */
static int
connect_one(struct load *l, uint64_t i)
{
    const uint64_t until = now_ms() + PATIENCE_MS;
    int fd;

    l->nbd[i] = nbd_create();
    if (!l->nbd[i])
        return -ENOMEM;
    nbd_set_strict_mode(l->nbd[i], 0); /* One test asks what is impolite. */
    while ((fd = connect_to(l->config->socket)) < 0 && now_ms() < until) {
        if (l->config->kill && kill(l->config->kill, 0) < 0)
            return -ECONNREFUSED;
        usleep(RETRY_US);
    }
    if (fd < 0 || nbd_connect_socket(l->nbd[i], fd) == -1)
        return -ECONNREFUSED;
    return 0;
}

static int
set_up(struct load *l)
{
    const struct load_config *c = l->config;

    l->nr_slots = c->connections * c->depth;
    l->is_taken = calloc(l->h->nr_sectors, sizeof *l->is_taken);
    l->nbd = calloc(c->connections, sizeof *l->nbd);
    l->slots = calloc(l->nr_slots, sizeof *l->slots);
    if (!l->is_taken || !l->nbd || !l->slots)
        return -ENOMEM;
    if (c->control)
        l->control_fd = connect_to(c->control);
    if (c->control && l->control_fd < 0)
        return l->control_fd;
    for (uint64_t i = 0; i < c->connections; i++) {
        const int r = connect_one(l, i);

        if (r < 0)
            return r;
    }
    for (uint64_t i = 0; i < l->nr_slots; i++) {
        l->slots[i] = (struct slot){.load = l,
                                    .nbd = l->nbd[i % c->connections],
                                    .data = malloc(c->sectors_max * SECTOR)};
        if (!l->slots[i].data)
            return -ENOMEM;
    }
    /* Not earlier: a server that starts may sync. */
    return c->control && c->begin ? command(l, c->begin) : 0;
}

static void
tear_down(struct load *l)
{
    for (uint64_t i = 0; l->nbd && i < l->config->connections; i++)
        nbd_close(l->nbd[i]); /* NULL does no harm. */
    for (uint64_t i = 0; l->slots && i < l->nr_slots; i++)
        free(l->slots[i].data);
    if (l->control_fd >= 0)
        close(l->control_fd);
    free(l->slots);
    free(l->nbd);
    free(l->is_taken);
}

int
load_run(const struct load_config *config, struct history *h,
         struct load_result *ret_result)
{
    struct load l = {
        .config = config, .h = h, .rng = config->seed, .control_fd = -1};
    int r = set_up(&l);

    if (r == 0)
        r = run_requests(&l);
    tear_down(&l);
    *ret_result = l.result;
    return r;
}
