/* grid.cuh - FRB stage 2 on a GPU, beams on a grid (i, j): two products of matrices for each time step,
 *
 *   Y[p][j] = sum_q I[p][q] U_q[j],   J[i][j] = sum_p U_p[i] Y[p][j],
 *
 * without memory between them: the first one's results are, in place, the registers that the second one
 * takes.
 *
 * A warp forms one time step at a time, 32 j's by 16 IT i's; the 8 warps of a block share time steps when
 * there are more j's. 16 p's and up to 64 q's are in shared memory together. Y is computed transposed (rows
 * j); which j is which row is chosen such that a thread ends up with 8 consecutive j's of an i: row or column
 * g of part n (n = 0 to 3) of the 32 is j = 8 (g / 2) + 2 n + g % 2. The kernel is persistent:
 * each block has an equal share of the tasks. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_MMA_GRID_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_MMA_GRID_CUH

#include "kernels/frb_beams/gpu/store.cuh"

namespace beamring
{

namespace mma_grid
{

constexpr int WARPS = 8, THREADS = 32 * WARPS, STAGES = 4;
constexpr int MOST_OCTETS = 8; /* of q, in a stage */

/* The arguments of a launch. */
struct work {
    const uint16_t *in;                 /* [F][stride][2M][2N] */
    const uint8_t *valid;               /* [F][stride] or NULL */
    const uint4 *weights_q;             /* [F][j_blocks][q_steps][2][32 lanes]: scaled U_q, see steer.cuh */
    const uint4 *weights_p;             /* [F][p_blocks][i_tiles][32 lanes]: scaled U_p */
    uint16_t *out;                      /* [F][stride][row], of which bx by are written */
    unsigned T, stride, np, nq, bx, by; /* stride: steps of a channel in memory, of which T are formed */
    unsigned j_blocks, i_tiles;         /* of 32, of 16; i_tiles a multiple of IT */
    unsigned p_blocks, q_steps;         /* of 16 p's, of 16 q's; q_steps a whole number of stages */
    unsigned chunks, stage_octets;      /* stages along q; octets of q in each, even */
    unsigned reciprocal;                /* of stage_octets, times 65536 */
    unsigned warps_j, steps; /* of a block: 32 j's at once, time steps at once; the product is WARPS */
    unsigned step_tiles, j_tiles, i_blocks, tasks;
    float middle_scale, scale; /* of Y, such that it is finite in float16; of J */
    unsigned row;              /* bx by, or one more */
    bool wide_in, wide_out;    /* pieces of 16 bytes are aligned */
};

/* The stages of a block, one after the other: its tasks, their p blocks, and the chunks of q. Tasks are
 * numbered [F][time][j][i]. A block's are consecutive: they share weights, and cache lines of the field. */
struct position {
    unsigned task, end, p_block, chunk;
    unsigned f, step, j_block, i_block; /* the first ones of the task */

    __device__ __forceinline__ void start(const work &w)
    {
        task = static_cast<unsigned>(static_cast<unsigned long long>(w.tasks) * blockIdx.x / gridDim.x);
        end = static_cast<unsigned>(static_cast<unsigned long long>(w.tasks) * (blockIdx.x + 1) / gridDim.x);
        p_block = chunk = 0;
        find(w);
    }
    __device__ __forceinline__ void find(const work &w)
    {
        unsigned rest = task;
        i_block = rest % w.i_blocks;
        rest /= w.i_blocks;
        j_block = rest % w.j_tiles * w.warps_j;
        rest /= w.j_tiles;
        step = rest % w.step_tiles * w.steps;
        f = rest / w.step_tiles;
    }
    __device__ __forceinline__ void advance(const work &w)
    {
        if (++chunk < w.chunks) return;
        chunk = 0;
        if (++p_block < w.p_blocks) return;
        p_block = 0;
        task++;
        find(w);
    }
};

/* Starts the copies of one stage to stage[steps][16 p][stage_octets + 1] pieces: an odd number, so that 8 p's
 * use all banks. */
__device__ __forceinline__ void load(uint4 *stage, const work &w, const position &at)
{
    unsigned rows = 16 * w.steps, first_p = 16 * at.p_block, first_q = 8 * at.chunk * w.stage_octets;
    size_t time = static_cast<size_t>(at.f) * w.stride + at.step;
    /* in: shape (F stride, 2M, 2N), contiguous; after the stage's offset: shape (steps, 16, 8 stage_octets),
     * strides (4MN, 2N, 1), less at the ends. Where the stage has all q's, the copies of a time step are
     * consecutive. */
    const uint16_t *in = w.in + (time * w.np + first_p) * w.nq + first_q;
    for (unsigned i = threadIdx.x; i < rows * w.stage_octets; i += THREADS) {
        unsigned row = i * w.reciprocal >> 16, octet = i - row * w.stage_octets, step = row / 16,
                 p = row % 16;
        bool inside = at.step + step < w.T && first_p + p < w.np && first_q + 8 * octet < w.nq;
        if (inside && w.valid) inside = w.valid[time + step] != 0;
        copy_piece(stage + row * (w.stage_octets + 1) + octet, inside ? in : w.in,
                   (step * w.np + p) * w.nq + 8 * octet, inside ? w.nq - first_q - 8 * octet : 0, w.wide_in);
    }
}

/* Writes the beams of a time step, and empties sum. */
template <int IT>
__device__ __forceinline__ void put(float (&sum)[IT][4][4], const work &w, const position &at,
                                    unsigned j_block, unsigned step, unsigned lane)
{
    unsigned j = j_block * 32 + lane % 4 * 8;
    /* out: shape (F stride, bx, by), strides (row, by, 1); after: shape (bx), stride by. Four lanes
     * write 64 consecutive bytes. */
    uint16_t *out = w.out + (static_cast<size_t>(at.f) * w.stride + step) * w.row + j;
#pragma unroll
    for (int m = 0; m < IT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned i = (at.i_block * IT + m) * 16 + half * 8 + lane / 4;
            if (i < w.bx && j < w.by)
                store_octet(out + static_cast<size_t>(i) * w.by, sum[m], half, w.scale, w.by - j, w.wide_out);
        }
#pragma unroll
    for (int m = 0; m < IT; m++)
#pragma unroll
        for (int r = 0; r < 16; r++) sum[m][r / 4][r % 4] = 0;
}

template <int IT> __global__ void __launch_bounds__(THREADS, IT < 4 ? 2 : 1) form(const work w)
{
    extern __shared__ uint4 stages[]; /* [STAGES][steps][16][stage_octets + 1] */
    unsigned stage_size = w.steps * 16 * (w.stage_octets + 1);
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned warp_j = warp % w.warps_j, warp_step = warp / w.warps_j;

    /* middle[m][h][4]  register: m, r1, h, r0 <-> n1, n0, p3, p0      thread: t4..t0 <-> g2 g1 g0 p2 p1
     *                  (j of n, g: see above)
     * sum[m][n][4]     register: m, n, r1, r0 <-> i5 i4, j2 j1, i3, j0  thread: t4..t0 <-> i2 i1 i0 j4 j3 */
    float middle[2][2][4] = {}, sum[IT][4][4] = {};

    position loading, at;
    loading.start(w);
    at.start(w);
    for (int s = 0; s < STAGES - 1; s++) {
        if (loading.task < loading.end) load(stages + s * stage_size, w, loading);
        copy_async_commit();
        loading.advance(w);
    }
    for (int now = 0; at.task < at.end; now = now == STAGES - 1 ? 0 : now + 1) {
        copy_async_wait<STAGES - 2>();
        __syncthreads(); /* this stage has arrived for all; the one before it is no longer read */
        if (loading.task < loading.end)
            load(stages + (now == 0 ? STAGES - 1 : now - 1) * stage_size, w, loading);
        copy_async_commit();
        loading.advance(w);

        unsigned j_block = at.j_block + warp_j, step = at.step + warp_step;
        if (j_block < w.j_blocks && step < w.T) {
            /* Lanes 8 k to 8 k + 7 give the addresses of the p's (k / 2) 8 to (k / 2) 8 + 7, octet k % 2. */
            unsigned field = shared_address(
                stages + now * stage_size +
                (warp_step * 16 + lane / 16 * 8 + lane % 8) * (w.stage_octets + 1) + lane / 8 % 2);
            /* weights_q: shape (F, j_blocks, q_steps, 2, 32), contiguous; after: shape (q_steps of the stage,
             * 2), stride 32 */
            unsigned q_steps = w.stage_octets / 2;
            const uint4 *u_q =
                w.weights_q +
                ((static_cast<size_t>(at.f) * w.j_blocks + j_block) * w.q_steps + at.chunk * q_steps) * 64 +
                lane;
#pragma unroll 2
            for (unsigned k = 0; k < q_steps; k++) {
                /* i[4]  simd: q0  register: r1 r0 <-> p3 q3  thread: t4..t0 <-> p2 p1 p0 q2 q1 */
                unsigned i[4];
                load_matrices(i, field + 32 * k);
                const unsigned low[2] = {i[0], i[1]}, high[2] = {i[2], i[3]}; /* p3 = 0, 1 */
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    /* u[4]  simd: q0  register: m, r0 <-> n1, n0; r1 <-> q3  thread: t4..t0 <-> g2 g1 g0 q2
                     * q1 */
                    const uint4 v = __ldg(u_q + (2 * k + m) * 32);
                    const unsigned u[4] = {v.x, v.y, v.z, v.w};
                    mma_f16(middle[m][0], u, low);
                    mma_f16(middle[m][1], u, high);
                }
            }
            if (at.chunk + 1 == w.chunks) {
                /* y[n][2]  simd: p0  register: n, p3  thread: t4..t0 <-> g2 g1 g0 p2 p1: what the second
                 * product takes */
                unsigned y[4][2];
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float *from = middle[n / 2][h] + n % 2 * 2;
                        y[n][h] = pack_halves(from[0] * w.middle_scale, from[1] * w.middle_scale);
                        from[0] = from[1] = 0;
                    }
                /* weights_p: shape (F, p_blocks, i_tiles, 32), contiguous; after: shape (IT), stride 32 */
                const uint4 *u_p =
                    w.weights_p +
                    ((static_cast<size_t>(at.f) * w.p_blocks + at.p_block) * w.i_tiles + at.i_block * IT) *
                        32 +
                    lane;
#pragma unroll
                for (int m = 0; m < IT; m++) {
                    /* u[4]  simd: p0  register: r1 r0 <-> p3 i3  thread: t4..t0 <-> i2 i1 i0 p2 p1 */
                    const uint4 v = __ldg(u_p + m * 32);
                    const unsigned u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                    for (int n = 0; n < 4; n++) mma_f16(sum[m][n], u, y[n]);
                }
                if (at.p_block + 1 == w.p_blocks) put(sum, w, at, j_block, step, lane);
            }
        }
        at.advance(w);
    }
}

} // namespace mma_grid

} // namespace beamring

#endif
