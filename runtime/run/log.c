/* log.c - see log.h. */
#include "runtime/run/log.h"

void br_log_init(struct br_log *log, FILE *out, enum br_log_level level)
{
    pthread_mutex_init(&log->mutex, NULL);
    log->out = out;
    log->level = level;
    log->progress = false;
}

void br_log_destroy(struct br_log *log)
{
    pthread_mutex_destroy(&log->mutex);
}

/* With the mutex held. */
static void clear_progress(struct br_log *log)
{
    if (log->progress) fputs("\r\033[K", log->out);
    log->progress = false;
}

void br_vlog(struct br_log *log, enum br_log_level level, const char *who, const char *format, va_list args)
{
    static const char *const word[] = {"", "warning: ", "error: "};
    if (level < log->level) return;
    pthread_mutex_lock(&log->mutex);
    clear_progress(log);
    fprintf(log->out, "beamring: %s%s%s", who != NULL ? who : "", who != NULL ? ": " : "", word[level]);
    vfprintf(log->out, format, args);
    fputc('\n', log->out);
    fflush(log->out);
    pthread_mutex_unlock(&log->mutex);
}

void br_log(struct br_log *log, enum br_log_level level, const char *who, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    br_vlog(log, level, who, format, args);
    va_end(args);
}

void br_log_progress(struct br_log *log, const char *text)
{
    pthread_mutex_lock(&log->mutex);
    clear_progress(log);
    if (text[0] != '\0') {
        fputs(text, log->out);
        log->progress = true;
    }
    fflush(log->out);
    pthread_mutex_unlock(&log->mutex);
}
