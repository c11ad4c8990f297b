/* updates.h - new values of parameters of stages that run, which hold from a stated sample on.
 *
 * An update is for one stage or several. All of it is checked and prepared before any stage sees any of
 * it, outside the stages' threads: for each stage a second struct is filled in and configured as if the
 * pipeline file had always said so (update_values.c). Then it is linked into the stages' lists at once, or
 * refused as late (updates.c). Each stage's thread commits what is due (update_commit.c) and what it
 * replaces is freed later by br_updates_tidy. While nothing is due, a stage's thread looks at one pointer
 * for each frame.
 *
 * One thread at a time submits and tidies: the main thread until the stages run, then a thread of its own
 * (runtime/control/update_desk.h), since files may take their time. Others look at the list, under `records`
 * and with br_updates_look. */
#ifndef BEAMRING_RUNTIME_RUN_UPDATES_H
#define BEAMRING_RUNTIME_RUN_UPDATES_H

#include "runtime/run/journal.h"
#include "runtime/run/state.h"
#include "runtime/stage_updates.h"

#include <jansson.h>

enum br_update_at {
    BR_AT_NOW,    /* the earliest sample at which all stages can */
    BR_AT_SAMPLE, /* of the stages' inputs; of a source's output */
    BR_AT_TIME    /* the first sample of each stage that is not before this Unix time */
};

enum br_update_state {
    BR_UPDATE_SCHEDULED,
    BR_UPDATE_APPLIED,    /* all stages have committed it */
    BR_UPDATE_SUPERSEDED, /* a later one for the same sample took its place in all stages */
    BR_UPDATE_REJECTED,   /* nothing has changed */
    BR_UPDATE_CANCELLED,  /* it was withdrawn before any stage had come to it */
    BR_UPDATE_STATES
};
extern const char *const br_update_state_name[]; /* "scheduled", ... */

enum { BR_UPDATE_ID = 80, BR_UPDATES_KEPT = 256 };

/* Where a stage's values came from while they were the same: for each parameter that can be updated (in the
 * order of the type's `updates`) the update that gave it. */
struct br_held_source {
    uint64_t number; /* of the update; 0: the pipeline file */
    uint64_t digest, from;
    char id[BR_UPDATE_ID];
};
struct br_held {
    struct br_held *older;
    uint64_t from;
    size_t count;
    struct br_held_source source[];
};
enum { BR_HELD_KEPT = 256 }; /* of each stage: the newest; products ask for the last minute or so */

/* A stage's part of an update. */
struct br_change {
    struct br_change *next; /* in one of the stage's lists */
    struct br_update *update;
    struct br_stage *stage;           /* the one that runs */
    struct br_stage *fresh;           /* the second one, whose self has the new values; NULL: discarded */
    const struct br_node *given;      /* what the update gives this stage: a map */
    const struct br_node *node;       /* all of its parameters from then on */
    uint64_t sample;                  /* of br_update_stream, from which it shall hold */
    uint64_t held_from;               /* from which it did */
    br_gpu_event old_unused;          /* what was enqueued with the old values is done */
    struct br_held *held;             /* the stage's once it is committed */
    bool prepared, committed, passed; /* passed: a later one took its place before it held */
};

struct br_update {
    struct br_update *older;
    uint64_t number; /* from 1, in order of arrival */
    char id[BR_UPDATE_ID];
    uint64_t digest; /* of all that was given, with the bytes of files that it names */
    enum br_update_at at;
    uint64_t sample; /* of the first stage */
    int64_t time_ns;
    int64_t came_ns; /* Unix time */
    enum br_update_state state;
    uint64_t held_from; /* of the stage that came last */
    size_t nchanges;
    struct br_change **change; /* [nchanges] */
    struct br_config *config;  /* its values; NULL: let go */
    bool owns_config;
    char *kept;     /* what the journal says of it; NULL: it has it not */
    bool concluded; /* it says what has become of it, too */
    bool resumed;   /* it comes from the journal, which does not say for when it was asked */
    char *why;      /* rejected: what is wrong, a line each */
    char *stages;   /* names, with commas between */
};

/* Scheduled at a time; more are refused, none is ever dropped. The last ones are for what holds soon, so that
 * nobody is shut out for long by updates of the far future. */
enum { BR_UPDATES_PENDING = 1024, BR_UPDATES_SOON = 64, BR_UPDATES_SOON_S = 60 };

/* Samples that a stage has marked, see br_stage_mark. */
struct br_mark {
    const struct br_stage *stage;
    uint64_t first, end;
    char id[80];
};
enum { BR_MARKS_KEPT = 512 };

/* Locks are taken in this order: records, mutex. */
struct br_updates {
    pthread_mutex_t records; /* the list: its updates' states, and what it frees */
    pthread_mutex_t mutex;   /* the stages' lists */
    pthread_mutex_t gate;    /* held while something is prepared: then no stage is stopped */
    bool closed;             /* under the gate: the stages are about to be stopped */
    struct br_update *newest;
    _Atomic uint64_t commits;           /* by all stages */
    struct br_mark mark[BR_MARKS_KEPT]; /* a ring, under `mutex` */
    uint64_t nmarks;                    /* of all that were made */
    uint64_t count;
    uint64_t total[BR_UPDATE_STATES]; /* by their state now */
    const struct br_node *of_file;    /* `updates:` of the pipeline file, or NULL */
    struct br_journal journal;
    char *taken;   /* the journal's: entries of the file */
    bool resuming; /* what is submitted comes from the journal, or from the file */
};

enum br_update_outcome {
    BR_UPDATE_OK,
    BR_UPDATE_WRONG,    /* the values: br_update.why says where */
    BR_UPDATE_LATE,     /* a stage is beyond its sample, or has a later update scheduled: `earliest` */
    BR_UPDATE_CONFLICT, /* its id was used for other values, or a stage has ended */
    BR_UPDATE_FAILED,   /* no memory, a device */
    BR_UPDATE_TOO_MANY, /* BR_UPDATES_PENDING are scheduled */
    BR_UPDATE_UNKNOWN   /* nothing of this id has come */
};

struct br_update_reply {
    enum br_update_outcome outcome;
    const struct br_update *update; /* also of one that was rejected; valid until br_updates_tidy */
    uint64_t earliest;              /* sample at which an update of these stages can hold at the earliest */
    bool repeated;                  /* the same had been asked for before */
};

struct br_update_request {
    const char *id; /* NULL: none */
    enum br_update_at at;
    uint64_t sample;
    int64_t time_ns;
    size_t nstages;
    struct br_stage **stage;       /* [nstages], memory of the config */
    const struct br_node **values; /* [nstages] */
};

struct br_updates *br_updates_make(void); /* NULL: no memory */

/* After the stages' threads have ended and stop was called. */
void br_updates_free(struct br_graph *graph);

/* Schedules what the map at `root` asks for: {id, at: now | {sample} | {time_ns}, stages: {NAME: {param:
 * value}}}. `config` holds the map, receives what is wrong, and is the update's from now on if `owned`.
 * BR_OK, or BR_E_NO_MEMORY where there is not even a record; else *reply says what has become of it. */
int br_updates_submit(struct br_graph *graph, struct br_config *config, const struct br_node *root,
                      bool owned, struct br_update_reply *reply);

/* Withdraws what is scheduled, unless a stage has another update scheduled behind it. *reply says what has
 * become of it, without an update where there is none; in `error` is why it stays. In the thread that
 * submits. */
void br_updates_cancel(struct br_graph *graph, const char *id, struct br_update_reply *reply,
                       struct br_error *error);

/* Whether an update of this id has come that was not rejected. In the thread that submits. */
bool br_updates_knows(struct br_graph *graph, const char *id);

/* Says of each update what has become of it. Any thread. */
void br_updates_look(struct br_graph *graph);

/* The same, and frees old values that nothing uses any more. */
void br_updates_tidy(struct br_graph *graph);

/* Writes the ends of updates that the journal lacks. In the thread that submits. */
void br_updates_note(struct br_graph *graph);

/* From here on nothing is prepared any more: before the stages are stopped. Waits for what is being uploaded,
 * for no file. */
void br_updates_close(struct br_graph *graph);

/* Sample up to which the stages with updates have come: the largest of them. */
uint64_t br_updates_earliest(const struct br_graph *graph);

/* --- update_json.c --- */

enum { BR_UPDATE_NUMBER = 48 };

/* Values as JSON, NULL where there is no memory. */
json_t *br_update_json(const struct br_node *node);

/* A number in one form, however it is written: 4, 4.0 and 0x4 are the same. False: it is none. */
bool br_update_number(const struct br_node *node, char text[BR_UPDATE_NUMBER]);

/* --- update_resume.c --- */

/* Takes up what `journal:` of the pipeline file says: what held holds again from the first sample on, and
 * what was scheduled is. A journal that cannot be used is logged, and the pipeline file holds. Then schedules
 * `updates:` of the pipeline file, except entries that the journal knows. After the stages' start, before
 * their threads. */
int br_updates_start(struct br_graph *graph, struct br_error *error);

/* Keeps what the journal will say of an update that has been scheduled. */
void br_updates_note_scheduled(struct br_graph *graph, struct br_update *update, const struct br_node *root);

/* Writes the journal, where there is one: it is on the disk when this returns. In the thread that submits. */
void br_updates_write(struct br_graph *graph);

/* Whether the journal has it: it is scheduled, or a value of it holds. Under `records`. */
bool br_update_is_kept(const struct br_graph *graph, const struct br_update *update);

/* --- update_file.c --- */

/* Checks `updates:` of the pipeline file (NULL: none) once all stages are configured; mistakes go to the
 * config. */
void br_updates_check(struct br_graph *graph, const struct br_node *list);

/* --- update_request.c --- */

/* The stage of the pipeline file with this name, or NULL. */
struct br_stage *br_update_stage(struct br_graph *graph, const char *name);

/* Reads and checks all but the values; mistakes go to the config. False: there were some. */
bool br_update_read(struct br_graph *graph, struct br_config *config, const struct br_node *root,
                    struct br_update_request *request);

/* The digest of the values, whatever their order and form. Files add their bytes; one that cannot be
 * read adds nothing. */
uint64_t br_update_digest(const struct br_update_request *request);
uint64_t br_update_file_digest(const char *path);

/* --- update_plan.c --- */

/* The stream whose base samples an update of the stage counts: its first input's, of a source its first
 * output's. */
const struct br_stream *br_update_stream(const struct br_stage *stage);

/* The first base sample at which another update of these stages could hold: none has taken it, and none has
 * an update scheduled behind it. In the thread that submits. */
uint64_t br_update_earliest(struct br_graph *graph, const struct br_update_request *request);

/* The Unix time of a scheduled update, for which it would be scheduled for the same sample again. */
int64_t br_update_time_ns(const struct br_update *update);

/* Makes, prepares and links the changes of an update. On failure nothing has changed, and mistakes are in the
 * update's config, or `error` says what is wrong. */
enum br_update_outcome br_update_schedule(struct br_graph *graph, struct br_update *update,
                                          const struct br_update_request *request, struct br_error *error);

/* Takes a scheduled update out of all its stages at once. On failure nothing has changed, and `error` says
 * why: a stage has taken its sample, or has another update scheduled behind it. */
enum br_update_outcome br_update_withdraw(struct br_graph *graph, struct br_update *update,
                                          struct br_error *error);

/* Whether a stage still has more than BR_UPDATES_SOON_S seconds of samples before it. */
bool br_update_is_far(const struct br_update *update, const struct br_update_request *request);

/* --- update_values.c --- */

/* The name of a file that is written NAME or {file: NAME}; NULL: the value is neither, or `param` no file. */
const struct br_node *br_update_file(const struct br_param *param, const struct br_node *value);

/* Makes a second stage with what `base` says, and `given` in its place; mistakes go to `config`. NULL:
 * there were some. */
struct br_change *br_change_make(struct br_update *update, struct br_stage *stage, const struct br_node *base,
                                 const struct br_node *given, struct br_config *config);
/* Uploads. Status; mistakes go to the config. BR_E_STOPPED, without one: the stages are about to be
 * stopped. */
int br_change_prepare(struct br_change *change);
/* Frees what was made of it, but not the change: for one that was never linked, or whose old values are
 * unused. */
void br_change_discard(struct br_change *change);

/* --- update_held.c --- */

/* The origin of a change; `before`: the one on whose values it builds, or NULL. False: no memory.
 * */
bool br_held_make(struct br_change *change, const struct br_change *before);
/* Under `mutex`: it holds from here on. */
void br_held_begin(struct br_stage *stage, struct br_held *held, uint64_t sample);
void br_held_tidy(struct br_stage *stage);
void br_held_free(struct br_held *held);
/* For each stage: which ones before it take updates. */
void br_held_find_sources(struct br_graph *graph);

/* --- update_commit.c: the stage's thread --- */

/* The answer of br_stage_next_update, without its side effects. */
uint64_t br_update_due(struct br_stage *stage, uint64_t end);

/* Before process gets this frame. */
void br_updates_take(struct br_stage *stage, const struct br_frame *in);

#endif
