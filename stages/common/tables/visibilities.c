#include "stages/common/tables/visibilities.h"
#include "buffers/regular_file.h"

#include "stages/common/formats/dada.h"
#include "stages/common/formats/text.h"
#include "stages/common/tables/apparent.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double degrees = 57.29577951308232;

int source_direction(const struct source_place *place, double latitude_deg, double longitude_deg,
                     int64_t unix_ns, double *north, double *east, double *up, struct br_error *error)
{
    char when[TEXT_TIME];
    *north = place->x;
    *east = place->y;
    *up = 2;
    if (!place->on_sky) return BR_OK;
    if (!isfinite(latitude_deg) || !isfinite(longitude_deg))
        return br_fail(error, BR_E_INVALID,
                       "where a right ascension stands depends on the site: the telescope needs latitude_deg "
                       "and longitude_deg, or give a --direction");
    struct apparent_site site = {latitude_deg, longitude_deg, place->ut1_utc_s};
    int status = apparent_place(&site, unix_ns, place->ra, place->dec, north, east, up, error);
    if (status != BR_OK || *up > 0) return status;
    return br_fail(error, BR_E_INVALID,
                   "the source is below the horizon at %s UTC: its elevation is %.1f degrees",
                   text_utc_format(when, unix_ns), degrees * asin(*up));
}

void source_phases(const struct visibilities_part *part, double north, double east, double *phase)
{
    size_t ndishes = part->shape.ndishes;
    for (size_t f = 0; f < part->shape.nchannels; f++) {
        double cycles_per_m = 1e6 * part->freq_mhz[f] / BR_LIGHT_M_PER_S;
        for (size_t d = 0; d < ndishes; d++) {
            double cycles = cycles_per_m * (part->north_m[d] * north + part->east_m[d] * east);
            phase[2 * (f * ndishes + d)] = cos(2 * M_PI * cycles);
            phase[2 * (f * ndishes + d) + 1] = sin(2 * M_PI * cycles);
        }
    }
}

static double *copy(const double *values, size_t count)
{
    double *mine = malloc(count * sizeof *mine);
    return mine != NULL ? memcpy(mine, values, count * sizeof *mine) : NULL;
}

static int begin(struct visibilities *v, const char *path, const struct visibilities_part *part,
                 struct br_error *error)
{
    v->shape = part->shape;
    v->npairs = v->shape.ndishes * (v->shape.ndishes + 1) / 2;
    size_t cells = v->shape.npol * v->shape.nchannels * v->npairs;
    v->first_path = strdup(path);
    v->freq_mhz = copy(part->freq_mhz, v->shape.nchannels);
    v->width_mhz = copy(part->width_mhz, v->shape.nchannels);
    v->east_m = copy(part->east_m, v->shape.ndishes);
    v->north_m = copy(part->north_m, v->shape.ndishes);
    v->sum = calloc(2 * cells, sizeof *v->sum);
    v->samples = calloc(cells, sizeof *v->samples);
    v->lowest = 2;
    if (v->first_path != NULL && v->freq_mhz != NULL && v->width_mhz != NULL && v->east_m != NULL &&
        v->north_m != NULL && v->sum != NULL && v->samples != NULL)
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
    for (size_t f = 0; f < a->nchannels; f++)
        if (fabs(v->freq_mhz[f] - part->freq_mhz[f]) > 0.01 * v->width_mhz[f])
            return br_fail(
                error, BR_E_INVALID,
                "%s and %s do not belong together: channel %zu is at %.9g and at %.9g MHz; files of "
                "different channels are calibrated one by one",
                v->first_path, path, f, v->freq_mhz[f], part->freq_mhz[f]);
    for (size_t d = 0; d < a->ndishes; d++)
        if (hypot(v->east_m[d] - part->east_m[d], v->north_m[d] - part->north_m[d]) > 0.01)
            return br_fail(
                error, BR_E_INVALID,
                "%s and %s do not belong together: dish %zu stands %.2f m east and %.2f m north, and "
                "%.2f and %.2f",
                v->first_path, path, d, v->east_m[d], v->north_m[d], part->east_m[d], part->north_m[d]);
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
    return br_fail(error, BR_E_FORMAT,
                   "%s: is neither UVH5 nor DADA; expected what `uvh5` or `record` wrote of `correlate`",
                   path);
}

void visibilities_free(struct visibilities *v)
{
    free(v->first_path);
    free(v->freq_mhz);
    free(v->width_mhz);
    free(v->east_m);
    free(v->north_m);
    free(v->sum);
    free(v->samples);
    free(v->span);
    *v = (struct visibilities){0};
}
