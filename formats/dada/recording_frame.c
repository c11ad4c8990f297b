/* The frames of a payload, and whether two payloads are parts of one: recording.h's second half. */
#include "formats/dada/recording.h"

#include <string.h>

bool recording_is_flat(const struct br_stream *stream, size_t *row_bytes)
{
    const struct br_array *array = &stream->array;
    *row_bytes = 0;
    if (array->naxes == 0 || br_array_axis(array, "time") != 0 || br_stream_is_zoned(stream) ||
        stream->side.naxes > 0)
        return false;
    size_t bits = br_dtype_bits(array->dtype);
    for (unsigned i = 1; i < array->naxes; i++) bits *= array->axis[i].length;
    if (bits % 8 != 0) return false;
    *row_bytes = bits / 8;
    return true;
}

uint64_t recording_frame_end(const struct br_stream *stream, uint64_t at)
{
    return (at / stream->frame_samples + 1) * stream->frame_samples;
}

uint64_t recording_frame_bytes(const struct br_stream *stream, uint64_t first, uint64_t samples)
{
    struct br_frame frame = {.first = first, .samples = samples};
    return (uint64_t)br_frame_bytes(stream, &frame) +
           (stream->side.naxes > 0 ? br_array_bytes(&stream->side) : 0);
}

/* A corrupt header can announce products that no 64-bit counter holds: such a span ends at 2^62. */
static uint64_t bounded(__uint128_t samples)
{
    const uint64_t most = UINT64_C(1) << 62;
    return samples > most ? most : (uint64_t)samples;
}

uint64_t recording_count_samples(const struct br_stream *stream, uint64_t first, uint64_t bytes)
{
    size_t row;
    if (recording_is_flat(stream, &row)) {
        uint64_t downsample = stream->zone[0].downsample, steps = bytes / row;
        return steps == 0 ? 0 : bounded((__uint128_t)steps * downsample - first % downsample);
    }
    uint64_t end = recording_frame_end(stream, first),
             head = recording_frame_bytes(stream, first, end - first);
    if (bytes < head) return 0;
    uint64_t full = recording_frame_bytes(stream, 0, stream->frame_samples);
    return bounded(end - first + (__uint128_t)((bytes - head) / full) * stream->frame_samples);
}

uint64_t recording_offset(const struct br_stream *stream, uint64_t first, uint64_t at)
{
    size_t row;
    if (recording_is_flat(stream, &row)) {
        uint64_t downsample = stream->zone[0].downsample;
        return (at / downsample - first / downsample) * row;
    }
    if (at <= first) return 0;
    uint64_t end = recording_frame_end(stream, first);
    uint64_t full = recording_frame_bytes(stream, 0, stream->frame_samples);
    return recording_frame_bytes(stream, first, end - first) + (at - end) / stream->frame_samples * full;
}

uint64_t recording_payload_bytes(const struct br_stream *stream, uint64_t first, uint64_t samples)
{
    size_t row;
    if (samples == 0) return 0;
    if (recording_is_flat(stream, &row))
        return br_time_steps(first, samples, stream->zone[0].downsample) * (uint64_t)row;
    uint64_t end = first + samples, last = (end - 1) / stream->frame_samples * stream->frame_samples;
    if (last < first) last = first;
    return recording_offset(stream, first, last) + recording_frame_bytes(stream, last, end - last);
}

uint64_t recording_block(const struct recording *recording, uint64_t payload, uint64_t stride[AXIS_COUNT])
{
    const struct br_array *a = &recording->stream.array;
    size_t length[AXIS_COUNT] = {1, a->axis[1].length, a->axis[2].length, a->axis[3].length};
    bool rows = axis_order_time_slowest(&recording->order, length);
    uint64_t whole = payload / recording->row_bytes,
             samples = rows || recording->order.heap == 0 ? whole : recording->order.heap;
    length[AXIS_T] = samples;
    axis_order_strides(&recording->order, length, br_dtype_bits(a->dtype) / 8, stride);
    return samples <= whole ? samples : 0;
}

const char *recording_time_from(const struct recording *r, const struct br_stream_hints *hints)
{
    if (hints != NULL && hints->have_epoch) return "by `stream: epoch_ns`";
    return r->own ? "by EPOCH_NS in its header" : "by UTC_START or MJD_START in its header";
}

int recording_payload(const struct recording *r, const char *path, uint64_t file_bytes, uint64_t *payload,
                      uint64_t *behind, struct br_error *error)
{
    *payload = file_bytes > r->payload_offset ? file_bytes - r->payload_offset : 0;
    *behind = 0;
    if (r->announced == 0 || *payload <= r->announced) return BR_OK;
    if (dada_begins_at(path, r->payload_offset + r->announced))
        return br_fail(
            error, BR_E_FORMAT,
            "%s: FILE_SIZE is %llu, and at byte %llu another DADA header begins; expected one header in "
            "a file: divide it there (`split -b %llu`, if all parts are as long)",
            path, (unsigned long long)r->announced, (unsigned long long)(r->payload_offset + r->announced),
            (unsigned long long)(r->payload_offset + r->announced));
    if (r->own) return BR_OK;
    *behind = *payload - r->announced;
    *payload = r->announced;
    return BR_OK;
}

uint64_t recording_samples(const struct recording *recording, uint64_t bytes, uint64_t *left)
{
    const struct br_stream *stream = &recording->stream;
    if (!recording->plain) {
        uint64_t stride[AXIS_COUNT], block = recording_block(recording, bytes, stride),
                                     whole = block > 0 ? bytes / recording->row_bytes / block * block : 0;
        *left = bytes - whole * recording->row_bytes;
        return whole;
    }
    uint64_t counted = recording_count_samples(stream, recording->first, bytes), said = recording->samples;
    /* A frame or step that the stream's end cut short can only be told by the header. A header that was not
     * brought up to date before the writer was killed says less than there is. */
    if (said > 0 && said <= counted + stream->frame_samples) {
        uint64_t needed = recording_payload_bytes(stream, recording->first, said);
        if (needed == bytes || (needed < bytes && said > counted)) {
            *left = bytes - needed;
            return said;
        }
    }
    *left = bytes - recording_payload_bytes(stream, recording->first, counted);
    return counted;
}

uint8_t recording_missing_byte(const struct br_stream *stream)
{
    bool product = br_array_axis(&stream->array, "beam") >= 0;
    enum br_dtype dtype = stream->array.dtype;
    if (!product) return 0;
    return dtype == BR_INT4 || dtype == BR_INT4X2 ? 0x88 : dtype == BR_INT8X2 ? 0x80 : 0;
}

/* Copies `count` elements of `bits` bits, from element i of source to element j of target. */
static void copy_elements(uint8_t *target, size_t j, const uint8_t *source, size_t i, size_t count,
                          unsigned bits)
{
    if (bits >= 8) {
        memcpy(target + j * (bits / 8), source + i * (bits / 8), count * (bits / 8));
        return;
    }
    if (i % 2 == 0 && j % 2 == 0) {
        memcpy(target + j / 2, source + i / 2, count / 2);
        i += count / 2 * 2;
        j += count / 2 * 2;
        count %= 2;
    }
    for (; count > 0; count--, i++, j++) {
        unsigned value = (source[i / 2] >> (i % 2 * 4)) & 15;
        unsigned keep = target[j / 2] & (j % 2 ? 0x0f : 0xf0);
        target[j / 2] = (uint8_t)(keep | value << (j % 2 * 4));
    }
}

/* Copies steps [step, step + n) of [outer][steps][inner] arrays, counted from each one's own first step. */
static void copy_steps(uint8_t *target, uint64_t target_step, size_t target_steps, const uint8_t *source,
                       uint64_t source_step, size_t source_steps, uint64_t step, size_t n, size_t outer,
                       size_t inner, unsigned bits)
{
    for (size_t o = 0; o < outer; o++)
        copy_elements(target, (o * target_steps + (size_t)(step - target_step)) * inner, source,
                      (o * source_steps + (size_t)(step - source_step)) * inner, n * inner, bits);
}

void recording_place(const struct br_stream *stream, struct br_frame *target, const struct br_frame *source,
                     uint64_t from, uint64_t to)
{
    if (from >= to) return;
    const struct br_array *array = &stream->array;
    int time = br_array_axis(array, "time"), freq = br_array_axis(array, "freq");
    unsigned bits = br_dtype_bits(array->dtype);
    for (unsigned p = 0; p < br_stream_nparts(stream); p++) {
        struct br_part t = br_stream_part(stream, p, target->first, target->samples);
        struct br_part s = br_stream_part(stream, p, source->first, source->samples);
        size_t outer = 1, inner = 1;
        for (int i = 0; i < (int)array->naxes; i++) {
            size_t length = i == freq ? t.nchannels : array->axis[i].length;
            if (i < time) outer *= length;
            if (i > time) inner *= length;
        }
        uint64_t step = from / t.downsample;
        size_t n = br_time_steps(from, to - from, t.downsample);
        uint64_t target_step = target->first / t.downsample, source_step = source->first / t.downsample;
        copy_steps((uint8_t *)target->data + t.offset, target_step, t.nsteps,
                   (const uint8_t *)source->data + s.offset, source_step, s.nsteps, step, n, outer, inner,
                   bits);
        size_t valid_outer = freq < time ? t.nchannels : 1, valid_inner = freq < time ? 1 : t.nchannels;
        uint8_t *valid = target->valid + t.valid_offset;
        if (source->complete) {
            for (size_t o = 0; o < valid_outer; o++)
                memset(valid + (o * t.nsteps + (size_t)(step - target_step)) * valid_inner, BR_VALID,
                       n * valid_inner);
        } else {
            copy_steps(valid, target_step, t.nsteps, source->valid + s.valid_offset, source_step, s.nsteps,
                       step, n, valid_outer, valid_inner, 8);
        }
    }
    if (stream->side.naxes > 0 && target->side != NULL && source->side != NULL)
        memcpy(target->side, source->side, br_array_bytes(&stream->side));
}

bool recording_epochs_agree(const struct br_stream *stream, const struct br_stream *other, uint64_t first,
                            int64_t *later)
{
    __int128_t scaled = ((__int128_t)other->epoch_ns - stream->epoch_ns) * stream->sample_ns.den;
    __int128_t samples = scaled / stream->sample_ns.num, begin = (__int128_t)first + samples;
    if (scaled % stream->sample_ns.num != 0 || begin < 0 || begin > (__int128_t)1 << 62) return false;
    *later = (int64_t)samples;
    return true;
}

int recording_same(const struct recording *a, const char *file_a, const struct recording *b,
                   const char *file_b, struct br_error *error)
{
    const struct br_stream *x = &a->stream, *y = &b->stream;
    const char *field = NULL;
    if (a->own != b->own)
        field = "DTYPE";
    else if (!br_array_equal(&x->array, &y->array))
        field = x->array.dtype != y->array.dtype ? "DTYPE" : "SHAPE (or AXES, FRAME_SAMPLES)";
    else if (!br_array_equal(&x->side, &y->side))
        field = "AUX_SHAPE";
    else if (x->frame_samples != y->frame_samples)
        field = "FRAME_SAMPLES";
    else if (x->sample_ns.num != y->sample_ns.num || x->sample_ns.den != y->sample_ns.den)
        field = "SAMPLE_NS (or TSAMP)";
    else if (x->epoch_ns != y->epoch_ns)
        field = "EPOCH_NS (or UTC_START)";
    else if (x->nchannels != y->nchannels ||
             memcmp(x->freq_mhz, y->freq_mhz, x->nchannels * sizeof *x->freq_mhz) != 0)
        field = "FREQ_MHZ (or FREQ, BW)";
    else if (memcmp(x->width_mhz, y->width_mhz, x->nchannels * sizeof *x->width_mhz) != 0)
        field = "WIDTH_MHZ";
    else if (x->sideband != y->sideband)
        field = "SIDEBAND (or the sign of BW)";
    else if (x->nzones != y->nzones || memcmp(x->zone, y->zone, x->nzones * sizeof *x->zone) != 0)
        field = "ZONE_0";
    else if (x->scale < y->scale || x->scale > y->scale)
        field = "SCALE";
    else if (a->coding != b->coding)
        field = "CODING";
    else if (x->beams != NULL && y->beams != NULL &&
             memcmp(x->beams, y->beams, x->nbeams * sizeof *x->beams) != 0)
        field = "BEAMS_XY";
    else if (!br_telescope_same(x->telescope, y->telescope))
        field = "POSITIONS_M (or GRID)";
    if (field == NULL) return BR_OK;
    return br_fail(
        error, BR_E_FORMAT,
        "%s: its %s differs from that of %s; expected files of one recording: replay others separately",
        file_b, field, file_a);
}
