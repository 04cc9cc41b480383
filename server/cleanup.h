/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Scope-bound ownership: a variable with CLEANUP_* owns what it holds until
 * TAKE_* hands it over.
 */
#ifndef UBD_CLEANUP_H
#define UBD_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void
ubd_cleanup_close(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* Nothing was written through it. */
}

static inline void
ubd_cleanup_free(void *ptr)
{
    free(*(void **)ptr);
}

static inline int
ubd_take_fd(int *fd)
{
    const int taken = *fd;

    *fd = -1;
    return taken;
}

#define CLEANUP_CLOSE __attribute__((cleanup(ubd_cleanup_close)))
#define CLEANUP_FREE __attribute__((cleanup(ubd_cleanup_free)))
#define TAKE_FD(fd) ubd_take_fd(&(fd))
#define TAKE_PTR(p)             \
    ({                          \
        typeof(p) taken_ = (p); \
        (p) = NULL;             \
        taken_;                 \
    })

#endif
