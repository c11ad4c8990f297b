/* dump.h - what the files of the stage `dump` share.
 *
 * A dump is an event's span of every channel that was asked for, cut out of the history in front of the
 * stage. A request makes a dump: its windows are computed and their samples pinned, by the thread that
 * asks. A thread of the stage's own, the writer, copies what has come of a window out of its frames and
 * writes it, a file for each piece: a channel, or the fine channels of one coarse channel. Requests and
 * the stage's thread touch no file, and the writer holds a frame only while it copies from it: whatever a
 * disk does, the stream goes on.
 *
 * LOCK. `lock` guards dumps and the writer's state. It is held for microseconds, never while a file is
 * touched. */
#ifndef BEAMRING_STAGES_DUMP_DUMP_H
#define BEAMRING_STAGES_DUMP_DUMP_H

#include "formats/writer.h"
#include "runtime/stage.h"
#include "stages/dump/sweep.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

enum { DUMP_KEPT = 256, DUMP_DIRECTORY = 1024, DUMP_PATH = 2048, DUMP_REASON = 240, DUMP_WRITERS = 4 };

enum dump_state {
    DUMP_WAITING, /* for samples that are yet to come */
    DUMP_WRITING,
    DUMP_DONE,   /* a piece: its file is complete; a dump: every piece is done, or empty */
    DUMP_EMPTY,  /* nothing of it was there any more, so there is no file */
    DUMP_FAILED, /* the reason says why */
    DUMP_CANCELLED
};
extern const char *const dump_state_name[DUMP_CANCELLED + 1];

struct writer;

struct piece {
    size_t index;   /* among all of the stage */
    size_t channel; /* the first one */
    size_t count;
    struct window window;
    enum dump_state state;
    uint64_t missing; /* base samples of its window that were not there */
    uint64_t bytes;   /* of data that were written */
};

struct dump {
    struct dump *next;
    uint64_t id;
    struct sweep sweep;
    struct writer_direction direction;
    const struct writer_format *format;
    char directory[DUMP_DIRECTORY]; /* of its files */
    size_t npieces, ndishes;
    struct piece *piece; /* [npieces] */
    struct window span;  /* of all their windows */
    size_t *order;       /* [npieces] pieces by the first sample of their windows */
    size_t begun;        /* so many of these wait no more */
    size_t left;         /* pieces that wait, or are being written */
    size_t *dish;        /* [ndishes] of each file; NULL: all of them */
    struct br_pin *pin;
    enum dump_state state;
    char reason[DUMP_REASON];          /* of the first failure; "" */
    uint64_t taken;                    /* frames that were taken from the pin */
    int64_t requested_ns, finished_ns; /* Unix time; 0: not yet */
    double pinned_after_s;             /* from the request's arrival to the pin */
    bool gone;                         /* nobody wants more of it: failed or cancelled */
};

/* The stage. */
struct dump_stage {
    const char *directory, *prefix, *format; /* parameters */
    int64_t max_dumps, writers;
    double max_wait_s, disk_timeout_s;

    size_t npieces;                   /* of all channels */
    struct piece *piece;              /* [npieces]: where dumps begin from; windows are not set */
    int64_t *number;                  /* [npieces] by which files are named */
    size_t npol, ndish;               /* 0, 0: its input has no dishes */
    size_t cell, element;             /* bytes of a channel's time step; of a dish in it */
    const struct apparent_site *site; /* NULL: not known */
    struct writer *writer;            /* from start to stop */
    uint64_t troubled;                /* since when the user is told that the disk hangs; 0: it does not */
};

/* One of the writer's threads. */
struct hand {
    struct writer *writer;
    pthread_t thread;
    bool started, exited;
    struct dump *busy_with;  /* it writes a file of */
    uint64_t busy_from;      /* the first sample of that file's window */
    uint64_t disk_since;     /* CLOCK_MONOTONIC in ns when it went to a disk; 0: it is not there */
    uint8_t *buffer, *valid; /* of a block of rows */
};

/* Memory of the threads, apart from the stage: it stays if a disk hangs for ever. */
struct writer {
    struct br_stage *stage;
    const struct dump_stage *of;
    pthread_mutex_t lock;
    pthread_cond_t work, idle; /* on CLOCK_MONOTONIC */
    struct dump *dumps;        /* newest first */
    _Atomic unsigned nactive;  /* dumps that are not finished */
    bool ended;                /* no more samples come */
    bool quit;
    uint64_t next_id;
    size_t block_rows;
    unsigned nhands;
    struct hand hand[DUMP_WRITERS];
};

/* --- events.c: dumps; the caller holds the lock --- */

/* Whether the writer still has to do with it. */
bool dump_is_active(const struct dump *d);

/* Nothing more happens to the dump: counts, and releases its pin. */
void dump_finish(struct writer *w, struct dump *d, enum dump_state state, const char *reason);

/* The dump with the id, or NULL. */
struct dump *dump_find(const struct writer *w, uint64_t id);

/* Puts it in front, pins its samples, and forgets finished ones that are too many. */
int dump_add(struct writer *w, struct dump *d);
void dump_free(struct dump *d);

/* JSON of a dump, NULL where there is no memory. */
json_t *dump_document(const struct writer *w, const struct dump *d);

/* --- lists.c: what is told of them; the lock is taken here --- */

/* The text of the documents of the dump with this id, or of all when it is empty; `baseband`: in kotekan's
 * words, of the newest dumps. From malloc; NULL: no memory. Returns the answer's HTTP status: 200, 400 when
 * this is not an id, 404. */
int dump_list(struct writer *w, const char *id_text, bool baseband, char **text);

/* FILE of a piece, without its directory. */
void dump_name(const struct dump_stage *s, const struct dump *d, const struct piece *p, char *text,
               size_t size);

/* kotekan's answer to a request: the files that the dump will have. From malloc; NULL: no memory. */
char *dump_accepted(struct writer *w, const struct dump *d);

/* --- piece.c --- */

/* Writes one piece; `p` is the thread's own copy. Returns its state; a failure's words go to `error`. */
enum dump_state piece_write(struct hand *h, const struct dump *d, struct piece *p, struct br_error *error);

/* --- writer.c --- */

/* Around what may wait for a disk: meanwhile a thread touches nothing but its own memory, for it may stay
 * there for ever. False: nobody wants the file any more. */
void writer_goes_to_disk(struct hand *h);
bool writer_comes_back(struct hand *h, const struct dump *d);

/* Bytes that writer_start reserves. */
size_t writer_bytes(const struct dump_stage *s);

/* After a failure, too, writer_stop is to be called. */
int writer_start(struct br_stage *stage, struct dump_stage *s);

/* New work, or new samples. */
void writer_wake(struct writer *w);

/* Waits until all dumps are finished, or the disk has not answered for too long. */
void writer_drain(struct writer *w);

/* Seconds that a disk has not answered; what waits for it longer than it may has failed. */
double writer_hangs(struct writer *w);

void writer_stop(struct br_stage *stage, struct dump_stage *s);

/* --- direction.c --- */

/* Reads the direction of an event that begins at that time: where it looks, and how its wave widens the
 * windows, which dishes there are being known. Errors: BR_E_INVALID, what is wrong with it. */
int dump_direction(const struct dump_stage *stage, struct dump *d, const json_t *json,
                   const struct br_stream *stream, int64_t unix_ns, struct br_error *error);

/* --- request.c --- */

/* The callback of the stage: see runtime/stage.h. */
int dump_request(struct br_stage *stage, void *self, const char *what, const char *text, char **reply);

#endif
