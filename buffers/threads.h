/* threads.h - threads that leave signals to the main thread, and conditions on the monotonic clock. */
#ifndef BEAMRING_BUFFERS_THREADS_H
#define BEAMRING_BUFFERS_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* Starts a thread with all signals blocked: they are for the main thread. 0, or an errno. */
static inline int br_thread_start(pthread_t *id, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(id, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

/* A condition whose timed waits count CLOCK_MONOTONIC: the other clock may be set back by an hour. */
static inline void br_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

#endif
