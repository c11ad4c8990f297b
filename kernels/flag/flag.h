/* flag.h - flags input that is not noise, by the spectral kurtosis and the power of every input.
 *
 *   which file runs       when
 *   reference.c           BR_REFERENCE: one sample after the other, decisions in float64
 *   cpu/cpu.c             BR_CPU; inner loops in cpu/avx2.c where the processor has AVX2
 *   gpu/launch.cu         BR_CUDA: gpu/sums.cuh makes the sums, gpu/decide.cuh decides and applies
 *   decide.h              the decisions of BR_CPU and BR_CUDA, in float32: the same bits
 *   table.c, table7.c     what int4 noise has, derived by tests/oracle/flag_table.py
 *
 * In blocks of `block` samples, for every input, over the samples that are there:
 *
 *   S0 = their number,  S1 = sum |E|^2,  S2 = sum |E|^4,   SK = (S0+1)/(S0-1) (S0 S2 / S1^2 - 1)
 *
 * Packets that an input loses are zeros, and left out; plan.h says how they are known. S0 is an input's own.
 * SK is 1 for noise, but for int4 data b(S1/S0, S0). An input takes part where S0 is at least 16 and a tenth
 * of the block's samples and its mean power S1/S0 lies within the limits. The mean of SK - b over the inputs
 * that take part and are not bad is compared with its spread: beyond block_sigma the samples of this block
 * and channel are flagged, and so they are where fewer than a quarter of the inputs take part. Then, of
 * `nblocks` such blocks together (a long block) and without what is flagged, the same for each input alone:
 * beyond input_sigma, or outside the limits, it has weight 0 in this channel and long block.
 *
 * A threshold of s sigma is that which Gaussian noise passes as often as a normal deviate does: SK's own
 * tails are longer on one side, which is allowed for (Cornish-Fisher, with the third and fourth cumulants).
 *
 * A long block is begun, samples are added in any pieces, and it is ended. Bits do not depend on the pieces,
 * unless these cut runs of samples in which inputs are missing (plan.h). */
#ifndef BEAMRING_KERNELS_FLAG_FLAG_H
#define BEAMRING_KERNELS_FLAG_FLAG_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_FLAG_MOST_BLOCK = 32768, BR_FLAG_MOST_SAMPLES = 1 << 24, BR_FLAG_LEAST_SAMPLES = 16 };

/* Why a block's samples, or an input of a long block, do not count. */
enum br_flag_reason {
    BR_FLAG_KEPT = 0,
    BR_FLAG_KURTOSIS = 1,
    BR_FLAG_POWER = 2, /* of a block: too few inputs within the limits */
    BR_FLAG_FEW = 3    /* too few samples to tell */
};

struct br_flag_params {
    size_t nchannels, ninputs;   /* F; N = polarisations x dishes */
    size_t block, nblocks;       /* samples of a block; blocks of a long block */
    int least_level;             /* of a component: -8, or -7 for levels -7 to 7 */
    struct br_cuda *cuda;        /* BR_CUDA: where its work goes; must live longer than the plan */
    struct br_parallel parallel; /* BR_CPU: shares the work; may be zeroed */
};

struct br_flag_rules {
    float block_sigma, input_sigma; /* > 0 */
    float least_power, most_power;  /* of the mean |E|^2 */
    const uint8_t *bad;             /* [N]: not 0: never used, but measured; NULL: none */
};

/* The result of a long block. The plan owns it; it is valid until the next br_flag_begin. */
struct br_flag_result {
    const uint8_t *reason; /* [nblocks][F] of enum br_flag_reason; blocks without samples: BR_FLAG_FEW */
    const uint32_t *used;  /* [F]: inputs that are left of `expected` */
    uint32_t expected;     /* inputs that are not bad */
    const uint32_t *input; /* [2][N]: channels in which an input, bad or not, is flagged: by kurtosis; else */
};

struct br_flag;

/* Bytes that a plan holds: with BR_CUDA on the device and in host memory that is locked for it, else in host
 * memory. And in host memory always: which samples of a long block count. */
size_t br_flag_device_bytes(const struct br_flag_params *params);
size_t br_flag_result_bytes(const struct br_flag_params *params);
size_t br_flag_host_bytes(const struct br_flag_params *params);
size_t br_flag_cells_bytes(const struct br_flag_params *params);

/* The most bytes that one call uploads (see br_cuda_create), for calls of at most `nsteps` samples. */
size_t br_flag_upload_bytes(const struct br_flag_params *params, size_t nsteps);

/* Checks the parameters and takes all memory. -1 with `why`. A plan is used by one thread at a time. */
int br_flag_create(struct br_flag **plan, enum br_backend backend, const struct br_flag_params *params,
                   struct br_why *why);
void br_flag_destroy(struct br_flag *plan); /* NULL is allowed */

/* Begins a long block, with these rules (copied). */
void br_flag_begin(struct br_flag *plan, const struct br_flag_rules *rules);

/* Samples [at, at + nsteps) of the long block; the first call may begin anywhere, each other one goes on.
 *   e      int4x2 [nsteps][F][N]
 *   valid  [nsteps][F], the share of the inputs that is there, 0 to 255; NULL: all are
 *   out    int4x2 [nsteps][F][N]: e with zeros for the inputs that are bad
 * With BR_CUDA e and out are device memory, valid is host memory; the work is enqueued. */
void br_flag_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e, const uint8_t *valid,
                 uint8_t *out);

/* Ends it: decides, and puts zeros where an input has weight 0.
 *   out  all that was added: [steps][F][N], from its first sample on
 *   sk   float32 [blocks that have samples][F][N], or NULL; not a number where S0 < 2 or S1 = 0
 * With BR_CUDA the work is enqueued, and br_flag_wait waits for what came of it: not for what others have
 * enqueued behind it. */
void br_flag_end(struct br_flag *plan, uint8_t *out, float *sk);
struct br_flag_result br_flag_wait(struct br_flag *plan);

#ifdef __cplusplus
}
#endif
#endif
