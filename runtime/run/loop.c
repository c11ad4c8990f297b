/* loop.c - the main thread while a pipeline runs: signals, the progress line, the statistics file, the
 * end. */
#include "buffers/clock.h"
#include "runtime/run/pipeline.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <string.h>

struct loop {
    struct br_graph *graph;
    const struct br_run_options *options;
    struct ev_loop *ev;
    ev_async ended;
    ev_timer progress, stats;
    ev_signal interrupt, terminate, hangup, report;
    uint64_t start_ns;
    unsigned signals; /* that ask for an end, so far */
};

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

static void on_interrupt(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)ev, (void)events;
    struct loop *loop = watcher->data;
    if (++loop->signals == 1) {
        br_log(loop->graph->log, BR_LOG_NOTE, NULL, "%s: stopping the sources and draining; once more aborts",
               strsignal(watcher->signum));
        br_pipeline_drain(loop->graph);
    } else {
        br_log(loop->graph->log, BR_LOG_WARNING, NULL, "%s again: aborting", strsignal(watcher->signum));
        br_pipeline_abort(loop->graph);
    }
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
    loop->interrupt.data = loop->terminate.data = loop->hangup.data = loop->report.data = loop;
    loop->progress.data = loop->stats.data = loop;
    ev_signal_start(loop->ev, &loop->interrupt);
    ev_signal_start(loop->ev, &loop->terminate);
    ev_signal_start(loop->ev, &loop->report);
    /* A terminal that goes away drains the pipeline too, unless the user (nohup) said that it shall not
     * matter. */
    if (sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        ev_signal_start(loop->ev, &loop->hangup);
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
    br_log_progress(loop->graph->log, "");
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
        unwatch(&loop);
        if (br_pipeline_finish(graph, &error) != BR_OK || loop.signals > 1) status = 1;
        struct br_run_times times = times_now(&loop);
        if (options->report) br_report_text(graph, &times, options->out);
        if (!br_balance_ok(graph, stderr)) status = 1;
        if (status == 0 && loop.signals == 1) status = 130;
        if (options->stats_path != NULL && write_stats(&loop, status) != BR_OK) status = 1;
    }
    unwatch(&loop);
    ev_async_stop(loop.ev, &loop.ended);
    graph->on_end = NULL;
    ev_loop_destroy(loop.ev);
    return status;
}
