/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The fake host; io-fake.h says what it models.  All state is behind one lock,
 * which is given up where a request is held or delayed.
 */
#include "io-fake.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR 512
#define PAGE 4096

enum { ANY = -1, CLEAN, DIRTY, WRITING }; /* What a page can be. */

static struct fake *current; /* The newest one: for fake_opened. */

struct fake_change {
    uint32_t seq;      /* Order in which changes got into the cache. */
    uint64_t returned; /* Order in which they returned; 0 is "not yet". */
    uint64_t offset, len;
    unsigned char *data;
    struct fake_change *next;
};

/* One attempt on its way. */
struct call {
    const struct ubd_req *req;
    enum fake_kind kind;
    struct fake_rule fault;
    uint64_t len;     /* To transfer. */
    uint64_t covered; /* Changes that had returned when it was submitted. */
    uint32_t seq;     /* Of its own change, or 0. */
    uint64_t random;
};

uint64_t
fake_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static enum fake_kind
kind_of(const struct ubd_req *req)
{
    switch (req->op) {
    case UBD_OP_READ:
        return FAKE_READ;
    case UBD_OP_WRITE:
        return req->is_durable ? FAKE_DURABLE : FAKE_WRITE;
    case UBD_OP_SYNC:
        return FAKE_SYNC;
    case UBD_OP_SYNC_PAGE:
        return FAKE_SYNC_PAGE;
    case UBD_OP_ALLOCATE:
        return FAKE_ALLOCATE;
    case UBD_OP_ZEROOUT:
        return FAKE_ZEROOUT;
    case UBD_OP_DISCARD:
        return FAKE_DISCARD;
    case UBD_OP_START_WRITEOUT:
        return FAKE_START_WRITEOUT;
    case UBD_OP_SUBMIT_WRITEOUT:
        return FAKE_SUBMIT_WRITEOUT;
    case UBD_OP_WAIT_WRITING:
        return FAKE_WAIT_WRITING;
    case UBD_OP_WAIT_WRITEOUT:
        return FAKE_WAIT_WRITEOUT;
    case UBD_OP_EVICT:
        return FAKE_EVICT;
    case UBD_OP_PREFETCH:
        break;
    }
    return FAKE_PREFETCH;
}

/* Needs the lock, and gives it up in between. */
static void
delay(struct fake *fake, struct call *call)
{
    if (!fake->chaos)
        return;
    pthread_mutex_unlock(&fake->lock);
    for (unsigned n = fake_random(&call->random) % 8; n > 0; n--)
        sched_yield();
    pthread_mutex_lock(&fake->lock);
}

/* Needs the lock, and gives it up in between. */
static void
pass(struct fake *fake, struct call *call, enum fake_stage stage)
{
    struct fake_held held = {.kind = call->kind};
    struct fake_held **link = &fake->held;

    delay(fake, call);
    if (!fake->is_holding[call->kind][stage])
        return;
    while (*link)
        link = &(*link)->next;
    *link = &held;
    pthread_cond_broadcast(&fake->changed);
    while (!held.is_released)
        pthread_cond_wait(&fake->changed, &fake->lock);
    for (link = &fake->held; *link != &held;)
        link = &(*link)->next;
    *link = held.next;
    pthread_cond_broadcast(&fake->changed);
}

/* Needs the lock. */
static struct fake_rule
take_fault(struct fake *fake, const struct call *call)
{
    const int mode = call->req->mode;

    for (struct fake_rule **link = &fake->rules; *link; link = &(*link)->next) {
        struct fake_rule *rule = *link;
        const struct fake_rule taken = *rule;

        if (rule->kind != call->kind || (mode & rule->mode) != rule->mode)
            continue;
        if (rule->skip > 0) {
            rule->skip--;
            continue;
        }
        if (rule->times > 0 && --rule->times == 0) {
            *link = rule->next;
            free(rule);
        }
        return taken;
    }
    return (struct fake_rule){0};
}

/* Needs the lock.  The pages of [@offset, @offset + @len) that are in state
 * @from, or all, become @to.
 */
static void
set_pages(struct fake *fake, uint64_t offset, uint64_t len, int from, int to)
{
    if (len == 0)
        return;
    for (uint64_t i = offset / PAGE; i <= (offset + len - 1) / PAGE; i++) {
        if (from != ANY && fake->page[i] != from)
            continue;
        fake->nr_dirty += (to != CLEAN) - (fake->page[i] != CLEAN);
        fake->page[i] = to;
    }
    if (fake->nr_dirty > fake->nr_dirty_max)
        fake->nr_dirty_max = fake->nr_dirty;
}

/* Needs the lock.  @data is NULL for zeroes. */
static void
enter_cache(struct fake *fake, struct call *call, const void *data)
{
    struct fake_change *change = calloc(1, sizeof *change);

    if (call->req->offset + call->len > fake->size)
        abort(); /* Also a broken promise: the length never changes. */
    change->seq = call->seq = ++fake->nr_entered;
    change->offset = call->req->offset;
    change->len = call->len;
    change->data = calloc(1, call->len);
    if (data)
        memcpy(change->data, data, call->len);
    memcpy(fake->cache + change->offset, change->data, call->len);
    *fake->changes_end = change;
    fake->changes_end = &change->next;
    set_pages(fake, change->offset, change->len, ANY, DIRTY);
}

/* Needs the lock. */
static void
put_on_disk(struct fake *fake, const struct fake_change *change, uint64_t from,
            uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        if (fake->stable_seq[i] > change->seq)
            continue; /* Something newer is there. */
        fake->stable[i] = change->data[i - change->offset];
        fake->stable_seq[i] = change->seq;
    }
}

/* Does @call's writeback include @change?  NULL is the kernel's own one. */
static bool
is_covered(const struct fake_change *change, const struct call *call)
{
    if (!call)
        return true;
    if (call->kind == FAKE_DURABLE)
        return change->seq == call->seq;
    if (call->kind == FAKE_WAIT_WRITEOUT || call->kind == FAKE_SYNC_PAGE ||
        call->kind == FAKE_START_WRITEOUT || call->kind == FAKE_SUBMIT_WRITEOUT)
        return change->offset < call->req->offset + call->len &&
               change->offset + change->len > call->req->offset;
    return change->returned > 0 && change->returned <= call->covered;
}

/* Needs the lock.  What was covered is clean afterwards, also if it is lost. */
static void
clean(struct fake *fake, const struct call *call, bool is_lost)
{
    struct fake_change **link = &fake->changes;

    while (*link) {
        struct fake_change *change = *link;

        if (!is_covered(change, call)) {
            link = &change->next;
            continue;
        }
        if (!is_lost)
            put_on_disk(fake, change, change->offset,
                        change->offset + change->len);
        *link = change->next;
        free(change->data);
        free(change);
    }
    fake->changes_end = link;
}

/* Needs the lock.  All open files are told of @error. */
static void
write_back(struct fake *fake, const struct call *call, int error)
{
    clean(fake, call, error < 0);
    if (error < 0) {
        fake->error = error;
        fake->error_seq++;
        fake->is_error_seen = false;
    }
}

void
fake_opened(int fd)
{
    struct fake *fake = current;

    if (!fake || fd < 0)
        return;
    pthread_mutex_lock(&fake->lock);
    fake->cursor[fd] = fake->error_seq;
    if (fake->error_seq > 0 && !fake->is_error_seen)
        fake->cursor[fd]--;
    pthread_mutex_unlock(&fake->lock);
}

/* Needs the lock.  0, or what the open file has not reported yet. */
static int
take_report(struct fake *fake, int fd)
{
    if (fake->cursor[fd] == fake->error_seq)
        return 0;
    fake->cursor[fd] = fake->error_seq;
    fake->is_error_seen = true;
    return fake->error;
}

/* Needs the lock. */
static void
mark_returned(struct fake *fake, const struct call *call)
{
    fake->nr_returned++;
    for (struct fake_change *c = fake->changes; c; c = c->next)
        if (c->seq == call->seq)
            c->returned = fake->nr_returned;
}

/* Needs the lock. */
static int64_t
run_read(struct fake *fake, struct call *call)
{
    const uint64_t offset = call->req->offset;

    pass(fake, call, FAKE_RUNNING);
    if (offset >= fake->end)
        return 0;
    if (call->len > fake->end - offset)
        call->len = fake->end - offset;
    memcpy(call->req->buf, fake->cache + offset, call->len);
    return call->len;
}

/* Needs the lock. */
static int64_t
run_durable(struct fake *fake, struct call *call)
{
    const int error = call->fault.fault == FAKE_LOSE ? call->fault.error : 0;
    int r;

    enter_cache(fake, call, call->req->buf);
    pass(fake, call, FAKE_RUNNING);
    if (fake->has_no_power)
        return -EIO;
    write_back(fake, call, error);
    set_pages(fake, call->req->offset, call->len, ANY, CLEAN);
    r = take_report(fake, call->req->fd);
    return r < 0 ? r : (int64_t)call->len;
}

/* Needs the lock. */
static int64_t
run_sync(struct fake *fake, struct call *call)
{
    const int error = call->fault.fault == FAKE_LOSE ? call->fault.error : 0;

    pass(fake, call, FAKE_RUNNING);
    if (fake->has_no_power)
        return -EIO;
    write_back(fake, call, error);
    set_pages(fake, 0, fake->size, ANY, CLEAN);
    return take_report(fake, call->req->fd);
}

/* Needs the lock. */
static int64_t
run_sync_page(struct fake *fake, struct call *call)
{
    call->len = PAGE;
    pass(fake, call, FAKE_RUNNING);
    if (fake->has_no_power)
        return -EIO;
    if (call->fault.fault == FAKE_LOSE)
        write_back(fake, call, call->fault.error);
    set_pages(fake, call->req->offset, 1, ANY, CLEAN);
    return take_report(fake, call->req->fd);
}

/* Needs the lock.  As sync_file_range with WRITE: takes no report.  What is
 * written out stays among the changes, since a power cut may take it.
 */
static int64_t
run_start(struct fake *fake, struct call *call)
{
    const struct ubd_req *req = call->req;

    pass(fake, call, FAKE_RUNNING);
    if (fake->has_no_power)
        return -EIO;
    if (call->fault.fault == FAKE_LOSE) {
        clean(fake, call, true);
        set_pages(fake, req->offset, req->len, ANY, CLEAN);
        return call->fault.error;
    }
    set_pages(fake, req->offset, req->len, DIRTY, WRITING);
    return 0;
}

/* Needs the lock. */
static int64_t
run_wait(struct fake *fake, struct call *call)
{
    const struct ubd_req *req = call->req;

    pass(fake, call, FAKE_RUNNING);
    if (fake->has_no_power)
        return -EIO;
    if (call->fault.fault == FAKE_LOSE)
        write_back(fake, call, call->fault.error);
    set_pages(fake, req->offset, req->len, WRITING, CLEAN);
    if (req->mode & SYNC_FILE_RANGE_WRITE)
        set_pages(fake, req->offset, req->len, DIRTY, CLEAN);
    return take_report(fake, req->fd);
}

/* Needs the lock.  What is neither dirty nor lost reads as before. */
static int64_t
run_evict(struct fake *fake, struct call *call)
{
    const uint64_t start = call->req->offset, end = start + call->req->len;

    pass(fake, call, FAKE_RUNNING);
    for (uint64_t i = start / PAGE; i <= (end - 1) / PAGE; i++)
        if (fake->page[i] == WRITING)
            fake->was_evicted_early = true;
        else if (fake->page[i] == DIRTY)
            fake->was_evicted_dirty = true;
    memcpy(fake->cache + start, fake->stable + start, end - start);
    for (const struct fake_change *c = fake->changes; c; c = c->next) {
        const uint64_t from = c->offset > start ? c->offset : start;
        const uint64_t to = c->offset + c->len < end ? c->offset + c->len : end;

        for (uint64_t i = from; i < to; i++)
            if (fake->stable_seq[i] <= c->seq)
                fake->cache[i] = c->data[i - c->offset];
    }
    return 0;
}

/* Needs the lock. */
static int64_t
run_plain_change(struct fake *fake, struct call *call)
{
    const bool zeroes =
        call->kind != FAKE_ALLOCATE ||
        call->req->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);

    pass(fake, call, FAKE_RUNNING);
    if (fake->has_no_power)
        return -EIO;
    if (call->kind == FAKE_ALLOCATE && !(call->req->mode & FALLOC_FL_KEEP_SIZE))
        fake->has_grown = true;
    if (call->kind == FAKE_WRITE)
        enter_cache(fake, call, call->req->buf);
    else if (zeroes)
        enter_cache(fake, call, NULL);
    return call->kind == FAKE_WRITE ? (int64_t)call->len : 0;
}

/* Needs the lock. */
static bool
is_misaligned(const struct fake *fake, const struct ubd_req *req)
{
    return req->is_direct &&
           (req->offset % fake->align != 0 || req->len % fake->align != 0 ||
            (uintptr_t)req->buf % fake->mem_align != 0);
}

/* Needs the lock.  Now and then a transfer is interrupted or shortened; what
 * may report a loss is not interrupted, as that would be taken for one.
 */
static int
misbehave(struct fake *fake, struct call *call)
{
    const uint64_t unit = call->req->is_direct ? fake->align : 8;
    const uint64_t units = call->len / unit;

    if (!fake->chaos || call->kind > FAKE_DURABLE)
        return 0;
    switch (fake_random(&call->random) % 16) {
    case 0:
        return call->kind == FAKE_DURABLE ? 0 : -EINTR;
    case 1:
        return call->kind == FAKE_DURABLE ? 0 : -EAGAIN;
    case 2:
        if (units > 1)
            call->len = unit * (1 + fake_random(&call->random) % (units - 1));
        break;
    }
    return 0;
}

/* Needs the lock. */
static void
count_attempt(struct fake *fake, struct call *call)
{
    fake->count[call->kind]++;
    if (++fake->running[call->kind] > fake->running_max[call->kind])
        fake->running_max[call->kind] = fake->running[call->kind];
    if (call->kind >= FAKE_START_WRITEOUT && fake->nr_pieces < FAKE_PIECES)
        fake->piece[fake->nr_pieces++] = (struct fake_piece){
            call->kind, call->req->offset, call->req->len, call->req->mode};
    pthread_cond_broadcast(&fake->changed);
    fake->nr_attempts++;
    if (fake->nr_attempts == fake->lose_after)
        write_back(fake, NULL, -EIO);
    if (fake->nr_attempts == fake->cut_after)
        fake->has_no_power = true;
    call->random = fake->chaos + (fake->nr_attempts << 20);
}

/* Needs the lock. */
static int64_t
run(struct fake *fake, struct call *call)
{
    int r = misbehave(fake, call);

    call->fault = take_fault(fake, call);
    if (r == 0 && fake->has_no_power)
        r = -EIO;
    if (r == 0 && is_misaligned(fake, call->req)) {
        fake->is_misaligned = true;
        r = -EINVAL;
    }
    if (r == 0 && call->fault.fault == FAKE_FAIL) {
        pass(fake, call, FAKE_RUNNING);
        r = call->fault.error;
    }
    if (r < 0)
        return r;
    if (call->fault.fault == FAKE_SHORT && call->fault.bytes < call->len)
        call->len = call->fault.bytes;
    switch (call->kind) {
    case FAKE_READ:
        return run_read(fake, call);
    case FAKE_DURABLE:
        return run_durable(fake, call);
    case FAKE_SYNC:
        return run_sync(fake, call);
    case FAKE_SYNC_PAGE:
        return run_sync_page(fake, call);
    case FAKE_START_WRITEOUT:
    case FAKE_SUBMIT_WRITEOUT:
        return run_start(fake, call);
    case FAKE_WAIT_WRITING:
    case FAKE_WAIT_WRITEOUT:
        return run_wait(fake, call);
    case FAKE_EVICT:
        return run_evict(fake, call);
    case FAKE_PREFETCH:
        return 0;
    default:
        return run_plain_change(fake, call);
    }
}

static int64_t
fake_attempt(struct ubd_io *io, const struct ubd_req *req)
{
    struct fake *fake = (struct fake *)io;
    struct call call = {.req = req, .kind = kind_of(req), .len = req->len};
    int64_t r;

    pthread_mutex_lock(&fake->lock);
    call.covered = fake->nr_returned;
    count_attempt(fake, &call);
    r = run(fake, &call);
    pass(fake, &call, FAKE_ENDED);
    if (call.seq)
        mark_returned(fake, &call);
    fake->running[call.kind]--;
    pthread_mutex_unlock(&fake->lock);
    return r;
}

static void
fake_close(struct ubd_io *io)
{
    (void)io; /* The test looks at it afterwards, and then frees it. */
}

static const struct ubd_io_ops fake_ops = {
    .name = "fake",
    .attempt = fake_attempt,
    .close = fake_close,
};

struct fake *
fake_new(uint64_t size)
{
    struct fake *fake = calloc(1, sizeof *fake);

    fake->io.ops = &fake_ops;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    fake->size = fake->end = size;
    fake->align = fake->mem_align = 1;
    fake->cache = calloc(1, size);
    fake->stable = calloc(1, size);
    fake->stable_seq = calloc(size, sizeof fake->stable_seq[0]);
    fake->page = calloc(size / PAGE + 1, 1);
    fake->changes_end = &fake->changes;
    current = fake;
    return fake;
}

void
fake_free(struct fake *fake)
{
    current = NULL;
    write_back(fake, NULL, -EIO); /* Quicker than to put it on the disk. */
    fake_heal(fake);
    free(fake->cache);
    free(fake->stable);
    free(fake->stable_seq);
    free(fake->page);
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

void
fake_lose(struct fake *fake, int error)
{
    pthread_mutex_lock(&fake->lock);
    write_back(fake, NULL, error);
    pthread_mutex_unlock(&fake->lock);
}

void
fake_write_back(struct fake *fake)
{
    fake_lose(fake, 0);
}

void
fake_cut(struct fake *fake, uint64_t seed)
{
    pthread_mutex_lock(&fake->lock);
    fake->has_no_power = true;
    for (const struct fake_change *c = fake->changes; c; c = c->next) {
        const uint64_t end = c->offset + c->len;
        uint64_t next;

        for (uint64_t at = c->offset; at < end; at = next) {
            next = (at / SECTOR + 1) * SECTOR;
            if (next > end)
                next = end;
            if (fake_random(&seed) & 1)
                put_on_disk(fake, c, at, next);
        }
    }
    pthread_mutex_unlock(&fake->lock);
}
