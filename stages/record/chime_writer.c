/* CHIME baseband files: one for each channel; what is never written, or missing, is zero.
 *
 * The data go to the disk as plain bytes, all channels of a frame or none; HDF5 describes them in memory.
 * The bytes before them are written when a file begins, whenever it has become twice as long, so that a run
 * that is killed leaves at least half, and at the end. */
#include "buffers/output.h"
#include "formats/chime/chime_attributes.h"
#include "formats/common/fileio.h"
#include "stages/common/stage/shape.h"
#include "stages/record/external.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double top_mhz = CHIME_TOP_MHZ, step_mhz = CHIME_STEP_MHZ;

static int configure(struct br_stage *stage, struct external *f)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    if (!external_numbers(s, top_mhz, step_mhz, f->id)) {
        external_loses(
            f, "the channel numbers (the frequencies are not 800 MHz less a whole number of 0.390625 MHz)");
        for (size_t i = 0; i < s->nchannels; i++) f->id[i] = (int32_t)i;
    }
    for (size_t i = 0; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] / step_mhz + 1) > 1e-9) {
            external_loses(f, "the channel width %.9g MHz (a reader takes 0.390625)", s->width_mhz[i]);
            break;
        }
    if (s->sample_ns.den != 1)
        external_loses(f, "the exact sample time %lld/%lld ns", (long long)s->sample_ns.num,
                       (long long)s->sample_ns.den);
    if (s->sideband == BR_SIDEBAND_UNKNOWN)
        br_stage_note(stage,
                      "nobody says which sideband the channels hold; readers of CHIME's files take the lower "
                      "one. Say which: `stream: {sideband: upper}` or `lower`");
    br_stage_note(stage,
                  "CHIME's files have inputs in a row; who reads them must be told that they are %zu "
                  "polarisations of %zu dishes: npol: "
                  "%zu",
                  f->npol, f->ndish, f->npol);
    return BR_OK;
}

static int start(struct br_stage *stage, struct external *f)
{
    f->fd = malloc(f->nchannels * sizeof *f->fd);
    if (f->fd == NULL) return br_no_memory(stage, f->nchannels * sizeof *f->fd);
    for (size_t i = 0; i < f->nchannels; i++) f->fd[i] = -1;
    for (size_t i = 0; i < f->nchannels; i++) {
        int status = external_name(stage, f, (uint64_t)f->id[i]);
        if (status != BR_OK) return status;
    }
    f->files = 0;
    return BR_OK;
}

/* A channel's rows in the coding chime: value + 8, real part high; zero where it is missing. */
static void encode(struct external *f, const struct br_frame *frame, size_t channel, uint8_t *out)
{
    for (size_t t = 0; t < frame->samples; t++, out += f->cell) {
        size_t at = t * f->nchannels + channel;
        const uint8_t *in = (const uint8_t *)frame->data + at * f->cell;
        if (!frame->complete && frame->valid[at] == BR_MISSING) {
            memset(out, 0, f->cell);
            continue;
        }
        for (size_t i = 0; i < f->cell; i++) {
            uint8_t flipped = in[i] ^ 0x88;
            out[i] = (uint8_t)(flipped << 4 | flipped >> 4);
            if (out[i] != 0) continue;
            out[i] = 0x10; /* -7 - 8i: 0 would mean missing */
            f->changed++;
        }
    }
}

/* The description of a channel's file. */
struct description {
    const struct external *f;
    const struct br_stream *stream;
    size_t channel;
};

static bool put(hid_t file, const void *arg)
{
    const struct description *d = arg;
    return chime_put_attributes(file, d->stream, d->channel, d->f->id[d->channel], d->f->first) &&
           chime_put_inputs(file, d->f->cell, NULL);
}

/* Writes what stands before and behind `rows` rows of a channel, and cuts off what else there is. 0, or an
 * errno. */
static int describe(struct external *f, const struct br_stream *s, size_t channel, uint64_t rows)
{
    const struct description d = {f, s, channel};
    struct chime_around around;
    bool good = chime_describe(&around, rows, f->cell, put, &d);
    if (f->before == 0) f->before = around.head_bytes;
    int why = good && f->before == around.head_bytes ? 0 : ENOMEM;
    uint64_t end = f->before + rows * f->cell;
    if (why == 0 && ftruncate(f->fd[channel], (off_t)end) != 0) why = errno;
    if (why == 0) why = fileio_write(f->fd[channel], around.tail, around.tail_bytes, end);
    if (why == 0) why = fileio_write(f->fd[channel], around.head, around.head_bytes, 0);
    free(around.head);
    free(around.tail);
    return why;
}

/* The frame's rows of a channel behind the `f->rows` that are there. 0, or an errno. */
static int write_channel(struct external *f, const struct br_stream *s, const struct br_frame *frame,
                         size_t i)
{
    uint64_t row = frame->first - f->first;
    int why = row >= 2 * f->described ? describe(f, s, i, f->rows > 0 ? f->rows : 1) : 0;
    encode(f, frame, i, f->bytes);
    return why != 0 ? why
                    : fileio_write(f->fd[i], f->bytes, frame->samples * f->cell, f->before + row * f->cell);
}

static int open_file(struct br_stage *stage, struct external *f, size_t channel)
{
    struct br_error error = {0};
    int status = external_name(stage, f, (uint64_t)f->id[channel]);
    if (status != BR_OK) return status;
    f->fd[channel] = br_output_open(f->path, f->overwrite, &error);
    return f->fd[channel] >= 0 ? BR_OK : br_stage_fail(stage, BR_E_IO, "%s", error.text);
}

static int write_frame(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    uint64_t row = frame->first - f->first;
    for (size_t i = 0; i < f->nchannels; i++) {
        int status = f->fd[i] < 0 ? open_file(stage, f, i) : BR_OK;
        if (status != BR_OK) return status;
        int why = write_channel(f, s, frame, i);
        if (why != 0)
            return br_stage_fail(
                stage, BR_E_IO,
                "cannot write channel %d to %s/%s_*.h5: %s; the %llu samples before this are there", f->id[i],
                f->directory, f->prefix, strerror(why), (unsigned long long)f->rows);
    }
    if (row >= 2 * f->described) f->described = f->rows > 0 ? f->rows : 1;
    f->rows = row + frame->samples;
    return BR_OK;
}

/* Completes the files, with the rows that all of them have. One that has none goes. */
static int stop(struct br_stage *stage, struct external *f)
{
    int status = BR_OK;
    for (size_t i = 0; f->fd != NULL && i < f->nchannels; i++) {
        if (f->fd[i] < 0) continue;
        int why = f->rows > 0 ? describe(f, br_stage_input(stage, 0), i, f->rows) : 0;
        if (close(f->fd[i]) != 0 && why == 0) why = errno;
        if (f->rows == 0) unlink(external_path(f, (uint64_t)f->id[i]));
        if (why != 0 && status == BR_OK)
            status = br_stage_fail(stage, BR_E_IO, "cannot complete channel %d of %s/%s_*.h5: %s", f->id[i],
                                   f->directory, f->prefix, strerror(why));
    }
    free(f->fd);
    f->fd = NULL;
    return status;
}

const struct external_format external_chime = {.name = "chime",
                                               .suffix = "h5",
                                               .says_missing = true,
                                               .says_sideband = true,
                                               .configure = configure,
                                               .start = start,
                                               .write = write_frame,
                                               .stop = stop};
