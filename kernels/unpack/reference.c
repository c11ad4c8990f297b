/* The definition, one sample at a time. */
#include "kernels/unpack/plan.h"

#include <string.h>

static int component(const struct br_unpack_params *p, unsigned nibble)
{
    if (p->offset_binary) return (int)nibble - 8;
    return nibble < 8 ? (int)nibble : (int)nibble - 16;
}

static void one(const struct br_unpack *plan, size_t t, size_t f, size_t n, const uint8_t *in,
                const uint8_t *receipt, uint8_t *out, uint32_t *sums)
{
    const struct br_unpack_params *p = &plan->p;
    size_t block = t / p->packet_samples, i = plan->input_at[n];
    if (i == SIZE_MAX || !unpack_came(receipt, block * p->receipt_bytes * 8 +
                                                   p->input_source[i] * p->nstreams + p->channel_stream[f]))
        return;
    unsigned byte = in[block * plan->block_bytes + t % p->packet_samples * p->time_stride +
                       p->channel_offset[f] + p->input_offset[i]];
    int re = component(p, p->real_high ? byte >> 4 : byte & 15);
    int im = component(p, p->real_high ? byte & 15 : byte >> 4);
    unsigned power = (unsigned)(re * re + im * im);
    out[(t * p->nchannels + f) * p->npositions + n] = (uint8_t)((re & 15) | (im & 15) << 4);
    if (!sums) return;
    uint32_t *s = sums + (t / p->sum_samples * p->nchannels + f) * BR_UNPACK_SUMS * p->npositions + n;
    s[0] += 1;
    s[p->npositions] += power;
    s[2 * p->npositions] += power * power;
}

void br_unpack_reference(const struct br_unpack *plan, size_t nblocks, const uint8_t *in,
                         const uint8_t *receipt, uint8_t *out, uint32_t *sums)
{
    const struct br_unpack_params *p = &plan->p;
    size_t samples = nblocks * p->packet_samples, cells = p->nchannels * p->npositions;
    memset(out, 0, samples * cells);
    if (sums)
        memset(sums, 0,
               (samples + p->sum_samples - 1) / p->sum_samples * cells * BR_UNPACK_SUMS * sizeof *sums);
    for (size_t t = 0; t < samples; t++)
        for (size_t f = 0; f < p->nchannels; f++)
            for (size_t n = 0; n < p->npositions; n++) one(plan, t, f, n, in, receipt, out, sums);
}
