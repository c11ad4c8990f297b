/* plan.h - inside the unpacker. */
#ifndef BEAMRING_KERNELS_UNPACK_PLAN_H
#define BEAMRING_KERNELS_UNPACK_PLAN_H

#include "kernels/unpack/unpack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Inputs that stand side by side in a packet and in E. */
struct unpack_run {
    size_t offset; /* in the block, of its first input, channel 0 of stream 0 */
    size_t position, length;
    uint32_t source;
};

struct br_unpack {
    enum br_backend backend;
    struct br_unpack_params p; /* its tables are copies that the plan owns */
    size_t block_bytes;
    size_t *input_at; /* [N]: input at a position; SIZE_MAX: none */
    size_t nruns;
    struct unpack_run *run; /* [nruns], ascending by position */

    /* cpu: see cpu/cpu.c */
    size_t *order;     /* [F]: channels as they stand in memory */
    size_t width;      /* N rounded up to 32 */
    bool full;         /* inputs fill the whole width */
    uint8_t *rows;     /* [packet_samples + 1][width]: one channel of one block, the last row zero samples */
    uint32_t *s1, *s2; /* [F][width] */
    uint32_t *came;    /* [stream][source]: samples */
    const struct unpack_loops *loops;

    /* cuda: see gpu/launch.cu */
    struct br_cuda *cuda;
    struct br_unpack_gpu *gpu;
};

static inline bool unpack_came(const uint8_t *receipt, size_t bit)
{
    return receipt == NULL || (receipt[bit / 8] >> bit % 8 & 1);
}

/* Rows of one channel and block, in place: `coded` bytes to int4x2, and sums over the rows added to s1 and
 * s2.
 *   rows [count][width], width a multiple of 32, 32-byte aligned, followed by a row of zero samples as coded
 *   s1, s2 [width], NULL: no sums */
struct unpack_loops {
    void (*convert)(uint8_t *rows, size_t count, size_t width, uint8_t flip, bool swap, uint32_t *s1,
                    uint32_t *s2);
    /* count rows of n bytes, to rows of n bytes `stride` apart that are not read soon */
    void (*store)(uint8_t *to, size_t stride, const uint8_t *rows, size_t count, size_t width, size_t n);
};

void br_unpack_convert_generic(uint8_t *rows, size_t count, size_t width, uint8_t flip, bool swap,
                               uint32_t *s1, uint32_t *s2);
void br_unpack_convert_avx2(uint8_t *rows, size_t count, size_t width, uint8_t flip, bool swap, uint32_t *s1,
                            uint32_t *s2);
void br_unpack_store_avx2(uint8_t *to, size_t stride, const uint8_t *rows, size_t count, size_t width,
                          size_t n);

void br_unpack_reference(const struct br_unpack *plan, size_t nblocks, const uint8_t *in,
                         const uint8_t *receipt, uint8_t *out, uint32_t *sums);
int br_unpack_cpu_create(struct br_unpack *plan);
void br_unpack_cpu_destroy(struct br_unpack *plan);
void br_unpack_cpu(struct br_unpack *plan, size_t nblocks, const uint8_t *in, const uint8_t *receipt,
                   uint8_t *out, uint32_t *sums);
int br_unpack_cuda_create(struct br_unpack *plan, struct br_why *why);
void br_unpack_cuda_destroy(struct br_unpack *plan);
void br_unpack_cuda(struct br_unpack *plan, size_t nblocks, const uint8_t *in, const uint8_t *receipt,
                    uint8_t *out, uint32_t *sums);

#ifdef __cplusplus
}
#endif
#endif
