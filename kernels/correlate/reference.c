/* The correlator as its equation says it, one product after the other in int64. */
#include "kernels/correlate/plan.h"

static int nibble(unsigned bits)
{
    return (int)(bits & 15) - (bits & 8 ? 16 : 0);
}

static void add(int64_t *sum, uint8_t a, uint8_t b)
{
    int ar = nibble(a), ai = nibble(a >> 4), br = nibble(b), bi = nibble(b >> 4);
    sum[0] += ar * br + ai * bi;
    sum[1] += ai * br - ar * bi;
}

void br_correlate_reference(struct br_correlate *plan, size_t nsamples, const uint8_t *e,
                            const uint8_t *valid)
{
    size_t F = plan->p.nchannels, N = plan->p.ninputs;
    for (size_t t = 0; t < nsamples; t++)
        for (size_t f = 0; f < F; f++) {
            const uint8_t *in = e + (t * F + f) * N;
            int64_t *sum = plan->sum64 + f * plan->nbaselines * 2;
            if (valid && valid[t * F + f] == 0) continue;
            for (size_t i = 0; i < N; i++)
                for (size_t j = i; j < (plan->p.autos ? i + 1 : N); j++)
                    add(sum + 2 * (plan->p.autos ? i : correlate_baseline(i, j, N)), in[i], in[j]);
        }
}
