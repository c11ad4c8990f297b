/* fused_middle.cuh - of FRB stage 2 and the quantizer in one kernel (fused.cuh): what its blocks share, and
 * the warps that form Y[p][j] = sum_q I[p][q] U_q[j] and send it to the blocks that own its j's. */
#ifndef BEAMRING_KERNELS_QUANTIZE_FUSED_MIDDLE_CUH
#define BEAMRING_KERNELS_QUANTIZE_FUSED_MIDDLE_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/quantize/layout.h"

#include <cuda_fp16.h>

namespace beamring
{

namespace fused
{

constexpr unsigned FORMERS = 4, QUANTIZERS = 12; /* warps */
constexpr int THREADS = 32 * (FORMERS + QUANTIZERS);
constexpr unsigned CLUSTER = 8, STEPS = 256, CHUNKS = 4, ROWS = 8, SLOTS = 2, ROUND = CLUSTER * SLOTS;
constexpr unsigned K_STEPS = 3;
constexpr unsigned CHUNK_BYTES = CLUSTER * BR_FUSED_PIECE; /* of Y */

struct work {
    const uint16_t *in;        /* [F][stride][2M][2N] */
    const uint8_t *valid;      /* [F][256], 0xff or 0, or NULL */
    const unsigned *weights_q; /* [F][j_tiles][q_steps][2][32 lanes][4]: U_q, as for grid.cuh */
    const uint4 *weights_p;    /* [F][p_steps][i_tiles][32 lanes]: U_p, the same */
    uint8_t *out;              /* [bx][by][F][row] */
    float2 *side;              /* [bx][by][F]: scale, offset */
    unsigned long long *clamped;
    size_t stride;
    unsigned F, np, nq, bx, by, j_tiles, i_tiles, q_steps, p_steps;
    unsigned parts;  /* of 96 i's */
    unsigned rounds; /* of a part: of 16 j's */
    float levels_rms;
};

struct shared {
    uint8_t y[STEPS / ROWS][BR_FUSED_PIECE];
    uint4 weights[6 * K_STEPS * 32]; /* U_p: see br_fused_weight */
    uint4 field[CHUNKS][ROWS][BR_FUSED_STEP_BYTES / 16];
    /* U_q of alternating rounds, of each lane of the warps that form Y */
    uint4 columns[2][FORMERS][K_STEPS][32];
    /* quantize::sums of alternating rounds, of each beam of a warp that quantizes */
    float halves[2][QUANTIZERS][3][32];
    unsigned clamped[32 * QUANTIZERS]; /* by each of their threads: registers are too few for it */
    barrier full[CHUNKS], empty[CHUNKS], loaded[FORMERS][CHUNKS], weighted, used; /* the last two: of U_p */
};

__device__ __forceinline__ unsigned pack_halves(float low, float high)
{
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<unsigned *>(&both);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- the cluster ---- */

__device__ __forceinline__ void meet_cluster()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::
                     : "memory");
}

__device__ __forceinline__ unsigned cluster_rank()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank)); /* asked for again instead of kept */
    return rank;
}

/* The address of another block's shared memory that corresponds to one of this block's. */
__device__ __forceinline__ unsigned in_block(unsigned address, unsigned rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* Writes to another block, whose barrier counts the bytes. */
__device__ __forceinline__ void send(unsigned to, unsigned full, unsigned a, unsigned b, unsigned c,
                                     unsigned d)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, [%1];\n" ::"r"(
            to),
        "r"(full), "r"(a), "r"(b), "r"(c), "r"(d)
        : "memory");
}

__device__ __forceinline__ void arrive_there(unsigned at)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(at) : "memory");
}

/* Where a cluster is: round `round` of part `part` of channel f. */
struct position {
    unsigned f, part, round;

    position() = default;
    __device__ __forceinline__ position(const work &w, unsigned number)
        : f(number / w.rounds / w.parts), part(number / w.rounds % w.parts), round(number % w.rounds)
    {
    }
    /* Whether that begins a part. */
    __device__ __forceinline__ bool advance(const work &w)
    {
        if (++round < w.rounds) return false;
        round = 0;
        if (++part == w.parts) part = 0, f++;
        return true;
    }
};

/* ---- the warps that form Y ---- */

/* Starts the copies of this lane's share of U_q for a round, to memory of its own: row g + 8 h is j = 16
 * round + 2 g + (h ^ turned), that of this slot of block g. u[K_STEPS][4]  simd: q0  register: k-step <-> q5
 * q4, r1 r0 <-> q3 h  thread: t4..t0 <-> g2 g1 g0 q2 q1 */
__device__ __forceinline__ void load_u(uint4 (*to)[32], const work &w, const position &at, unsigned lane,
                                       unsigned turned)
{
    /* weights_q: shape (F, j_tiles, q_steps, 2, 32, 4), contiguous: of 32 j's that of part n = 2 m + word % 2
     * (see grid.cuh) and lane 4 g' + q is 8 (g' / 2) + 2 n + g' % 2, cells 8 (word / 2) + 2 q */
    const unsigned j = at.round % 2 * 16 + 2 * (lane / 4), n = j % 8 / 2;
    const unsigned *even = w.weights_q +
                           (static_cast<size_t>(at.f) * w.j_tiles + at.round / 2) * (w.q_steps * 256) +
                           n / 2 * 128 + (2 * (j / 8) * 4 + lane % 4) * 4 + n % 2 + turned * 16,
                   *odd = even + 16 - turned * 32;
    uint8_t *bytes = reinterpret_cast<uint8_t *>(to[0] + lane);
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++) {
        const bool inside = k < w.q_steps;
        if (inside) {
#pragma unroll
            for (unsigned r = 0; r < 4; r++)
                copy_async_4(bytes + k * 512 + r * 4, (r % 2 ? odd : even) + k * 256 + r / 2 * 2, true);
        } else {
            *reinterpret_cast<uint4 *>(bytes + k * 512) = make_uint4(0, 0, 0, 0);
        }
    }
    copy_async_commit();
}

/* The field of one step. row: this lane's places in the rows of two tiles.
 *   cells[K_STEPS][6][2]  simd: q0  register: k-step <-> q5 q4, tile, r0 <-> q3  thread: t4..t0 <-> column of
 *                                   br_fused_p, q2 q1 */
__device__ __forceinline__ void load_cells(unsigned (&cells)[K_STEPS][6][2], const unsigned (&row)[3],
                                           unsigned offset)
{
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++)
#pragma unroll
        for (unsigned n = 0; n < 6; n += 2) {
            unsigned four[4];
            load_matrices(four, row[n / 2] + offset + 32 * k);
            cells[k][n][0] = four[0], cells[k][n][1] = four[1];
            cells[k][n + 1][0] = four[2], cells[k][n + 1][1] = four[3];
        }
}

/* Y of one step of 16 j's.
 *   word[h][6]  simd: p0  register: h, tile  thread: t4..t0 <-> g2 g1 g0, q: see br_fused_p */
__device__ __forceinline__ void form_middle(unsigned (&word)[2][6], const unsigned (&u)[K_STEPS][4],
                                            const unsigned (&cells)[K_STEPS][6][2])
{
    /* c[6][4]  register: tile, r1 r0 <-> h p0  thread: t4..t0 <-> g2 g1 g0, q */
    float c[6][4] = {};
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++)
#pragma unroll
        for (unsigned n = 0; n < 6; n++) mma_f16(c[n], u[k], cells[k][n]);
#pragma unroll
    for (unsigned n = 0; n < 6; n++) {
        word[0][n] = pack_halves(c[n][0], c[n][1]);
        word[1][n] = pack_halves(c[n][2], c[n][3]);
    }
}

/* Starts the loads of this warp's two steps of a chunk: four pieces each, by eight lanes. */
template <int BITS>
__device__ __forceinline__ void load_field(shared &s, const work &w, const position &at, unsigned rank,
                                           unsigned warp, unsigned chunk, unsigned lane)
{
    const unsigned pitch = w.nq * 2;
    barrier *full = &s.loaded[warp][chunk];
    if (lane == 0) barrier_expect(full, 2 * w.np * pitch);
    __syncwarp();
    const unsigned row = 2 * warp + lane / 4, piece = lane % 4, first = br_fused_first_p(piece),
                   last = min(piece < 3 ? br_fused_first_p(piece + 1) : BR_FUSED_CELLS, w.np);
    /* in: shape (F, stride, 2M, 2N), contiguous; after: shape (2M, 2N) */
    if (lane < 2 * BR_FUSED_PIECES && first < last)
        bulk_load(reinterpret_cast<uint8_t *>(s.field[chunk][row]) + br_fused_row(first, pitch),
                  w.in +
                      (static_cast<size_t>(at.f) * w.stride + br_fused_step(BITS, rank, chunk, row)) *
                          (w.np * w.nq) +
                      first * w.nq,
                  (last - first) * pitch, full);
}

/* This warp's share of U_p of a part, to shared memory. */
__device__ __forceinline__ void put_weights(uint4 *to, const work &w, const position &at, unsigned warp,
                                            unsigned lane)
{
    constexpr unsigned EACH = (6 * K_STEPS + FORMERS - 1) / FORMERS;
    uint8_t *bytes = reinterpret_cast<uint8_t *>(to);
    uint4 v[EACH];
#pragma unroll
    for (unsigned m = 0; m < EACH; m++) {
        const unsigned n = warp + m * FORMERS, tile = n % 6, k = n / 6, i_tile = at.part * 6 + tile;
        /* weights_p: shape (F, p_steps, i_tiles, 32), contiguous; v, lane: as in grid.cuh */
        v[m] = make_uint4(0, 0, 0, 0);
        if (k < w.p_steps && i_tile < w.i_tiles)
            v[m] = __ldg(w.weights_p +
                         ((static_cast<size_t>(at.f) * w.p_steps + k) * w.i_tiles + i_tile) * 32 + lane);
    }
#pragma unroll
    for (unsigned m = 0; m < EACH; m++) {
        const unsigned n = warp + m * FORMERS, tile = n % 6, k = n / 6;
        const unsigned word[4] = {v[m].x, v[m].y, v[m].z, v[m].w};
        if (k < K_STEPS)
#pragma unroll
            for (unsigned r = 0; r < 4; r++)
                *reinterpret_cast<unsigned *>(bytes + br_fused_weight(tile * 16 + r % 2 * 8 + lane / 4, k,
                                                                      r / 2 * 4 + lane % 4)) = word[r];
    }
}

/* VALID: there are steps that may be missing. */
template <int BITS, bool VALID>
__device__ __forceinline__ void form(shared &s, const work &w, unsigned begin, unsigned end, unsigned rank)
{
    const unsigned warp = threadIdx.x / 32 % FORMERS, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    /* Row g + 8 h of the products is for slot h ^ turned of block g: what is side by side in memory comes
     * from one lane in this order. */
    const unsigned turned = warp % 2;
    const unsigned wide = in_block(shared_address(s.y[rank]) + br_fused_wide(turned, 2 * warp, q), g),
                   other = in_block(shared_address(s.y[rank]) + br_fused_wide(turned ^ 1, 2 * warp, q), g),
                   narrow = in_block(shared_address(s.y[rank]) + br_fused_narrow(turned, 2 * warp, q), g),
                   full = in_block(shared_address(s.full), g);
    unsigned row[3]; /* lane 8 m + i: row i of tile m / 2, octet m % 2 */
#pragma unroll
    for (unsigned n = 0; n < 6; n += 2)
        row[n / 2] = shared_address(s.field[0][2 * warp]) +
                     br_fused_row(br_fused_p(n + lane / 16, lane % 8), w.nq * 2) + lane / 8 % 2 * 16;

    position at(w, begin);
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++) load_field<BITS>(s, w, at, rank, warp, chunk, lane);
    load_u(s.columns[0][warp], w, at, lane, turned);
    bool fresh = true; /* this round begins a part, or the cluster's work */
    unsigned part = ~0u, turn = 1;
    for (unsigned number = begin; number < end; number++, turn ^= 1) {
        unsigned u[K_STEPS][4];
        copy_async_wait<0>();
#pragma unroll
        for (unsigned k = 0; k < K_STEPS; k++) {
            const uint4 v = s.columns[turn ^ 1][warp][k][lane];
            u[k][0] = v.x, u[k][1] = v.y, u[k][2] = v.z, u[k][3] = v.w;
        }
        if (fresh) part++;
        position next = at;
        const bool last = next.advance(w) && number + 1 < end;
        if (number + 1 < end) load_u(s.columns[turn][warp], w, next, lane, turned);
#pragma unroll
        for (unsigned chunk = 0; chunk < CHUNKS; chunk++) {
            if (fresh) barrier_wait(&s.loaded[warp][chunk], part % 2);
            unsigned cells[2][K_STEPS][6][2];
#pragma unroll
            for (unsigned e = 0; e < 2; e++)
                load_cells(cells[e], row, (chunk * ROWS + e) * BR_FUSED_STEP_BYTES);
            const unsigned there = chunk * (CLUSTER * BR_FUSED_PIECE), to = full + chunk * sizeof(barrier);
#pragma unroll
            for (unsigned e = 0; e < 2; e++) {
                unsigned word[2][6];
                form_middle(word, u, cells[e]);
                if (VALID && !w.valid[at.f * STEPS + br_fused_step(BITS, rank, chunk, 2 * warp + e)])
#pragma unroll
                    for (unsigned n = 0; n < 6; n++)
                        word[0][n] = word[1][n] = 0; /* whatever the field has there */
                if (e == 0 && number > begin) barrier_wait(&s.empty[chunk], turn);
                send(wide + there + e * 64, to, word[0][0], word[0][1], word[0][2], word[0][3]);
                send(other + there + e * 64, to, word[1][0], word[1][1], word[1][2], word[1][3]);
                send(narrow + there + e * 64, to, word[0][4], word[0][5], word[1][4], word[1][5]);
            }
            if (last) {
                __syncwarp(); /* all lanes have read their cells */
                load_field<BITS>(s, w, next, rank, warp, chunk, lane);
            }
        }
        if (fresh) {
            if (number > begin) barrier_wait(&s.used, (part + 1) % 2);
            put_weights(s.weights, w, at, warp, lane);
            barrier_arrive(&s.weighted);
        }
        fresh = at.advance(w);
    }
}

#endif

} // namespace fused

} // namespace beamring

#endif
