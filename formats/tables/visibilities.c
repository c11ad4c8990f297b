#include "formats/tables/visibilities.h"
#include "buffers/regular_file.h"

#include "formats/common/text.h"
#include "formats/dada/dada.h"
#include "formats/sky/apparent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double degrees = 57.29577951308232;

bool source_on_sky(const struct source_place *place)
{
    return place->source[0].kind != SKY_FIXED;
}

int source_direction(const struct source_place *place, double latitude_deg, double longitude_deg,
                     int64_t unix_ns, double s[3], struct br_error *error)
{
    char when[TEXT_TIME];
    struct br_beam there[MAX_SOURCES] = {{place->source[0].x, place->source[0].y}};
    double up[MAX_SOURCES] = {br_sky_up(there[0].x, there[0].y)}, highest = -1;
    struct apparent_site site = {latitude_deg, longitude_deg,
                                 isfinite(place->ut1_utc_s) ? place->ut1_utc_s : 0, place->eop, 0};
    if (source_on_sky(place)) {
        if (!isfinite(latitude_deg) || !isfinite(longitude_deg))
            return br_fail(
                error, BR_E_INVALID,
                "where a source on the sky stands depends on the site: the telescope needs latitude_deg "
                "and longitude_deg, or give a --direction");
        int status = apparent_places(&site, unix_ns, place->source, place->nsources, there, up, error);
        if (status != BR_OK) return status;
    }
    for (size_t i = 0; i < place->nsources; i++) {
        highest = fmax(highest, up[i]);
        if (source_on_sky(place) && !(up[i] > 0)) continue;
        s[0] = there[i].x;
        s[1] = there[i].y;
        s[2] = up[i];
        return BR_OK;
    }
    return br_fail(error, BR_E_INVALID,
                   "the source is below the horizon at %s UTC: its elevation is %.1f degrees",
                   text_utc_format(when, unix_ns), degrees * asin(highest));
}

double source_cycles(const struct visibilities_part *part, size_t channel, size_t d, const double s[3])
{
    return br_sky_path_cycles(part->shape.sideband, part->freq_mhz[channel],
                              part->north_m[d] * s[0] + part->east_m[d] * s[1] + part->up_m[d] * s[2]);
}

void source_phases(const struct visibilities_part *part, const double s[3], double *phase)
{
    size_t ndishes = part->shape.ndishes;
    for (size_t f = 0; f < part->shape.nchannels; f++)
        for (size_t d = 0; d < ndishes; d++) {
            double cycles = -source_cycles(part, f, d, s);
            phase[2 * (f * ndishes + d)] = cos(2 * M_PI * cycles);
            phase[2 * (f * ndishes + d) + 1] = sin(2 * M_PI * cycles);
        }
}

int visibilities_sideband(enum br_sideband stated, enum br_sideband own, const char *path,
                          enum br_sideband *sideband, struct br_error *error)
{
    *sideband = own != BR_SIDEBAND_UNKNOWN ? own : stated;
    if (stated == BR_SIDEBAND_UNKNOWN || *sideband == stated) return BR_OK;
    return br_fail(
        error, BR_E_INVALID,
        "%s says that its stream holds the %s sideband, --sideband says %s; leave --sideband out, or "
        "write the file again with `stream: {sideband: %s}`",
        path, br_sideband_name(own), br_sideband_name(stated), br_sideband_name(stated));
}

static void *copy(struct visibilities *v, const void *values, size_t bytes)
{
    void *mine = br_arena_alloc(&v->memory, bytes);
    return mine != NULL ? memcpy(mine, values, bytes) : NULL;
}

static int begin(struct visibilities *v, const char *path, const struct visibilities_part *part,
                 struct br_error *error)
{
    v->shape = part->shape;
    v->npairs = v->shape.ndishes * (v->shape.ndishes + 1) / 2;
    size_t cells = v->shape.npol * v->shape.nchannels * v->npairs;
    size_t channels = v->shape.nchannels * sizeof(double), dishes = v->shape.ndishes * sizeof(double);
    v->first_path = copy(v, path, strlen(path) + 1);
    v->freq_mhz = copy(v, part->freq_mhz, channels);
    v->width_mhz = copy(v, part->width_mhz, channels);
    v->east_m = copy(v, part->east_m, dishes);
    v->north_m = copy(v, part->north_m, dishes);
    v->up_m = copy(v, part->up_m, dishes);
    v->antenna = copy(v, part->antenna, v->shape.ndishes * sizeof *v->antenna);
    v->sum = br_arena_alloc(&v->memory, 2 * cells * sizeof *v->sum);
    v->samples = br_arena_alloc(&v->memory, cells * sizeof *v->samples);
    v->lowest = 2;
    if (v->first_path != NULL && v->freq_mhz != NULL && v->width_mhz != NULL && v->east_m != NULL &&
        v->north_m != NULL && v->up_m != NULL && v->antenna != NULL && v->sum != NULL && v->samples != NULL)
        return BR_OK;
    return br_fail(error, BR_E_NO_MEMORY, "no memory for the visibilities of %zu dishes in %zu channels",
                   v->shape.ndishes, v->shape.nchannels);
}

int visibilities_agree(struct visibilities *v, const char *path, const struct visibilities_part *part,
                       struct br_error *error)
{
    const struct visibilities_shape *a = &v->shape, *b = &part->shape;
    if (v->sum == NULL) return begin(v, path, part, error);
    if (a->ndishes != b->ndishes || a->npol != b->npol || a->nchannels != b->nchannels)
        return br_fail(
            error, BR_E_INVALID,
            "%s and %s do not belong together: %zu dishes, %zu polarisations, %zu channels, and %zu, "
            "%zu, %zu",
            v->first_path, path, a->ndishes, a->npol, a->nchannels, b->ndishes, b->npol, b->nchannels);
    if (strcmp(a->pol[0], b->pol[0]) != 0 || strcmp(a->pol[1], b->pol[1]) != 0)
        return br_fail(error, BR_E_INVALID,
                       "%s and %s do not belong together: polarisations %s %s, and %s %s", v->first_path,
                       path, a->pol[0], a->pol[1], b->pol[0], b->pol[1]);
    if (a->sideband != b->sideband)
        return br_fail(error, BR_E_INVALID, "%s and %s do not belong together: sideband %s, and %s",
                       v->first_path, path, br_sideband_name(a->sideband), br_sideband_name(b->sideband));
    for (size_t f = 0; f < a->nchannels; f++)
        if (fabs(v->freq_mhz[f] - part->freq_mhz[f]) > 0.01 * v->width_mhz[f])
            return br_fail(
                error, BR_E_INVALID,
                "%s and %s do not belong together: channel %zu is at %.9g and at %.9g MHz; files of "
                "different channels are calibrated one by one",
                v->first_path, path, f, v->freq_mhz[f], part->freq_mhz[f]);
    for (size_t d = 0; d < a->ndishes; d++)
        if (hypot(v->east_m[d] - part->east_m[d], v->north_m[d] - part->north_m[d]) > 0.01 ||
            fabs(v->up_m[d] - part->up_m[d]) > 0.01)
            return br_fail(error, BR_E_INVALID,
                           "%s and %s do not belong together: dish %zu stands %.2f m east, %.2f m north and "
                           "%.2f m up, and %.2f, %.2f and %.2f",
                           v->first_path, path, d, v->east_m[d], v->north_m[d], v->up_m[d], part->east_m[d],
                           part->north_m[d], part->up_m[d]);
    return BR_OK;
}

int visibilities_cover(struct visibilities *v, const char *path, struct time_span span,
                       struct br_error *error)
{
    char when[TEXT_TIME];
    const int64_t slack = 100000; /* UVH5's Julian dates are good to 40 us */
    for (size_t i = 0; i < v->nspans; i++)
        if (span.begin_ns + slack < v->span[i].end_ns && span.end_ns - slack > v->span[i].begin_ns)
            return br_fail(error, BR_E_INVALID,
                           "%s: what it holds from %s UTC on is in one of the files before it, too; expected "
                           "every integration once",
                           path,
                           text_utc_format(when, span.begin_ns > v->span[i].begin_ns ? span.begin_ns
                                                                                     : v->span[i].begin_ns));
    struct time_span *longer = realloc(v->span, (v->nspans + 1) * sizeof *longer);
    if (longer == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu files", v->nspans + 1);
    v->span = longer;
    v->span[v->nspans++] = span;
    return BR_OK;
}

int visibilities_add(struct visibilities *v, const char *path, const struct br_telescope *telescope,
                     const struct source_place *place, struct br_error *error)
{
    static const unsigned char hdf5[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    char start[64] = "";
    FILE *file = br_fopen_regular(path, NULL, error);
    if (file == NULL) return BR_E_IO;
    size_t length = fread(start, 1, sizeof start, file);
    fclose(file);
    if (length >= sizeof hdf5 && memcmp(start, hdf5, sizeof hdf5) == 0)
        return visibilities_add_uvh5(v, path, place, error);
    if (dada_probe(start, length)) return visibilities_add_dada(v, path, telescope, place, error);
    return br_fail(
        error, BR_E_FORMAT,
        "%s: is neither UVH5 nor DADA; expected a UVH5 file, or what `record` wrote of `correlate`", path);
}

int visibilities_check(const struct visibilities *v, struct br_error *error)
{
    const struct left_out *out = &v->left_out;
    bool autos = false, any = false;
    for (size_t row = 0; row < v->shape.npol * v->shape.nchannels; row++)
        for (size_t i = 0, k = row * v->npairs; i < v->shape.ndishes; i++)
            for (size_t j = i; j < v->shape.ndishes; j++, k++) {
                any = any || v->samples[k] > 0;
                autos = autos || (i == j && v->samples[k] > 0);
            }
    if (!any)
        return br_fail(
            error, BR_E_INVALID,
            "%s: no visibility is left: %llu are flagged, %llu have no samples (nsamples), %llu are "
            "not finite numbers",
            v->first_path, (unsigned long long)out->flagged, (unsigned long long)out->unsampled,
            (unsigned long long)out->not_finite);
    if (autos) return BR_OK;
    return br_fail(
        error, BR_E_INVALID,
        "%s has no autocorrelations (ant_1 = ant_2), to which the fit needs to scale the others; write "
        "the file with them",
        v->first_path);
}

void visibilities_free(struct visibilities *v)
{
    br_arena_free(&v->memory);
    free(v->span);
    *v = (struct visibilities){0};
}
