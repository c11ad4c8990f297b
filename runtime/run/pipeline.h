/* pipeline.h - a graph that runs: one thread per stage from br_pipeline_start to br_pipeline_finish. */
#ifndef BEAMRING_RUNTIME_RUN_PIPELINE_H
#define BEAMRING_RUNTIME_RUN_PIPELINE_H

#include "runtime/run/state.h"

/* Turns a configuration into a graph with its state. The arguments and errors are those of br_graph_read and
 * br_graph_describe (runtime/graph/graph.h). */
int br_pipeline_build(struct br_graph **graph, struct br_config *config, struct br_log *log,
                      struct br_ranks *ranks, bool only_shown, struct br_error *error);

/* NULL is allowed. After br_pipeline_finish, if br_pipeline_start succeeded. */
void br_pipeline_destroy(struct br_graph *graph);

/* Reserves the queues' memory and calls every stage's start. That may take as long as a disk or a large
 * memory takes: any thread may do it, and others may look at the graph's counters meanwhile. On failure
 * everything that was started is stopped again. Errors: BR_E_NO_MEMORY (what was asked), or those of a
 * stage's start; the message names the stage. */
int br_pipeline_prepare(struct br_graph *graph, struct br_error *error);

/* Starts the threads of a pipeline that is prepared. Failures and errors as above. */
int br_pipeline_launch(struct br_graph *graph, struct br_error *error);

/* Both. */
int br_pipeline_start(struct br_graph *graph, struct br_error *error);

/* Keeps a thread that computes, and those that it creates from now on, off the processor that the threads of
 * GPU stages share; does nothing where processors are few. The pipeline must be prepared. */
void br_pipeline_keep_away(struct br_graph *graph, pthread_t thread);

/* Asks sources to end; what is in flight drains. Any thread, any number of times. */
void br_pipeline_drain(struct br_graph *graph);

/* Ends everything now: frames in flight are discarded (and counted). Any thread. */
void br_pipeline_abort(struct br_graph *graph);

/* True when every stage's thread has ended. */
bool br_pipeline_ended(const struct br_graph *graph);

/* Waits for the threads, calls every stage's stop. Returns BR_OK, or the failure that came first, whose
 * message names the stage. The graph's counters stay readable. */
int br_pipeline_finish(struct br_graph *graph, struct br_error *error);

/* Body of a stage's thread; `stage` is a struct br_stage. */
void *br_worker(void *stage);

/* --- report.c --- */

/* The words of BR_LOSSES: what a counter is called, and what it says to people. */
struct br_loss_words {
    const char *name, *text;
};
extern const struct br_loss_words br_losses[BR_LOSS_COUNT];

/* Base samples that the stage has lost so far for one reason. Any thread. */
uint64_t br_stage_lost(const struct br_stage *stage, enum br_loss reason);

/* The input and output of one stage, in base samples of its first input and first output. */
struct br_stage_totals {
    uint64_t in_frames, in_samples;                /* 0 for a source */
    uint64_t out_frames, out_samples, out_missing; /* 0 for a sink */
    uint64_t lost_samples, gained_samples; /* gained: see br_stage_count_gained */
    /* cpu_ns: processor time of its thread, and of the pool's for it; busy_ns: elapsed time in process */
    uint64_t busy_ns, cpu_ns, wait_in_ns, wait_out_ns, saturated, calls;
    double gpu_ns_per_call; /* mean of the sampled calls; 0 on the CPU */
};
void br_stage_get_totals(const struct br_stage *stage, struct br_stage_totals *totals);

/* True if every sample is accounted for: for each reader of each queue published = delivered + dropped +
 * discarded, for each stage that has taken all of its input in + gained = out + lost. Writes one line per
 * disagreement to `out` (may be NULL). Call after br_pipeline_finish. */
bool br_balance_ok(const struct br_graph *graph, FILE *out);

struct br_run_times {
    double wall_s;   /* elapsed */
    double stream_s; /* telescope time that left the sources: the longest of them */
};
struct br_run_times br_run_times(const struct br_graph *graph, uint64_t start_ns, uint64_t now_ns);

/* The counters as tables and the balance, for people. */
void br_report_text(const struct br_graph *graph, const struct br_run_times *times, FILE *out);

/* The same as JSON, for programs; `exit_status` < 0 while running. */
void br_report_json(const struct br_graph *graph, const struct br_run_times *times, int exit_status,
                    FILE *out);

/* One line for a terminal: position, real-time factor, missing, lost, fill of the queues. */
void br_report_progress(const struct br_graph *graph, const struct br_run_times *times, char *text,
                        size_t size);

/* --- loop.c --- */

struct ev_loop;
struct br_run; /* a pipeline in its loop */

/* Who else lives in the loop while a pipeline runs: the control interface. All are called by the loop's
 * thread; each may be NULL. */
struct br_run_guest {
    void *arg;
    void (*begin)(void *arg, struct br_run *run, struct br_graph *graph); /* before stages are started */
    void (*started)(void *arg);                                           /* all threads run */
    void (*ended)(void *arg); /* all threads have ended; stages are stopped next: nobody may ask them more */
    void (*end)(void *arg);   /* all threads have ended, or there were none; the counters are there still */
    bool owns_hangup;         /* SIGHUP is the guest's; else it is an interrupt like the others */
};

struct br_run_options {
    struct ev_loop *ev;               /* NULL: one that is made for this run */
    const struct br_run_guest *guest; /* may be NULL */
    bool progress;                    /* show the progress line */
    bool report;                      /* print counters and balance at the end */
    const char *stats_path; /* where the JSON goes, every few seconds and at the end; NULL: nowhere */
    FILE *out;              /* for the report */
    FILE *errors;           /* for what is wrong with the balance; NULL: stderr */
    FILE *stats;            /* where the JSON goes at the end, beside stats_path; NULL: nowhere */
};

/* Starts the graph, watches signals (first SIGINT, SIGTERM or SIGHUP drains, second aborts; SIGUSR1 prints
 * the counters), and finishes it. Returns the program's exit status: 0, 1 or 130. */
int br_pipeline_run(struct br_graph *graph, const struct br_run_options *options);

/* For guests: like the first interrupt, and like the second. `who` asks for it, for the log. */
void br_run_drain(struct br_run *run, const char *who);
void br_run_abort(struct br_run *run, const char *who);

/* --- reference.c --- */

/* A stage's description from its descriptor: for a terminal, or as Markdown for the stage reference. */
void br_reference_print(const struct br_stage_type *type, bool markdown, FILE *out);

#endif
