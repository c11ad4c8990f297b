/* piece.c - one file: its window, copied out of the history frame by frame and written. See dump.h. */
#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "runtime/stage_history.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AHEAD = 32 }; /* rows that are fetched before they are copied */

static int io_failed(struct dump_file *f, const char *what, const char *path, int why)
{
    return br_fail(&f->error, BR_E_IO, "cannot %s %s: %s", what, path, strerror(why));
}

/* A link below the stage's directory, `top`, must not lead out of it, to wherever a request may then write.
 * Of a directory that is yet to be made the part counts that is there. */
static bool is_below(const char *directory, const char *top)
{
    char real[PATH_MAX], real_top[PATH_MAX], part[DUMP_DIRECTORY], *slash;
    snprintf(part, sizeof part, "%s", directory);
    while (realpath(part, real) == NULL) {
        if (errno != ENOENT || (slash = strrchr(part, '/')) == NULL) return false;
        *slash = '\0';
    }
    if (realpath(top, real_top) == NULL) return false;
    size_t n = strcmp(real_top, "/") == 0 ? 0 : strlen(real_top);
    return strncmp(real, real_top, n) == 0 && (real[n] == '/' || real[n] == '\0');
}

/* Makes the file under another name, with room for all of it, so that a full disk is known now. */
static int open_file(struct dump_file *f)
{
    char directory[DUMP_DIRECTORY];
    snprintf(directory, sizeof directory, "%s", f->dump->directory);
    if (access(f->of->directory, F_OK) == 0 && !is_below(directory, f->of->directory))
        return br_fail(&f->error, BR_E_IO,
                       "%s leads out of %s, where this stage writes; expected directories, not links",
                       directory, f->of->directory);
    if (fileio_make_directory(directory) != 0) return io_failed(f, "make the directory", directory, errno);
    if (faccessat(AT_FDCWD, f->path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return br_fail(&f->error, BR_E_IO, "%s is there already: it is not replaced", f->path);
    f->fd = br_output_open(f->part, true, &f->error);
    if (f->fd < 0) return BR_E_IO;
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
    if (status == BR_OK) status = br_output_rename(f->part, f->path, &f->error);
    if (status != BR_OK) unlink(f->part);
    f->fd = -1;
    return status;
}

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
    if (frame->complete) {
        memset(valid, BR_VALID, rows * count);
        return false;
    }
    const uint8_t *cells = frame->valid + step * all + f->piece->channel;
    for (size_t r = 0; r < rows; r++) memcpy(valid + r * count, cells + r * all, count);
    return true;
}

/* Rows that follow each other, copied and not yet written. */
struct block {
    size_t rows, room;
    bool checked; /* not all of them are valid */
};

/* Copies what the oldest frame behind base sample `at` has of the window behind the block's rows; *from
 * receives where that begins, which is `end` when there is nothing more. What does not follow the block's
 * rows is left for the next one. Returns the number of rows. */
static size_t fetch(struct hand *h, const struct dump_file *f, uint64_t at, struct block *block,
                    uint64_t *from)
{
    struct writer *w = h->writer;
    uint64_t end = f->piece->window.end, step = zone_step(f->stream, f->piece->channel);
    const struct br_frame *frame = br_stage_hold(w->stage, 0, at);
    *from = end;
    if (frame == NULL) return 0;
    uint64_t first = frame->first / step * step, behind = frame->first + frame->samples;
    if (first < at) first = at;
    size_t rows = 0;
    if (first < end && (block->rows == 0 || first == at)) {
        uint64_t last = (behind + step - 1) / step;
        if (last > end / step) last = end / step;
        rows = (size_t)(last - first / step);
        if (rows > block->room - block->rows) rows = block->room - block->rows;
        block->checked |=
            copy_rows(w, f, frame, (size_t)(first / step - frame->first / step), rows,
                      h->buffer + block->rows * f->row_bytes, h->valid + block->rows * f->piece->count);
        *from = first;
    }
    br_stage_let_go(w->stage, 0, frame);
    return rows;
}

static int write_block(struct hand *h, struct dump_file *f, uint64_t row, const struct block *block)
{
    int status = f->dump->format->rows(f, row, block->rows, h->buffer, block->checked ? h->valid : NULL);
    if (status != BR_OK) return status;
    writer_goes_to_disk(h);
    int why = fileio_write(f->fd, h->buffer, block->rows * f->row_bytes, f->offset + row * f->row_bytes);
    if (!writer_comes_back(h, f->dump)) return BR_E_STOPPED;
    return why == 0 ? BR_OK : io_failed(f, "write", f->part, why);
}

/* Writes all of the window, block by block; a block may be of several frames. */
static int write_window(struct hand *h, struct dump_file *f, struct piece *p)
{
    uint64_t step = zone_step(f->stream, p->channel), at = p->window.first;
    int status = BR_OK;
    while (at < p->window.end && status == BR_OK) {
        struct block block = {.room = h->writer->block_rows * f->of->cell / f->row_bytes};
        uint64_t begin = at, from;
        size_t rows;
        do {
            rows = fetch(h, f, at, &block, &from);
            if (block.rows == 0 && from > at) {
                p->missing += from - at;
                status = f->dump->format->lacks(f, at, from);
                begin = at = from;
            }
            block.rows += rows;
            at += rows * step;
        } while (rows > 0 && block.rows < block.room && at < p->window.end && status == BR_OK);
        if (block.rows > 0 && status == BR_OK)
            status = write_block(h, f, (begin - p->window.first) / step, &block);
    }
    return status;
}

/* Whether anything of the window is there. */
static bool is_there(struct writer *w, const struct window *window)
{
    const struct br_frame *frame = br_stage_hold(w->stage, 0, window->first);
    bool there = frame != NULL && frame->first < window->end;
    if (frame != NULL) br_stage_let_go(w->stage, 0, frame);
    return there;
}

enum dump_state piece_write(struct hand *h, const struct dump *d, struct piece *p, struct br_error *error)
{
    struct writer *w = h->writer;
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
        writer_goes_to_disk(h);
        status = open_file(&f);
        if (!writer_comes_back(h, d)) status = BR_E_STOPPED;
    }
    if (status == BR_OK) status = write_window(h, &f, p);
    if (status == BR_OK) status = d->format->describe(&f); /* by now it is known what is missing */
    writer_goes_to_disk(h);
    status = close_file(&f, status);
    if (!writer_comes_back(h, d) && status == BR_OK) status = BR_E_STOPPED;
    d->format->free(&f);
    p->bytes = status == BR_OK ? f.rows * f.row_bytes : 0;
    *error = f.error;
    return status == BR_OK ? DUMP_DONE : status == BR_E_STOPPED ? DUMP_CANCELLED : DUMP_FAILED;
}
