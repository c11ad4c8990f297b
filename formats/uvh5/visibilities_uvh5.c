/* visibilities_uvh5.c - UVH5 files, read and added up in another process, some rows a call. */
#include "formats/uvh5/visibilities_uvh5.h"

#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_types.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_BYTES = 256 << 20 };

struct request {
    char path[PATH_MAX];
    uint64_t first; /* row: baseline and time */
    struct source_place place;
    enum br_sideband stated;
};

/* The arrays that follow a reply, in this order. */
struct arrays {
    const double *freq_mhz, *width_mhz, *east_m, *north_m, *up_m;
    const int64_t *antenna;
    const double *sum, *samples; /* as in struct visibilities */
};

/* One slice on its way. */
struct slice {
    double *v;      /* [row][channel][polarisation][2] */
    float *samples; /* [row][channel][polarisation] */
    int8_t *flag;
    double *sum, *count; /* of all rows, as in struct visibilities */
};

static size_t pairs_of(const struct visibilities_shape *s)
{
    return s->ndishes * (s->ndishes + 1) / 2;
}

/* Adds row `row` of the file, which is row k of the slice, as the stream's visibility of the two dishes in
 * their order, with the source's phase and that of the file's phase centre taken out. */
static void add_row(struct uvh5_reader *r, const struct slice *slice, size_t row, size_t k)
{
    const struct visibilities_shape *shape = &r->reply.shape;
    size_t i = r->a[row], j = r->b[row], n = shape->ndishes;
    bool swapped = i > j, conjugated = swapped != r->conjugated;
    size_t low = swapped ? j : i, high = swapped ? i : j, pair = low * n - low * (low + 1) / 2 + high;
    const double *s = uvh5_direction(r, row), mhz = r->part.freq_mhz[0];
    double cycles = source_cycles(&r->part, 0, high, s) - source_cycles(&r->part, 0, low, s);
    double undo = r->w != NULL ? r->w[row] * mhz * 1e6 / BR_LIGHT_M_PER_S : 0;
    double weight = r->sums ? 1 : r->seconds[row] * 1e6; /* of a mean: samples are 1 / width apart */
    cycles += conjugated ? -undo : undo;
    for (size_t f = 0; f < shape->nchannels; f++) {
        double angle = 2 * M_PI * cycles * (r->part.freq_mhz[f] / mhz), re = cos(angle), im = sin(angle);
        double each = r->sums ? 1 : weight * r->part.width_mhz[f];
        for (size_t p = 0; p < shape->npol; p++) {
            size_t at = (k * shape->nchannels + f) * r->npols + (size_t)r->pol_at[p];
            size_t cell = (p * shape->nchannels + f) * pairs_of(shape) + pair;
            double x = slice->v[2 * at], y = conjugated ? -slice->v[2 * at + 1] : slice->v[2 * at + 1];
            double count = (double)slice->samples[at] * each, scale = r->sums ? 1 : count;
            if (slice->flag[at] != 0) {
                r->reply.left_out.flagged++;
            } else if (!isfinite(x) || !isfinite(y) || !isfinite(count)) {
                r->reply.left_out.not_finite++;
            } else if (!(count > 0)) {
                r->reply.left_out.unsampled++;
            } else {
                slice->sum[2 * cell] += scale * (x * re - y * im);
                slice->sum[2 * cell + 1] += scale * (x * im + y * re);
                slice->count[cell] += count;
            }
        }
    }
}

/* Adds rows from reply.next on, as many as a slice has; reply.next is behind them then. */
static int add_slice(struct uvh5_reader *r, struct slice *slice)
{
    struct uvh5_reply *reply = &r->reply;
    size_t cells = reply->shape.nchannels * r->npols;
    hsize_t count = SLICE_BYTES / (21 * cells) + 1, first = reply->next;
    if (count > reply->rows - first) count = reply->rows - first;
    slice->v = malloc(count * cells * 2 * sizeof *slice->v);
    slice->samples = malloc(count * cells * sizeof *slice->samples);
    slice->flag = malloc(count * cells);
    if (slice->v == NULL || slice->samples == NULL || slice->flag == NULL)
        return br_fail(r->error, BR_E_NO_MEMORY, "%s: no memory for %llu rows", r->path,
                       (unsigned long long)count);
    if (!uvh5_read_rows(r, "Data/visdata", hdf5_complex(H5T_NATIVE_DOUBLE), first, count, slice->v))
        return uvh5_bad(r, "Data/visdata", "complex numbers {r, i} [row][channel][polarisation]");
    if (!uvh5_read_rows(r, "Data/nsamples", H5T_NATIVE_FLOAT, first, count, slice->samples) ||
        !uvh5_read_rows(r, "Data/flags", H5T_NATIVE_INT8, first, count, slice->flag))
        return uvh5_bad(r, "Data/nsamples or flags", "[row][channel][polarisation]");
    for (size_t k = 0; k < count; k++) add_row(r, slice, first + k, k);
    reply->next = first + count;
    return BR_OK;
}

static bool send_all(struct hdf5_sink *to, const struct uvh5_reader *r, const struct slice *slice,
                     size_t cells)
{
    const struct visibilities_shape *s = &r->reply.shape;
    const struct visibilities_part *p = &r->part;
    return hdf5_send(to, &r->reply, sizeof r->reply) && hdf5_send(to, p->freq_mhz, s->nchannels * 8) &&
           hdf5_send(to, p->width_mhz, s->nchannels * 8) && hdf5_send(to, p->east_m, s->ndishes * 8) &&
           hdf5_send(to, p->north_m, s->ndishes * 8) && hdf5_send(to, p->up_m, s->ndishes * 8) &&
           hdf5_send(to, p->antenna, s->ndishes * 8) && hdf5_send(to, slice->sum, 2 * cells * 8) &&
           hdf5_send(to, slice->count, cells * 8);
}

static int read_slice(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct request *request = arg;
    struct uvh5_reader r = {.path = request->path, .place = request->place, .error = error};
    struct slice slice = {0};
    hdf5_know_lzf();
    int status = hdf5_open(request->path, &r.file, error);
    if (status != BR_OK) return status;
    H5Fget_filesize(r.file, &r.bytes);
    r.reply.next = request->first;
    r.reply.lowest = 2;
    status = uvh5_read_header(&r, request->stated);
    if (status != BR_OK) return status;
    const struct visibilities_shape *s = &r.reply.shape;
    size_t cells = s->npol * s->nchannels * pairs_of(s);
    if ((double)cells * 24 > UVH5_DENSEST * (double)r.bytes)
        return uvh5_bad(&r, "Header", "as many antennas and channels as there are visibilities for");
    slice.sum = calloc(2 * cells, sizeof *slice.sum);
    slice.count = calloc(cells, sizeof *slice.count);
    if (slice.sum == NULL || slice.count == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for %zu visibilities", r.path, cells);
    status = add_slice(&r, &slice);
    if (status != BR_OK) return status;
    H5Fclose(r.file);
    return send_all(to, &r, &slice, cells)
               ? BR_OK
               : br_fail(error, BR_E_IO, "%s: the connection to the process that reads it broke", r.path);
}

/* Where the arrays are; false where there are not as many bytes. */
static bool find_arrays(const struct visibilities_shape *s, const char *data, size_t bytes, struct arrays *a)
{
    size_t cells = s->npol * s->nchannels * pairs_of(s);
    const double *at = (const double *)(const void *)data;
    a->freq_mhz = at;
    a->width_mhz = a->freq_mhz + s->nchannels;
    a->east_m = a->width_mhz + s->nchannels;
    a->north_m = a->east_m + s->ndishes;
    a->up_m = a->north_m + s->ndishes;
    a->antenna = (const int64_t *)(const void *)(a->up_m + s->ndishes);
    a->sum = a->up_m + 2 * s->ndishes;
    a->samples = a->sum + 2 * cells;
    return bytes == (2 * s->nchannels + 4 * s->ndishes + 3 * cells) * sizeof(double);
}

/* Adds what the child sent to what there is. */
static int take_slice(struct visibilities *v, const char *path, const char *data, size_t bytes, bool first,
                      struct uvh5_reply *reply, struct br_error *error)
{
    struct arrays a;
    if (bytes >= sizeof *reply) memcpy(reply, data, sizeof *reply);
    const struct visibilities_shape *s = &reply->shape;
    if (bytes < sizeof *reply || !find_arrays(s, data + sizeof *reply, bytes - sizeof *reply, &a))
        return br_fail(error, BR_E_INTERNAL, "%s: the process that reads it sent %zu bytes", path, bytes);
    struct visibilities_part part = {*s, a.freq_mhz, a.width_mhz, a.east_m, a.north_m, a.up_m, a.antenna};
    int status = first ? visibilities_agree(v, path, &part, error) : BR_OK;
    if (status == BR_OK && first) {
        if (v->nintegrations == 0) memcpy(v->towards, reply->towards, sizeof v->towards);
        status = visibilities_cover(v, path, reply->span, error);
        v->nintegrations += reply->integrations;
    }
    if (status != BR_OK) return status;
    size_t cells = s->npol * s->nchannels * pairs_of(s);
    for (size_t i = 0; i < 2 * cells; i++) v->sum[i] += a.sum[i];
    for (size_t i = 0; i < cells; i++) v->samples[i] += a.samples[i];
    v->left_out.flagged += reply->left_out.flagged;
    v->left_out.unsampled += reply->left_out.unsampled;
    v->left_out.not_finite += reply->left_out.not_finite;
    v->lowest = fmin(v->lowest, reply->lowest);
    return BR_OK;
}

int visibilities_add_uvh5(struct visibilities *v, const char *path, const struct source_place *place,
                          struct br_error *error)
{
    struct request request = {.place = *place, .stated = v->stated};
    struct uvh5_reply reply = {.rows = 1};
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
