/* FRB stage 2 as matrix products in float32.
 *
 * Arbitrary beams: beams[t][b] = sum_pq field[t][p][q] product[p][q][b], product = u_m[p][b] u_n[q][b]. The
 * product is too large to keep for every channel, so it is multiplied out again for each tile of time steps,
 * `depth` p's and `block` beams at a time, small enough to stay in cache.
 *
 * Factorizable beams: two products, in the order that needs fewer operations,
 *   n first: middle[t][p][j] = sum_q field[t][p][q] u_n[q][j];   beams[t][i][j] = sum_p u_m[i][p]
 * middle[t][p][j] m first: middle[t][i][q] = sum_p u_m[i][p] field[t][p][q];   beams[t][i][j] = sum_q
 * middle[t][i][q] u_n[q][j]
 *
 * A step's result must not depend on which steps are computed with it, and threads must not wait for each
 * other: products are our own (rows.h). OpenBLAS takes a lock with every product, however small. */
#include "kernels/common/cpu.h"
#include "buffers/half.h"
#include "kernels/common/aligned.h"
#include "kernels/frb_beams/cpu/rows.h"
#include "kernels/frb_beams/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if BR_X86_64
#include <immintrin.h>
#endif

enum {
    TILE = 120,
    TILE_GRID = 16, /* time steps computed together; factorizable ones need smaller tiles to stay in cache */
    BLOCK = 256,    /* beams whose weights are multiplied out together */
    DEPTH = 384,    /* (p, q) whose weights are multiplied out together */
    APART =
        16, /* floats between the images of a tile: images of 4 KiB would all lie in the same cache sets */
    KEEP = 32 << 20, /* bytes of weights kept for arbitrary beams */
    JOBS_EACH = 8    /* at least, for each thread, if there are tiles: the last ones end nearly together */
};

/* Eq. (8): with x = pi (2 theta - q) / 2N, U = sin(2N x) cot(x) / 2N, where sin(2N x) = (-1)^q sin(2 pi
 * theta) and sin(x), cos(x) follow from those of q = 0 by rotation. Near x = 0 (mod pi) U is 1. */
void br_frb_beams_axis_weights(float *u, const struct axis *axis, double freq_mhz, double *angles)
{
    double n = axis->n, tiny = 1e-6 / n;
    double *sines = angles, *cosines = sines + axis->nbeams, *twist = cosines + axis->nbeams;
    for (size_t b = 0; b < axis->nbeams; b++) {
        double theta = remainder(axis->theta_mhz[b] * freq_mhz, n);
        sines[b] = sin(M_PI * theta / n);
        cosines[b] = cos(M_PI * theta / n);
        twist[b] = sin(2 * M_PI * theta) / (2 * n);
    }
    for (unsigned q = 0; q < 2 * axis->n; q++) {
        double c = cos(M_PI * q / (2 * n)), s = sin(M_PI * q / (2 * n)), sign = q % 2 ? -1 : 1;
        float *row = u + q * axis->nbeams_even;
        for (size_t b = 0; b < axis->nbeams; b++) {
            double sine = sines[b] * c - cosines[b] * s, cosine = cosines[b] * c + sines[b] * s;
            double ratio = sign * twist[b] * cosine / sine;
            row[b] = (float)(fabs(sine) < tiny ? 1 : ratio);
        }
        for (size_t b = axis->nbeams; b < axis->nbeams_even; b++) row[b] = 0;
    }
}

static inline void outer(float *restrict product, const float *restrict u_m, const float *restrict u_n,
                         size_t np, size_t nq, size_t stride, size_t block)
{
    for (size_t p = 0; p < np; p++)
        for (size_t q = 0; q < nq; q++)
            for (size_t b = 0; b < block; b++)
                product[(p * nq + q) * block + b] = u_m[p * stride + b] * u_n[q * stride + b];
}

static void outer_generic(float *product, const float *u_m, const float *u_n, size_t np, size_t nq,
                          size_t stride, size_t block)
{
    outer(product, u_m, u_n, np, nq, stride, block);
}

#if BR_X86_64
__attribute__((target("avx2"))) static void outer_avx2(float *product, const float *u_m, const float *u_n,
                                                       size_t np, size_t nq, size_t stride, size_t block)
{
    outer(product, u_m, u_n, np, nq, stride, block);
}
#endif

#if BR_X86_64
/* Whole vectors of `count` values; returns how many values that are. NaN stays NaN, as below. */
__attribute__((target("avx,f16c"))) static size_t store_f16c(uint16_t *out, const float *values, size_t count)
{
    const __m256 most = _mm256_set1_ps(BR_HALF_MAX), least = _mm256_set1_ps(-BR_HALF_MAX);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 v = _mm256_max_ps(least, _mm256_min_ps(most, _mm256_loadu_ps(values + i)));
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}
#endif

static float *floats(size_t count)
{
    return br_aligned_zeros(count, sizeof(float));
}

static size_t size_m(const struct br_frb_beams *plan)
{
    return 2 * plan->m.n * plan->m.nbeams_even;
}

static size_t size_n(const struct br_frb_beams *plan)
{
    return 2 * plan->n.n * plan->n.nbeams_even;
}

static void make_weights(const struct br_frb_beams *plan, size_t f, float *weights_m, float *weights_n,
                         double *angles)
{
    br_frb_beams_axis_weights(weights_m, &plan->m, plan->freq_mhz[f], angles);
    br_frb_beams_axis_weights(weights_n, &plan->n, plan->freq_mhz[f], angles);
}

static void keep_weights(void *arg, size_t f, unsigned worker)
{
    const struct br_frb_beams *plan = arg;
    make_weights(plan, f, plan->weights_m + f * size_m(plan), plan->weights_n + f * size_n(plan),
                 plan->scratch[worker].angles);
}

/* `middle` and `beams` are the numbers of their floats. */
static int make_scratch(struct br_frb_beams *plan, size_t middle, size_t beams)
{
    size_t nq = (size_t)2 * plan->n.n, most = plan->m.nbeams_even;
    if (plan->n.nbeams_even > most) most = plan->n.nbeams_even;
    plan->nscratch = br_parallel_workers(&plan->parallel);
    plan->scratch = calloc(plan->nscratch, sizeof *plan->scratch);
    for (unsigned i = 0; plan->scratch && i < plan->nscratch; i++) {
        struct frb_beams_scratch *s = &plan->scratch[i];
        s->field = floats(plan->tile * (plan->cells + (plan->beams_x ? 0 : APART)));
        s->middle = floats(middle);
        s->beams = floats(beams);
        s->step = malloc(plan->tile * sizeof *s->step);
        s->angles = malloc(3 * most * sizeof *s->angles);
        if (!s->field || !s->middle || !s->beams || !s->step || !s->angles) return -1;
        if (!plan->beams_x && !(s->product = floats(plan->depth * nq * plan->block))) return -1;
        if (plan->beams_x && !(s->rows_m = floats(plan->beams_x * 2 * plan->m.n))) return -1;
        if (plan->weights_kept) continue;
        s->weights_m = floats(size_m(plan));
        s->weights_n = floats(size_n(plan));
        if (!s->weights_m || !s->weights_n) return -1;
    }
    return plan->scratch ? 0 : -1;
}

int br_frb_beams_cpu_create(struct br_frb_beams *plan)
{
    size_t np = (size_t)2 * plan->m.n, nq = (size_t)2 * plan->n.n, most = plan->beams_x ? TILE_GRID : TILE;
    size_t bytes = (size_m(plan) + size_n(plan)) * sizeof(float);
    plan->weights_kept = plan->beams_x || bytes <= KEEP / plan->nchannels;
    size_t channels = plan->weights_kept ? plan->nchannels : 1, middle, beams;
    plan->tile = plan->max_steps < most ? plan->max_steps : most;
    plan->outer = outer_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) plan->outer = outer_avx2;
#endif
    if (plan->beams_x) {
        double bx = (double)plan->beams_x, by = (double)plan->beams_y, p = (double)np, q = (double)nq;
        plan->m_first = bx * p * q + bx * q * by < p * q * by + bx * p * by;
        middle = plan->tile * (plan->m_first ? plan->beams_x * nq : np * plan->n.nbeams_even);
        beams = plan->tile * plan->beams_x * plan->n.nbeams_even;
    } else {
        size_t blocks = (plan->m.nbeams_even + BLOCK - 1) / BLOCK;
        plan->block = br_round_up((plan->m.nbeams_even + blocks - 1) / blocks, 16);
        plan->depth = nq < DEPTH ? DEPTH / nq : 1;
        if (plan->depth > np) plan->depth = np;
        middle = 1;
        beams = plan->tile * plan->block;
    }
    if (make_scratch(plan, middle, beams) != 0) return -1;
    if (!plan->weights_kept) return 0;
    plan->weights_m = floats(channels * size_m(plan));
    plan->weights_n = floats(channels * size_n(plan));
    if (!plan->weights_m || !plan->weights_n) return -1;
    /* Not shared by the threads: a plan may be made while they work for others. */
    for (size_t f = 0; f < plan->nchannels; f++) keep_weights(plan, f, 0);
    return 0;
}

void br_frb_beams_cpu_steer(struct br_frb_beams *plan)
{
    if (plan->weights_kept) br_parallel_for(&plan->parallel, plan->nchannels, keep_weights, plan);
}

void br_frb_beams_cpu_destroy(struct br_frb_beams *plan)
{
    for (unsigned i = 0; plan->scratch && i < plan->nscratch; i++) {
        struct frb_beams_scratch *s = &plan->scratch[i];
        free(s->weights_m);
        free(s->weights_n);
        free(s->field);
        free(s->middle);
        free(s->product);
        free(s->rows_m);
        free(s->beams);
        free(s->step);
        free(s->angles);
    }
    free(plan->scratch);
    free(plan->weights_m);
    free(plan->weights_n);
}

/* u_m as the rows of a product: [beams_x][p]. */
static void transpose(float *rows_m, const float *u_m, size_t rows, size_t columns, size_t u_row)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) rows_m[r * columns + c] = u_m[c * u_row + r];
}

/* Clamps and rounds. */
static void store(uint16_t *out, const float *values, size_t count)
{
    size_t i = 0;
#if BR_X86_64
    if (br_cpu_has_f16c()) i = store_f16c(out, values, count);
#endif
    for (; i < count; i++) {
        float v = values[i];
        v = v > BR_HALF_MAX ? BR_HALF_MAX : v;
        out[i] = br_half_from_float(v < -BR_HALF_MAX ? -BR_HALF_MAX : v);
    }
}

/* `count` steps are in the tile; row `step` of out is [B]. */
static void arbitrary(const struct br_frb_beams *plan, const struct frb_beams_scratch *s, const float *u_m,
                      const float *u_n, size_t count, uint16_t *out)
{
    size_t np = (size_t)2 * plan->m.n, nq = (size_t)2 * plan->n.n, stride = plan->m.nbeams_even;
    for (size_t b = 0; b < plan->nbeams; b += plan->block) {
        size_t block = stride - b < plan->block ? stride - b : plan->block;
        size_t wanted = plan->nbeams - b < block ? plan->nbeams - b : block;
        for (size_t p = 0; p < np; p += plan->depth) {
            size_t depth = np - p < plan->depth ? np - p : plan->depth;
            plan->outer(s->product, u_m + p * stride + b, u_n + b, depth, nq, stride, block);
            br_frb_beams_rows(count, block, depth * nq, s->field + p * nq, plan->cells + APART, s->product,
                              block, p > 0, s->beams, block);
        }
        for (size_t i = 0; i < count; i++)
            store(out + s->step[i] * plan->pitch + b, s->beams + i * block, wanted);
    }
}

static void factorizable(const struct br_frb_beams *plan, const struct frb_beams_scratch *s, const float *u_m,
                         const float *u_n, size_t count, uint16_t *out)
{
    size_t np = (size_t)2 * plan->m.n, nq = (size_t)2 * plan->n.n, bx = plan->beams_x,
           by = plan->n.nbeams_even;
    size_t image = bx * by;
    transpose(s->rows_m, u_m, bx, np, plan->m.nbeams_even);
    if (plan->m_first) {
        for (size_t i = 0; i < count; i++)
            br_frb_beams_rows(bx, nq, np, s->rows_m, np, s->field + i * plan->cells, nq, 0,
                              s->middle + i * bx * nq, nq);
        br_frb_beams_rows(count * bx, by, nq, s->middle, nq, u_n, by, 0, s->beams, by);
    } else {
        br_frb_beams_rows(count * np, by, nq, s->field, nq, u_n, by, 0, s->middle, by);
        for (size_t i = 0; i < count; i++)
            br_frb_beams_rows(bx, by, np, s->rows_m, np, s->middle + i * np * by, by, 0, s->beams + i * image,
                              by);
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t *to = out + s->step[i] * plan->pitch;
        if (by == plan->beams_y) {
            store(to, s->beams + i * image, image);
            continue;
        }
        for (size_t x = 0; x < bx; x++)
            store(to + x * plan->beams_y, s->beams + i * image + x * by, plan->beams_y);
    }
}

struct work {
    const struct br_frb_beams *plan;
    const struct span *span;
    size_t tiles, pieces; /* of time; jobs of a channel */
};

/* Steps [from, to) of channel f. */
static void do_steps(const struct work *work, struct frb_beams_scratch *s, size_t f, size_t from, size_t to)
{
    const struct br_frb_beams *plan = work->plan;
    const struct span *span = work->span;
    size_t apart = plan->cells + (plan->beams_x ? 0 : APART);
    const uint16_t *images = span->in + f * span->stride * plan->cells;
    const uint8_t *valid = span->valid ? span->valid + f * span->stride : NULL;
    uint16_t *out = span->out + f * span->stride * plan->pitch;
    int made = plan->weights_kept;
    float *u_m = made ? plan->weights_m + f * size_m(plan) : s->weights_m;
    float *u_n = made ? plan->weights_n + f * size_n(plan) : s->weights_n;
    for (size_t t = from; t < to;) {
        size_t count = 0;
        for (; t < to && count < plan->tile; t++) {
            if (valid && !valid[t]) {
                memset(out + t * plan->pitch, 0, plan->pitch * sizeof *out);
                continue;
            }
            br_half_to_float_array(s->field + count * apart, images + t * plan->cells, plan->cells);
            s->step[count++] = t;
        }
        if (count == 0) continue;
        if (!made) make_weights(plan, f, u_m, u_n, s->angles);
        made = 1;
        if (plan->beams_x)
            factorizable(plan, s, u_m, u_n, count, out);
        else
            arbitrary(plan, s, u_m, u_n, count, out);
    }
}

static void do_job(void *arg, size_t job, unsigned worker)
{
    const struct work *work = arg;
    const struct br_frb_beams *plan = work->plan;
    size_t f = job / work->pieces, piece = job % work->pieces;
    size_t from = piece * work->tiles / work->pieces * plan->tile,
           to = (piece + 1) * work->tiles / work->pieces * plan->tile;
    do_steps(work, &plan->scratch[worker], f, from, to < work->span->count ? to : work->span->count);
}

void br_frb_beams_cpu(struct br_frb_beams *plan, const struct span *span)
{
    struct work work = {plan, span, (span->count + plan->tile - 1) / plan->tile, 1};
    if (plan->nscratch > 1) {
        work.pieces = (plan->nscratch * JOBS_EACH + plan->nchannels - 1) / plan->nchannels;
        if (work.pieces > work.tiles) work.pieces = work.tiles;
    }
    br_parallel_for(&plan->parallel, plan->nchannels * work.pieces, do_job, &work);
}

/* One channel. Sixteen sums side by side, whatever the processor. */
static void mean_channel(void *arg, size_t f, unsigned worker)
{
    const struct work *work = arg;
    const struct br_frb_beams *plan = work->plan;
    const struct span *span = work->span;
    float *field = plan->scratch[worker].field;
    for (size_t t = 0; t < span->count; t++) {
        size_t step = f * span->stride + t, B = plan->nbeams, i = 0;
        uint16_t *out = span->out + step * plan->pitch;
        float part[16] = {0}, sum = 0;
        if (span->valid && !span->valid[step]) continue;
        br_half_to_float_array(field, span->in + step * plan->cells, plan->cells);
        for (; i + 16 <= plan->cells; i += 16)
            for (size_t k = 0; k < 16; k++) part[k] += field[i + k];
        for (; i < plan->cells; i++) part[i % 16] += field[i];
        for (size_t k = 0; k < 16; k++) sum += part[k];
        sum /= (float)plan->cells;
        if (plan->incoherent == BR_INCOHERENT_APPEND) store(out + B, &sum, 1);
        for (size_t b = 0; plan->incoherent == BR_INCOHERENT_SUBTRACT && b < B; b++) {
            float less = br_half_to_float(out[b]) - sum;
            store(out + b, &less, 1);
        }
    }
}

void br_frb_beams_cpu_incoherent(const struct br_frb_beams *plan, const struct span *span)
{
    struct work work = {plan, span, 0, 1};
    br_parallel_for(&plan->parallel, plan->nchannels, mean_channel, &work);
}
