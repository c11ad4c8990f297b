/* dada_file.c - a window as a DADA recording that `replay` reads, with what it lacks in its sidecar. */
#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "formats/common/gaps.h"
#include "formats/common/text.h"
#include "formats/dada/recording.h"
#include "stages/common/stage/made_with.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOIN = 64 }; /* lines among which one is looked for that goes on */

static const char *refuses(const struct br_stream *stream)
{
    (void)stream;
    return NULL;
}

/* The stream of a file: the piece's channels, and the dishes that are wanted. */
static void make_stream(struct dump_file *f)
{
    const struct br_stream *s = f->stream;
    const struct piece *p = f->piece;
    const struct br_zone *zone = &s->zone[0];
    for (unsigned z = 1; z < s->nzones && s->zone[z].first_channel <= p->channel; z++) zone = &s->zone[z];
    f->sub = *s;
    f->sub.nchannels = p->count;
    f->sub.freq_mhz += p->channel;
    f->sub.width_mhz += p->channel;
    f->sub.nzones = 1;
    f->sub.zone[0] = *zone;
    f->sub.zone[0].first_channel = 0;
    f->sub.zone[0].nchannels = p->count;
    f->sub.array.axis[br_array_axis(&s->array, "freq")].length = p->count;
    int dish = br_array_axis(&s->array, "dish");
    if (dish >= 0) f->sub.array.axis[dish].length = f->ndish;
    if (f->dump->ndishes > 0) f->sub.telescope = NULL; /* whose dishes these are not */
}

static void format_header(struct dada_writer *w, const struct dump_file *f)
{
    const struct dump *d = f->dump;
    const struct window *window = &f->piece->window;
    const char *slash = strrchr(f->path, '/');
    char id[32], list[TEXT_REAL], updates[MADE_WITH_ROOM];
    made_with(f->of->writer->stage, window->first, window->end, updates, sizeof updates);
    snprintf(id, sizeof id, "%" PRIu64, d->id);
    struct recording_file file = {.name = slash != NULL ? slash + 1 : f->path,
                                  .obs_id = id,
                                  .first = window->first,
                                  .samples = window->end - window->first,
                                  .payload_bytes = f->rows * f->row_bytes,
                                  .obs_first = window->first,
                                  .header_bytes = (size_t)f->offset,
                                  .updates = updates};
    recording_format(w, &f->sub, &file);
    dada_put(w, "EVENT_ID", "%s", id);
    dada_put(w, "EVENT_DM", "%s", text_real_format(list, d->sweep.dm));
    dada_put(w, "EVENT_DM_ERROR", "%s", text_real_format(list, d->sweep.dm_error));
    if (isfinite(d->sweep.ref_mhz))
        dada_put(w, "EVENT_FREQ_REF_MHZ", "%s", text_real_format(list, d->sweep.ref_mhz));
    dada_put(w, "MISSING_SAMPLES", "%" PRIu64, f->piece->missing);
    for (size_t i = 0; i < d->ndishes; i++) { /* numbers in the stream of what stands in the file */
        char key[32];
        snprintf(key, sizeof key, "DISH_%zu", i);
        dada_put(w, key, "%zu", d->dish[i]);
    }
}

static int describe(struct dump_file *f)
{
    if (f->header == NULL) {
        struct dada_writer length = {0};
        make_stream(f);
        f->offset = DADA_MAX_HEADER; /* as many digits as it may have */
        format_header(&length, f);
        length.used += made_with_room(f->of->writer->stage); /* more may come until it is written */
        f->offset = (length.used + 128 + DADA_BLOCK - 1) / DADA_BLOCK * DADA_BLOCK;
        f->scratch = malloc(2 * f->piece->count);
        f->header = malloc(f->offset);
        if (f->scratch == NULL || f->header == NULL)
            return br_fail(&f->error, BR_E_NO_MEMORY, "no memory for the header of %s", f->path);
    }
    struct dada_writer writer = {(char *)f->header, (size_t)f->offset, 0};
    format_header(&writer, f);
    if (dada_finish(&writer, (size_t)f->offset)) return BR_OK;
    return br_fail(&f->error, BR_E_INTERNAL, "the header of %s does not fit", f->path);
}

/* One line more, or one that goes on. */
static int add(void *arg, const struct gap *gap)
{
    struct dump_file *f = arg;
    for (size_t i = f->ngaps; i-- > 0 && i + JOIN >= f->ngaps;) {
        struct gap *line = &f->gap[i];
        if (line->first + line->count != gap->first || line->channel != gap->channel ||
            line->nchannels != gap->nchannels || line->weight != gap->weight)
            continue;
        line->count += gap->count;
        return 0;
    }
    if (f->ngaps == f->gap_room) {
        size_t room = f->gap_room > 0 ? 2 * f->gap_room : 64;
        struct gap *more = realloc(f->gap, room * sizeof *more);
        if (more == NULL)
            return br_fail(&f->error, BR_E_NO_MEMORY, "no memory for %zu gaps of %s", room, f->path);
        f->gap = more;
        f->gap_room = room;
    }
    f->gap[f->ngaps++] = *gap;
    return 0;
}

static int rows(struct dump_file *f, uint64_t row, uint64_t count, uint8_t *data, const uint8_t *valid)
{
    (void)data;
    if (valid == NULL) return BR_OK;
    uint64_t step = f->sub.zone[0].downsample;
    struct br_frame frame = {.first = f->piece->window.first + row * step,
                             .samples = count * step,
                             .valid = (uint8_t *)(uintptr_t)valid};
    return gaps_describe(&f->sub, &frame, f->scratch, add, f);
}

static int lacks(struct dump_file *f, uint64_t first, uint64_t end)
{
    struct gap gap = {.first = first, .count = end - first};
    return add(f, &gap);
}

static int failed(struct dump_file *f, const char *what, const char *path, int why)
{
    return br_fail(&f->error, BR_E_IO, "cannot %s %s: %s", what, path, strerror(why));
}

static int write_gaps(struct dump_file *f)
{
    char path[DUMP_PATH + 8];
    snprintf(path, sizeof path, "%s.gaps", f->path);
    if (f->ngaps == 0) {
        if (br_output_check(path, NULL) == BR_OK)
            unlink(path); /* of an earlier file that is not there any more */
        return BR_OK;
    }
    char *text = malloc(f->ngaps * GAPS_LINE);
    if (text == NULL) return br_fail(&f->error, BR_E_NO_MEMORY, "no memory for %s", path);
    size_t used = 0;
    for (size_t i = 0; i < f->ngaps; i++) used += gaps_format(text + used, &f->gap[i]);
    int fd = br_output_open(path, true, &f->error);
    int why = fd < 0 ? 0 : fileio_write(fd, text, used, 0);
    if (fd >= 0 && close(fd) != 0 && why == 0) why = errno;
    free(text);
    if (fd < 0) return BR_E_IO;
    return why == 0 ? BR_OK : failed(f, "write", path, why);
}

static int finish(struct dump_file *f)
{
    int why = fileio_write(f->fd, f->header, (size_t)f->offset, 0);
    return why == 0 ? write_gaps(f) : failed(f, "write the header of", f->part, why);
}

static void free_file(struct dump_file *f)
{
    free(f->scratch);
    free(f->gap);
    free(f->header);
}

const struct dump_format dump_dada = {"dada", "dada", refuses, describe, rows, lacks, finish, free_file};
