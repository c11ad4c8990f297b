/* stage.h - the plugin interface: all that a stage may use of the runtime.
 *
 * A plugin is a shared object NAME.so that exports one symbol, `beamring_stage`, of type struct
 * br_stage_type (use BR_STAGE_EXPORT). The runtime owns threads, waiting, queues, metrics and shutdown; a
 * stage owns its struct and what `start` opened. The runtime allocates the struct (`size` bytes, zeroed),
 * fills in the parameters, and calls, in order:
 *
 *   configure  main thread   input stream descriptions -> output stream descriptions. Checks everything that
 *                            can be checked; opens nothing that has side effects. `beamring check` goes no
 *                            further.
 *   memory     main thread   says what start will reserve. May be NULL.
 *   start      main thread   allocates, opens files. No data yet. May be NULL.
 *   process    stage thread  again and again, see below. Must not allocate in the steady state, must not
 *                            sleep but in br_stage_sleep_until.
 *   stop       main thread   after the thread ended; closes and frees what start made. Called whenever start
 *                            was, even if it failed. Its failure (a file that cannot be completed) fails the
 *                            run. May be NULL.
 *
 * PROCESS. `io->in[i]` is the current frame of each input, or NULL once that input has ended; `io->out[i]`
 * an empty frame of each output. The return value says what happened, or'ed together:
 *   BR_CONSUMED   done with the input frame(s): the next call brings the next one
 *   BR_PRODUCED   the output frames are filled in (data, first, samples, validity): the next call brings
 *                 empty ones
 *   BR_FINISHED   a source has no more data (or a stage wants no more input); process is not called again
 * Neither bit alone is an error: returning only BR_CONSUMED means "needs more input first", and the same
 * output frame comes back with what was written so far; returning only BR_PRODUCED brings the same input
 * again. Returning 0 is an error unless the stage is a source that slept. When all inputs have ended,
 * process is called with in[] all NULL (draining) until it returns BR_FINISHED, or without BR_PRODUCED. A
 * negative br_status, with a message in br_stage_fail, fails the run. The runtime presets first and
 * samples of a fresh output frame from in[0], so that a stage that maps frames one to one leaves them; a
 * stage that holds an output frame over several inputs sets them. Frames follow one another and are no
 * longer than configured: what breaks that fails the run. A source that goes on when
 * br_stage_stopping() says to end is ended by the runtime two calls later. All inputs of a stage with
 * several must advance together: same frame boundaries (checked when configured). After a loss (a dropping
 * reader that was too slow) in->first jumps; a stage that keeps history treats the hole as missing input.
 *
 * GPU. A stage with BR_STAGE_CUDA runs on the GPU that `device:` names, or with `auto` on the first one if
 * there is any; br_stage_device() says which, and -1 is the CPU. On a GPU, `data` and `side` of its frames
 * are memory of that device, and `valid` is host memory as ever. process enqueues its work on
 * br_stage_stream() and returns without waiting; the runtime orders the streams of neighbours by events
 * and inserts copies where neighbours live in different memory. What validity follows from is validity
 * alone, so process writes out->valid, first and samples at once, like on the CPU. The device is current
 * in start, process and stop.
 *
 * UPDATES. A stage that can take new values of some parameters while it runs names these (`updates`). For
 * an update the runtime makes a second struct, fills in the parameters as if the pipeline file had always
 * said so, and calls configure for it, so that new values pass the same checks; then
 *
 *   prepare   not the stage's thread   allocates what the new values need, uploads it. May refuse them.
 *   commit    stage's thread           from here on they hold. Exchanges pointers, cannot fail.
 *   discard   not the stage's thread   frees what commit left in the second struct (the old values), or what
 *                                      prepare made, where the new ones never held.
 *
 * The runtime commits before the first frame that begins at or after the sample from which the values
 * shall hold. A stage with BR_STAGE_COMMITS does it itself, within a frame: process asks
 * br_stage_next_update for the sample, works up to there, and calls br_stage_update. A source with updates
 * must do so: it alone knows which samples it is about to make. Between nodes and stages nothing but the
 * sample decides: a stage that makes blocks of samples commits at the first output that begins at or after
 * it. In configure, prepare and discard of an update `stage` is not the one that runs, but one like it.
 *
 * ERRORS. br_stage_fail(stage, status, ...) records the message (the stage's name is put before it) and
 * returns status. In configure, br_stage_fail_at(stage, "factor", ...) adds file:line:column of that
 * parameter. */
#ifndef BEAMRING_RUNTIME_STAGE_H
#define BEAMRING_RUNTIME_STAGE_H

#include "buffers/frame.h"
#include "runtime/param.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BR_ABI_VERSION 2u

enum { BR_CONSUMED = 1, BR_PRODUCED = 2, BR_FINISHED = 4 };

enum { BR_MAX_PORTS = 4 };

struct br_stage; /* the runtime's side of a stage; opaque */

struct br_io {
    const struct br_frame *in[BR_MAX_PORTS];
    struct br_frame *out[BR_MAX_PORTS];
};

struct br_port {
    const char *name; /* NULL ends the list */
    const char *help; /* what it carries: "E[time][freq][pol][dish], int4x2" */
};

enum br_stage_flags {
    BR_STAGE_CUDA = 2, /* it can run on a GPU, see GPU above */
    /* Outputs but the first may be left out in the pipeline file, the last ones first: then br_stage_output
     * and io->out[] are NULL for them. */
    BR_STAGE_OPTIONAL_OUTPUTS = 4,
    /* It looks at frames that have passed: the pipeline file says for every input how much is kept, `in:
     * {from: E, history: {seconds: 30}}`; see "what has passed" below. On the CPU only. */
    BR_STAGE_HISTORY = 8,
    BR_STAGE_COMMITS = 16 /* process applies updates itself, see UPDATES above */
};

/* What a stage holds from start to stop besides its parameters and what the queues reserve, in bytes. */
struct br_memory {
    size_t host;   /* pageable memory */
    size_t locked; /* host memory that is locked for a GPU */
    size_t device; /* memory of the GPU on which the stage runs */
};

/* GROWTH. Within one ABI version this struct only grows at its end, and no other struct of the installed
 * headers changes. `type_size` says how far a plugin's descriptor reaches: what lies beyond reads as zero,
 * so that a plugin built against older headers goes on working. A plugin built against newer headers works
 * where what this beamring does not know is zero, and is refused otherwise. New fields go to the end; zero
 * must mean "as before". */
struct br_stage_type {
    uint32_t abi_version;          /* BR_ABI_VERSION: first, so that any other version can be recognised */
    uint32_t type_size;            /* sizeof(struct br_stage_type) */
    const char *name;              /* as in `stage: NAME`; also the file's name */
    const char *summary;           /* one line */
    const char *description;       /* paragraphs of Markdown for the stage reference; may be NULL */
    const struct br_param *params; /* ends with name = NULL; may be NULL */
    const struct br_port *inputs;  /* NULL: a source */
    const struct br_port *outputs; /* NULL: a sink */
    uint32_t flags;
    size_t size; /* of the stage's own struct */
    int (*configure)(struct br_stage *stage, void *self);
    int (*start)(struct br_stage *stage, void *self);
    int (*process)(struct br_stage *stage, void *self, const struct br_io *io);
    int (*stop)(struct br_stage *stage, void *self);

    /* Says what `start` is going to reserve, for `beamring check` and the statistics: memory of some size,
     * such as tables, plans and buffers. Called after configure, when it is settled where the stage runs;
     * it must not reserve anything. NULL: nothing worth mentioning. */
    void (*memory)(struct br_stage *stage, void *self, struct br_memory *memory);

    /* Answers what operators ask of the stage over the control interface; `what` says which request it is and
     * `text` is its body: "dump" (POST /v1/dump), "cancel" (POST /v1/dump/cancel), "baseband" (POST
     * /baseband), JSON objects; "dumps" (GET /v1/dumps, a list as the answer) and "baseband_status" (GET
     * /baseband), the number of an event or "". Called between start and stop by another thread than process,
     * while process runs; it must not wait for anything, a disk least of all. Returns the code of the HTTP
     * answer (200, 202, 400, ...); *reply receives JSON from malloc, which the runtime frees. NULL: the stage
     * answers none. */
    int (*request)(struct br_stage *stage, void *self, const char *what, const char *text, char **reply);

    /* Names of parameters that may be updated while the stage runs, NULL at the end; NULL: none. With them
     * commit, and prepare and discard where something is to be made. `fresh` is the second struct,
     * configured; what it points to (lists, br_stage_alloc) lives until values that come after it have
     * been committed. commit is called with the struct that runs and with `fresh`; `sample` is where the
     * new values hold from. prepare may read of the struct that runs (`self`) what neither process nor
     * commit changes. On a GPU what is enqueued before commit uses the old values: discard is called when
     * that is done. */
    const char *const *updates;
    int (*prepare)(struct br_stage *stage, void *fresh, const void *self);
    void (*commit)(struct br_stage *stage, void *self, void *fresh, uint64_t sample);
    void (*discard)(struct br_stage *stage, void *fresh);
};

#define BR_STAGE_EXPORT __attribute__((visibility("default"))) const struct br_stage_type beamring_stage

/* --- for configure --- */

/* Description of input i. Complete. */
BR_API const struct br_stream *br_stage_input(const struct br_stage *stage, unsigned i);

/* The sideband of input 0, for a stage whose results depend on it: directions, phases, frequencies of fine
 * channels. Unknown: upper, and the user is told once for all stages, and how to say it. */
BR_API enum br_sideband br_stage_sideband(struct br_stage *stage);

/* Description of output i, for configure to fill in. It starts as a copy of input 0, or for a source with
 * the telescope of the pipeline and defaults (nzones = 0, scale = 1). The runtime checks it afterwards
 * (br_stream_check). */
BR_API struct br_stream *br_stage_output(struct br_stage *stage, unsigned i);

/* Number of slots wanted for output i's queue unless the user says otherwise; the default is 4. */
BR_API void br_stage_suggest_depth(struct br_stage *stage, unsigned i, unsigned depth);

/* The pipeline's `telescope:`, or NULL. */
BR_API const struct br_telescope *br_stage_telescope(const struct br_stage *stage);

/* The keys of `stream:` that may go before what a recording says: bits of br_stream_hints.override. */
enum br_hint {
    BR_HINT_EPOCH = 1,
    BR_HINT_SAMPLE = 2,
    BR_HINT_FREQ = 4,
    BR_HINT_WIDTH = 8,
    BR_HINT_CODING = 16,
    BR_HINT_ORDER = 32,
    BR_HINT_SIDEBAND = 64
};

/* What the pipeline's `stream:` supplies; absent fields are 0, NULL, {0, 0} or have_x = false. Only
 * sources look at it. What a recording says itself goes before it, but for the keys in `override`. */
struct br_stream_hints {
    bool have_epoch;
    int64_t epoch_ns;
    struct br_rational sample_ns;
    size_t nfreq;
    const double *freq_mhz;
    double width_mhz; /* 0: not given */
    bool have_sample0;
    uint64_t sample0;
    unsigned npol;      /* 0: not given */
    const char *coding; /* "int4x2", "chime", "vdif" or NULL */
    const char *order;  /* of the axes of a DADA file of others (ORDER), or NULL */
    unsigned override;  /* bits of enum br_hint */
    enum br_sideband sideband; /* unknown: not given */
};
BR_API const struct br_stream_hints *br_stage_hints(const struct br_stage *stage);

/* True when the user wrote the parameter (rather than its default being used). */
BR_API bool br_stage_given(const struct br_stage *stage, const char *param);

/* Zeroed memory that lives as long as the pipeline. For descriptions made in configure; never fails (a
 * failed allocation ends the program with a message: no data flows yet). */
BR_API void *br_stage_alloc(struct br_stage *stage, size_t bytes);

/* Says that the stage will read the file `path`, or write files DIRECTORY/PREFIX<number>SUFFIX: names that
 * the parameter `param` gives. What one stage would write and another one reads or writes too is an error,
 * and so is a file where a directory is wanted: then returns it. */
BR_API int br_stage_reads_file(struct br_stage *stage, const char *param, const char *path);
BR_API int br_stage_writes_files(struct br_stage *stage, const char *param, const char *directory,
                                 const char *prefix, const char *suffix);

/* This stage cannot do what it is asked to on a GPU, for a reason that ends a sentence: "on a GPU the grid
 * must be ...". Where the user left the choice (`auto`) it runs on the CPU and the user is told; where
 * not, it is an error: then returns it. */
BR_API int br_stage_decline_gpu(struct br_stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Two stages in one. A stage whose output follows from its input and the description of its output alone
 * says so with br_stage_offer. The only stage that reads this output may then take over its work:
 * br_stage_absorb returns the description of what the stage of type `type` before it reads, and from
 * `start` on that is what br_stage_input and process's frames are; the stage before it is not started, and
 * the queue between them does not exist. (What br_stage_input returned in configure stays as it was and
 * lives as long as the pipeline.) NULL where this cannot be, and nothing changes: another type, another
 * reader, another device, frames that may be dropped between them, no offer. The user is told of it. One
 * input only. */
BR_API void br_stage_offer(struct br_stage *stage);
BR_API const struct br_stream *br_stage_absorb(struct br_stage *stage, const char *type);

/* The struct of the stage that was absorbed, configured and never started, or NULL; in start and process. An
 * update of that stage is configured and prepared by its own type. Whoever does its work asks and commits as
 * for updates of its own (see below): then that type's `commit` is called with this struct. Values
 * that would not be offered are refused. */
BR_API void *br_stage_absorbed(const struct br_stage *stage);
BR_API uint64_t br_stage_next_absorbed_update(struct br_stage *stage, uint64_t end);
BR_API void br_stage_absorbed_update(struct br_stage *stage, uint64_t sample);

/* True while a struct for an update is configured or prepared: the pipeline runs already. */
BR_API bool br_stage_is_update(const struct br_stage *stage);

/* The struct that runs, while one for an update is configured; NULL where there is none yet. As in prepare,
 * what process and commit do not change may be read of it. */
BR_API const void *br_stage_running(const struct br_stage *stage);

/* --- for every callback --- */

BR_API const char *br_stage_name(const struct br_stage *stage);

/* The GPU it runs on, or -1: the CPU. In configure before any br_stage_decline_gpu: where it would run. */
BR_API int br_stage_device(const struct br_stage *stage);

/* The cudaStream_t of its own; NULL on the CPU and in configure. */
BR_API void *br_stage_stream(const struct br_stage *stage);

/* Copies or sets rows of `width` bytes that lie pitches apart, in the memory of the stage's frames: at
 * once on the CPU, in order with its stream on a GPU. Rows may not overlap. Status. */
BR_API int br_stage_copy_rows(struct br_stage *stage, void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t rows);
BR_API int br_stage_set_rows(struct br_stage *stage, void *to, size_t pitch, int byte, size_t width,
                             size_t rows);

/* Copies between the host's memory and that of the stage's frames, and waits for it. Only for rare moments
 * such as the end of a stream. Status. */
BR_API int br_stage_exchange(struct br_stage *stage, void *to, const void *from, size_t bytes);

/* FEEDING A GPU. A source that reads into the host's memory need not fill whole frames there for the runtime
 * to copy: pieces that are small enough to stay in the processor's caches reach a GPU faster. In configure
 * br_stage_feeds says that frames of its output may also be memory of a GPU. Where all who read them run on
 * one GPU the runtime puts the source there, unless its own `device:` says cpu: br_stage_device tells, from
 * start on, and then process fills frames through a ring of `count` buffers of `bytes` each, which begin at
 * pages: br_feed_buffer returns the next one once the copy from it has been made (NULL: the GPU has failed,
 * which has been said), at once where br_feed_ready; br_feed_send enqueues the copy of bytes [skip, skip +
 * bytes) of the oldest buffer that was returned and not sent to `to`, in order with the stage's stream. From
 * the stage's own thread. br_feed_close waits for the copies; NULL is allowed. */
struct br_feed;
BR_API void br_stage_feeds(struct br_stage *stage);
BR_API int br_feed_open(struct br_stage *stage, size_t bytes, unsigned count, struct br_feed **feed);
BR_API bool br_feed_ready(struct br_feed *feed);
BR_API void *br_feed_buffer(struct br_feed *feed);
BR_API int br_feed_send(struct br_feed *feed, void *to, size_t skip, size_t bytes);
BR_API void br_feed_close(struct br_feed *feed);

BR_API int br_stage_fail(struct br_stage *stage, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
BR_API int br_stage_fail_at(struct br_stage *stage, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* In configure: what keeps a run from beginning, though it can be drawn, such as an output file that is
 * there already. Like br_stage_fail_at for `beamring run`; `check` and `graph` say it as a warning and go
 * on, with BR_OK. */
BR_API int br_stage_fail_run_at(struct br_stage *stage, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Messages for people; `beamring run` shows notes and warnings with the stage's name. */
BR_API void br_stage_note(struct br_stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
BR_API void br_stage_warn(struct br_stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What an operator should know now, as long as it lasts: "source 3 has sent nothing for 2 s". It stands in
 * the status of the node until the stage says something else, or NULL. The text is copied; 239 characters of
 * it. From start, or the stage's own thread. */
BR_API void br_stage_trouble(struct br_stage *stage, const char *text);

/* What process waits for from now on, as the end of "it waits for ...": "the disk"; NULL: it works. `what`
 * is kept, not copied, and must live as long as the pipeline: a constant, or from br_stage_alloc. The status
 * of the node says so when the stage holds the others up. */
BR_API void br_stage_waits_for(struct br_stage *stage, const char *what);

/* Says what the stage holds in fact, once that is known, for the statistics; NULL at its end. From start
 * or stop. */
BR_API void br_stage_holds(struct br_stage *stage, const struct br_memory *memory);

/* --- for process --- */

/* ALL CORES. A stage on the CPU divides its work into jobs: by channels or by time, such that no bit of a
 * result depends on how many threads there are. br_stage_parallel calls work(arg, job, worker) once for each
 * job from 0 to jobs - 1 (fewer than 2^32), in any order, on the stage's thread and on those of the
 * pipeline's `threads:` that are free, and returns when all are done; stages that have jobs at the same time
 * share the threads. `worker`, below br_stage_threads, is the number of a set of scratch memory: no two calls
 * at the same time have the same. A job must not wait for another one, and must not begin jobs itself: that
 * is an error, which fails the run. Of stage.h it may call nothing. From start, process and stop, by the
 * thread that is in it. Does not allocate. Status. */
typedef void br_stage_work(void *arg, size_t job, unsigned worker);
BR_API unsigned br_stage_threads(const struct br_stage *stage);
BR_API int br_stage_parallel(struct br_stage *stage, size_t jobs, br_stage_work *work, void *arg);

/* The same in steps, for a stage that has something else to do meanwhile, and for one that can begin what
 * the next process will need (and ends it in stop at the latest): begins, with at most `most` threads (0:
 * all), adds `more` jobs to those begun (they count on from there), and does what is left of them, until
 * all are done. */
BR_API int br_stage_parallel_begin(struct br_stage *stage, unsigned most, size_t jobs, br_stage_work *work,
                                   void *arg);
BR_API int br_stage_parallel_add(struct br_stage *stage, size_t more);
BR_API int br_stage_parallel_end(struct br_stage *stage);

/* Counters, from the stage's own thread. Saturated: output values that were clamped. */
BR_API void br_stage_count_saturated(struct br_stage *stage, uint64_t values);

/* What a stage counts by itself, such as packets of a source by what became of them: {"source 3", "late"}.
 * It stands in the statistics, the control interface and the metrics. Short words; those of one `of`
 * follow each other. */
struct br_counter {
    const char *of, *what;
};

/* In configure: the stage has these counters, all 0. They are kept, not copied, and must live as long as the
 * pipeline: constants, or from br_stage_alloc. */
BR_API void br_stage_has_counters(struct br_stage *stage, const struct br_counter *counters, size_t count);

/* Counter i is now `value`; a value below the one before is not taken, for counters do not fall. From
 * start to the end of stop, one thread at a time. */
BR_API void br_stage_count(struct br_stage *stage, size_t i, uint64_t value);

/* Why a stage does not pass on base samples that it took in: X(NAME, name, text). `name` is the counter's
 * in statistics and metrics, `text` is for people. New reasons go to the end: their numbers are part of
 * the ABI. */
#define BR_LOSSES(X)                                                                                         \
    X(OTHER, "other", "for a reason that this beamring does not know")                                       \
    X(LATE, "late", "they came after their frame had gone on")                                               \
    X(DUPLICATE, "duplicate", "they had come before")                                                        \
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

/* Frames beyond io->out[output], for a stage that fills several at a time: the one that the `ahead`-th
 * call with BR_PRODUCED from now on will find there (1 to 8), or NULL when readers hold all slots. Ask for
 * 1 before 2. What is written into it stays. Ask for a queue that is deep enough (br_stage_suggest_depth). */
BR_API struct br_frame *br_stage_lend_ahead(struct br_stage *stage, unsigned output, unsigned ahead);

/* --- what has passed: for stages with BR_STAGE_HISTORY ---
 *
 * The queue in front of the stage keeps the last frames, in the host's memory, and never waits for the stage.
 * A span that is pinned stays longer than what is not; when there are pins only, the oldest frame is taken
 * from them, never from the stream. From start to the end of stop, any thread; none of these waits. */

struct br_pin;

/* Base samples that input i's history reaches back, as the user asked for it. In configure as well. */
BR_API uint64_t br_stage_history(const struct br_stage *stage, unsigned i);

/* What is there now: all that came of base samples [whole, end), end being that of the newest frame that
 * process has consumed, and some of [first, whole), which was pinned when what came after it went. */
struct br_kept {
    uint64_t first, whole, end;
};
BR_API struct br_kept br_stage_kept(const struct br_stage *stage, unsigned i);

/* Pins base samples [first, end) of input i, of the past or to come. NULL when there is no memory. */
BR_API struct br_pin *br_stage_pin(struct br_stage *stage, unsigned i, uint64_t first, uint64_t end);

/* What is before base sample `first` is not needed any more. NULL is allowed here and below. */
BR_API void br_stage_pin_advance(struct br_pin *pin, uint64_t first);

/* Frames that were taken from the pin so far. */
BR_API uint64_t br_stage_pin_taken(const struct br_pin *pin);

/* Releases the span, and frees the pin. */
BR_API void br_stage_unpin(struct br_pin *pin);

/* What a stage that writes what has passed counts, for statistics and metrics: X(NAME, name, text). New ones
 * go to the end: their numbers are part of the ABI. */
#define BR_DUMP_NUMBERS(X)                                                                                   \
    X(ACCEPTED, "accepted", "requests that became dumps")                                                    \
    X(REFUSED, "refused", "requests that were refused")                                                      \
    X(DONE, "done", "dumps whose files are complete")                                                        \
    X(EMPTY, "empty", "dumps of which nothing was there any more")                                           \
    X(FAILED, "failed", "dumps of which a file could not be written")                                        \
    X(CANCELLED, "cancelled", "dumps that were cancelled")                                                   \
    X(ACTIVE, "active", "dumps that wait or are written now")                                                \
    X(FILES, "files", "files that are complete")                                                             \
    X(FILES_FAILED, "files_failed", "files that could not be written")                                       \
    X(BYTES, "bytes", "bytes of data in complete files")                                                     \
    X(MISSING_SAMPLES, "missing_samples", "base samples of a channel that files lack")                       \
    X(TAKEN_FRAMES, "taken_frames", "pinned frames that the stream took before they were written")

enum br_dump_number {
#define BR_DUMP_NUMBER(NAME, name, text) BR_DUMPS_##NAME,
    BR_DUMP_NUMBERS(BR_DUMP_NUMBER)
#undef BR_DUMP_NUMBER
        BR_DUMP_COUNT
};

/* Adds to one of them; any thread. */
BR_API void br_stage_count_dump(struct br_stage *stage, enum br_dump_number which, int64_t count);

/* The oldest frame of input i that ends behind base sample `at` and that process has consumed, or NULL. It
 * stays as it is until br_stage_let_go: at most four at a time of each input, and only for as long as it
 * takes to copy what is wanted of them. */
BR_API const struct br_frame *br_stage_hold(struct br_stage *stage, unsigned i, uint64_t at);
BR_API void br_stage_let_go(struct br_stage *stage, unsigned i, const struct br_frame *frame);

/* --- new values: for process of stages with BR_STAGE_COMMITS --- */

/* The base sample (of input 0, of a source output 0) from which the next new values shall hold if that is
 * before `end`, else `end`. It may lie before the current frame: after a loss. A source says with it that it
 * makes its samples up to `end`: what shall hold from an earlier one comes too late from here on. So it asks
 * before it begins with a frame, and commits what is due there first. */
BR_API uint64_t br_stage_next_update(struct br_stage *stage, uint64_t end);

/* Commits these values; from `sample` on, which may be later than asked for, they hold. Then ask again. */
BR_API void br_stage_update(struct br_stage *stage, uint64_t sample);

/* --- what data were made with ---
 *
 * The updates of the stages before this one, as one text for headers: STAGE:SAMPLE:DIGEST:ID for each, with
 * commas between: which stage, from which base sample on, 16 hexadecimal digits over its values and files,
 * and its id; what is no letter, digit or one of _-.+ in names is %XX. An update is named as long as a
 * parameter has the value that it gave. From start to the end of stop, any thread; they hold a lock for
 * microseconds. Both write at most `size` bytes with the 0 at the end, and return the length of the whole
 * text: 0 where there is no update. */

/* Whether there may be any: a stage before this one takes updates. */
BR_API bool br_stage_follows_updates(const struct br_stage *stage);

/* Those that hold at base sample `sample` of input 0, which must have come to this stage. */
BR_API size_t br_stage_updates_held(const struct br_stage *stage, uint64_t sample, char *text, size_t size);

/* Those that begin to hold in base samples [first, end). */
BR_API size_t br_stage_updates_begun(const struct br_stage *stage, uint64_t first, uint64_t end, char *text,
                                     size_t size);

/* True once the pipeline asks sources to end (interrupt, failure elsewhere): return BR_FINISHED soon. */
BR_API bool br_stage_stopping(const struct br_stage *stage);

/* Sleeps until CLOCK_MONOTONIC reaches `ns`, or the pipeline stops: returns true if it is stopping. */
BR_API bool br_stage_sleep_until(struct br_stage *stage, uint64_t ns);

#ifdef __cplusplus
}
#endif
#endif
