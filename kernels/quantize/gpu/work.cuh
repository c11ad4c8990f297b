/* work.cuh - what a launch of the quantizer works on. */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_WORK_CUH
#define BEAMRING_KERNELS_QUANTIZE_GPU_WORK_CUH

#include "kernels/quantize/plan.h"

#include <stddef.h>
#include <stdint.h>

namespace beamring
{

namespace quantize
{

constexpr int WARPS = 8, THREADS = 32 * WARPS;

/* Slow statistics, on the device: the state [F][B], and the weights of this block [F]; both NULL without
 * them. */
struct slow_state {
    br_follow *state;
    const br_follow_step *steps;
};

/* Where slow statistics have a beam of channel f, of B beams. */
__device__ __forceinline__ br_follow *state_at(const slow_state &slow, size_t f, size_t B, size_t beam)
{
    return slow.state + f * B + beam;
}

struct work {
    const uint16_t *in;   /* [F][stride][B] */
    const uint8_t *valid; /* [F][T] or NULL */
    uint8_t *out;         /* [B][F][row] */
    float2 *side;         /* [B][F]: scale, offset */
    unsigned long long *clamped;
    size_t stride, F, B;
    unsigned T, row;            /* row: bytes of T levels */
    unsigned beam_tiles, tiles; /* tiles of all channels */
    float levels_rms;
    slow_state slow;               /* only with SLOW */
    bool pairs, wide_in, wide_out; /* 2 beams of in, 16 bytes of in, 16 bytes of out are aligned */
};

} // namespace quantize

} // namespace beamring

#endif
