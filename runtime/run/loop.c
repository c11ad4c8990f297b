/* loop.c - the main thread while a pipeline runs: signals, the progress line, the statistics file, the
 * end. */
#include "buffers/clock.h"
#include "buffers/output.h"
#include "buffers/threads.h"
#include "runtime/ranks/ranks.h"
#include "runtime/run/pipeline.h"
#include "runtime/run/watchdog.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct br_run {
    struct br_graph *graph;
    const struct br_run_options *options;
    struct ev_loop *ev;
    ev_async ended;
    ev_timer progress, stats, watchdog;
    ev_signal interrupt, terminate, hangup, report;
    int stats_fd; /* of the statistics file, which is locked; -1: there is none */
    uint64_t start_ns;
    unsigned signals;       /* that ask for an end, so far */
    bool asked;             /* to end, by a guest */
    bool guest_aborted;     /* a guest has ended everything at once */
    bool hangs;             /* the watchdog has ended the run */
    uint64_t job_failed_ns; /* when this rank learnt that its job has failed; 0: it has not */
    uint64_t aborted_ns;    /* when everything was told to end at once; 0: not yet */
    uint64_t warned;        /* `since` of the last hang that the user was told of */
};

/* The start of the stages, in a thread of its own: files are opened and memory is made, which may take long,
 * and the loop answers meanwhile. */
struct starter {
    struct br_run *run;
    int status;
    struct br_error error;
    _Atomic bool done; /* the loop may look at the others */
};

/* How long threads and GPUs may take to end after an abort. */
#define GRACE_NS ((uint64_t)2 * 1000000000)
/* How long what is in flight may drain once another rank has failed: all are to end within ten seconds. */
#define RANK_GRACE_NS ((uint64_t)4 * 1000000000)

static struct br_run_times times_now(const struct br_run *run)
{
    return br_run_times(run->graph, run->start_ns, br_clock_ns());
}

/* The statistics file stays open and locked, so that a second run with the same name is refused. The system
 * drops the lock of a run that dies. A file system without locks refuses nobody. */
static bool is_locked(int fd)
{
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static int check_alone(const char *path, struct br_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool locked = is_locked(fd);
    if (fd >= 0) close(fd);
    if (!locked) return BR_OK;
    return br_fail(error, BR_E_IO, "another run writes %s now; expected another name, or that it has ended",
                   path);
}

/* Replaces the file in one step, so that whoever reads it while the pipeline runs never sees half of one. */
static int write_stats(struct br_run *run, int exit_status)
{
    const char *path = run->options->stats_path;
    char temporary[4096];
    struct br_run_times times = times_now(run);
    snprintf(temporary, sizeof temporary, "%s.part", path);
    struct br_error error = {0};
    FILE *file = NULL; /* a device in its place is told before there is anything beside it */
    if (br_output_check(path, &error) == BR_OK && (run->stats_fd >= 0 || check_alone(path, &error) == BR_OK))
        file = br_output_stream(temporary, true, &error);
    if (file != NULL) {
        int fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
        (void)is_locked(fd);
        br_report_json(run->graph, &times, exit_status, file);
        bool bad = ferror(file) != 0;
        bad |= fclose(file) != 0;
        if (bad) br_fail(&error, BR_E_IO, "cannot write %s: %s", temporary, strerror(errno));
        if (!bad && br_output_rename(temporary, path, &error) == BR_OK) {
            if (run->stats_fd >= 0) close(run->stats_fd);
            run->stats_fd = fd;
            return BR_OK;
        }
        unlink(temporary);
        if (fd >= 0) close(fd);
    }
    br_log(run->graph->log, BR_LOG_ERROR, NULL, "the statistics file: %s", error.text);
    return BR_E_IO;
}

static void on_stage_end(struct ev_loop *ev, ev_async *watcher, int events)
{
    (void)events;
    struct br_run *run = watcher->data;
    struct br_error error = {0};
    if (run->job_failed_ns == 0 && br_ranks_failed(run->graph->ranks, &error)) {
        run->job_failed_ns = br_clock_ns();
        br_log(run->graph->log, BR_LOG_ERROR, NULL, "%s; all ranks end", error.text);
    }
    if (br_pipeline_ended(run->graph)) ev_break(ev, EVBREAK_ALL);
}

static void on_progress(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    struct br_run *run = watcher->data;
    char text[256];
    struct br_run_times times = times_now(run);
    br_report_progress(run->graph, &times, text, sizeof text);
    br_log_progress(run->graph->log, text);
}

static void on_stats(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)events;
    if (write_stats(watcher->data, -1) != BR_OK) ev_timer_stop(ev, watcher);
}

static void abort_run(struct br_run *run)
{
    if (run->aborted_ns == 0) run->aborted_ns = br_clock_ns();
    br_pipeline_abort(run->graph);
}

/* Ends a run whose GPU does not get on, warns of a stage on the host that does not, and gives up waiting
 * for whatever is still there some time after an abort. */
static void on_watchdog(struct ev_loop *ev, ev_timer *watcher, int events)
{
    (void)events;
    struct br_run *run = watcher->data;
    struct br_graph *graph = run->graph;
    struct br_hang hang;
    if (run->aborted_ns != 0) {
        if (br_clock_ns() - run->aborted_ns > GRACE_NS) ev_break(ev, EVBREAK_ALL);
        return;
    }
    if (run->job_failed_ns != 0 && br_clock_ns() - run->job_failed_ns > RANK_GRACE_NS) {
        br_log(graph->log, BR_LOG_WARNING, NULL, "draining takes too long: aborting");
        abort_run(run);
        return;
    }
    if (!(graph->watchdog_s > 0) || !br_watchdog_find(graph, (uint64_t)(graph->watchdog_s * 1e9), &hang))
        return;
    if (hang.gpu) {
        run->hangs = true;
        br_log(graph->log, BR_LOG_ERROR, hang.stage->name, "%s; watchdog_s allows %g s: the run ends",
               hang.text, graph->watchdog_s);
        abort_run(run);
    } else if (hang.since != run->warned) {
        run->warned = hang.since;
        br_log(graph->log, BR_LOG_WARNING, hang.stage->name, "%s; Ctrl-C twice ends the run without it",
               hang.text);
    }
}

/* Waits until the GPUs are done with what is enqueued, as long as the watchdog or an abort allows. */
static bool gpus_get_done(struct br_run *run)
{
    uint64_t begin = br_clock_ns();
    while (!br_watchdog_gpus_idle(run->graph)) {
        uint64_t now = br_clock_ns();
        if (run->aborted_ns != 0
                ? now - run->aborted_ns > GRACE_NS
                : run->graph->watchdog_s > 0 && (double)(now - begin) > run->graph->watchdog_s * 1e9)
            return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        ev_run(run->ev, EVRUN_NOWAIT); /* a second Ctrl-C counts here too */
    }
    return true;
}

static void on_interrupt(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)events;
    struct br_run *run = watcher->data;
    if (++run->signals == 1) {
        br_log(run->graph->log, BR_LOG_NOTE, NULL, "%s: stopping the sources and draining; once more aborts",
               strsignal(watcher->signum));
        br_pipeline_drain(run->graph);
    } else {
        br_log(run->graph->log, BR_LOG_WARNING, NULL, "%s again: aborting", strsignal(watcher->signum));
        abort_run(run);
    }
    if (run->signals > 2) ev_break(ev, EVBREAK_ALL);
}

void br_run_drain(struct br_run *run, const char *who)
{
    run->asked = true;
    br_log(run->graph->log, BR_LOG_NOTE, NULL, "%s: stopping the sources and draining", who);
    br_pipeline_drain(run->graph);
}

void br_run_abort(struct br_run *run, const char *who)
{
    run->asked = run->guest_aborted = true;
    br_log(run->graph->log, BR_LOG_WARNING, NULL, "%s: aborting", who);
    abort_run(run);
}

static void on_report(struct ev_loop *ev, ev_signal *watcher, int events)
{
    (void)ev, (void)events;
    struct br_run *run = watcher->data;
    struct br_run_times times = times_now(run);
    br_log_progress(run->graph->log, "");
    br_report_text(run->graph, &times, run->options->out);
    fflush(run->options->out);
}

static void wake_loop(void *arg)
{
    struct br_run *run = arg;
    ev_async_send(run->ev, &run->ended);
}

/* Another rank has failed: called by the thread that hears of it. */
static void rank_failed(void *arg)
{
    struct br_run *run = arg;
    br_pipeline_drain(run->graph);
    ev_async_send(run->ev, &run->ended);
}

/* From before the stages start: an interrupt while files are opened drains the pipeline as soon as it
 * runs. */
static void watch(struct br_run *run)
{
    struct sigaction before;
    ev_signal_init(&run->interrupt, on_interrupt, SIGINT);
    ev_signal_init(&run->terminate, on_interrupt, SIGTERM);
    ev_signal_init(&run->hangup, on_interrupt, SIGHUP);
    ev_signal_init(&run->report, on_report, SIGUSR1);
    ev_timer_init(&run->progress, on_progress, 0.25, 0.5);
    ev_timer_init(&run->stats, on_stats, 5, 5);
    ev_timer_init(&run->watchdog, on_watchdog, 0.25, 0.25);
    run->interrupt.data = run->terminate.data = run->hangup.data = run->report.data = run;
    run->progress.data = run->stats.data = run->watchdog.data = run;
    if (!run->graph->state->embedded) {
        ev_signal_start(run->ev, &run->interrupt);
        ev_signal_start(run->ev, &run->terminate);
        ev_signal_start(run->ev, &run->report);
    }
    /* A terminal that goes away drains the pipeline too, unless the user (nohup) said that it shall not
     * matter. */
    bool owned =
        run->graph->state->embedded || (run->options->guest != NULL && run->options->guest->owns_hangup);
    if (!owned && (sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN))
        ev_signal_start(run->ev, &run->hangup);
    ev_timer_start(run->ev, &run->watchdog);
    if (run->options->progress) ev_timer_start(run->ev, &run->progress);
    if (run->options->stats_path != NULL) ev_timer_start(run->ev, &run->stats);
}

static void stop_timers(struct br_run *run)
{
    ev_timer_stop(run->ev, &run->progress);
    ev_timer_stop(run->ev, &run->stats);
    ev_timer_stop(run->ev, &run->watchdog);
    br_log_progress(run->graph->log, "");
}

/* Only after the report has been printed: an interrupt while the run ends must not cost the balance. */
static void unwatch(struct br_run *run)
{
    fflush(run->options->out);
    stop_timers(run);
    ev_signal_stop(run->ev, &run->interrupt);
    ev_signal_stop(run->ev, &run->terminate);
    ev_signal_stop(run->ev, &run->hangup);
    ev_signal_stop(run->ev, &run->report);
}

/* The counters, the balance and the statistics file; returns the exit status. */
static int conclude(struct br_run *run, int status)
{
    const struct br_run_options *options = run->options;
    struct br_run_times times = times_now(run);
    if (options->report) br_report_text(run->graph, &times, options->out);
    if (!br_balance_ok(run->graph, options->errors != NULL ? options->errors : stderr)) status = 1;
    if (status == 0 && (run->signals == 1 || run->asked)) status = 130;
    if (options->stats != NULL) br_report_json(run->graph, &times, status, options->stats);
    if (options->stats_path != NULL && write_stats(run, status) != BR_OK) status = 1;
    return status;
}

/* Ends the process although threads, or kernels on a GPU, do not end: neither can be made to, and CUDA's
 * contexts cannot be torn down under them. Another program's process goes on without them. */
static int leave(struct br_run *run)
{
    br_pipeline_abort(run->graph);
    br_watchdog_leave(run->graph);
    run->graph->state->on_end = NULL;
    if (run->graph->state->embedded && run->options->guest != NULL)
        run->options->guest->end(run->options->guest->arg);
    conclude(run, 1);
    if (run->graph->state->embedded) return 1;
    fflush(NULL);
    _exit(1);
}

static void *start_pipeline(void *arg)
{
    struct starter *s = arg;
    s->status = br_pipeline_prepare(s->run->graph, &s->error);
    atomic_store(&s->done, true);
    wake_loop(s->run);
    return NULL;
}

/* Starts all stages while the loop runs. False: one of them hangs, and the run was told to end. */
static bool start_in_loop(struct br_run *run, struct starter *s)
{
    pthread_t thread;
    bool other = br_thread_start(&thread, start_pipeline, s) == 0;
    if (!other) start_pipeline(s);
    while (!atomic_load(&s->done)) {
        ev_run(run->ev, EVRUN_ONCE);
        bool late = run->aborted_ns != 0 && br_clock_ns() - run->aborted_ns > GRACE_NS;
        if (late && !run->graph->state->embedded && !atomic_load(&s->done)) return false;
    }
    if (other) pthread_join(thread, NULL);
    return true;
}

/* From the start of the stages to the end of their threads; returns the exit status. */
static int run_stages(struct br_run *run)
{
    static const struct br_run_guest nobody = {0};
    const struct br_run_guest *guest = run->options->guest != NULL ? run->options->guest : &nobody;
    struct br_graph *graph = run->graph;
    struct br_error error = {0};
    int status = 0;
    if (guest->begin != NULL) guest->begin(guest->arg, run, graph);
    struct starter starter = {.run = run};
    if (!start_in_loop(run, &starter)) return leave(run);
    if (starter.status == BR_OK) starter.status = br_pipeline_launch(graph, &starter.error);
    if (starter.status != BR_OK) {
        br_log(graph->log, BR_LOG_ERROR, NULL, "%s", starter.error.text);
        br_ranks_fail(graph->ranks, 1, starter.error.text);
        if (guest->end != NULL) guest->end(guest->arg);
        return 1;
    }
    if (guest->started != NULL) guest->started(guest->arg);
    br_ranks_on_failure(graph->ranks, rank_failed, run);
    ev_run(run->ev, 0);
    br_ranks_on_failure(graph->ranks, NULL, NULL);
    bool back = br_pipeline_ended(graph) && gpus_get_done(run);
    stop_timers(run);
    if (guest->ended != NULL) guest->ended(guest->arg);
    if (!back) return leave(run);
    if (br_pipeline_finish(graph, &error) != BR_OK || run->signals > 1 || run->hangs || run->guest_aborted)
        status = 1;
    if (status != 0) br_ranks_fail(graph->ranks, 1, error.text[0] != '\0' ? error.text : "it was aborted");
    if (br_ranks_failed(graph->ranks, &error)) status = 1;
    if (guest->end != NULL) guest->end(guest->arg);
    return conclude(run, status);
}

int br_pipeline_run(struct br_graph *graph, const struct br_run_options *options)
{
    struct br_run run = {.graph = graph, .options = options, .ev = options->ev, .stats_fd = -1};
    if (run.ev == NULL) run.ev = ev_default_loop(EVFLAG_AUTO);
    if (run.ev == NULL) {
        br_log(graph->log, BR_LOG_ERROR, NULL, "the event loop cannot be made: %s", strerror(errno));
        return 1;
    }
    /* A write past a file size limit or into a closed pipe shall be an error with a message, not the end
     * of the process. */
    if (!graph->state->embedded) signal(SIGXFSZ, SIG_IGN);
    if (!graph->state->embedded) signal(SIGPIPE, SIG_IGN);
    ev_async_init(&run.ended, on_stage_end);
    run.ended.data = &run;
    ev_async_start(run.ev, &run.ended);
    graph->state->on_end = wake_loop;
    graph->state->on_end_arg = &run;
    run.start_ns = br_clock_ns();
    watch(&run);
    bool writable = options->stats_path == NULL || write_stats(&run, -1) == BR_OK;
    int status = writable ? run_stages(&run) : 2; /* better now than after a night's recording */
    unwatch(&run);
    if (run.stats_fd >= 0) close(run.stats_fd);
    ev_async_stop(run.ev, &run.ended);
    graph->state->on_end = NULL;
    if (options->ev == NULL) ev_loop_destroy(run.ev);
    return status;
}
