/* log.h - messages for people: one line each, whoever sends them, never torn apart by the progress line.
 *
 * A line is text for a terminal, or a JSON object for programs: time, level, stage, message. The last lines
 * are kept for the control interface, which reads them without a lock. What is said too often is left out and
 * counted: of notes and warnings that are made of the same words, LOG_BURST in LOG_WINDOW_S seconds. */
#ifndef BEAMRING_RUNTIME_BASE_LOG_H
#define BEAMRING_RUNTIME_BASE_LOG_H

#include "buffers/board.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum br_log_level { BR_LOG_NOTE, BR_LOG_WARNING, BR_LOG_ERROR, BR_LOG_LEVELS };
extern const char *const br_log_level_name[BR_LOG_LEVELS]; /* "note", "warning", "error" */

enum { LOG_BURST = 20, LOG_WINDOW_S = 10, LOG_KINDS = 64, LOG_WHO = 64, LOG_TEXT = 904, LOG_LINE = 4096 };

/* A line that is kept; its texts are cut to what fits. */
struct br_log_line {
    uint64_t number; /* from 0 */
    int64_t unix_ns;
    uint64_t level;
    char who[LOG_WHO]; /* the stage; "": none */
    char text[LOG_TEXT];
};
enum { LOG_WORDS = sizeof(struct br_log_line) / 8 };

struct br_log_slot {
    br_board_version version;
    _Atomic uint64_t word[LOG_WORDS];
};

/* How often messages of one kind came lately. */
struct br_log_kind {
    uint64_t key, since_ns;
    unsigned said, left_out;
};

struct br_log {
    pthread_mutex_t mutex;
    FILE *out;               /* not owned */
    enum br_log_level level; /* what is below is not printed */
    bool json;
    int rank;      /* of a job, before every line; -1: none */
    bool progress; /* a progress line stands on the terminal */
    struct br_log_kind kind[LOG_KINDS];
    _Atomic uint64_t messages[BR_LOG_LEVELS]; /* all, printed or not */
    struct br_log_slot *slot;                 /* [nslots] the last lines; NULL: none are kept */
    unsigned nslots;
    _Atomic uint64_t lines; /* kept so far */
};

void br_log_init(struct br_log *log, FILE *out, enum br_log_level level);
void br_log_destroy(struct br_log *log);

/* Keeps the last `lines` lines from now on. Before any other thread uses the log. Errors: BR_E_NO_MEMORY. */
int br_log_keep(struct br_log *log, unsigned lines);

/* Prints from now on what is of this level or above. Any thread. */
void br_log_set_level(struct br_log *log, enum br_log_level level);

/* The line of this number; false: it is gone, or not there yet. Any thread. */
bool br_log_get(const struct br_log *log, uint64_t number, struct br_log_line *line);

/* Prints "beamring: [who: ][warning: |error: ]text". `who` may be NULL. Any thread. */
void br_log(struct br_log *log, enum br_log_level level, const char *who, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void br_vlog(struct br_log *log, enum br_log_level level, const char *who, const char *format, va_list args);

/* Replaces the progress line; an empty text removes it. */
void br_log_progress(struct br_log *log, const char *text);

#endif
