#include "kernels/baseband/plan.h"
#include "kernels/common/exchange.h"
#include "kernels/common/validity.h"

#include <stdlib.h>
#include <string.h>

static int check(const struct br_baseband_params *p, struct br_why *why)
{
    if (p->nchannels < 1 || p->npol < 1 || p->nbeams < 1 || p->ndishes < 1)
        return br_because(why,
                          "%zu channels, %zu polarisations, %zu beams, %zu dishes: each must be at least 1",
                          p->nchannels, p->npol, p->nbeams, p->ndishes);
    if (p->ndishes > 65536)
        return br_because(why, "%zu dishes: at most 65536, so that sums fit 32 bits", p->ndishes);
    if (p->weight_channels != 1 && p->weight_channels != p->nchannels)
        return br_because(why, "weights for %zu channels: expected 1 (shared by all) or %zu",
                          p->weight_channels, p->nchannels);
    if (!p->weights || !p->shift) return br_because(why, "weights and shifts are needed");
    if (p->bits != 0 && p->bits != 4 && p->bits != 8)
        return br_because(why, "components of %u bits; expected 4 or 8", p->bits);

    size_t bytes;
    if (__builtin_mul_overflow(p->weight_channels, p->npol, &bytes) ||
        __builtin_mul_overflow(bytes, p->nbeams + OCTET, &bytes) ||
        __builtin_mul_overflow(bytes, 2 * (p->ndishes + CHUNK), &bytes))
        return br_because(why, "the weights do not fit into memory");

    for (size_t wf = 0; wf < p->weight_channels; wf++)
        for (size_t pol = 0; pol < p->npol; pol++)
            for (size_t b = 0; b < p->nbeams; b++) {
                size_t beam = (wf * p->npol + pol) * p->nbeams + b;
                const int8_t *w = p->weights + beam * p->ndishes * 2;
                int32_t s = p->shift[beam];
                if (s < 0 || s > 30)
                    return br_because(
                        why, "shift[%zu][%zu][%zu] (channel, polarisation, beam) is %d; expected 0 to 30", wf,
                        pol, b, (int)s);
                const int8_t *bad = memchr(w, 0x80, 2 * p->ndishes);
                size_t i = bad != NULL ? (size_t)(bad - w) : 0;
                if (bad != NULL)
                    return br_because(
                        why,
                        "weights[%zu][%zu][%zu][%zu][%zu] (channel, polarisation, beam, dish, %s) is "
                        "-128; expected -127 to 127",
                        wf, pol, b, i / 2, i % 2, i % 2 ? "imaginary" : "real");
            }
    return 0;
}

int br_baseband_create(struct br_baseband **result, enum br_backend backend,
                       const struct br_baseband_params *params, struct br_why *why)
{
    *result = NULL;
    if (check(params, why) != 0) return -1;
    struct br_baseband *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the baseband beamformer");
    plan->backend = backend;
    plan->nchannels = params->nchannels;
    plan->npol = params->npol;
    plan->nbeams = params->nbeams;
    plan->ndishes = params->ndishes;
    plan->weight_channels = params->weight_channels;
    plan->parallel = params->parallel;
    plan->bits = params->bits == 8 ? 8 : 4;
    if (br_baseband_power_create(plan, params, why) != 0) {
        br_baseband_destroy(plan);
        return -1;
    }

    plan->recent = calloc(params->nbeams, sizeof *plan->recent);
    plan->clamped = calloc(params->nbeams, sizeof *plan->clamped);
    int failed = !plan->recent || !plan->clamped;
    if (!failed && backend == BR_CUDA) {
#if BR_WITH_CUDA
        failed = params->cuda ? br_baseband_cuda_create(plan, params, why)
                              : br_because(why, "the baseband beamformer on a GPU needs a br_cuda");
#else
        failed = br_because(why, "this beamring was built without CUDA");
#endif
        if (failed) {
            br_baseband_destroy(plan);
            return -1;
        }
    } else if (!failed && backend == BR_REFERENCE) {
        size_t beams = plan->weight_channels * plan->npol * plan->nbeams;
        plan->given_weights = malloc(beams * plan->ndishes * 2);
        plan->given_shift = malloc(beams * sizeof *plan->given_shift);
        failed = !plan->given_weights || !plan->given_shift;
        if (!failed) {
            memcpy(plan->given_weights, params->weights, beams * plan->ndishes * 2);
            memcpy(plan->given_shift, params->shift, beams * sizeof *plan->given_shift);
        }
    } else if (!failed) {
        failed = br_baseband_cpu_create(plan, params) != 0;
    }
    if (failed) {
        br_baseband_destroy(plan);
        return br_because(why, "no memory for the weights of %zu beams and %zu dishes", params->nbeams,
                          params->ndishes);
    }
    *result = plan;
    return 0;
}

void br_baseband_destroy(struct br_baseband *plan)
{
    if (!plan) return;
#if BR_WITH_CUDA
    br_baseband_cuda_destroy(plan);
#endif
    br_baseband_power_destroy(plan);
    free(plan->recent);
    free(plan->clamped);
    free(plan->given_weights);
    free(plan->given_shift);
    br_baseband_cpu_destroy(plan);
    free(plan);
}

int br_baseband_may_exchange(const struct br_baseband *plan, const struct br_baseband *with,
                             struct br_why *why)
{
    if (plan->backend != with->backend || plan->nchannels != with->nchannels || plan->npol != with->npol ||
        plan->nbeams != with->nbeams || plan->ndishes != with->ndishes)
        return br_because(why, "the beamformers have different shapes");
    if (plan->bits != with->bits || !br_baseband_power_alike(plan, with))
        return br_because(why, "the beamformers have different outputs");
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA && !br_baseband_cuda_alike(plan, with))
        return br_because(why, "these weights need another kernel on a GPU than the one that runs");
#endif
    return 0;
}

void br_baseband_exchange(struct br_baseband *plan, struct br_baseband *with)
{
    BR_EXCHANGE(size_t, plan, with, weight_channels);
    BR_EXCHANGE(int8_t *, plan, with, given_weights);
    BR_EXCHANGE(int32_t *, plan, with, given_shift);
    BR_EXCHANGE(int8_t *, plan, with, weights);
    BR_EXCHANGE(int32_t *, plan, with, offset);
    BR_EXCHANGE(int32_t *, plan, with, shift);
    BR_EXCHANGE(float *, plan, with, scale);
    br_baseband_power_exchange(plan, with);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_baseband_cuda_exchange(plan, with);
#endif
}

/* valid [T][F] to out_valid [F][T]. Mostly few samples are missing, which memchr finds one by one; where
 * many are, or some are there in part, all of a block is transposed, which takes less than one by one. */
static void transpose_validity(uint8_t *out_valid, const uint8_t *valid, size_t nsteps, size_t nchannels)
{
    enum { BLOCK = 64, MANY = 64 }; /* steps; of so many samples one */
    memset(out_valid, 255, nsteps * nchannels);
    for (size_t begin = 0; begin < nsteps; begin += BLOCK) {
        size_t steps = nsteps - begin < BLOCK ? nsteps - begin : BLOCK;
        size_t most = steps * nchannels / MANY, n = 0;
        const uint8_t *from = valid + begin * nchannels, *end = from + steps * nchannels, *gap = from;
        uint8_t *to = out_valid + begin;
        if (validity_has_shares(from, (size_t)(end - from))) n = most + 1;
        for (; n <= most && (gap = memchr(gap, 0, (size_t)(end - gap))) != NULL; n++, gap++)
            to[(size_t)(gap - from) % nchannels * nsteps + (size_t)(gap - from) / nchannels] = 0;
        if (n <= most) continue;
        for (size_t f = 0; f < nchannels; f++)
            for (size_t t = 0; t < steps; t++) to[f * nsteps + t] = from[t * nchannels + f];
    }
}

uint64_t br_baseband_execute(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                             size_t nsteps, uint8_t *out, uint8_t *out_valid, uint64_t *saturated)
{
    size_t nchannels = plan->nchannels;
    if (out_valid && e_valid)
        transpose_validity(out_valid, e_valid, nsteps, nchannels);
    else if (out_valid)
        memset(out_valid, 255, nchannels * nsteps);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_baseband_cuda(plan, e, e_valid, nsteps, out);
        return 0;
    }
#endif
    memset(plan->recent, 0, plan->nbeams * sizeof *plan->recent);
    uint64_t total = plan->backend == BR_REFERENCE
                         ? br_baseband_reference(plan, e, e_valid, nsteps, out, plan->recent)
                         : br_baseband_cpu(plan, e, e_valid, nsteps, out, plan->recent);
    for (size_t b = 0; b < plan->nbeams; b++) {
        plan->clamped[b] += plan->recent[b];
        if (saturated) saturated[b] += plan->recent[b];
    }
    return total;
}

uint64_t br_baseband_saturated(struct br_baseband *plan, uint64_t *per_beam)
{
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA && br_baseband_cuda_clamped(plan, plan->clamped) != 0)
        memset(plan->clamped, 0, plan->nbeams * sizeof *plan->clamped);
#endif
    uint64_t total = 0;
    for (size_t b = 0; b < plan->nbeams; b++) {
        if (per_beam) per_beam[b] = plan->clamped[b];
        total += plan->clamped[b];
    }
    return total;
}
