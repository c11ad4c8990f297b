/* kotekan's raw frames: a file for each frame, as its rawFileRead wants it, with the arrays of
 * kotekan_encode.h. */
#include "formats/kotekan/kotekan_encode.h"
#include "stages/record/external.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether a reader that has the channels' numbers and the sample time finds the frequencies. */
static bool numbers_say_frequencies(const struct br_stream *s, const struct kotekan_encoder *e, double width)
{
    unsigned factor = s->zone[0].factor;
    for (size_t i = 0; i < s->nchannels; i++) {
        double fine = br_sky_frequency(s->sideband, width * e->coarse[i / factor],
                                       ((double)(i % factor) - ((double)factor - 1) / 2) * width / factor);
        if (!(fabs(fine - s->freq_mhz[i]) < 1e-6 * width)) return false;
    }
    return true;
}

static int configure(struct br_stage *stage, struct external *f)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    struct br_error error = {0};
    f->encoder = br_stage_alloc(stage, sizeof *f->encoder);
    if (kotekan_encoder_init(f->encoder, s, f->chime, &error) != BR_OK)
        return br_stage_fail_at(stage, "format", "kotekan: %s", error.text);
    double width = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    if (!numbers_say_frequencies(s, f->encoder, width)) {
        external_loses(f,
                       "the frequencies (they are not multiples of the channel width %.9g MHz, by which "
                       "channels are numbered)",
                       width);
        for (size_t i = 0; i < f->encoder->ncoarse; i++) f->encoder->coarse[i] = (int32_t)i;
    }
    for (size_t i = 0; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] * s->zone[0].factor / width - 1) > 1e-9) {
            external_loses(f, "the channel width %.9g MHz (a reader takes it from the sample time)",
                           s->width_mhz[i]);
            break;
        }
    br_stage_note(stage,
                  "kotekan's frames have neither sample time nor epoch; who reads them must be told: "
                  "sample_ns: %lld/%lld, epoch_ns: %lld",
                  (long long)s->sample_ns.num, (long long)s->sample_ns.den, (long long)s->epoch_ns);
    return BR_OK;
}

static int start(struct br_stage *stage, struct external *f)
{
    (void)stage;
    (void)f;
    return BR_OK;
}

/* The frame's bytes in kotekan's order. Missing samples of the field are zero. */
static const void *encode(const struct br_stream *s, struct external *f, const struct br_frame *frame,
                          size_t steps, size_t bytes)
{
    const void *data = frame->data;
    if (f->cell > 0 && !frame->complete) {
        uint8_t *filled = f->bytes + br_stream_max_bytes(s);
        memcpy(filled, data, bytes);
        for (size_t i = 0; i < steps * s->nchannels; i++)
            if (frame->valid[i] == BR_MISSING) memset(filled + i * f->cell, 0, f->cell);
        data = filled;
    }
    if (f->encoder->copy) return data;
    kotekan_encode(f->encoder, steps, data, f->bytes);
    for (size_t i = 0; f->encoder->chime && i < bytes; i++) {
        if (f->bytes[i] != 0) continue;
        f->bytes[i] = 0x10; /* -7 - 8i: 0 would mean missing */
        f->changed++;
    }
    return f->bytes;
}

static int write_frame(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    static const uint8_t size[4] = {CHORD_METADATA_BYTES & 0xff, CHORD_METADATA_BYTES >> 8, 0, 0};
    const struct br_stream *s = br_stage_input(stage, 0);
    uint8_t head[4 + CHORD_METADATA_BYTES];
    size_t steps = br_time_steps(frame->first, frame->samples, s->zone[0].downsample),
           bytes = br_frame_bytes(s, frame);
    memcpy(head, size, 4);
    kotekan_encode_metadata(f->encoder, frame->first, steps, (int32_t)(f->frames - 1), head + 4);
    const void *data = encode(s, f, frame, steps, bytes);
    int status = external_name(stage, f, f->files);
    if (status != BR_OK) return status;
    FILE *file = fopen(f->path, f->overwrite ? "wbe" : "wbex");
    if (file == NULL) return external_failed(stage, f, "make");
    bool good = fwrite(head, 1, sizeof head, file) == sizeof head && fwrite(data, 1, bytes, file) == bytes;
    int why = errno;
    good = fclose(file) == 0 && good;
    if (good) return BR_OK;
    if (why != 0) errno = why;
    return external_failed(stage, f, "write");
}

static int stop(struct br_stage *stage, struct external *f)
{
    (void)stage;
    (void)f;
    return BR_OK;
}

const struct external_format external_kotekan = {.name = "kotekan",
                                                 .suffix = "raw",
                                                 .arrays = true,
                                                 .configure = configure,
                                                 .start = start,
                                                 .write = write_frame,
                                                 .stop = stop};
