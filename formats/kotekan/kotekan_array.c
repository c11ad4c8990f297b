#include "formats/kotekan/kotekan_array.h"

#include "buffers/frame.h"
#include "formats/common/coding.h"
#include "formats/common/permute.h"

#include <stdio.h>
#include <string.h>

static const char *const names[][2] = {
    {"T", "time"}, {"Tbar", "time"}, {"Ttilde", "time"}, {"F", "freq"},      {"Fbar", "freq"},  {"P", "pol"},
    {"D", "dish"}, {"B", "beam"},    {"R", "beam"},      {"beamP", "gridp"}, {"beamQ", "gridq"}};

static const struct kind {
    const char *what;
    const char *axes[4];
    unsigned naxes, types; /* types: 1u << chord_type, or'ed */
} kinds[] = {
    {"the electric field", {"time", "freq", "pol", "dish"}, 4, 1u << CHORD_INT4X2 | 1u << CHORD_INT4X2_CHIME},
    {"voltages of beams", {"beam", "freq", "pol", "time"}, 4, 1u << CHORD_INT4X2},
    {"intensities of beams", {"freq", "time", "beam"}, 3, 1u << CHORD_FLOAT16 | 1u << CHORD_FLOAT32},
    {"intensities on the grid", {"freq", "time", "gridp", "gridq"}, 4, 1u << CHORD_FLOAT16},
};

static const char *our_name(const char *theirs)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], theirs) == 0) return names[i][1];
    return NULL;
}

/* How often the frame has a dimension of ours. */
static unsigned times(const struct chord_metadata *m, const char *axis)
{
    unsigned n = 0;
    for (int i = 0; i < m->dims; i++) {
        const char *name = our_name(m->dim_name[i]);
        n += name != NULL && strcmp(name, axis) == 0;
    }
    return n;
}

static const struct kind *kind_of(const struct chord_metadata *m)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool fits = (unsigned)m->dims == kinds[k].naxes && (kinds[k].types >> m->type & 1) != 0;
        for (unsigned a = 0; a < kinds[k].naxes; a++) fits = fits && times(m, kinds[k].axes[a]) == 1;
        if (fits) return &kinds[k];
    }
    return NULL;
}

static int unknown(const struct chord_metadata *m, const char *from, struct br_error *error)
{
    char shape[CHORD_MAX_DIMS * (CHORD_NAME + 16)] = "";
    size_t used = 0;
    for (int i = 0; i < m->dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "[%s %d]", m->dim_name[i], m->dim[i]);
    return br_fail(error, BR_E_FORMAT,
                   "%s: the frame '%s' holds %s %s; expected int4x2 with T, F, P, D (the electric field) or "
                   "B, F, P, T (voltages of beams), "
                   "float16 or float32 with F, T, B (intensities of beams), or float16 with F, T, beamP, "
                   "beamQ (those on the grid), where T may be Tbar or Ttilde, F Fbar, B R",
                   from, m->name, chord_type_name(m->type), shape);
}

/* One upchannelization factor for all channels. kotekan's intensities have that of the time steps in it. */
static int channels(struct kotekan_array *a, const struct chord_metadata *m, bool intensities,
                    const char *from, struct br_error *error)
{
    size_t nfreq = br_array_length(&a->array, "freq");
    unsigned said = m->nfreq > 0 && m->upchan_factor[0] > 0 ? (unsigned)m->upchan_factor[0] : 1;
    a->ncoarse = m->nfreq > 0 ? (size_t)m->nfreq : 0;
    for (int i = 1; i < m->nfreq; i++)
        if (m->upchan_factor[i] != m->upchan_factor[0])
            return br_fail(
                error, BR_E_FORMAT,
                "%s: channels 0 and %d are upchannelized by %d and %d; expected one factor for all", from, i,
                m->upchan_factor[0], m->upchan_factor[i]);
    a->factor = said;
    if (a->ncoarse == 0 || nfreq == a->ncoarse * said) return BR_OK;
    a->factor = (unsigned)(nfreq / a->ncoarse);
    if (intensities && nfreq % a->ncoarse == 0 && said == a->downsample && said % a->factor == 0)
        return BR_OK;
    return br_fail(
        error, BR_E_FORMAT,
        "%s: chordMetadata has nfreq %zu, each upchannelized by %u, but %zu channels in dimension F", from,
        a->ncoarse, said, nfreq);
}

/* Our order of the axes, and where the frame has them. */
static int set_axes(struct kotekan_array *a, const struct kind *kind, const struct chord_metadata *m,
                    struct br_error *error)
{
    enum br_dtype dtype = m->type == CHORD_FLOAT16 ? BR_F16 : m->type == CHORD_FLOAT32 ? BR_F32 : BR_INT4X2;
    char axes[BR_MAX_AXES * (BR_AXIS_NAME + 1)] = "";
    size_t lengths[BR_MAX_AXES];
    for (unsigned i = 0; i < kind->naxes; i++) {
        unsigned place = 0;
        while (strcmp(our_name(m->dim_name[place]), kind->axes[i]) != 0) place++;
        a->order[i] = place;
        a->length[place] = lengths[i] = (size_t)m->dim[place];
        if (i > 0) strcat(axes, ",");
        strcat(axes, kind->axes[i]);
    }
    a->chime = m->type == CHORD_INT4X2_CHIME;
    a->copy = !a->chime && permutation_is_copy(kind->naxes, a->order);
    return br_array_init(&a->array, dtype, axes, lengths, error);
}

int kotekan_array_describe(struct kotekan_array *a, const struct chord_metadata *m, const char *from,
                           struct br_error *error)
{
    const struct kind *kind = kind_of(m);
    if (kind == NULL) return unknown(m, from, error);
    uint32_t downsample = 1, half = 0;
    *a = (struct kotekan_array){.what = kind->what};
    int status = set_axes(a, kind, m, error);
    if (status == BR_OK) status = chord_metadata_first_step(m, from, &a->first, &downsample, &half, error);
    a->downsample = downsample;
    bool intensities = a->array.dtype == BR_F16 || a->array.dtype == BR_F32;
    if (status == BR_OK) status = channels(a, m, intensities, from, error);
    /* The middle of a step says nothing of a filter. */
    if (status == BR_OK && half != downsample - 1 && a->factor > 1) a->delay = half * a->factor / 2;
    if (status == BR_OK && downsample == 1) /* a sample of the F-engine may lie off its index */
        status = chord_metadata_first(m, from, &a->first, &downsample, error);
    if (status == BR_OK && kind == &kinds[0] && downsample != a->factor)
        return br_fail(error, BR_E_FORMAT,
                       "%s: a time step is %u samples (time_downsampling_fpga), but the electric field is "
                       "upchannelized by %u; expected the "
                       "same",
                       from, downsample, a->factor);
    return status;
}

void kotekan_array_decode(const struct kotekan_array *a, size_t steps, const void *frame, void *out,
                          uint8_t *valid)
{
    unsigned naxes = a->array.naxes, time = a->order[br_array_axis(&a->array, "time")];
    size_t lengths[BR_MAX_AXES], count = 1;
    for (unsigned i = 0; i < naxes; i++) {
        lengths[i] = i == time ? steps : a->length[i];
        count *= lengths[i];
    }
    struct permutation permutation;
    permutation_init(&permutation, naxes, lengths, a->order, br_dtype_bits(a->array.dtype) / 8);
    permute(&permutation, frame, out);
    if (!a->chime) return;
    size_t cell = count / (steps * br_array_length(&a->array, "freq")), cells = count / cell;
    for (size_t i = 0; i < cells; i++) {
        bool missing = coding_all_missing(CODING_CHIME, (const uint8_t *)out + i * cell, cell);
        valid[i] = missing ? BR_MISSING : BR_VALID;
    }
    coding_convert(CODING_CHIME, out, out, count);
}

void kotekan_array_stream(struct br_stream *s, const struct kotekan_array *a, size_t steps)
{
    s->array = a->array;
    s->array.axis[br_array_axis(&s->array, "time")].length = steps;
    s->frame_samples = (uint64_t)steps * a->downsample;
    s->nchannels = br_array_length(&a->array, "freq");
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, s->nchannels, a->factor, a->downsample, a->delay};
    s->nbeams = br_array_axis(&a->array, "beam") >= 0 ? br_array_length(&a->array, "beam") : 0;
}

void kotekan_array_fine(const double *coarse_mhz, size_t ncoarse, double coarse_width_mhz, unsigned factor,
                        enum br_sideband sideband, double *mhz, double *width_mhz)
{
    for (size_t c = 0; c < ncoarse; c++)
        for (unsigned u = 0; u < factor; u++) {
            mhz[c * factor + u] = br_sky_frequency(
                sideband, coarse_mhz[c], ((double)u - ((double)factor - 1) / 2) * coarse_width_mhz / factor);
            width_mhz[c * factor + u] = coarse_width_mhz / factor;
        }
}
