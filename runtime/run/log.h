/* log.h - messages for people: one line each, whoever sends them, never torn apart by the progress line. */
#ifndef BEAMRING_RUNTIME_RUN_LOG_H
#define BEAMRING_RUNTIME_RUN_LOG_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum br_log_level { BR_LOG_NOTE, BR_LOG_WARNING, BR_LOG_ERROR };

struct br_log {
    pthread_mutex_t mutex;
    FILE *out;               /* not owned */
    enum br_log_level level; /* what is below is not printed */
    bool progress;           /* a progress line stands on the terminal */
};

void br_log_init(struct br_log *log, FILE *out, enum br_log_level level);
void br_log_destroy(struct br_log *log);

/* Prints "beamring: [who: ][warning: |error: ]text". `who` may be NULL. Any thread. */
void br_log(struct br_log *log, enum br_log_level level, const char *who, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void br_vlog(struct br_log *log, enum br_log_level level, const char *who, const char *format, va_list args);

/* Replaces the progress line; an empty text removes it. */
void br_log_progress(struct br_log *log, const char *text);

#endif
