/* form_y.cuh - of FRB stage 2 and the quantizer in one kernel (quantize_beams.cuh): what its blocks share,
 * and the warps that form Y[p][j] = sum_q I[p][q] U_q[j] and send it to the blocks that own its j's. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_GPU_FORM_Y_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_QUANTIZE_GPU_FORM_Y_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_beams/gpu/store.cuh"
#include "kernels/frb_beams_quantize/gpu/layout.h"
#include "kernels/quantize/plan.h"

namespace beamring
{

namespace frb_beams_quantize
{

constexpr unsigned FORMERS = 4, QUANTIZERS = 12; /* warps */
constexpr int THREADS = 32 * (FORMERS + QUANTIZERS);
/* Of each thread: together those of a multiprocessor. */
constexpr int FORMER_REGISTERS = 104, QUANTIZER_REGISTERS = 136;
constexpr unsigned CLUSTER = 8, STEPS = 256, SLOTS = 2, I_TILES = BR_FRB_BEAMS_QUANTIZE_BEAMS / 16;
constexpr unsigned CHUNKS = 4, ROWS = 8;            /* of a block's steps, and steps of a chunk */
constexpr unsigned K_STEPS = 3, UNITS = 3 * CHUNKS; /* of 32 columns, a warp's first products in a round */
constexpr unsigned HALF_BYTES =
    STEPS / 2 / ROWS * BR_FRB_BEAMS_QUANTIZE_PIECE; /* of Y, half a block of time */

struct work {
    const uint16_t *in;     /* [F][stride][2M][2N] */
    const uint8_t *valid;   /* [F][256], 0xff or 0, or NULL */
    const uint4 *weights_q; /* [F][j_tiles][q_steps][2][32 lanes]: U_q, as for grid.cuh */
    const uint4 *weights_p; /* [F][p_steps][i_tiles][32 lanes]: U_p, the same */
    uint8_t *out;           /* [bx][by][F][row] */
    float2 *side;           /* [bx][by][F]: scale, offset */
    unsigned long long *clamped;
    size_t stride;
    unsigned F, np, nq, bx, by, j_tiles, i_tiles, q_steps, p_steps;
    unsigned parts;  /* of 96 i's */
    unsigned rounds; /* of a part: of 16 j's, two for each tile */
    float levels_rms;
    br_quantize_slow slow; /* only with SLOW: state [F][by][bx] */
};

struct shared {
    uint8_t y[STEPS / ROWS][BR_FRB_BEAMS_QUANTIZE_PIECE];
    /* U_p: [tile of 16 i's][k-step][lane], operand a of the second product; and a tile of zeros */
    uint4 weights[(I_TILES + 1) * K_STEPS * 32];
    uint4 field[CHUNKS][ROWS][BR_FRB_BEAMS_QUANTIZE_STEP_BYTES / 16];
    /* U_q of alternating rounds, of each lane of the warps that form Y */
    uint4 columns[2][FORMERS][K_STEPS][32];
    uint4 valid[2][STEPS / 16];        /* of alternating parts: 0xff or 0 for each step of their channel */
    unsigned clamped[32 * QUANTIZERS]; /* by each of their threads: registers are too few for it */
    barrier full[2], empty[2], weighted, used; /* the last two: of U_p */
};

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
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank)); /* read at each use, not kept */
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

/* Which of the channel's j's is `slot` of block `rank`: those of a round are a tile of grid.cuh's. */
__device__ __forceinline__ unsigned find_j(unsigned round, unsigned rank, unsigned slot)
{
    return round / 2 * 32 + rank / 2 * 8 + round % 2 * 4 + slot * 2 + rank % 2;
}

/* ---- the warps that form Y ---- */

/* Starts the copies of this lane's share of U_q for a round, to memory of its own; the caller closes their
 * group. Row g + 8 h is for slot h of block g.
 *   u[K_STEPS][4]  simd: q0  register: k-step <-> q5 q4, r1 r0 <-> q3 h  thread: t4..t0 <-> g2 g1 g0 q2 q1 */
__device__ __forceinline__ void load_u(uint4 (*to)[32], const work &w, const position &at)
{
    const unsigned lane = lane_again();
    /* weights_q: shape (F, j_tiles, q_steps, 2, 32), contiguous */
    const uint4 *from =
        w.weights_q +
        ((static_cast<size_t>(at.f) * w.j_tiles + at.round / 2) * w.q_steps * 2 + at.round % 2) * 32 + lane;
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++) {
        const bool inside = k < w.q_steps;
        copy_async_16(to[k] + lane, inside ? from + k * 64 : from, inside);
    }
}

/* 32 columns of the first product, from this lane's place in the rows of the first two tiles; `four`: bytes
 * of 4 rows.
 *   cells[K_STEPS][4][2]  simd: q0  register: k-step <-> q5 q4, tile, r0 <-> q3
 *                         thread: t4..t0 <-> column of br_frb_beams_quantize_p, q2 q1 */
using columns = unsigned[K_STEPS][4][2];

__device__ __forceinline__ void load_cells(columns &cells, unsigned row, unsigned four)
{
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++)
#pragma unroll
        for (unsigned n = 0; n < 4; n += 2) {
            unsigned m[4];
            load_matrices(m, row + (n / 2) * four + 32 * k);
            cells[k][n][0] = m[0], cells[k][n][1] = m[1];
            cells[k][n + 1][0] = m[2], cells[k][n + 1][1] = m[3];
        }
}

/* Y of 16 j's in 32 columns.
 *   word[h][4]  simd: p0  register: h, tile <-> p2 p1  thread: t4..t0 <-> g2 g1 g0, q1 q0
 *              (q: see br_frb_beams_quantize_p) */
__device__ __forceinline__ void form_middle(unsigned (&word)[2][4], const unsigned (&u)[K_STEPS][4],
                                            const columns &cells)
{
    /* c[4][4]  register: tile, r1 r0 <-> h p0  thread: t4..t0 <-> g2 g1 g0, q */
    float c[4][4] = {};
#pragma unroll
    for (unsigned k = 0; k < K_STEPS; k++)
#pragma unroll
        for (unsigned n = 0; n < 4; n++) mma_f16(c[n], u[k], cells[k][n]);
#pragma unroll
    for (unsigned n = 0; n < 4; n++) {
        word[0][n] = pack_halves(c[n][0], c[n][1]);
        word[1][n] = pack_halves(c[n][2], c[n][3]);
    }
}

/* Starts the copies of this warp's two steps of a chunk, one group of them: 16 lanes have a step, 8 of these
 * every other piece of 8 p's. Cells that the field (a multiple of 8 both ways) does not have become 0, and of
 * where they would be nothing is read. */
template <int BITS>
__device__ __forceinline__ void load_field(shared &s, const work &w, const position &at, unsigned rank,
                                           unsigned warp, unsigned chunk)
{
    constexpr unsigned TOGETHER = 2; /* pieces of a step */
    const unsigned pitch = w.nq * 2, lane = lane_again(), row = 2 * warp + lane / 16,
                   begin = lane / 8 % TOGETHER * 8;
    uint4 *to = s.field[chunk][row] + lane % 8;
    /* in: shape (F, stride, 2M, 2N), contiguous; after: shape (2M, 2N) */
    const uint16_t *from =
        w.in + (static_cast<size_t>(at.f) * w.stride + br_frb_beams_quantize_step(BITS, rank, chunk, row)) *
                   (w.np * w.nq);
#pragma unroll
    for (unsigned m = 0; m < BR_FRB_BEAMS_QUANTIZE_CELLS; m += 8 * TOGETHER) {
        const unsigned first = begin + m, bytes = first < w.np ? min(w.np - first, 8u) * pitch : 0;
        /* after: shape (bytes / 16) */
        const uint4 *piece = reinterpret_cast<const uint4 *>(from + first * w.nq) + lane % 8;
#pragma unroll
        for (unsigned i = 0; i < BR_FRB_BEAMS_QUANTIZE_CELLS; i += 8) {
            const bool inside = (lane % 8 + i) * 16 < bytes;
            copy_async_16(to + br_frb_beams_quantize_row(first, pitch) / 16 + i, inside ? piece + i : piece,
                          inside);
        }
    }
    copy_async_commit();
}

/* Starts the copies of this warp's share of U_p of a part, and of which steps are there; `weighted` counts
 * the threads whose copies are complete. */
template <bool VALID>
__device__ __forceinline__ void load_weights(shared &s, const work &w, const position &at, unsigned part,
                                             unsigned warp)
{
    const unsigned lane = lane_again();
    /* valid: shape (F, STEPS), contiguous; after: shape (STEPS / 16) */
    if (VALID && warp == 0 && lane < STEPS / 16)
        copy_async_16(s.valid[part % 2] + lane,
                      reinterpret_cast<const uint4 *>(w.valid + at.f * STEPS) + lane, true);
#pragma unroll
    for (unsigned m = 0; m < (I_TILES * K_STEPS + FORMERS - 1) / FORMERS; m++) {
        const unsigned n = warp + m * FORMERS, tile = n % I_TILES, k = n / I_TILES,
                       i_tile = at.part * I_TILES + tile;
        if (k >= K_STEPS) continue;
        /* weights_p: shape (F, p_steps, i_tiles, 32), contiguous; lane: as in grid.cuh */
        const bool inside = k < w.p_steps && i_tile < w.i_tiles;
        const size_t from = inside ? (static_cast<size_t>(at.f) * w.p_steps + k) * w.i_tiles + i_tile : 0;
        copy_async_16(s.weights + (tile * K_STEPS + k) * 32 + lane, w.weights_p + from * 32 + lane, inside);
    }
    barrier_arrive_copied(&s.weighted);
}

/* VALID: there are steps that may be missing. */
template <int BITS, bool VALID>
__device__ __forceinline__ void form(shared &s, const work &w, unsigned begin, unsigned end, unsigned rank)
{
    const unsigned warp = threadIdx.x / 32 % FORMERS, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    /* Row g + 8 h of the products is for slot h of block g. */
    const unsigned to_wide =
                       in_block(shared_address(s.y[rank]) + br_frb_beams_quantize_wide(0, 2 * warp, q), g),
                   to_narrow = in_block(shared_address(s.y[rank]) +
                                            br_frb_beams_quantize_narrow(0, 2 * warp + q / 2, q % 2),
                                        g),
                   full = in_block(shared_address(s.full), g);
    /* lane 8 m + i: column i of tile m / 2, octet m % 2; of the first step's 32 p's, and of the last 16 of
     * both */
    const unsigned pitch = w.nq * 2, column = lane % 8, tile = lane / 16, octet = lane / 8 % 2 * 16,
                   four = 4 * pitch;
    const unsigned wide = shared_address(s.field[0][2 * warp]) +
                          br_frb_beams_quantize_row(br_frb_beams_quantize_p(true, tile, column), pitch) +
                          octet,
                   narrow = shared_address(s.field[0][2 * warp + column / 4]) +
                            br_frb_beams_quantize_row(br_frb_beams_quantize_p(false, tile, column), pitch) +
                            octet;

    position at(w, begin);
    load_u(s.columns[0][warp], w, at);
    copy_async_commit();
    for (unsigned chunk = 0; chunk < CHUNKS; chunk++) load_field<BITS>(s, w, at, rank, warp, chunk);
    bool fresh = true; /* this round is a part's first, or the cluster's */
    unsigned part = ~0u, parity = 1;
    unsigned there = 0; /* bits: of each chunk the warp's two steps, unless they are missing */
    for (unsigned number = begin; number < end; number++, parity ^= 1) {
        columns cells[2]; /* the next unit's are read before this one's products */
        unsigned u[K_STEPS][4];
        if (fresh) {
            part++;
            if (number > begin) barrier_wait(&s.used, (part + 1) % 2);
            load_weights<VALID>(s, w, at, part, warp);
            if (VALID)
                there = __ballot_sync(
                    WHOLE_WARP,
                    w.valid[at.f * STEPS +
                            br_frb_beams_quantize_step(BITS, rank, lane / 2 % CHUNKS, 2 * warp + lane % 2)]);
            copy_async_wait<CHUNKS - 1>(); /* for U_q and the first chunk */
        } else {
            copy_async_wait<0>(); /* for U_q */
        }
        __syncwarp();
        load_cells(cells[0], wide, four);
#pragma unroll
        for (unsigned k = 0; k < K_STEPS; k++) {
            const uint4 v = s.columns[parity ^ 1][warp][k][lane];
            u[k][0] = v.x, u[k][1] = v.y, u[k][2] = v.z, u[k][3] = v.w;
        }
        position next = at;
        const bool last = next.advance(w) && number + 1 < end;
        if (number + 1 < end) load_u(s.columns[parity][warp], w, next);
        copy_async_commit(); /* counted below, be there copies or not */
#pragma unroll
        for (unsigned unit = 0; unit < UNITS; unit++) {
            /* Units 0 and 1 of a chunk: the first 32 p's of its first and second step; 2: the others of both.
             */
            const unsigned chunk = unit / 3, e = unit % 3, later = unit + 1,
                           from = later / 3 * (ROWS * BR_FRB_BEAMS_QUANTIZE_STEP_BYTES);
            if (e == 2 && later < UNITS) {
                /* The next chunk must be there; after it at least the others of its part and U_q are under
                 * way. */
                if (chunk == 0) copy_async_wait<CHUNKS - 1>();
                if (chunk == 1) copy_async_wait<CHUNKS - 2>();
                if (chunk == 2) copy_async_wait<CHUNKS - 3>();
                __syncwarp();
            }
            if (later < UNITS)
                load_cells(cells[later % 2],
                           from +
                               (later % 3 < 2 ? wide + later % 3 * BR_FRB_BEAMS_QUANTIZE_STEP_BYTES : narrow),
                           four);
            unsigned word[2][4];
            form_middle(word, u, cells[unit % 2]);
            if (VALID && !(there >> (2 * chunk + (e < 2 ? e : q / 2)) & 1))
#pragma unroll
                for (unsigned n = 0; n < 4; n++) word[0][n] = word[1][n] = 0; /* whatever the field has */
            if (unit % (UNITS / 2) == 0 && number > begin) barrier_wait(&s.empty[chunk / 2], parity);
            /* a second row, and the other j, only add */
            const unsigned to = chunk * (CLUSTER * BR_FRB_BEAMS_QUANTIZE_PIECE) +
                                (e < 2 ? to_wide + e * br_frb_beams_quantize_wide(0, 1, 0) : to_narrow),
                           other = to + (e < 2 ? br_frb_beams_quantize_wide(1, 0, 0)
                                               : br_frb_beams_quantize_narrow(1, 0, 0) -
                                                     br_frb_beams_quantize_narrow(0, 0, 0)),
                           counts = full + chunk / 2 * sizeof(barrier);
            send(to, counts, word[0][0], word[0][1], word[0][2], word[0][3]);
            send(other, counts, word[1][0], word[1][1], word[1][2], word[1][3]);
            if (last && e == 2) {
                __syncwarp(); /* all lanes have read their cells */
                load_field<BITS>(s, w, next, rank, warp, chunk);
            }
        }
        fresh = at.advance(w);
    }
}

#endif

} // namespace frb_beams_quantize

} // namespace beamring

#endif
