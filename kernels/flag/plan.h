/* plan.h - inside the flagger. */
#ifndef BEAMRING_KERNELS_FLAG_PLAN_H
#define BEAMRING_KERNELS_FLAG_PLAN_H

#include "kernels/flag/decide.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a sample of a channel counts: not at all, for all inputs, or for those that have not lost it. An input
 * whose packets are lost has zeros, and validity says how many inputs a sample lacks, not which. In runs of
 * FLAG_RUN samples, counted from the begin of a block and cut where a call ends:
 *   - those samples count that the most inputs have: packets of few samples leave some that lack nothing;
 *   - if all have the same share of the inputs, and not all inputs, packets are as long as the run or longer:
 *     the samples count, but not for inputs that are zero in all of them. Noise of mean power 1, the least
 *     that takes part, is so once in 10^7 runs. */
enum flag_cell { FLAG_OUT, FLAG_COUNTS, FLAG_GAPS };
enum { FLAG_RUN = 16 };

struct br_flag {
    enum br_backend backend;
    struct br_flag_params p;
    struct br_flag_rules rules; /* bad is the plan's: never NULL */
    uint8_t *bad, *keep;        /* [N]: not 0: bad; 0xff or 0: what bytes are and'ed with */
    uint32_t expected;          /* inputs that are not bad */

    bool open;
    size_t begin, end; /* samples of the long block that were added */
    uint32_t *s0;      /* [nblocks][F]: samples that count */
    uint8_t *cells;    /* [nblocks block][F] of enum flag_cell; what is complete is not written */
    bool gaps;         /* some of them are FLAG_GAPS: `lost` is there */

    const float (*table)[FLAG_POWERS][4];
    uint32_t *sums;      /* host: [nblocks][F][2][N]: S1, S2 */
    uint16_t *lost;      /* host: [nblocks][F][N]: of s0, those that an input lost */
    uint8_t *weightless; /* host: [F][N]: enum br_flag_reason */
    uint8_t *reason;     /* [nblocks][F]     these three: see struct br_flag_result; on a GPU locked memory */
    uint32_t *used;      /* [F] */
    uint32_t *input;     /* [2][N] */
    void (*add_rows)(const uint8_t *e, size_t stride, const uint8_t *valid, size_t valid_stride, size_t count,
                     const uint8_t *keep, uint8_t *out, size_t ninputs, uint32_t *s1, uint32_t *s2);

    /* cuda: see gpu/launch.cu */
    struct br_cuda *cuda;
    struct br_flag_gpu *gpu;
};

/* Samples of block b that were added: [*from, *to) of the long block; false: none. */
static inline bool flag_span(const struct br_flag *plan, size_t b, size_t begin, size_t end, size_t *from,
                             size_t *to)
{
    size_t first = b * plan->p.block, last = first + plan->p.block;
    *from = first > begin ? first : begin;
    *to = last < end ? last : end;
    return *from < *to;
}

/* Bytes of reason, used and input, in this order, and where the two begin. */
static inline size_t flag_used_at(const struct br_flag_params *p)
{
    return (p->nblocks * p->nchannels + 15) / 16 * 16;
}

static inline size_t flag_input_at(const struct br_flag_params *p)
{
    return flag_used_at(p) + p->nchannels * sizeof(uint32_t);
}

/* Rows of up to FLAG_ROWS_AT_ONCE samples of one channel, see cpu/cpu.c. valid may be NULL. */
enum { FLAG_ROWS_AT_ONCE = 8 };
void br_flag_rows_avx2(const uint8_t *e, size_t stride, const uint8_t *valid, size_t valid_stride,
                       size_t count, const uint8_t *keep, uint8_t *out, size_t ninputs, uint32_t *s1,
                       uint32_t *s2);
void br_flag_rows_generic(const uint8_t *e, size_t stride, const uint8_t *valid, size_t valid_stride,
                          size_t count, const uint8_t *keep, uint8_t *out, size_t ninputs, uint32_t *s1,
                          uint32_t *s2);

/* In these `cells` are those of the samples, or NULL: all count. */
void br_flag_reference_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e,
                           const uint8_t *cells, uint8_t *out);
void br_flag_reference_end(struct br_flag *plan, uint8_t *out, float *sk);
void br_flag_cpu_create(struct br_flag *plan);
void br_flag_cpu_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e, const uint8_t *cells,
                     uint8_t *out);
void br_flag_cpu_end(struct br_flag *plan, uint8_t *out, float *sk);
size_t br_flag_cuda_bytes(const struct br_flag_params *params);
int br_flag_cuda_create(struct br_flag *plan, struct br_why *why);
void br_flag_cuda_destroy(struct br_flag *plan);
void br_flag_cuda_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e, const uint8_t *cells,
                      uint8_t *out);
void br_flag_cuda_end(struct br_flag *plan, uint8_t *out, float *sk);
void br_flag_cuda_wait(struct br_flag *plan);
/* For tests: copies S1 and S2, [nblocks][F][2][N], and what inputs lost, [nblocks][F][N], to the host, and
 * waits. */
void br_flag_cuda_sums(struct br_flag *plan, uint32_t *s1_s2, uint16_t *lost);

#ifdef __cplusplus
}
#endif
#endif
