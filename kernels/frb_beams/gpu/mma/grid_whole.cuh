/* grid_whole.cuh - FRB stage 2 on a GPU, beams on a grid (i, j), where a whole time step of the field fits
 * into shared memory and U_q into registers: the same two products as in grid.cuh,
 *
 *   Y[p][j] = sum_q I[p][q] U_q[j],   J[i][j] = sum_p U_p[i] Y[p][j],
 *
 * Y again in registers only. A warp forms 32 j's by up to 16 IT i's of one time step. A team is warps_j warps
 * with neighbouring j's; it shares the time step's field and has a barrier of its own. So teams drift apart,
 * and one writes its output while another multiplies. A team's time steps are consecutive; it keeps U_q in
 * registers until the channel changes.
 *
 * Where a team has all beams of a time step, which are then consecutive in memory, it collects them in shared
 * memory and writes whole cache lines; otherwise a warp writes its pieces of 64 bytes.
 *
 * A warp's values at the end of a time step (`products`), which are not written yet:
 * J of the 32 j's from 32 j_block on and the 16 IT i's from first_i on, as
 *
 *   sum[m][n][4]  register: m, n, r1 r0 <-> i6 i5 i4, j2 j1, i3, j0   thread: t4..t0 <-> i2 i1 i0 j4 j3
 *
 * so that sum[m][0..3][2 h], sum[m][0..3][2 h + 1] are 8 consecutive j's of i = 16 m + 8 h + lane / 4. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_MMA_GRID_WHOLE_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_MMA_GRID_WHOLE_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/frb_beams/gpu/layout.h"
#include "kernels/frb_beams/gpu/store.cuh"

namespace beamring
{

namespace mma_grid_whole
{

constexpr int STAGES = 3; /* time steps of a team's field in shared memory */
constexpr int MOST_WARPS = 12;

/* The arguments of a launch. */
struct work {
    const uint16_t *in;     /* [F][T + gap][2M][2N], 2N a multiple of 8 */
    const uint8_t *valid;   /* [F][T + gap] or NULL */
    const uint4 *weights_q; /* [F][j_blocks][QT][2][32 lanes]: U_q / shrink, as in grid.cuh */
    const uint4 *weights_p; /* [F][p_blocks][i_tiles][32 lanes]: U_p shrink */
    uint16_t *out;          /* [F][T + gap][row], of which bx by are written */
    unsigned T, gap, np, nq, bx, by;
    unsigned j_blocks, i_tiles;  /* of 32, of 16; i_tiles a multiple of IT */
    unsigned p_blocks;           /* of 16 p's */
    unsigned j_tiles, i_blocks;  /* of 32 warps_j, of 16 IT */
    unsigned steps, tasks;       /* F T; steps j_tiles i_blocks */
    unsigned octets, reciprocal; /* of q; 65536 / octets + 1 */
    unsigned warps_j, teams;     /* warps of a team; teams of a block */
    unsigned team_bytes;         /* of a team's part of shared memory, a multiple of 128 */
    unsigned pitch;              /* of results: by if a team has all beams of a time step, else 32 warps_j */
    bool wide_out;               /* pieces of 16 bytes are aligned */
    unsigned row;                /* bx by, or one more */
    bool together;               /* a team has all beams of a time step, and wide_out */
    bool shifted;                /* a team has all beams of a time step; rows are not aligned */
};

/* A time step's field in shared memory: rows of 16-byte pieces, an odd number of them. */
__host__ __device__ inline unsigned stage_pieces(unsigned p_blocks, unsigned qt)
{
    return p_blocks * 16 * br_frb_beams_row(qt);
}

/* Starts the copies of a time step by a team. */
template <int QT>
__device__ __forceinline__ void load(uint4 *stage, const work &w, unsigned step, unsigned thread)
{
    unsigned count = w.np * w.octets;
    size_t time = step + static_cast<size_t>(step / w.T) * w.gap;
    bool present = !w.valid || w.valid[time];
    /* in: shape (F (T + gap), 2M, 2N), contiguous; after: shape (2M, octets, 8), contiguous */
    const uint16_t *in = w.in + time * w.np * w.nq;
    for (unsigned i = thread; i < count; i += 32 * w.warps_j) {
        unsigned row = i * w.reciprocal >> 16, octet = i - row * w.octets;
        copy_async_16(stage + row * br_frb_beams_row(QT) + octet, in + i * 8, present);
    }
}

/* Puts a warp's J, clamped, into the team's results[16 IT][pitch] halves in shared memory, of which `i_end`
 * rows and `j_end` columns are wanted. j: this lane's first one, in the team. */
template <int IT>
__device__ __forceinline__ void put(uint8_t *results, unsigned pitch, unsigned i_end, unsigned j_end,
                                    unsigned j, unsigned lane, const float (&sum)[IT][4][4])
{
    if (j >= j_end) return;
#pragma unroll
    for (int m = 0; m < IT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned i = m * 16 + half * 8 + lane / 4;
            if (i < i_end)
                *reinterpret_cast<uint4 *>(results + br_frb_beams_put_place(i, j, pitch)) =
                    make_uint4(pack_clamped(sum[m][0][2 * half], sum[m][0][2 * half + 1]),
                               pack_clamped(sum[m][1][2 * half], sum[m][1][2 * half + 1]),
                               pack_clamped(sum[m][2][2 * half], sum[m][2][2 * half + 1]),
                               pack_clamped(sum[m][3][2 * half], sum[m][3][2 * half + 1]));
        }
}

/* Copies them to out[..][by], octet by octet. */
template <int IT>
__device__ __forceinline__ void take(uint16_t *out, const uint8_t *results, const work &w, unsigned i_end,
                                     unsigned j_end, unsigned thread)
{
    unsigned octets = w.pitch / 8;
    for (unsigned n = thread; n < 16 * IT * octets; n += 32 * w.warps_j) {
        unsigned i = n / octets, j = (n - i * octets) * 8;
        if (i >= i_end || j >= j_end) continue;
        const uint4 v = *reinterpret_cast<const uint4 *>(results + br_frb_beams_put_place(i, j, w.pitch));
        uint16_t *to = out + static_cast<size_t>(i) * w.by + j;
        if (w.wide_out) {
            *reinterpret_cast<uint4 *>(to) = v;
        } else {
            const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (unsigned k = 0; k < 8; k++)
                if (j + k < j_end) to[k] = static_cast<uint16_t>(word[k / 2] >> k % 2 * 16);
        }
    }
}

__device__ __forceinline__ void meet(unsigned team, unsigned threads)
{
    asm volatile("bar.sync %0, %1;\n" ::"r"(team + 1), "r"(threads) : "memory");
}

/* One time step's J of a warp: 32 j's, 16 IT i's. field, u_p: this lane's places in the first p block, in
 * shared memory (see form). */
template <int IT, int QT>
__device__ __forceinline__ void products(float (&sum)[IT][4][4], unsigned field, const uint4 (&u_q)[QT][2],
                                         const uint4 *u_p, unsigned p_blocks)
{
#pragma unroll
    for (int m = 0; m < IT; m++)
#pragma unroll
        for (int r = 0; r < 16; r++) sum[m][r / 4][r % 4] = 0;
#pragma unroll 1
    for (unsigned block = 0; block < p_blocks; block++) {
        /* middle[m][h][4]: register: m, r1, h, r0 <-> n1, n0, p3, p0   thread: t4..t0 <-> g2 g1 g0 p2 p1 */
        float middle[2][2][4] = {};
#pragma unroll
        for (int k = 0; k < QT; k++) {
            /* i[4]  simd: q0  register: r1 r0 <-> p3 q3  thread: t4..t0 <-> p2 p1 p0 q2 q1 */
            unsigned i[4];
            load_matrices(i, field + 32 * k);
            const unsigned low[2] = {i[0], i[1]}, high[2] = {i[2], i[3]};
#pragma unroll
            for (int m = 0; m < 2; m++) {
                const unsigned u[4] = {u_q[k][m].x, u_q[k][m].y, u_q[k][m].z, u_q[k][m].w};
                mma_f16(middle[m][0], u, low);
                mma_f16(middle[m][1], u, high);
            }
        }
        /* y[n][2]  simd: p0  register: n, p3  thread: t4..t0 <-> g2 g1 g0 p2 p1 */
        unsigned y[4][2];
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                y[n][h] = pack_halves(middle[n / 2][h][n % 2 * 2], middle[n / 2][h][n % 2 * 2 + 1]);
#pragma unroll
        for (int m = 0; m < IT; m++) {
            /* u[4]  simd: p0  register: r1 r0 <-> p3 i3  thread: t4..t0 <-> i2 i1 i0 p2 p1 */
            const uint4 v = u_p[m * 32];
            const unsigned u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int n = 0; n < 4; n++) mma_f16(sum[m][n], u, y[n]);
        }
        field += 16 * 16 * br_frb_beams_row(QT);
        u_p += IT * 32;
    }
}

template <int IT, int QT> __global__ void __launch_bounds__(32 * MOST_WARPS, 1) form(const work w)
{
    extern __shared__ __align__(128)
        uint4 shared[]; /* [teams] of: [STAGES][16 p_blocks][row], [p_blocks][IT][32], results */
    const unsigned ROW = br_frb_beams_row(QT);
    unsigned team_threads = 32 * w.warps_j, lane = threadIdx.x % 32;
    unsigned team = threadIdx.x / team_threads, thread = threadIdx.x - team * team_threads;
    unsigned size = stage_pieces(w.p_blocks, QT);
    uint4 *mine = shared + team * (w.team_bytes / 16), *u_p = mine + STAGES * size;
    uint8_t *results = reinterpret_cast<uint8_t *>(u_p + w.p_blocks * IT * 32);
    /* Rows of p's and pieces of q's that the copies never touch are 0. */
    for (unsigned i = thread; i < STAGES * size; i += team_threads) mine[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();

    unsigned long long all = w.tasks;
    unsigned teams = gridDim.x * w.teams, number = blockIdx.x * w.teams + team;
    unsigned end = static_cast<unsigned>(all * (number + 1) / teams);
    /* Tasks are numbered [i block][j tile][F][T]. */
    unsigned task = static_cast<unsigned>(all * number / teams), step = task % w.steps;
    for (unsigned s = 0; s < STAGES - 1; s++) {
        if (task + s < end) load<QT>(mine + s * size, w, (step + s) % w.steps, thread);
        copy_async_commit();
    }
    /* u_q[k][m]  simd: q0  register: m, word0 <-> n1, n0; word1 <-> q3; k <-> q5 q4  thread: t4..t0 <-> g2 g1
     * g0 q2 q1 */
    uint4 u_q[QT][2];
    unsigned known = ~0u;
    /* Lanes 8 k to 8 k + 7 give the addresses of the p's (k / 2) 8 to (k / 2) 8 + 7, octet k % 2. */
    unsigned field = shared_address(mine + (lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2);
    unsigned now = 0;
    for (; task < end; task++) {
        copy_async_wait<STAGES - 2>();
        /* This stage has arrived for all of the team; the one before it is no longer read. */
        meet(team, team_threads);
        if (task + STAGES - 1 < end)
            load<QT>(mine + (now == 0 ? STAGES - 1 : now - 1) * size, w, (step + STAGES - 1) % w.steps,
                     thread);
        copy_async_commit();

        /* `which` tells apart channels and tiles: task - step is a multiple of the steps, of which there are
         * at least as many. */
        unsigned tile = task / w.steps, i_block = tile / w.j_tiles, j_tile = tile - i_block * w.j_tiles;
        unsigned first_j = j_tile * 32 * w.warps_j, j_block = j_tile * w.warps_j + thread / 32;
        unsigned first_i = i_block * 16 * IT, f = step / w.T, which = task - step + f;
        if (which != known) {
            known = which;
            /* weights_q: shape (F, j_blocks, QT, 2, 32), contiguous; after: shape (QT, 2), stride 32. Beyond
             * the last j_block: any. */
            const uint4 *from =
                w.weights_q + (static_cast<size_t>(f) * w.j_blocks + min(j_block, w.j_blocks - 1)) * QT * 64 +
                lane;
#pragma unroll
            for (int k = 0; k < QT; k++)
#pragma unroll
                for (int m = 0; m < 2; m++) u_q[k][m] = __ldg(from + (2 * k + m) * 32);
            /* weights_p: shape (F, p_blocks, i_tiles, 32), contiguous; after: shape (p_blocks, IT 32), stride
             * 32 i_tiles */
            from = w.weights_p + (static_cast<size_t>(f) * w.p_blocks * w.i_tiles + i_block * IT) * 32;
            for (unsigned block = 0; block < w.p_blocks; block++)
                for (unsigned i = thread; i < IT * 32; i += team_threads)
                    u_p[block * IT * 32 + i] = from[block * w.i_tiles * 32 + i];
            meet(team, team_threads);
        }
        /* sum: see above */
        float sum[IT][4][4];
        products<IT, QT>(sum, field + now * size * 16, u_q, u_p + lane_again(), w.p_blocks);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (thread == 0) bulk_wait_read<0>();
#endif
        meet(team, team_threads); /* the results before these are out */
        unsigned again = lane_again();
        put(results, w.pitch, w.bx - first_i, w.by - first_j, thread / 32 * 32 + again % 4 * 8, again, sum);
        /* out: shape (F (T + gap), bx, by), strides (row, by, 1); after: shape (i's, j's), stride by */
        uint16_t *out = w.out + (step + static_cast<size_t>(f) * w.gap) * w.row + first_i * w.by + first_j;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        publish_shared();
#endif
        meet(team, team_threads);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (w.together) {
            if (thread == 0) {
                bulk_store(out, results, w.bx * w.by * 2);
                bulk_commit();
            }
        } else
#endif
            if (w.shifted)
            copy_row(out, reinterpret_cast<const uint16_t *>(results), w.bx * w.by, thread, team_threads);
        else
            take<IT>(out, results, w, w.bx - first_i, w.by - first_j, thread);
        now = now == STAGES - 1 ? 0 : now + 1;
        step = step + 1 == w.steps ? 0 : step + 1;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (thread == 0) bulk_wait<0>();
#endif
}

} // namespace mma_grid_whole

} // namespace beamring

#endif
