/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Starting to write out, and who waits until it is known how that went.
 */
#include "writeout.h"

#include <errno.h>

void
ubd_writeout_init(struct ubd_writeout *w, void (*lost)(void *opaque, int error),
                  void *opaque)
{
    *w = (struct ubd_writeout){.lost = lost, .opaque = opaque};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->idle, NULL);
}

void
ubd_writeout_destroy(struct ubd_writeout *w)
{
    pthread_cond_destroy(&w->idle);
    pthread_mutex_destroy(&w->lock);
}

static void
end(struct ubd_writeout *w)
{
    if (atomic_fetch_sub(&w->nr_running, 1) != 1 ||
        !atomic_load(&w->nr_waiting))
        return;
    pthread_mutex_lock(&w->lock);
    if (atomic_load(&w->nr_running) == 0) { /* Still, and so later than */
        w->nr_idle++;                       /* whoever waits began to. */
        pthread_cond_broadcast(&w->idle);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Either we see who waits, or they see us.  The first look spares those who
 * wait an end that is not the last one.
 */
static bool
begin(struct ubd_writeout *w, bool may_skip)
{
    if (may_skip && atomic_load(&w->nr_waiting))
        return false;
    atomic_fetch_add(&w->nr_running, 1);
    if (!may_skip || !atomic_load(&w->nr_waiting))
        return true;
    end(w);
    return false;
}

/* Memory that lacks, and a host that does not let us: the pages stay dirty, or
 * the file system marks the file as others than ext4 do.
 */
static bool
is_loss(int error)
{
    switch (-error) {
    case ENOMEM:
    case EINTR:
    case EAGAIN:
    case EPERM:
    case EACCES:
    case EBADF:
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP:
    case ESPIPE:
        return false;
    default:
        return true;
    }
}

int
ubd_writeout_start(struct ubd_writeout *w, struct ubd_io *io,
                   const struct ubd_req *req, bool may_skip)
{
    int r;

    if (!begin(w, may_skip))
        return 1;
    r = ubd_io_run(io, req);
    if (r < 0 && is_loss(r))
        w->lost(w->opaque, r);
    end(w);
    return r;
}

/* Others may begin before we are awake again, so it is enough that there was a
 * moment without any.
 */
void
ubd_writeout_settle(struct ubd_writeout *w)
{
    uint64_t nr_idle;

    if (atomic_load(&w->nr_running) == 0)
        return;
    pthread_mutex_lock(&w->lock);
    nr_idle = w->nr_idle;
    atomic_fetch_add(&w->nr_waiting, 1);
    while (atomic_load(&w->nr_running) > 0 && w->nr_idle == nr_idle)
        pthread_cond_wait(&w->idle, &w->lock);
    atomic_fetch_sub(&w->nr_waiting, 1);
    pthread_mutex_unlock(&w->lock);
}
