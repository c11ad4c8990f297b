/* piece.c - one file: its window, copied out of the history frame by frame and written. See dump.h. */
#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "runtime/stage_history.h"
#include "stages/common/stage/made_with.h"
#include "stages/common/stage/writing.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AHEAD = 32 }; /* rows that are fetched before they are copied */

/* One file while it is written. */
struct dump_file {
    const struct dump *dump;
    const struct piece *piece;
    size_t ndish, row_bytes;       /* of this file */
    uint64_t step;                 /* base samples of a row */
    struct br_stream stream;       /* the description of what is in it: it shares the tables of the stage's */
    struct br_telescope telescope; /* of the stream, if only some dishes are wanted; its tables are its own */
    char path[DUMP_PATH], part[DUMP_PATH]; /* the name that it will have; the one that it has */
    struct writer_window window;
    struct file_writer writer;
};

/* --- the writer's host ---------------------------------------------------------------------------- */

static bool at_disk(void *owner, bool there)
{
    struct hand *h = owner;
    if (!there) return writer_comes_back(h, h->busy_with);
    writer_goes_to_disk(h);
    return true;
}

/* --- the file's place ----------------------------------------------------------------------------- */

/* A link below the stage's directory, `top`, must not lead out of it, to wherever a request may then write.
 * If the directory does not exist yet, the existing part of its path counts. */
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

/* Makes its directory, and looks whether a file may be made there. */
static int prepare_place(struct hand *h, struct dump_file *f, struct br_error *error)
{
    const char *top = h->writer->of->directory;
    char directory[DUMP_DIRECTORY];
    snprintf(directory, sizeof directory, "%s", f->dump->directory);
    if (access(top, F_OK) == 0 && !is_below(directory, top))
        return br_fail(error, BR_E_IO,
                       "%s leads out of %s, where this stage writes; expected directories, not links",
                       directory, top);
    if (fileio_make_directory(directory) != 0)
        return br_fail(error, BR_E_IO, "cannot make the directory %s: %s", directory, strerror(errno));
    if (faccessat(AT_FDCWD, f->path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return br_fail(error, BR_E_IO, "%s exists already: it is not replaced", f->path);
    return BR_OK;
}

/* Gives the complete file its name, once it is on the disk; else it goes. */
static int settle_place(struct dump_file *f, int status, struct br_error *error)
{
    if (status == BR_OK) status = br_output_publish(f->part, f->path, error);
    if (status != BR_OK && f->writer.files > 0) unlink(f->part);
    return status;
}

/* --- copying --------------------------------------------------------------------------------------- */

/* Copies `rows` time steps of the piece's channels from step `step` of the frame on:
 * out[rows][channel][cell], valid[rows][channel]. False: all are valid. */
static bool copy_rows(const struct writer *w, const struct dump_file *f, const struct br_frame *frame,
                      size_t step, size_t rows, uint8_t *out, uint8_t *valid)
{
    const struct dump_stage *s = w->of;
    size_t all = br_stage_input(w->stage, 0)->nchannels, pitch = all * s->cell, count = f->piece->count;
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
 * receives where that begins, which is `end` when there is nothing more. Data that does not follow the
 * block's rows is left for the next one. Returns the number of rows. */
static size_t fetch(struct hand *h, const struct dump_file *f, uint64_t at, struct block *block,
                    uint64_t *from)
{
    struct writer *w = h->writer;
    uint64_t end = f->window.end, step = f->step;
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

static int write_block(struct hand *h, struct dump_file *f, uint64_t first, const struct block *block)
{
    const struct br_frame frame = {.first = first,
                                   .samples = block->rows * f->step,
                                   .data = h->buffer,
                                   .valid = h->valid,
                                   .complete = !block->checked};
    return writer_put(&f->writer, &frame);
}

/* Writes all of the window, block by block; a block may be of several frames. */
static int write_window(struct hand *h, struct dump_file *f)
{
    uint64_t at = f->window.first, end = f->window.end;
    int status = BR_OK;
    while (at < end && status == BR_OK) {
        struct block block = {.room = h->writer->block_rows * h->writer->of->cell / f->row_bytes};
        uint64_t begin = at, from;
        size_t rows;
        do {
            rows = fetch(h, f, at, &block, &from);
            if (block.rows == 0 && from > at) begin = at = from; /* the writer sees what is missing */
            block.rows += rows;
            at += rows * f->step;
        } while (rows > 0 && block.rows < block.room && at < end);
        if (block.rows > 0) status = write_block(h, f, begin, &block);
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

/* The telescope with the wanted dishes only; NULL without memory for it. */
static const struct br_telescope *choose_dishes(struct dump_file *f, const struct br_telescope *all)
{
    size_t n = f->dump->ndishes;
    struct br_dish *dishes = malloc(n * sizeof *dishes);
    double(*position)[3] = malloc(n * sizeof *position);
    f->telescope = *all;
    f->telescope.ndishes = (unsigned)n;
    f->telescope.dishes = dishes;
    f->telescope.position = (const double(*)[3])position;
    if (dishes == NULL || position == NULL) return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = f->dump->dish[i];
        memcpy(position[i], all->position[d], sizeof position[i]);
        if (all->dishes != NULL) dishes[i] = all->dishes[d];
    }
    if (all->dishes == NULL) {
        free(dishes);
        f->telescope.dishes = NULL;
    }
    return &f->telescope;
}

/* The stream of a file: the piece's channels, and the dishes that are wanted. */
static void describe(const struct dump_stage *s, struct dump_file *f, const struct br_stream *in)
{
    const struct piece *p = f->piece;
    struct br_stream *out = &f->stream;
    unsigned z = 0;
    while (z + 1 < in->nzones && in->zone[z + 1].first_channel <= p->channel) z++;
    *out = *in;
    out->nchannels = p->count;
    out->freq_mhz += p->channel;
    out->width_mhz += p->channel;
    out->nzones = 1;
    out->zone[0] = in->zone[z];
    out->zone[0].first_channel = 0;
    out->zone[0].nchannels = p->count;
    out->array.axis[br_array_axis(&in->array, "freq")].length = p->count;
    int dish = br_array_axis(&in->array, "dish");
    f->ndish = f->dump->ndishes > 0 ? f->dump->ndishes : s->ndish;
    if (dish >= 0) out->array.axis[dish].length = f->ndish;
    if (f->dump->ndishes > 0 && in->telescope != NULL) out->telescope = choose_dishes(f, in->telescope);
    f->step = out->zone[0].downsample;
    f->row_bytes = p->count * (f->dump->ndishes > 0 ? s->npol * f->ndish * s->element : s->cell);
}

static int write_file(struct hand *h, struct dump_file *f)
{
    struct file_writer *w = &f->writer;
    writer_to_disk(w);
    int why = writer_from_disk(w, prepare_place(h, f, &w->error) == BR_OK ? 0 : EIO);
    if (why != 0) return writer_failed(w, "make", f->path, why);
    int status = writer_refuses(w);
    if (status == BR_OK) status = writer_open(w);
    if (status == BR_OK) status = write_window(h, f);
    int closed = writer_close(w);
    if (status == BR_OK) status = closed;
    writer_to_disk(w);
    status = settle_place(f, status, &w->error);
    why = writer_from_disk(w, 0);
    return status == BR_OK && why != 0 ? BR_E_STOPPED : status;
}

enum dump_state piece_write(struct hand *h, const struct dump *d, struct piece *p, struct br_error *error)
{
    const struct dump_stage *s = h->writer->of;
    const struct br_stream *in = br_stage_input(h->writer->stage, 0);
    struct dump_file f = {.dump = d, .piece = p};
    char name[DUMP_PATH];
    uint64_t samples = p->window.end - p->window.first;
    p->missing = samples;
    p->bytes = 0;
    if (samples == 0 || !is_there(h->writer, &p->window)) return DUMP_EMPTY;
    describe(s, &f, in);
    dump_name(s, d, p, name, sizeof name);
    snprintf(f.path, sizeof f.path, "%.900s/%.900s", d->directory, name);
    snprintf(f.part, sizeof f.part, "%.900s/%.900s.part", d->directory, name);
    f.window = (struct writer_window){.path = f.part,
                                      .name = f.path,
                                      .first = p->window.first,
                                      .end = p->window.end,
                                      .number = s->number[p->index],
                                      .event = d->id,
                                      .dm = d->sweep.dm,
                                      .dm_error = d->sweep.dm_error,
                                      .ref_mhz = d->sweep.ref_mhz,
                                      .direction = d->direction,
                                      .dish = d->dish,
                                      .ndishes = d->ndishes,
                                      .all_dishes = s->ndish};
    f.writer = (struct file_writer){.format = d->format,
                                    .stream = &f.stream,
                                    .host = writing_host(h->writer->stage),
                                    .state = calloc(1, d->format->size),
                                    .lossy = true, /* as well as it can be said */
                                    .window = &f.window};
    f.writer.host.note = NULL;
    f.writer.host.disk = at_disk;
    f.writer.host.disk_owner = h;
    f.writer.host.updates_room = made_with_room(h->writer->stage);
    int status = f.writer.state != NULL ? write_file(h, &f) : writer_no_memory(&f.writer, d->format->size);
    free(f.writer.state);
    free((void *)f.telescope.dishes);
    free((void *)f.telescope.position);
    p->missing = f.writer.lacking;
    if (status == BR_OK) p->bytes = samples / f.step * f.row_bytes;
    *error = f.writer.error;
    return status == BR_OK ? DUMP_DONE : status == BR_E_STOPPED ? DUMP_CANCELLED : DUMP_FAILED;
}
