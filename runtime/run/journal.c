/* journal.c - see journal.h. */
#include "runtime/run/journal.h"

#include "buffers/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 30 };

const char *const br_journal_state_name[] = {"none", "kept", "refused", "failed"};

static bool refuse(struct br_journal *journal, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct br_journal *journal, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&journal->told);
    vsnprintf(journal->why, sizeof journal->why, format, args);
    journal->state = BR_JOURNAL_REFUSED;
    pthread_mutex_unlock(&journal->told);
    va_end(args);
    return false;
}

/* --- reading --- */

static bool has(const json_t *line, const char *key, json_type type)
{
    const json_t *value = json_object_get(line, key);
    return value != NULL && json_typeof(value) == type;
}

/* Whether a line has all that resuming looks at; NULL: it has, else what is wrong. */
static const char *mistake_in(const json_t *line)
{
    const char *state = json_string_value(json_object_get(line, "state"));
    const char *id = json_string_value(json_object_get(line, "id"));
    const json_t *sample = json_object_get(line, "sample"), *rate = json_object_get(line, "sample_ns");
    if (id == NULL || *id == '\0') return "expected an object with an 'id'";
    if (state == NULL) return "it has no 'state'";
    if (!json_is_integer(sample) || json_integer_value(sample) < 0) return "its 'sample' is no number";
    if (strcmp(state, "applied") == 0 || strcmp(state, "superseded") == 0 || strcmp(state, "cancelled") == 0)
        return NULL;
    if (strcmp(state, "scheduled") != 0)
        return "its 'state' is none of scheduled, applied, superseded, cancelled";
    if (!has(line, "stages", JSON_OBJECT)) return "it has no 'stages'";
    if (!has(line, "digest", JSON_STRING)) return "it has no 'digest'";
    if (!has(line, "time_ns", JSON_INTEGER) || !has(line, "epoch_ns", JSON_INTEGER))
        return "it does not say when";
    if (json_array_size(rate) != 2 || !json_is_integer(json_array_get(rate, 0)) ||
        !json_is_integer(json_array_get(rate, 1)))
        return "its 'sample_ns' is no pair of numbers";
    return NULL;
}

/* The first line: whether all stages it knows are there, of the same type. */
static bool same_pipeline(struct br_journal *journal, json_t *head, json_t *stages)
{
    const char *name;
    json_t *type;
    if (!has(head, "stages", JSON_OBJECT) || json_integer_value(json_object_get(head, "journal")) != 1)
        return refuse(journal, "line 1: this is no journal of updates");
    json_object_foreach(json_object_get(head, "stages"), name, type)
    {
        if (json_equal(type, json_object_get(stages, name))) continue;
        return refuse(
            journal,
            "line 1: it is of another pipeline, with a stage '%.60s' of type '%.60s', which is not here",
            name, json_is_string(type) ? json_string_value(type) : "?");
    }
    return true;
}

static bool read_line(struct br_journal *journal, const char *text, size_t length, size_t number,
                      json_t *stages, json_t *lines)
{
    json_error_t error;
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    bool good = false;
    const char *wrong = line != NULL && number > 1 ? mistake_in(line) : NULL;
    if (line == NULL && number == 1)
        refuse(journal, "line 1: this is no journal of updates");
    else if (line == NULL)
        refuse(journal, "line %zu, column %d: %s", number, error.column, error.text);
    else if (number == 1)
        good = same_pipeline(journal, line, stages);
    else if (wrong != NULL)
        refuse(journal, "line %zu: %s", number, wrong);
    else
        good = true;
    if (good && number > 1) {
        json_object_set_new(line, "line", json_integer((json_int_t)number));
        json_array_append_new(lines, line);
    } else {
        json_decref(line);
    }
    return good;
}

/* All lines of the text; *whole receives the bytes of those that have an end. */
static bool read_lines(struct br_journal *journal, const char *text, size_t length, json_t *stages,
                       json_t *lines, size_t *whole)
{
    const char *end;
    size_t number = 1;
    *whole = 0;
    for (; (end = memchr(text + *whole, '\n', length - *whole)) != NULL; number++) {
        size_t bytes = (size_t)(end - text) - *whole;
        if (!read_line(journal, text + *whole, bytes, number, stages, lines)) return false;
        *whole += bytes + 1;
    }
    static const char begin[] = "{\"journal\"";
    size_t n = length < sizeof begin - 1 ? length : sizeof begin - 1;
    if (*whole == 0 && memcmp(text, begin, n) != 0)
        return refuse(journal, "line 1: this is no journal of updates");
    journal->dropped = *whole < length;
    return true;
}

static bool read_file(struct br_journal *journal, json_t *stages, json_t *lines, size_t *whole)
{
    struct stat info;
    *whole = 0;
    if (fstat(journal->fd, &info) != 0) return refuse(journal, "it cannot be read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode)) return refuse(journal, "it is no file");
    if (info.st_size > MOST_BYTES) return refuse(journal, "it has more than %d bytes", MOST_BYTES);
    size_t length = (size_t)info.st_size, used = 0;
    char *text = malloc(length + 1);
    if (text == NULL) return refuse(journal, "no memory for its %zu bytes", length);
    while (used < length) {
        ssize_t n = pread(journal->fd, text + used, length - used, (off_t)used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        used += (size_t)n;
    }
    bool good = used == length || refuse(journal, "it cannot be read: %s", strerror(errno));
    if (good) good = read_lines(journal, text, length, stages, lines, whole);
    free(text);
    return good;
}

/* --- writing --- */

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text += n;
        length -= (size_t)n;
    }
    return true;
}

/* 0, or errno. */
static int write_line(int fd, const json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (text == NULL) return ENOMEM;
    size_t length = strlen(text);
    text[length] = '\n'; /* in the place of its end: one write, so that a line is there or not */
    int why = write_all(fd, text, length + 1) ? 0 : errno;
    free(text);
    return why;
}

static int write_head(int fd, json_t *stages)
{
    json_t *head = json_pack("{si sO}", "journal", 1, "stages", stages);
    int why = head != NULL ? write_line(fd, head) : ENOMEM;
    json_decref(head);
    return why;
}

static void fail(struct br_journal *journal, const char *what, int why)
{
    pthread_mutex_lock(&journal->told);
    journal->state = BR_JOURNAL_FAILED;
    snprintf(journal->why, sizeof journal->why, "cannot %s: %s", what, strerror(why));
    pthread_mutex_unlock(&journal->told);
}

bool br_journal_append(struct br_journal *journal, json_t *line)
{
    pthread_mutex_lock(&journal->mutex);
    bool open = journal->fd >= 0 && journal->state == BR_JOURNAL_KEPT;
    if (open) {
        off_t end = lseek(journal->fd, 0, SEEK_END);
        int why = line != NULL ? write_line(journal->fd, line) : ENOMEM;
        if (why == 0 && fdatasync(journal->fd) != 0) why = errno;
        if (why != 0 && end >= 0) (void)!ftruncate(journal->fd, end); /* no half line in the middle */
        if (why != 0) fail(journal, "write to it", why);
        open = why == 0;
    }
    pthread_mutex_unlock(&journal->mutex);
    json_decref(line);
    return open;
}

void br_journal_replace(struct br_journal *journal, json_t *stages, const json_t *lines)
{
    char path[PATH_MAX];
    size_t i;
    json_t *line;
    if (journal->state != BR_JOURNAL_KEPT || snprintf(path, sizeof path, "%s.new", journal->path) >= PATH_MAX)
        return;
    int fd = br_output_open(path, true, NULL);
    if (fd >= 0 && fcntl(fd, F_SETFL, O_APPEND) != 0) {
        close(fd);
        fd = -1;
    }
    int why = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno : write_head(fd, stages);
    json_array_foreach(lines, i, line)
    {
        if (why == 0) why = write_line(fd, line);
    }
    if (why == 0 && br_output_publish(path, journal->path, NULL) != BR_OK) why = EIO;
    if (why != 0) { /* the old one is as good, only longer */
        if (fd >= 0) close(fd);
        unlink(path);
        return;
    }
    close(journal->fd);
    journal->fd = fd;
}

/* --- the whole --- */

void br_journal_open(struct br_journal *journal, const char *path, json_t *stages, json_t **lines)
{
    size_t whole = 0;
    struct br_error error = {0};
    *lines = NULL;
    journal->path = path;
    journal->state = BR_JOURNAL_KEPT;
    /* a pipe would be waited for */
    journal->fd =
        open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY, 0666);
    json_t *found = json_array();
    bool good = false;
    if (journal->fd < 0 && br_output_check(path, &error) != BR_OK)
        refuse(journal, "%s", error.text);
    else if (journal->fd < 0)
        refuse(journal, "it cannot be opened: %s", strerror(errno));
    else if (flock(journal->fd, LOCK_EX | LOCK_NB) != 0)
        refuse(journal, "another process writes to it; expected a file of its own for each node");
    else if (found == NULL || stages == NULL)
        refuse(journal, "no memory for it");
    else
        good = read_file(journal, stages, found, &whole);
    if (good && journal->dropped > 0 && ftruncate(journal->fd, (off_t)whole) != 0)
        good = refuse(journal, "the half line at its end cannot be removed: %s", strerror(errno));
    if (good && whole == 0) {
        int why = write_head(journal->fd, stages);
        if (why == 0 && fsync(journal->fd) != 0) why = errno;
        if (why != 0) good = refuse(journal, "it cannot be written: %s", strerror(why));
        br_output_sync_directory(path);
    }
    if (good) {
        *lines = found;
        return;
    }
    json_decref(found);
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
}

void br_journal_close(struct br_journal *journal, uint64_t wait_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + wait_ns;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    if (pthread_mutex_timedlock(&journal->mutex, &until) != 0) return;
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
    pthread_mutex_unlock(&journal->mutex);
}
