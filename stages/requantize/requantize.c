/* requantize - the electric field in 8 + 8 bits as 4 + 4 bits, which is what beams are made of.
 *
 * Every channel and polarisation has one scale for the whole stream, given or measured at its start: a scale
 * that moved would move the beams with it. To measure, frames are held until there are enough samples; they
 * then go out first. */
#include "buffers/output.h"
#include "kernels/common/exchange.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/earlier.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/shape.h"
#include "stages/requantize_description.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LEVELS = 7,
    MOST_HELD = 4096,
    MOST_SCALE = 16 /* with which 1 is beyond all levels already */
};

/* A frame that waits for the scales. Its data and validity stand in `data` and `valid` from `row` on. */
struct held {
    uint64_t first;
    size_t row, rows;
    bool complete;
};

struct requantize {
    struct br_reals scale; /* parameters; count 0: measure */
    double rms;
    int64_t measure;
    const char *save;
    bool overwrite;

    struct file_lock claim; /* of the name `save` */
    size_t nfreq, npol, ndish, row_bytes;
    double *factor; /* [nfreq][npol] */
    float *each;    /* [nfreq][npol][ndish][2]: the same for every component of a time step */
    int8_t *level;  /* the components of a time step */
    uint8_t *copy;  /* a time step with zeros where it is missing */
    bool measured;
    uint8_t *data, *valid; /* [rows_room] of what is held */
    size_t rows, rows_room;
    struct held *held;
    size_t nheld, given; /* those below `given` went out */
};

static const struct br_param params[] = {
    PARAM(REALS, struct requantize, scale,
          "4-bit levels per 8-bit level: one number, or one for each [channel][polarisation]; default: "
          "measured",
          .min = 1e-9, .max = 1e9),
    PARAM(REAL, struct requantize, rms, "rms of each output component, if scales are measured", .def = "2.5",
          .min = 0.1, .max = 7, .unit = "levels"),
    PARAM(INT, struct requantize, measure,
          "samples at the start of the stream from which scales are measured; the stage holds them in memory "
          "meanwhile",
          .def = "4096", .min = 1, .max = 1 << 24, .unit = "samples"),
    PARAM(PATH, struct requantize, save, "write the scales into this file, as the YAML that `scale` takes"),
    PARAM(BOOL, struct requantize, overwrite, "replace an earlier file of `save`", .def = "false"),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int8x2 (replay of GUPPI RAW)"},
                                        {0}};
static const struct br_port outputs[] = {{"out", "E[time][freq][pol][dish], int4x2"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct requantize *r = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT8X2, "time,freq,pol,dish", "int8x2 [time][freq][pol][dish]");
    if (status != BR_OK) return status;
    if (br_stream_is_zoned(in) || in->zone[0].downsample != 1)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input is upchannelized or downsampled; expected samples as they were recorded");
    r->nfreq = in->nchannels;
    r->npol = br_array_length(&in->array, "pol");
    r->ndish = br_array_length(&in->array, "dish");
    r->row_bytes = 2 * r->nfreq * r->npol * r->ndish;
    if (r->scale.count > 1 && r->scale.count != r->nfreq * r->npol)
        return br_stage_fail_at(stage, "scale",
                                "it has %zu values; expected one, or %zu channels x %zu polarisations",
                                r->scale.count, r->nfreq, r->npol);
    for (const char *const *name = (const char *const[]){"rms", "measure", NULL}; *name != NULL; name++)
        if (r->scale.count > 0 && br_stage_given(stage, *name) && !br_stage_is_update(stage))
            return br_stage_fail_at(stage, *name,
                                    "scales are either given or measured; leave out `scale` or this");
    if (r->save != NULL && !r->overwrite && !br_stage_is_update(stage) && access(r->save, F_OK) == 0)
        status = br_stage_fail_run_at(
            stage, "save", "%s exists and would be lost; give another name, or `overwrite: true`", r->save);
    if (status != BR_OK) return status;
    const struct br_axis *a = in->array.axis;
    size_t lengths[4] = {a[0].length, a[1].length, a[2].length, a[3].length};
    return br_output_array(stage, br_stage_output(stage, 0), BR_INT4X2, "time,freq,pol,dish", lengths);
}

/* --- scales -------------------------------------------------------------------------------------- */

static void spread_scales(struct requantize *r)
{
    size_t n = 2 * r->ndish;
    for (size_t i = 0; i < r->nfreq * r->npol; i++)
        for (size_t k = 0; k < n; k++)
            r->each[i * n + k] = (float)(r->factor[i] < MOST_SCALE ? r->factor[i] : MOST_SCALE);
}

/* Those that are given. */
static void take_scales(struct requantize *r)
{
    for (size_t i = 0; i < r->nfreq * r->npol; i++) r->factor[i] = r->scale.value[r->scale.count > 1 ? i : 0];
    r->measured = true;
    spread_scales(r);
}

static int save_scales(struct br_stage *stage, const struct requantize *r)
{
    if (r->save == NULL) return BR_OK;
    struct br_error error = {0};
    FILE *out = br_output_stream(r->save, r->overwrite, &error);
    if (out == NULL) return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    for (size_t i = 0; i < r->nfreq * r->npol; i++)
        fprintf(out, "%s%.17g", i == 0 ? "[" : i % r->npol == 0 ? ",\n " : ", ", r->factor[i]);
    fputs("]\n", out);
    return fclose(out) == 0 ? BR_OK
                            : br_stage_fail(stage, BR_E_IO, "cannot write %s: %s", r->save, strerror(errno));
}

/* The factor for one channel and polarisation from the first `rows` of what is held; 0 when it holds nothing.
 */
static double measure_one(const struct requantize *r, size_t c, size_t p, size_t rows)
{
    uint64_t sum = 0, n = 0;
    for (size_t t = 0; t < rows; t++) {
        if (r->valid[t * r->nfreq + c] == BR_MISSING) continue;
        const int8_t *v = (const int8_t *)r->data + t * r->row_bytes + 2 * (c * r->npol + p) * r->ndish;
        for (size_t i = 0; i < 2 * r->ndish; i++) sum += (uint64_t)(v[i] * v[i]);
        n += 2 * r->ndish;
    }
    return sum > 0 ? r->rms / sqrt((double)sum / (double)n) : 0;
}

/* Exact sums over the first `measure` samples that came, however frames were cut. */
static int measure(struct br_stage *stage, struct requantize *r)
{
    size_t rows = r->rows < (size_t)r->measure ? r->rows : (size_t)r->measure, silent = 0;
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < r->nfreq * r->npol; i++) {
        double f = measure_one(r, i / r->npol, i % r->npol, rows);
        r->factor[i] = f > 0 ? f : 1;
        silent += f == 0;
        if (f > 0 && f < least) least = f;
        if (f > most) most = f;
    }
    r->measured = true;
    if (silent > 0)
        br_stage_warn(stage,
                      "%zu of %zu channels and polarisations have nothing but zeros in the first %zu "
                      "samples; their scale is 1",
                      silent, r->nfreq * r->npol, rows);
    if (most > 0) br_stage_note(stage, "scales by the first %zu samples: %.6g to %.6g", rows, least, most);
    spread_scales(r);
    return save_scales(stage, r);
}

/* So that no other run writes the file of `save`. */
static int claim_save(struct br_stage *stage, struct requantize *r)
{
    struct br_error error = {0};
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", r->save);
    char *name = strrchr(directory, '/');
    if (name != NULL) *name = '\0';
    const char *file = name != NULL ? name + 1 : r->save;
    if (earlier_claim(&r->claim,
                      name == NULL        ? "."
                      : name == directory ? "/"
                                          : directory,
                      file, &error) == BR_OK)
        return BR_OK;
    return br_stage_fail(stage, BR_E_IO, "%s", error.text);
}

static int start(struct br_stage *stage, void *self)
{
    struct requantize *r = self;
    size_t scales = r->nfreq * r->npol;
    r->claim.fd = -1;
    if (r->save != NULL && claim_save(stage, r) != BR_OK) return BR_E_IO;
    r->factor = malloc(scales * sizeof *r->factor);
    r->each = malloc(r->row_bytes * sizeof *r->each);
    r->level = malloc(r->row_bytes);
    r->copy = malloc(r->row_bytes);
    if (r->factor == NULL || r->each == NULL || r->level == NULL || r->copy == NULL)
        return br_no_memory(stage, r->row_bytes * (2 + sizeof *r->each) + scales * sizeof *r->factor);
    if (r->scale.count > 0) {
        take_scales(r);
        return save_scales(stage, r);
    }
    r->rows_room = (size_t)r->measure + (size_t)br_stage_input(stage, 0)->frame_samples;
    if (r->rows_room > SIZE_MAX / 2 / (r->row_bytes + r->nfreq))
        return br_stage_fail(stage, BR_E_INVALID, "measure: %lld samples do not fit into memory",
                             (long long)r->measure);
    r->data = malloc(r->rows_room * r->row_bytes);
    r->valid = malloc(r->rows_room * r->nfreq);
    r->held = malloc(MOST_HELD * sizeof *r->held);
    if (r->data == NULL || r->valid == NULL || r->held == NULL)
        return br_no_memory(stage, r->rows_room * (r->row_bytes + r->nfreq));
    return BR_OK;
}

/* --- samples ------------------------------------------------------------------------------------- */

/* level = round(value x scale) in float32, halves to the even one, clamped; the number that did not fit.
 * Adding 3 x 2^22 rounds: the last bits of the sum are the level. Loops without branches, of which the
 * compiler makes vector code. */
static inline __attribute__((always_inline)) size_t to_levels(const int8_t *value, const float *scale,
                                                              size_t n, int8_t *level)
{
    const float round_it = 12582912;
    size_t clamped = 0;
    for (size_t at = 0; at < n; at += 128) { /* a count of bytes */
        size_t end = at + 128 < n ? at + 128 : n;
        uint8_t beyond = 0;
        for (size_t i = at; i < end; i++) {
            float sum = (float)value[i] * scale[i] + round_it;
            int32_t bits;
            memcpy(&bits, &sum, sizeof bits);
            int32_t wide = bits - 0x4b400000, kept = wide < LEVELS ? wide : LEVELS;
            kept = kept > -LEVELS ? kept : -LEVELS;
            beyond = (uint8_t)(beyond + (kept != wide));
            level[i] = (int8_t)kept;
        }
        clamped += beyond;
    }
    return clamped;
}

static inline __attribute__((always_inline)) void pack(const int8_t *level, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t pair;
        memcpy(&pair, level + 2 * i, 2);
        out[i] = (uint8_t)((pair & 15) | (pair >> 4 & 0xf0));
    }
}

static inline __attribute__((always_inline)) size_t row(const struct requantize *r, const int8_t *in,
                                                        uint8_t *out)
{
    size_t clamped = to_levels(in, r->each, r->row_bytes, r->level);
    pack(r->level, r->row_bytes / 2, out);
    return clamped;
}

#if defined(__x86_64__)
/* The same in wider vectors. */
__attribute__((target("avx2"))) static size_t row_avx2(const struct requantize *r, const int8_t *in,
                                                       uint8_t *out)
{
    return row(r, in, out);
}
#endif

static size_t convert_row(const struct requantize *r, const int8_t *in, uint8_t *out)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return row_avx2(r, in, out);
#endif
    return row(r, in, out);
}

/* Rows [time][freq][pol][dish]; what is missing becomes zero. */
static void convert(struct br_stage *stage, const struct requantize *r, const uint8_t *in,
                    const uint8_t *valid, size_t rows, uint8_t *out)
{
    size_t cell = 2 * r->npol * r->ndish, clamped = 0;
    for (size_t t = 0; t < rows; t++, in += r->row_bytes, out += r->row_bytes / 2) {
        const uint8_t *from = in;
        if (valid != NULL && memchr(valid + t * r->nfreq, BR_MISSING, r->nfreq) != NULL) {
            memcpy(r->copy, in, r->row_bytes);
            for (size_t c = 0; c < r->nfreq; c++)
                if (valid[t * r->nfreq + c] == BR_MISSING) memset(r->copy + c * cell, 0, cell);
            from = r->copy;
        }
        clamped += convert_row(r, (const int8_t *)from, out);
    }
    if (clamped > 0) br_stage_count_saturated(stage, clamped);
}

/* Samples from `first` on, each with the scales that hold at it. */
static void convert_from(struct br_stage *stage, const struct requantize *r, uint64_t first,
                         const uint8_t *in, const uint8_t *valid, size_t rows, uint8_t *out)
{
    uint64_t end = first + rows;
    for (uint64_t at = first; at < end;) {
        uint64_t due = br_stage_next_update(stage, end);
        if (due <= at) {
            br_stage_update(stage, at);
            continue;
        }
        size_t row = (size_t)(at - first);
        convert(stage, r, in + row * r->row_bytes, valid != NULL ? valid + row * r->nfreq : NULL,
                (size_t)(due - at), out + row * (r->row_bytes / 2));
        at = due;
    }
}

static void hold(struct requantize *r, const struct br_frame *in)
{
    size_t rows = (size_t)in->samples;
    r->held[r->nheld++] = (struct held){in->first, r->rows, rows, in->complete};
    memcpy(r->data + r->rows * r->row_bytes, in->data, rows * r->row_bytes);
    if (in->complete)
        memset(r->valid + r->rows * r->nfreq, BR_VALID, rows * r->nfreq);
    else
        memcpy(r->valid + r->rows * r->nfreq, in->valid, rows * r->nfreq);
    r->rows += rows;
}

/* The next frame that was held. */
static void give(struct br_stage *stage, struct requantize *r, struct br_frame *out)
{
    const struct held *h = &r->held[r->given++];
    out->first = h->first;
    out->samples = h->rows;
    out->complete = false;
    memcpy(out->valid, r->valid + h->row * r->nfreq, h->rows * r->nfreq);
    br_frame_close_validity(br_stage_output(stage, 0), out);
    convert_from(stage, r, h->first, r->data + h->row * r->row_bytes,
                 h->complete ? NULL : r->valid + h->row * r->nfreq, h->rows, out->data);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct requantize *r = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (!r->measured && in != NULL) {
        hold(r, in);
        if (r->rows < (size_t)r->measure && r->nheld < MOST_HELD) return BR_CONSUMED;
        int status = measure(stage, r);
        return status == BR_OK ? BR_CONSUMED : status;
    }
    if (!r->measured && r->nheld > 0) {
        int status = measure(stage, r);
        if (status != BR_OK) return status;
    }
    if (r->given < r->nheld) {
        give(stage, r, out);
        return BR_PRODUCED;
    }
    if (in == NULL) return BR_FINISHED;
    convert_from(stage, r, in->first, in->data, in->complete ? NULL : in->valid, (size_t)in->samples,
                 out->data);
    out->first = in->first;
    out->samples = in->samples;
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, br_frame_cells(br_stage_input(stage, 0), in));
    return BR_CONSUMED | BR_PRODUCED;
}

/* --- new scales --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct requantize *r = fresh;
    size_t scales = r->nfreq * r->npol;
    (void)self;
    r->factor = malloc(scales * sizeof *r->factor);
    r->each = malloc(r->row_bytes * sizeof *r->each);
    if (r->factor == NULL || r->each == NULL)
        return br_no_memory(stage, r->row_bytes * sizeof *r->each + scales * sizeof *r->factor);
    take_scales(r);
    return BR_OK;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage, (void)sample;
    struct requantize *r = self, *with = fresh;
    BR_EXCHANGE(double *, r, with, factor);
    BR_EXCHANGE(float *, r, with, each);
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct requantize *r = fresh;
    free(r->factor);
    free(r->each);
}

static const char *const updates[] = {"scale", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct requantize *r = self;
    (void)stage;
    file_lock_release(&r->claim);
    free(r->factor);
    free(r->each);
    free(r->level);
    free(r->copy);
    free(r->data);
    free(r->valid);
    free(r->held);
    return BR_OK;
}

STAGE_EXPORT(requantize, struct requantize,
             "the electric field in 8 + 8 bits as 4 + 4 bits, for the stages that make beams of it",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_COMMITS, .updates = updates,
             .prepare = prepare, .commit = commit, .discard = discard);
