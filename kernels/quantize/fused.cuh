/* fused.cuh - FRB stage 2 on a grid of beams (i, j) and the quantizer in one kernel: J is never written.
 *
 *   Y[p][j] = sum_q I[p][q] U_q[j],   J[i][j] = sum_p U_p[i] Y[p][j]
 *
 * in the same k-steps of 16, in the same order and with the same roundings as kernels/frb_beams/grid.cuh, so
 * that J has the same bits. A cluster of 8 blocks takes 32 j's of a channel and all 256 steps. Each block
 * first forms Y for 32 of the steps and sends it to the blocks that own its j's, 4 each; then each forms J
 * for its j's, all i's and all steps. With j in the first product's rows, i in the second one's and steps in
 * its columns, what a warp ends up with are 16 beams with their steps in registers in the order in which the
 * quantizer wants them (kernels/quantize/layout.h). Two blocks share a multiprocessor, so that the products
 * of one run beside the levels of the other. */
#ifndef BEAMRING_KERNELS_QUANTIZE_FUSED_CUH
#define BEAMRING_KERNELS_QUANTIZE_FUSED_CUH

#include "kernels/quantize/rows.cuh"

namespace beamring
{

namespace fused
{

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr unsigned CLUSTER = 8, STEPS = 256, BLOCK_STEPS = STEPS / CLUSTER, J_TILE = 32,
                   BLOCK_J = J_TILE / CLUSTER;
constexpr unsigned K_STEPS = 3, MOST_CELLS = 16 * K_STEPS; /* p's, q's */

struct work {
    const uint16_t *in;   /* [F][stride][2M][2N] */
    const uint8_t *valid; /* [F][256] or NULL */
    const uint2
        *weights_q; /* [F][j_tiles][q_steps][2][32 lanes][2]: U_q over a power of two, as for grid.cuh */
    const uint4 *weights_p; /* [F][p_steps][i_tiles][32 lanes]: U_p times it, the same */
    uint8_t *out;           /* [bx][by][F][row] */
    float2 *side;           /* [bx][by][F]: scale, offset */
    unsigned long long *clamped;
    size_t stride;
    unsigned F, np, nq, bx, by, j_tiles, i_tiles, q_steps, p_steps;
    unsigned i_blocks; /* of 16 i's, with beams; i_tiles: in the table */
    float levels_rms;
};

struct shared {
    uint4 y[BR_FUSED_Y_BYTES / 16];
    uint8_t valid[STEPS]; /* 0xff or 0 */
};

__device__ __forceinline__ unsigned pack_halves(float low, float high)
{
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<unsigned *>(&both);
}

/* Two of J as float16, what is too large as the largest finite value. */
__device__ __forceinline__ unsigned pack_finite(float low, float high)
{
    unsigned both;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* A barrier of the cluster's blocks in its two halves: what was written before the one is seen after the
 * other. */
__device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

__device__ __forceinline__ unsigned cluster_rank()
{
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
#endif
    return rank;
}

/* The address of another block's shared memory that corresponds to one of this block's. */
__device__ __forceinline__ unsigned in_block(unsigned address, unsigned rank)
{
    unsigned there = address;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(address), "r"(rank));
#endif
    return there;
}

__device__ __forceinline__ void send(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
#endif
}

__device__ __forceinline__ void send(unsigned to, unsigned a, unsigned b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v2.b32 [%0], {%1, %2};\n" ::"r"(to), "r"(a), "r"(b) : "memory");
#endif
}

/* 8 rows p of a step's field, from this lane's first cell of them on.
 *   cells[K_STEPS][2]  simd: q0  register: k-step <-> q5 q4, r0 <-> q1  thread: t4..t0 <-> p2 p1 p0 q3 q2
 * (which of a k-step's 16 products stands where does not change their sum) */
__device__ __forceinline__ void load_cells(unsigned (&cells)[K_STEPS][2], const uint16_t *first,
                                           const bool (&exist)[K_STEPS])
{
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++) {
        uint2 v = make_uint2(0, 0);
        if (exist[k]) v = __ldg(reinterpret_cast<const uint2 *>(first + 16 * k));
        cells[k][0] = v.x, cells[k][1] = v.y;
    }
}

/* This warp's share of Y: 4 steps of 32 j's. WHOLE: 2M = 2N = 48. Meets the cluster's other blocks before it
 * sends anything. */
template <int BITS, bool WHOLE>
__device__ __forceinline__ void form_middle(unsigned y, const work &w, unsigned f, unsigned j_tile,
                                            unsigned first_step)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    /* u[2][K_STEPS]  simd: q0  register: m, k-step; x y z w <-> r1 r0 <-> q1 h  thread: t4..t0 <-> g2 g1 g0
     * q3 q2 Row g + 8 h of product m is j = 8 (g / 2) + 4 m + 2 h + g % 2. The weights come in lanes by q2 q1
     * and halves by q3. */
    uint4 u[2][K_STEPS];
    const uint2 *weights = w.weights_q + (static_cast<size_t>(f) * w.j_tiles + j_tile) * (w.q_steps * 128) +
                           (g * 4 + q * 2 % 4) * 2 + q / 2;
#pragma unroll
    for (unsigned i = 0; i < 2 * K_STEPS; i++) {
        const unsigned m = i % 2, k = i / 2;
        uint2 low = make_uint2(0, 0), high = low;
        if (k < w.q_steps) low = __ldg(weights + i * 64), high = __ldg(weights + i * 64 + 2);
        u[m][k] = make_uint4(low.x, low.y, high.x, high.y);
    }

    /* Row j belongs to block j / 4 = 2 (g / 2) + m, there to slot 2 h + g % 2. */
    const unsigned owner[2] = {in_block(y, g / 2 * 2), in_block(y, g / 2 * 2 + 1)};

    /* in: shape (F, stride, 2M, 2N), contiguous; after: shape (4 steps, 6, 3), strides (4MN, 8 * 2N, 16): of
     * rows 8 n + g the cells 16 k + 4 q. 2M is a multiple of 8, 2N one of 4. */
    const uint16_t *in =
        w.in + (static_cast<size_t>(f) * w.stride + first_step) * (w.np * w.nq) + g * w.nq + 4 * q;
    const uint8_t *valid = w.valid ? w.valid + f * STEPS + first_step : nullptr;
    unsigned cells[6][K_STEPS][2];
    auto load_row = [&](unsigned n, const uint16_t *step) {
        bool exist[K_STEPS];
#pragma unroll
        for (unsigned k = 0; k < K_STEPS; k++) exist[k] = WHOLE || (8 * n < w.np && 16 * k + 4 * q < w.nq);
        load_cells(cells[n], step + n * 8 * (WHOLE ? MOST_CELLS : w.nq), exist);
    };
#pragma unroll
    for (unsigned n = 0; n < 6; n++) load_row(n, in);
    cluster_wait(); /* all blocks have begun, so that their shared memory is there */
#pragma unroll 1
    for (unsigned t = 0; t < 4; t++) {
        if (t < 3) in += w.np * w.nq; /* the last step is loaded twice */
        const bool present = !valid || valid[t];
        /* word[m][h][n]  simd: p0  register: m, h, n <-> m, h, p5 p4 p3  thread: t4..t0 <-> g2 g1 g0 p2 p1 */
        unsigned word[2][2][6];
#pragma unroll
        for (unsigned n = 0; n < 6; n++) {
#pragma unroll
            for (unsigned m = 0; m < 2; m++) {
                /* c[4]  register: r1 r0 <-> h p0  thread: t4..t0 <-> g2 g1 g0 p2 p1 */
                float c[4] = {0, 0, 0, 0};
#pragma unroll
                for (unsigned k = 0; k < K_STEPS; k++) {
                    const unsigned a[4] = {u[m][k].x, u[m][k].y, u[m][k].z, u[m][k].w};
                    mma_f16(c, a, cells[n][k]);
                }
                word[m][0][n] = present ? pack_halves(c[0], c[1]) : 0; /* whatever the field has there */
                word[m][1][n] = present ? pack_halves(c[2], c[3]) : 0;
            }
            load_row(n, in); /* of the next step */
        }
#pragma unroll
        for (unsigned h = 0; h < 2; h++) {
            unsigned slot = 2 * h + g % 2, row = br_fused_row(BITS, first_step + t),
                     wide = br_fused_wide(slot, row, q), narrow = br_fused_narrow(slot, row, q);
#pragma unroll
            for (unsigned m = 0; m < 2; m++) {
                const unsigned(&of)[6] = word[m][h];
                send(owner[m] + wide, of[0], of[1], of[2], of[3]);
                send(owner[m] + narrow, of[4], of[5]);
            }
        }
    }
}

/* J of 16 i's of one j, all steps: x[h] is what the quantizer takes of i = g + 8 h. */
template <int BITS>
__device__ __forceinline__ void form_beams(unsigned (&x)[2][STEPS / 8], const shared &s, const work &w,
                                           unsigned f, unsigned i_tile, unsigned slot)
{
    const unsigned lane = threadIdx.x % 32, q = lane % 4, column = lane / 4;
    /* u[K_STEPS]  simd: p0  register: k-step; x y z w <-> r1 r0 <-> p3 i3  thread: t4..t0 <-> i2 i1 i0 p2 p1
     */
    uint4 u[K_STEPS];
    const uint4 *weights =
        w.weights_p + (static_cast<size_t>(f) * w.p_steps * w.i_tiles + i_tile) * 32 + lane;
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++)
        u[k] =
            k < w.p_steps ? __ldg(weights + static_cast<size_t>(k) * w.i_tiles * 32) : make_uint4(0, 0, 0, 0);

    /* Column c of a register's product is the step of half c % 2 of the lanes with q = c / 2. Register r's
     * bits of the step are no others'. */
    const unsigned first = br_fused_row(BITS, br_quantize_step(BITS, STEPS, 0, column / 2, column % 2));
    const uint8_t *y = reinterpret_cast<const uint8_t *>(s.y), *wide = y + br_fused_wide(slot, first, q),
                  *narrow = y + br_fused_narrow(slot, first, q);
#pragma unroll
    for (unsigned r = 0; r < STEPS / 8; r++) {
        const unsigned row = br_fused_row(BITS, br_quantize_step(BITS, STEPS, r, 0, 0));
        const uint4 v = *reinterpret_cast<const uint4 *>(wide + row * 64);
        const uint2 n = *reinterpret_cast<const uint2 *>(narrow + row * 32);
        const unsigned b[K_STEPS][2] = {{v.x, v.y}, {v.z, v.w}, {n.x, n.y}};
        /* c[4]  register: r1 r0 <-> i3 t0  thread: t4..t0 <-> i2 i1 i0, q of the step */
        float c[4] = {0, 0, 0, 0};
#pragma unroll
        for (unsigned k = 0; k < K_STEPS; k++) {
            const unsigned a[4] = {u[k].x, u[k].y, u[k].z, u[k].w};
            mma_f16(c, a, b[k]);
        }
        x[0][r] = pack_finite(c[0], c[1]);
        x[1][r] = pack_finite(c[2], c[3]);
        if (r % 8 == 7) __syncwarp(); /* else all loads come first, and find no registers */
    }
}

template <int BITS, bool WHOLE> __global__ void __launch_bounds__(THREADS, 2) beams(const work w)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ uint4 memory[];
    shared &s = *reinterpret_cast<shared *>(memory);
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = cluster_rank();
    const unsigned cluster = blockIdx.x / CLUSTER, f = cluster / w.j_tiles, j_tile = cluster % w.j_tiles;

    cluster_arrive();
    unsigned valid_steps = STEPS;
    if (w.valid) {
        bool there = w.valid[f * STEPS + threadIdx.x] != 0;
        s.valid[threadIdx.x] = there ? 0xff : 0;
        valid_steps = static_cast<unsigned>(__syncthreads_count(there));
    }
    form_middle<BITS, WHOLE>(shared_address(s.y), w, f, j_tile,
                             rank * BLOCK_STEPS + warp * (BLOCK_STEPS / WARPS));
    cluster_arrive();
    cluster_wait(); /* Y has arrived */

    unsigned clamped = 0;
    for (unsigned task = warp; task < BLOCK_J * w.i_blocks; task += WARPS) {
        const unsigned slot = task % BLOCK_J, i_tile = task / BLOCK_J,
                       j = j_tile * J_TILE + rank * BLOCK_J + slot;
        if (j >= w.by) continue;
        unsigned x[2][STEPS / 8];
        form_beams<BITS>(x, s, w, f, i_tile, slot);
#pragma unroll 1
        for (unsigned h = 0; h < 2; h++) {
            /* out: shape (bx, by, F, row), contiguous; after: shape (row). side: shape (bx, by, F),
             * contiguous */
            const unsigned i = i_tile * 16 + 8 * h + lane / 4;
            const size_t row = (static_cast<size_t>(i) * w.by + j) * w.F + f;
            uint8_t *out = w.out + row * (STEPS * BITS / 8);
            if (valid_steps == STEPS)
                quantize::quantize_rows<BITS, STEPS, false>(x[0], quantize::make_rule(w.levels_rms, STEPS),
                                                            nullptr, out, w.side + row, i < w.bx, clamped);
            else
                quantize::quantize_rows<BITS, STEPS, true>(x[0],
                                                           quantize::make_rule(w.levels_rms, valid_steps),
                                                           s.valid, out, w.side + row, i < w.bx, clamped);
#pragma unroll
            for (unsigned r = 0; r < STEPS / 8; r++) x[0][r] = x[1][r];
        }
    }
    clamped = __reduce_add_sync(WHOLE_WARP, clamped);
    if (lane == 0 && clamped > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(clamped));
#endif
}

} // namespace fused

} // namespace beamring

#endif
