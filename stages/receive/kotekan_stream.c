#include "stages/receive/kotekan_stream.h"

#include "stages/common/stage/shape.h"

#include <inttypes.h>
#include <string.h>

bool kotekan_is_plain(const struct br_stream *stream)
{
    return br_array_axis(&stream->array, "dish") >= 0 && stream->zone[0].factor == 1;
}

/* The array that is to come, by the user's words. */
static int describe(struct br_stage *stage, struct receive *r, size_t steps, struct kotekan_array *a)
{
    static const struct {
        const char *name, *axes;
        enum br_dtype dtype;
        bool beams;
    } arrays[] = {{"field", "time,freq,pol,dish", BR_INT4X2, false},
                  {"voltages", "beam,freq,pol,time", BR_INT4X2, true},
                  {"intensities", "freq,time,beam", BR_F16, true},
                  {"grid", "freq,time,gridp,gridq", BR_F16, false}};
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    size_t k = 0, F = hints->nfreq, npol = hints->npol > 0 ? hints->npol : 2, B = (size_t)r->nbeams;
    while (strcmp(arrays[k].name, r->array) != 0) k++;
    if (arrays[k].beams != (r->nbeams > 0))
        return br_stage_fail_at(stage, "nbeams",
                                arrays[k].beams ? "frames of beams have this many; expected at least 1"
                                                : "frames of %s have no beams",
                                r->array);
    if (F % (size_t)r->factor != 0)
        return br_stage_fail_at(stage, "factor",
                                "%" PRId64 " does not divide the %zu channels of `stream: freq_mhz`",
                                r->factor, F);
    if (k == 0 && r->downsample != 0 && r->downsample != r->factor)
        return br_stage_fail_at(stage, "downsample",
                                "%" PRId64 "; a time step of the field is as many samples as `factor`",
                                r->downsample);
    *a = (struct kotekan_array){.what = arrays[k].name,
                                .factor = (unsigned)r->factor,
                                .downsample = (unsigned)(r->downsample > 0 ? r->downsample : r->factor)};
    const size_t lengths[][4] = {{steps, F, npol, telescope->ndishes},
                                 {B, F, npol, steps},
                                 {F, steps, B, 0},
                                 {F, steps, 2 * telescope->grid_m, 2 * telescope->grid_n}};
    struct br_error error = {0};
    if (br_array_init(&a->array, arrays[k].dtype, arrays[k].axes, lengths[k], &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

int kotekan_configure(struct br_stage *stage, struct receive *r)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    const struct br_telescope *telescope = br_stage_telescope(stage);
    struct br_stream *out = br_stage_output(stage, 0);
    if (telescope == NULL || hints->nfreq == 0 || hints->sample_ns.num == 0 || !hints->have_epoch)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "kotekan's metadata does not say the dishes, channels and times of E: add `telescope:` and "
            "stream: {epoch_ns: ..., sample_ns: ..., freq_mhz: ...} to the pipeline");
    if (r->coding != NULL && strcmp(r->coding, "int4x2") != 0 && strcmp(r->coding, "chime") != 0)
        return br_stage_fail_at(stage, "coding", "'%.40s'; expected int4x2 or chime", r->coding);
    struct kotekan_array array;
    int status = describe(stage, r, 1, &array);
    if (status != BR_OK) return status;
    if (r->frame_samples % array.downsample != 0)
        return br_stage_fail_at(stage, "frame_samples",
                                "%" PRId64 "; expected a multiple of the %u samples of a time step",
                                r->frame_samples, array.downsample);
    size_t F = hints->nfreq, steps = (size_t)r->frame_samples / array.downsample;
    status = describe(stage, r, steps, &array);
    if (status != BR_OK) return status;
    double *width = br_stage_alloc(stage, F * sizeof *width);
    for (size_t f = 0; f < F; f++)
        width[f] = hints->width_mhz > 0
                       ? hints->width_mhz
                       : 1e3 * (double)hints->sample_ns.den / (double)hints->sample_ns.num / array.factor;
    *out = (struct br_stream){.epoch_ns = hints->epoch_ns,
                              .sample_ns = hints->sample_ns,
                              .sideband = hints->sideband,
                              .freq_mhz = hints->freq_mhz,
                              .width_mhz = width,
                              .scale = 1,
                              .telescope = telescope};
    kotekan_array_stream(out, &array, steps);
    if (r->coding != NULL && !kotekan_is_plain(out))
        return br_stage_fail_at(stage, "coding",
                                "only the electric field as the F-engine gives it has codings");
    return BR_OK;
}

const char *kotekan_unlike_plain(const struct br_array *wanted, const struct chord_metadata *m)
{
    static const char *const names[] = {"T", "F", "P", "D"};
    if (m->type != CHORD_INT4X2 && m->type != CHORD_INT4X2_CHIME)
        return "its type is not int4x2 (int4p4) or its CHIME coding";
    if (m->dims != 4) return "it has not the 4 dimensions T, F, P, D";
    for (int i = 0; i < 4; i++) {
        if (strcmp(m->dim_name[i], names[i]) != 0) return "its dimensions are not T, F, P, D";
        if (i > 0 && (size_t)m->dim[i] != wanted->axis[i].length)
            return "it has other numbers of channels, polarisations or dishes than the pipeline";
    }
    return NULL;
}

const char *kotekan_unlike(const struct br_stream *wanted, const struct kotekan_array *a)
{
    const struct br_array *x = &a->array, *y = &wanted->array;
    if (x->dtype != y->dtype || x->naxes != y->naxes) return "it is another array than `array` says";
    for (unsigned i = 0; i < x->naxes; i++) {
        if (strcmp(x->axis[i].name, y->axis[i].name) != 0) return "its dimensions are not those of `array`";
        if (strcmp(x->axis[i].name, "time") != 0 && x->axis[i].length != y->axis[i].length)
            return "it has other numbers of channels, polarisations, dishes or beams than the pipeline";
    }
    if (a->factor != wanted->zone[0].factor) return "it is upchannelized by another factor";
    if (a->downsample != wanted->zone[0].downsample)
        return "its time steps have other numbers of samples than `downsample` says";
    return NULL;
}
