/* arbitrary.cuh - FRB stage 2 on sm_90a, beams in any directions: per channel J' = W' I',
 *
 *   J[b][t] = sum_k W[k][b] I[t][k],   k = (p, q),   W = U_p U_q,
 *
 * with beams as rows of the tensor cores' product and time steps as columns. W never exists: a warp's rows of
 * W for 16 k's are one product of halves per register, from the U_q of its beams, which stay in registers,
 * and their U_p from shared memory. The field streams through a ring of boxes of 64 k's by NT steps, which
 * all beams of the block share.
 *
 * The kernel is persistent. A block has two groups of four warps that multiply, each 64 MB beams by NT steps,
 * and a warp that starts the copies. The groups take the same boxes, but one is up to a ring ahead of the
 * other: it makes weights and writes its output while the other one multiplies. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_WGMMA_ARBITRARY_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_WGMMA_ARBITRARY_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_beams/gpu/layout.h"
#include "kernels/frb_beams/gpu/store.cuh"
#include "kernels/frb_beams/gpu/weights.cuh"

namespace beamring
{

namespace wgmma_arbitrary
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

/* The arguments of a launch. */
struct work {
    const uint8_t *valid;                    /* [F][stride], of which T steps, or NULL */
    const phase_params *phases_m, *phases_n; /* [F][B] */
    unsigned T, stride, B, F, np;
    unsigned ring;       /* boxes in it */
    unsigned iterations; /* of BOXES boxes */
    unsigned lead;       /* iterations that the first group is ahead of the second; less than the ring */
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
__host__ __device__ inline unsigned p_bytes(unsigned iterations, unsigned ps, int mb)
{
    return iterations * ps * 2 * 64 * static_cast<unsigned>(GROUPS * mb);
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

/* NQ: q's, a multiple of 8. An iteration of the loop over k takes BOXES boxes, which are PS p's. */
template <int NQ> struct iteration_of {
    static constexpr int BOXES = NQ == 32 ? 2 : 3, PS = BOXES * BOX / NQ;
    static_assert(PS * NQ == BOXES * BOX && PS % 4 == 0, "an iteration takes whole p's");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The ring of boxes: full[slot] counts the bytes of a box, empty[slot] the warps that have read it. */
struct ring {
    uint8_t *boxes; /* [w.ring][NT][128 bytes], swizzled */
    barrier *full, *empty;
};

/* Twiddle factors: cosine and sine of pi i / NQ and of pi i / np, made by all threads. */
template <int NQ> __device__ __forceinline__ void make_twiddles(float2 *twiddle_n, unsigned np)
{
    for (unsigned i = threadIdx.x; i < NQ + np; i += THREADS) {
        float angle =
            i < NQ ? static_cast<float>(i) / NQ : static_cast<float>(i - NQ) / static_cast<float>(np);
        twiddle_n[i] = make_float2(cospif(angle), sinpif(angle));
    }
}

/* One thread: copies the boxes of all tiles of this block into the ring, as its slots become free. */
template <int NQ, int NT>
__device__ __forceinline__ void copy_boxes(const ring &to, const CUtensorMap &in, const work &w,
                                           const schedule &plan)
{
    constexpr unsigned BOX_BYTES = NT * 128;
    unsigned item, step_tile, boxes = w.iterations * iteration_of<NQ>::BOXES, slot = 0, parity = 1;
    for (unsigned n = 0; plan.find(w, n, &item, &step_tile); n++) {
        int f = static_cast<int>(item / w.beam_tiles), t = static_cast<int>(step_tile * NT);
        for (unsigned box = 0; box < boxes; box++) {
            barrier_wait(to.empty + slot, parity);
            barrier_expect(to.full + slot, BOX_BYTES);
            tensor_load(to.boxes + slot * BOX_BYTES, &in, to.full + slot, static_cast<int>(box * BOX), t, f);
            if (++slot == w.ring) slot = 0, parity ^= 1;
        }
    }
}

/* The weights of a warp's beams, first_beam + 64 mb + 16 warp and the 15 that follow, in channel f: U_q to
 * registers, U_p to p_warp (br_frb_beams_p_place).
 *
 *   u_q[mb][o][h]  simd: q0  register: mb, o, h <-> mb, q5 q4 q3, row3
 *                  thread: t4..t0 <-> row2 row1 row0 q2 q1  warp: w1 w0 <-> row5 row4 (row: a beam of 64) */
template <int NQ, int MB>
__device__ __forceinline__ void make_weights(unsigned (&u_q)[MB][NQ / 8][2], uint8_t *p_warp, const work &w,
                                             unsigned f, unsigned first_beam, const float2 *twiddle_n,
                                             const float2 *twiddle_m, unsigned warp, unsigned g, unsigned c)
{
    constexpr int PS = iteration_of<NQ>::PS, OCTETS = NQ / 8;
    /* phases: shape (F, B), contiguous */
    const phase_params *phases_m = w.phases_m + static_cast<size_t>(f) * w.B,
                       *phases_n = w.phases_n + static_cast<size_t>(f) * w.B;
    __syncwarp();
#pragma unroll
    for (int mb = 0; mb < MB; mb++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            unsigned row = h * 8 + g, beam = min(first_beam + mb * 64 + warp * 16 + row, w.B - 1);
            phase_params s = phases_n[beam];
#pragma unroll
            for (int o = 0; o < OCTETS; o++)
                u_q[mb][o][h] = weights(s, twiddle_n, 8 * o + 2 * static_cast<int>(c), NQ);
            s = phases_m[beam];
            /* The four lanes of a row share its p's. */
#pragma unroll 1
            for (unsigned iteration = c; iteration < w.iterations; iteration += 4)
#pragma unroll
                for (int i = 0; i < PS; i += 4) {
                    unsigned p = iteration * PS + i;
                    int np = static_cast<int>(w.np);
                    uint2 both = make_uint2(0, 0);
                    if (p < w.np) both.x = weights(s, twiddle_m, static_cast<int>(p), np);
                    if (p + 2 < w.np) both.y = weights(s, twiddle_m, static_cast<int>(p) + 2, np);
                    *reinterpret_cast<uint2 *>(p_warp + br_frb_beams_p_place(iteration, mb, MB, row, PS) +
                                               2 * i) = both;
                }
        }
    __syncwarp();
}

/* U_p of an iteration's p's, for this lane's rows g and g + 8.
 *   u_p[mb][h][..]  simd: p0  register: mb, h, i <-> mb, row3, p1..  thread: t4 t3 t2 <-> row2 row1 row0 */
template <int MB, int PS>
__device__ __forceinline__ void load_u_p(unsigned (&u_p)[MB][2][PS / 2], const uint8_t *p_warp,
                                         unsigned iteration, unsigned g)
{
#pragma unroll
    for (int mb = 0; mb < MB; mb++) {
        const uint4 *from =
            reinterpret_cast<const uint4 *>(p_warp + br_frb_beams_p_place(iteration, mb, MB, g, PS));
#pragma unroll
        for (int i = 0; i < PS / 4; i++) {
            uint4 v = from[i];
            (&u_p[mb][0][0])[4 * i] = v.x, (&u_p[mb][0][0])[4 * i + 1] = v.y;
            (&u_p[mb][0][0])[4 * i + 2] = v.z, (&u_p[mb][0][0])[4 * i + 3] = v.w;
        }
    }
}

/* W = U_p U_q of CHAIN operations in a row, from the iteration's k-step k_step (of 16 k's) on.
 *   a[mb][k]: see br_wgmma_f16_a; r1: which octet of the 16 k's, r0: row3 */
template <int NQ, int MB>
__device__ __forceinline__ void outer_products(unsigned (&a)[MB][CHAIN][4],
                                               const unsigned (&u_p)[MB][2][iteration_of<NQ>::PS / 2],
                                               const unsigned (&u_q)[MB][NQ / 8][2], int k_step)
{
    constexpr int OCTETS = NQ / 8;
#pragma unroll
    for (int mb = 0; mb < MB; mb++)
#pragma unroll
        for (int k = 0; k < CHAIN; k++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int octet = (k_step + k) * 2 + r / 2, p = octet / OCTETS, o = octet % OCTETS;
                unsigned word_p = u_p[mb][r % 2][p / 2], word_q = u_q[mb][o][r % 2];
                __half2 pair = *reinterpret_cast<__half2 *>(&word_p),
                        q = *reinterpret_cast<__half2 *>(&word_q);
                __half2 product = __hmul2(p % 2 ? __high2half2(pair) : __low2half2(pair), q);
                a[mb][k][r] = *reinterpret_cast<unsigned *>(&product);
            }
}

/* Writes a group's sums of one tile, times 2^-14, to out: through its part of shared memory, `results`, which
 * the copies of its previous tile must have left. Missing steps become 0.
 *   sum[mb]: see br_wgmma_c; columns are steps: 8 j + 2 c and the next one */
template <int MB, int NT>
__device__ __forceinline__ void store_tile(const CUtensorMap &out, uint8_t *results,
                                           const float (&sum)[MB][NT / 2], const work &w, unsigned f,
                                           unsigned step_tile, unsigned first_beam, unsigned group,
                                           unsigned warp, unsigned lane, unsigned c)
{
    constexpr unsigned BOX_BYTES = NT * 128;
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
            store_matrices_transposed(results + mb * BOX_BYTES + br_frb_beams_out_place(step, octet), word);
        }
    }
    publish_shared();
    meet(1 + group, GROUP);
    if (threadIdx.x % GROUP == 0) {
        for (int mb = 0; mb < MB; mb++)
            if (first_beam + mb * 64 < w.B)
                tensor_store(&out, results + mb * BOX_BYTES, static_cast<int>(first_beam + mb * 64),
                             static_cast<int>(step_tile * NT), static_cast<int>(f));
        bulk_commit();
    }
}

/* A consumer group's position in the ring. */
struct ring_position {
    unsigned slot, parity, before; /* before: the slot to give back next */
};

/* Adds an iteration's boxes to sum (`add`: or begins with them). The weights of the next k's are multiplied
 * out while the tensor cores take those before: a has two sets of registers. */
template <int NQ, int MB, int NT>
__device__ __forceinline__ void
multiply_boxes(float (&sum)[MB][NT / 2], bool &add, ring_position &at, const ring &from, unsigned boxes,
               const unsigned (&u_p)[MB][2][iteration_of<NQ>::PS / 2], const unsigned (&u_q)[MB][NQ / 8][2],
               const work &w, bool first, unsigned lane)
{
    constexpr unsigned BOX_BYTES = NT * 128;
    /* Two operations in a row on the same sums: that takes less power. */
    unsigned a[2][MB][CHAIN][4];
#pragma unroll
    for (int box = 0; box < iteration_of<NQ>::BOXES; box++) {
        barrier_wait(from.full + at.slot, at.parity);
        uint64_t b = br_wgmma_descriptor(boxes + at.slot * BOX_BYTES, 16, 1024, BR_WGMMA_128);
#pragma unroll
        for (int kk = 0; kk < 4 / CHAIN; kk++) {
            outer_products<NQ, MB>(a[kk % 2], u_p, u_q, box * 4 + kk * CHAIN);
            wgmma_fence();
#pragma unroll
            for (int mb = 0; mb < MB; mb++)
#pragma unroll
                for (int k = 0; k < CHAIN; k++)
                    wgmma_f16<NT>::multiply(sum[mb], a[kk % 2][mb][k], b + 2 * (kk * CHAIN + k),
                                            add || k > 0);
            wgmma_commit();
            add = true;
            wgmma_wait<1>(); /* the registers a of the k's before these are free */
            if (kk == 0 && (box > 0 || !first) && lane == 0) barrier_arrive(from.empty + at.before);
        }
        at.before = at.slot;
        if (++at.slot == w.ring) at.slot = 0, at.parity ^= 1;
    }
}

/* A consumer group: weights, products and output of all tiles of this block. The second group starts when the
 * first one is w.lead iterations ahead. */
template <int NQ, int MB, int NT>
__device__ __forceinline__ void consume(const ring &from, const CUtensorMap &out, const work &w,
                                        const schedule &plan, uint8_t *results, uint8_t *p_warp,
                                        const float2 *twiddle_n, const float2 *twiddle_m, unsigned group,
                                        unsigned warp, unsigned lane)
{
    constexpr int PS = iteration_of<NQ>::PS;
    unsigned item, step_tile, boxes = shared_address(from.boxes), last = ~0u;
    ring_position at = {0, 0, 0};
    unsigned g = lane / 4, c = lane % 4;
    unsigned u_q[MB][NQ / 8][2]; /* see make_weights */
    if (group == 1 && plan.find(w, 0, &item, &step_tile)) meet(3, GROUPS * GROUP);

    for (unsigned n = 0; plan.find(w, n, &item, &step_tile); n++) {
        unsigned f = item / w.beam_tiles, first_beam = (item % w.beam_tiles * GROUPS + group) * 64 * MB;
        if (item != last) {
            last = item;
            make_weights<NQ, MB>(u_q, p_warp, w, f, first_beam, twiddle_n, twiddle_m, warp, g, c);
        }
        float sum[MB][NT / 2]; /* see br_wgmma_c; rows are beams, columns time steps */
        bool add = false;
#pragma unroll 1
        for (unsigned iteration = 0; iteration < w.iterations; iteration++) {
            unsigned u_p[MB][2][PS / 2];
            load_u_p<MB, PS>(u_p, p_warp, iteration, g);
            multiply_boxes<NQ, MB, NT>(sum, add, at, from, boxes, u_p, u_q, w, iteration == 0, lane);
            if (n == 0 && iteration == w.lead && group == 0) announce(3, GROUPS * GROUP);
        }
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(from.empty + at.before);
        store_tile<MB, NT>(out, results, sum, w, f, step_tile, first_beam, group, warp, lane, c);
    }
    if (threadIdx.x % GROUP == 0) bulk_wait<0>();
}

#endif

template <int NQ, int MB, int NT>
__global__ void __launch_bounds__(THREADS, 1)
    form(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, const work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int PS = iteration_of<NQ>::PS;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t *results = shared + ring_bytes(w.ring, NT), *all_p = results + out_bytes(MB, NT);
    float2 *twiddle_n = reinterpret_cast<float2 *>(all_p + p_bytes(w.iterations, PS, MB)),
           *twiddle_m = twiddle_n + NQ;
    barrier *full = reinterpret_cast<barrier *>(twiddle_m + w.np), *empty = full + w.ring;
    const ring boxes = {shared, full, empty};
    unsigned group = threadIdx.x / GROUP, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < w.ring; i++) {
            barrier_start(full + i, 1);
            barrier_start(empty + i, GROUPS * 4);
        }
        barrier_publish();
    }
    make_twiddles<NQ>(twiddle_n, w.np);
    __syncthreads();
    const schedule plan(w);
    if (group == GROUPS) {
        registers_fewer<24>();
        if (warp != 0 || lane != 0) return;
        copy_boxes<NQ, NT>(boxes, in, w, plan);
    } else {
        registers_more<240>();
        uint8_t *p_warp = all_p + (group * 4 + warp) * (w.iterations * PS * 2 * 16 * MB);
        consume<NQ, MB, NT>(boxes, out, w, plan, results + group * MB * (NT * 128), p_warp, twiddle_n,
                            twiddle_m, group, warp, lane);
    }
#endif
}

} // namespace wgmma_arbitrary

} // namespace beamring

#endif
