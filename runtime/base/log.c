/* log.c - see log.h. */
#include "runtime/base/log.h"

#include "buffers/clock.h"
#include "buffers/error.h"
#include "buffers/numbers.h"
#include "runtime/base/json_text.h"
#include "runtime/base/plain.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *const br_log_level_name[BR_LOG_LEVELS] = {"note", "warning", "error"};

void br_log_init(struct br_log *log, FILE *out, enum br_log_level level)
{
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->mutex, NULL);
    log->out = out;
    log->level = level;
    log->rank = -1;
}

int br_log_keep(struct br_log *log, unsigned lines)
{
    free(log->slot);
    log->nslots = 0;
    log->slot = malloc((lines > 0 ? lines : 1) * sizeof *log->slot);
    if (log->slot == NULL) return BR_E_NO_MEMORY;
    log->nslots = lines;
    /* Pages of zeros would become resident one by one, hours after the start. Even bytes: a slot's version
     * says that nobody writes it. */
    memset((void *)log->slot, 2, lines * sizeof *log->slot);
    return BR_OK;
}

bool br_log_get(const struct br_log *log, uint64_t number, struct br_log_line *line)
{
    union {
        struct br_log_line line;
        uint64_t word[LOG_WORDS];
    } copy;
    if (number >= atomic_load(&log->lines) || log->nslots == 0) return false;
    const struct br_log_slot *slot = &log->slot[number % log->nslots];
    br_board_read(&slot->version, slot->word, copy.word, LOG_WORDS);
    *line = copy.line;
    return line->number == number;
}

/* --- what is said too often; with the mutex held --- */

/* Messages are of one kind when the same words were filled in for the same stage. */
static uint64_t key_of(const char *who, const char *format, const char *text)
{
    uint64_t key = br_fnv(BR_FNV_START, who != NULL ? who : "", who != NULL ? strlen(who) : 0);
    const char *words = strcmp(format, "%s") == 0 ? text : format;
    return br_fnv(key, words, strlen(words));
}

/* Whether the message may be printed; *left_out is how many like it were not, since the last one that was. */
static bool may_say(struct br_log *log, uint64_t key, unsigned *left_out)
{
    struct br_log_kind *kind = &log->kind[key % LOG_KINDS];
    uint64_t now = br_clock_ns();
    *left_out = 0;
    if (kind->key != key) { /* another kind: it gives way */
        *kind = (struct br_log_kind){.key = key, .since_ns = now, .said = 1};
        return true;
    }
    if (now - kind->since_ns > (uint64_t)LOG_WINDOW_S * 1000000000u) {
        *left_out = kind->left_out;
        *kind = (struct br_log_kind){.key = key, .since_ns = now, .said = 1};
        return true;
    }
    if (kind->said++ < LOG_BURST) return true;
    kind->left_out++;
    return false;
}

/* --- lines --- */

static void clear_progress(struct br_log *log)
{
    if (log->progress) fputs("\r\033[K", log->out);
    log->progress = false;
}

static void print_json(struct br_log *log, const struct timespec *at, enum br_log_level level,
                       const char *who, const char *text)
{
    char time[40], digits[32];
    struct tm utc;
    gmtime_r(&at->tv_sec, &utc);
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(digits, sizeof digits, ".%06ld", at->tv_nsec / 1000);
    strcat(digits, "Z");
    strncat(time, digits, sizeof time - strlen(time) - 1);
    json_t *line = json_pack("{ss ss so so}", "time", time, "level", br_log_level_name[level], "stage",
                             br_json_text(who), "message", br_json_text(text));
    if (line != NULL && log->rank >= 0) json_object_set_new(line, "rank", json_integer(log->rank));
    char *dumped = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
    if (dumped != NULL) fprintf(log->out, "%s\n", dumped);
    free(dumped);
    json_decref(line);
}

static void print_text(struct br_log *log, enum br_log_level level, const char *who, const char *text)
{
    static const char *const word[] = {"", "warning: ", "error: "};
    char rank[24] = "", plain[LOG_LINE];
    snprintf(plain, sizeof plain, "%s", text);
    br_text_plain(plain); /* it may quote a file, or a peer; JSON says such characters in words */
    if (log->rank >= 0) snprintf(rank, sizeof rank, "rank %d: ", log->rank);
    fprintf(log->out, "beamring: %s%s%s%s%s\n", rank, who != NULL ? who : "", who != NULL ? ": " : "",
            word[level], plain);
}

static void keep(struct br_log *log, const struct timespec *at, enum br_log_level level, const char *who,
                 const char *text)
{
    union {
        struct br_log_line line;
        uint64_t word[LOG_WORDS];
    } copy = {.line = {.unix_ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec, .level = level}};
    if (log->nslots == 0) return;
    uint64_t number = copy.line.number = atomic_load_explicit(&log->lines, memory_order_relaxed);
    snprintf(copy.line.who, sizeof copy.line.who, "%s", who != NULL ? who : "");
    snprintf(copy.line.text, sizeof copy.line.text, "%s", text);
    struct br_log_slot *slot = &log->slot[number % log->nslots];
    br_board_write(&slot->version, slot->word, copy.word, LOG_WORDS);
    atomic_store(&log->lines, number + 1);
}

static void say(struct br_log *log, enum br_log_level level, const char *who, const char *text)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    keep(log, &at, level, who, text);
    if (level < log->level) return;
    clear_progress(log);
    if (log->json)
        print_json(log, &at, level, who, text);
    else
        print_text(log, level, who, text);
    fflush(log->out);
}

void br_vlog(struct br_log *log, enum br_log_level level, const char *who, const char *format, va_list args)
{
    char text[LOG_LINE];
    unsigned left_out = 0;
    int length = vsnprintf(text, sizeof text - 64, format, args);
    if (length < 0) return;
    atomic_fetch_add_explicit(&log->messages[level], 1, memory_order_relaxed);
    pthread_mutex_lock(&log->mutex);
    if (level == BR_LOG_ERROR || may_say(log, key_of(who, format, text), &left_out)) {
        if (left_out > 0) snprintf(text + strlen(text), 64, " (%u more like this were left out)", left_out);
        say(log, level, who, text);
    }
    pthread_mutex_unlock(&log->mutex);
}

void br_log_set_level(struct br_log *log, enum br_log_level level)
{
    pthread_mutex_lock(&log->mutex);
    log->level = level;
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

void br_log_destroy(struct br_log *log)
{
    unsigned left_out = 0;
    for (unsigned i = 0; i < LOG_KINDS; i++) left_out += log->kind[i].left_out;
    if (left_out > 0)
        br_log(log, BR_LOG_NOTE, NULL, "%u messages were left out because they were too frequent", left_out);
    free(log->slot);
    pthread_mutex_destroy(&log->mutex);
}
