/* arbitrary.cuh - FRB stage 2 on sm_90a, beams in any directions: per channel J' = W' I',
 *
 *   J[b][t] = sum_k W[k][b] I[t][k],   k = (p, q),   W = U_p U_q,
 *
 * with beams as rows of the tensor cores' product and time steps as columns. W never exists: a warp's rows of
 * W for 16 k's are one product of halves per register, from the U_q of its beams, which stay in registers,
 * and their U_p from shared memory. The field streams through a ring of boxes of 64 k's by NT steps, which
 * all beams of the block share.
 *
 * A block stays. It has two groups of four warps that multiply, each 64 MB beams by NT steps, and a warp that
 * starts the copies. The groups take the same boxes, but one runs up to a ring ahead of the other, so that
 * one's weights and output fall into the other's products. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_WGMMA_ARBITRARY_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_WGMMA_ARBITRARY_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_beams/gpu/layout.h"
#include "kernels/frb_beams/gpu/store.cuh"
#include "kernels/frb_beams/gpu/weights.cuh"

namespace beamring
{

namespace hopper_arbitrary
{

constexpr int GROUPS = 2, GROUP = 128, THREADS = GROUPS * GROUP + GROUP;
constexpr int BOX = 64, CHAIN = 2; /* k's in a box: 128 bytes; operations on the same sums in a row */

/* A barrier among `threads` threads (whole warps), and the same without waiting for the others. */
__device__ __forceinline__ void meet(unsigned number, unsigned threads)
{
    asm volatile("bar.sync %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

__device__ __forceinline__ void announce(unsigned number, unsigned threads)
{
    asm volatile("bar.arrive %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

/* Four 8 x 8 matrices of halves, transposed: lane 8 m + i gives the address of what becomes row i of matrix
 * m, 16 bytes. */
__device__ __forceinline__ void store_matrices_transposed(void *row, const unsigned (&from)[4])
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_address(row)),
        "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
        : "memory");
}

/* What a launch works on. */
struct work {
    const uint8_t *valid;          /* [F][stride], of which T steps, or NULL */
    const seat *seats_m, *seats_n; /* [F][B] */
    unsigned T, stride, B, F, np;
    unsigned ring;  /* boxes in it */
    unsigned turns; /* of BOXES boxes */
    unsigned lead;  /* turns that the first group is ahead of the second; less than the ring */
    unsigned beam_tiles, step_tiles; /* of 2 64 MB beams, of NT steps */
};

/* Bytes of shared memory, all parts multiples of 1024: the ring, results, U_p; then tables and barriers. */
__host__ __device__ inline unsigned ring_bytes(unsigned ring, int nt)
{
    return ring * static_cast<unsigned>(nt) * 128;
}
__host__ __device__ inline unsigned out_bytes(int mb, int nt)
{
    return static_cast<unsigned>(GROUPS * mb * nt) * 128;
}
__host__ __device__ inline unsigned p_bytes(unsigned turns, unsigned ps, int mb)
{
    return turns * ps * 2 * 64 * static_cast<unsigned>(GROUPS * mb);
}

/* Which tile is a block's n-th: whole rounds of all steps of a tile of beams, so that its weights are made
 * once; what is left over is dealt out tile by tile. */
struct schedule {
    unsigned items, rounds, left; /* tiles of beams in all channels; those each block gets; tiles left over */

    __device__ __forceinline__ schedule(const work &w)
    {
        items = w.F * w.beam_tiles;
        rounds = items / gridDim.x;
        left = (items - rounds * gridDim.x) * w.step_tiles;
    }
    __device__ __forceinline__ bool find(const work &w, unsigned n, unsigned *item, unsigned *step_tile) const
    {
        if (n < rounds * w.step_tiles) {
            unsigned round = n / w.step_tiles;
            *item = blockIdx.x + gridDim.x * round;
            *step_tile = n - round * w.step_tiles;
            return true;
        }
        unsigned rest = blockIdx.x + gridDim.x * (n - rounds * w.step_tiles);
        *item = rounds * gridDim.x + rest / w.step_tiles;
        *step_tile = rest % w.step_tiles;
        return rest < left;
    }
};

/* NQ: q's, a multiple of 8. A turn of the loop is BOXES boxes, PS p's. */
template <int NQ> struct turn_of {
    static constexpr int BOXES = NQ == 32 ? 2 : 3, PS = BOXES * BOX / NQ;
    static_assert(PS * NQ == BOXES * BOX && PS % 4 == 0, "a turn is whole p's");
};

template <int NQ, int MB, int NT>
__global__ void __launch_bounds__(THREADS, 1)
    form(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, const work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int BOXES = turn_of<NQ>::BOXES, PS = turn_of<NQ>::PS, OCTETS = NQ / 8, WORDS = PS / 2;
    constexpr unsigned BOX_BYTES = NT * 128;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t *results = shared + ring_bytes(w.ring, NT), *all_p = results + out_bytes(MB, NT);
    float2 *turn_n = reinterpret_cast<float2 *>(all_p + p_bytes(w.turns, PS, MB)), *turn_m = turn_n + NQ;
    barrier *full = reinterpret_cast<barrier *>(turn_m + w.np), *empty = full + w.ring; /* [ring] each */
    unsigned group = threadIdx.x / GROUP, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < w.ring; i++) {
            barrier_start(full + i, 1);
            barrier_start(empty + i, GROUPS * 4);
        }
        barrier_publish();
    }
    for (unsigned i = threadIdx.x; i < NQ + w.np; i += THREADS) {
        float angle =
            i < NQ ? static_cast<float>(i) / NQ : static_cast<float>(i - NQ) / static_cast<float>(w.np);
        turn_n[i] = make_float2(cospif(angle), sinpif(angle));
    }
    __syncthreads();
    const schedule plan(w);
    unsigned item, step_tile, boxes = w.turns * BOXES;

    if (group == GROUPS) {
        registers_fewer<24>();
        if (warp != 0 || lane != 0) return;
        unsigned slot = 0, parity = 1;
        for (unsigned n = 0; plan.find(w, n, &item, &step_tile); n++) {
            int f = static_cast<int>(item / w.beam_tiles), t = static_cast<int>(step_tile * NT);
            for (unsigned box = 0; box < boxes; box++) {
                barrier_wait(empty + slot, parity);
                barrier_expect(full + slot, BOX_BYTES);
                tensor_load(shared + slot * BOX_BYTES, &in, full + slot, static_cast<int>(box * BOX), t, f);
                if (++slot == w.ring) slot = 0, parity ^= 1;
            }
        }
    } else {
        registers_more<240>();
        unsigned ring = shared_address(shared);
        unsigned slot = 0, parity = 0, before = 0; /* before: the slot to give back next */
        unsigned g = lane / 4, c = lane % 4;
        uint8_t *p_warp = all_p + (group * 4 + warp) * (w.turns * PS * 2 * 16 * MB);
        uint8_t *results_group = results + group * MB * BOX_BYTES;
        unsigned last = ~0u;

        /* u_q[mb][o][h]  simd: q0  register: mb, o, h <-> mb, q5 q4 q3, row3  thread: t4..t0 <-> row2 row1
         * row0 q2 q1  warp: w1 w0 <-> row5 row4 (row: the beam of 64) */
        unsigned u_q[MB][OCTETS][2];
        if (group == 1 && plan.find(w, 0, &item, &step_tile)) meet(3, GROUPS * GROUP);

        for (unsigned n = 0; plan.find(w, n, &item, &step_tile); n++) {
            unsigned f = item / w.beam_tiles, first_beam = (item % w.beam_tiles * GROUPS + group) * 64 * MB;
            if (item != last) {
                last = item;
                /* seats: shape (F, B), contiguous */
                const seat *seats_m = w.seats_m + static_cast<size_t>(f) * w.B,
                           *seats_n = w.seats_n + static_cast<size_t>(f) * w.B;
                __syncwarp();
#pragma unroll
                for (int mb = 0; mb < MB; mb++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        unsigned row = h * 8 + g, beam = min(first_beam + mb * 64 + warp * 16 + row, w.B - 1);
                        seat s = seats_n[beam];
#pragma unroll
                        for (int o = 0; o < OCTETS; o++)
                            u_q[mb][o][h] = weights(s, turn_n, 8 * o + 2 * static_cast<int>(c), NQ);
                        s = seats_m[beam];
                        /* The four lanes of a row share its p's. */
#pragma unroll 1
                        for (unsigned turn = c; turn < w.turns; turn += 4)
#pragma unroll
                            for (int i = 0; i < PS; i += 4) {
                                unsigned p = turn * PS + i;
                                int np = static_cast<int>(w.np);
                                uint2 both = make_uint2(0, 0);
                                if (p < w.np) both.x = weights(s, turn_m, static_cast<int>(p), np);
                                if (p + 2 < w.np) both.y = weights(s, turn_m, static_cast<int>(p) + 2, np);
                                *reinterpret_cast<uint2 *>(
                                    p_warp + br_frb_beams_p_place(turn, mb, MB, row, PS) + 2 * i) = both;
                            }
                    }
                __syncwarp();
            }

            /* sum[mb]: see br_wgmma_c; rows are beams, columns time steps */
            float sum[MB][NT / 2];
            bool add = false;
#pragma unroll 1
            for (unsigned turn = 0; turn < w.turns; turn++) {
                /* u_p[mb][h][..]  simd: p0  register: mb, h, i <-> mb, row3, p1..  thread: t4 t3 t2 <-> row2
                 * row1 row0 */
                unsigned u_p[MB][2][WORDS];
#pragma unroll
                for (int mb = 0; mb < MB; mb++) {
                    const uint4 *from =
                        reinterpret_cast<const uint4 *>(p_warp + br_frb_beams_p_place(turn, mb, MB, g, PS));
#pragma unroll
                    for (int i = 0; i < PS / 4; i++) {
                        uint4 v = from[i];
                        (&u_p[mb][0][0])[4 * i] = v.x, (&u_p[mb][0][0])[4 * i + 1] = v.y;
                        (&u_p[mb][0][0])[4 * i + 2] = v.z, (&u_p[mb][0][0])[4 * i + 3] = v.w;
                    }
                }
                /* a[which][mb][k]: see br_wgmma_f16_a; two operations in a row on the same sums: that takes
                 * less power */
                unsigned a[2][MB][CHAIN][4];
#pragma unroll
                for (int box = 0; box < BOXES; box++) {
                    barrier_wait(full + slot, parity);
                    uint64_t b = br_wgmma_descriptor(ring + slot * BOX_BYTES, 16, 1024, BR_WGMMA_128);
#pragma unroll
                    for (int kk = 0; kk < 4 / CHAIN; kk++) {
                        const int buf = kk % 2;
#pragma unroll
                        for (int mb = 0; mb < MB; mb++)
#pragma unroll
                            for (int k = 0; k < CHAIN; k++)
#pragma unroll
                                for (int r = 0; r < 4; r++) {
                                    /* r1: which octet of the 16 k's; r0: row3 */
                                    int octet = (box * 4 + kk * CHAIN + k) * 2 + r / 2, p = octet / OCTETS,
                                        o = octet % OCTETS;
                                    unsigned word = u_p[mb][r % 2][p / 2];
                                    __half2 pair = *reinterpret_cast<__half2 *>(&word),
                                            q = *reinterpret_cast<__half2 *>(&u_q[mb][o][r % 2]);
                                    __half2 product =
                                        __hmul2(p % 2 ? __high2half2(pair) : __low2half2(pair), q);
                                    a[buf][mb][k][r] = *reinterpret_cast<unsigned *>(&product);
                                }
                        wgmma_fence();
#pragma unroll
                        for (int mb = 0; mb < MB; mb++)
#pragma unroll
                            for (int k = 0; k < CHAIN; k++)
                                wgmma_f16<NT>::multiply(sum[mb], a[buf][mb][k], b + 2 * (kk * CHAIN + k),
                                                        add || k > 0);
                        wgmma_commit();
                        add = true;
                        wgmma_wait<1>(); /* the registers a of the k's before these are free */
                        if (kk == 0 && (box > 0 || turn > 0) && lane == 0) barrier_arrive(empty + before);
                    }
                    before = slot;
                    if (++slot == w.ring) slot = 0, parity ^= 1;
                }
                if (n == 0 && turn == w.lead && group == 0) announce(3, GROUPS * GROUP);
            }
            wgmma_wait<0>();
            if (lane == 0) barrier_arrive(empty + before);

            /* Steps are columns: 8 j + 2 c, and the next one. */
            if (threadIdx.x % GROUP == 0) bulk_wait_read<0>();
            meet(1 + group, GROUP);
            const uint8_t *valid = w.valid ? w.valid + static_cast<size_t>(f) * w.stride : nullptr;
#pragma unroll
            for (int j = 0; j < NT / 8; j += 2) {
                bool keep[4] = {true, true, true, true};
                if (valid)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        unsigned t = step_tile * NT + (j + i / 2) * 8 + c * 2 + i % 2;
                        keep[i] = t < w.T && valid[t];
                    }
#pragma unroll
                for (int mb = 0; mb < MB; mb++) {
                    /* simd: t0  register: r1 r0 <-> j0 row3  thread: t4..t0 <-> row2 row1 row0 t2 t1 */
                    unsigned word[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float x = sum[mb][(j + i / 2) * 4 + i % 2 * 2] * 0x1p-14f,
                              y = sum[mb][(j + i / 2) * 4 + i % 2 * 2 + 1] * 0x1p-14f;
                        if (!keep[i / 2 * 2]) x = 0;
                        if (!keep[i / 2 * 2 + 1]) y = 0;
                        word[i] = pack_clamped(x, y);
                    }
                    unsigned step = (j + lane / 16) * 8 + lane % 8, octet = warp * 2 + lane / 8 % 2;
                    store_matrices_transposed(
                        results_group + mb * BOX_BYTES + br_frb_beams_out_place(step, octet), word);
                }
            }
            publish_shared();
            meet(1 + group, GROUP);
            if (threadIdx.x % GROUP == 0) {
                for (int mb = 0; mb < MB; mb++)
                    if (first_beam + mb * 64 < w.B)
                        tensor_store(&out, results_group + mb * BOX_BYTES,
                                     static_cast<int>(first_beam + mb * 64), static_cast<int>(step_tile * NT),
                                     static_cast<int>(f));
                bulk_commit();
            }
        }
        if (threadIdx.x % GROUP == 0) bulk_wait<0>();
    }
#endif
}

} // namespace hopper_arbitrary

} // namespace beamring

#endif
