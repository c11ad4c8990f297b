/* writer.c - the threads that copy windows out of the history and write them. See dump.h. */
#include "buffers/clock.h"
#include "buffers/threads.h"
#include "formats/common/text.h"
#include "runtime/stage_history.h"
#include "stages/common/stage/shape.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 256 << 10, LOOK_MS = 20, LEAVE_S = 2, NICE = 5 };

/* Waits on CLOCK_MONOTONIC for so many ms at most. */
static void wait_for(struct writer *w, pthread_cond_t *cond, unsigned ms)
{
    uint64_t at = br_clock_ns() + (uint64_t)ms * 1000000u;
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
    pthread_cond_timedwait(cond, &w->lock, &until);
}

/* --- to the disk and back --- */

void writer_goes_to_disk(struct hand *h)
{
    pthread_mutex_lock(&h->writer->lock);
    h->disk_since = br_clock_ns();
    pthread_mutex_unlock(&h->writer->lock);
}

bool writer_comes_back(struct hand *h, const struct dump *d)
{
    struct writer *w = h->writer;
    pthread_mutex_lock(&w->lock);
    h->disk_since = 0;
    bool wanted = !w->quit && !d->gone;
    if (w->quit) pthread_cond_broadcast(&w->idle);
    pthread_mutex_unlock(&w->lock);
    return wanted;
}

/* --- which piece is next --- */

/* The piece that has all its samples and begins earliest: its frames are the oldest. NULL: none. */
static struct piece *next_piece(struct writer *w, struct dump **of)
{
    struct piece *best = NULL;
    uint64_t end = br_stage_kept(w->stage, 0).end;
    for (struct dump *d = w->dumps; d != NULL; d = d->next)
        for (size_t i = d->begun; dump_is_active(d) && i < d->npieces; i++) {
            struct piece *p = &d->piece[d->order[i]];
            if (best != NULL && p->window.first > best->window.first) break; /* newest first */
            if (p->state != DUMP_WAITING || (p->window.end > end && !w->ended)) continue;
            best = p;
            *of = d;
            break;
        }
    return best;
}

/* The first sample that is still needed: of the pieces that wait, and of those that are being written. */
static uint64_t first_needed(const struct writer *w, struct dump *d)
{
    while (d->begun < d->npieces && d->piece[d->order[d->begun]].state != DUMP_WAITING) d->begun++;
    uint64_t first = d->begun < d->npieces ? d->piece[d->order[d->begun]].window.first : UINT64_MAX;
    for (unsigned i = 0; i < w->nhands; i++)
        if (w->hand[i].busy_with == d && w->hand[i].busy_from < first) first = w->hand[i].busy_from;
    return first;
}

/* Applies the end of one piece to its dump. */
static void settle(struct writer *w, struct dump *d, const struct br_error *error)
{
    unsigned count[DUMP_CANCELLED + 1] = {0};
    if (!dump_is_active(d)) return;
    uint64_t first = --d->left > 0 ? first_needed(w, d) : UINT64_MAX;
    for (size_t i = 0; d->left == 0 && i < d->npieces; i++) count[d->piece[i].state]++;
    if (error->status != BR_OK && d->reason[0] == '\0') {
        snprintf(d->reason, sizeof d->reason, "%.*s", DUMP_REASON - 1, error->text);
        text_plain(d->reason);
    }
    if (first != UINT64_MAX)
        br_stage_pin_advance(d->pin, first);
    else if (count[DUMP_FAILED] > 0)
        dump_finish(w, d, DUMP_FAILED, NULL);
    else if (count[DUMP_DONE] > 0)
        dump_finish(w, d, DUMP_DONE, NULL);
    else
        dump_finish(w, d, DUMP_EMPTY, "all of it had passed, or never arrived");
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

static void work_off(struct hand *h, struct dump *d, struct piece *p)
{
    struct writer *w = h->writer;
    struct br_error error = {0};
    p->state = d->state = DUMP_WRITING;
    h->busy_with = d;
    h->busy_from = p->window.first;
    struct piece mine = *p;
    pthread_mutex_unlock(&w->lock);
    enum dump_state state = piece_write(h, d, &mine, &error);
    pthread_mutex_lock(&w->lock);
    h->busy_with = NULL;
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
    struct hand *h = arg;
    struct writer *w = h->writer;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* the stream goes first */
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        struct dump *d = NULL;
        struct piece *p = next_piece(w, &d);
        if (p != NULL)
            work_off(h, d, p);
        else if (w->nactive > 0)
            wait_for(w, &w->work, LOOK_MS); /* the stage's thread wakes it without the lock */
        else
            pthread_cond_wait(&w->work, &w->lock);
    }
    h->exited = true;
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
    for (unsigned i = 0; i < w->nhands; i++) {
        free(w->hand[i].buffer);
        free(w->hand[i].valid);
    }
    free(w);
}

static void make_locks(struct writer *w)
{
    pthread_mutex_init(&w->lock, NULL);
    br_cond_init(&w->work);
    br_cond_init(&w->idle);
}

static size_t block_rows(const struct dump_stage *s)
{
    size_t widest = 1;
    for (size_t i = 0; i < s->npieces; i++)
        if (s->piece[i].count > widest) widest = s->piece[i].count;
    return BLOCK_BYTES / s->cell > widest ? BLOCK_BYTES / s->cell : widest;
}

size_t writer_bytes(const struct dump_stage *s)
{
    return 3 * block_rows(s) * s->cell * (size_t)s->writers; /* data, validity, and data in another coding */
}

int writer_start(struct br_stage *stage, struct dump_stage *s)
{
    struct writer *w = calloc(1, sizeof *w);
    if (w == NULL) return br_no_memory(stage, sizeof *w);
    make_locks(w);
    w->stage = stage;
    w->of = s;
    w->next_id = (uint64_t)time(NULL); /* not those of an earlier run, whose files are there still */
    w->block_rows = block_rows(s);
    w->nhands = (unsigned)s->writers;
    s->writer = w;
    for (unsigned i = 0; i < w->nhands; i++) {
        struct hand *h = &w->hand[i];
        h->writer = w;
        h->buffer = malloc(w->block_rows * s->cell);
        h->valid = malloc(w->block_rows * s->cell); /* at most a byte for each of data */
        int failed =
            h->buffer != NULL && h->valid != NULL ? pthread_create(&h->thread, NULL, run, h) : ENOMEM;
        h->started = failed == 0;
        if (failed != 0) /* stop ends those that run */
            return br_stage_fail(stage, BR_E_NO_MEMORY, "no thread for its files: %s", strerror(failed));
    }
    return BR_OK;
}

void writer_wake(struct writer *w)
{
    if (atomic_load_explicit(&w->nactive, memory_order_relaxed) > 0) pthread_cond_signal(&w->work);
}

/* Seconds since the thread went to a disk. */
static double at_disk_s(const struct hand *h)
{
    uint64_t now = br_clock_ns();
    return h->disk_since != 0 && now > h->disk_since ? (double)(now - h->disk_since) * 1e-9 : 0;
}

double writer_hangs(struct writer *w)
{
    double longest = 0;
    if (pthread_mutex_trylock(&w->lock) != 0) return 0; /* it does something */
    for (unsigned i = 0; i < w->nhands; i++) {
        struct hand *h = &w->hand[i];
        double seconds = at_disk_s(h);
        if (seconds > longest) longest = seconds;
        if (seconds <= w->of->disk_timeout_s || h->busy_with == NULL || !dump_is_active(h->busy_with))
            continue;
        char reason[DUMP_REASON];
        snprintf(reason, sizeof reason, "the disk of %.150s has not answered for %.0f s",
                 h->busy_with->directory, seconds);
        br_stage_warn(w->stage, "dump %" PRIu64 ": %s", h->busy_with->id, reason);
        dump_finish(w, h->busy_with, DUMP_FAILED, reason);
    }
    pthread_mutex_unlock(&w->lock);
    return longest;
}

/* Whether every thread that has anything to do waits for a disk for too long. */
static bool all_hang(const struct writer *w)
{
    for (unsigned i = 0; i < w->nhands; i++)
        if (at_disk_s(&w->hand[i]) <= w->of->disk_timeout_s) return false;
    return true;
}

void writer_drain(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_broadcast(&w->work);
    while (w->nactive > 0 && !all_hang(w)) {
        wait_for(w, &w->idle, 10 * LOOK_MS);
        pthread_mutex_unlock(&w->lock);
        writer_hangs(w); /* a dump whose disk hangs fails; another thread may go on with others */
        pthread_mutex_lock(&w->lock);
    }
    for (struct dump *d = w->dumps; d != NULL; d = d->next)
        dump_finish(w, d, DUMP_FAILED, "the stream ended, and the disk did not answer");
    pthread_mutex_unlock(&w->lock);
}

/* Every thread has ended, or (`left`) waits for a disk. */
static bool may_go(const struct writer *w, bool left)
{
    for (unsigned i = 0; i < w->nhands; i++) {
        const struct hand *h = &w->hand[i];
        if (h->started && !h->exited && !(left && h->disk_since != 0)) return false;
    }
    return true;
}

/* A thread that hangs in a disk is left behind, with its memory. */
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
    while (!may_go(w, br_clock_ns() - begin > LEAVE_S * UINT64_C(1000000000)))
        wait_for(w, &w->idle, 10 * LOOK_MS);
    bool all = may_go(w, false);
    bool exited[DUMP_WRITERS];
    for (unsigned i = 0; i < w->nhands; i++) exited[i] = w->hand[i].exited;
    pthread_mutex_unlock(&w->lock);
    s->writer = NULL;
    for (unsigned i = 0; i < w->nhands; i++) {
        if (!w->hand[i].started) continue;
        if (exited[i])
            pthread_join(w->hand[i].thread, NULL);
        else
            pthread_detach(w->hand[i].thread);
    }
    if (all)
        writer_free(w);
    else
        br_stage_warn(stage, "a disk does not answer: the file that was being written is left as it is");
}
