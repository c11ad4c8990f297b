/* writer.c - the thread that copies windows out of the history and writes them. See dump.h. */
#include "buffers/clock.h"
#include "stages/common/formats/gaps.h"
#include "stages/common/stage/fileio.h"
#include "stages/common/stage/shape.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 256 << 10, LOOK_MS = 20, LEAVE_S = 2, AHEAD = 32 /* rows */ };

/* Waits on CLOCK_MONOTONIC for so many ms at most. */
static void wait_for(struct writer *w, pthread_cond_t *cond, unsigned ms)
{
    uint64_t at = br_clock_ns() + (uint64_t)ms * 1000000u;
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
    pthread_cond_timedwait(cond, &w->lock, &until);
}

/* --- to the disk and back --- */

/* While the writer is at a disk it touches nothing but its own memory: it may stay there for ever. */
static void go_to_disk(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->disk_since = br_clock_ns();
    pthread_mutex_unlock(&w->lock);
}

/* False: nobody wants the file any more. */
static bool come_back(struct writer *w, const struct dump *d)
{
    pthread_mutex_lock(&w->lock);
    w->disk_since = 0;
    bool wanted = !w->quit && !d->gone;
    if (w->quit) pthread_cond_broadcast(&w->idle);
    pthread_mutex_unlock(&w->lock);
    return wanted;
}

static int io_failed(struct dump_file *f, const char *what, const char *path, int why)
{
    return br_fail(&f->error, BR_E_IO, "cannot %s %s: %s", what, path, strerror(why));
}

/* Makes the file under another name, with room for all of it, so that a full disk is known now. */
static int open_file(struct dump_file *f)
{
    char directory[DUMP_DIRECTORY];
    snprintf(directory, sizeof directory, "%s", f->dump->directory);
    if (fileio_make_directory(directory) != 0) return io_failed(f, "make the directory", directory, errno);
    if (access(f->path, F_OK) == 0)
        return br_fail(&f->error, BR_E_IO, "%s is there already: it is not replaced", f->path);
    f->fd = open(f->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0) return io_failed(f, "create", f->part, errno);
    uint64_t bytes = f->offset + f->rows * f->row_bytes;
    if (fallocate(f->fd, 0, 0, (off_t)bytes) == 0) return BR_OK;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) /* then it shows when it is full */
        return ftruncate(f->fd, (off_t)bytes) == 0 ? BR_OK : io_failed(f, "lengthen", f->part, errno);
    int why = errno;
    return br_fail(&f->error, BR_E_IO, "no room for the %" PRIu64 " bytes of %s: %s", bytes, f->path,
                   strerror(why));
}

static int close_file(struct dump_file *f, int status)
{
    if (f->fd < 0) return status;
    if (status == BR_OK) status = f->dump->format->finish(f);
    if (close(f->fd) != 0 && status == BR_OK) status = io_failed(f, "complete", f->part, errno);
    if (status == BR_OK && rename(f->part, f->path) != 0) status = io_failed(f, "name", f->path, errno);
    if (status != BR_OK) unlink(f->part);
    f->fd = -1;
    return status;
}

/* --- one piece --- */

static size_t zone_step(const struct br_stream *s, size_t channel)
{
    size_t step = s->zone[0].downsample;
    for (unsigned z = 1; z < s->nzones && s->zone[z].first_channel <= channel; z++)
        step = s->zone[z].downsample;
    return step;
}

/* Copies `rows` time steps of the piece's channels from step `step` of the frame on:
 * out[rows][channel][cell], valid[rows][channel]. False: all are valid. */
static bool copy_rows(const struct writer *w, const struct dump_file *f, const struct br_frame *frame,
                      size_t step, size_t rows, uint8_t *out, uint8_t *valid)
{
    const struct dump_stage *s = w->of;
    size_t all = f->stream->nchannels, pitch = all * s->cell, count = f->piece->count;
    const uint8_t *in = (const uint8_t *)frame->data + (step * all + f->piece->channel) * s->cell;
    if (f->dump->ndishes == 0) {
        size_t bytes = count * s->cell;
        for (size_t r = 0; r < rows; r++, out += bytes) {
            const uint8_t *row = in + r * pitch;
            for (size_t line = 0; r + AHEAD < rows && line < bytes; line += 64)
                __builtin_prefetch(row + AHEAD * pitch + line);
            memcpy(out, row, bytes);
        }
    } else {
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < count * s->npol; i++)
                for (size_t k = 0; k < f->ndish; k++, out += s->element)
                    memcpy(out, in + r * pitch + (i * s->ndish + f->dump->dish[k]) * s->element, s->element);
    }
    if (frame->complete) return false;
    const uint8_t *cells = frame->valid + step * all + f->piece->channel;
    for (size_t r = 0; r < rows; r++) memcpy(valid + r * count, cells + r * all, count);
    return true;
}

/* Copies what the oldest frame behind base sample `at` has of the window; *from receives where that begins,
 * which is `end` when there is nothing more. Returns the number of rows. */
static size_t fetch(struct writer *w, const struct dump_file *f, uint64_t at, uint64_t *from, bool *checked)
{
    uint64_t end = f->piece->window.end, step = zone_step(f->stream, f->piece->channel);
    const struct br_frame *frame = br_stage_hold(w->stage, 0, at);
    *from = end;
    if (frame == NULL) return 0;
    uint64_t first = frame->first / step * step, behind = frame->first + frame->samples;
    if (first < at) first = at;
    size_t rows = 0;
    if (first < end) {
        uint64_t last = (behind + step - 1) / step;
        if (last > end / step) last = end / step;
        size_t room = w->block_rows * w->of->cell / f->row_bytes;
        rows = (size_t)(last - first / step);
        if (rows > room) rows = room;
        *checked =
            copy_rows(w, f, frame, (size_t)(first / step - frame->first / step), rows, w->buffer, w->valid);
        *from = first;
    }
    br_stage_let_go(w->stage, 0);
    return rows;
}

/* Writes all blocks of the window. */
static int write_window(struct writer *w, struct dump_file *f, struct piece *p)
{
    uint64_t step = zone_step(f->stream, p->channel);
    int status = BR_OK;
    for (uint64_t at = p->window.first; at < p->window.end && status == BR_OK;) {
        uint64_t from;
        bool checked = false;
        size_t rows = fetch(w, f, at, &from, &checked);
        if (from > at) {
            p->missing += from - at;
            status = f->dump->format->lacks(f, at, from);
        }
        uint64_t row = (from - p->window.first) / step;
        if (rows > 0 && status == BR_OK)
            status = f->dump->format->rows(f, row, rows, w->buffer, checked ? w->valid : NULL);
        if (rows > 0 && status == BR_OK) {
            go_to_disk(w);
            int why = fileio_write(f->fd, w->buffer, rows * f->row_bytes, f->offset + row * f->row_bytes);
            if (!come_back(w, f->dump)) return BR_E_STOPPED;
            if (why != 0) status = io_failed(f, "write", f->part, why);
        }
        at = from + rows * step;
    }
    return status;
}

/* Whether anything of the window is there. */
static bool is_there(struct writer *w, const struct window *window)
{
    const struct br_frame *frame = br_stage_hold(w->stage, 0, window->first);
    bool there = frame != NULL && frame->first < window->end;
    if (frame != NULL) br_stage_let_go(w->stage, 0);
    return there;
}

/* Writes one piece. The copy `p` is the writer's own. Returns its state; a failure's words go to `error`. */
static enum dump_state write_piece(struct writer *w, const struct dump *d, struct piece *p,
                                   struct br_error *error)
{
    const struct dump_stage *s = w->of;
    char name[DUMP_PATH];
    size_t ndish = d->ndishes > 0 ? d->ndishes : s->ndish;
    size_t cell = d->ndishes > 0 ? s->npol * ndish * s->element : s->cell;
    struct dump_file f = {.of = s,
                          .stream = br_stage_input(w->stage, 0),
                          .dump = d,
                          .piece = p,
                          .ndish = ndish,
                          .row_bytes = p->count * cell,
                          .fd = -1};
    uint64_t samples = p->window.end - p->window.first;
    f.rows = samples / zone_step(f.stream, p->channel);
    p->missing = p->bytes = 0;
    if (samples == 0 || !is_there(w, &p->window)) {
        p->missing = samples;
        return DUMP_EMPTY;
    }
    dump_name(s, d, p, name, sizeof name);
    snprintf(f.path, sizeof f.path, "%.900s/%.900s", d->directory, name);
    snprintf(f.part, sizeof f.part, "%.900s/%.900s.part", d->directory, name);
    int status = d->format->describe(&f);
    if (status == BR_OK) {
        go_to_disk(w);
        status = open_file(&f);
        if (!come_back(w, d)) status = BR_E_STOPPED;
    }
    if (status == BR_OK) status = write_window(w, &f, p);
    if (status == BR_OK) status = d->format->describe(&f); /* by now it is known what is missing */
    go_to_disk(w);
    status = close_file(&f, status);
    if (!come_back(w, d) && status == BR_OK) status = BR_E_STOPPED;
    d->format->free(&f);
    p->bytes = status == BR_OK ? f.rows * f.row_bytes : 0;
    *error = f.error;
    return status == BR_OK ? DUMP_DONE : status == BR_E_STOPPED ? DUMP_CANCELLED : DUMP_FAILED;
}

/* --- which piece is next --- */

/* The piece that has all its samples and begins earliest: its frames are the oldest. NULL: none. */
static struct piece *next_piece(struct writer *w, struct dump **of)
{
    struct piece *best = NULL;
    uint64_t end = br_stage_kept(w->stage, 0).end;
    for (struct dump *d = w->dumps; d != NULL; d = d->next)
        for (size_t i = 0; dump_is_active(d) && i < d->npieces; i++) {
            struct piece *p = &d->piece[i];
            if (p->state != DUMP_WAITING || (p->window.end > end && !w->ended)) continue;
            if (best != NULL && p->window.first >= best->window.first) continue;
            best = p;
            *of = d;
        }
    return best;
}

/* What one piece's end means for its dump. */
static void settle(struct writer *w, struct dump *d, const struct br_error *error)
{
    uint64_t first = UINT64_MAX;
    unsigned count[DUMP_CANCELLED + 1] = {0};
    if (!dump_is_active(d)) return;
    for (size_t i = 0; i < d->npieces; i++) {
        const struct piece *p = &d->piece[i];
        count[p->state]++;
        if ((p->state == DUMP_WAITING || p->state == DUMP_WRITING) && p->window.first < first)
            first = p->window.first;
    }
    if (error->status != BR_OK && d->reason[0] == '\0')
        snprintf(d->reason, sizeof d->reason, "%.*s", DUMP_REASON - 1, error->text);
    if (first != UINT64_MAX)
        br_stage_pin_advance(d->pin, first);
    else if (count[DUMP_FAILED] > 0)
        dump_finish(w, d, DUMP_FAILED, NULL);
    else if (count[DUMP_DONE] > 0)
        dump_finish(w, d, DUMP_DONE, NULL);
    else
        dump_finish(w, d, DUMP_EMPTY, "nothing of it was there any more, or had come");
}

/* In words, for the log; the dump is finished. */
static void report(struct writer *w, const struct dump *d)
{
    unsigned count[DUMP_CANCELLED + 1] = {0};
    uint64_t bytes = 0, missing = 0, samples = 0;
    for (size_t i = 0; i < d->npieces; i++) {
        count[d->piece[i].state]++;
        bytes += d->piece[i].bytes;
        missing += d->piece[i].missing;
        samples += d->piece[i].window.end - d->piece[i].window.first;
    }
    if (d->state == DUMP_FAILED || d->state == DUMP_EMPTY)
        br_stage_warn(w->stage, "dump %" PRIu64 ": %u of %zu files are complete: %s", d->id, count[DUMP_DONE],
                      d->npieces, d->reason);
    else if (d->state == DUMP_DONE)
        br_stage_note(w->stage, "dump %" PRIu64 ": %.1f MiB in %u files in %s%s; %.3g %% were missing", d->id,
                      (double)bytes / (1 << 20), count[DUMP_DONE], d->directory,
                      d->taken > 0 ? ", some frames were taken before they were written" : "",
                      samples > 0 ? 100.0 * (double)missing / (double)samples : 0.0);
}

static void work_off(struct writer *w, struct dump *d, struct piece *p)
{
    struct br_error error = {0};
    p->state = d->state = DUMP_WRITING;
    w->busy_with = d;
    struct piece mine = *p;
    pthread_mutex_unlock(&w->lock);
    enum dump_state state = write_piece(w, d, &mine, &error);
    pthread_mutex_lock(&w->lock);
    w->busy_with = NULL;
    if (w->quit || d->gone) return;
    p->state = state;
    p->missing = mine.missing;
    p->bytes = mine.bytes;
    if (state == DUMP_DONE) {
        br_stage_count_dump(w->stage, BR_DUMPS_FILES, 1);
        br_stage_count_dump(w->stage, BR_DUMPS_BYTES, (int64_t)p->bytes);
    }
    if (state == DUMP_DONE || state == DUMP_EMPTY)
        br_stage_count_dump(w->stage, BR_DUMPS_MISSING_SAMPLES, (int64_t)p->missing);
    if (state == DUMP_FAILED) br_stage_count_dump(w->stage, BR_DUMPS_FILES_FAILED, 1);
    settle(w, d, &error);
    if (!dump_is_active(d)) report(w, d);
}

static void *run(void *arg)
{
    struct writer *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        struct dump *d = NULL;
        struct piece *p = next_piece(w, &d);
        if (p != NULL)
            work_off(w, d, p);
        else if (w->nactive > 0)
            wait_for(w, &w->work, LOOK_MS); /* the stage's thread wakes it without the lock */
        else
            pthread_cond_wait(&w->work, &w->lock);
    }
    w->exited = true;
    pthread_cond_broadcast(&w->idle);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- for the stage --- */

static void writer_free(struct writer *w)
{
    while (w->dumps != NULL) {
        struct dump *d = w->dumps;
        w->dumps = d->next;
        dump_free(d);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->idle);
    free(w->buffer);
    free(w->valid);
    free(w);
}

int writer_start(struct br_stage *stage, struct dump_stage *s)
{
    struct writer *w = calloc(1, sizeof *w);
    if (w == NULL) return br_no_memory(stage, sizeof *w);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, &clock);
    pthread_cond_init(&w->idle, &clock);
    pthread_condattr_destroy(&clock);
    w->stage = stage;
    w->of = s;
    w->next_id = 1;
    size_t widest = 1;
    for (size_t i = 0; i < s->npieces; i++)
        if (s->piece[i].count > widest) widest = s->piece[i].count;
    w->block_rows = BLOCK_BYTES / s->cell > widest ? BLOCK_BYTES / s->cell : widest;
    w->buffer = malloc(w->block_rows * s->cell);
    w->valid = malloc(w->block_rows * s->cell); /* at most a byte for each of data */
    int failed = w->buffer != NULL && w->valid != NULL ? pthread_create(&w->thread, NULL, run, w) : ENOMEM;
    if (failed != 0) {
        writer_free(w);
        return br_stage_fail(stage, BR_E_NO_MEMORY, "no thread for its files: %s", strerror(failed));
    }
    s->writer = w;
    return BR_OK;
}

void writer_wake(struct writer *w)
{
    if (atomic_load_explicit(&w->nactive, memory_order_relaxed) > 0) pthread_cond_signal(&w->work);
}

double writer_hangs(struct writer *w)
{
    if (pthread_mutex_trylock(&w->lock) != 0) return 0; /* it does something */
    uint64_t since = w->disk_since, now = br_clock_ns();
    double seconds = since != 0 && now > since ? (double)(now - since) * 1e-9 : 0;
    if (seconds > w->of->disk_timeout_s && w->busy_with != NULL && dump_is_active(w->busy_with)) {
        char reason[DUMP_REASON];
        snprintf(reason, sizeof reason, "the disk of %.150s has not answered for %.0f s",
                 w->busy_with->directory, seconds);
        br_stage_warn(w->stage, "dump %" PRIu64 ": %s", w->busy_with->id, reason);
        dump_finish(w, w->busy_with, DUMP_FAILED, reason);
    }
    pthread_mutex_unlock(&w->lock);
    return seconds;
}

void writer_drain(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_signal(&w->work);
    while (w->nactive > 0) {
        uint64_t since = w->disk_since, now = br_clock_ns();
        if (since != 0 && now > since && (double)(now - since) * 1e-9 > w->of->disk_timeout_s) break;
        wait_for(w, &w->idle, 10 * LOOK_MS);
    }
    for (struct dump *d = w->dumps; d != NULL; d = d->next)
        dump_finish(w, d, DUMP_FAILED, "the stream ended, and the disk did not answer");
    pthread_mutex_unlock(&w->lock);
}

/* A writer that does not come back from a disk is left behind, with its memory. */
void writer_stop(struct br_stage *stage, struct dump_stage *s)
{
    struct writer *w = s->writer;
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    for (struct dump *d = w->dumps; d != NULL; d = d->next)
        dump_finish(w, d, DUMP_FAILED, "the run ended before it was written");
    w->quit = true;
    pthread_cond_broadcast(&w->work);
    uint64_t begin = br_clock_ns();
    while (!w->exited && (w->disk_since == 0 || br_clock_ns() - begin < LEAVE_S * UINT64_C(1000000000)))
        wait_for(w, &w->idle, 10 * LOOK_MS);
    bool exited = w->exited;
    pthread_mutex_unlock(&w->lock);
    s->writer = NULL;
    if (exited) {
        pthread_join(w->thread, NULL);
        writer_free(w);
    } else {
        pthread_detach(w->thread);
        br_stage_warn(stage, "a disk does not answer: the file that was being written is left as it is");
    }
}
