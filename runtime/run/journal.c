/* journal.c - see journal.h. */
#include "runtime/run/journal.h"
#include "buffers/clock.h"

#include "buffers/output.h"
#include "buffers/regular_file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>

enum { MOST_BYTES = 1 << 28 };

const char *const br_journal_state_name[] = {"none", "kept", "refused", "failed"};

static void tell(struct br_journal *journal, enum br_journal_state state, const char *format, va_list args)
{
    pthread_mutex_lock(&journal->told);
    vsnprintf(journal->why, sizeof journal->why, format, args);
    journal->state = state;
    pthread_mutex_unlock(&journal->told);
}

bool br_journal_refuse(struct br_journal *journal, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(journal, BR_JOURNAL_REFUSED, format, args);
    va_end(args);
    return false;
}

static void say(struct br_journal *journal, enum br_journal_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct br_journal *journal, enum br_journal_state state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(journal, state, format, args);
    va_end(args);
}

static bool read_all(struct br_journal *journal, uint64_t bytes, char **text, size_t *length)
{
    size_t used = 0;
    if (bytes == 0) return true;
    if (bytes > MOST_BYTES) return br_journal_refuse(journal, "it has more than %d bytes", MOST_BYTES);
    *text = malloc((size_t)bytes);
    if (*text == NULL) return br_journal_refuse(journal, "no memory for its %zu bytes", (size_t)bytes);
    while (used < bytes) {
        ssize_t n = pread(journal->fd, *text + used, (size_t)bytes - used, (off_t)used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return br_journal_refuse(journal, "it cannot be read: %s", strerror(errno));
        used += (size_t)n;
    }
    *length = used;
    return true;
}

void br_journal_open(struct br_journal *journal, const char *path, char **text, size_t *length)
{
    struct br_error error = {0};
    uint64_t bytes = 0;
    *text = NULL;
    journal->path = path;
    say(journal, BR_JOURNAL_KEPT, "%s", "");
    bool good = br_output_check(path, &error) == BR_OK;
    if (good) journal->fd = br_open_regular(path, O_NOFOLLOW, &bytes, &error);
    if (good && journal->fd < 0 && errno == ENOENT) return;
    if (journal->fd < 0)
        good = br_journal_refuse(journal, "%s", error.text);
    else if (flock(journal->fd, LOCK_EX | LOCK_NB) != 0)
        good = br_journal_refuse(journal,
                                 "another process writes to it; expected a file of its own for each node");
    else
        good = read_all(journal, bytes, text, length);
    if (good) return;
    free(*text);
    *text = NULL;
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
}

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

/* Under the mutex. */
static bool replace(struct br_journal *journal, const char *text, size_t length)
{
    char path[PATH_MAX];
    struct br_error error = {0};
    if (snprintf(path, sizeof path, "%s.new", journal->path) >= PATH_MAX) {
        say(journal, BR_JOURNAL_FAILED, "its name is too long");
        return false;
    }
    int fd = br_output_open(path, true, &error);
    bool good = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && write_all(fd, text, length);
    if (fd >= 0 && !good) br_fail(&error, BR_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (good) good = br_output_publish(path, journal->path, &error) == BR_OK;
    if (!good) {
        if (fd >= 0) unlink(path);
        if (fd >= 0) close(fd);
        say(journal, BR_JOURNAL_FAILED, "%s", error.text);
        return false;
    }
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = fd;
    say(journal, BR_JOURNAL_KEPT, "%s", "");
    return true;
}

bool br_journal_write(struct br_journal *journal, const char *text, size_t length)
{
    pthread_mutex_lock(&journal->mutex);
    bool open = !journal->closed && journal->state != BR_JOURNAL_NONE && journal->state != BR_JOURNAL_REFUSED;
    bool good = open && replace(journal, text, length);
    pthread_mutex_unlock(&journal->mutex);
    return good;
}

void br_journal_close(struct br_journal *journal, uint64_t wait_ns)
{
    struct timespec until = br_clock_in(CLOCK_REALTIME, wait_ns);
    if (pthread_mutex_timedlock(&journal->mutex, &until) != 0) return;
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
    journal->closed = true;
    pthread_mutex_unlock(&journal->mutex);
}
