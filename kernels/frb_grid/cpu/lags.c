/* FRB stage 1 by the autocorrelation of the field:
 *
 *   L[dm][dn] = sum_{i, j} conj(W_i) W_j V_ij,   (dm, dn) = cell of j - cell of i,   0 <= dm,
 *   V_ij = sum_t conj(E_i[t]) E_j[t],            sum_t |Y[t][p][q]|^2 = transform of L, which is hermitian.
 *
 * V is summed in integers, exactly. The dishes of a row of the grid have lanes next to each other, so that a
 * row of V is added to a row of L as it stands. Lanes past a row's end have no dish and hold zeros. Each dish
 * i is multiplied with the lanes behind it, its own among them, in its row and in all rows that follow. (With
 * up to seven lanes before it as well: what that adds to L[0] is at negative dn, and not used.) The fastest
 * products of bytes want one factor without a sign:
 *
 *   u = E_i + 8,   x = (re, im) and y = (im, -re) of E_j:   u . x = Re V + 8 sum of x,   u . y = Im V + 8 ...
 *
 * Pieces of a block are summed when all their samples are there, by their place in the block: no bit depends
 * on how it was handed over. */
#include "kernels/frb_grid/cpu/lags.h"
#include "kernels/common/aligned.h"
#include "kernels/common/cpu.h"
#include "kernels/frb_grid/plan.h"

#include <stdlib.h>
#include <string.h>

/* --- the inner loops for any processor --- */

static void spread_generic(const struct frb_grid_lag_scratch *s, const uint8_t *samples, size_t npol,
                           size_t lanes, unsigned pairs)
{
    memset(s->x_off, 0, npol * lanes * sizeof *s->x_off);
    memset(s->y_off, 0, npol * lanes * sizeof *s->y_off);
    for (size_t t = 0; t < (size_t)2 * pairs; t++)
        for (size_t pol = 0; pol < npol; pol++)
            for (size_t l = 0; l < lanes; l++, samples++) {
                size_t at = ((pol * pairs + t / 2) * lanes + l) * 4 + t % 2 * 2;
                int re = (*samples & 15) ^ 8, im = *samples >> 4 ^ 8; /* plus 8 */
                s->u[at] = (uint8_t)re, s->u[at + 1] = (uint8_t)im;
                s->x[at] = (int8_t)(re - 8), s->x[at + 1] = (int8_t)(im - 8);
                s->y[at] = (int8_t)(im - 8), s->y[at + 1] = (int8_t)(8 - re);
                s->x_off[pol * lanes + l] -= 8 * (re + im - 16);
                s->y_off[pol * lanes + l] -= 8 * (im - re);
            }
}

/* sum + u . x, over pairs of samples that are `step` bytes apart. */
static int32_t dot(int32_t sum, const uint8_t *u, const int8_t *x, unsigned pairs, size_t step)
{
    for (size_t k = 0; k < pairs * step; k += step)
        sum += u[k] * x[k] + u[k + 1] * x[k + 1] + u[k + 2] * x[k + 2] + u[k + 3] * x[k + 3];
    return sum;
}

static void multiply_generic(const struct frb_grid_products *p)
{
    const struct frb_grid_lag_scratch *s = p->s;
    size_t step = 4 * p->lanes;
    for (size_t l = p->from; l < p->used; l++) s->re[l] = s->im[l] = 0;
    for (size_t pol = 0; pol < p->npol; pol++) {
        size_t at = pol * p->pairs * step, off = pol * p->lanes;
        const float *w_re = p->weights ? p->weights + pol * 2 * p->lanes : NULL,
                    *w_im = p->weights ? w_re + p->lanes : NULL;
        for (size_t l = p->from; l < p->used; l++) {
            const uint8_t *u = s->u + at + 4 * p->lane;
            float v_re = (float)dot(s->x_off[off + l], u, s->x + at + 4 * l, p->pairs, step),
                  v_im = (float)dot(s->y_off[off + l], u, s->y + at + 4 * l, p->pairs, step);
            if (p->weights) {
                float a_re = v_re * w_re[l] - v_im * w_im[l], a_im = v_re * w_im[l] + v_im * w_re[l];
                v_re = a_re * w_re[p->lane] + a_im * w_im[p->lane];
                v_im = a_im * w_re[p->lane] - a_re * w_im[p->lane];
            }
            s->re[l] += v_re;
            s->im[l] += v_im;
        }
    }
}

static void add_generic(const struct frb_grid_products *p, const struct frb_grid_row *row,
                        const struct frb_grid_row *end, float *re, float *im, size_t pitch, size_t shift)
{
    for (const struct frb_grid_row *r = row; r < end; r++) {
        size_t to = (r->m - row->m) * pitch + r->n + shift;
        for (size_t l = r == row ? p->skip : 0; l < r->width; l++) {
            re[to + l] += p->s->re[r->lane + l];
            im[to + l] += p->s->im[r->lane + l];
        }
    }
}

static const struct frb_grid_lag_loops loops_generic = {spread_generic, multiply_generic, add_generic};

/* --- blocks --- */

static void sum_piece(const struct br_frb_grid *plan, const struct frb_grid_lag_scratch *s,
                      const float *weights, struct frb_grid_lags *lags)
{
    const struct frb_grid_lag_plan *lp = plan->by_lags;
    struct frb_grid_products p = {
        .s = s, .weights = weights, .npol = plan->npol, .lanes = lp->lanes, .used = lp->used};
    if (!weights) p.npol = 1; /* the other one's samples are more of the same */
    p.pairs = (unsigned)((lags->filled * (plan->npol / p.npol) + 1) / 2);
    lp->loops->spread(s, lags->samples, p.npol, p.lanes, p.pairs);
    for (size_t i = 0; i < plan->ndishes; i++) {
        const struct frb_grid_row *row = lp->dish[i].row;
        p.lane = lp->dish[i].lane;
        size_t place = p.lane - row->lane, n = row->n + place;
        p.from = p.lane / FRB_GRID_LANES * FRB_GRID_LANES;
        p.skip = place / FRB_GRID_ROW * FRB_GRID_ROW;
        lp->loops->multiply(&p);
        lp->loops->add(&p, row, lp->row + lp->nrows, lags->re, lags->im, lp->pitch, plan->grid_n - 1 - n);
    }
    memset(lags->samples, 0, lags->filled * plan->npol * lp->lanes);
    lags->filled = 0;
}

/* One polarisation of a sample to the lanes. */
static void place(const struct frb_grid_lag_plan *lp, const uint8_t *restrict e, uint8_t *restrict to)
{
    for (const struct frb_grid_run *r = lp->run; r < lp->run + lp->nruns; r++) {
        if (r->count == 8)
            memcpy(to + r->lane, e + r->dish, 8);
        else if (r->count == 4)
            memcpy(to + r->lane, e + r->dish, 4);
        else
            to[r->lane] = e[r->dish];
    }
}

/* Samples of one channel are far from each other: those of the next piece are on their way while this one is
 * summed. */
static void fetch(const struct br_frb_grid *plan, const uint8_t *e)
{
    enum { LINE = 64 };
    for (size_t k = 0; k < plan->npol * plan->ndishes; k += LINE) __builtin_prefetch(e + k);
}

static const float *weights_of(const struct br_frb_grid *plan, size_t f)
{
    if (!plan->lane_weights) return NULL;
    return plan->lane_weights + (plan->weight_channels == 1 ? 0 : f) * plan->npol * 2 * plan->by_lags->lanes;
}

uint64_t br_frb_grid_lags_add(const struct br_frb_grid *plan, const struct frb_grid_lag_scratch *scratch,
                              struct frb_grid_lags *lags, const struct frb_grid_part *part)
{
    const struct frb_grid_lag_plan *lp = plan->by_lags;
    const float *weights = weights_of(plan, part->f);
    uint64_t shares = 0;
    for (unsigned t = 0; t < part->nsteps; t++) {
        unsigned slot = (part->first + t) % lp->piece;
        const uint8_t *valid = part->e_valid ? part->e_valid + t * part->valid_row : NULL,
                      *e = part->e + t * part->row;
        if (t + lp->piece < part->nsteps + part->ahead) fetch(plan, e + lp->piece * part->row);
        if (slot == 0 && lags->filled > 0) sum_piece(plan, scratch, weights, lags);
        if (valid && !*valid) continue;
        shares += valid ? *valid : 255;
        uint8_t *restrict to = lags->samples + slot * plan->npol * lp->lanes;
        for (size_t pol = 0; pol < plan->npol; pol++, to += lp->lanes, e += plan->ndishes) place(lp, e, to);
        lags->filled = slot + 1;
    }
    return shares;
}

const float *br_frb_grid_lags_finish(const struct br_frb_grid *plan,
                                     const struct frb_grid_lag_scratch *scratch, struct frb_grid_lags *lags,
                                     size_t f, bool wanted)
{
    const struct frb_grid_lag_plan *lp = plan->by_lags;
    size_t M = plan->grid_m, N = plan->grid_n, bytes = M * lp->pitch * sizeof *lags->re;
    if (wanted) {
        if (lags->filled > 0) sum_piece(plan, scratch, weights_of(plan, f), lags);
        memset(scratch->half, 0, 2 * N * (M + 1) * sizeof *scratch->half);
        for (size_t n = 0; n < 2 * N - 1; n++) {
            fftwf_complex *to = scratch->half + (n + N + 1) % (2 * N) * (M + 1);
            for (size_t m = 0; m < M; m++) {
                to[m][0] = lags->re[m * lp->pitch + n];
                to[m][1] = lags->im[m * lp->pitch + n];
            }
            if (n >= N - 1) continue;
            to[0][0] = lags->re[2 * (N - 1) - n];
            to[0][1] = -lags->im[2 * (N - 1) - n];
        }
        fftwf_execute_dft_c2r(lp->transform, scratch->half, scratch->image);
    }
    memset(lags->samples, 0, lags->filled * plan->npol * lp->lanes);
    lags->filled = 0;
    memset(lags->re, 0, bytes);
    memset(lags->im, 0, bytes);
    return wanted ? scratch->image : NULL;
}

/* --- plans --- */

/* Rows; returns the lanes that are used. `row`: room for M. */
static size_t make_rows(const struct br_frb_grid *plan, const uint16_t *dish_cell, struct frb_grid_row *row,
                        size_t *nrows)
{
    size_t lanes = 0;
    *nrows = 0;
    for (unsigned m = 0; m < plan->grid_m; m++) {
        unsigned low = plan->grid_n, end = 0;
        for (size_t d = 0; d < plan->ndishes; d++) {
            unsigned n = dish_cell[2 * d + 1];
            if (dish_cell[2 * d] != m) continue;
            if (n < low) low = n;
            if (n >= end) end = n + 1;
        }
        if (end == 0) continue;
        row[(*nrows)++] = (struct frb_grid_row){m, low, lanes, br_round_up(end - low, FRB_GRID_ROW)};
        lanes += br_round_up(end - low, FRB_GRID_ROW);
    }
    return br_round_up(lanes, FRB_GRID_LANES);
}

/* The block in pieces of nearly the same length. */
static unsigned piece_of(unsigned downsample)
{
    unsigned pieces = (downsample + FRB_GRID_PIECE - 1) / FRB_GRID_PIECE;
    return (downsample + pieces - 1) / pieces;
}

static size_t pitch_of(unsigned grid_n)
{
    return 2 * grid_n - 1 + FRB_GRID_ROW;
}

size_t br_frb_grid_lags_bytes(const struct br_frb_grid *plan, const uint16_t *dish_cell, size_t workers)
{
    struct frb_grid_row row[64];
    size_t nrows, lanes = br_round_up(make_rows(plan, dish_cell, row, &nrows), (size_t)2 * FRB_GRID_LANES),
                  M = plan->grid_m, N = plan->grid_n;
    size_t one = sizeof(struct frb_grid_lags) + 2 * M * pitch_of(plan->grid_n) * sizeof(float) +
                 br_round_up(piece_of(plan->downsample), 2) * plan->npol * lanes,
           scratch = 3 * plan->npol * FRB_GRID_PIECE / 2 * lanes * 4 +
                     2 * (plan->npol + 1) * lanes * sizeof(float) + 2 * N * (M + 1) * sizeof(fftwf_complex) +
                     plan->cells * sizeof(float);
    return 2 * plan->nchannels * one + workers * (one + scratch);
}

/* Nanoseconds for a block of one channel with weights, both ways, as measured on one processor with AVX2. The
 * shape alone decides, so that the bits are the same on all, and plans with other weights go on where one
 * stops. Larger grids do not pay: pairs of dishes grow faster than transforms, and their samples leave the
 * first cache. */
bool br_frb_grid_lags_pay(const struct br_frb_grid *plan, const uint16_t *dish_cell)
{
    enum { MOST_LANES = 160 };
    struct frb_grid_row row[64];
    size_t nrows, lanes = make_rows(plan, dish_cell, row, &nrows), pairs = 0;
    if (lanes > MOST_LANES || plan->npol > 2) return false; /* sums of two fit into 16 bits */
    for (size_t d = 0; d < plan->ndishes; d++)
        for (const struct frb_grid_row *r = row; r < row + nrows; r++)
            if (r->m == dish_cell[2 * d])
                pairs += lanes - (r->lane + dish_cell[2 * d + 1] - r->n) / FRB_GRID_LANES * FRB_GRID_LANES;
    bool powers = (plan->grid_m & (plan->grid_m - 1)) == 0 && (plan->grid_n & (plan->grid_n - 1)) == 0;
    double samples = (double)plan->downsample * (double)plan->npol,
           transforms = (double)plan->cells * (powers ? 0.8 : 1.25) * samples,
           products = (double)pairs * (0.034 * samples + 0.5 + 0.35 * (double)plan->npol),
           additions = 2 * (double)(plan->ndishes * nrows);
    return 1.1 * (products + additions) < transforms;
}

/* Dishes, and runs of 8, 4 or 1 of them, by lane. */
static void make_runs(struct br_frb_grid *plan, const uint16_t *dish_cell)
{
    struct frb_grid_lag_plan *lp = plan->by_lags;
    size_t i = 0;
    for (const struct frb_grid_row *r = lp->row; r < lp->row + lp->nrows; r++)
        for (size_t l = 0; l < r->width; l++) {
            size_t d = 0;
            while (d < plan->ndishes && (dish_cell[2 * d] != r->m || dish_cell[2 * d + 1] != r->n + l)) d++;
            if (d == plan->ndishes) continue;
            lp->dish[i++] = (struct frb_grid_dish){d, r->lane + l, r};
        }
    for (size_t count; i > 0; i -= count) {
        const struct frb_grid_dish *first = lp->dish + plan->ndishes - i;
        for (count = 1; count < i && first[count].dish == first->dish + count &&
                        first[count].lane == first->lane + count;)
            count++;
        count = count >= 8 ? 8 : count >= 4 ? 4 : 1;
        lp->run[lp->nruns++] = (struct frb_grid_run){first->dish, first->lane, count};
    }
}

static int make_dishes(struct br_frb_grid *plan, const struct br_frb_grid_params *params)
{
    struct frb_grid_lag_plan *lp = plan->by_lags;
    lp->row = calloc(plan->grid_m, sizeof *lp->row);
    lp->dish = calloc(plan->ndishes, sizeof *lp->dish);
    lp->run = calloc(plan->ndishes, sizeof *lp->run);
    if (!lp->row || !lp->dish || !lp->run) return -1;
    lp->used = make_rows(plan, params->dish_cell, lp->row, &lp->nrows);
    lp->lanes = br_round_up(lp->used, (size_t)2 * FRB_GRID_LANES);
    make_runs(plan, params->dish_cell);
    if (!params->weights) return 0;
    plan->lane_weights =
        br_aligned_zeros(plan->weight_channels * plan->npol * 2 * lp->lanes, sizeof(float));
    if (!plan->lane_weights) return -1;
    for (size_t k = 0; k < plan->weight_channels * plan->npol; k++)
        for (size_t i = 0; i < plan->ndishes; i++) {
            float *w = plan->lane_weights + k * 2 * lp->lanes + lp->dish[i].lane;
            const float *given = params->weights + (k * plan->ndishes + lp->dish[i].dish) * 2;
            w[0] = given[0];
            w[lp->lanes] = given[1];
        }
    return 0;
}

int br_frb_grid_lag_plan_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params)
{
    struct frb_grid_lag_plan *lp = plan->by_lags = calloc(1, sizeof *lp);
    if (!lp) return -1;
    lp->piece = piece_of(plan->downsample);
    lp->pitch = pitch_of(plan->grid_n);
    lp->loops = &loops_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) lp->loops = &br_frb_grid_lag_avx2;
#endif
    if (make_dishes(plan, params) != 0) return -1;
    struct frb_grid_lag_scratch *s = br_frb_grid_lag_scratch_create(plan);
    if (!s) return -1;
    fftwf_make_planner_thread_safe();
    lp->transform = fftwf_plan_dft_c2r_2d((int)(2 * plan->grid_n), (int)(2 * plan->grid_m), s->half, s->image,
                                          FFTW_ESTIMATE);
    br_frb_grid_lag_scratch_destroy(s);
    return lp->transform ? 0 : -1;
}

void br_frb_grid_lag_plan_destroy(struct br_frb_grid *plan)
{
    struct frb_grid_lag_plan *lp = plan->by_lags;
    if (!lp) return;
    if (lp->transform) fftwf_destroy_plan(lp->transform);
    free(lp->row);
    free(lp->dish);
    free(lp->run);
    free(lp);
}

struct frb_grid_lags *br_frb_grid_lags_create(const struct br_frb_grid *plan, size_t count)
{
    const struct frb_grid_lag_plan *lp = plan->by_lags;
    size_t sums = plan->grid_m * lp->pitch;
    struct frb_grid_lags *lags = calloc(count, sizeof *lags);
    for (size_t i = 0; lags && i < count; i++) {
        lags[i].samples = calloc(br_round_up(lp->piece, 2) * plan->npol, lp->lanes);
        lags[i].re = calloc(2 * sums, sizeof *lags[i].re);
        lags[i].im = lags[i].re ? lags[i].re + sums : NULL;
        if (lags[i].samples && lags[i].re) continue;
        br_frb_grid_lags_destroy(lags, count);
        return NULL;
    }
    return lags;
}

void br_frb_grid_lags_destroy(struct frb_grid_lags *lags, size_t count)
{
    for (size_t i = 0; lags && i < count; i++) {
        free(lags[i].samples);
        free(lags[i].re);
    }
    free(lags);
}

struct frb_grid_lag_scratch *br_frb_grid_lag_scratch_create(const struct br_frb_grid *plan)
{
    size_t lanes = plan->by_lags->lanes, bytes = plan->npol * FRB_GRID_PIECE / 2 * lanes * 4;
    struct frb_grid_lag_scratch *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->u = br_aligned_zeros(bytes, 1);
    s->x = br_aligned_zeros(bytes, 1);
    s->y = br_aligned_zeros(bytes, 1);
    s->x_off = br_aligned_zeros(plan->npol * lanes, sizeof *s->x_off);
    s->y_off = br_aligned_zeros(plan->npol * lanes, sizeof *s->y_off);
    s->re = br_aligned_zeros(lanes, sizeof *s->re);
    s->im = br_aligned_zeros(lanes, sizeof *s->im);
    s->half = br_aligned_zeros(2 * plan->grid_n * (plan->grid_m + 1), sizeof *s->half);
    s->image = br_aligned_zeros(plan->cells, sizeof *s->image);
    if (s->u && s->x && s->y && s->x_off && s->y_off && s->re && s->im && s->half && s->image) return s;
    br_frb_grid_lag_scratch_destroy(s);
    return NULL;
}

void br_frb_grid_lag_scratch_destroy(struct frb_grid_lag_scratch *s)
{
    if (!s) return;
    free(s->u);
    free(s->x);
    free(s->y);
    free(s->x_off);
    free(s->y_off);
    free(s->re);
    free(s->im);
    free(s->half);
    free(s->image);
    free(s);
}
