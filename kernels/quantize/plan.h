/* plan.h - inside the quantizer. */
#ifndef BEAMRING_KERNELS_QUANTIZE_PLAN_H
#define BEAMRING_KERNELS_QUANTIZE_PLAN_H

#include "kernels/quantize/follow.h"
#include "kernels/quantize/quantize.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The fast implementation works on this many beams at once, and transposes this many time steps of them at a
 * time. */
enum { BEAMS = 256, STEPS = 64 };

/* The memory of one worker on the CPU; per beam of a chunk. */
struct quantize_scratch {
    float *row; /* one time step */
    float *pivot, *sum, *squares, *offset, *divisor, *most;
    float *partial; /* [2][BEAMS] of sum and squares */
    int32_t *clamped;
    uint8_t *levels;      /* [STEPS][BEAMS], then 8-bit or 4-bit codes */
    uint64_t all_clamped; /* of one execute */
};

struct br_quantize {
    enum br_backend backend;
    size_t nchannels, nbeams, block;
    unsigned bits;
    double levels_rms;

    /* slow statistics, all NULL without */
    bool slow;
    struct br_follow_clock clock;
    struct br_follow_step *step; /* [nchannels] of the block at hand */
    struct br_follow *state;     /* [nchannels][nbeams], on a GPU there */
    struct exact_follow *exact;  /* [nchannels][nbeams], the reference's */

    /* cpu: see cpu.c */
    struct br_parallel parallel;
    unsigned nscratch;
    struct quantize_scratch *scratch; /* [nscratch]: of a worker */
    const struct quantize_loops *loops;

    /* cuda: see gpu/launch.cu */
    struct br_cuda *cuda;
    struct br_quantize_gpu *gpu;
};

/* struct br_follow in float64. */
struct exact_follow {
    double expected, mean, trend, variance, away, seen, idle;
};

/* The stored code of `level`, and of a missing sample. */
static inline unsigned level_code(unsigned bits, int level)
{
    return bits == 8 ? (unsigned)(128 + level) : (unsigned)level & 15;
}

static inline unsigned missing_code(unsigned bits)
{
    return bits == 8 ? 0 : 8;
}

uint64_t br_quantize_reference(const struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                               const uint8_t *in_valid, uint8_t *out, float *side);
int br_quantize_cpu_create(struct br_quantize *plan);
void br_quantize_cpu_destroy(struct br_quantize *plan);
uint64_t br_quantize_cpu(struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                         const uint8_t *in_valid, uint8_t *out, float *side);
/* Counts this block of each channel and writes its weights to `step`. */
void br_quantize_tick(struct br_quantize *plan, size_t in_stride, const uint8_t *in_valid);

int br_quantize_cuda_create(struct br_quantize *plan, struct br_why *why);
void br_quantize_cuda_destroy(struct br_quantize *plan);
void br_quantize_cuda(struct br_quantize *plan, const uint16_t *in, size_t in_stride, const uint8_t *in_valid,
                      uint8_t *out, float *side);

#ifdef __cplusplus
}
#endif
#endif
