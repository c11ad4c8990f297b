/* loop.c - the main thread while a pipeline runs: signals, the progress line, the statistics file, the
 * end. */
#include "buffers/clock.h"
#include "runtime/run/pipeline.h"
#include "runtime/run/watchdog.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct loop {
    struct br_graph *graph;
    const struct br_run_options *options;
    struct ev_loop *ev;
    ev_async ended;
    ev_timer progress, stats, watchdog;
    ev_signal interrupt, terminate, hangup, report;
    uint64_t start_ns;
    unsigned signals;    /* that ask for an end, so far */
    bool hangs;          /* the watchdog has ended the run */
    uint64_t aborted_ns; /* when everything was told to end at once; 0: not yet */
    uint64_t warned;     /* `since` of the last hang that the user was told of */
};

/* How long threads and GPUs may take to end after an abort. */
#define GRACE_NS ((uint64_t)2 * 1000000000)

static struct br_run_times times_now(const struct loop *loop)
{
    return br_run_times(loop->graph, loop->start_ns, br_clock_ns());
}

/* Replaces the file in one step, so that whoever reads it while the pipeline runs never sees half of one. */
static int write_stats(const struct loop *loop, int exit_status)
{
    char temporary[4096];
    struct br_run_times times = times_now(loop);
    snprintf(temporary, sizeof temporary, "%s.part", loop->options->stats_path);
    FILE *file = fopen(temporary, "w");
    if (file != NULL) {
        br_report_json(loop->graph, &times, exit_status, file);
        bool bad = ferror(file) != 0;
        bad |= fclose(file) != 0;
        if (!bad && rename(temporary, loop->options->stats_path) == 0) return BR_OK;
    }
    br_log(loop->graph->log, BR_LOG_ERROR, NULL, "cannot write the statistics file '%s': %s",
           loop->options->stats_path, strerror(errno));
    return BR_E_IO;
}

static void on_stage_end(struct ev_loop *ev, ev_async *watcher, int events)
{
    (void)events;
    struct loop *loop = watcher->data;
    if (br_pipeline_ended(loop->graph)) ev_break(ev, EVBREAK_ALL);
}

static void on_progress(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    struct loop *loop = watcher->data;
    char text[256];
    struct br_run_times times = times_now(loop);
    br_report_progress(loop->graph, &times, text, sizeof text);
    br_log_progress(loop->graph->log, text);
}

static void on_stats(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)events;
    if (write_stats(watcher->data, -1) != BR_OK) ev_timer_stop(ev, watcher);
}

static void abort_run(struct loop *loop)
{
    if (loop->aborted_ns == 0) loop->aborted_ns = br_clock_ns();
    br_pipeline_abort(loop->graph);
}

/* Ends a run whose GPU does not get on, warns of a stage on the host that does not, and gives up waiting
 * for whatever is still there some time after an abort. */
static void on_watchdog(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)events;
    struct loop *loop = watcher->data;
    struct br_graph *graph = loop->graph;
    struct br_hang hang;
    if (loop->aborted_ns != 0) {
        if (br_clock_ns() - loop->aborted_ns > GRACE_NS) ev_break(ev, EVBREAK_ALL);
        return;
    }
    if (!(graph->watchdog_s > 0) || !br_watchdog_find(graph, (uint64_t)(graph->watchdog_s * 1e9), &hang))
        return;
    if (hang.gpu) {
        loop->hangs = true;
        br_log(graph->log, BR_LOG_ERROR, hang.stage->name, "%s; watchdog_s allows %g s: the run ends",
               hang.text, graph->watchdog_s);
        abort_run(loop);
    } else if (hang.since != loop->warned) {
        loop->warned = hang.since;
        br_log(graph->log, BR_LOG_WARNING, hang.stage->name, "%s; Ctrl-C twice ends the run without it",
               hang.text);
    }
}

/* Waits until the GPUs are done with what is enqueued, as long as the watchdog or an abort allows. */
static bool gpus_get_done(struct loop *loop)
{
    uint64_t begin = br_clock_ns();
    while (!br_watchdog_gpus_idle(loop->graph)) {
        uint64_t now = br_clock_ns();
        if (loop->aborted_ns != 0
                ? now - loop->aborted_ns > GRACE_NS
                : loop->graph->watchdog_s > 0 && (double)(now - begin) > loop->graph->watchdog_s * 1e9)
            return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        ev_run(loop->ev, EVRUN_NOWAIT); /* a second Ctrl-C counts here too */
    }
    return true;
}

static void on_interrupt(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)events;
    struct loop *loop = watcher->data;
    if (++loop->signals == 1) {
        br_log(loop->graph->log, BR_LOG_NOTE, NULL, "%s: stopping the sources and draining; once more aborts",
               strsignal(watcher->signum));
        br_pipeline_drain(loop->graph);
    } else {
        br_log(loop->graph->log, BR_LOG_WARNING, NULL, "%s again: aborting", strsignal(watcher->signum));
        abort_run(loop);
    }
    if (loop->signals > 2) ev_break(ev, EVBREAK_ALL);
}

static void on_report(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)ev, (void)events;
    struct loop *loop = watcher->data;
    struct br_run_times times = times_now(loop);
    br_log_progress(loop->graph->log, "");
    br_report_text(loop->graph, &times, loop->options->out);
    fflush(loop->options->out);
}

static void wake_loop(void *arg)
{
    struct loop *loop = arg;
    ev_async_send(loop->ev, &loop->ended);
}

/* From before the stages start: an interrupt while files are opened drains the pipeline as soon as it
 * runs. */
static void watch(struct loop *loop)
{
    struct sigaction before;
    ev_signal_init(&loop->interrupt, on_interrupt, SIGINT);
    ev_signal_init(&loop->terminate, on_interrupt, SIGTERM);
    ev_signal_init(&loop->hangup, on_interrupt, SIGHUP);
    ev_signal_init(&loop->report, on_report, SIGUSR1);
    ev_timer_init(&loop->progress, on_progress, 0.25, 0.5);
    ev_timer_init(&loop->stats, on_stats, 5, 5);
    ev_timer_init(&loop->watchdog, on_watchdog, 0.25, 0.25);
    loop->interrupt.data = loop->terminate.data = loop->hangup.data = loop->report.data = loop;
    loop->progress.data = loop->stats.data = loop->watchdog.data = loop;
    ev_signal_start(loop->ev, &loop->interrupt);
    ev_signal_start(loop->ev, &loop->terminate);
    ev_signal_start(loop->ev, &loop->report);
    /* A terminal that goes away drains the pipeline too, unless the user (nohup) said that it shall not
     * matter. */
    if (sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        ev_signal_start(loop->ev, &loop->hangup);
    ev_timer_start(loop->ev, &loop->watchdog);
    if (loop->options->progress) ev_timer_start(loop->ev, &loop->progress);
    if (loop->options->stats_path != NULL) ev_timer_start(loop->ev, &loop->stats);
}

static void unwatch(struct loop *loop)
{
    ev_signal_stop(loop->ev, &loop->interrupt);
    ev_signal_stop(loop->ev, &loop->terminate);
    ev_signal_stop(loop->ev, &loop->hangup);
    ev_signal_stop(loop->ev, &loop->report);
    ev_timer_stop(loop->ev, &loop->progress);
    ev_timer_stop(loop->ev, &loop->stats);
    ev_timer_stop(loop->ev, &loop->watchdog);
    br_log_progress(loop->graph->log, "");
}

/* The counters, the balance and the statistics file; returns the exit status. */
static int conclude(const struct loop *loop, int status)
{
    const struct br_run_options *options = loop->options;
    struct br_run_times times = times_now(loop);
    if (options->report) br_report_text(loop->graph, &times, options->out);
    if (!br_balance_ok(loop->graph, stderr)) status = 1;
    if (status == 0 && loop->signals == 1) status = 130;
    if (options->stats_path != NULL && write_stats(loop, status) != BR_OK) status = 1;
    return status;
}

/* Ends the process although threads, or kernels on a GPU, do not end: neither can be made to, and CUDA's
 * contexts cannot be torn down under them. */
static _Noreturn void leave(struct loop *loop)
{
    br_pipeline_abort(loop->graph);
    br_watchdog_leave(loop->graph);
    conclude(loop, 1);
    fflush(NULL);
    _exit(1);
}

int br_pipeline_run(struct br_graph *graph, const struct br_run_options *options)
{
    struct br_error error = {0};
    struct loop loop = {.graph = graph, .options = options, .ev = ev_default_loop(EVFLAG_AUTO)};
    if (loop.ev == NULL) {
        br_log(graph->log, BR_LOG_ERROR, NULL, "the event loop cannot be made: %s", strerror(errno));
        return 1;
    }
    /* A write past a file size limit or into a closed pipe shall be an error with a message, not the end
     * of the process. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    ev_async_init(&loop.ended, on_stage_end);
    loop.ended.data = &loop;
    ev_async_start(loop.ev, &loop.ended);
    graph->on_end = wake_loop;
    graph->on_end_arg = &loop;
    loop.start_ns = br_clock_ns();
    int status = 0;
    watch(&loop);
    if (options->stats_path != NULL && write_stats(&loop, -1) != BR_OK) {
        status = 2; /* better now than after a night's recording */
    } else if (br_pipeline_start(graph, &error) != BR_OK) {
        br_log(graph->log, BR_LOG_ERROR, NULL, "%s", error.text);
        status = 1;
    } else {
        ev_run(loop.ev, 0);
        bool back = br_pipeline_ended(graph) && gpus_get_done(&loop);
        unwatch(&loop);
        if (!back) leave(&loop);
        if (br_pipeline_finish(graph, &error) != BR_OK || loop.signals > 1 || loop.hangs) status = 1;
        status = conclude(&loop, status);
    }
    unwatch(&loop);
    ev_async_stop(loop.ev, &loop.ended);
    graph->on_end = NULL;
    ev_loop_destroy(loop.ev);
    return status;
}
