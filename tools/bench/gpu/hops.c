/* hops.c - the processor time that handing a frame from one GPU stage to the next costs.
 *
 * A pipeline at the pace of CHORD's frames with STAGES between its two copies that enqueue nothing and
 * hand on: what their threads take, and their share of what the process takes outside the stages' threads
 * (the driver's). Beside it, at the same pace, the least that a hop from thread to thread can cost: a bare
 * condition variable. */
#include "buffers/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STAGES = 8, BARE_FRAMES = 100 };
#define ALLOWED_US 15.0

static struct br_stage_type pass_type[STAGES];

static int pass(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, br_frame_cells(br_stage_input(stage, 0), in));
    return BR_CONSUMED | BR_PRODUCED;
}

/* Stages of the file pass frames on; the copies that the runtime inserted stay. */
static void only_pass(struct gpu *g, struct br_graph *graph)
{
    unsigned n = 0;
    (void)g;
    for (size_t s = 0; s < graph->nstages && n < STAGES; s++)
        if (strcmp(graph->stage[s].type->name, "upchannelize") == 0)
            gpu_replace(&graph->stage[s], &pass_type[n++], pass);
}

/* --- bare condition variables
 * --------------------------------------------------------------------------------------------- */

struct link {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned sent, taken;
    struct link *next;
};

static void send(struct link *link)
{
    pthread_mutex_lock(&link->lock);
    link->sent++;
    pthread_mutex_unlock(&link->lock);
    pthread_cond_signal(&link->cond);
}

static void *hand_on(void *arg)
{
    struct link *link = arg;
    for (;;) {
        pthread_mutex_lock(&link->lock);
        while (link->sent == link->taken) pthread_cond_wait(&link->cond, &link->lock);
        unsigned taken = ++link->taken;
        pthread_mutex_unlock(&link->lock);
        if (link->next != NULL) send(link->next);
        if (taken == BARE_FRAMES) return NULL;
    }
}

static double process_us(void)
{
    return (double)br_clock_of(CLOCK_PROCESS_CPUTIME_ID) * 1e-3;
}

/* CPU time of a frame that passes `n` threads, one every `ms`. */
static double bare_us(unsigned n, double ms)
{
    struct link link[STAGES];
    pthread_t thread[STAGES];
    double begin = process_us();
    for (unsigned i = n; i-- > 0;) {
        link[i] = (struct link){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0,
                                i + 1 < n ? &link[i + 1] : NULL};
        if (pthread_create(&thread[i], NULL, hand_on, &link[i]) != 0) abort();
    }
    for (unsigned i = 0; i < BARE_FRAMES; i++) {
        nanosleep(&(struct timespec){0, (long)(ms * 1e6)}, NULL);
        send(&link[0]);
    }
    for (unsigned i = 0; i < n; i++) pthread_join(thread[i], NULL);
    return (process_us() - begin) / BARE_FRAMES;
}

int gpu_hops(struct gpu *g, uint64_t samples, char *(*text)(unsigned stages))
{
    struct gpu_run_result r;
    char *pipeline = text(STAGES);
    bool ok = pipeline != NULL;
    if (ok) ok = gpu_run(g, &(struct gpu_run){"hops", pipeline, samples, true, true, only_pass, NULL}, &r);
    free(pipeline);
    if (!ok) return 1;
    double rest = (r.cpu_us - r.threads_us) / r.hops, us = r.middle_us + (rest > 0 ? rest : 0);
    double bare = (bare_us(STAGES, r.ms) - bare_us(2, r.ms)) / (STAGES - 2);
    printf("\na hop between GPU stages, a frame every %.2f ms: %.1f us of processor time in the stage's "
           "thread and %.1f us elsewhere in "
           "the process, at most %.0f together: %s\n(a bare condition variable between two threads, as "
           "often: %.1f us)\n",
           r.ms, r.middle_us, us - r.middle_us, ALLOWED_US, us > ALLOWED_US ? "SHORT" : "ok", bare);
    return us > ALLOWED_US;
}
