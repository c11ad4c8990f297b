/* arbitrary.cuh - FRB stage 2 on a GPU, beams in any directions: per channel a product of matrices,
 *
 *   J[t][b] = sum_k I[t][k] W[k][b],   k = (p, q),   W = U_p U_q,
 *
 * on the tensor cores. W is never stored: two products of halves make the registers of one matrix operation
 * from those of U_p and U_q, so that weights cost (2M + 2N) B values per channel instead of 4MN B.
 *
 * A block forms STEPS = 16 MT time steps of 256 beams, each of its 8 warps 32 beams of all the steps. The 16
 * k's of one operation are an octet of q's for two neighbouring p's. Which beam is which column is chosen
 * such that a thread ends up with 8 consecutive beams: in a warp's 32 beams, column g of operation n is beam
 * 8 (g / 2) + 2 n + g % 2. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_MMA_ARBITRARY_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_MMA_ARBITRARY_CUH

#include "kernels/frb_beams/gpu/store.cuh"

namespace beamring
{

namespace mma_arbitrary
{

constexpr int WARPS = 8, THREADS = 32 * WARPS, STAGES = 3;
constexpr int MOST_PIECES = 24; /* 16-byte pieces of one time step in a stage */

/* The arguments of a launch. */
struct work {
    const uint16_t *in;                 /* [F][stride][2M][2N] */
    const uint8_t *valid;               /* [F][stride] or NULL */
    const uint4 *weights_q;             /* [F][blocks][octets][32 lanes]: 2^7 U_q, see steer.cuh */
    const uint4 *weights_p;             /* [F][blocks][pairs][8] */
    uint16_t *out;                      /* [F][stride][B] */
    unsigned T, stride, B, nq, cells;   /* stride: steps of a channel in memory, of which T are formed */
    unsigned blocks;                    /* of 32 beams */
    unsigned pairs, octets;             /* of p; of q */
    unsigned stage_pairs, stage_octets; /* at most this many in a stage */
    /* of a time step in a stage: an odd number of pieces, so that 8 rows use all banks */
    unsigned stride_pieces;
    unsigned step_tiles, beam_tiles;
    bool wide_in, wide_out; /* pieces of 16 bytes are aligned */
};

/* A stage: `stage_pairs` p pairs from `pair` on, of them `stage_octets` octets from `octet` on; fewer at the
 * ends. */
struct position {
    unsigned pair, octet;

    __device__ __forceinline__ void advance(const work &w)
    {
        octet += w.stage_octets;
        if (octet < w.octets) return;
        octet = 0;
        pair += w.stage_pairs;
    }
};

/* Starts the copies of one stage to stage[STEPS][p in stage][stage_octets] pieces. THREADS / STEPS threads
 * copy a step; in: this thread's step, shape (2M, 2N), contiguous, or, unless it is `present`, any address in
 * device memory. */
template <int STEPS>
__device__ __forceinline__ void load(uint4 *stage, const work &w, const uint16_t *in, const position &at,
                                     bool present)
{
    constexpr unsigned SHARE = THREADS / STEPS;
    unsigned octet = threadIdx.x % SHARE, p = 0;
    uint4 *to = stage + threadIdx.x / SHARE * w.stride_pieces;
    if (w.wide_in && w.stage_octets == w.octets) {
        /* The usual case: the pieces of a step are consecutive here and there. */
        unsigned first = 2 * at.pair * w.octets, count = 2 * w.stage_pairs * w.octets,
                 all = 2 * w.pairs * w.octets;
#pragma unroll 2
        for (unsigned i = octet; i < count; i += SHARE) {
            bool inside = present && first + i < all;
            copy_async_16(to + i, inside ? in + static_cast<size_t>(first + i) * 8 : in, inside);
        }
        return;
    }
    for (;;) {
        for (; octet >= w.stage_octets; p++) octet -= w.stage_octets;
        if (p >= 2 * w.stage_pairs) break;
        unsigned at_p = 2 * at.pair + p, q = 8 * (at.octet + octet);
        bool inside = present && at_p < 2 * w.pairs && q < w.nq;
        copy_piece(to + p * w.stage_octets + octet, in, static_cast<size_t>(at_p) * w.nq + q,
                   inside ? w.nq - q : 0, w.wide_in);
        octet += SHARE;
    }
}

/* Writes a warp's beams: out: shape (steps, B), contiguous. */
template <int MT>
__device__ __forceinline__ void put(uint16_t *out, const float (&sum)[MT][4][4], const work &w,
                                    unsigned block, unsigned steps, unsigned lane)
{
    unsigned beam = block * 32 + lane % 4 * 8;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned step = m * 16 + half * 8 + lane / 4;
            /* out: after the thread's offset: shape (8), contiguous. Four lanes write 64 consecutive bytes of
             * a step; the neighbouring warp the other half of the cache line. */
            if (step < steps && beam < w.B)
                store_octet(out + static_cast<size_t>(step) * w.B + beam, sum[m], half, 0x1p-14f, w.B - beam,
                            w.wide_out);
        }
}

template <int MT> __global__ void __launch_bounds__(THREADS, 2) form(const work w)
{
    constexpr int STEPS = 16 * MT;
    extern __shared__ uint4 stages[]; /* [STAGES][STEPS][stride] */

    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    /* Tiles are numbered [F][steps][beams]: blocks that run together share cache lines of the field. */
    unsigned tile = blockIdx.x, block = tile % w.beam_tiles * WARPS + warp;
    tile /= w.beam_tiles;
    unsigned first_step = tile % w.step_tiles * STEPS, f = tile / w.step_tiles;
    unsigned steps = min(w.T - first_step, static_cast<unsigned>(STEPS));
    bool active = block < w.blocks;

    size_t first_time = static_cast<size_t>(f) * w.stride + first_step;
    unsigned row = threadIdx.x / (THREADS / STEPS); /* the step that this thread copies */
    bool present = row < steps && (!w.valid || w.valid[first_time + row]);
    /* in: shape (F stride, cells), contiguous; after: shape (cells), contiguous.
     * out: shape (F stride, B), contiguous; after: shape (steps, B), contiguous. */
    const uint16_t *in = present ? w.in + (first_time + row) * w.cells : w.in;
    uint16_t *out = w.out + first_time * w.B;

    /* Weights: after the warp's and the thread's offset: shape (octets), stride 32, and (pairs), stride 8. */
    size_t of_block = static_cast<size_t>(f) * w.blocks + (active ? block : 0);
    const uint4 *weights_q = w.weights_q + of_block * w.octets * 32 + lane;
    const uint4 *weights_p = w.weights_p + of_block * w.pairs * 8 + lane / 4;

    /* sum[m][n][4]: register: m, n, r1 r0 <-> t5 t4, beam2 beam1, t3 beam0   thread: t4..t0 <-> t2 t1 t0
     * beam4 beam3 warp: w2 w1 w0 <-> beam7 beam6 beam5 */
    float sum[MT][4][4] = {};

    uint4 p_next = __ldg(weights_p);

    position loading = {0, 0}, at = {0, 0};
    for (int s = 0; s < STAGES - 1; s++) {
        if (loading.pair < w.pairs)
            load<STEPS>(stages + s * STEPS * w.stride_pieces, w, in, loading, present);
        copy_async_commit();
        loading.advance(w);
    }
    for (int now = 0; at.pair < w.pairs; now = now == STAGES - 1 ? 0 : now + 1) {
        copy_async_wait<STAGES - 2>();
        __syncthreads(); /* this stage has arrived for all; the one before it is no longer read */
        int next = now == 0 ? STAGES - 1 : now - 1;
        if (loading.pair < w.pairs)
            load<STEPS>(stages + next * STEPS * w.stride_pieces, w, in, loading, present);
        copy_async_commit();
        loading.advance(w);

        unsigned pairs = min(w.stage_pairs, w.pairs - at.pair),
                 octets = min(w.stage_octets, w.octets - at.octet);
        if (!active) pairs = 0;
        /* Lanes 0 to 15 give the addresses of 16 steps of the first p, 16 to 31 of the second. */
        unsigned field =
            shared_address(stages + (now * STEPS + lane % 16) * w.stride_pieces + lane / 16 * w.stage_octets);
        const uint4 *u = weights_q + static_cast<size_t>(at.octet) * 32;
        uint4 q_next = __ldg(u);
        for (unsigned r = 0; r < pairs; r++) {
            /* u_p.n  simd: p0  thread: t4 t3 t2 <-> column g of operation n. Each is used once, and so far
             * away that it is asked for one pair ahead. */
            const uint4 u_p = p_next;
            unsigned following = r + 1 < pairs                  ? at.pair + r + 1
                                 : at.octet + octets < w.octets ? at.pair
                                 : at.pair + pairs < w.pairs    ? at.pair + pairs
                                                                : at.pair;
            p_next = __ldg(weights_p + following * 8);
#pragma unroll 1
            for (unsigned o = 0; o < octets; o++) {
                /* u_q.n  simd: q0  thread: t4..t0 <-> g2 g1 g0 q2 q1 */
                const uint4 u_q = q_next;
                q_next = __ldg(u + (o + 1 < octets ? o + 1 : 0) * 32);
                /* b[n][2]  simd: q0  register: p0  thread: t4..t0 <-> g2 g1 g0 q2 q1 */
                unsigned b[4][2];
                outer_product(b[0], u_p.x, u_q.x);
                outer_product(b[1], u_p.y, u_q.y);
                outer_product(b[2], u_p.z, u_q.z);
                outer_product(b[3], u_p.w, u_q.w);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    /* a[4]  simd: q0  register: r1 r0 <-> p0 t3  thread: t4..t0 <-> t2 t1 t0 q2 q1 */
                    unsigned a[4];
                    load_matrices(a, field + m * 256 * w.stride_pieces); /* 16 steps of 16-byte pieces */
#pragma unroll
                    for (int n = 0; n < 4; n++) mma_f16(sum[m][n], a, b[n]);
                }
                field += 16;
            }
            field += 16 * (2 * w.stage_octets - octets);
        }
        at.advance(w);
    }
    if (active) put<MT>(out, sum, w, block, steps, lane);
}

} // namespace mma_arbitrary

} // namespace beamring

#endif
