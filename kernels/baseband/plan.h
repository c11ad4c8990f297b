/* plan.h - the plan of the baseband beamformer, and what its parts share. Internal to kernels/baseband/.
 *
 * The fast path computes eight beams (an octet) at a time for a block of times. The electric field is
 * unpacked to unsigned bytes e + 8 in [0, 15], two bytes (re, im) per dish, dishes padded to whole chunks
 * of 16. Weights are stored in pairs of bytes that multiply these pairs: (A_re, -A_im) for the real part of
 * the product, (A_im, A_re) for its imaginary part,
 *
 *   weights[wf][p][octet][dish pair][re, im][beam of octet][dish of pair][2]
 *
 * with weight 0 for padding dishes and beams. One addend subtracts the +8 and rounds:
 *
 *   offset[wf][p][octet][re, im][beam] = 2^(s-1) - 8 sum(weights) */
#ifndef BEAMRING_KERNELS_BASEBAND_PLAN_H
#define BEAMRING_KERNELS_BASEBAND_PLAN_H

#include "kernels/baseband/baseband.h"
#include "kernels/baseband/power.h"

#include <stdbool.h>

/* Beams of an octet, dishes of a chunk: 8 pair products of at most 2 * 15 * 127 can be added in 16 bits. */
enum { OCTET = 8, CHUNK = 16 };

#ifdef __cplusplus
extern "C" {
#endif

/* Eight beams for a block of times, in one channel and polarisation. For a plan that integrates `power` is
 * the output, and `shift` and the members from `out` to `clamped` are not set. */
struct octet_job {
    const int8_t *weights; /* of this octet */
    const int32_t *offset; /* [2][OCTET] */
    const int32_t *shift;  /* [OCTET] */
    const uint8_t *field;  /* [times rounded up to 3][chunks * CHUNK * 2] */
    size_t chunks;
    const uint8_t *valid; /* [times] or NULL */
    size_t times;
    uint8_t *out;      /* first beam's row, at the first time */
    size_t out_stride; /* bytes from one beam's row to the next */
    size_t beams;      /* rows to write, 1 to OCTET */
    uint8_t *bytes;    /* scratch [times rounded up to 8][OCTET] samples */
    uint64_t *clamped; /* [OCTET], added to */
    float *power;      /* [times][OCTET] */
};

/* The memory of one worker. */
struct baseband_scratch {
    uint8_t *field;    /* [block][chunks * CHUNK * 2] */
    uint8_t *bytes;    /* [block][OCTET] samples */
    uint8_t *valid;    /* [block] */
    uint64_t *clamped; /* [octets * OCTET], of one execute */

    /* For a plan that integrates: powers of an octet's samples [block][OCTET]; sums of groups, octet by octet
     * [block / GROUP][OCTET]; sums of the unfinished block [octets][OCTET]. */
    float *power, *groups, *running;
};

/* The sums of a plan that integrates. Groups of GROUP samples are added as a tree: see power.h. */
enum { GROUP = 16 };

struct power_state {
    unsigned integrate, position; /* position: samples of the unfinished block */
    double threshold;
    int log2_scale;
    bool subtract;
    size_t columns; /* of sums: the beams, then the incoherent sum if there is one */
    size_t slab;  /* samples of a slab at most, a multiple of GROUP; whole groups on a GPU: GROUP times it */
    float *scale; /* [wf][P][B] 4^-s */
    int32_t *incoherent; /* [wf][P][D] or NULL */

    uint64_t *shares; /* [F] of the unfinished block */
    float *factor;    /* [F][blocks of a slab] multiplies the sums; 0: masked; see power_factor() */

    /* The unfinished block, on the host or the device: the sum of its whole groups [F][columns], and the
     * powers of the samples behind these [F][P][GROUP][columns]. [now] is the state before a slab, [now ^ 1]
     * the one after it. */
    float *running[2], *rest[2];
    unsigned now;

    struct br_baseband_power_device *device; /* NULL: not on a GPU */
};

/* A slab: `nsteps` samples from the unfinished block's `position` on, which end `nblocks` blocks. A flush
 * ends the last block early. */
struct power_slab {
    const uint8_t *e, *e_valid; /* e_valid NULL: every sample is complete */
    size_t nsteps, nblocks;
    uint16_t *out; /* [F][out_stride][columns, without an incoherent sum that is subtracted] */
    size_t out_stride;
    bool alike; /* all blocks of all channels have factor[0] */
};

/* Span k of a slab: the samples that it has of one block. Sample `at` of the slab is sample `begin` of the
 * block; the span ends before the block's sample `end`. */
struct power_span {
    size_t at, begin, end;
    bool ends; /* the slab completes the block */
};

static inline size_t power_spans(const struct power_state *s, const struct power_slab *slab)
{
    size_t reached = s->position + slab->nsteps;
    return slab->nblocks + (reached > slab->nblocks * s->integrate ? 1 : 0);
}

static inline struct power_span power_span(const struct power_state *s, const struct power_slab *slab,
                                           size_t k)
{
    size_t begin = k == 0 ? s->position : 0, at = k == 0 ? 0 : k * s->integrate - s->position,
           left = slab->nsteps - at, room = s->integrate - begin;
    return (struct power_span){at, begin, begin + (left < room ? left : room), k < slab->nblocks};
}

/* Sum of GROUP values, `stride` apart, in the order of power.h. */
static inline float power_tree(const float *value, size_t stride)
{
    float sum[GROUP];
    for (size_t i = 0; i < GROUP; i++) sum[i] = value[i * stride];
    for (size_t n = GROUP / 2; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++) sum[i] = sum[2 * i] + sum[2 * i + 1];
    return sum[0];
}

/* The factor of channel f in block k of a slab. */
static inline float power_factor(const struct power_state *s, const struct power_slab *slab, size_t f,
                                 size_t k)
{
    return s->factor[slab->alike ? 0 : f * slab->nblocks + k];
}

/* float16 bits of one row of sums times `factor`. sum [columns]; out [columns], or without the incoherent sum
 * if the plan subtracts it. */
void br_baseband_power_finish(const struct power_state *s, const float *sum, float factor, uint16_t *out);

struct br_baseband {
    enum br_backend backend;
    size_t nchannels, npol, nbeams, ndishes, weight_channels;
    unsigned bits;             /* 4 or 8 */
    struct power_state *power; /* NULL: voltages */

    /* reference */
    int8_t *given_weights; /* [wf][P][B][D][2] */
    int32_t *given_shift;  /* [wf][P][B] */

    /* cpu */
    size_t octets, chunks, block; /* block: the most times that are unpacked at once, a multiple of 24 */
    int8_t *weights;
    int32_t *offset, *shift; /* [wf][P][octets][2][OCTET], [wf][P][octets][OCTET] */
    struct br_parallel parallel;
    unsigned nscratch;
    struct baseband_scratch *scratch; /* [nscratch]: one for each worker */
    void (*unpack)(uint8_t *field, const uint8_t *e, size_t ndishes);
    void (*octet)(const struct octet_job *job);
    float *scale; /* [wf][P][octets][OCTET] 4^-s, if the plan integrates */

    /* Clamped values [B]: of one execute (not on a GPU); of all so far. */
    uint64_t *recent, *clamped;

    /* cuda */
    struct br_cuda *cuda;
    struct br_baseband_device *device; /* tables and counters on the device */
};

int br_baseband_cpu_create(struct br_baseband *plan, const struct br_baseband_params *params);
void br_baseband_cpu_destroy(struct br_baseband *plan);
uint64_t br_baseband_cpu(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                         uint8_t *out, uint64_t *saturated);
uint64_t br_baseband_reference(const struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                               size_t nsteps, uint8_t *out, uint64_t *saturated);

/* power.c: do nothing for a plan that does not integrate. */
int br_baseband_power_create(struct br_baseband *plan, const struct br_baseband_params *params,
                             struct br_why *why);
void br_baseband_power_destroy(struct br_baseband *plan);
bool br_baseband_power_alike(const struct br_baseband *a, const struct br_baseband *b);
void br_baseband_power_exchange(struct br_baseband *a, struct br_baseband *b);

/* A slab of a plan that integrates. */
void br_baseband_cuda_power_begin(struct br_baseband *plan);
void br_baseband_cuda_power(struct br_baseband *plan, const struct power_slab *slab);
int br_baseband_cpu_power_create(struct br_baseband *plan);
void br_baseband_cpu_power(struct br_baseband *plan, const struct power_slab *slab);
void br_baseband_reference_power(struct br_baseband *plan, const struct power_slab *slab);

/* If create fails, destroy must still be called: it frees the parts that exist. `clamped` waits for the
 * stream and fills per_beam [B]; it returns -1 after a failure. */
int br_baseband_cuda_create(struct br_baseband *plan, const struct br_baseband_params *params,
                            struct br_why *why);
void br_baseband_cuda_destroy(struct br_baseband *plan);
void br_baseband_cuda(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                      uint8_t *out);
bool br_baseband_cuda_alike(const struct br_baseband *a, const struct br_baseband *b);
void br_baseband_cuda_exchange(struct br_baseband *a, struct br_baseband *b);
int br_baseband_cuda_clamped(const struct br_baseband *plan, uint64_t *per_beam);

void br_baseband_unpack_avx2(uint8_t *field, const uint8_t *e, size_t ndishes);
void br_baseband_octet_avx2(const struct octet_job *job);
void br_baseband_octet8_avx2(const struct octet_job *job);
void br_baseband_powers_avx2(const struct octet_job *job);

#ifdef __cplusplus
}
#endif
#endif
