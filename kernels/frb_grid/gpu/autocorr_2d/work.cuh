/* work.cuh - FRB stage 1 by the 2-d autocorrelation (autocorr.cuh): what a launch is made of, and its kernel.
 *
 * One warp makes the images of one channel and a few blocks of time, one after the other. It takes a block in
 * pieces of PIECE samples, counted from the block's start, each of which is copied to shared memory as a
 * whole while the one before is worked on; the intensities of the pieces are added up in order. If a piece
 * is not complete when a call ends, its bytes are kept, so that products are always made of the same
 * samples, whatever the calls are; missing samples are zeros.
 *
 * whole_blocks.cuh does without the copy where nothing is missing and all is in order.
 *
 * Tensor cores, arithmetic and copies hardly overlap here: an mma.sync takes 6 cycles, everything else
 * about one, and their sum is the time. So a complex product is four real ones in a single mma.sync instead
 * of three that need further sums and copies. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_WORK_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_WORK_CUH

#include "kernels/frb_grid/gpu/autocorr_2d/autocorr.cuh"
#include "kernels/frb_grid/plan.h"

#include <float.h>

namespace beamring
{

/* Limited by float16, see make_cells, and by float32 sums. */
constexpr unsigned PIECE = 64; /* samples */

/* Warps of a multiprocessor that registers must suffice for: as many as nothing goes to local memory. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
constexpr int resident(int L)
{
    return L == 8 ? 16 : 12;
}
#else
constexpr int resident(int)
{
    return 16;
}
#endif

/* Values that all plans of a launch share. */
struct autocorr_2d_grid {
    unsigned P, D;
    bool transposed;                 /* the axis of 8 cells is the second one */
    const uint4 *waves;              /* see frb_autocorr_2d_wave_across */
    autocorr_2d_constants constants; /* of autocorr.cuh */
};

/* The blocks of one plan. */
struct autocorr_2d_job {
    unsigned first_task;  /* of the launch's: the number of tasks of the jobs before */
    unsigned T, F;        /* samples of a block, channels */
    unsigned pending;     /* samples of block 0 before this launch */
    unsigned blocks, run; /* in this launch; those of one task, one after the other */
    unsigned last;        /* samples of the last block that are there, `pending` ones included */
    bool complete;        /* the last block ends here */
    const uint8_t *e;     /* [steps][row] */
    size_t row;
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    /* [L / 4][8]: those of four cells along, one byte each; cells without a dish have some dish's number,
     * and weight 0 */
    const unsigned *dish;
    const uint4 *weights; /* [F or 1][P][L / 4][2][8], see frb_autocorr_2d_weight */
    const float *level;   /* [F or 1]: what intensities are multiplied by for the weights' scale */
    const float *scaled;  /* the same times `unit` */
    const float *factor;  /* [blocks][F] or NULL: all are `unit` */
    uint16_t *out;        /* [F][out_stride][2M][2N] */
    size_t out_stride;
    const uint4 *before; /* [F][PIECE][L]: bytes of the piece that was not complete; NULL: none, zeros */
    uint8_t *after;      /* the same of the last block, when it is not complete */
    const float *sums;   /* [F][image]: intensities of the pieces before (long blocks); NULL: none */
    float *sums_after;
    float unit;
    unsigned buffer;     /* bytes of shared memory for a piece */
    unsigned width;      /* bytes that are copied at once: 16, 4 or 1 */
    unsigned inverse;    /* 2^20 over the `width`s of a row, rounded up */
    unsigned times;      /* that 32 times 16 bytes are, */
    size_t further;      /* bytes of as many rows */
    bool fast;           /* see stage() */
    bool shared_weights; /* by all channels */
    bool wide;           /* 16 bytes of out are aligned */
};

struct autocorr_2d_work {
    struct autocorr_2d_grid grid;
    unsigned njobs;
    struct autocorr_2d_job job[MOST_JOBS];
};

/* Samples of a block that are there, those of calls before included. */
__device__ __forceinline__ unsigned samples_of(const autocorr_2d_job &w, unsigned block)
{
    return block + 1 < w.blocks ? w.T : w.last;
}

/* Copies the piece of this channel's block from sample `start` on to raw[times][pitch]: first what was kept,
 * then e; zeros for missing samples and up to a multiple of `step` times. */
template <int L>
__device__ __forceinline__ void stage(uint8_t *raw, const autocorr_2d_job &w, const autocorr_2d_grid &grid,
                                      unsigned f, unsigned block, unsigned start)
{
    const unsigned PITCH = frb_autocorr_2d_pitch(L), PIECES = frb_autocorr_2d_row(L) / 16,
                   step = frb_autocorr_2d_times(grid.P);
    const unsigned inputs = grid.P * grid.D;
    unsigned count = min(samples_of(w, block) - start, PIECE), rows = (count + step - 1) & ~(step - 1);
    if (block == 0 && start < w.pending) { /* before: shape (F, PIECE, PIECES), contiguous */
        const unsigned have = w.pending - start;
        const uint4 *kept = w.before + static_cast<size_t>(f) * PIECE * PIECES;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < have * PIECES; i += 32)
            copy_async_16(raw + i / PIECES * PITCH + i % PIECES * 16, w.before ? kept + i : w.weights,
                          w.before != NULL);
        raw += have * PITCH;
        start += have, count -= have, rows -= have;
    }
    /* e: shape (steps, row); valid: shape (steps, valid_row) */
    const unsigned first = block * w.T + start - w.pending;
    if (w.fast) { /* nothing is missing, a lane copies the same 16 bytes of each time that is its */
        const unsigned times = w.times, row = static_cast<unsigned>(w.row),
                       t0 = threadIdx.x * w.inverse >> 20, at = threadIdx.x * 16 - t0 * inputs;
        const uint8_t *from = w.e + (static_cast<size_t>(first + t0) * row + (f * inputs + at));
        const size_t further = w.further;
        raw += t0 * PITCH + at;
#pragma unroll 1
        for (unsigned t = t0; t < rows; t += times, raw += times * PITCH, from += further)
            copy_async_16(raw, t < count ? from : w.e, t < count);
    } else {
        const uint8_t *here = w.e + (first * w.row + static_cast<size_t>(f) * inputs);
        const uint8_t *valid = w.valid ? w.valid + first * w.valid_row + f : NULL;
        const unsigned width = w.width, pieces = inputs / width;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < rows * pieces; i += 32) {
            const unsigned t = width > 1 ? i * w.inverse >> 20 : i / pieces, at = (i - t * pieces) * width;
            const bool there = t < count && (!valid || valid[t * w.valid_row]);
            const uint8_t *from = there ? here + (t * w.row + at) : w.e;
            if (width == 16)
                copy_async_16(raw + t * PITCH + at, from, there);
            else if (width == 4)
                copy_async_4(raw + t * PITCH + at, from, there);
            else
                raw[t * PITCH + at] = there ? *from : static_cast<uint8_t>(0);
        }
    }
}

/* Two intensities as float16. Rounding may have left less than nothing. */
__device__ __forceinline__ unsigned intensities(float first, float second, float factor)
{
    unsigned pair;
    asm("cvt.rn.relu.satfinite.f16x2.f32 %0, %1, %2;\n"
        : "=r"(pair)
        : "f"(fmaf(second, factor, 0.0f)), "f"(fmaf(first, factor, 0.0f))); /* no -0 */
    return pair;
}

/* Writes this lane's intensities to an image in shared memory. */
template <int L>
__device__ __forceinline__ void write_sky(__half *sky, const float (&image)[L / 4][4], float factor,
                                          bool transposed, unsigned lane)
{
    unsigned pairs[L / 2];
#pragma unroll
    for (int tile = 0; tile < L / 4; tile++)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            pairs[tile * 2 + i / 2] = intensities(image[tile][i], image[tile][i + 1], factor);
    if (transposed) {
#pragma unroll
        for (int i = 0; i < L / 2; i++) {
            __half *to =
                sky + frb_autocorr_2d_direction(L, true, frb_autocorr_2d_image_across(lane, i % 2 * 2),
                                                frb_autocorr_2d_image_along(i / 2, lane, 0));
            to[0] = __low2half(as_half2(pairs[i])), to[16] = __high2half(as_half2(pairs[i]));
        }
    } else {
#pragma unroll
        for (int i = 0; i < L / 2; i++)
            *reinterpret_cast<unsigned *>(
                sky + frb_autocorr_2d_direction(L, false, frb_autocorr_2d_image_across(lane, i % 2 * 2),
                                                frb_autocorr_2d_image_along(i / 2, lane, 0))) = pairs[i];
    }
}

/* The factor of all intensities of channel f; each block has another one. */
__device__ __forceinline__ float level_of(const autocorr_2d_job &w, unsigned f)
{
    return w.level[w.shared_weights ? 0 : f] * (w.factor ? 1 : w.unit);
}

/* The factor of the intensities of one block. */
__device__ __forceinline__ float factor_of(const autocorr_2d_job &w, unsigned f, unsigned block, float level)
{
    return w.factor ? fminf(level * w.factor[static_cast<size_t>(block) * w.F + f], FLT_MAX) : level;
}

/* Ends a complete block: its image, by way of shared memory. */
template <int L>
__device__ __forceinline__ void finish(uint8_t *raw, const autocorr_2d_job &w, const autocorr_2d_grid &grid,
                                       unsigned f, unsigned block, const float (&image)[L / 4][4],
                                       unsigned lane)
{
    const unsigned IMAGE = L * 32;
    write_sky<L>(reinterpret_cast<__half *>(raw), image, factor_of(w, f, block, level_of(w, f)),
                 grid.transposed, lane);
    __syncwarp();
    /* out: shape (F, out_stride, IMAGE), contiguous */
    uint16_t *out = w.out + (static_cast<size_t>(f) * w.out_stride + block) * IMAGE;
#pragma unroll
    for (unsigned i = 8 * lane; i < IMAGE; i += 8 * 32) {
        if (w.wide)
            *reinterpret_cast<uint4 *>(out + i) = *reinterpret_cast<const uint4 *>(raw + 2 * i);
        else
#pragma unroll 1
            for (unsigned k = i; k < i + 8; k++) out[k] = reinterpret_cast<const uint16_t *>(raw)[k];
    }
}

/* Keeps four numbers that are the same for all lanes in shared memory while registers are needed for
 * others. */
__device__ __forceinline__ void park(unsigned shared, unsigned x, unsigned y, unsigned z, unsigned w)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

__device__ __forceinline__ void unpark(unsigned shared, unsigned &x, unsigned &y, unsigned &z, unsigned &w)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                 : "r"(shared)
                 : "memory");
}

/* The piece after that of `block` from sample `start` on. */
__device__ __forceinline__ void advance(const autocorr_2d_job &w, unsigned &block, unsigned &start)
{
    start += PIECE;
    if (start >= samples_of(w, block)) block++, start = 0;
}

/* Weights of a lane. weights: shape (F, P, L / 4, 2, 8), contiguous */
template <int L>
__device__ __forceinline__ const uint4 *weights_of(const autocorr_2d_job &w, const autocorr_2d_grid &grid,
                                                   unsigned f, unsigned lane)
{
    return w.weights + static_cast<size_t>(w.shared_weights ? 0 : f) * (grid.P * L * 4) +
           frb_autocorr_2d_weight(L, frb_autocorr_2d_pol(grid.P, frb_autocorr_2d_sample(lane, 0)), 0,
                                  frb_autocorr_2d_cell(lane)) /
               4;
}

/* Intensities of a long block. */
__device__ __forceinline__ float *total_of(uint8_t *memory, const autocorr_2d_job &w)
{
    unsigned behind = 2 * w.buffer + 16;
    asm volatile("" : "+r"(behind)); /* made at each use */
    return reinterpret_cast<float *>(memory + behind);
}

/* Any blocks of channel f, [block, stop). WORDS: dishes as autocorr_2d_field::fill wants them. */
template <int L, bool WORDS>
__device__ __forceinline__ void make_any(uint8_t *memory, const autocorr_2d_job &w,
                                         const autocorr_2d_grid &grid, unsigned f, unsigned block,
                                         unsigned stop)
{
    const unsigned PITCH = frb_autocorr_2d_pitch(L), ROW = frb_autocorr_2d_row(L), IMAGE = L * 32,
                   step = frb_autocorr_2d_times(grid.P);
    const bool is_long = w.T > PIECE;

    /* sums: shape (F, IMAGE), contiguous; after: shape (F, PIECE, ROW), contiguous */
    const autocorr_2d_constants constants = grid.constants;
    unsigned start = block == 0 ? w.pending - w.pending % PIECE : 0;
    if (is_long)
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < IMAGE; i += 32)
            total_of(memory, w)[i] = block == 0 && w.sums ? w.sums[static_cast<size_t>(f) * IMAGE + i] : 0;
    stage<L>(memory, w, grid, f, block, start);
    copy_async_commit();
    unsigned at = 0; /* where the piece is; then its V, then its image */
#pragma unroll 1
    while (block < stop) {
        {
            unsigned next = block, next_start = start;
            advance(w, next, next_start);
            if (next < stop) stage<L>(memory + (w.buffer - at), w, grid, f, next, next_start);
        }
        copy_async_commit();
        copy_async_wait<1>();
        __syncwarp();
        const unsigned count = min(samples_of(w, block) - start, PIECE);
        uint8_t *raw = memory + at;
        if (block + 1 == w.blocks && !w.complete &&
            count < min(w.T - start, PIECE)) { /* goes on in the next call */
#pragma unroll 1
            for (unsigned i = threadIdx.x; i < count * (ROW / 16); i += 32)
                *reinterpret_cast<uint4 *>(w.after + static_cast<size_t>(f) * PIECE * ROW + 16 * i) =
                    *reinterpret_cast<const uint4 *>(raw + i / (ROW / 16) * PITCH + i % (ROW / 16) * 16);
        } else {
            float image[L / 4][4]; /* see frb_autocorr_2d_image_across */
            {
                autocorrelation<L> sums;
                sums.clear();
                park(shared_address(memory) + 2 * w.buffer, block, start, stop, f * 2 + (at != 0));
                const unsigned lane = lane_again(), sample = frb_autocorr_2d_sample(lane, 0);
                const uint4 *weights = weights_of<L>(w, grid, f, lane);
                unsigned dish[L / 4]; /* simd: b1 b0 <-> along */
#pragma unroll
                for (int i = 0; i < L / 4; i++) dish[i] = w.dish[i * 8 + frb_autocorr_2d_cell(lane)];
                const unsigned from =
                                   frb_autocorr_2d_pol(grid.P, sample) * grid.D + (WORDS ? dish[0] & 255 : 0),
                               shift = from % 4 * 8;
                const uint8_t *e =
                    raw + (frb_autocorr_2d_time(grid.P, sample) * PITCH + (WORDS ? from & ~3u : from));
#pragma unroll 1
                for (unsigned t = 0; t < count; t += step, e += step * PITCH) {
                    autocorr_2d_field<L> x;
                    if (WORDS)
                        x.fill(e, PITCH, shift, weights, constants);
                    else
                        x.gather(e, PITCH, dish, weights);
                    sums.add(x, constants.zero);
                    if (L > 8) weights += constants.zero; /* else they would be kept in registers */
                }
                __syncwarp();
                unpark(shared_address(memory) + 2 * w.buffer, block, start, stop, at);
                f = at / 2, at = at % 2 ? w.buffer : 0, raw = memory + at;
                sums.store(shared_address(raw) + frb_autocorr_2d_store_row(L, lane_again()));
            }
            __syncwarp();
            const unsigned lane = lane_again();
            unsigned rows[autocorrelation<L>::LAG_TILES];
            for (int i = 0; i < autocorrelation<L>::LAG_TILES; i++)
                rows[i] = shared_address(raw) + frb_autocorr_2d_load_row(L, lane, i);
            autocorrelation<L>::transform(image, rows, grid.waves + lane, lane);
            __syncwarp(); /* the image comes there, or the next piece but one */
            const bool complete = block + 1 < w.blocks || w.complete,
                       last = start + PIECE >= samples_of(w, block);
            if (is_long) {
                float *total = total_of(memory, w);
#pragma unroll
                for (int i = 0; i < L; i++) {
                    image[i / 4][i % 4] += total[i * 32 + lane];
                    total[i * 32 + lane] = last && complete ? 0 : image[i / 4][i % 4];
                }
            }
            if (last && complete) finish<L>(raw, w, grid, f, block, image, lane);
        }
        __syncwarp();
        advance(w, block, start);
        at = w.buffer - at;
    }
    if (is_long && stop == w.blocks && !w.complete)
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < IMAGE; i += 32)
            w.sums_after[static_cast<size_t>(f) * IMAGE + i] = total_of(memory, w)[i];
}

/* Each task is a run of blocks of one channel. */
template <int L, bool WORDS>
__global__ void __launch_bounds__(32, resident(L))
    autocorr_2d_images(const __grid_constant__ autocorr_2d_work all)
{
    extern __shared__ __align__(128) uint4 memory[];
    uint8_t *raw = reinterpret_cast<uint8_t *>(memory);
    unsigned number = 0;
    while (number + 1 < all.njobs && blockIdx.x >= all.job[number + 1].first_task) number++;
    const autocorr_2d_job &w = all.job[number];
    const unsigned task = blockIdx.x - w.first_task, part = task / w.F, f = task - part * w.F;
    const unsigned stop = min((part + 1) * w.run, w.blocks);
    /* Hides from the compiler that these are the same for all lanes: it would need more registers. */
    const unsigned zero = all.grid.constants.zero & threadIdx.x;
    make_any<L, WORDS>(raw, w, all.grid, f, part * w.run + zero, stop);
}

} // namespace beamring

#endif
