/* stage.h - the plugin interface: the descriptor of a stage, and the functions of the runtime that most
 * stages need. Others are in stage_updates.h (new values while a stage runs), stage_history.h (past frames),
 * stage_feed.h (a source that feeds a GPU) and ranks.h (the same stage on other ranks).
 *
 * A plugin is a shared object NAME.so that exports one symbol, `beamring_stage`, of type struct br_stage_type
 * (use BR_STAGE_EXPORT). The runtime owns threads, waiting, queues, metrics and shutdown. A stage owns its
 * struct and what `start` opened. The runtime allocates the struct (`size` bytes, zeroed), fills in the
 * parameters and calls, in this order:
 *
 *   configure  main thread   Derives output stream descriptions from those of the inputs. Checks all that can
 *                            be checked; opens nothing that has side effects. `beamring check` stops
 *                            after configure and memory.
 *   memory     main thread   States what start will reserve. May be NULL.
 *   start      start thread  Allocates and opens files. No data flows yet. The start thread exists only for
 *                            this, so that the main thread answers requests meanwhile. May be NULL.
 *   process    stage thread  Called repeatedly, see below. In the steady state it must not allocate. It may
 *                            sleep only in br_stage_sleep_until.
 *   stop       main thread   Called after the thread has ended; closes and frees what start made. Called
 *                            whenever start was called, even if start failed. If stop fails (a file cannot be
 *                            completed), the run fails. May be NULL.
 *
 * PROCESS. `io->in[i]` is the current frame of input i, or NULL once that input has ended. `io->out[i]` is an
 * empty frame of output i. The return value is an OR of these bits:
 *   BR_CONSUMED   process is done with the input frames: the next call brings the next ones
 *   BR_PRODUCED   the output frames are filled in (data, first, samples, validity): the next call brings
 *                 empty ones
 *   BR_FINISHED   a source has no more data, or a stage wants no more input: process is not called again
 * After BR_CONSUMED alone ("more input is needed") the same output frame comes back with what was written so
 * far. After BR_PRODUCED alone the same input comes back. Returning 0 is an error unless the stage is a
 * source that slept. When all inputs have ended, process is called with all in[] NULL (draining) until it
 * returns BR_FINISHED, or a value without BR_PRODUCED. To fail the run, process calls br_stage_fail and
 * returns the negative br_status. The runtime presets `first` and `samples` of a new output frame from in[0].
 * A stage that maps frames one to one leaves them as they are; a stage that fills an output frame from
 * several inputs sets them. Frames must be consecutive and not longer than configured, else the run fails. If
 * a source continues although br_stage_stopping() returns true, the runtime ends it two calls later. All
 * inputs of a stage must have the same frame boundaries (checked after configure). After a loss (a dropping
 * reader was too slow) in->first jumps; a stage that keeps history treats the hole as missing input.
 *
 * GPU. A stage with BR_STAGE_CUDA runs on the GPU that `device:` names; with `auto` it runs on the first GPU,
 * if any. br_stage_device() returns the GPU's number, or -1 for the CPU. On a GPU, `data` and `side` of the
 * stage's frames are memory of that device; `valid` is always host memory. process enqueues its work on
 * br_stage_stream() and returns without waiting. The runtime orders the streams of neighbours by events and
 * inserts copies between stages whose frames are in different memory. Output validity depends only on input
 * validity, so process writes out->valid, first and samples at once, as on the CPU. The device is current in
 * start, process and stop.
 *
 * UPDATES. `updates` names the parameters of which a stage accepts new values while it runs. For an update
 * the runtime makes a second struct, fills in its parameters as if the pipeline file had contained the new
 * values, and calls configure for it, so that new values pass the same checks. Then it calls:
 *
 *   prepare   not the stage's thread   Allocates and uploads what the new values need. May refuse them.
 *   commit    stage's thread           Exchanges pointers; the new values hold from now on. Cannot fail.
 *   discard   not the stage's thread   Frees what commit left in the second struct (the old values) or, if
 *                                      the new values never held, what prepare made.
 *
 * The runtime commits before the first frame that begins at or after the sample from which the values shall
 * hold. A stage with BR_STAGE_COMMITS commits by itself, within a frame: process asks br_stage_next_update
 * for the sample, works up to it and calls br_stage_update. A source with updates must do so, because only
 * the source knows which samples it is about to make. The sample alone decides where values change, on all
 * nodes and in all stages: a stage that makes blocks of samples commits at the first output that begins at or
 * after it. In configure, prepare and discard of an update, `stage` is a copy of the stage that runs.
 *
 * ERRORS. br_stage_fail(stage, status, ...) records the message, puts the stage's name before it and returns
 * `status`. In configure, br_stage_fail_at(stage, "factor", ...) adds file:line:column of that parameter. */
#ifndef BEAMRING_RUNTIME_STAGE_H
#define BEAMRING_RUNTIME_STAGE_H

#include "buffers/frame.h"
#include "buffers/hints.h"
#include "buffers/rows.h"
#include "runtime/param.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BR_ABI_VERSION 3u

enum { BR_CONSUMED = 1, BR_PRODUCED = 2, BR_FINISHED = 4 };

enum { BR_MAX_PORTS = 4 };

struct br_stage; /* the runtime's part of a stage; opaque */

struct br_io {
    const struct br_frame *in[BR_MAX_PORTS];
    struct br_frame *out[BR_MAX_PORTS];
};

struct br_port {
    const char *name; /* NULL ends the list */
    const char *help; /* its data: "E[time][freq][pol][dish], int4x2" */
};

enum br_stage_flags {
    BR_STAGE_CUDA = 2, /* the stage can run on a GPU, see GPU above */
    /* The pipeline file may omit outputs from the end of the list, except the first one: br_stage_output and
     * io->out[] are NULL for them. */
    BR_STAGE_OPTIONAL_OUTPUTS = 4,
    /* The stage reads past frames. For every input the pipeline file sets how much is kept: `in: {from: E,
     * history: {seconds: 30}}`; see runtime/stage_history.h. On the CPU only. */
    BR_STAGE_HISTORY = 8,
    BR_STAGE_COMMITS = 16 /* process applies updates itself, see UPDATES above and runtime/stage_updates.h */
};

/* The memory that a stage holds from start to stop, in bytes, without its parameters and its queues. */
struct br_memory {
    size_t host;   /* pageable memory */
    size_t locked; /* host memory locked for a GPU */
    size_t device; /* memory of the GPU on which the stage runs */
};

/* GROWTH. Within one ABI version this struct only grows at its end, and no other struct of the installed
 * headers changes. `type_size` is the size of the plugin's descriptor. Fields beyond it read as zero, so that
 * a plugin built against older headers still works. A plugin built against newer headers works if all fields
 * that this beamring does not know are zero; otherwise it is refused. New fields go to the end; zero must
 * mean "as before". */
struct br_stage_type {
    uint32_t abi_version;    /* BR_ABI_VERSION; the first field, so that any version can be recognised */
    uint32_t type_size;      /* sizeof(struct br_stage_type) */
    const char *name;        /* NAME in `stage: NAME` and in NAME.so */
    const char *summary;     /* one line */
    const char *description; /* paragraphs of Markdown for the stage reference; may be NULL */
    const struct br_param *params; /* the last one has name = NULL; may be NULL */
    const struct br_port *inputs;  /* NULL: a source */
    const struct br_port *outputs; /* NULL: a sink */
    uint32_t flags;
    size_t size; /* of the stage's own struct */
    int (*configure)(struct br_stage *stage, void *self);
    int (*start)(struct br_stage *stage, void *self);
    int (*process)(struct br_stage *stage, void *self, const struct br_io *io);
    int (*stop)(struct br_stage *stage, void *self);

    /* States what `start` will reserve, for `beamring check` and the statistics: large memory, such as
     * tables, plans and buffers. Called after configure, when the device of the stage is known. It must not
     * reserve anything. NULL: the stage reserves little. */
    void (*memory)(struct br_stage *stage, void *self, struct br_memory *memory);

    /* Answers requests of operators over the control interface. `what` names the request, `text` is its body.
     * The body of "dump" (POST /v1/dump), "cancel" (POST /v1/dump/cancel) and "baseband" (POST /baseband) is
     * a JSON object. The body of "dumps" (GET /v1/dumps, answered with a list), "baseband_status" (GET
     * /baseband) and "injections" (GET /v1/injections, answered with a list) is an event's id or "". A stage
     * with BR_STAGE_HISTORY is asked for dumps, any other one for injections. Called between start and
     * stop, while process runs, by another thread. It must not wait for anything, in particular not for a
     * disk. Returns the HTTP status (200, 202, 400, ...); *reply receives JSON from malloc, which the
     * runtime frees. NULL: no requests. */
    int (*request)(struct br_stage *stage, void *self, const char *what, const char *text, char **reply);

    /* Names of the parameters that may be updated while the stage runs, with NULL at the end; NULL: none. A
     * stage with updates must have commit; it needs prepare and discard only if an update allocates. `fresh`
     * is the second struct, configured. Memory it points to (lists, br_stage_alloc) lives until later values
     * have been committed. commit receives the struct that runs (`self`) and `fresh`; the new values hold
     * from `sample` on. prepare may read those parts of `self` that neither process nor commit changes. On a
     * GPU, work enqueued before commit uses the old values: discard is called when that work is done. */
    const char *const *updates;
    int (*prepare)(struct br_stage *stage, void *fresh, const void *self);
    void (*commit)(struct br_stage *stage, void *self, void *fresh, uint64_t sample);
    void (*discard)(struct br_stage *stage, void *fresh);

    /* For a plugin whose parameters, ports and callbacks depend on what it runs, such as a script. Called
     * before configure, when the parameters of this descriptor have been filled in `self`; the stage may have
     * other keys. *type receives the descriptor that holds for this stage (br_stage_alloc): its schema must
     * contain the parameters of this one. NULL: this descriptor holds. Errors: br_stage_fail_at. */
    int (*specialize)(struct br_stage *stage, const void *self, const struct br_stage_type **type);
};

#define BR_STAGE_EXPORT __attribute__((visibility("default"))) const struct br_stage_type beamring_stage

/* --- for configure --- */

/* The complete description of input i. */
BR_API const struct br_stream *br_stage_input(const struct br_stage *stage, unsigned i);

/* In start and later: the description of the i-th queue behind the stage: of its readers' outputs, of their
 * readers' outputs, and so on, in the order of the data. *name receives the name of the stage that fills
 * it. NULL: there are fewer. */
BR_API const struct br_stream *br_stage_downstream(const struct br_stage *stage, size_t i, const char **name);

/* The sideband of input 0, for a stage whose directions, phases or fine-channel frequencies depend on it. If
 * it is unknown, returns the upper one; a note, once for all stages, tells the user how to set it. */
BR_API enum br_sideband br_stage_sideband(struct br_stage *stage);

/* The description of output i, which configure fills in. It starts as a copy of input 0; for a source,
 * with the pipeline's telescope and defaults (nzones = 0, scale = 1). After configure the runtime checks it
 * (br_stream_check). */
BR_API struct br_stream *br_stage_output(struct br_stage *stage, unsigned i);

/* Sets the number of slots of output i's queue, unless the user sets it; the default is 4. */
BR_API void br_stage_suggest_depth(struct br_stage *stage, unsigned i, unsigned depth);

/* The pipeline's `telescope:`, or NULL. */
BR_API const struct br_telescope *br_stage_telescope(const struct br_stage *stage);

/* The pipeline's `stream:`. */
BR_API const struct br_stream_hints *br_stage_hints(const struct br_stage *stage);

/* True if the user wrote the parameter; false if its default is used. */
BR_API bool br_stage_given(const struct br_stage *stage, const char *param);

/* Zeroed memory that lives as long as the pipeline, for descriptions made in configure. Never fails: without
 * memory the program ends with a message, since no data flows yet. */
BR_API void *br_stage_alloc(struct br_stage *stage, size_t bytes);

/* Declares that the stage will read the file `path`, or write files DIRECTORY/PREFIX<number>SUFFIX; the
 * parameter `param` gives the names. It is an error if one stage would write files that another one reads or
 * writes, or if a file is in the place of a directory. Returns BR_OK or the error's status. */
BR_API int br_stage_reads_file(struct br_stage *stage, const char *param, const char *path);
BR_API int br_stage_writes_files(struct br_stage *stage, const char *param, const char *directory,
                                 const char *prefix, const char *suffix);

/* Declares that the stage cannot do its task on a GPU. The text is the reason: "on a GPU the grid must be
 * ...". With `device: auto` the stage then runs on the CPU, and a note tells the user. If the user chose a
 * GPU, it is an error. Returns BR_OK or the error's status. */
BR_API int br_stage_decline_gpu(struct br_stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- for every callback --- */

/* The stage's `name` in the pipeline file; lives as long as the pipeline. */
BR_API const char *br_stage_name(const struct br_stage *stage);

/* Unix time in ns at which the pipeline file was read; the same for all stages of a process. */
BR_API int64_t br_stage_run_ns(const struct br_stage *stage);

/* The GPU on which the stage runs, or -1 for the CPU. In configure, before any br_stage_decline_gpu: where it
 * would run. */
BR_API int br_stage_device(const struct br_stage *stage);

/* The stage's own cudaStream_t; NULL on the CPU and in configure. */
BR_API void *br_stage_stream(const struct br_stage *stage);

/* Copies or sets rows of `width` bytes, which are a pitch (in bytes) apart, in the memory of the stage's
 * frames: at once on the CPU, in order with its stream on a GPU. Rows must not overlap. Returns a status. */
BR_API int br_stage_copy_rows(struct br_stage *stage, void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t rows);
/* `n` such copies in one go, on a GPU in a launch for each 32; none reads what another one writes. There they
 * leave most of the GPU to what runs beside them, such as a transfer between GPUs. */
BR_API int br_stage_copy_all(struct br_stage *stage, const struct br_rows *rows, unsigned n);
BR_API int br_stage_set_rows(struct br_stage *stage, void *to, size_t pitch, int byte, size_t width,
                             size_t rows);

/* For a stage that changes few samples, once for each frame: gives output 0's frame the data of input 0's. If
 * no other stage reads the input, and both are in the same kind of memory, the frames exchange their memory;
 * otherwise the data are copied. The input's data must not be used afterwards. The streams must have frames
 * of the same size, without a side array. Returns a status. */
BR_API int br_stage_pass(struct br_stage *stage, const struct br_frame *in, struct br_frame *out);

/* Copies between host memory and the memory of the stage's frames, and waits for the copy. Only for rare
 * events, such as the end of a stream. Returns a status. */
BR_API int br_stage_exchange(struct br_stage *stage, void *to, const void *from, size_t bytes);

/* Records a failure of the stage, with a printf-like message, and returns `status`: see ERRORS above.
 * br_stage_fail_at, in configure only, names the position of `param` in the pipeline file and returns
 * BR_E_INVALID. */
BR_API int br_stage_fail(struct br_stage *stage, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
BR_API int br_stage_fail_at(struct br_stage *stage, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* In configure: reports what prevents a run but not the display of the pipeline, such as an output file that
 * exists. `run` fails as with br_stage_fail_at, with status 1 if the file has no mistakes; `check` and
 * `graph` log a warning and continue: BR_OK. */
BR_API int br_stage_fail_run_at(struct br_stage *stage, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Log messages for people; `beamring run` prints notes and warnings with the stage's name. */
BR_API void br_stage_note(struct br_stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
BR_API void br_stage_warn(struct br_stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reports a present problem to the operator: "source 3 has sent nothing for 2 s". The status of the node
 * shows it until the next call replaces it, or removes it (NULL). Copies the first 239 characters of the
 * text. For start and for the stage's own thread. */
BR_API void br_stage_trouble(struct br_stage *stage, const char *text);

/* Declares what process waits for from now on, as the end of "it waits for ...": "the disk"; NULL: it does
 * not wait. `what` is not copied and must live as long as the pipeline: a constant, or from br_stage_alloc.
 * The status of the node shows it if this stage delays the others. */
BR_API void br_stage_waits_for(struct br_stage *stage, const char *what);

/* Reports the memory that the stage actually holds, for the statistics; NULL: none any more. For start and
 * stop. */
BR_API void br_stage_holds(struct br_stage *stage, const struct br_memory *memory);

/* --- for process --- */

/* ALL CORES. A stage on the CPU divides its work into jobs, by channels or by time, so that results are
 * bit-identical for any number of threads. br_stage_parallel calls work(arg, job, worker) once for each job
 * from 0 to jobs - 1 (fewer than 2^32), in any order, on the stage's thread and on free threads of the
 * pipeline (`threads:`), and returns when all are done. Stages that run jobs at the same time share the
 * threads. `worker` < br_stage_threads is the number of a set of scratch memory: concurrent calls have
 * different numbers. A job must not wait for another job. It must not begin jobs: that is an error, which
 * fails the run. It must not call any function of stage.h. br_stage_parallel may be called in start, process
 * and stop, by the thread that runs them. It does not allocate. Returns a status. */
typedef void br_stage_work(void *arg, size_t job, unsigned worker);
BR_API unsigned br_stage_threads(const struct br_stage *stage);
BR_API int br_stage_parallel(struct br_stage *stage, size_t jobs, br_stage_work *work, void *arg);

/* The same in steps, for a stage that does something else meanwhile or that begins work for the next call of
 * process; it must end the jobs in stop at the latest. _begin begins the jobs, with at most `most` threads
 * (0: all). _add adds `more` jobs, whose numbers follow those of the jobs begun. _end does the remaining jobs
 * and returns when all are done. */
BR_API int br_stage_parallel_begin(struct br_stage *stage, unsigned most, size_t jobs, br_stage_work *work,
                                   void *arg);
BR_API int br_stage_parallel_add(struct br_stage *stage, size_t more);
BR_API int br_stage_parallel_end(struct br_stage *stage);

/* Counts output values that were clamped. For the stage's own thread. */
BR_API void br_stage_count_saturated(struct br_stage *stage, uint64_t values);

/* A counter of the stage's own, such as the late packets of a source: {"source 3", "late"}. The statistics,
 * the control interface and the metrics show it. Use short words; counters with the same `of` must be
 * adjacent. */
struct br_counter {
    const char *of, *what;
};

/* In configure: declares the stage's counters, all 0. The array is not copied and must live as long as the
 * pipeline: a constant, or from br_stage_alloc. */
BR_API void br_stage_has_counters(struct br_stage *stage, const struct br_counter *counters, size_t count);

/* Sets counter i to `value`. A smaller value than before is ignored, because counters never decrease. From
 * start to the end of stop, one thread at a time. */
BR_API void br_stage_count(struct br_stage *stage, size_t i, uint64_t value);

/* Reasons why a stage does not pass on base samples that it took in: X(NAME, name, text). `name` is the
 * counter's name in statistics and metrics; `text` is for people. New reasons go to the end, because their
 * numbers are part of the ABI. */
#define BR_LOSSES(X)                                                                                         \
    X(OTHER, "other", "for a reason that this beamring does not know")                                       \
    X(LATE, "late", "they arrived after their frame had been published")                                     \
    X(DUPLICATE, "duplicate", "they had arrived before")                                                     \
    X(MALFORMED, "malformed", "their message was not what its format demands")                               \
    X(CORRUPT, "corrupt", "their data were marked or found to be corrupt")                                   \
    X(NO_DESTINATION, "no_destination", "a destination was not there")                                       \
    X(NOT_SENT, "not_sent", "they could not be sent in time")                                                \
    X(NO_FRAME, "no_frame", "no frame was free for them: a later stage is too slow")                         \
    X(NOT_ACKNOWLEDGED, "not_acknowledged", "a destination was sent them and has not acknowledged them")

enum br_loss {
#define BR_LOSS_NUMBER(NAME, name, text) BR_LOST_##NAME,
    BR_LOSSES(BR_LOSS_NUMBER)
#undef BR_LOSS_NUMBER
        BR_LOSS_COUNT
};

/* Counts `samples` base samples that the stage took in and does not pass on. They enter the balance:
 * in = out + lost. A reason that this beamring does not know counts as BR_LOST_OTHER. */
BR_API void br_stage_count_lost(struct br_stage *stage, enum br_loss reason, uint64_t samples);

/* Lends a frame beyond io->out[output], for a stage that fills several frames at a time: the frame that will
 * be io->out[output] after the `ahead`-th BR_PRODUCED from now on (1 to 8). NULL if readers hold all slots.
 * Ask for 1 before 2. The frame keeps what is written into it. The queue must be deep enough
 * (br_stage_suggest_depth). */
BR_API struct br_frame *br_stage_lend_ahead(struct br_stage *stage, unsigned output, unsigned ahead);

/* True once the pipeline asks sources to end (interrupt, failure elsewhere); then return BR_FINISHED soon. */
BR_API bool br_stage_stopping(const struct br_stage *stage);

/* Sleeps until CLOCK_MONOTONIC reaches `ns` or the pipeline stops; returns true if the pipeline stops. */
BR_API bool br_stage_sleep_until(struct br_stage *stage, uint64_t ns);

#ifdef __cplusplus
}
#endif
#endif
