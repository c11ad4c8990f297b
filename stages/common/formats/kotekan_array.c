#include "stages/common/formats/kotekan_array.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[][2] = {{"T", "time"},      {"Tbar", "time"},  {"F", "freq"},
                                       {"P", "pol"},       {"D", "dish"},     {"B", "beam"},
                                       {"beamP", "gridp"}, {"beamQ", "gridq"}};

static const struct kind {
    const char *what;
    const char *axes[4];
    unsigned naxes, types; /* types: 1u << chord_type, or'ed */
} kinds[] = {
    {"the electric field", {"time", "freq", "pol", "dish"}, 4, 1u << CHORD_INT4X2},
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
                   "beamQ (those on the grid)",
                   from, m->name, chord_type_name(m->type), shape);
}

/* One upchannelization factor for all channels. */
static int channels(struct kotekan_array *a, const struct chord_metadata *m, const char *from,
                    struct br_error *error)
{
    size_t nfreq = br_array_length(&a->array, "freq");
    a->factor = m->nfreq > 0 && m->upchan_factor[0] > 0 ? (unsigned)m->upchan_factor[0] : 1;
    a->ncoarse = m->nfreq > 0 ? (size_t)m->nfreq : 0;
    for (int i = 1; i < m->nfreq; i++)
        if (m->upchan_factor[i] != m->upchan_factor[0])
            return br_fail(
                error, BR_E_FORMAT,
                "%s: channels 0 and %d are upchannelized by %d and %d; expected one factor for all", from, i,
                m->upchan_factor[0], m->upchan_factor[i]);
    if (a->ncoarse > 0 && nfreq != a->ncoarse * a->factor)
        return br_fail(
            error, BR_E_FORMAT,
            "%s: chordMetadata has nfreq %zu, each upchannelized by %u, but %zu channels in dimension F",
            from, a->ncoarse, a->factor, nfreq);
    return BR_OK;
}

int kotekan_array_describe(struct kotekan_array *a, const struct chord_metadata *m, const char *from,
                           struct br_error *error)
{
    const struct kind *kind = kind_of(m);
    if (kind == NULL) return unknown(m, from, error);
    enum br_dtype dtype = m->type == CHORD_INT4X2 ? BR_INT4X2 : m->type == CHORD_FLOAT16 ? BR_F16 : BR_F32;
    char axes[BR_MAX_AXES * (BR_AXIS_NAME + 1)] = "";
    size_t lengths[BR_MAX_AXES];
    for (int i = 0; i < m->dims; i++) {
        if (i > 0) strcat(axes, ",");
        strcat(axes, our_name(m->dim_name[i]));
        lengths[i] = (size_t)m->dim[i];
    }
    *a = (struct kotekan_array){.what = kind->what};
    int status = br_array_init(&a->array, dtype, axes, lengths, error);
    if (status == BR_OK) status = channels(a, m, from, error);
    uint32_t downsample = 1;
    if (status == BR_OK) status = chord_metadata_first(m, from, &a->first, &downsample, error);
    if (status != BR_OK) return status;
    a->downsample = downsample;
    if (kind == &kinds[0] && downsample != a->factor)
        return br_fail(error, BR_E_FORMAT,
                       "%s: a time step is %u samples (time_downsampling_fpga), but the electric field is "
                       "upchannelized by %u; expected the "
                       "same",
                       from, downsample, a->factor);
    if (a->first % downsample != 0)
        return br_fail(error, BR_E_FORMAT,
                       "%s: a frame starts at sample %" PRIu64
                       "; expected a multiple of the %u samples of a time step",
                       from, a->first, downsample);
    return BR_OK;
}

void kotekan_array_stream(struct br_stream *s, const struct kotekan_array *a, size_t steps)
{
    s->array = a->array;
    s->array.axis[br_array_axis(&s->array, "time")].length = steps;
    s->frame_samples = (uint64_t)steps * a->downsample;
    s->nchannels = br_array_length(&a->array, "freq");
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, s->nchannels, a->factor, a->downsample, 0};
    s->nbeams = br_array_axis(&a->array, "beam") >= 0 ? br_array_length(&a->array, "beam") : 0;
}

void kotekan_array_fine(const double *coarse_mhz, size_t ncoarse, double coarse_width_mhz, unsigned factor,
                        double *mhz, double *width_mhz)
{
    for (size_t c = 0; c < ncoarse; c++)
        for (unsigned u = 0; u < factor; u++) {
            mhz[c * factor + u] =
                coarse_mhz[c] + ((double)u - ((double)factor - 1) / 2) * coarse_width_mhz / factor;
            width_mhz[c * factor + u] = coarse_width_mhz / factor;
        }
}
