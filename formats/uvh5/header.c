/* header.c - the group /Header of a UVH5 file. Axis orders and names are those of the UVH5 memo, version 1.2.
 */
#include "formats/hdf5/hdf5_types.h"
#include "formats/sky/apparent.h"
#include "formats/uvh5/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 16, CHUNK = 4096 };
static const double radians = 0.017453292519943295;

static bool put_int(hid_t where, const char *name, int64_t value)
{
    return hdf5_put(where, name, H5T_NATIVE_INT64, 0, NULL, &value);
}

static bool put_real(hid_t where, const char *name, double value)
{
    return hdf5_put(where, name, H5T_NATIVE_DOUBLE, 0, NULL, &value);
}

/* `count` texts of `length` bytes each; count 0: one, as a scalar. */
static bool put_texts(hid_t where, const char *name, size_t length, hsize_t count, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    bool good = H5Tset_size(type, length) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
                hdf5_put(where, name, type, count > 0 ? 1 : 0, &count, text);
    H5Tclose(type);
    return good;
}

static bool put_text(hid_t where, const char *name, const char *text)
{
    size_t length = strlen(text);
    return put_texts(where, name, length > 0 ? length : 1, 0, text);
}

static bool put_bool(hid_t where, const char *name, int8_t value)
{
    hid_t type = hdf5_bool();
    bool good = hdf5_put(where, name, type, 0, NULL, &value);
    H5Tclose(type);
    return good;
}

/* Overwrites a number that grows with the file. */
static bool set_int(hid_t where, const char *name, int64_t value)
{
    hid_t set = H5Dopen2(where, name, H5P_DEFAULT);
    bool good = set >= 0 && H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) >= 0;
    if (set >= 0) H5Dclose(set);
    return good;
}

/* The site, and the dishes' places relative to it in axes fixed to the Earth (ITRS, metres). */
static bool put_telescope(hid_t header, const struct uvh5_layout *layout)
{
    const struct br_telescope *t = layout->stream->telescope;
    hsize_t dims[2] = {t->ndishes, 3};
    double lat = t->latitude_deg * radians, lon = t->longitude_deg * radians;
    char *names = calloc(t->ndishes, NAME);
    int64_t *numbers = calloc(t->ndishes, sizeof *numbers);
    double *xyz = calloc(t->ndishes, 3 * sizeof *xyz);
    bool good = names != NULL && numbers != NULL && xyz != NULL;
    for (size_t d = 0; good && d < t->ndishes; d++) {
        double east = t->position[d][0], north = t->position[d][1], up = t->position[d][2];
        snprintf(names + d * NAME, NAME, "dish%zu", d);
        numbers[d] = (int64_t)d;
        xyz[3 * d] = -sin(lon) * east - sin(lat) * cos(lon) * north + cos(lat) * cos(lon) * up;
        xyz[3 * d + 1] = cos(lon) * east - sin(lat) * sin(lon) * north + cos(lat) * sin(lon) * up;
        xyz[3 * d + 2] = cos(lat) * north + sin(lat) * up;
    }
    good = good && put_text(header, "telescope_name", t->name) &&
           put_text(header, "instrument", layout->instrument) &&
           put_text(header, "telescope_frame", "itrs") && put_real(header, "latitude", t->latitude_deg) &&
           put_real(header, "longitude", t->longitude_deg) &&
           put_real(header, "altitude", layout->altitude_m) &&
           put_int(header, "Nants_telescope", t->ndishes) && put_int(header, "Nants_data", t->ndishes) &&
           put_texts(header, "antenna_names", NAME, t->ndishes, names) &&
           hdf5_put(header, "antenna_numbers", H5T_NATIVE_INT64, 1, dims, numbers) &&
           hdf5_put(header, "antenna_positions", H5T_NATIVE_DOUBLE, 2, dims, xyz);
    free(names);
    free(numbers);
    free(xyz);
    return good;
}

/* Which way the polarisations point, where that is known: the angle of each feed from north over east. */
static bool put_feeds(hid_t header, const struct uvh5_layout *layout)
{
    hsize_t dims[2] = {layout->inputs.ndishes, layout->inputs.npol};
    bool east = strcmp(layout->x_orientation, "east") == 0;
    if (strcmp(layout->x_orientation, "unknown") == 0) return true;
    char *feeds = calloc(dims[0], dims[1]);
    double *angles = calloc(dims[0], dims[1] * sizeof *angles);
    for (size_t i = 0; feeds != NULL && angles != NULL && i < dims[0] * dims[1]; i++) {
        bool x = i % dims[1] == 0;
        feeds[i] = x ? 'x' : 'y';
        angles[i] = x == east ? 90 * radians : 0;
    }
    hid_t letter = H5Tcopy(H5T_C_S1);
    H5Tset_strpad(letter, H5T_STR_NULLPAD);
    bool good = feeds != NULL && angles != NULL && hdf5_put(header, "feed_array", letter, 2, dims, feeds) &&
                hdf5_put(header, "feed_angle", H5T_NATIVE_DOUBLE, 2, dims, angles) &&
                put_int(header, "Nfeeds", (int64_t)dims[1]) &&
                put_text(header, "x_orientation", layout->x_orientation);
    H5Tclose(letter);
    free(feeds);
    free(angles);
    return good;
}

static bool put_channels(hid_t header, const struct uvh5_layout *layout)
{
    static const int64_t pols[4] = {-5, -6, -7, -8};
    const struct br_stream *s = layout->stream;
    hsize_t nchannels = s->nchannels, npols = layout->npols, one = 1;
    int64_t window = 0, *windows = calloc(nchannels, sizeof *windows);
    double *hz = calloc(nchannels, 2 * sizeof *hz), *width = hz + nchannels;
    bool good = hz != NULL && windows != NULL;
    for (size_t f = 0; good && f < nchannels; f++) {
        hz[f] = 1e6 * s->freq_mhz[f];
        width[f] = 1e6 * s->width_mhz[f];
    }
    good = good && hdf5_put(header, "freq_array", H5T_NATIVE_DOUBLE, 1, &nchannels, hz) &&
           hdf5_put(header, "channel_width", H5T_NATIVE_DOUBLE, 1, &nchannels, width) &&
           hdf5_put(header, "flex_spw_id_array", H5T_NATIVE_INT64, 1, &nchannels, windows) &&
           hdf5_put(header, "spw_array", H5T_NATIVE_INT64, 1, &one, &window) &&
           hdf5_put(header, "polarization_array", H5T_NATIVE_INT64, 1, &npols, pols) &&
           put_int(header, "Nfreqs", (int64_t)nchannels) && put_int(header, "Nspws", 1) &&
           put_int(header, "Npols", (int64_t)npols);
    free(windows);
    free(hz);
    return good;
}

/* Nothing is phased: directions are those of the site. */
static bool put_phase_centre(hid_t header)
{
    hid_t catalog = H5Gcreate2(header, "phase_center_catalog", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t entry = H5Gcreate2(catalog, "0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool good = entry >= 0 && put_text(entry, "cat_name", "unprojected") &&
                put_text(entry, "cat_type", "unprojected") && put_text(entry, "cat_frame", "altaz") &&
                put_real(entry, "cat_lon", 0) && put_real(entry, "cat_lat", 90 * radians) &&
                put_text(entry, "info_source", "beamring") && put_int(header, "Nphase", 1);
    if (entry >= 0) H5Gclose(entry);
    if (catalog >= 0) H5Gclose(catalog);
    return good;
}

/* The sideband of the stream, from which a reader knows how the field itself was. */
static bool put_sideband(hid_t header, const struct uvh5_layout *layout)
{
    hid_t words = H5Gcreate2(header, "extra_keywords", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool good = words >= 0 && put_text(words, "sideband", br_sideband_name(layout->stream->sideband));
    if (words >= 0) H5Gclose(words);
    return good;
}

static const char *const of_blts_real[] = {
    "time_array",          "integration_time",     "lst_array",
    "phase_center_app_ra", "phase_center_app_dec", "phase_center_frame_pa"};
static const char *const of_blts_int[] = {"ant_1_array", "ant_2_array", "phase_center_id_array"};
enum { REALS = sizeof of_blts_real / sizeof *of_blts_real, INTS = sizeof of_blts_int / sizeof *of_blts_int };

bool uvh5_header_create(hid_t header, const struct uvh5_layout *layout)
{
    hsize_t dims[2] = {0, 3},
            chunk = layout->npairs < CHUNK ? CHUNK / layout->npairs * layout->npairs : CHUNK;
    bool good =
        put_text(header, "version", "1.2") && put_text(header, "vis_units", "uncalib") &&
        put_text(header, "history", layout->history) && put_text(header, "blt_order", "time, baseline") &&
        put_bool(header, "blts_are_rectangular", 1) && put_bool(header, "time_axis_faster_than_bls", 0) &&
        put_int(header, "Nbls", (int64_t)layout->npairs) && put_int(header, "Nblts", 0) &&
        put_int(header, "Ntimes", 0) && put_telescope(header, layout) && put_feeds(header, layout) &&
        put_channels(header, layout) && put_phase_centre(header) && put_sideband(header, layout) &&
        uvh5_make_growing(header, "uvw_array", H5T_NATIVE_DOUBLE, 2, dims, chunk, false);
    for (size_t i = 0; i < REALS; i++)
        if (layout->with_lst || strcmp(of_blts_real[i], "lst_array") != 0)
            good =
                good && uvh5_make_growing(header, of_blts_real[i], H5T_NATIVE_DOUBLE, 1, dims, chunk, false);
    for (size_t i = 0; i < INTS; i++)
        good = good && uvh5_make_growing(header, of_blts_int[i], H5T_NATIVE_INT64, 1, dims, chunk, false);
    return good;
}

bool uvh5_set_history(struct uvh5_file *file, const char *text)
{
    return H5Ldelete(file->header, "history", H5P_DEFAULT) >= 0 && put_text(file->header, "history", text);
}

/* Julian date. A double keeps 40 us of it. */
static double julian(int64_t unix_ns)
{
    return 2440587.5 + (double)unix_ns / 86400e9;
}

bool uvh5_header_append(hid_t header, const struct uvh5_layout *layout, uint64_t integrations,
                        const struct uvh5_row *row)
{
    const struct br_telescope *t = layout->stream->telescope;
    size_t n = layout->npairs;
    hsize_t first = integrations * n;
    double lst = 0;
    struct apparent_site site = {t->latitude_deg, t->longitude_deg, layout->ut1_utc_s};
    /* without ERFA, or for an epoch that is none, nobody can say */
    bool sky = apparent_is_there() && apparent_lst(&site, row->centre_ns, &lst, NULL) == BR_OK;
    const double real[REALS] = {
        julian(row->centre_ns), row->seconds, lst, sky ? lst : 0, t->latitude_deg * radians, 0};
    double *values = malloc(3 * n * sizeof *values);
    int64_t *numbers = malloc(n * sizeof *numbers);
    bool good = values != NULL && numbers != NULL;
    for (size_t i = 0; good && i < REALS; i++) {
        if (!layout->with_lst && strcmp(of_blts_real[i], "lst_array") == 0) continue;
        for (size_t k = 0; k < n; k++) values[k] = real[i];
        good = uvh5_write_rows(header, of_blts_real[i], H5T_NATIVE_DOUBLE, first, n, values);
    }
    for (size_t i = 0; good && i < INTS; i++) {
        for (size_t k = 0; k < n; k++) {
            int64_t of[INTS] = {layout->pair[k].a, layout->pair[k].b, 0};
            numbers[k] = of[i];
        }
        good = uvh5_write_rows(header, of_blts_int[i], H5T_NATIVE_INT64, first, n, numbers);
    }
    for (size_t k = 0; good && k < n; k++) {
        const double *a = t->position[layout->pair[k].a], *b = t->position[layout->pair[k].b];
        for (int axis = 0; axis < 3; axis++) values[3 * k + axis] = b[axis] - a[axis];
    }
    good = good && uvh5_write_rows(header, "uvw_array", H5T_NATIVE_DOUBLE, first, n, values) &&
           set_int(header, "Ntimes", (int64_t)integrations + 1) &&
           set_int(header, "Nblts", (int64_t)(first + n));
    free(values);
    free(numbers);
    return good;
}
