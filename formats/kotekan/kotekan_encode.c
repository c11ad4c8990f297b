#include "formats/kotekan/kotekan_encode.h"
#include "formats/common/axes.h"
#include "formats/common/coding.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* kotekan's name of each of our arrays, and its axes in kotekan's order with the names that they have behind
 * a filterbank and before. */
static const struct kind {
    const char *axes, *name[2]; /* ours; its name as the F-engine gives it, and upchannelized */
    enum br_dtype dtype;
    unsigned naxes, order[4];
    const char *dim[2][4];
} kinds[] = {
    {"time,freq,pol,dish",
     {"E", "Ebar"},
     BR_INT4X2,
     4,
     {0, 1, 2, 3},
     {{"T", "F", "P", "D"}, {"Tbar", "Fbar", "P", "D"}}},
    {"freq,time,gridp,gridq",
     {"I", "I"},
     BR_F16,
     4,
     {1, 0, 3, 2},
     {{"Ttilde", "Fbar", "beamQ", "beamP"}, {"Ttilde", "Fbar", "beamQ", "beamP"}}},
    {"freq,time,beam",
     {"I2", "I2"},
     BR_F16,
     3,
     {2, 0, 1},
     {{"R", "Fbar", "Ttilde", ""}, {"R", "Fbar", "Ttilde", ""}}},
    {"beam,freq,pol,time",
     {"J", "J"},
     BR_INT4X2,
     4,
     {0, 1, 2, 3},
     {{"B", "F", "P", "T"}, {"B", "F", "P", "T"}}},
};

static enum chord_type type_of(enum br_dtype dtype)
{
    switch (dtype) {
    case BR_INT4X2:
        return CHORD_INT4X2;
    case BR_INT8:
        return CHORD_INT8;
    case BR_UINT8:
        return CHORD_UINT8;
    case BR_F16:
        return CHORD_FLOAT16;
    case BR_F32:
        return CHORD_FLOAT32;
    default:
        return CHORD_UNKNOWN;
    }
}

static const struct kind *kind_of(const struct br_array *a)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (axes_are(a, kinds[k].axes) && a->dtype == kinds[k].dtype) return &kinds[k];
    return NULL;
}

/* Axes that no stage of kotekan's has in this order. */
static const char *plain_name(const char *axis)
{
    static const char *const names[][2] = {{"time", "T"},     {"freq", "F"}, {"pol", "P"},
                                           {"dish", "D"},     {"beam", "B"}, {"gridp", "beamP"},
                                           {"gridq", "beamQ"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], axis) == 0) return names[i][1];
    return axis;
}

/* The numbers of the F-engine's channels, as CHORD counts them. */
static int number_channels(struct kotekan_encoder *e, const struct br_stream *s, struct br_error *error)
{
    unsigned factor = s->zone[0].factor;
    e->ncoarse = s->nchannels / factor;
    if (e->ncoarse > KOTEKAN_MOST_CHANNELS)
        return br_fail(
            error, BR_E_INVALID,
            "its input has %zu coarse channels; kotekan's stages take at most %d in a frame: send a "
            "part of the channels, or divide them over several nodes",
            e->ncoarse, KOTEKAN_MOST_CHANNELS);
    for (size_t i = 0; i < e->ncoarse; i++) {
        double mhz = 0, width = 0;
        for (unsigned u = 0; u < factor; u++) {
            mhz += s->freq_mhz[i * factor + u] / factor;
            width += s->width_mhz[i * factor + u];
        }
        e->coarse[i] = (int32_t)round(mhz / width);
    }
    return BR_OK;
}

static int check(const struct br_stream *s, struct br_error *error)
{
    bool one_zone = !br_stream_is_zoned(s);
    for (unsigned z = 1; z < s->nzones; z++) one_zone = one_zone && s->zone[z].factor == s->zone[0].factor;
    if (!one_zone || s->side.naxes > 0 || type_of(s->array.dtype) == CHORD_UNKNOWN)
        return br_fail(error, BR_E_INVALID, "its input has %s, which a frame of kotekan cannot hold",
                       !one_zone           ? "zones"
                       : s->side.naxes > 0 ? "scales and offsets"
                                           : br_dtype_name(s->array.dtype));
    if (br_array_bytes(&s->array) > INT32_MAX)
        return br_fail(error, BR_E_INVALID, "its input has frames of %zu bytes; at most %d are possible",
                       br_array_bytes(&s->array), INT32_MAX);
    return BR_OK;
}

int kotekan_encoder_init(struct kotekan_encoder *e, const struct br_stream *s, bool chime,
                         struct br_error *error)
{
    int status = check(s, error);
    memset(e, 0, sizeof *e);
    if (status == BR_OK) status = number_channels(e, s, error);
    if (status != BR_OK) return status;
    const struct kind *kind = kind_of(&s->array);
    const struct br_zone *zone = &s->zone[0];
    bool field = kind == &kinds[0], fine = zone->factor > 1;
    e->array = s->array;
    e->downsample = zone->downsample;
    e->factor = kind == &kinds[1] || kind == &kinds[2] ? zone->downsample : zone->factor;
    /* behind a filterbank: its taps - 1, for it delays by (taps - 1) factor / 2; else the middle of a step */
    e->half = kind == NULL ? zone->downsample - 1 : fine ? 2 * zone->delay / zone->factor : 0;
    e->chime = field && chime;
    bool beams = br_array_axis(&s->array, "beam") >= 0;
    const char *name = kind != NULL ? kind->name[fine] : beams ? "J" : "I";
    chord_metadata_init(&e->metadata, name, e->chime ? CHORD_INT4X2_CHIME : type_of(s->array.dtype));
    for (unsigned i = 0; i < s->array.naxes; i++) {
        e->order[i] = kind != NULL ? kind->order[i] : i;
        const struct br_axis *axis = &s->array.axis[e->order[i]];
        chord_metadata_add(&e->metadata, kind != NULL ? kind->dim[fine][i] : plain_name(axis->name),
                           axis->length);
    }
    e->copy = !e->chime && permutation_is_copy(s->array.naxes, e->order);
    return BR_OK;
}

void kotekan_encode_metadata(struct kotekan_encoder *e, uint64_t first, size_t steps, int32_t counter,
                             void *bytes)
{
    struct chord_metadata *m = &e->metadata;
    for (int i = 0; i < m->dims; i++)
        if ((int)e->order[i] == br_array_axis(&e->array, "time")) m->dim[i] = (int32_t)steps;
    chord_metadata_finish(m);
    m->frame_counter = counter;
    m->nfreq = (int32_t)e->ncoarse;
    m->sample0_offset = (int64_t)(first / e->downsample);
    for (size_t i = 0; i < e->ncoarse; i++) {
        m->coarse_freq[i] = e->coarse[i];
        m->upchan_factor[i] = (int32_t)e->factor;
        m->time_downsampling[i] = (int32_t)e->downsample;
        m->half_fpga_sample0[i] = e->half;
    }
    chord_metadata_encode(m, bytes);
}

void kotekan_encode(const struct kotekan_encoder *e, size_t steps, const void *in, void *out)
{
    const struct br_array *a = &e->array;
    struct permutation permutation;
    size_t lengths[BR_MAX_AXES], count = 1;
    for (unsigned i = 0; i < a->naxes; i++) {
        lengths[i] = strcmp(a->axis[i].name, "time") == 0 ? steps : a->axis[i].length;
        count *= lengths[i];
    }
    if (e->chime) { /* in our order already */
        coding_encode(CODING_CHIME, in, out, count);
        return;
    }
    permutation_init(&permutation, a->naxes, lengths, e->order, br_dtype_bits(a->dtype) / 8);
    permute(&permutation, in, out);
}
