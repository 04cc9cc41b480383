/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads of the engine's own.
 */
#ifndef UBD_THREAD_H
#define UBD_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Errors: as pthread_create, negative. */
static inline int
ubd_start_thread(pthread_t *ret_thread, void *(*run)(void *), void *opaque)
{
    sigset_t all, old;
    int error;

    sigfillset(&all); /* Signals are for the threads of the front. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(ret_thread, NULL, run, opaque);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}

#endif
