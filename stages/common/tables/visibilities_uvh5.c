/* visibilities_uvh5.c - UVH5 files, read and added up in another process, some rows a call. */
#include "stages/common/tables/hdf5_child.h"
#include "stages/common/tables/hdf5_types.h"
#include "stages/common/tables/visibilities.h"

#include <hdf5.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* DENSEST: nothing of a file is believed that needs so many times more memory than the file has bytes */
enum { SLICE_BYTES = 256 << 20, MAX_AXIS = 1 << 20, DENSEST = 1000 };
static const double radians = 0.017453292519943295, day_ns = 86400e9, jd_1970 = 2440587.5;

struct request {
    char path[PATH_MAX];
    uint64_t first; /* row: baseline and time */
    struct source_place place;
};

/* What the child sends before frequencies, widths, east, north, sums and numbers of samples. */
struct reply {
    struct visibilities_shape shape;
    uint64_t next, rows; /* the first one that is not in the sums; how many there are */
    uint64_t integrations;
    struct time_span span; /* of the file */
    double lowest;
};

/* In the child, which ends after each call: its memory is left to that. */
struct reader {
    hid_t file;
    const char *path;
    hsize_t bytes; /* of the file */
    struct br_error *error;
    struct reply reply;
    struct visibilities_part part;
    size_t npols, npairs;
    int64_t *antenna;      /* [ndishes] numbers */
    int pol_at[2];         /* where xx and yy stand */
    double *jd, *seconds;  /* [rows] */
    int64_t *a, *b;        /* [rows] numbers of the antennas */
    double *phase;         /* [nchannels][ndishes][2] */
    double *sum, *samples; /* as in struct visibilities */
};

static int bad(struct reader *r, const char *name, const char *expected)
{
    return br_fail(r->error, BR_E_FORMAT,
                   "%s: %s is missing or of another form; expected %s, as `uvh5` writes it", r->path, name,
                   expected);
}

/* A dataset of numbers, [count] or [count][more]; `more` 0: one axis. NULL where it is not like that. */
static void *numbers(struct reader *r, const char *name, hid_t type, size_t size, hsize_t *count,
                     hsize_t more)
{
    hsize_t dims[2] = {0, 1};
    void *values = NULL;
    hid_t set = hdf5_dataset(r->file, name, NULL), space = set >= 0 ? H5Dget_space(set) : -1;
    int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool fits = rank == (more > 0 ? 2 : 1) && H5Sget_simple_extent_dims(space, dims, NULL) == rank &&
                (more == 0 || dims[1] == more) && dims[0] > 0 &&
                dims[0] <= DENSEST * r->bytes / (dims[1] * size) && (*count == 0 || *count == dims[0]);
    if (fits) values = malloc(dims[0] * dims[1] * size);
    if (values != NULL && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
        free(values);
        values = NULL;
    }
    if (values != NULL) *count = dims[0];
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    return values;
}

static bool one_real(struct reader *r, const char *name, double *value)
{
    hid_t set = hdf5_dataset(r->file, name, NULL), space = set >= 0 ? H5Dget_space(set) : -1;
    bool good = space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
                H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    return good;
}

/* A text of fixed length; empty where there is none. */
static void one_text(struct reader *r, const char *name, char *text, size_t size)
{
    text[0] = '\0';
    if (!hdf5_exists(r->file, name)) return;
    hid_t set = hdf5_dataset(r->file, name, NULL), type = set >= 0 ? H5Dget_type(set) : -1;
    hid_t mine = H5Tcopy(H5T_C_S1);
    H5Tset_size(mine, size);
    hid_t space = set >= 0 ? H5Dget_space(set) : -1;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && space >= 0 &&
        H5Sget_simple_extent_npoints(space) == 1 &&
        H5Dread(set, mine, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
        text[0] = '\0';
    text[size - 1] = '\0';
    H5Tclose(mine);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (set >= 0) H5Dclose(set);
}

/* Positions relative to the site, from axes fixed to the Earth to east and north. */
static int read_antennas(struct reader *r)
{
    struct visibilities_shape *shape = &r->reply.shape;
    hsize_t count = 0;
    r->antenna = numbers(r, "Header/antenna_numbers", H5T_NATIVE_INT64, 8, &count, 0);
    double *xyz = numbers(r, "Header/antenna_positions", H5T_NATIVE_DOUBLE, 8, &count, 3);
    if (r->antenna == NULL || xyz == NULL || count > MAX_AXIS)
        return bad(r, "Header/antenna_positions", "three coordinates for each of antenna_numbers");
    if (!one_real(r, "Header/latitude", &shape->latitude_deg) ||
        !one_real(r, "Header/longitude", &shape->longitude_deg))
        return bad(r, "Header/latitude or longitude", "degrees");
    shape->ndishes = count;
    double lat = shape->latitude_deg * radians, lon = shape->longitude_deg * radians;
    double *east = malloc(count * sizeof *east), *north = malloc(count * sizeof *north);
    if (east == NULL || north == NULL) return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory", r->path);
    for (size_t d = 0; d < count; d++) {
        const double *p = xyz + 3 * d;
        east[d] = -sin(lon) * p[0] + cos(lon) * p[1];
        north[d] = -sin(lat) * cos(lon) * p[0] - sin(lat) * sin(lon) * p[1] + cos(lat) * p[2];
    }
    r->part.east_m = east;
    r->part.north_m = north;
    one_text(r, "Header/telescope_name", shape->telescope, sizeof shape->telescope);
    return BR_OK;
}

static int read_channels(struct reader *r)
{
    struct visibilities_shape *shape = &r->reply.shape;
    hsize_t count = 0, npols = 0;
    double *hz = numbers(r, "Header/freq_array", H5T_NATIVE_DOUBLE, 8, &count, 0);
    double *width = numbers(r, "Header/channel_width", H5T_NATIVE_DOUBLE, 8, &count, 0);
    int64_t *pol = numbers(r, "Header/polarization_array", H5T_NATIVE_INT64, 8, &npols, 0);
    if (hz == NULL || width == NULL || count > MAX_AXIS)
        return bad(r, "Header/freq_array or channel_width", "Hz for each channel");
    if (pol == NULL || npols > 4) return bad(r, "Header/polarization_array", "1, 2 or 4 polarisations");
    r->pol_at[0] = r->pol_at[1] = -1;
    for (size_t p = 0; p < npols; p++)
        if (pol[p] == -5 || pol[p] == -6) r->pol_at[-5 - pol[p]] = (int)p;
    if (r->pol_at[0] < 0) return bad(r, "xx (-5) of Header/polarization_array", "xx, or xx and yy");
    shape->npol = r->pol_at[1] >= 0 ? 2 : 1;
    shape->nchannels = count;
    r->npols = npols;
    for (size_t f = 0; f < count; f++) {
        hz[f] *= 1e-6;
        width[f] = fabs(width[f]) * 1e-6;
        if (!(hz[f] > 0 && width[f] > 0 && isfinite(hz[f]))) return bad(r, "Header/freq_array", "Hz above 0");
    }
    r->part.freq_mhz = hz;
    r->part.width_mhz = width;
    free(pol);
    return BR_OK;
}

static int64_t unix_ns(double jd)
{
    return llround((jd - jd_1970) * day_ns);
}

static int read_rows(struct reader *r)
{
    char type[32];
    hsize_t rows = 0;
    struct reply *reply = &r->reply;
    one_text(r, "Header/phase_center_catalog/0/cat_type", type, sizeof type);
    if (type[0] != '\0' && strcmp(type, "unprojected") != 0)
        return br_fail(
            r->error, BR_E_INVALID,
            "%s: its visibilities are phased to a place on the sky ('%s'); expected them as they were "
            "recorded, 'unprojected'",
            r->path, type);
    r->jd = numbers(r, "Header/time_array", H5T_NATIVE_DOUBLE, 8, &rows, 0);
    r->seconds = numbers(r, "Header/integration_time", H5T_NATIVE_DOUBLE, 8, &rows, 0);
    r->a = numbers(r, "Header/ant_1_array", H5T_NATIVE_INT64, 8, &rows, 0);
    r->b = numbers(r, "Header/ant_2_array", H5T_NATIVE_INT64, 8, &rows, 0);
    if (r->jd == NULL || r->seconds == NULL || r->a == NULL || r->b == NULL)
        return br_fail(r->error, BR_E_FORMAT, "%s: there is no integration in it", r->path);
    reply->rows = rows;
    reply->span = (struct time_span){INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < rows; i++) {
        if (!(fabs(r->jd[i] - jd_1970) < 1e5 && r->seconds[i] > 0 && r->seconds[i] < 1e9))
            return bad(r, "Header/time_array or integration_time", "Julian dates and seconds");
        int64_t at = unix_ns(r->jd[i]), half = llround(r->seconds[i] * 0.5e9);
        if (at - half < reply->span.begin_ns) reply->span.begin_ns = at - half;
        if (at + half > reply->span.end_ns) reply->span.end_ns = at + half;
        if (i == 0 || r->jd[i] < r->jd[i - 1] || r->jd[i] > r->jd[i - 1])
            reply->integrations += i >= r->reply.next;
    }
    return BR_OK;
}

static bool dish_of(const struct reader *r, int64_t number, size_t *dish)
{
    size_t n = r->reply.shape.ndishes;
    if (number >= 0 && (uint64_t)number < n && r->antenna[number] == number) {
        *dish = (size_t)number;
        return true;
    }
    for (*dish = 0; *dish < n; (*dish)++)
        if (r->antenna[*dish] == number) return true;
    return false;
}

static void add_row(struct reader *r, size_t i, size_t j, const double *v, const float *count,
                    const int8_t *flag)
{
    size_t nchannels = r->reply.shape.nchannels, n = r->reply.shape.ndishes;
    bool swapped = i > j;
    size_t low = swapped ? j : i, high = swapped ? i : j, pair = low * n - low * (low + 1) / 2 + high;
    for (size_t f = 0; f < nchannels; f++) {
        const double *a = r->phase + 2 * (f * n + low), *c = r->phase + 2 * (f * n + high);
        double re = a[0] * c[0] + a[1] * c[1], im = a[1] * c[0] - a[0] * c[1];
        for (size_t p = 0; p < r->reply.shape.npol; p++) {
            size_t at = f * r->npols + (size_t)r->pol_at[p];
            size_t cell = (p * nchannels + f) * r->npairs + pair;
            bool finite = isfinite(count[at]) && isfinite(v[2 * at]) && isfinite(v[2 * at + 1]);
            if (flag[at] != 0 || !(count[at] > 0) || !finite) continue;
            double x = v[2 * at], y = swapped ? -v[2 * at + 1] : v[2 * at + 1];
            r->sum[2 * cell] += x * re - y * im;
            r->sum[2 * cell + 1] += x * im + y * re;
            r->samples[cell] += (double)count[at];
        }
    }
}

/* Rows [first, first + count) of a dataset [rows][channels][polarisations]. */
static bool read_part(struct reader *r, const char *name, hid_t type, hsize_t first, hsize_t count, void *to)
{
    hsize_t dims[3] = {0}, at[3] = {first}, size[3] = {count, r->reply.shape.nchannels, r->npols};
    hid_t set = hdf5_dataset(r->file, name, NULL), space = set >= 0 ? H5Dget_space(set) : -1;
    hid_t memory = H5Screate_simple(3, size, NULL);
    bool good = space >= 0 && H5Sget_simple_extent_ndims(space) == 3 &&
                H5Sget_simple_extent_dims(space, dims, NULL) == 3 && dims[0] == r->reply.rows &&
                dims[1] == size[1] && dims[2] == size[2] &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, size, NULL) >= 0 &&
                H5Dread(set, type, memory, space, H5P_DEFAULT, to) >= 0;
    H5Sclose(memory);
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    return good;
}

/* Adds rows from reply.next on, as many as a slice has; reply.next is behind them then. */
static int add_slice(struct reader *r, const struct source_place *place)
{
    struct reply *reply = &r->reply;
    const struct visibilities_shape *shape = &reply->shape;
    size_t cells = shape->nchannels * r->npols;
    hsize_t count = SLICE_BYTES / (21 * cells) + 1, first = reply->next;
    if (count > reply->rows - first) count = reply->rows - first;
    double *v = malloc(count * cells * 2 * sizeof *v);
    float *samples = malloc(count * cells * sizeof *samples);
    int8_t *flag = malloc(count * cells);
    if (v == NULL || samples == NULL || flag == NULL)
        return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory for %llu rows", r->path,
                       (unsigned long long)count);
    if (!read_part(r, "Data/visdata", hdf5_complex(H5T_NATIVE_DOUBLE), first, count, v) ||
        !read_part(r, "Data/nsamples", H5T_NATIVE_FLOAT, first, count, samples) ||
        !read_part(r, "Data/flags", hdf5_bool(), first, count, flag))
        return bad(r, "Data/visdata, nsamples or flags", "[time and baseline][freq][pol]");
    double now = NAN;
    for (size_t k = 0; k < count; k++) {
        double jd = r->jd[first + k], north, east, up;
        size_t i, j;
        if (!(jd <= now && jd >= now)) {
            int status = source_direction(place, shape->latitude_deg, shape->longitude_deg, unix_ns(jd),
                                          &north, &east, &up, r->error);
            if (status != BR_OK) return status;
            if (up < reply->lowest) reply->lowest = up;
            source_phases(&r->part, north, east, r->phase);
            now = jd;
        }
        if (!dish_of(r, r->a[first + k], &i) || !dish_of(r, r->b[first + k], &j))
            return bad(r, "Header/ant_1_array or ant_2_array", "antenna_numbers");
        add_row(r, i, j, v + 2 * k * cells, samples + k * cells, flag + k * cells);
    }
    reply->next = first + count;
    free(v);
    free(samples);
    free(flag);
    return BR_OK;
}

static int read_slice(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct request *request = arg;
    struct reader r = {.path = request->path, .error = error};
    r.file = hdf5_open(request->path);
    if (r.file < 0) return br_fail(error, BR_E_FORMAT, "%s: is not a readable HDF5 file", request->path);
    H5Fget_filesize(r.file, &r.bytes);
    r.reply.next = request->first;
    r.reply.lowest = 2;
    int status = read_antennas(&r);
    if (status == BR_OK) status = read_channels(&r);
    if (status == BR_OK) status = read_rows(&r);
    if (status != BR_OK) return status;
    r.part.shape = r.reply.shape;
    struct visibilities_shape *s = &r.reply.shape;
    r.npairs = s->ndishes * (s->ndishes + 1) / 2;
    if ((double)r.npairs * (double)(s->nchannels * s->npol) * 24 > DENSEST * (double)r.bytes)
        return bad(&r, "Header", "as many antennas and channels as there are visibilities for");
    size_t cells = s->npol * s->nchannels * r.npairs;
    r.phase = malloc(2 * s->nchannels * s->ndishes * sizeof *r.phase);
    r.sum = calloc(2 * cells, sizeof *r.sum);
    r.samples = calloc(cells, sizeof *r.samples);
    if (r.phase == NULL || r.sum == NULL || r.samples == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for %zu visibilities", r.path, cells);
    status = add_slice(&r, &request->place);
    if (status != BR_OK) return status;
    H5Fclose(r.file);
    if (!hdf5_send(to, &r.reply, sizeof r.reply) ||
        !hdf5_send(to, r.part.freq_mhz, s->nchannels * sizeof(double)) ||
        !hdf5_send(to, r.part.width_mhz, s->nchannels * sizeof(double)) ||
        !hdf5_send(to, r.part.east_m, s->ndishes * sizeof(double)) ||
        !hdf5_send(to, r.part.north_m, s->ndishes * sizeof(double)) ||
        !hdf5_send(to, r.sum, 2 * cells * sizeof(double)) ||
        !hdf5_send(to, r.samples, cells * sizeof(double)))
        return br_fail(error, BR_E_IO, "%s: what is read of it does not arrive", r.path);
    return BR_OK;
}

/* What the child sent, added to what there is. */
static int take_slice(struct visibilities *v, const char *path, const char *data, size_t bytes, bool first,
                      struct reply *reply, struct br_error *error)
{
    if (bytes < sizeof *reply)
        return br_fail(error, BR_E_INTERNAL, "%s: what is read of it is not whole", path);
    memcpy(reply, data, sizeof *reply);
    const struct visibilities_shape *s = &reply->shape;
    size_t npairs = s->ndishes * (s->ndishes + 1) / 2, cells = s->npol * s->nchannels * npairs;
    const double *freq = (const double *)(const void *)(data + sizeof *reply), *width = freq + s->nchannels;
    const double *east = width + s->nchannels, *north = east + s->ndishes, *sum = north + s->ndishes;
    const double *samples = sum + 2 * cells;
    if (bytes != sizeof *reply + (2 * s->nchannels + 2 * s->ndishes + 3 * cells) * sizeof(double))
        return br_fail(error, BR_E_INTERNAL, "%s: what is read of it is not whole", path);
    struct visibilities_part part = {*s, freq, width, east, north};
    int status = first ? visibilities_agree(v, path, &part, error) : BR_OK;
    if (status == BR_OK && first) {
        status = visibilities_cover(v, path, reply->span, error);
        v->nintegrations += reply->integrations;
    }
    if (status != BR_OK) return status;
    for (size_t i = 0; i < 2 * cells; i++) v->sum[i] += sum[i];
    for (size_t i = 0; i < cells; i++) v->samples[i] += samples[i];
    if (reply->lowest < v->lowest) v->lowest = reply->lowest;
    return BR_OK;
}

int visibilities_add_uvh5(struct visibilities *v, const char *path, const struct source_place *place,
                          struct br_error *error)
{
    struct request request = {.place = *place};
    struct reply reply = {.rows = 1};
    int status = BR_OK;
    if (strlen(path) >= sizeof request.path) return br_fail(error, BR_E_IO, "%s: the name is too long", path);
    strcpy(request.path, path);
    while (status == BR_OK && request.first < reply.rows) {
        void *data = NULL;
        size_t bytes = 0;
        status = hdf5_apart(read_slice, &request, sizeof request, path, &data, &bytes, error);
        hdf5_apart_end(); /* what the child has allocated goes with it */
        if (status == BR_OK) status = take_slice(v, path, data, bytes, request.first == 0, &reply, error);
        request.first = reply.next;
        free(data);
    }
    return status;
}
