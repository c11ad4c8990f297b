/* The correlator on the CPU. Products of bytes are the fastest exact ones there are, so a channel's nibbles
 * become rows of bytes, one per input:
 *   x = [real parts | imaginary parts]      y = [imaginary parts | -real parts]
 * so that  Re V = x[i] . x[j]  and  Im V = y[i] . x[j].  The instruction wants one operand without a sign:
 * u = x + 8, and what that adds, 8 times the sum of x[i] or y[i], is taken off again. */
#include "kernels/common/cpu.h"
#include "kernels/correlate/plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    CELL = 16,  /* samples and inputs that are spread at a time */
    STRIP = 128 /* rows u that are used again and again: 0.5 MiB */
};

static void spread_generic(const uint8_t *const *row, int8_t *x, int8_t *y, uint8_t *u, size_t half)
{
    for (size_t n = 0; n < CELL; n++)
        for (size_t t = 0; t < CELL; t++) {
            size_t at = n * CORRELATE_ROW + t;
            int real = (row[t][n] & 15) ^ 8, imag = row[t][n] >> 4 ^ 8; /* their values plus 8 */
            u[at] = (uint8_t)real, u[at + half] = (uint8_t)imag;
            x[at] = (int8_t)(real - 8), x[at + half] = (int8_t)(imag - 8);
            y[at] = (int8_t)(imag - 8), y[at + half] = (int8_t)(8 - real);
        }
}

static void block_generic(const int8_t *x, const int8_t *y, const uint8_t *u, size_t bytes,
                          int32_t out[CORRELATE_I][CORRELATE_J][2])
{
    for (size_t i = 0; i < CORRELATE_I; i++)
        for (size_t j = 0; j < CORRELATE_J; j++) {
            const int8_t *xi = x + i * CORRELATE_ROW, *yi = y + i * CORRELATE_ROW;
            const uint8_t *uj = u + j * CORRELATE_ROW;
            int32_t re = 0, im = 0;
            for (size_t k = 0; k < bytes; k++) {
                re += xi[k] * uj[k];
                im += yi[k] * uj[k];
            }
            out[i][j][0] = re, out[i][j][1] = im;
        }
}

static const struct correlate_loops loops_generic = {spread_generic, block_generic};
#if BR_X86_64
static const struct correlate_loops loops_avx2 = {br_correlate_spread_avx2, br_correlate_block_avx2};
#endif

static size_t rows_of(const struct br_correlate *plan)
{
    return (plan->p.ninputs + CORRELATE_J + CELL) / CELL * CELL; /* blocks reach behind the last input */
}

int br_correlate_cpu_create(struct br_correlate *plan)
{
    plan->worker_bytes = rows_of(plan) * CORRELATE_ROW;
    size_t bytes = br_parallel_workers(&plan->p.parallel) * plan->worker_bytes;
    plan->loops = &loops_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) plan->loops = &loops_avx2;
#endif
    if (plan->p.autos) return 0;
    plan->x = aligned_alloc(64, bytes);
    plan->y = aligned_alloc(64, bytes);
    plan->u = aligned_alloc(64, bytes);
    if (!plan->x || !plan->y || !plan->u) return -1;
    memset(plan->x, 0, bytes);
    memset(plan->y, 0, bytes);
    memset(plan->u, 0, bytes);
    return 0;
}

void br_correlate_cpu_destroy(struct br_correlate *plan)
{
    free(plan->x);
    free(plan->y);
    free(plan->u);
}

/* A call, for its jobs: a channel each. */
struct call {
    struct br_correlate *plan;
    size_t nsamples;
    const uint8_t *e, *valid;
};

/* `count` samples of channel f into a worker's rows; returns the bytes of half a row. Samples that are
 * missing, or fill the last cell, are 0. */
static size_t spread(const struct br_correlate *plan, size_t rows, const uint8_t *e, const uint8_t *valid,
                     size_t f, size_t count)
{
    static const uint8_t zero[CELL];
    size_t F = plan->p.nchannels, N = plan->p.ninputs, half = (count + CELL - 1) / CELL * CELL;
    uint8_t edge[CELL][CELL];
    for (size_t t = 0; t < half; t += CELL)
        for (size_t n = 0; n < N; n += CELL) {
            const uint8_t *row[CELL];
            for (size_t k = 0; k < CELL; k++) {
                size_t cell = (t + k) * F + f;
                bool there = t + k < count && (!valid || valid[cell] != 0);
                row[k] = there ? e + cell * N + n : zero;
                if (N - n >= CELL || !there) continue;
                memset(edge[k], 0, CELL);
                row[k] = memcpy(edge[k], row[k], N - n);
            }
            size_t at = rows + n * CORRELATE_ROW + t;
            plan->loops->spread(row, plan->x + at, plan->y + at, plan->u + at, half);
        }
    return half;
}

static int32_t sum_of(const int8_t *row, size_t bytes)
{
    int32_t sum = 0;
    for (size_t k = 0; k < bytes; k++) sum += row[k];
    return sum;
}

/* Products of all inputs with those of [from, from + STRIP): their rows u stay in the cache. */
static void add_strip(const struct br_correlate *plan, size_t rows, size_t f, size_t bytes, size_t from)
{
    size_t N = plan->p.ninputs;
    int32_t *sum = plan->sum + f * plan->nbaselines * 2, part[CORRELATE_I][CORRELATE_J][2];
    size_t end = N - from < STRIP ? N : from + STRIP;
    for (size_t i0 = 0; i0 < end; i0 += CORRELATE_I) {
        const int8_t *x = plan->x + rows + i0 * CORRELATE_ROW, *y = plan->y + rows + i0 * CORRELATE_ROW;
        int32_t more[CORRELATE_I][2];
        for (size_t i = 0; i < CORRELATE_I; i++) {
            more[i][0] = 8 * sum_of(x + i * CORRELATE_ROW, bytes);
            more[i][1] = 8 * sum_of(y + i * CORRELATE_ROW, bytes);
        }
        for (size_t j0 = i0 > from ? i0 : from; j0 < end; j0 += CORRELATE_J) {
            plan->loops->block(x, y, plan->u + rows + j0 * CORRELATE_ROW, bytes, part);
            for (size_t i = i0; i < i0 + CORRELATE_I && i < N; i++)
                for (size_t j = j0 < i ? i : j0; j < j0 + CORRELATE_J && j < N; j++) {
                    int32_t *v = sum + 2 * correlate_baseline(i, j, N);
                    v[0] += part[i - i0][j - j0][0] - more[i - i0][0];
                    v[1] += part[i - i0][j - j0][1] - more[i - i0][1];
                }
        }
    }
}

static void add_channel(void *arg, size_t f, unsigned worker)
{
    const struct call *c = arg;
    const struct br_correlate *plan = c->plan;
    size_t F = plan->p.nchannels, N = plan->p.ninputs, rows = worker * plan->worker_bytes;
    for (size_t t = 0; t < c->nsamples; t += CORRELATE_CHUNK) {
        size_t count = c->nsamples - t < CORRELATE_CHUNK ? c->nsamples - t : CORRELATE_CHUNK;
        size_t half = spread(plan, rows, c->e + t * F * N, c->valid ? c->valid + t * F : NULL, f, count);
        for (size_t n = 0; n < N; n += STRIP) add_strip(plan, rows, f, 2 * half, n);
    }
}

static void add_autos(void *arg, size_t f, unsigned worker)
{
    const struct call *c = arg;
    size_t F = c->plan->p.nchannels, N = c->plan->p.ninputs;
    int32_t *sum = c->plan->sum + f * N * 2;
    (void)worker;
    for (size_t cell = f; cell < c->nsamples * F; cell += F) {
        const uint8_t *in = c->e + cell * N;
        if (c->valid && c->valid[cell] == 0) continue;
        for (size_t n = 0; n < N; n++) {
            int real = ((in[n] & 15) ^ 8) - 8, imag = (in[n] >> 4 ^ 8) - 8;
            sum[2 * n] += real * real + imag * imag;
        }
    }
}

void br_correlate_cpu(struct br_correlate *plan, size_t nsamples, const uint8_t *e, const uint8_t *valid)
{
    struct call call = {plan, nsamples, e, valid};
    br_parallel_for(&plan->p.parallel, plan->p.nchannels, plan->p.autos ? add_autos : add_channel, &call);
}
