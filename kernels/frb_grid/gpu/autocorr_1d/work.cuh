/* work.cuh - what a launch of FRB stage 1 by the 1-d autocorrelation has to do (launch.cu), and how its
 * bytes come to shared memory.
 *
 * A block of time is taken in pieces of PIECE samples, counted from its start, and pieces in steps. If a
 * piece is not complete when a call ends, its bytes are kept, so that products are always made of the
 * same samples, whatever the calls are; missing samples are zeros. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_WORK_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_1D_WORK_CUH

#include "kernels/frb_grid/gpu/autocorr_1d/autocorr.cuh"
#include "kernels/frb_grid/plan.h"

namespace beamring
{

constexpr unsigned PIECE = 64;     /* samples */
constexpr unsigned MOST_RUNS = 64; /* of a block of threads */
constexpr unsigned ENDS = 16;      /* steps of which is known whether a piece ends: more than are under way */
constexpr unsigned RING = 4;       /* steps of which bytes are in shared memory */

/* The block's barriers: each of steps' bytes, of y, of lags being there, and being free. */
enum : unsigned {
    BYTES = 0,
    BYTES_FREE = BYTES + RING,
    Y = BYTES_FREE + RING,
    Y_FREE = Y + 4,
    LAGS = Y_FREE + 4,
    LAGS_FREE = LAGS + 2,
    BARRIERS = LAGS_FREE + 2
};

/* Shared memory, in bytes from its start. */
struct autocorr_1d_memory {
    unsigned y, raw, lags, barriers, ends, steps, runs, weights, table,
        total;       /* y_ring y, RING steps, two times lags; of a long block */
    unsigned y_ring; /* 2 or 4 */
    unsigned y_bytes, raw_bytes, lags_bytes, bytes;
};

/* 4 where warpgroups transform, as the compiler then knows. */
__device__ __forceinline__ unsigned y_ring_of(const autocorr_1d_memory &m)
{
    return IN_GROUPS ? 4 : m.y_ring;
}

inline autocorr_1d_memory memory_of(unsigned MT, unsigned NT, unsigned directions, unsigned N, bool is_long,
                                    unsigned y_ring)
{
    autocorr_1d_memory m;
    m.y_bytes = directions * frb_autocorr_1d_y_pitch(MT);
    m.raw_bytes = 8 * frb_autocorr_1d_pitch(MT, NT);
    m.lags_bytes = frb_autocorr_1d_lag(MT, directions, 0);
    m.y = 0;
    m.y_ring = y_ring;
    m.raw = y_ring * m.y_bytes;
    m.lags = m.raw + RING * m.raw_bytes;
    m.barriers = m.lags + 2 * m.lags_bytes;
    m.ends = m.barriers + 8 * BARRIERS;
    m.steps = m.ends + ENDS;
    m.runs = m.steps + 16; /* autocorr_1d_run is aligned to 16 */
    m.weights = m.runs + MOST_RUNS * 32;
    /* Where registers do not suffice: of 8 warps that transform by wgmma, or of some of all rows. */
    m.table = m.weights + (MT == 3 ? 8 * MT * NT * 256 : 8 * MT * NT * 64);
    m.total = m.table + frb_autocorr_1d_table_bytes(NT, directions);
    m.bytes = m.total + (is_long ? frb_autocorr_1d_units(MT, N) * 512 : 0);
    return m;
}

/* Values that all plans of a launch share. */
struct autocorr_1d_grid {
    unsigned M, N, P, D;    /* M: cells along m */
    bool transposed;        /* m is the second axis */
    const uint4 *waves;     /* see half_transform */
    const uint4 *lag_waves; /* see frb_autocorr_1d_lag_wave */
    const uint4 *table;     /* see frb_autocorr_1d_table */
    autocorr_1d_constants constants;
    autocorr_1d_memory memory;
};

/* The blocks of one plan. */
struct autocorr_1d_job {
    unsigned first_cost, cost; /* of the jobs before; of a block: about how many steps it takes */
    unsigned T, F;             /* samples of a block, channels */
    unsigned pending;          /* samples of block 0 before this launch */
    unsigned blocks;           /* in this launch */
    unsigned last;             /* samples of the last block that are there, `pending` ones included */
    bool complete;             /* the last block ends here */
    const uint8_t *e;          /* [steps][row] */
    size_t row;
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    /* [M][NT][4], two each: frb_autocorr_1d_byte of the cells of frb_autocorr_1d_cell_n; those without a dish
     * have weight 0 */
    const unsigned *place;
    unsigned gap;         /* see frb_autocorr_1d_byte */
    const uint2 *weights; /* [F or 1][frb_autocorr_1d_weight] */
    const float *level;   /* [F or 1]: what intensities are multiplied by for the weights' scale */
    const float *factor;  /* [blocks][F] or NULL: all are `unit` */
    uint16_t *out;        /* [F][out_stride][cells] */
    size_t out_stride;
    const uint8_t *before; /* [F][piece][kept]: bytes of the piece that was not complete; NULL: none, zeros */
    uint8_t *after;        /* the same of the last block, when it is not complete */
    unsigned piece, kept;  /* samples, bytes of one */
    const float4 *sums;    /* [F][units][32]: intensities of the pieces before (long blocks); NULL: none */
    float4 *sums_after;
    float unit;
    unsigned width;      /* bytes that are copied at once: 16, 4 or 1 */
    bool shared_weights; /* by all channels */
    bool wide;           /* 4 bytes of out are aligned */
};

struct autocorr_1d_work {
    struct autocorr_1d_grid grid;
    unsigned njobs, cost, share; /* of all jobs, of a block of threads */
    struct autocorr_1d_job job[MOST_JOBS];
};

/* Input of draw_all() for a piece: the number of its block, and whether the block ends with it. */
enum : unsigned { BLOCK_ENDS = 1u << 31, BLOCK = BLOCK_ENDS - 1 };

/* Samples of a block that are there, those of calls before included. */
__device__ __forceinline__ unsigned samples_of(const autocorr_1d_job &w, unsigned block)
{
    return block + 1 < w.blocks ? w.T : w.last;
}

/* Those that this launch works on: of a block that goes on, whole pieces. */
__device__ __forceinline__ unsigned worked_on(const autocorr_1d_job &w, unsigned block)
{
    return block + 1 < w.blocks ? w.T : w.complete ? w.last : w.last / PIECE * PIECE;
}

/* Bytes [at, at + w.width) of a sample of this channel; NULL: missing. */
__device__ __forceinline__ const uint8_t *bytes_of(const autocorr_1d_job &w, const autocorr_1d_grid &grid,
                                                   unsigned f, unsigned block, unsigned t, unsigned byte)
{
    if (t >= samples_of(w, block)) return NULL;
    if (block == 0 && t < w.pending) /* before: shape (F, piece, kept) */
        return w.before ? w.before + (static_cast<size_t>(f) * w.piece + t % PIECE) * w.kept + byte : NULL;
    /* e: shape (steps, row); valid: shape (steps, valid_row) */
    const size_t step = static_cast<size_t>(block) * w.T + t - w.pending;
    if (w.valid && !w.valid[step * w.valid_row + f]) return NULL;
    return w.e + step * w.row + static_cast<size_t>(f) * (grid.P * grid.D) + byte;
}

/* Copies a step's samples, of which `left` are worked on, to raw[8][pitch], by one warp. Lane i looks up
 * where sample i % 8 is. */
__device__ __forceinline__ void copy_step(unsigned raw, unsigned pitch, const autocorr_1d_job &w,
                                          const autocorr_1d_grid &grid, unsigned f, unsigned block,
                                          unsigned at, int left, unsigned lane)
{
    const unsigned t = frb_autocorr_1d_time(grid.P, lane % 8);
    const uint8_t *from = NULL;
    if (static_cast<int>(t) < left)
        from = bytes_of(w, grid, f, block, at + t, frb_autocorr_1d_pol(grid.P, lane % 8) * grid.D);
    const uint64_t mine = reinterpret_cast<uint64_t>(from);
    const uint8_t *const some =
        reinterpret_cast<const uint8_t *>(w.weights); /* address, of which nothing is read */
    if (w.width == 16) {
        const unsigned i = 16 * lane, to = raw + frb_autocorr_1d_byte(i, w.gap),
                       further = frb_autocorr_1d_byte(512, w.gap);
#pragma unroll
        for (unsigned sample = 0; sample < 8; sample++) {
            const uint64_t source = __shfl_sync(WHOLE_WARP, mine, sample);
            const uint8_t *bytes = source != 0 ? reinterpret_cast<const uint8_t *>(source) + i : some;
            if (i < grid.D) copy_async_to(to + sample * pitch, bytes, source != 0);
        }
        if (grid.D > 512) {
#pragma unroll
            for (unsigned sample = 0; sample < 8; sample++) {
                const uint64_t source = __shfl_sync(WHOLE_WARP, mine, sample);
                const uint8_t *bytes =
                    source != 0 ? reinterpret_cast<const uint8_t *>(source) + 512 + i : some;
                if (512 + i < grid.D) copy_async_to(to + sample * pitch + further, bytes, source != 0);
            }
        }
        return;
    }
#pragma unroll 1
    for (unsigned sample = 0; sample < 8; sample++) {
        const uint64_t source = __shfl_sync(WHOLE_WARP, mine, sample);
        const bool there = source != 0;
        const uint8_t *bytes = there ? reinterpret_cast<const uint8_t *>(source) : some;
        if (w.width == 4) {
#pragma unroll 1
            for (unsigned i = 4 * lane; i < grid.D; i += 4 * 32)
                copy_async_to_4(raw + sample * pitch + frb_autocorr_1d_byte(i, w.gap),
                                there ? bytes + i : bytes, there);
        } else {
#pragma unroll 4
            for (unsigned i = lane; i < grid.D; i += 32)
                store_byte(raw + sample * pitch + frb_autocorr_1d_byte(i, w.gap), there ? bytes[i] : 0);
        }
    }
}

/* The same of P polarisations where rows are multiples of 16 bytes and nothing is missing but what is behind
 * the block's end. from: this lane's bytes of the step's first time. */
template <unsigned P>
__device__ __forceinline__ void copy_step_of_rows(unsigned raw, unsigned pitch, const uint8_t *from,
                                                  size_t row, unsigned D, unsigned gap, int left,
                                                  unsigned lane)
{
    const unsigned times = frb_autocorr_1d_times(P), further = frb_autocorr_1d_byte(512, gap);
    raw += frb_autocorr_1d_byte(16 * lane, gap);
#pragma unroll
    for (unsigned t = 0; t < times; t++, from += row) {
        const bool there = static_cast<int>(t) < left;
#pragma unroll
        for (unsigned pol = 0; pol < P; pol++) {
            const unsigned to = raw + frb_autocorr_1d_sample(P, t, pol) * pitch;
            if (16 * lane < D) copy_async_to(to, from + pol * D, there);
            if (D > 512 && 512 + 16 * lane < D) copy_async_to(to + further, from + pol * D + 512, there);
        }
    }
}

} // namespace beamring

#endif
