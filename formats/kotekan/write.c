/* kotekan's raw frames: a file for each frame, as its rawFileRead wants it, with the arrays of
 * kotekan_encode.h. */
#include "formats/kotekan/kotekan_encode.h"
#include "formats/writer.h"

#include <errno.h>
#include <math.h>
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

static int refuses(struct file_writer *f)
{
    const struct br_stream *s = f->stream;
    struct br_error error = {0};
    struct kotekan_encoder *e = f->state;
    if (kotekan_encoder_init(e, s, f->int4p4chime, &error) != BR_OK)
        return writer_refuse(f, "format", "kotekan: %s", error.text);
    double width = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    if (!numbers_say_frequencies(s, e, width)) {
        writer_loses(f,
                     "the frequencies (they are not multiples of the channel width %.9g MHz, by which "
                     "channels are numbered)",
                     width);
        for (size_t i = 0; i < e->ncoarse; i++) e->coarse[i] = (int32_t)i;
    }
    for (size_t i = 0; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] * s->zone[0].factor / width - 1) > 1e-9) {
            writer_loses(f, "the channel width %.9g MHz (a reader takes it from the sample time)",
                         s->width_mhz[i]);
            break;
        }
    writer_note(f,
                "kotekan's frames have neither sample time nor epoch; tell their reader: sample_ns: "
                "%lld/%lld, epoch_ns: %lld",
                (long long)s->sample_ns.num, (long long)s->sample_ns.den, (long long)s->epoch_ns);
    return BR_OK;
}

/* The frame's bytes in kotekan's order. Missing samples of the field are zero. */
static const void *encode(const struct br_stream *s, struct file_writer *f, const struct br_frame *frame,
                          size_t steps, size_t bytes)
{
    const struct kotekan_encoder *e = f->state;
    const void *data = frame->data;
    if (f->cell > 0 && !frame->complete) {
        uint8_t *filled = f->bytes + br_stream_max_bytes(s);
        memcpy(filled, data, bytes);
        for (size_t i = 0; i < steps * s->nchannels; i++)
            if (frame->valid[i] == BR_MISSING) memset(filled + i * f->cell, 0, f->cell);
        data = filled;
    }
    if (e->copy) return data;
    kotekan_encode(e, steps, data, f->bytes);
    for (size_t i = 0; e->chime && i < bytes; i++) {
        if (f->bytes[i] != 0) continue;
        f->bytes[i] = 0x10; /* -7 - 8i: 0 would mean missing */
        f->changed++;
    }
    return f->bytes;
}

static int put(struct file_writer *f, const struct br_frame *frame)
{
    static const uint8_t size[4] = {CHORD_METADATA_BYTES & 0xff, CHORD_METADATA_BYTES >> 8, 0, 0};
    const struct br_stream *s = f->stream;
    struct kotekan_encoder *e = f->state;
    uint8_t head[4 + CHORD_METADATA_BYTES];
    size_t steps = br_time_steps(frame->first, frame->samples, s->zone[0].downsample),
           bytes = br_frame_bytes(s, frame);
    memcpy(head, size, 4);
    kotekan_encode_metadata(e, frame->first, steps, (int32_t)(f->frames - 1), head + 4);
    const void *data = encode(s, f, frame, steps, bytes);
    FILE *file = writer_stream(f, f->files);
    if (file == NULL) return f->error.status;
    bool good = fwrite(head, 1, sizeof head, file) == sizeof head && fwrite(data, 1, bytes, file) == bytes;
    return writer_end_stream(f, file, sizeof head + bytes, "frames", good ? 0 : errno);
}

const struct writer_format kotekan_files =
    WRITER_FORMAT("kotekan", "raw", kotekan_encoder, .arrays = true, .refuses = refuses);
