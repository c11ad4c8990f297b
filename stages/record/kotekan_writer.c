/* kotekan's raw frames: a file for each frame, as its rawFileRead wants it. */
#include "stages/common/formats/kotekan_raw.h"
#include "stages/record/external.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int configure(struct br_stage *stage, struct external *f)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    if (s->nchannels > CHORD_MAX_FREQ)
        return br_stage_fail_at(stage, "format",
                                "kotekan: chordMetadata has room for %d channels; the input has %zu",
                                CHORD_MAX_FREQ, s->nchannels);
    double width = 1e3 * (double)s->sample_ns.den / (double)s->sample_ns.num;
    if (!external_numbers(s, 0, width, f->id)) {
        external_loses(f,
                       "the frequencies (they are no multiples of the channel width %.9g MHz, by which "
                       "channels are numbered)",
                       width);
        for (size_t i = 0; i < s->nchannels; i++) f->id[i] = (int32_t)i;
    }
    for (size_t i = 0; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] / width - 1) > 1e-9) {
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

static int write_frame(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    static const uint8_t size[4] = {CHORD_METADATA_BYTES & 0xff, CHORD_METADATA_BYTES >> 8, 0, 0};
    const struct br_stream *s = br_stage_input(stage, 0);
    struct chord_metadata m;
    uint8_t head[4 + CHORD_METADATA_BYTES];
    chord_metadata_init(&m, "E", CHORD_INT4X2);
    chord_metadata_add(&m, "T", (size_t)frame->samples);
    chord_metadata_add(&m, "F", f->nchannels);
    chord_metadata_add(&m, "P", f->npol);
    chord_metadata_add(&m, "D", f->ndish);
    chord_metadata_finish(&m);
    m.frame_counter = (int32_t)(f->frames - 1);
    chord_metadata_set_times(&m, f->nchannels, f->id, 1, frame->first, 1);
    memcpy(head, size, 4);
    chord_metadata_encode(&m, head + 4);
    int status = external_name(stage, f, f->files);
    if (status != BR_OK) return status;
    FILE *file = fopen(f->path, f->overwrite ? "wbe" : "wbex");
    if (file == NULL) return external_failed(stage, f, "make");
    size_t bytes = br_frame_bytes(s, frame);
    bool good =
        fwrite(head, 1, sizeof head, file) == sizeof head && fwrite(frame->data, 1, bytes, file) == bytes;
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
                                                 .configure = configure,
                                                 .start = start,
                                                 .write = write_frame,
                                                 .stop = stop};
