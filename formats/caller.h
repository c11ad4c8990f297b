/* caller.h - what a reader may ask of the program that reads: a stage of a pipeline, or `beamring info`. */
#ifndef BEAMRING_FORMATS_CALLER_H
#define BEAMRING_FORMATS_CALLER_H

#include "buffers/error.h"
#include "buffers/frame.h"
#include "buffers/hints.h"

/* The reasons for which samples in the files are not handed on. */
enum caller_loss { CALLER_DUPLICATE, CALLER_LATE, CALLER_CORRUPT };

/* For jobs: as br_stage_work of runtime/stage.h. */
typedef void caller_work(void *arg, size_t job, unsigned worker);

/* Functions for the time from a reader's start to its stop. Only the caller's own thread may call them. */
struct caller_run {
    void (*lost)(void *owner, enum caller_loss reason, uint64_t samples); /* base samples */
    bool (*stopping)(void *owner); /* the pipeline ends: the reader shall return BR_FINISHED soon */
    bool (*sleep_until)(void *owner, uint64_t ns);               /* CLOCK_MONOTONIC; true: stopping */
    struct br_frame *(*lend_ahead)(void *owner, unsigned ahead); /* a later frame, or NULL */

    /* The number of threads, and jobs for at most `most` of them, numbered from 0: parallel_add adds more
     * jobs, parallel_end returns when all are done. Jobs must not call any function of the caller. */
    unsigned (*threads)(void *owner);
    void (*parallel_begin)(void *owner, unsigned most, size_t jobs, caller_work *work, void *arg);
    void (*parallel_add)(void *owner, size_t more);
    void (*parallel_end)(void *owner);

    /* Sets `rows` rows of `width` bytes, `pitch` bytes apart, in the memory of the frames. Status. */
    int (*set_rows)(void *owner, void *to, size_t pitch, int byte, size_t width, size_t rows);

    /* For frames in a GPU's memory: buffers on the way there, as br_feed_* of runtime/stage_feed.h. */
    bool (*feed_ready)(void *owner);
    void *(*feed_buffer)(void *owner);
    int (*feed_send)(void *owner, void *to, size_t skip, size_t bytes);
};

struct caller {
    void *owner;                               /* the first argument of all functions */
    const struct br_stream_hints *hints;       /* of the pipeline's `stream:`; never NULL */
    const struct br_telescope *telescope;      /* or NULL */
    void *(*alloc)(void *owner, size_t bytes); /* zeroed, as long-lived as the description; never NULL */
    int (*fail)(void *owner, int status, const char *param, const char *text); /* param NULL: none; status */
    void (*say)(void *owner, bool warning, const char *text);
    /* For descriptions: a fact of a file; `name` NULL: the kind of the file. */
    void (*fact)(void *owner, const char *name, const char *text);
    bool in_full; /* long tables as well */
    bool gpu;     /* from start on: frames are memory of a GPU, and are filled through the feed */
    const struct caller_run *run; /* NULL: for descriptions only */
};

/* Report a failure: with a status; at a parameter of the stage (BR_E_INVALID); at its `files` (BR_E_INVALID).
 * Return the status. */
#define caller_fail(caller, status, ...)   caller_report(caller, status, NULL, __VA_ARGS__)
#define caller_fail_at(caller, param, ...) caller_report(caller, BR_E_INVALID, param, __VA_ARGS__)
#define caller_refuse(caller, ...)         caller_report(caller, BR_E_INVALID, "files", __VA_ARGS__)
int caller_report(struct caller *caller, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Reports that `bytes` of memory could not be allocated. Returns BR_E_NO_MEMORY. */
int caller_no_memory(struct caller *caller, size_t bytes);

/* Messages for people. */
#define caller_note(caller, ...) caller_say(caller, false, __VA_ARGS__)
#define caller_warn(caller, ...) caller_say(caller, true, __VA_ARGS__)
void caller_say(struct caller *caller, bool warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Zeroed memory that lives as long as the description; never NULL. */
void *caller_alloc(struct caller *caller, size_t bytes);

/* Moves `bytes` of malloc'ed memory into the caller's memory, and frees it. NULL stays NULL. */
void *caller_keep(struct caller *caller, void *memory, size_t bytes);

/* `path` with `tail` appended: the name of a file next to it. In the caller's memory. */
const char *caller_beside(struct caller *caller, const char *path, const char *tail);

/* Facts of a file for `beamring info`: "array: int4x2 ..."; a sideband, or how to say it; Unix nanoseconds as
 * UTC and MJD. */
void caller_fact(struct caller *caller, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void caller_sideband(struct caller *caller, enum br_sideband sideband);
void caller_time(struct caller *caller, const char *name, int64_t ns);

static inline void caller_lost(struct caller *caller, enum caller_loss reason, uint64_t samples)
{
    caller->run->lost(caller->owner, reason, samples);
}

static inline bool caller_stopping(struct caller *caller)
{
    return caller->run->stopping(caller->owner);
}

#endif
