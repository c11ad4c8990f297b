/* visibilities_dada.c - recordings of what `correlate` makes: V[time][freq][baseline], 32-bit integers. */
#include "buffers/regular_file.h"
#include "formats/common/baselines.h"
#include "formats/common/gaps.h"
#include "formats/dada/recording.h"
#include "formats/tables/visibilities.h"
#include "runtime/config/arena.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory for the description of one file. */
static void *take(void *arena, size_t bytes)
{
    void *memory = br_arena_alloc(arena, bytes);
    if (memory != NULL) return memory;
    fputs("beamring: not enough memory\n", stderr);
    exit(1);
}

/* One file on its way. */
struct reading {
    struct visibilities *v;
    const char *path;
    const struct recording *recording;
    struct visibilities_part part;
    struct baselines baselines;
    enum br_sideband sideband;
    struct gaps gaps;
    double *phase;  /* [nchannels][ndishes][2] */
    int32_t *row;   /* one integration */
    uint8_t *valid; /* [nchannels] */
};

static void add_pair(struct reading *r, size_t f, size_t pol, size_t i, size_t j, double samples,
                     const int32_t *row)
{
    struct visibilities *v = r->v;
    const struct baselines *b = &r->baselines;
    size_t first = pol * b->ndishes;
    size_t cell = (pol * v->shape.nchannels + f) * v->npairs + i * b->ndishes - i * (i + 1) / 2 + j;
    const int32_t *from = row + 2 * baselines_index(b, first + i, first + j);
    const double *a = r->phase + 2 * (f * b->ndishes + i), *c = r->phase + 2 * (f * b->ndishes + j);
    double re = a[0] * c[0] + a[1] * c[1], im = a[1] * c[0] - a[0] * c[1];
    v->sum[2 * cell] += from[0] * re - from[1] * im;
    v->sum[2 * cell + 1] += from[0] * im + from[1] * re;
    v->samples[cell] += samples;
}

/* The integration of base samples [begin, end), which is in r->row. */
static int add_integration(struct reading *r, uint64_t begin, uint64_t end, const struct source_place *place,
                           struct br_error *error)
{
    const struct br_stream *s = &r->recording->stream;
    const struct br_zone *zone = &s->zone[0];
    double direction[3];
    int64_t from = br_stream_time_ns(s, begin), to = br_stream_time_ns(s, end);
    size_t nbaselines = s->array.axis[2].length;
    int status = source_direction(place, r->part.shape.latitude_deg, r->part.shape.longitude_deg,
                                  from + (to - from) / 2, direction, error);
    if (status != BR_OK) return status;
    if (source_on_sky(place)) r->v->lowest = fmin(r->v->lowest, direction[2]);
    if (r->v->nintegrations == 0) memcpy(r->v->towards, direction, sizeof direction);
    source_phases(&r->part, direction, r->phase);
    struct br_frame frame = {.first = begin, .samples = end - begin, .valid = r->valid};
    memset(r->valid, BR_VALID, s->nchannels);
    gaps_apply(&r->gaps, s, &frame, 0, begin, end);
    for (size_t f = 0; f < s->nchannels; f++) {
        double samples = (double)zone->downsample / zone->factor * r->valid[f] / BR_VALID;
        if (r->valid[f] == BR_MISSING) continue;
        for (size_t pol = 0; pol < r->baselines.npol; pol++)
            for (size_t i = 0; i < r->baselines.ndishes; i++)
                for (size_t j = i; j < r->baselines.ndishes; j++)
                    add_pair(r, f, pol, i, j, samples, r->row + 2 * f * nbaselines);
    }
    r->v->nintegrations++;
    return BR_OK;
}

static int add_rows(struct reading *r, FILE *file, uint64_t payload, const struct source_place *place,
                    struct br_error *error)
{
    const struct recording *rec = r->recording;
    const struct br_stream *s = &rec->stream;
    uint64_t left, down = s->zone[0].downsample, end = rec->first + recording_samples(rec, payload, &left);
    int status = BR_OK;
    if (end <= rec->first)
        return br_fail(error, BR_E_FORMAT, "%s: there is no whole integration in it", r->path);
    struct time_span span = {br_stream_time_ns(s, rec->first), br_stream_time_ns(s, end)};
    if (visibilities_cover(r->v, r->path, span, error) != BR_OK) return BR_E_INVALID;
    for (uint64_t at = rec->first; at < end && status == BR_OK;) {
        uint64_t next = (at / down + 1) * down;
        if (next > end) next = end;
        if (fread(r->row, rec->row_bytes, 1, file) != 1)
            return br_fail(error, BR_E_IO, "%s: cannot be read: %s", r->path, strerror(errno));
        status = add_integration(r, at, next, place, error);
        at = next;
    }
    return status;
}

static int check(const struct recording *rec, const char *path, struct baselines *baselines,
                 struct br_error *error)
{
    const struct br_stream *s = &rec->stream;
    const struct br_telescope *telescope = s->telescope;
    char text[160];
    const struct br_array *a = &s->array;
    if (!rec->own || a->dtype != BR_INT32X2 || a->naxes != 3 || strcmp(a->axis[2].name, "baseline") != 0 ||
        !rec->flat || s->nzones != 1)
        return br_fail(error, BR_E_FORMAT,
                       "%s: it holds %s; expected visibilities, int32x2 [time][freq][baseline], as `record` "
                       "writes of `correlate`",
                       path, br_array_format(a, text, sizeof text));
    if (telescope == NULL)
        return br_fail(
            error, BR_E_INVALID,
            "%s: it does not say where the dishes stand: give --telescope FILE, the pipeline's file "
            "or one of config/telescopes; UVH5 files say it, and recordings of a pipeline with "
            "`telescope:`",
            path);
    if (baselines_find(baselines, a->axis[2].length, telescope->ndishes, 0, error) != BR_OK) {
        br_error_context(error, "%s", path);
        return BR_E_INVALID;
    }
    if (baselines->autos)
        return br_fail(error, BR_E_INVALID,
                       "%s: autocorrelations alone have no phases; expected `autocorrelations: all`", path);
    return BR_OK;
}

static int read_file(struct reading *r, const struct br_telescope *t, uint64_t file_bytes,
                     const struct source_place *place, struct br_error *error)
{
    const struct recording *rec = r->recording;
    const struct br_stream *s = &rec->stream;
    double *east = calloc(3 * t->ndishes, sizeof *east), *north = east + t->ndishes, *up = north + t->ndishes;
    int64_t *number = calloc(t->ndishes, sizeof *number);
    char name[4096 + 8];
    FILE *file = br_fopen_regular(r->path, NULL, NULL);
    r->phase = malloc(2 * s->nchannels * t->ndishes * sizeof *r->phase);
    r->row = malloc(rec->row_bytes);
    r->valid = malloc(s->nchannels);
    int status = BR_OK;
    if (east == NULL || number == NULL || r->phase == NULL || r->row == NULL || r->valid == NULL)
        status = br_fail(error, BR_E_NO_MEMORY, "%s: no memory for an integration", r->path);
    else if (file == NULL || fseeko(file, (off_t)rec->payload_offset, SEEK_SET) != 0)
        status = br_fail(error, BR_E_IO, "%s: %s", r->path, strerror(errno));
    if (status == BR_OK) {
        snprintf(name, sizeof name, "%.4095s.gaps", r->path);
        status = gaps_read(&r->gaps, name, s->nchannels, error);
    }
    if (status == BR_OK) {
        for (size_t d = 0; d < t->ndishes; d++) {
            east[d] = t->position[d][0];
            north[d] = t->position[d][1];
            up[d] = t->position[d][2];
            number[d] = (int64_t)d;
        }
        r->part = (struct visibilities_part){.shape = {t->ndishes,
                                                       r->baselines.npol,
                                                       s->nchannels,
                                                       t->latitude_deg,
                                                       t->longitude_deg,
                                                       r->sideband,
                                                       {"xx", "yy"},
                                                       ""},
                                             .freq_mhz = s->freq_mhz,
                                             .width_mhz = s->width_mhz,
                                             .east_m = east,
                                             .north_m = north,
                                             .up_m = up,
                                             .antenna = number};
        if (r->baselines.npol == 1) r->part.shape.pol[1][0] = '\0';
        snprintf(r->part.shape.telescope, sizeof r->part.shape.telescope, "%s", t->name);
        status = visibilities_agree(r->v, r->path, &r->part, error);
    }
    uint64_t payload, behind;
    if (status == BR_OK) status = recording_payload(rec, r->path, file_bytes, &payload, &behind, error);
    if (status == BR_OK) status = add_rows(r, file, payload, place, error);
    if (file != NULL) fclose(file);
    free(east);
    free(number);
    free(r->phase);
    free(r->row);
    free(r->valid);
    gaps_free(&r->gaps);
    return status;
}

int visibilities_add_dada(struct visibilities *v, const char *path, const struct br_telescope *telescope,
                          const struct source_place *place, struct br_error *error)
{
    struct dada_header header;
    struct recording recording;
    struct br_arena arena = {0};
    uint64_t file_bytes;
    int status = dada_read(&header, path, &file_bytes, error);
    if (status != BR_OK) return status;
    struct reading reading = {.v = v, .path = path, .recording = &recording};
    status = recording_describe(&recording, &header, NULL, telescope, NULL,
                                (struct recording_memory){take, &arena}, error);
    if (status == BR_OK) status = check(&recording, path, &reading.baselines, error);
    if (status == BR_OK)
        status = visibilities_sideband(v->stated, recording.stream.sideband, path, &reading.sideband, error);
    if (status == BR_OK) status = read_file(&reading, recording.stream.telescope, file_bytes, place, error);
    dada_free(&header);
    br_arena_free(&arena);
    return status;
}
