/* update_desk.c - see update_desk.h. */
#include "runtime/control/update_desk.h"

#include "buffers/clock.h"
#include "buffers/threads.h"
#include "runtime/control/update_routes.h"
#include "runtime/run/pipeline.h"
#include "runtime/run/update_watch.h"
#include "runtime/run/updates.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_NS  250000000
#define GRACE_NS 1000000000

struct job {
    struct job *next;
    void *request; /* under the mutex; NULL: it has been answered */
    bool cancels;
    char *text;
    size_t length;
    struct desk_answer answer;
};

struct jobs {
    struct job *first, **end;
    size_t count;
};

struct desk {
    struct desk_options options;
    pthread_t thread;
    pthread_mutex_t mutex; /* all that follows */
    pthread_cond_t wake, over;
    struct jobs waiting, done;
    struct job *busy;
    uint64_t busy_since;
    bool quit, ended;
    ev_async finished; /* the loop's */
};

/* --- lists --- */

static void append(struct jobs *jobs, struct job *job)
{
    if (jobs->first == NULL) jobs->end = &jobs->first;
    *jobs->end = job;
    jobs->end = &job->next;
    jobs->count++;
}

static struct job *take(struct jobs *jobs)
{
    struct job *job = jobs->first;
    if (job == NULL) return NULL;
    jobs->first = job->next;
    job->next = NULL;
    jobs->count--;
    return job;
}

static void free_job(struct job *job)
{
    free(job->answer.body);
    free(job->text);
    free(job);
}

/* --- the desk's thread --- */

/* Under the mutex, which it gives up meanwhile. */
static void work_at(struct desk *desk, struct job *job)
{
    desk->busy = job;
    desk->busy_since = br_clock_ns();
    pthread_mutex_unlock(&desk->mutex);
    if (job->cancels)
        update_answer_cancel(desk->options.graph, job->text, &job->answer);
    else
        update_answer(desk->options.graph, job->text, job->length, &job->answer);
    pthread_mutex_lock(&desk->mutex);
    desk->busy = NULL;
    append(&desk->done, job);
    if (!desk->quit) ev_async_send(desk->options.ev, &desk->finished);
}

static void *run(void *arg)
{
    struct desk *desk = arg;
    pthread_mutex_lock(&desk->mutex);
    while (!desk->quit) {
        struct timespec tick = br_clock_in(CLOCK_MONOTONIC, TICK_NS);
        int late = 0;
        while (!desk->quit && desk->waiting.count == 0 && late == 0)
            late = pthread_cond_timedwait(&desk->wake, &desk->mutex, &tick);
        struct job *job = desk->quit ? NULL : take(&desk->waiting);
        if (job != NULL) work_at(desk, job);
        if (desk->quit) break;
        pthread_mutex_unlock(&desk->mutex);
        br_watch_look(desk->options.graph);
        br_updates_tidy(desk->options.graph);
        br_updates_note(desk->options.graph);
        pthread_mutex_lock(&desk->mutex);
    }
    desk->ended = true;
    pthread_cond_broadcast(&desk->over);
    pthread_mutex_unlock(&desk->mutex);
    return NULL;
}

/* --- the loop's thread --- */

static void deliver(struct desk *desk, struct job *job)
{
    if (job->request != NULL && desk->options.answered != NULL) {
        desk->options.answered(desk->options.arg, job->request, &job->answer);
        job->answer.body = NULL;
    }
    free_job(job);
}

static void on_finished(struct ev_loop *ev, ev_async *watcher, int events)
{
    (void)ev, (void)events;
    struct desk *desk = watcher->data;
    for (;;) {
        pthread_mutex_lock(&desk->mutex);
        struct job *job = take(&desk->done);
        pthread_mutex_unlock(&desk->mutex);
        if (job == NULL) return;
        deliver(desk, job);
    }
}

static void destroy(struct desk *desk)
{
    struct job *job;
    while ((job = take(&desk->done)) != NULL) free_job(job);
    pthread_cond_destroy(&desk->wake);
    pthread_cond_destroy(&desk->over);
    pthread_mutex_destroy(&desk->mutex);
    free(desk);
}

struct desk *desk_open(const struct desk_options *options)
{
    struct desk *desk = calloc(1, sizeof *desk);
    if (desk == NULL) return NULL;
    desk->options = *options;
    br_cond_init(&desk->wake);
    br_cond_init(&desk->over);
    pthread_mutex_init(&desk->mutex, NULL);
    ev_async_init(&desk->finished, on_finished);
    desk->finished.data = desk;
    if (br_thread_start(&desk->thread, run, desk) != 0) {
        destroy(desk);
        return NULL;
    }
    pthread_setname_np(desk->thread, "updates");
    br_pipeline_keep_away(options->graph, desk->thread);
    ev_async_start(options->ev, &desk->finished);
    return desk;
}

bool desk_post(struct desk *desk, bool cancels, const char *text, size_t length, void *request)
{
    struct job *job = calloc(1, sizeof *job);
    char *copy = malloc(length + 1);
    pthread_mutex_lock(&desk->mutex);
    bool taken = job != NULL && copy != NULL && !desk->quit && desk->waiting.count < DESK_WAITING;
    if (taken) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        *job = (struct job){.request = request, .cancels = cancels, .text = copy, .length = length};
        append(&desk->waiting, job);
        pthread_cond_signal(&desk->wake);
    }
    pthread_mutex_unlock(&desk->mutex);
    if (taken) return true;
    free(copy);
    free(job);
    return false;
}

size_t desk_waiting(struct desk *desk, double *busy_s)
{
    pthread_mutex_lock(&desk->mutex);
    size_t count = desk->waiting.count + (desk->busy != NULL);
    *busy_s = desk->busy != NULL ? (double)(br_clock_ns() - desk->busy_since) * 1e-9 : 0;
    pthread_mutex_unlock(&desk->mutex);
    return count;
}

/* Requests that will not be processed: their senders get an answer that says so. */
static void refuse(struct desk *desk, void *request)
{
    struct desk_answer answer = {
        503, strdup("{\"error\": \"the pipeline ends: nothing of this update is applied\"}")};
    if (request != NULL && desk->options.answered != NULL)
        desk->options.answered(desk->options.arg, request, &answer);
    else
        free(answer.body);
}

bool desk_close(struct desk *desk)
{
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, GRACE_NS);
    void *hung = NULL;
    struct job *job;
    int late = 0;
    pthread_mutex_lock(&desk->mutex);
    desk->quit = true;
    pthread_cond_signal(&desk->wake);
    while (!desk->ended && late == 0) late = pthread_cond_timedwait(&desk->over, &desk->mutex, &until);
    bool ended = desk->ended;
    if (!ended && desk->busy != NULL) {
        hung = desk->busy->request;
        desk->busy->request = NULL;
    }
    struct jobs waiting = desk->waiting;
    desk->waiting = (struct jobs){0};
    pthread_mutex_unlock(&desk->mutex);
    ev_async_stop(desk->options.ev, &desk->finished);
    on_finished(desk->options.ev, &desk->finished, 0);
    refuse(desk, hung);
    while ((job = take(&waiting)) != NULL) {
        refuse(desk, job->request);
        free_job(job);
    }
    if (!ended) return false;
    pthread_join(desk->thread, NULL);
    destroy(desk);
    return true;
}

bool desk_ended(struct desk *desk)
{
    pthread_mutex_lock(&desk->mutex);
    bool ended = desk->ended;
    pthread_mutex_unlock(&desk->mutex);
    if (!ended) return false;
    pthread_join(desk->thread, NULL);
    destroy(desk);
    return true;
}
