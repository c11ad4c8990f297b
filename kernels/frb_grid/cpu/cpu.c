/* FRB stage 1 with FFTW: one pruned two-dimensional transform per sample, channel and polarisation, where the
 * autocorrelation does not pay (lags.c).
 *
 *   field[m][n], m < M, n < 2N   the dishes' field on the grid; n >= N stays zero
 *   rows[q][m],  q < 2N, m < 2M  transformed along n: only the M rows that are not zero; m >= M stays zero
 *   sky[q][p],   p < 2M          transformed along m
 *
 * The grid is filled LANES cells at a time, from `source` to `target`. Where the dishes of these cells are
 * within LANES of each other in the input too, they are loaded from there (source >= 0) and put in `order`;
 * cells without a dish get the field of another, and their weight 0 makes it nothing. Other vectors are put
 * together in `bytes` first (source < 0: from byte -1 - source on). Cells past a row's end have weight 0: the
 * zeros written there fall on the padding, or on cells that are written later. */
#include "kernels/common/cpu.h"
#include "buffers/half.h"
#include "kernels/common/aligned.h"
#include "kernels/frb_grid/plan.h"

#include <stdlib.h>
#include <string.h>

#if BR_X86_64
#include <immintrin.h>
#endif

/* Nibbles are left at the top of 32 bits, which keeps their sign; the weights are as much smaller, without
 * rounding. */
#define SHIFTED 0x1p28f

static void grid_generic(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                         const float *weights, const uint8_t *e)
{
    for (size_t v = 0; v < plan->nvectors; v++) {
        const uint8_t *from =
            plan->source[v] >= 0 ? e + plan->source[v] : scratch->bytes + (-1 - plan->source[v]);
        const float *w_re = weights + v * 2 * LANES, *w_im = w_re + LANES;
        fftwf_complex *to = scratch->field + plan->target[v];
        for (int i = 0; i < LANES; i++) {
            int byte = from[plan->order[v][i]];
            float re = SHIFTED * (float)(((byte & 15) ^ 8) - 8),
                  im = SHIFTED * (float)(((byte >> 4) ^ 8) - 8);
            to[i][0] = re * w_re[i] - im * w_im[i];
            to[i][1] = re * w_im[i] + im * w_re[i];
        }
    }
}

/* Where the sum of a cell is kept: with bits 1 and 2 of its number exchanged, the order in which vectors of
 * (re, im) fall apart most cheaply. */
static inline size_t place(size_t cell)
{
    return (cell & ~(size_t)6) | (cell & 2) << 1 | (cell & 4) >> 1;
}

/* count is a multiple of LANES */
static void square_generic(float *sum, const float *field, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[place(i)] += field[2 * i] * field[2 * i] + field[2 * i + 1] * field[2 * i + 1];
}

#if BR_X86_64
/* Both make the same bits as the loops above: neither fuses a product and a sum. */
__attribute__((target("avx2"))) static void grid_avx2(const struct br_frb_grid *plan,
                                                      const struct frb_grid_scratch *scratch,
                                                      const float *weights, const uint8_t *e)
{
    /* In registers: for all the compiler knows, the stores below could change the plan. */
    const int32_t *source = plan->source;
    const uint32_t *target = plan->target;
    const uint8_t(*orders)[LANES] = (const uint8_t(*)[LANES])plan->order, *bytes = scratch->bytes;
    float *field = &scratch->field[0][0];
    size_t nvectors = plan->nvectors;
#pragma GCC unroll 4
    for (size_t v = 0; v < nvectors; v++) {
        const uint8_t *from = source[v] >= 0 ? e + source[v] : bytes + (-1 - source[v]);
        __m256 w_re = _mm256_load_ps(weights + v * 2 * LANES),
               w_im = _mm256_load_ps(weights + v * 2 * LANES + LANES);
        __m128i order = _mm_loadl_epi64((const __m128i *)(const void *)orders[v]);
        __m256i both = _mm256_cvtepu8_epi32(
            _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)(const void *)from), order));
        __m256 e_re = _mm256_cvtepi32_ps(_mm256_slli_epi32(both, 28));
        __m256 e_im =
            _mm256_cvtepi32_ps(_mm256_slli_epi32(_mm256_and_si256(both, _mm256_set1_epi32(0xf0)), 24));
        __m256 re = _mm256_sub_ps(_mm256_mul_ps(e_re, w_re), _mm256_mul_ps(e_im, w_im));
        __m256 im = _mm256_add_ps(_mm256_mul_ps(e_re, w_im), _mm256_mul_ps(e_im, w_re));
        __m256 low = _mm256_unpacklo_ps(re, im), high = _mm256_unpackhi_ps(re, im);
        float *to = field + 2 * (size_t)target[v];
        _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
        _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }
}

__attribute__((target("avx2"))) static void square_avx2(float *sum, const float *field, size_t count)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < count; i += 8) {
        __m256 a = _mm256_load_ps(field + 2 * i), b = _mm256_load_ps(field + 2 * i + 8);
        /* cells 0 1 4 5 2 3 6 7 */
        __m256 re = _mm256_shuffle_ps(a, b, 0x88), im = _mm256_shuffle_ps(a, b, 0xdd);
        __m256 power = _mm256_add_ps(_mm256_mul_ps(re, re), _mm256_mul_ps(im, im));
        _mm256_store_ps(sum + i, _mm256_add_ps(_mm256_load_ps(sum + i), power));
    }
}
#endif

/* source, target, order, moves; `dish` is the dish on each cell of the grid, its rows padded to whole
 * vectors, or -1. */
static void make_vectors(struct br_frb_grid *plan, const int32_t *dish, size_t per_row)
{
    int32_t last = (int32_t)plan->ndishes - LANES; /* the last place where a vector can be loaded */
    for (size_t v = 0; v < plan->nvectors; v++) {
        const int32_t *mine = dish + v * LANES;
        int32_t low = INT32_MAX, high = -1;
        for (int i = 0; i < LANES; i++) {
            if (mine[i] < 0) continue;
            if (mine[i] < low) low = mine[i];
            if (mine[i] > high) high = mine[i];
        }
        plan->target[v] = (uint32_t)(v / per_row * 2 * plan->grid_n + v % per_row * LANES);
        if (low > last) low = last;
        if (high - low < LANES && last >= 0) {
            plan->source[v] = low;
            for (int i = 0; i < LANES; i++) plan->order[v][i] = (uint8_t)(mine[i] < 0 ? 0 : mine[i] - low);
            continue;
        }
        plan->source[v] = -1 - (int32_t)plan->nmoves;
        for (int i = 0; i < LANES; i++) {
            plan->order[v][i] = (uint8_t)i;
            plan->moves[plan->nmoves++] = (uint16_t)(mine[i] < 0 ? 0 : mine[i]);
        }
    }
}

static void make_weights(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                         const int32_t *dish)
{
    for (size_t i = 0; i < plan->weight_channels * plan->npol; i++)
        for (size_t c = 0; c < plan->nvectors * LANES; c++) {
            float *w =
                plan->lane_weights + i * plan->nvectors * 2 * LANES + c / LANES * 2 * LANES + c % LANES;
            if (dish[c] < 0) continue;
            const float *given =
                params->weights ? params->weights + (i * plan->ndishes + (size_t)dish[c]) * 2 : NULL;
            w[0] = (given ? given[0] : 1) / SHIFTED;
            w[LANES] = (given ? given[1] : 0) / SHIFTED;
        }
}

/* Rank 1, estimated: the same plan in every run, whatever else the machine is doing. FFTW's planner is one
 * for the whole process, whichever plugin calls it; after the first line, one thread at a time plans or
 * destroys a plan. */
static fftwf_plan transform(fftwf_iodim axis, fftwf_iodim over, fftwf_complex *in, fftwf_complex *out)
{
    fftwf_make_planner_thread_safe();
    return fftwf_plan_guru_dft(1, &axis, 1, &over, in, out, FFTW_BACKWARD, FFTW_ESTIMATE);
}

static int make_sums(const struct br_frb_grid *plan, size_t count, struct frb_grid_sums *sums)
{
    if (plan->by_lags) {
        sums->lags = br_frb_grid_lags_create(plan, count);
        return sums->lags ? 0 : -1;
    }
    sums->partial = br_aligned_zeros(count * plan->cells_padded, sizeof *sums->partial);
    if (plan->downsample > PARTIAL)
        sums->total = br_aligned_zeros(count * plan->cells_padded, sizeof *sums->total);
    return !sums->partial || (plan->downsample > PARTIAL && !sums->total) ? -1 : 0;
}

static void free_sums(struct frb_grid_sums *sums, size_t count)
{
    br_frb_grid_lags_destroy(sums->lags, count);
    free(sums->partial);
    free(sums->total);
}

static int make_scratch(struct br_frb_grid *plan)
{
    unsigned workers = br_parallel_workers(&plan->parallel);
    plan->scratch = calloc(workers, sizeof *plan->scratch);
    for (; plan->scratch && plan->nscratch < workers; plan->nscratch++) {
        struct frb_grid_scratch *s = &plan->scratch[plan->nscratch];
        s->line = br_aligned_zeros((size_t)2 * plan->grid_n, sizeof *s->line);
        bool made = make_sums(plan, 1, &s->sums) == 0 && s->line;
        if (plan->by_lags) {
            s->by_lags = br_frb_grid_lag_scratch_create(plan);
            made = made && s->by_lags;
        } else {
            s->bytes = calloc(plan->nvectors, LANES);
            s->field = br_aligned_zeros(plan->cells / 2 + LANES, sizeof *s->field);
            s->rows = br_aligned_zeros(plan->cells, sizeof *s->rows);
            s->sky = br_aligned_zeros(plan->cells_padded, sizeof *s->sky);
            made = made && s->bytes && s->field && s->rows && s->sky;
        }
        if (!made) {
            plan->nscratch++;
            return -1;
        }
    }
    return plan->scratch ? 0 : -1;
}

static void free_scratch(struct br_frb_grid *plan)
{
    for (unsigned i = 0; i < plan->nscratch; i++) {
        struct frb_grid_scratch *s = &plan->scratch[i];
        free(s->bytes);
        free(s->field);
        free(s->rows);
        free(s->sky);
        free(s->line);
        free_sums(&s->sums, 1);
        br_frb_grid_lag_scratch_destroy(s->by_lags);
    }
    free(plan->scratch);
}

/* The tables of the transform of every sample; -1: no memory. */
static int make_tables(struct br_frb_grid *plan, const struct br_frb_grid_params *params)
{
    size_t per_row = (plan->grid_n + LANES - 1) / LANES;
    plan->nvectors = plan->grid_m * per_row;
    plan->cells_padded = (plan->cells + LANES - 1) / LANES * LANES;
    plan->grid = grid_generic;
    plan->square = square_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) {
        plan->grid = grid_avx2;
        plan->square = square_avx2;
    }
#endif
    int32_t *dish = malloc(plan->nvectors * LANES * sizeof *dish);
    plan->source = malloc(plan->nvectors * sizeof *plan->source);
    plan->target = malloc(plan->nvectors * sizeof *plan->target);
    plan->order = malloc(plan->nvectors * sizeof *plan->order);
    plan->moves = malloc(plan->nvectors * LANES * sizeof *plan->moves);
    plan->lane_weights =
        br_aligned_zeros(plan->weight_channels * plan->npol * plan->nvectors * 2 * LANES, sizeof(float));
    int failed =
        !dish || !plan->source || !plan->target || !plan->order || !plan->moves || !plan->lane_weights;
    if (!failed) {
        for (size_t c = 0; c < plan->nvectors * LANES; c++) dish[c] = -1;
        for (size_t d = 0; d < plan->ndishes; d++)
            dish[params->dish_cell[2 * d] * per_row * LANES + params->dish_cell[2 * d + 1]] = (int32_t)d;
        make_vectors(plan, dish, per_row);
        make_weights(plan, params, dish);
    }
    free(dish);
    return failed ? -1 : 0;
}

size_t br_frb_grid_host_bytes(const struct br_frb_grid_params *params, size_t workers)
{
    const struct br_frb_grid plan = {.nchannels = params->nchannels,
                                     .npol = params->npol,
                                     .ndishes = params->ndishes,
                                     .grid_m = params->grid_m,
                                     .grid_n = params->grid_n,
                                     .downsample = params->downsample,
                                     .cells = (size_t)4 * params->grid_m * params->grid_n};
    if (br_frb_grid_lags_pay(&plan, params->dish_cell))
        return br_frb_grid_lags_bytes(&plan, params->dish_cell, workers);
    size_t sums = plan.cells * sizeof(float) * (plan.downsample > PARTIAL ? 2 : 1),
           transforms = plan.cells * (sizeof *plan.scratch->field / 2 + sizeof *plan.scratch->rows +
                                      sizeof *plan.scratch->sky);
    return 2 * plan.nchannels * sums + workers * (sums + transforms);
}

int br_frb_grid_cpu_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params)
{
    int M = (int)plan->grid_m, N = (int)plan->grid_n;
    bool by_lags = br_frb_grid_lags_pay(plan, params->dish_cell);
    plan->position = malloc(plan->cells * sizeof *plan->position);
    plan->next_shares = calloc(plan->nchannels, sizeof *plan->next_shares);
    if (!plan->position || !plan->next_shares ||
        (by_lags ? br_frb_grid_lag_plan_create : make_tables)(plan, params) != 0 || make_scratch(plan) != 0 ||
        make_sums(plan, plan->nchannels, &plan->open) != 0 ||
        make_sums(plan, plan->nchannels, &plan->next) != 0)
        return -1;
    for (size_t i = 0; i < plan->cells; i++) { /* sums are [q][p] */
        size_t p = i / (2 * plan->grid_n), q = i % (2 * plan->grid_n), cell = q * 2 * plan->grid_m + p;
        plan->position[i] = (uint16_t)(by_lags ? cell : place(cell));
    }
    if (by_lags) return 0;
    plan->along_n = transform((fftwf_iodim){2 * N, 1, 2 * M}, (fftwf_iodim){M, 2 * N, 1},
                              plan->scratch->field, plan->scratch->rows);
    plan->along_m = transform((fftwf_iodim){2 * M, 1, 1}, (fftwf_iodim){2 * N, 2 * M, 2 * M},
                              plan->scratch->rows, plan->scratch->sky);
    return plan->along_n && plan->along_m ? 0 : -1;
}

void br_frb_grid_cpu_destroy(struct br_frb_grid *plan)
{
    if (plan->along_n) fftwf_destroy_plan(plan->along_n);
    if (plan->along_m) fftwf_destroy_plan(plan->along_m);
    free(plan->lane_weights);
    free_scratch(plan);
    free_sums(&plan->open, plan->nchannels);
    free_sums(&plan->next, plan->nchannels);
    free(plan->next_shares);
    free(plan->source);
    free(plan->target);
    free(plan->order);
    free(plan->moves);
    free(plan->position);
    br_frb_grid_lag_plan_destroy(plan);
}

/* Adds the partial sums to the total ones. */
static void close_partial(const struct br_frb_grid *plan, const struct frb_grid_sums *sums)
{
    for (size_t i = 0; i < plan->cells_padded; i++) {
        sums->total[i] += sums->partial[i];
        sums->partial[i] = 0;
    }
}

static void gather(uint8_t *restrict bytes, const uint8_t *restrict from, const uint16_t *restrict moves,
                   size_t count)
{
    for (size_t i = 0; i < count; i += LANES)
        for (size_t j = i; j < i + LANES; j++) bytes[j] = from[moves[j]];
}

uint64_t br_frb_grid_cpu_add(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                             const struct frb_grid_sums *sums, const struct frb_grid_part *part)
{
    if (plan->by_lags) return br_frb_grid_lags_add(plan, scratch->by_lags, sums->lags, part);
    uint64_t shares = 0;
    size_t wf = plan->weight_channels == 1 ? 0 : part->f, per_pol = plan->nvectors * 2 * LANES;
    const float *weights = plan->lane_weights + wf * plan->npol * per_pol;
    for (unsigned t = 0; t < part->nsteps; t++) {
        const uint8_t *valid = part->e_valid ? part->e_valid + t * part->valid_row : NULL;
        /* By the place in the block, so that it does not matter how the block was handed over. */
        if ((part->first + t) % PARTIAL == 0 && part->first + t > 0) close_partial(plan, sums);
        if (valid && !*valid) continue;
        shares += valid ? *valid : 255;
        for (size_t pol = 0; pol < plan->npol; pol++) {
            const uint8_t *from = part->e + t * part->row + pol * plan->ndishes;
            gather(scratch->bytes, from, plan->moves, plan->nmoves);
            plan->grid(plan, scratch, weights + pol * per_pol, from);
            fftwf_execute_dft(plan->along_n, scratch->field, scratch->rows);
            fftwf_execute_dft(plan->along_m, scratch->rows, scratch->sky);
            plan->square(sums->partial, &scratch->sky[0][0], plan->cells_padded);
        }
    }
    return shares;
}

/* The sums of the block that ends, [2M][2N] by way of plan->position. */
static const float *close_block(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                                const struct frb_grid_sums *sums, size_t f)
{
    if (plan->by_lags) return br_frb_grid_lags_finish(plan, scratch->by_lags, sums->lags, f, true);
    if (!sums->total) return sums->partial;
    close_partial(plan, sums);
    return sums->total;
}

static void clear(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                  const struct frb_grid_sums *sums, size_t f)
{
    if (plan->by_lags) {
        br_frb_grid_lags_finish(plan, scratch->by_lags, sums->lags, f, false);
        return;
    }
    memset(sums->partial, 0, plan->cells_padded * sizeof *sums->partial);
    if (sums->total) memset(sums->total, 0, plan->cells_padded * sizeof *sums->total);
}

void br_frb_grid_cpu_finish(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                            const struct frb_grid_sums *sums, size_t f, double factor, uint16_t *out)
{
    size_t np = (size_t)2 * plan->grid_m, nq = (size_t)2 * plan->grid_n;
    const float *from = out ? close_block(plan, scratch, sums, f) : NULL;
    for (size_t p = 0; out && p < np; p++) {
        const uint16_t *position = plan->position + p * nq;
        for (size_t q = 0; q < nq; q++) {
            /* by lags, no power at all may come out a little below 0 */
            float value = from[position[q]] * (float)factor;
            value = value > 0 ? value : 0;
            scratch->line[q] = value < BR_HALF_MAX ? value : BR_HALF_MAX;
        }
        br_half_from_float_array(out + p * nq, scratch->line, nq);
    }
    clear(plan, scratch, sums, f);
}
