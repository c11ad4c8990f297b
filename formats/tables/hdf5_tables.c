#include "formats/tables/hdf5_tables.h"

#include "formats/chime/chime_attributes.h"
#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_types.h"

#include <errno.h>
#include <hdf5.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { COMPLEX64, INT8, INT32, FLOAT64 };

/* One dataset as this file wants it. */
struct wanted {
    const char *name;  /* "/gain" */
    const char *shape; /* as in the message: "complex64 [freq][pol][dish]" */
    enum kind kind;
    int rank;
    bool optional; /* where it is not there its data are NULL */
};

static int is_float_member(hid_t type, const char *name)
{
    int index = H5Tget_member_index(type, name);
    return index >= 0 && H5Tget_member_class(type, (unsigned)index) == H5T_FLOAT;
}

static int type_fits(hid_t type, enum kind kind)
{
    H5T_class_t class = H5Tget_class(type);
    switch (kind) {
    case COMPLEX64:
        return class == H5T_COMPOUND && H5Tget_nmembers(type) == 2 && is_float_member(type, "r") &&
               is_float_member(type, "i");
    case INT8:
        return class == H5T_INTEGER && H5Tget_size(type) == 1 && H5Tget_sign(type) == H5T_SGN_2;
    case INT32:
        return class == H5T_INTEGER &&
               (H5Tget_size(type) < 4 || (H5Tget_size(type) == 4 && H5Tget_sign(type) == H5T_SGN_2));
    case FLOAT64:
        return class == H5T_FLOAT;
    }
    return 0;
}

static const char *class_name(hid_t type)
{
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        return H5Tget_sign(type) == H5T_SGN_2 ? "a signed integer" : "an unsigned integer";
    case H5T_FLOAT:
        return "a real float";
    case H5T_COMPOUND:
        return "compound";
    case H5T_STRING:
        return "text";
    default:
        return "of another class";
    }
}

/* The properties of a dataset that was read. */
struct dataset_head {
    hsize_t dims[8];
    size_t bytes;
};

/* Whether type and shape are those that are wanted; fills in `head`. */
static int check(hid_t type, hid_t space, const struct wanted *want, const char *path,
                 struct dataset_head *head, struct br_error *error)
{
    static const size_t sizes[] = {2 * sizeof(float), 1, sizeof(int32_t), sizeof(double)};
    if (type < 0 || space < 0)
        return br_fail(error, BR_E_FORMAT, "%s: dataset %s cannot be read; the file seems damaged", path,
                       want->name);
    if (!type_fits(type, want->kind))
        return br_fail(error, BR_E_FORMAT,
                       "%s: dataset %s has the wrong type: its elements are %s of %zu bytes; expected %s",
                       path, want->name, class_name(type), H5Tget_size(type), want->shape);
    int rank = H5Sget_simple_extent_ndims(space);
    if (rank != want->rank)
        return br_fail(error, BR_E_FORMAT, "%s: dataset %s has %d axes; expected %s", path, want->name, rank,
                       want->shape);
    H5Sget_simple_extent_dims(space, head->dims, NULL);
    head->bytes = sizes[want->kind];
    for (int i = 0; i < rank; i++) {
        if (head->dims[i] == 0)
            return br_fail(error, BR_E_FORMAT, "%s: dataset %s is empty: axis %d has length 0; expected %s",
                           path, want->name, i, want->shape);
        if (head->dims[i] > (SIZE_MAX >> 1) / head->bytes)
            return br_fail(error, BR_E_FORMAT, "%s: dataset %s is too large", path, want->name);
        head->bytes *= head->dims[i];
    }
    return BR_OK;
}

/* Reads an open dataset. */
static int read_open(hid_t set, const struct wanted *want, const char *path, struct dataset_head *head,
                     void **data, struct br_error *error)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), memory = -1;
    int status = check(type, space, want, path, head, error);
    *data = status == BR_OK ? malloc(head->bytes) : NULL;
    if (status == BR_OK && *data == NULL)
        status = br_fail(error, BR_E_NO_MEMORY, "%s: no memory for dataset %s (%zu bytes)", path, want->name,
                         head->bytes);
    if (status == BR_OK) {
        memory = want->kind == COMPLEX64 ? hdf5_complex(H5T_NATIVE_FLOAT)
                 : want->kind == INT8    ? H5Tcopy(H5T_NATIVE_INT8)
                 : want->kind == INT32   ? H5Tcopy(H5T_NATIVE_INT32)
                                         : H5Tcopy(H5T_NATIVE_DOUBLE);
        if (memory < 0 || H5Dread(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, *data) < 0)
            status = br_fail(error, BR_E_FORMAT, "%s: dataset %s cannot be read; the file seems damaged",
                             path, want->name);
    }
    if (memory >= 0) H5Tclose(memory);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return status;
}

/* A request for a file's data. */
struct request {
    const struct wanted *want; /* constants */
    size_t count;
    char path[PATH_MAX];
};

/* In a process of its own: sends lengths and elements of the datasets that are wanted. */
static int send_datasets(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct request *r = arg;
    hid_t file;
    int opened = hdf5_open(r->path, &file, error);
    if (opened != BR_OK) return opened;
    for (size_t i = 0; i < r->count; i++) {
        const struct wanted *want = &r->want[i];
        struct dataset_head head = {0};
        void *data = NULL;
        if (want->optional && !hdf5_exists(file, want->name)) {
            if (!hdf5_send(to, &head, sizeof head)) return br_fail(error, BR_E_IO, "%s: no answer", r->path);
            continue;
        }
        bool outside;
        hid_t set = hdf5_dataset(file, want->name, &outside);
        if (outside) return br_fail(error, BR_E_FORMAT, "%s: dataset %s " HDF5_OUTSIDE, r->path, want->name);
        if (set < 0)
            return br_fail(error, BR_E_FORMAT, "%s: there is no dataset %s; expected %s", r->path, want->name,
                           want->shape);
        int status = read_open(set, want, r->path, &head, &data, error);
        H5Dclose(set);
        if (status == BR_OK && !(hdf5_send(to, &head, sizeof head) && hdf5_send(to, data, head.bytes)))
            status = br_fail(error, BR_E_IO, "%s: what is read of it does not arrive", r->path);
        free(data);
        if (status != BR_OK) return status;
    }
    H5Fclose(file);
    return BR_OK;
}

/* Reads `count` datasets of a file; data[i], of lengths dims[i], is freed by the caller, and NULL on failure.
 */
static int read_datasets(const char *path, const struct wanted *want, size_t count, hsize_t (*dims)[8],
                         void **data, struct br_error *error)
{
    struct request request = {.want = want, .count = count};
    void *all;
    size_t left;
    for (size_t i = 0; i < count; i++) data[i] = NULL;
    if (access(path, R_OK) != 0) return br_fail(error, BR_E_IO, "%s: %s", path, strerror(errno));
    if (strlen(path) >= sizeof request.path)
        return br_fail(error, BR_E_IO, "%s: %s", path, strerror(ENAMETOOLONG));
    strcpy(request.path, path);
    int status = hdf5_apart(send_datasets, &request, sizeof request, path, &all, &left, error);
    const char *from = all;
    for (size_t i = 0; i < count && status == BR_OK; i++) {
        struct dataset_head head;
        if (left >= sizeof head) memcpy(&head, from, sizeof head);
        if (left < sizeof head || left - sizeof head < head.bytes) {
            status = br_fail(error, BR_E_INTERNAL, "%s: what is read of it is not whole", path);
            break;
        }
        memcpy(dims[i], head.dims, sizeof head.dims);
        from += sizeof head;
        left -= sizeof head;
        if (head.bytes == 0) continue; /* it is not there */
        data[i] = malloc(head.bytes);
        if (data[i] == NULL) {
            status = br_fail(error, BR_E_NO_MEMORY, "%s: no memory for dataset %s (%zu bytes)", path,
                             want[i].name, head.bytes);
            break;
        }
        memcpy(data[i], from, head.bytes);
        from += head.bytes;
        left -= head.bytes;
    }
    free(all);
    for (size_t i = 0; i < count && status != BR_OK; i++) {
        free(data[i]);
        data[i] = NULL;
    }
    return status;
}

int br_gains_read(struct br_gains *gains, const char *path, struct br_error *error)
{
    static const struct wanted want = {"/gain", "complex64 [freq][pol][dish]", COMPLEX64, 3, false};
    hsize_t dims[1][8];
    void *data;
    *gains = (struct br_gains){0};
    int status = read_datasets(path, &want, 1, dims, &data, error);
    if (status != BR_OK) return status;
    *gains = (struct br_gains){dims[0][0], dims[0][1], dims[0][2], data};
    for (size_t i = 0; i < gains->nfreq * gains->npol * gains->ndishes; i++)
        if (!isfinite(gains->value[2 * i]) || !isfinite(gains->value[2 * i + 1])) {
            free(gains->value);
            gains->value = NULL;
            size_t dish = i % gains->ndishes, pol = i / gains->ndishes % gains->npol;
            return br_fail(error, BR_E_FORMAT,
                           "%s: /gain[%zu][%zu][%zu] (freq, pol, dish) is not a finite number; write 0 for a "
                           "dish that is "
                           "to be left out",
                           path, i / gains->ndishes / gains->npol, pol, dish);
        }
    return BR_OK;
}

static int check_weights(const struct br_weights *w, size_t shift_rows, const char *path,
                         struct br_error *error)
{
    size_t rows = w->nfreq * w->npol * w->nbeams;
    for (size_t i = 0; i < rows * w->ndishes * 2; i++)
        if (w->weight[i] == -128) {
            size_t dish = i / 2 % w->ndishes, row = i / 2 / w->ndishes;
            return br_fail(error, BR_E_FORMAT,
                           "%s: /weights[%zu][%zu][%zu][%zu][%zu] (freq, pol, beam, dish, re/im) is -128; "
                           "weights lie in "
                           "[-127, 127]",
                           path, row / w->nbeams / w->npol, row / w->nbeams % w->npol, row % w->nbeams, dish,
                           i % 2);
        }
    for (size_t i = 0; i < shift_rows * w->npol * w->nbeams; i++)
        if (w->shift[i] < 0 || w->shift[i] > 30)
            return br_fail(error, BR_E_FORMAT,
                           "%s: /shift[%zu][%zu][%zu] (freq, pol, beam) is %d; shifts are 0 to 30", path,
                           i / w->nbeams / w->npol, i / w->nbeams % w->npol, i % w->nbeams, w->shift[i]);
    return BR_OK;
}

int br_weights_read(struct br_weights *weights, const char *path, struct br_error *error)
{
    static const struct wanted want[] = {{"/weights", "int8 [freq or 1][pol][beam][dish][2]", INT8, 5},
                                         {"/shift", "int32 [freq or 1][pol][beam]", INT32, 3}};
    hsize_t dims[2][8];
    void *data[2];
    *weights = (struct br_weights){0};
    int status = read_datasets(path, want, 2, dims, data, error);
    if (status != BR_OK) return status;
    const hsize_t *a = dims[0], *s = dims[1];
    *weights = (struct br_weights){a[0], a[1], a[2], a[3], data[0], data[1]};
    if (a[4] != 2)
        status =
            br_fail(error, BR_E_FORMAT, "%s: the last axis of /weights has length %llu; expected 2 (re, im)",
                    path, (unsigned long long)a[4]);
    else if (s[1] != a[1] || s[2] != a[2] || (s[0] != a[0] && s[0] != 1 && a[0] != 1))
        status = br_fail(
            error, BR_E_FORMAT,
            "%s: /shift is [%llu][%llu][%llu] but /weights has freq %llu, pol %llu, beam %llu; expected "
            "[freq or 1][pol][beam]",
            path, (unsigned long long)s[0], (unsigned long long)s[1], (unsigned long long)s[2],
            (unsigned long long)a[0], (unsigned long long)a[1], (unsigned long long)a[2]);
    else
        status = check_weights(weights, s[0], path, error);
    /* One of the two may be the same for all channels: both get the longer length. */
    if (status == BR_OK && s[0] != a[0]) {
        size_t rows = s[0] > a[0] ? s[0] : a[0],
               few = s[0] > a[0] ? (size_t)(a[1] * a[2] * a[3] * 2) : (size_t)(s[1] * s[2] * 4);
        void **narrow = s[0] > a[0] ? &data[0] : &data[1];
        char *wide = rows <= SIZE_MAX / few ? realloc(*narrow, rows * few) : NULL;
        if (wide == NULL) {
            status =
                br_fail(error, BR_E_NO_MEMORY, "%s: no memory for the weights of %zu channels", path, rows);
        } else {
            for (size_t i = 1; i < rows; i++) memcpy(wide + i * few, wide, few);
            *narrow = wide;
            *weights = (struct br_weights){rows, a[1], a[2], a[3], data[0], data[1]};
        }
    }
    if (status != BR_OK) {
        free(data[0]);
        free(data[1]);
        *weights = (struct br_weights){0};
    }
    return status;
}

/* In a process of its own: sends the sideband that the file's attribute names. */
static int send_sideband(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct request *r = arg;
    char name[16];
    hid_t file;
    int status = hdf5_open(r->path, &file, error);
    if (status != BR_OK) return status;
    if (!chime_get_text(file, "sideband", name, sizeof name)) name[0] = '\0';
    H5Fclose(file);
    enum br_sideband sideband = br_sideband_named(name);
    return hdf5_send(to, &sideband, sizeof sideband) ? BR_OK
                                                     : br_fail(error, BR_E_IO, "%s: no answer", r->path);
}

static int check_sideband(const char *path, const struct br_stream *s, struct br_error *error)
{
    struct request request = {.count = 0};
    enum br_sideband theirs;
    void *data;
    size_t bytes;
    if (s->sideband == BR_SIDEBAND_UNKNOWN || strlen(path) >= sizeof request.path) return BR_OK;
    strcpy(request.path, path);
    int status = hdf5_apart(send_sideband, &request, sizeof request, path, &data, &bytes, error);
    if (status != BR_OK) return status;
    theirs = bytes == sizeof theirs ? *(const enum br_sideband *)data : BR_SIDEBAND_UNKNOWN;
    free(data);
    if (theirs == BR_SIDEBAND_UNKNOWN || theirs == s->sideband) return BR_OK;
    return br_fail(
        error, BR_E_INVALID,
        "%s: its gains are those of the %s sideband, the stream holds the %s one; calibrate again with "
        "visibilities of this stream, or correct `sideband` of the stream",
        path, br_sideband_name(theirs), br_sideband_name(s->sideband));
}

int br_gains_check_channels(const char *path, const struct br_stream *s, struct br_error *error)
{
    static const struct wanted want = {"/freq_mhz", "float64 [freq]", FLOAT64, 1, true};
    hsize_t dims[1][8];
    void *data;
    int status = read_datasets(path, &want, 1, dims, &data, error);
    if (status != BR_OK) return status;
    status = check_sideband(path, s, error);
    if (data == NULL) return status;
    const double *theirs = data;
    size_t count = dims[0][0], ncoarse = 0;
    for (unsigned z = 0; z < s->nzones; z++) ncoarse += s->zone[z].nchannels / s->zone[z].factor;
    size_t number = 0; /* of the coarse channel */
    for (unsigned z = 0; z < s->nzones && status == BR_OK && count > 1; z++)
        for (size_t f = 0; f < s->zone[z].nchannels && status == BR_OK;) {
            size_t each = count == s->nchannels ? 1 : s->zone[z].factor, first = s->zone[z].first_channel + f;
            if (count != s->nchannels && count != ncoarse) break;
            double centre = 0, width = 0;
            for (size_t i = 0; i < each; i++) {
                centre += s->freq_mhz[first + i] / (double)each;
                width += s->width_mhz[first + i];
            }
            if (!(fabs(theirs[number] - centre) <= 0.1 * width))
                status =
                    br_fail(error, BR_E_INVALID,
                            "%s: they are gains of other channels: number %zu is at %.9g MHz there, and at "
                            "%.9g MHz here",
                            path, number, theirs[number], centre);
            f += each;
            number++;
        }
    free(data);
    return status;
}

int br_drifts_read(struct br_drifts *drifts, const char *path, struct br_error *error)
{
    static const struct wanted want = {"/drift", "float64 [pol][dish] (radians per second)", FLOAT64, 2};
    hsize_t dims[1][8];
    void *data;
    *drifts = (struct br_drifts){0};
    int status = read_datasets(path, &want, 1, dims, &data, error);
    if (status != BR_OK) return status;
    const double *value = data;
    size_t npol = dims[0][0], ndishes = dims[0][1], count = npol * ndishes;
    float *out = malloc(count * sizeof *out);
    if (out == NULL) status = br_fail(error, BR_E_NO_MEMORY, "%s: no memory for %zu drifts", path, count);
    for (size_t i = 0; status == BR_OK && i < count; i++) {
        out[i] = (float)value[i];
        if (!isfinite(out[i]))
            status = br_fail(error, BR_E_FORMAT, "%s: /drift[%zu][%zu] is not a finite number", path,
                             i / ndishes, i % ndishes);
    }
    free(data);
    if (status == BR_OK)
        *drifts = (struct br_drifts){npol, ndishes, out};
    else
        free(out);
    return status;
}

/* Pairs of finite numbers, one for each beam; *value is NULL where they may be missing and are. */
static int read_pairs(const struct wanted *want, double **value, size_t *nbeams, const char *path,
                      struct br_error *error)
{
    hsize_t dims[1][8];
    void *data;
    *value = NULL;
    *nbeams = 0;
    int status = read_datasets(path, want, 1, dims, &data, error);
    if (status != BR_OK || data == NULL) return status;
    *value = data;
    *nbeams = dims[0][0];
    if (dims[0][1] != 2)
        status = br_fail(error, BR_E_FORMAT, "%s: the last axis of %s has length %llu; expected 2 (x, y)",
                         path, want->name, (unsigned long long)dims[0][1]);
    for (size_t i = 0; status == BR_OK && i < 2 * *nbeams; i++)
        if (!isfinite((*value)[i]))
            status = br_fail(error, BR_E_FORMAT, "%s: %s[%zu][%zu] is not a finite number", path, want->name,
                             i / 2, i % 2);
    if (status == BR_OK) return BR_OK;
    free(data);
    *value = NULL;
    *nbeams = 0;
    return status;
}

int br_beams_read(double **beams, size_t *nbeams, const char *path, struct br_error *error)
{
    static const struct wanted want = {"/beams", "float64 [beam][2] (direction cosines along m and n)",
                                       FLOAT64, 2, false};
    return read_pairs(&want, beams, nbeams, path, error);
}

int br_rates_read(double **rates, size_t *nbeams, const char *path, struct br_error *error)
{
    static const struct wanted want = {"/rates", "float64 [beam][2] (direction cosines per second)", FLOAT64,
                                       2, true};
    return read_pairs(&want, rates, nbeams, path, error);
}

int br_bad_inputs_read(struct br_bad_inputs *bad, const char *path, struct br_error *error)
{
    static const struct wanted want = {"/bad_inputs", "an integer [pol][dish] (not 0: bad)", INT32, 2};
    hsize_t dims[1][8];
    void *data;
    int status = read_datasets(path, &want, 1, dims, &data, error);
    if (status != BR_OK) return status;
    *bad = (struct br_bad_inputs){dims[0][0], dims[0][1], data};
    return BR_OK;
}
