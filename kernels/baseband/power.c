/* power.c - the power of beams, whatever computes it: blocks and their validity, and slabs of samples. */
#include "buffers/half.h"
#include "kernels/baseband/plan.h"
#include "kernels/common/aligned.h"
#include "kernels/common/exchange.h"
#include "kernels/common/validity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB = 4096, TIMES = 128, SCRATCH = 32 << 20, MIN_LOG2 = -126, MAX_LOG2 = 126 };

int br_baseband_log2_scale(const struct br_baseband_params *p, double most)
{
    double power = (double)p->integrate * (double)p->npol * 128 * most * most / 65504;
    return power > 0 ? (int)ceil(log2(power)) : 0;
}

static size_t columns_of(const struct br_baseband_params *p)
{
    return p->nbeams + (p->incoherent != NULL ? 1 : 0);
}

/* Samples of a slab. On a GPU the powers of all its samples are in memory at once, or the sums of groups: few
 * enough to stay in the L2. */
static size_t slab_of(const struct br_baseband_params *p, enum br_backend backend)
{
    size_t n = SCRATCH / (p->nchannels * p->npol * columns_of(p) * sizeof(float)) / TIMES * TIMES;
    return backend != BR_CUDA ? SLAB : n < TIMES ? TIMES : n > SLAB ? SLAB : n;
}

size_t br_baseband_power_device_bytes(const struct br_baseband_params *p)
{
    size_t per = p->nchannels * p->npol * columns_of(p) * sizeof(float),
           tables = p->weight_channels * p->npol;
    return per * (slab_of(p, BR_CUDA) + 2 * GROUP) + 2 * p->nchannels * columns_of(p) * sizeof(float) +
           tables * (p->nbeams + p->ndishes) * sizeof(float);
}

size_t br_baseband_power_host_bytes(const struct br_baseband_params *p, size_t workers)
{
    size_t width = (p->nbeams + OCTET - 1) / OCTET * OCTET + OCTET, blocks = SLAB * GROUP / p->integrate + 2;
    return p->nchannels * (2 * columns_of(p) * (1 + p->npol * GROUP) + blocks) * sizeof(float) +
           workers * width * 8 * sizeof(float);
}

static int check(const struct br_baseband_params *p, struct br_why *why)
{
    if (p->bits == 8) return br_because(why, "a plan that integrates has no output of 8 bits");
    if (p->integrate > 1u << 24)
        return br_because(why, "%u samples in one output; at most %u", p->integrate, 1u << 24);
    if (!(p->threshold >= 0 && p->threshold <= 1))
        return br_because(why, "threshold is %g; expected 0 to 1", p->threshold);
    if (p->log2_scale < MIN_LOG2 || p->log2_scale > MAX_LOG2)
        return br_because(why, "log2_scale is %d; expected %d to %d", p->log2_scale, MIN_LOG2, MAX_LOG2);
    return 0;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    if (to) memcpy(to, from, bytes);
    return to;
}

int br_baseband_power_create(struct br_baseband *plan, const struct br_baseband_params *p, struct br_why *why)
{
    if (p->integrate == 0) return 0;
    if (check(p, why) != 0) return -1;
    struct power_state *s = plan->power = calloc(1, sizeof *s);
    size_t rows = p->weight_channels * p->npol, F = p->nchannels;
    if (!s) return br_because(why, "no memory for the power of beams");
    s->integrate = p->integrate;
    s->threshold = p->threshold;
    s->log2_scale = p->log2_scale;
    s->subtract = p->incoherent && p->subtract;
    s->columns = columns_of(p);
    s->slab = slab_of(p, plan->backend);
    s->scale = malloc(rows * p->nbeams * sizeof *s->scale);
    if (p->incoherent) s->incoherent = copy_of(p->incoherent, rows * p->ndishes * sizeof *s->incoherent);
    s->shares = calloc(F, sizeof *s->shares);
    s->factor = calloc(F * (s->slab * GROUP / s->integrate + 2), sizeof *s->factor);
    if (!s->scale || !s->shares || !s->factor || (p->incoherent && !s->incoherent))
        return br_because(why, "no memory for the power of %zu beams", p->nbeams);
    for (size_t i = 0; i < rows * p->nbeams; i++) s->scale[i] = ldexpf(1, -2 * p->shift[i]);
    if (plan->backend == BR_CUDA) return 0; /* its sums are on the device */
    for (int i = 0; i < 2; i++) {
        s->running[i] = calloc(F * s->columns, sizeof(float));
        s->rest[i] = calloc(F * p->npol * GROUP * s->columns, sizeof(float));
        if (!s->running[i] || !s->rest[i])
            return br_because(why, "no memory for the power of %zu beams", p->nbeams);
    }
    return 0;
}

void br_baseband_power_destroy(struct br_baseband *plan)
{
    struct power_state *s = plan->power;
    if (!s) return;
    for (int i = 0; i < 2 && plan->backend != BR_CUDA; i++) {
        free(s->running[i]);
        free(s->rest[i]);
    }
    free(s->scale);
    free(s->incoherent);
    free(s->shares);
    free(s->factor);
    free(s);
}

/* Whether what both write is alike. */
bool br_baseband_power_alike(const struct br_baseband *a, const struct br_baseband *b)
{
    const struct power_state *x = a->power, *y = b->power;
    if (!x || !y) return x == y;
    return x->integrate == y->integrate && x->log2_scale == y->log2_scale && x->columns == y->columns &&
           x->subtract == y->subtract;
}

void br_baseband_power_exchange(struct br_baseband *a, struct br_baseband *b)
{
    if (!a->power) return;
    BR_EXCHANGE(float *, a->power, b->power, scale);
    BR_EXCHANGE(int32_t *, a->power, b->power, incoherent);
}

void br_baseband_power_begin(struct br_baseband *plan, unsigned phase)
{
    struct power_state *s = plan->power;
    s->position = phase;
    memset(s->shares, 0, plan->nchannels * sizeof *s->shares);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_baseband_cuda_power_begin(plan);
        return;
    }
#endif
    memset(s->running[s->now], 0, plan->nchannels * s->columns * sizeof(float));
    memset(s->rest[s->now], 0, plan->nchannels * plan->npol * GROUP * s->columns * sizeof(float));
}

/* Adds the shares of a span's samples; where the block ends, writes its validity and its factor. */
static void close_span(struct br_baseband *plan, const struct power_slab *slab, const struct power_span *span,
                       size_t k, size_t nblocks, uint8_t *out_valid, size_t valid_stride)
{
    struct power_state *s = plan->power;
    const size_t F = plan->nchannels, n = span->end - span->begin;
    const uint64_t total = (uint64_t)s->integrate * VALID_WHOLE;
    const float whole = ldexpf(1, -s->log2_scale);
    for (size_t t = 0; slab->e_valid && t < n; t++)
        for (size_t f = 0; f < F; f++) s->shares[f] += slab->e_valid[(span->at + t) * F + f];
    for (size_t f = 0; f < F; f++) {
        if (!slab->e_valid) s->shares[f] += n * VALID_WHOLE;
        if (!span->ends) continue;
        const uint64_t shares = s->shares[f];
        uint8_t *valid = out_valid + f * valid_stride + k;
        float *factor = s->factor + f * nblocks + k;
        s->shares[f] = 0;
        if (shares == total) { /* most are: without divisions */
            *valid = VALID_WHOLE;
            *factor = whole;
            continue;
        }
        const bool masked = (double)shares / (double)total < s->threshold || shares == 0;
        *valid = masked ? 0 : validity_share(shares, total);
        *factor = masked ? 0 : (float)ldexp((double)total / (double)shares, -s->log2_scale);
    }
}

/* Closes all spans at once where no block of the slab lacks a sample; false: nothing is done. */
static bool close_whole(struct br_baseband *plan, const struct power_slab *slab, uint8_t *out_valid,
                        size_t valid_stride)
{
    struct power_state *s = plan->power;
    const size_t F = plan->nchannels, reached = s->position + slab->nsteps,
                 ended = slab->nblocks * (size_t)s->integrate;
    if (reached < ended || (slab->e_valid && !validity_complete(slab->e_valid, slab->nsteps * F)))
        return false;
    for (size_t f = 0; f < F; f++)
        if (s->shares[f] != (uint64_t)s->position * VALID_WHOLE) return false;
    for (size_t f = 0; f < F; f++) {
        if (slab->nblocks > 0) memset(out_valid + f * valid_stride, VALID_WHOLE, slab->nblocks);
        s->shares[f] = (uint64_t)(reached - ended) * VALID_WHOLE;
    }
    s->factor[0] = ldexpf(1, -s->log2_scale);
    return true;
}

void br_baseband_power_finish(const struct power_state *s, const float *sum, float factor, uint16_t *out)
{
    const size_t width = s->columns - s->subtract;
    const float less = s->subtract ? sum[s->columns - 1] : 0;
    for (size_t b = 0; b < width; b++)
        out[b] = factor == 0 ? 0 : br_half_from_float(fminf((sum[b] - less) * factor, BR_HALF_MAX));
}

static void run(struct br_baseband *plan, struct power_slab *slab, uint8_t *out_valid, size_t valid_stride)
{
    struct power_state *s = plan->power;
    size_t spans = power_spans(s, slab);
    slab->alike = close_whole(plan, slab, out_valid, valid_stride);
    for (size_t k = 0; k < spans && !slab->alike; k++) {
        const struct power_span span = power_span(s, slab, k);
        close_span(plan, slab, &span, k, slab->nblocks, out_valid, valid_stride);
    }
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_baseband_cuda_power(plan, slab);
#endif
    if (plan->backend == BR_REFERENCE) br_baseband_reference_power(plan, slab);
    if (plan->backend == BR_CPU) br_baseband_cpu_power(plan, slab);
    s->position = (unsigned)((s->position + slab->nsteps) % s->integrate);
    s->now ^= 1;
}

/* How many of the samples that are left the next slab has. Where groups can, on a GPU, they are whole. */
static size_t next_slab(const struct br_baseband *plan, size_t left)
{
    const struct power_state *s = plan->power;
    size_t most = s->slab, into = s->position % GROUP;
    if (plan->backend == BR_CUDA && s->integrate % GROUP == 0) {
        if (into > 0)
            most = GROUP - into;
        else if (left >= GROUP)
            most = (left < s->slab * GROUP ? left : s->slab * GROUP) / GROUP * GROUP;
    }
    return left < most ? left : most;
}

size_t br_baseband_power(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                         size_t max_blocks, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                         size_t valid_stride, size_t *taken)
{
    struct power_state *s = plan->power;
    const size_t F = plan->nchannels, width = s->columns - s->subtract;
    size_t most = max_blocks * s->integrate - s->position, done = 0, n;
    if (max_blocks == 0) most = 0;
    if (nsteps > most) nsteps = most;
    *taken = nsteps;
    for (size_t at = 0; at < nsteps; at += n) {
        n = next_slab(plan, nsteps - at);
        struct power_slab slab = {e + at * F * plan->npol * plan->ndishes,
                                  e_valid ? e_valid + at * F : NULL,
                                  n,
                                  (s->position + n) / s->integrate,
                                  out + done * width,
                                  out_stride};
        run(plan, &slab, out_valid + done, valid_stride);
        done += slab.nblocks;
    }
    return done;
}

size_t br_baseband_power_flush(struct br_baseband *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                               size_t valid_stride)
{
    struct power_state *s = plan->power;
    if (s->position == 0) return 0;
    struct power_slab slab = {.nblocks = 1, .out = out, .out_stride = out_stride};
    run(plan, &slab, out_valid, valid_stride);
    s->position = 0;
    return 1;
}
