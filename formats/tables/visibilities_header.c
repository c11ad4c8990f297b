/* visibilities_header.c - what a UVH5 file says of its antennas, channels and rows, in the forms that
 * pyuvdata has written since 2018. */
#include "formats/common/order.h"
#include "formats/hdf5/hdf5_types.h"
#include "formats/sky/apparent.h"
#include "formats/uvh5/visibilities_uvh5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double radians = 0.017453292519943295, day_ns = 86400e9, jd_1970 = 2440587.5;

static int64_t unix_ns(double jd)
{
    return llround((jd - jd_1970) * day_ns);
}

int uvh5_bad(struct uvh5_reader *r, const char *name, const char *expected)
{
    if (r->error->text[0] != '\0') return BR_E_FORMAT; /* the cause was found before */
    return br_fail(r->error, BR_E_FORMAT, "%s: %s is missing, damaged or of another form; expected %s",
                   r->path, name, expected);
}

/* Opens a dataset of this very file; -1 with the reason in r->error where it leads out of it. */
static hid_t open_set(struct uvh5_reader *r, const char *name)
{
    bool outside;
    hid_t set = hdf5_dataset(r->file, name, &outside);
    if (outside) br_fail(r->error, BR_E_FORMAT, "%s: %s " HDF5_OUTSIDE, r->path, name);
    return set;
}

static bool has(struct uvh5_reader *r, const char *name)
{
    return hdf5_exists(r->file, name);
}

/* A dataset of numbers, [count] or [count][more]; `more` 0: one axis, before which there may be one of
 * length 1 (the spectral windows of old files). *count 0: any length, which is set. NULL where it is not
 * like that. */
static void *numbers(struct uvh5_reader *r, const char *name, hid_t type, hsize_t *count, hsize_t more)
{
    hsize_t dims[2] = {0, 1};
    void *values = NULL;
    hid_t set = open_set(r, name), space = set >= 0 ? H5Dget_space(set) : -1;
    int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool fits = rank >= 1 && rank <= 2 && H5Sget_simple_extent_dims(space, dims, NULL) == rank;
    if (fits && more == 0 && rank == 2 && dims[0] == 1) {
        dims[0] = dims[1];
        dims[1] = rank = 1;
    }
    fits = fits && rank == (more > 0 ? 2 : 1) && (more == 0 || dims[1] == more) && dims[0] > 0 &&
           dims[0] <= UVH5_DENSEST * r->bytes / (dims[1] * 8) && (*count == 0 || *count == dims[0]);
    if (fits) values = malloc(dims[0] * dims[1] * 8);
    if (values != NULL && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
        free(values);
        values = NULL;
    }
    if (values != NULL) *count = dims[0];
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    return values;
}

static bool one_real(struct uvh5_reader *r, const char *name, double *value)
{
    hid_t set = open_set(r, name), space = set >= 0 ? H5Dget_space(set) : -1;
    bool good = space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
                H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    return good && isfinite(*value);
}

/* A text of fixed or variable length, cut to `size`; empty where there is none. */
static void one_text(struct uvh5_reader *r, const char *name, char *text, size_t size)
{
    char *longer = NULL;
    hid_t set = open_set(r, name), type = set >= 0 ? H5Dget_type(set) : -1;
    hid_t space = set >= 0 ? H5Dget_space(set) : -1;
    text[0] = '\0';
    if (space >= 0 && H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(type) == H5T_STRING) {
        if (H5Tis_variable_str(type) > 0) {
            if (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &longer) >= 0 && longer != NULL)
                snprintf(text, size, "%s", longer);
        } else {
            hid_t mine = H5Tcopy(H5T_C_S1);
            H5Tset_cset(mine, H5Tget_cset(type));
            if (H5Tset_size(mine, size) < 0 || H5Dread(set, mine, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
                text[0] = '\0';
            H5Tclose(mine);
        }
    }
    text[size - 1] = '\0';
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
}

/* The site, from degrees, or from a point in axes fixed to the Earth. */
static int read_site(struct uvh5_reader *r)
{
    struct visibilities_shape *shape = &r->reply.shape;
    hsize_t three = 3;
    if (one_real(r, "Header/latitude", &shape->latitude_deg) &&
        one_real(r, "Header/longitude", &shape->longitude_deg))
        return BR_OK;
    double *xyz = numbers(r, "Header/telescope_location", H5T_NATIVE_DOUBLE, &three, 0);
    if (xyz == NULL) return uvh5_bad(r, "Header/latitude or longitude", "degrees");
    int status = apparent_geodetic(xyz, &shape->latitude_deg, &shape->longitude_deg, r->error);
    free(xyz);
    return status;
}

double uvh5_height(struct uvh5_reader *r)
{
    double height = NAN;
    return one_real(r, "Header/altitude", &height) ? height : NAN;
}

/* Positions relative to the site, from axes fixed to the Earth to east, north and up. */
int uvh5_read_antennas(struct uvh5_reader *r)
{
    struct visibilities_shape *shape = &r->reply.shape;
    hsize_t count = 0;
    int64_t *number = numbers(r, "Header/antenna_numbers", H5T_NATIVE_INT64, &count, 0);
    double *xyz = numbers(r, "Header/antenna_positions", H5T_NATIVE_DOUBLE, &count, 3);
    if (number == NULL || xyz == NULL || count > UVH5_MAX_AXIS)
        return uvh5_bad(r, "Header/antenna_numbers or antenna_positions",
                        "numbers [antenna] and coordinates [antenna][3]");
    int status = read_site(r);
    if (status != BR_OK) return status;
    shape->ndishes = count;
    double lat = shape->latitude_deg * radians, lon = shape->longitude_deg * radians;
    double *east = malloc(3 * count * sizeof *east), *north = east + count, *up = north + count;
    r->antenna = malloc(count * sizeof *r->antenna);
    if (east == NULL || r->antenna == NULL)
        return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory for %zu antennas", r->path, shape->ndishes);
    for (size_t d = 0; d < count; d++) {
        const double *p = xyz + 3 * d;
        double outward = cos(lon) * p[0] + sin(lon) * p[1]; /* from the Earth's axis */
        east[d] = -sin(lon) * p[0] + cos(lon) * p[1];
        north[d] = -sin(lat) * outward + cos(lat) * p[2];
        up[d] = cos(lat) * outward + sin(lat) * p[2];
        if (!isfinite(east[d] + north[d] + up[d]))
            return uvh5_bad(r, "Header/antenna_positions", "finite numbers");
        r->antenna[d] = (struct uvh5_antenna){number[d], d};
    }
    qsort(r->antenna, count, sizeof *r->antenna, order_int64);
    for (size_t d = 1; d < count; d++)
        if (r->antenna[d].number == r->antenna[d - 1].number)
            return uvh5_bad(r, "Header/antenna_numbers", "every number once");
    r->part.east_m = east;
    r->part.north_m = north;
    r->part.up_m = up;
    r->part.antenna = number;
    one_text(r, "Header/telescope_name", shape->telescope, sizeof shape->telescope);
    free(xyz);
    return BR_OK;
}

/* Where the two parallel polarisations are: linear ones, or circular ones. */
static int read_polarisations(struct uvh5_reader *r)
{
    static const struct {
        int number;
        char name[4];
    } known[4] = {{-5, "xx"}, {-6, "yy"}, {-1, "rr"}, {-2, "ll"}};
    struct visibilities_shape *shape = &r->reply.shape;
    hsize_t npols = 0;
    int64_t *pol = numbers(r, "Header/polarization_array", H5T_NATIVE_INT64, &npols, 0);
    if (pol == NULL || npols > 16)
        return uvh5_bad(r, "Header/polarization_array", "numbers of polarisations");
    r->npols = npols;
    for (int first = 0; first < 4 && shape->npol == 0; first += 2)
        for (int k = first; k < first + 2; k++)
            for (size_t p = 0; p < npols; p++) {
                if (pol[p] != known[k].number) continue;
                memcpy(shape->pol[shape->npol], known[k].name, sizeof known[k].name);
                r->pol_at[shape->npol++] = (int)p;
                break;
            }
    free(pol);
    if (shape->npol > 0) return BR_OK;
    return br_fail(
        r->error, BR_E_FORMAT,
        "%s: Header/polarization_array has none of xx (-5), yy (-6), rr (-1) and ll (-2); gains are "
        "those of one polarisation with itself",
        r->path);
}

static int read_channels(struct uvh5_reader *r)
{
    hsize_t count = 0, one = 1, many;
    double *hz = numbers(r, "Header/freq_array", H5T_NATIVE_DOUBLE, &count, 0), single;
    if (hz == NULL || count > UVH5_MAX_AXIS) return uvh5_bad(r, "Header/freq_array", "Hz for each channel");
    many = count;
    double *width = numbers(r, "Header/channel_width", H5T_NATIVE_DOUBLE, &many, 0);
    double *wide = width == NULL ? numbers(r, "Header/channel_width", H5T_NATIVE_DOUBLE, &one, 0) : NULL;
    if (width == NULL) { /* one for all */
        if (wide == NULL && !one_real(r, "Header/channel_width", &single))
            return uvh5_bad(r, "Header/channel_width", "Hz, one number or one for each channel");
        width = malloc(count * sizeof *width);
        for (size_t f = 0; width != NULL && f < count; f++) width[f] = wide != NULL ? wide[0] : single;
    }
    if (width == NULL) return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory for its channels", r->path);
    r->reply.shape.nchannels = count;
    for (size_t f = 0; f < count; f++) {
        hz[f] *= 1e-6;
        width[f] = fabs(width[f]) * 1e-6;
        if (!(hz[f] > 0 && width[f] > 0 && isfinite(hz[f]) && isfinite(width[f])))
            return uvh5_bad(r, "Header/freq_array or channel_width", "Hz above 0");
    }
    r->part.freq_mhz = hz;
    r->part.width_mhz = width;
    return BR_OK;
}

/* Our writer says which sideband the stream had and writes the conjugates of an upper and of an unknown one.
 * Before it said so, it wrote every stream's visibilities as they were. */
static int read_sideband(struct uvh5_reader *r, enum br_sideband stated)
{
    char said[16] = "", history[64];
    enum br_sideband own;
    if (has(r, "Header/extra_keywords")) one_text(r, "Header/extra_keywords/sideband", said, sizeof said);
    one_text(r, "Header/history", history, sizeof history);
    own = br_sideband_named(said);
    r->sums = strncmp(history, "Written by beamring: sums", 25) == 0;
    int status = visibilities_sideband(stated, own, r->path, &r->reply.shape.sideband, r->error);
    if (said[0] != '\0')
        r->conjugated = own != BR_SIDEBAND_LOWER;
    else
        r->conjugated = !r->sums && br_sideband_sign(r->reply.shape.sideband) > 0;
    return status;
}

/* --- phase centres ------------------------------------------------------------------------------------- */

/* One phase centre; whether its visibilities are turned by their w. */
struct centre {
    int64_t id;
    bool turned;
};

struct centres {
    struct uvh5_reader *r;
    size_t count;
    struct centre centre[1024];
    int status;
};

/* "cat_type" of JSON, as files of 2021 have it, up to its quotation mark. */
static const char *json_value(const char *json, const char *key)
{
    const char *at = strstr(json, key);
    return at != NULL ? at + strlen(key) + strspn(at + strlen(key), "\": ") : "";
}

static herr_t read_centre(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    struct centres *all = arg;
    struct uvh5_reader *r = all->r;
    char path[256], type[512];
    int64_t id = strtoll(name, NULL, 10);
    (void)group, (void)info;
    if (all->count == sizeof all->centre / sizeof *all->centre) return 0; /* its rows are refused */
    snprintf(path, sizeof path, "Header/phase_center_catalog/%.200s/cat_type", name);
    if (has(r, path)) {
        one_text(r, path, type, sizeof type);
    } else {
        char json[4096];
        *strrchr(path, '/') = '\0';
        one_text(r, path, json, sizeof json);
        id = strtoll(json_value(json, "\"cat_id\""), NULL, 10);
        snprintf(type, sizeof type, "%.*s", (int)strcspn(json_value(json, "\"cat_type\""), "\""),
                 json_value(json, "\"cat_type\""));
    }
    bool turned =
        strcmp(type, "sidereal") == 0 || strcmp(type, "ephem") == 0 || strcmp(type, "driftscan") == 0;
    if (!turned && strcmp(type, "unprojected") != 0) {
        all->status =
            br_fail(r->error, BR_E_INVALID,
                    "%s: a phase centre of the kind '%.40s' cannot be undone; expected unprojected, "
                    "sidereal, ephem or driftscan",
                    r->path, type);
        return -1;
    }
    all->centre[all->count++] = (struct centre){id, turned};
    return 0;
}

/* Sets r->w where the file's visibilities are phased to a place: pyuvdata multiplies them by exp(-2 pi i w /
 * lambda), with the w of uvw_array. */
static int read_phase_centres(struct uvh5_reader *r, hsize_t rows)
{
    struct centres all = {.r = r, .status = BR_OK};
    char type[32] = "";
    bool catalog = has(r, "Header/phase_center_catalog"), any = false;
    if (catalog) {
        bool outside;
        bool good = hdf5_each(r->file, "Header/phase_center_catalog", read_centre, &all, &outside);
        if (all.status != BR_OK) return all.status;
        if (outside)
            return br_fail(r->error, BR_E_FORMAT, "%s: Header/phase_center_catalog " HDF5_OUTSIDE, r->path);
        if (!good) return uvh5_bad(r, "Header/phase_center_catalog", "a group of phase centres");
    } else { /* files before 2021 have one place for all rows */
        one_text(r, "Header/phase_type", type, sizeof type);
        all.centre[all.count++] = (struct centre){0, strcmp(type, "phased") == 0};
    }
    for (size_t i = 0; i < all.count; i++) any = any || all.centre[i].turned;
    if (!any) return BR_OK;
    double *uvw = numbers(r, "Header/uvw_array", H5T_NATIVE_DOUBLE, &rows, 3);
    int64_t *id = catalog ? numbers(r, "Header/phase_center_id_array", H5T_NATIVE_INT64, &rows, 0) : NULL;
    r->w = malloc(rows * sizeof *r->w);
    if (uvw == NULL || r->w == NULL) return uvh5_bad(r, "Header/uvw_array", "metres [row][3]");
    if (id == NULL && all.count > 1)
        return uvh5_bad(r, "Header/phase_center_id_array", "a number for each row");
    for (size_t i = 0; i < rows; i++) {
        size_t k = 0;
        while (id != NULL && k < all.count && all.centre[k].id != id[i]) k++;
        if (k == all.count || !isfinite(uvw[3 * i + 2]))
            return uvh5_bad(r, "Header/phase_center_id_array or uvw_array",
                            "centres of phase_center_catalog");
        r->w[i] = all.centre[k].turned ? uvw[3 * i + 2] : 0;
    }
    free(uvw);
    free(id);
    return BR_OK;
}

/* --- rows ---------------------------------------------------------------------------------------------- */

/* Dishes of the rows' antennas. */
static size_t *read_dishes(struct uvh5_reader *r, const char *name, hsize_t *rows)
{
    int64_t *number = numbers(r, name, H5T_NATIVE_INT64, rows, 0);
    size_t *dish = number != NULL ? malloc(*rows * sizeof *dish) : NULL;
    for (size_t i = 0; dish != NULL && i < *rows; i++) {
        struct uvh5_antenna key = {number[i], 0};
        const struct uvh5_antenna *found =
            bsearch(&key, r->antenna, r->reply.shape.ndishes, sizeof *r->antenna, order_int64);
        if (found == NULL) {
            br_fail(r->error, BR_E_FORMAT,
                    "%s: %s has antenna %lld, which Header/antenna_numbers does not have", r->path, name,
                    (long long)number[i]);
            return NULL;
        }
        dish[i] = found->dish;
    }
    free(number);
    return dish;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The source's direction at every time of the rows, which come in any order. */
static int read_directions(struct uvh5_reader *r, size_t rows)
{
    struct uvh5_reply *reply = &r->reply;
    r->time = malloc(rows * sizeof *r->time);
    if (r->time == NULL) return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory for its times", r->path);
    memcpy(r->time, r->jd, rows * sizeof *r->time);
    qsort(r->time, rows, sizeof *r->time, ascending);
    for (size_t i = 0; i < rows; i++)
        if (i == 0 || r->time[i] > r->time[reply->integrations - 1])
            r->time[reply->integrations++] = r->time[i];
    r->direction = malloc(reply->integrations * sizeof *r->direction);
    if (r->direction == NULL)
        return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory for its times", r->path);
    for (size_t k = 0; k < reply->integrations; k++) {
        int status = source_direction(&r->place, reply->shape.latitude_deg, reply->shape.longitude_deg,
                                      unix_ns(r->time[k]), r->direction[k], r->error);
        if (status != BR_OK) return status;
        if (source_on_sky(&r->place)) reply->lowest = fmin(reply->lowest, r->direction[k][2]);
    }
    memcpy(reply->towards, r->direction[0], sizeof reply->towards);
    return BR_OK;
}

const double *uvh5_direction(const struct uvh5_reader *r, size_t row)
{
    const double *found = bsearch(&r->jd[row], r->time, r->reply.integrations, sizeof *r->time, ascending);
    return r->direction[found - r->time];
}

static int read_row_header(struct uvh5_reader *r)
{
    hsize_t rows = 0;
    struct uvh5_reply *reply = &r->reply;
    r->jd = numbers(r, "Header/time_array", H5T_NATIVE_DOUBLE, &rows, 0);
    if (r->jd == NULL) return uvh5_bad(r, "Header/time_array", "a Julian date for each row");
    r->seconds = numbers(r, "Header/integration_time", H5T_NATIVE_DOUBLE, &rows, 0);
    r->a = read_dishes(r, "Header/ant_1_array", &rows);
    r->b = read_dishes(r, "Header/ant_2_array", &rows);
    if (r->seconds == NULL || r->a == NULL || r->b == NULL)
        return uvh5_bad(r, "Header/integration_time, ant_1_array or ant_2_array", "one number for each row");
    reply->rows = rows;
    reply->span = (struct time_span){INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < rows; i++) {
        if (!(fabs(r->jd[i] - jd_1970) < 1e5 && r->seconds[i] > 0 && r->seconds[i] < 1e9))
            return uvh5_bad(r, "Header/time_array or integration_time", "Julian dates and seconds");
        int64_t at = unix_ns(r->jd[i]), half = llround(r->seconds[i] * 0.5e9);
        if (at - half < reply->span.begin_ns) reply->span.begin_ns = at - half;
        if (at + half > reply->span.end_ns) reply->span.end_ns = at + half;
    }
    int status = read_directions(r, rows);
    return status == BR_OK ? read_phase_centres(r, rows) : status;
}

int uvh5_read_header(struct uvh5_reader *r, enum br_sideband stated)
{
    double seconds;
    int status = uvh5_read_antennas(r);
    if (status == BR_OK) status = read_polarisations(r);
    if (status == BR_OK) status = read_channels(r);
    if (status == BR_OK) status = read_sideband(r, stated);
    if (status != BR_OK) return status;
    if (!isfinite(r->place.ut1_utc_s) && has(r, "Header/dut1") && one_real(r, "Header/dut1", &seconds) &&
        fabs(seconds) <= 1)
        r->place.ut1_utc_s = seconds;
    status = read_row_header(r);
    r->part.shape = r->reply.shape;
    return status == BR_OK ? r->error->status : status; /* something that may be missing leads out */
}

bool uvh5_read_rows(struct uvh5_reader *r, const char *name, hid_t type, hsize_t first, hsize_t count,
                    void *to)
{
    hsize_t dims[4] = {0}, at[4] = {first}, size[4] = {count, 1, r->reply.shape.nchannels, r->npols};
    hid_t set = open_set(r, name), space = set >= 0 ? H5Dget_space(set) : -1;
    int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool good = (rank == 3 || rank == 4) && H5Sget_simple_extent_dims(space, dims, NULL) == rank;
    if (rank == 3) { /* without the spectral windows of old files */
        size[1] = size[2];
        size[2] = size[3];
    }
    for (int i = 1; i < rank && good; i++) good = dims[i] == size[i];
    hid_t memory = good ? H5Screate_simple(rank, size, NULL) : -1, own = good ? H5Dget_type(set) : -1;
    if (type == H5T_NATIVE_INT8 && own >= 0 && H5Tget_class(own) == H5T_ENUM) type = hdf5_bool();
    good = good && dims[0] == r->reply.rows &&
           H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, size, NULL) >= 0 &&
           H5Dread(set, type, memory, space, H5P_DEFAULT, to) >= 0;
    if (own >= 0) H5Tclose(own);
    if (memory >= 0) H5Sclose(memory);
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    return good;
}
