/* The unpacker on the CPU, one channel of one block of packets at a time: its runs of inputs are put side
 * by side in a buffer that stays in the cache, [sample][position], there converted and added up, and stored
 * as whole rows of E. Channels are taken as they stand in packets, so that every source is read from its
 * start to its end. */
#include "kernels/common/cpu.h"
#include "kernels/unpack/plan.h"

#include <stdlib.h>
#include <string.h>
#if BR_X86_64
#include <xmmintrin.h>
#endif

void br_unpack_convert_generic(uint8_t *rows, size_t count, size_t width, uint8_t flip, bool swap,
                               uint32_t *s1, uint32_t *s2)
{
    static const uint8_t square[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 49, 36, 25, 16, 9, 4, 1};
    for (size_t t = 0; t < count; t++, rows += width)
        for (size_t n = 0; n < width; n++) {
            unsigned byte = rows[n] ^ flip;
            rows[n] = (uint8_t)(swap ? byte >> 4 | byte << 4 : byte);
            if (!s1) continue;
            uint32_t power = (uint32_t)square[byte & 15] + square[byte >> 4];
            s1[n] += power;
            s2[n] += power * power;
        }
}

static void store_generic(uint8_t *to, size_t stride, const uint8_t *rows, size_t count, size_t width,
                          size_t n)
{
    for (size_t t = 0; t < count; t++) memcpy(to + t * stride, rows + t * width, n);
}

static const struct unpack_loops loops_generic = {br_unpack_convert_generic, store_generic};
#if BR_X86_64
static const struct unpack_loops loops_avx2 = {br_unpack_convert_avx2, br_unpack_store_avx2};
#endif

/* Channels by the place of their bytes. */
static void sort_channels(const struct br_unpack_params *p, size_t *order)
{
    size_t next = 0;
    for (size_t at = 0; at < p->nstreams * p->packet_channels; at++) order[at] = SIZE_MAX;
    for (size_t f = 0; f < p->nchannels; f++) {
        size_t inside = p->channel_offset[f] - p->channel_stream[f] * p->packet_bytes;
        size_t c = p->channel_stride > 0 ? inside / p->channel_stride : 0;
        order[p->channel_stream[f] * p->packet_channels + (c < p->packet_channels ? c : 0)] = f;
    }
    for (size_t at = 0; at < p->nchannels; at++) next += order[at] != SIZE_MAX;
    if (next == p->nchannels) return; /* else packets have gaps, and any order will do */
    for (size_t f = 0; f < p->nchannels; f++) order[f] = f;
}

int br_unpack_cpu_create(struct br_unpack *plan)
{
    const struct br_unpack_params *p = &plan->p;
    size_t sums = p->sum_samples > 0 ? p->nchannels : 0;
    plan->width = (p->npositions + 31) / 32 * 32;
    plan->order = malloc(p->nchannels * sizeof *plan->order);
    plan->rows = aligned_alloc(64, ((p->packet_samples + 1) * plan->width + 63) / 64 * 64);
    plan->s1 = calloc(sums * plan->width + 1, sizeof *plan->s1);
    plan->s2 = calloc(sums * plan->width + 1, sizeof *plan->s2);
    plan->came = calloc(p->nstreams * p->nsources, sizeof *plan->came);
    if (!plan->order || !plan->rows || !plan->s1 || !plan->s2 || !plan->came) return -1;
    sort_channels(p, plan->order);
    plan->full = p->ninputs == plan->width;
    plan->loops = &loops_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) plan->loops = &loops_avx2;
#endif
    return 0;
}

void br_unpack_cpu_destroy(struct br_unpack *plan)
{
    free(plan->order);
    free(plan->rows);
    free(plan->s1);
    free(plan->s2);
    free(plan->came);
}

#define COPY_RUNS(BYTES)                                                                                     \
    for (size_t t = 0; t < count; t++) memcpy(to + t * width, from + t * stride, BYTES)

/* `count` pieces of `length` bytes; the usual lengths are moves. */
static inline void copy_run(uint8_t *to, size_t width, const uint8_t *from, size_t stride, size_t count,
                            size_t length)
{
    switch (length) {
    case 1:
        COPY_RUNS(1);
        break;
    case 4:
        COPY_RUNS(4);
        break;
    case 8:
        COPY_RUNS(8);
        break;
    case 12:
        COPY_RUNS(12);
        break;
    case 16:
        COPY_RUNS(16);
        break;
    case 64:
        COPY_RUNS(64);
        break;
    default:
        COPY_RUNS(length);
        break;
    }
}

static void gather(struct br_unpack *plan, size_t f, const uint8_t *block, const uint8_t *receipt)
{
    const struct br_unpack_params *p = &plan->p;
    uint8_t zero = p->offset_binary ? 0x88 : 0;
    size_t stream = p->channel_stream[f];
    for (size_t r = 0; r < plan->nruns; r++) {
        const struct unpack_run *run = &plan->run[r];
        uint8_t *to = plan->rows + run->position;
        if (unpack_came(receipt, run->source * p->nstreams + stream))
            copy_run(to, plan->width, block + p->channel_offset[f] + run->offset, p->time_stride,
                     p->packet_samples, run->length);
        else
            for (size_t t = 0; t < p->packet_samples; t++) memset(to + t * plan->width, zero, run->length);
    }
}

static void write_sums(struct br_unpack *plan, uint32_t *sums)
{
    const struct br_unpack_params *p = &plan->p;
    size_t N = p->npositions;
    for (size_t f = 0; f < p->nchannels; f++, sums += BR_UNPACK_SUMS * N) {
        for (size_t n = 0; n < N; n++) {
            size_t i = plan->input_at[n];
            sums[n] = i == SIZE_MAX ? 0 : plan->came[p->channel_stream[f] * p->nsources + p->input_source[i]];
        }
        memcpy(sums + N, plan->s1 + f * plan->width, N * sizeof *sums);
        memcpy(sums + 2 * N, plan->s2 + f * plan->width, N * sizeof *sums);
    }
    memset(plan->s1, 0, p->nchannels * plan->width * sizeof *plan->s1);
    memset(plan->s2, 0, p->nchannels * plan->width * sizeof *plan->s2);
    memset(plan->came, 0, p->nstreams * p->nsources * sizeof *plan->came);
}

void br_unpack_cpu(struct br_unpack *plan, size_t nblocks, const uint8_t *in, const uint8_t *receipt,
                   uint8_t *out, uint32_t *sums)
{
    const struct br_unpack_params *p = &plan->p;
    size_t N = p->npositions, stride = p->nchannels * N, samples = p->packet_samples;
    uint8_t flip = p->offset_binary ? 0x88 : 0;
    for (size_t b = 0; b < nblocks; b++) {
        const uint8_t *bits = receipt ? receipt + b * p->receipt_bytes : NULL;
        for (size_t k = 0; k < p->nchannels; k++) {
            size_t f = plan->order[k];
            /* Cells without an input, and the row behind the last one, hold a zero in the packets' coding. */
            memset(plan->rows + (plan->full ? samples * plan->width : 0), flip,
                   (plan->full ? 1 : samples + 1) * plan->width);
            gather(plan, f, in + b * plan->block_bytes, bits);
            plan->loops->convert(plan->rows, samples, plan->width, flip, p->real_high,
                                 sums ? plan->s1 + f * plan->width : NULL,
                                 sums ? plan->s2 + f * plan->width : NULL);
            plan->loops->store(out + (b * samples * p->nchannels + f) * N, stride, plan->rows, samples,
                               plan->width, N);
        }
        if (!sums) continue;
        for (size_t s = 0; s < p->nsources; s++)
            for (size_t stream = 0; stream < p->nstreams; stream++)
                if (unpack_came(bits, s * p->nstreams + stream))
                    plan->came[stream * p->nsources + s] += (uint32_t)samples;
        size_t each = p->sum_samples / samples;
        if ((b + 1) % each == 0 || b + 1 == nblocks)
            write_sums(plan, sums + b / each * stride * BR_UNPACK_SUMS);
    }
#if BR_X86_64
    _mm_sfence(); /* the rows stored past the cache are seen by others from here on */
#endif
}
