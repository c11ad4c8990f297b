/* The fast filterbank: tables in float32, loop over tiles of the row, and the portable kernels. */
#include "kernels/common/cpu.h"
#include "kernels/common/aligned.h"
#include "kernels/upchannelize/cpu/transform.h"
#include "kernels/upchannelize/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static void unpack_portable(float *field, const uint8_t *rows, size_t count)
{
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < LANES; i++) {
            unsigned e = rows[t * TILE + i];
            field[(2 * t) * LANES + i] = (float)((int)((e & 15) ^ 8) - 8);
            field[(2 * t + 1) * LANES + i] = (float)((int)(e >> 4 ^ 8) - 8);
        }
}

static void transform_portable(const struct upchannelize_filter *filter, const float *field, float *spectrum)
{
    upchannelize_transform(filter, field, spectrum);
}

static inline unsigned quantize_one(float value, unsigned *clamped)
{
    long level = lrintf(value);
    *clamped += level > 7 || level < -7;
    return (unsigned)(level > 7 ? 7 : level < -7 ? -7 : level) & 15;
}

static unsigned quantize_portable(const struct upchannelize_filter *filter, const float *spectrum,
                                  const uint8_t *keep, uint8_t *packed)
{
    unsigned clamped = 0;
    for (unsigned u = 0; u < filter->U; u++) {
        const float *re = spectrum + (size_t)filter->position[u] * 2 * LANES, *im = re + LANES;
        for (size_t i = 0; i < LANES; i++) {
            unsigned count = 0;
            unsigned low = quantize_one(re[i] * filter->gain[u], &count);
            unsigned high = quantize_one(im[i] * filter->gain[u], &count);
            packed[u * TILE + i] = (uint8_t)(keep[i] ? low | high << 4 : 0x88);
            clamped += keep[i] ? count : 0;
        }
    }
    return clamped;
}

static float *twiddles(float *out, size_t n, double odd, size_t q_first)
{
    for (size_t j = 0; j < n / 4; j++)
        for (size_t q = q_first; q < 4; q++) {
            double phase = -2 * pi * (double)j * ((double)q + odd) / (double)n;
            *out++ = (float)cos(phase);
            *out++ = (float)sin(phase);
        }
    return out;
}

static void fill_filter(struct upchannelize_filter *filter, const double *window, const double *gain)
{
    size_t U = filter->U, M = filter->M, ways = U == 2 ? 2 : 4, N = U / ways;
    /* The taps are scaled to 1, so that no window is too small or too large for float32. */
    double largest = 0;
    for (size_t s = 0; s < M * U; s++) largest = fmax(largest, fabs(window[s]));
    if (largest == 0) largest = 1;
    for (size_t j = 0; j < N; j++)
        for (size_t m = 0; m < M; m++)
            for (size_t k = 0; k < ways; k++) {
                size_t step = j + k * N;
                double tap = window[m * U + step] / largest * ((m + step) % 2 ? -1 : 1);
                filter->taps[(j * M + m) * ways + k] = (float)(ways == 4 && k % 2 ? tap * sqrt(0.5) : tap);
            }
    twiddles(filter->first, U, 0.5, 0);
    float *later = filter->later;
    for (size_t n = U / 4; n > 4; n /= 4) later = twiddles(later, n, 0, 1);
    for (size_t u = 0; u < U; u++) {
        size_t n = U, rest = u, position = 0;
        for (; n >= 4; n /= 4, rest /= 4) position += rest % 4 * (n / 4);
        filter->position[u] = (uint16_t)(position + rest % n);
        filter->gain[u] = (float)(gain[u] * largest);
    }
}

static int make_scratch(struct br_upchannelize *plan)
{
    size_t U = plan->U, rows = (plan->M - 1 + plan->part) * U;
    unsigned workers = br_parallel_workers(&plan->parallel);
    plan->scratch = calloc(workers, sizeof *plan->scratch);
    if (!plan->scratch) return -1;
    plan->nscratch = workers;
    for (unsigned i = 0; i < workers; i++) {
        struct upchannelize_scratch *s = &plan->scratch[i];
        s->rows = br_aligned_zeros(rows * TILE, 1);
        s->field = br_aligned_zeros(rows * 2 * LANES, sizeof *s->field);
        s->spectrum = br_aligned_zeros(U * 2 * LANES, sizeof *s->spectrum);
        s->packed = br_aligned_zeros(plan->part * U * TILE, 1);
        s->keep = br_aligned_zeros(plan->part * TILE, 1);
        if (!s->rows || !s->field || !s->spectrum || !s->packed || !s->keep) return -1;
    }
    return 0;
}

int br_upchannelize_cpu_create(struct br_upchannelize *plan)
{
    struct upchannelize_filter *filter = &plan->filter;
    size_t U = plan->U, M = plan->M;
    filter->U = plan->U;
    filter->M = plan->M;
    filter->taps = br_aligned_zeros(M * U, sizeof *filter->taps);
    filter->first = br_aligned_zeros(U * 2, sizeof *filter->first);
    filter->later = br_aligned_zeros(U * 2, sizeof *filter->later);
    filter->gain = br_aligned_zeros(U, sizeof *filter->gain);
    filter->position = br_aligned_zeros(U, sizeof *filter->position);
    if (!filter->taps || !filter->first || !filter->later || !filter->gain || !filter->position ||
        make_scratch(plan) != 0)
        return -1;
    fill_filter(filter, plan->window, plan->gain);
    plan->unpack = unpack_portable;
    plan->transform = transform_portable;
    plan->quantize = quantize_portable;
#if BR_X86_64
    if (br_cpu_has_avx2() && br_cpu_has_fma()) {
        plan->unpack = br_upchannelize_unpack_avx2;
        plan->transform = br_upchannelize_transform_avx2;
        plan->quantize = br_upchannelize_quantize_avx2;
    }
#endif
    return 0;
}

void br_upchannelize_cpu_destroy(struct br_upchannelize *plan)
{
    free(plan->filter.taps);
    free(plan->filter.first);
    free(plan->filter.later);
    free(plan->filter.gain);
    free(plan->filter.position);
    for (unsigned i = 0; i < plan->nscratch; i++) {
        free(plan->scratch[i].rows);
        free(plan->scratch[i].field);
        free(plan->scratch[i].spectrum);
        free(plan->scratch[i].packed);
        free(plan->scratch[i].keep);
    }
    free(plan->scratch);
}

/* A tile may hold samples of several channels: the next piece of one channel, or nothing. */
struct piece {
    size_t lane, count, channel, spectator;
};

static int next_piece(struct piece *piece, size_t tile, size_t width, size_t X)
{
    piece->lane += piece->count;
    if (piece->lane == width) return 0;
    size_t at = tile * TILE + piece->lane, rest = width - piece->lane;
    piece->channel = at / X;
    piece->spectator = at % X;
    piece->count = X - piece->spectator < rest ? X - piece->spectator : rest;
    return 1;
}

/* s->keep for this tile; returns 0 if nothing is wanted of it. */
static int want(const struct br_upchannelize *plan, struct upchannelize_scratch *s,
                const struct upchannelize_job *job, size_t tile, size_t width)
{
    int any = 0;
    memset(s->keep, 0, job->blocks * TILE);
    for (struct piece p = {0}; next_piece(&p, tile, width, plan->nspectators);)
        for (size_t b = 0; b < job->blocks; b++)
            if (!job->missing[b * plan->nchannels + p.channel]) {
                memset(s->keep + b * TILE + p.lane, 255, p.count);
                any = 1;
            }
    return any;
}

static void load_rows(const struct br_upchannelize *plan, struct upchannelize_scratch *s,
                      const struct upchannelize_job *job, size_t tile, size_t width)
{
    ptrdiff_t before = (ptrdiff_t)((plan->M - 1) * plan->U), after = (ptrdiff_t)(job->blocks * plan->U);
    uint8_t *rows = s->rows;
    for (ptrdiff_t t = -before; t < after; t++, rows += TILE) {
        const uint8_t *e = upchannelize_row(plan, job, -t) + tile * TILE;
        if (width == TILE)
            memcpy(rows, e, TILE);
        else
            memcpy(rows, e, width);
    }
}

static void store_rows(const struct br_upchannelize *plan, const struct upchannelize_scratch *s,
                       const struct upchannelize_job *job, size_t tile, size_t width)
{
    size_t F = plan->nchannels, U = plan->U, X = plan->nspectators;
    for (struct piece p = {0}; next_piece(&p, tile, width, X);)
        for (size_t b = 0; b < job->blocks; b++)
            for (size_t u = 0; u < U; u++) {
                uint8_t *out = job->out + (((job->first + b) * F + p.channel) * U + u) * X + p.spectator;
                const uint8_t *packed = s->packed + (b * U + u) * TILE + p.lane;
                if (p.count == TILE)
                    memcpy(out, packed, TILE);
                else
                    memcpy(out, packed, p.count);
            }
}

static void do_tile(const struct br_upchannelize *plan, struct upchannelize_scratch *s,
                    const struct upchannelize_job *job, size_t tile)
{
    size_t length = plan->nchannels * plan->nspectators, U = plan->U;
    size_t width = length - tile * TILE < TILE ? length - tile * TILE : TILE;
    if (!want(plan, s, job, tile, width)) {
        memset(s->packed, 0x88, job->blocks * U * TILE);
        store_rows(plan, s, job, tile, width);
        return;
    }
    load_rows(plan, s, job, tile, width);
    for (size_t lane = 0; lane < width; lane += LANES) {
        plan->unpack(s->field, s->rows + lane, (plan->M - 1 + job->blocks) * U);
        for (size_t b = 0; b < job->blocks; b++) {
            plan->transform(&plan->filter, s->field + b * U * 2 * LANES, s->spectrum);
            s->clamped += plan->quantize(&plan->filter, s->spectrum, s->keep + b * TILE + lane,
                                         s->packed + b * U * TILE + lane);
        }
    }
    store_rows(plan, s, job, tile, width);
}

struct work {
    struct br_upchannelize *plan;
    const struct upchannelize_job *job;
    size_t tiles;
};

/* A tile of a part of the job's blocks. */
static void do_part(void *arg, size_t number, unsigned worker)
{
    const struct work *work = arg;
    struct br_upchannelize *plan = work->plan;
    struct upchannelize_job job = *work->job;
    size_t first = number / work->tiles * plan->part, left = job.blocks - first;
    job.first += first;
    job.blocks = left < plan->part ? left : plan->part;
    job.missing += first * plan->nchannels;
    do_tile(plan, &plan->scratch[worker], &job, number % work->tiles);
}

uint64_t br_upchannelize_cpu(struct br_upchannelize *plan, const struct upchannelize_job *job)
{
    size_t tiles = (plan->nchannels * plan->nspectators + TILE - 1) / TILE;
    struct work work = {plan, job, tiles};
    br_parallel_for(&plan->parallel, tiles * ((job->blocks + plan->part - 1) / plan->part), do_part, &work);
    uint64_t clamped = 0;
    for (unsigned i = 0; i < plan->nscratch; i++) {
        clamped += plan->scratch[i].clamped;
        plan->scratch[i].clamped = 0;
    }
    return clamped;
}
