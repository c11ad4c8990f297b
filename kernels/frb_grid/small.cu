/* FRB stage 1 on a GPU, small grids (small.cuh says how). One warp makes the images of one channel and a few
 * blocks of time, one after the other. It takes a block in pieces of PIECE samples, counted from the block's
 * start, each of which is copied to shared memory as a whole while the one before is worked on; the
 * intensities of the pieces are added up in order. Of a piece that is not complete when a call ends the bytes
 * are kept, so that products are always made of the same samples, whatever the calls are; missing samples are
 * zeros. One launch does the blocks of any number of plans, the longest first. */
#include "kernels/common/cuda.h"
#include "kernels/common/half.h"
#include "kernels/frb_grid/layout.h"
#include "kernels/frb_grid/small.cuh"
#include "kernels/frb_grid/small.h"

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring;

namespace
{

/* What float16 holds, see make_small_cells, and float32 sums should. */
constexpr unsigned PIECE = 64; /* samples */

/* Shorter blocks are faster with what cuda.cu does for each sample. */
constexpr unsigned shortest(unsigned L)
{
    return L == 8 ? 4 : 7;
}

/* Warps of a multiprocessor that registers must suffice for: as many as nothing goes to local memory. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
constexpr int resident(int L)
{
    return L == 8 ? 16 : 8;
}
#else
constexpr int resident(int L)
{
    return L == 8 ? 16 : 12;
}
#endif

/* About so many tasks a launch is made of, if there is so much to do. */
constexpr size_t MOST_TASKS = 16384;

/* What is the same for all plans of a launch. */
struct small_grid {
    unsigned P, D;
    bool transposed;           /* the axis of 8 cells is the second one */
    const uint4 *waves;        /* see frb_small_wave_across */
    small_constants constants; /* of small.cuh */
};

/* The blocks of one plan. */
struct small_job {
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
    const unsigned *dish; /* [L / 4][8]: those of four cells along, one byte each; cells without a dish have
                           * some dish's number, and weight 0 */
    const uint4 *weights; /* [F or 1][P][L / 4][8], see frb_small_weight */
    const float *level;   /* [F or 1]: what intensities are multiplied by for the weights' scale */
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

struct small_work {
    struct small_grid grid;
    unsigned njobs;
    struct small_job job[MOST_JOBS];
};

/* Samples of a block that are there, those of calls before included. */
__device__ __forceinline__ unsigned samples_of(const small_job &w, unsigned block)
{
    return block + 1 < w.blocks ? w.T : w.last;
}

/* Copies the piece of this channel's block from sample `start` on to raw[times][pitch]: what was kept, then
 * e; zeros for missing samples and up to a multiple of `step` times. */
template <int L>
__device__ __forceinline__ void stage(uint8_t *raw, const small_job &w, const small_grid &grid, unsigned f,
                                      unsigned block, unsigned start)
{
    const unsigned PITCH = frb_small_pitch(L), PIECES = frb_small_row(L) / 16, step = frb_small_times(grid.P);
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

/* Bytes of shared memory for a piece of up to `times`, and later for its products and its image. */
unsigned buffer_bytes(unsigned L, unsigned times)
{
    const unsigned raw = times * frb_small_pitch(L), products = L * 512;
    return ((raw > products ? raw : products) + 127) / 128 * 128; /* see frb_small_product */
}

/* Intensities of this lane as float16. Rounding may have left less than nothing. */
template <int L>
__device__ __forceinline__ void write_sky(__half *sky, const float (&image)[L / 4][4], float factor,
                                          bool transposed, unsigned lane)
{
    unsigned pairs[L / 2];
#pragma unroll
    for (int tile = 0; tile < L / 4; tile++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            unsigned pair;
            asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;\n"
                : "=r"(pair)
                : "f"(fmaf(image[tile][i + 1], factor, 0.0f)),
                  "f"(fmaf(image[tile][i], factor, 0.0f))); /* no -0 */
            pair = as_bits(__hmin2(as_half2(pair), as_half2(0x7bff7bffu)));
            pairs[tile * 2 + i / 2] = pair;
        }
    if (transposed) {
#pragma unroll
        for (int i = 0; i < L / 2; i++) {
            __half *to = sky + frb_small_direction(L, true, frb_small_image_across(lane, i % 2 * 2),
                                                   frb_small_image_along(i / 2, lane, 0));
            to[0] = __low2half(as_half2(pairs[i])), to[16] = __high2half(as_half2(pairs[i]));
        }
    } else {
#pragma unroll
        for (int i = 0; i < L / 2; i++)
            *reinterpret_cast<unsigned *>(
                sky + frb_small_direction(L, false, frb_small_image_across(lane, i % 2 * 2),
                                          frb_small_image_along(i / 2, lane, 0))) = pairs[i];
    }
}

/* Ends a complete block: its image, by way of shared memory. */
template <int L>
__device__ __forceinline__ void finish(uint8_t *raw, const small_job &w, const small_grid &grid, unsigned f,
                                       unsigned block, uint16_t *out, float factor,
                                       const float (&image)[L / 4][4], unsigned lane)
{
    const unsigned IMAGE = L * 32;
    if (w.factor) factor *= w.factor[static_cast<size_t>(block) * w.F + f];
    factor = fminf(factor, FLT_MAX);
    write_sky<L>(reinterpret_cast<__half *>(raw), image, factor, grid.transposed, lane);
    __syncwarp();
    out += static_cast<size_t>(block) * IMAGE;
#pragma unroll
    for (unsigned i = 8 * lane; i < IMAGE; i += 8 * 32) {
        if (w.wide)
            *reinterpret_cast<uint4 *>(out + i) = *reinterpret_cast<const uint4 *>(raw + 2 * i);
        else
#pragma unroll 1
            for (unsigned k = i; k < i + 8; k++) out[k] = reinterpret_cast<const uint16_t *>(raw)[k];
    }
}

/* WORDS: dishes as small_field::fill wants them. */
template <int L, bool WORDS>
__global__ void __launch_bounds__(32, resident(L)) make_small_images(const __grid_constant__ small_work all)
{
    const unsigned PITCH = frb_small_pitch(L), ROW = frb_small_row(L), IMAGE = L * 32;
    extern __shared__ __align__(128) uint4 memory[];
    const small_grid &grid = all.grid;
    unsigned number = 0;
    while (number + 1 < all.njobs && blockIdx.x >= all.job[number + 1].first_task) number++;
    const small_job &w = all.job[number];
    const unsigned task = blockIdx.x - w.first_task, lane = threadIdx.x, run = task / w.F,
                   f = task - run * w.F;
    const bool is_long = w.T > PIECE;
    uint8_t *raw = reinterpret_cast<uint8_t *>(memory),
            *other = raw + w.buffer;                            /* of a piece; then its V, then its image */
    float *total = reinterpret_cast<float *>(other + w.buffer); /* intensities of a long block */

    /* weights: shape (F, P, L / 4, 8), contiguous; sums: shape (F, IMAGE), contiguous; after: shape (F,
     * PIECE, ROW), contiguous */
    const unsigned sample = frb_small_sample(lane, 0), pol = frb_small_pol(grid.P, sample);
    const uint4 *weights = w.weights + static_cast<size_t>(w.shared_weights ? 0 : f) * (grid.P * L * 2) +
                           frb_small_weight(L, pol, 0, frb_small_cell(lane)) / 4;
    unsigned mine = frb_small_time(grid.P, sample) * PITCH + pol * grid.D;
    const unsigned step = frb_small_times(grid.P);
    unsigned dish[L / 4]; /* simd: b1 b0 <-> along */
#pragma unroll
    for (int i = 0; i < L / 4; i++) dish[i] = w.dish[i * 8 + frb_small_cell(lane)];
    if (WORDS) mine += dish[0] & 255;
    const small_constants constants = grid.constants;
    /* out: shape (F, out_stride, IMAGE), contiguous; after: shape (out_stride, IMAGE), contiguous */
    uint16_t *out = w.out + static_cast<size_t>(f) * w.out_stride * IMAGE;
    const float level = w.level[w.shared_weights ? 0 : f] * (w.factor ? 1 : w.unit);

    unsigned block = run * w.run, start = block == 0 ? w.pending - w.pending % PIECE : 0;
    const unsigned stop = min(block + w.run, w.blocks);
    if (is_long)
#pragma unroll 1
        for (unsigned i = lane; i < IMAGE; i += 32)
            total[i] = block == 0 && w.sums ? w.sums[static_cast<size_t>(f) * IMAGE + i] : 0;
    stage<L>(raw, w, grid, f, block, start);
    copy_async_commit();
#pragma unroll 1
    while (block < stop) {
        const unsigned until = samples_of(w, block);
        unsigned next_block = block, next_start = start + PIECE;
        if (next_start >= until) next_block++, next_start = 0;
        if (next_block < stop) stage<L>(other, w, grid, f, next_block, next_start);
        copy_async_commit();
        copy_async_wait<1>();
        __syncwarp();
        const bool complete = block + 1 < w.blocks || w.complete;
        const unsigned count = min(until - start, PIECE);
        if (!complete && count < min(w.T - start, PIECE)) { /* goes on in the next call */
#pragma unroll 1
            for (unsigned i = lane; i < count * (ROW / 16); i += 32)
                *reinterpret_cast<uint4 *>(w.after + static_cast<size_t>(f) * PIECE * ROW + 16 * i) =
                    *reinterpret_cast<const uint4 *>(raw + i / (ROW / 16) * PITCH + i % (ROW / 16) * 16);
        } else {
            float image[L / 4][4]; /* see frb_small_image_across */
            {
                autocorrelation<L> sums;
                sums.clear();
#pragma unroll 1
                for (unsigned t = 0; t < count; t += step) {
                    small_field<L> x;
                    x.template fill<WORDS>(raw + mine + t * PITCH, PITCH, dish, weights, constants);
                    sums.add(x, constants.zero);
                }
                __syncwarp();
                sums.store(shared_address(raw), lane_again());
            }
            __syncwarp();
            autocorrelation<L>::transform(image, shared_address(raw), grid.waves, lane_again());
            __syncwarp(); /* the image comes there, or the next piece but one */
            if (is_long)
#pragma unroll
                for (int i = 0; i < L; i++) {
                    image[i / 4][i % 4] += total[i * 32 + lane];
                    total[i * 32 + lane] = next_block == block ? image[i / 4][i % 4] : 0;
                }
            if (next_block != block && complete)
                finish<L>(raw, w, grid, f, block, out, level, image, lane_again());
            if (next_block != block && !complete && is_long)
#pragma unroll
                for (int i = 0; i < L; i++) total[i * 32 + lane] = image[i / 4][i % 4];
        }
        __syncwarp();
        uint8_t *swap = raw;
        raw = other, other = swap;
        block = next_block, start = next_start;
    }
    if (is_long && stop == w.blocks && !w.complete)
#pragma unroll 1
        for (unsigned i = lane; i < IMAGE; i += 32)
            w.sums_after[static_cast<size_t>(f) * IMAGE + i] = total[i];
}

using kernel = void (*)(small_work);

kernel variant(unsigned L, bool words)
{
    return L == 8  ? words ? make_small_images<8, true> : make_small_images<8, false>
            : words ? make_small_images<12, true>
                   : make_small_images<12, false>;
}

} // namespace

struct br_frb_grid_small {
    struct small_grid grid;
    unsigned L;
    bool words;      /* see small_field::fill */
    unsigned buffer; /* bytes of shared memory for a piece */
    size_t shared_bytes;
    void *waves, *dish, *weights, *level;
    void *piece[2]; /* of the unfinished block, in turn: one is read while the other is written */
    float *sums[2];
    int now;
    bool resume, shared_weights; /* piece[now] and sums[now] hold an unfinished block; */
    size_t kept;                 /* its samples, 0 if there is none */
};

bool br_frb_grid_small_fits(const struct br_frb_grid *plan)
{
    unsigned M = plan->grid_m, N = plan->grid_n;
    return (M == 8 || N == 8) && (M == 8 || M == 12) && (N == 8 || N == 12) &&
           plan->downsample >= shortest(M > N ? M : N);
}

static uint32_t host_pair(double x, double y)
{
    return br_half_from_float(static_cast<float>(x)) |
           static_cast<uint32_t>(br_half_from_float(static_cast<float>(y))) << 16;
}

/* Waves of the transforms of the autocorrelation: across exp(i pi q d / 8), along c exp(i pi p lag / L). */
static double wave_across(unsigned q, unsigned k)
{
    const double angle = M_PI * (q * frb_small_k_difference(k) % 16) / 8;
    return k < 8 ? cos(angle) : sin(angle);
}

static double wave_along(unsigned L, unsigned lag_tile, unsigned p, unsigned k)
{
    const unsigned lag = 8 * lag_tile + k % 8;
    const double angle = M_PI * (p * lag % (2 * L)) / L, c = lag == 0 ? 1 : 2;
    return lag >= L ? 0 : k < 8 ? c * cos(angle) : -c * sin(angle);
}

static void *make_waves(struct br_cuda *cuda, unsigned L, struct br_why *why)
{
    uint32_t table[64 + 2 * 3 * 32][2] = {{0}}; /* units of 8 bytes */
    const unsigned lag_tiles = (L + 7) / 8;
    for (unsigned lane = 0; lane < 32; lane++) {
        for (unsigned r = 0; r < 4; r++) {
            const struct br_cell at = br_mma_f16_a(r, 0, lane), next = br_mma_f16_a(r, 1, lane);
            table[2 * frb_small_wave_across(lane) + r / 2][r % 2] =
                host_pair(wave_across(at.row, at.column), wave_across(next.row, next.column));
        }
        for (unsigned i = 0; i < lag_tiles * (L / 4) * 2; i++) {
            const unsigned r = i % 2, tile = i / 2 % (L / 4), lag_tile = i / 2 / (L / 4);
            const struct br_cell at = br_mma_f16_b(r, 0, lane), next = br_mma_f16_b(r, 1, lane);
            const unsigned p = 8 * tile + at.column;
            table[frb_small_wave_along(L, lag_tile, tile, lane)][r] =
                host_pair(wave_along(L, lag_tile, p, at.row), wave_along(L, lag_tile, p, next.row));
        }
    }
    return br_cuda_table(cuda, table, sizeof table, why);
}

/* Which dishes, with which weights, a lane puts on its cells. */
static int make_small_cells(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                            struct br_why *why)
{
    struct br_frb_grid_small *small = plan->small;
    const unsigned L = small->L;
    const size_t P = plan->npol, D = plan->ndishes, W = plan->weight_channels, channel = P * L * 8;
    int32_t dish[12][8]; /* along, across */
    uint8_t first[3][8][4] = {{{0}}};
    uint16_t(*weights)[2] = static_cast<uint16_t(*)[2]>(calloc(W * channel, sizeof *weights));
    float *level = static_cast<float *>(malloc(W * sizeof *level));
    bool ok = weights && level;
    if (!ok) br_because(why, "no memory for the FRB grid");
    memset(dish, -1, sizeof dish);
    for (size_t d = 0; d < D; d++) {
        const uint16_t *cell = &params->dish_cell[2 * d];
        dish[cell[!small->grid.transposed]][cell[small->grid.transposed]] = static_cast<int32_t>(d);
    }
    for (size_t c = 0; ok && c < W; c++) {
        /* Powers of two that bring the channel's weights below 1/32: of 128 full-scale samples the largest
         * transform along one axis is then 2^14.6, which float16 holds. */
        const float *given = params->weights ? params->weights + c * P * D * 2 : NULL;
        double most = given ? 0 : 0.5;
        int exponent;
        for (size_t i = 0; given && i < P * D * 2; i++)
            most = fmax(most, fabs(static_cast<double>(given[i])));
        (void)frexp(most, &exponent);
        if (!given || most == 0) exponent = 0;
        exponent += 5;
        level[c] = static_cast<float>(ldexp(1, 2 * exponent));
        for (size_t i = 0; i < channel; i++) {
            const unsigned pol = static_cast<unsigned>(i / (L * 8)), along = i / 8 % L, g = i % 8;
            const int32_t d = dish[along][g];
            if (d < 0) continue; /* weight 0 */
            const float *w = given ? given + (pol * D + static_cast<size_t>(d)) * 2 : NULL;
            for (int part = 0; part < 2; part++) {
                const double value = ldexp(w ? static_cast<double>(w[part]) : 1 - part, -exponent);
                weights[c * channel + frb_small_weight(L, pol, along, g)][part] =
                    br_half_from_float(static_cast<float>(value));
            }
        }
    }
    /* Whether the dishes of each row of cells are consecutive, from a multiple of 4 on: then cells without a
     * dish may read whatever stands there, as far as it is inside of the row's bytes in shared memory. */
    small->words = D % 4 == 0;
    for (unsigned g = 0; g < 8; g++) {
        int32_t start = 0;
        for (unsigned i = L; i-- > 0;)
            if (dish[i][g] >= 0) start = dish[i][g] - static_cast<int32_t>(i);
        for (unsigned i = 0; i < L; i++) {
            if (dish[i][g] >= 0 && dish[i][g] != start + static_cast<int32_t>(i)) small->words = false;
            if (dish[i][g] >= 0) first[i / 4][g][i % 4] = static_cast<uint8_t>(dish[i][g]);
        }
        if (start < 0 || start % 4 != 0 || start + L > L * 8) small->words = false;
        if (small->words && dish[0][g] < 0) first[0][g][0] = static_cast<uint8_t>(start);
    }
    ok = ok && (small->dish = br_cuda_table(plan->cuda, first, L * 8, why)) &&
         (small->weights = br_cuda_table(plan->cuda, weights, W * channel * sizeof *weights, why)) &&
         (small->level = br_cuda_table(plan->cuda, level, W * sizeof *level, why));
    free(weights);
    free(level);
    return ok ? 0 : -1;
}

void br_frb_grid_small_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_small *small = plan->small;
    if (!small) return;
    void *memory[] = {small->waves,    small->dish,     small->weights, small->level,
                      small->piece[0], small->piece[1], small->sums[0], small->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(small);
    plan->small = NULL;
}

int br_frb_grid_small_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                             struct br_why *why)
{
    const size_t F = plan->nchannels;
    struct br_frb_grid_small *small = plan->small =
        static_cast<struct br_frb_grid_small *>(calloc(1, sizeof *small));
    if (!small) return br_because(why, "no memory for the FRB grid");
    plan->cuda = params->cuda;
    const unsigned L = small->L = plan->grid_m > plan->grid_n ? plan->grid_m : plan->grid_n;
    const bool is_long = plan->downsample > PIECE;
    small->grid.transposed = plan->grid_m > plan->grid_n;
    small->grid.P = static_cast<unsigned>(plan->npol), small->grid.D = static_cast<unsigned>(plan->ndishes);
    small->shared_weights = plan->weight_channels == 1;
    small->waves = make_waves(plan->cuda, L, why);
    small->grid.waves = static_cast<const uint4 *>(small->waves);
    small->grid.constants = {0x64086408u, 0x64806480u, 0};
    if (!small->waves || make_small_cells(plan, params, why) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        if (!(small->piece[i] = br_cuda_alloc(plan->cuda, F * PIECE * frb_small_row(L), why))) return -1;
        if (is_long && !(small->sums[i] = static_cast<float *>(
                             br_cuda_alloc(plan->cuda, F * L * 32 * sizeof(float), why))))
            return -1;
    }
    small->buffer = buffer_bytes(L, is_long ? PIECE : (plan->downsample + 7) / 8 * 8);
    small->shared_bytes = 2 * small->buffer + (is_long ? L * 32 * sizeof(float) : 0);
    return 0;
}

void br_frb_grid_small_begin(struct br_frb_grid *plan)
{
    plan->small->resume = false;
    plan->small->kept = 0;
}

static small_job small_job_of(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_small *small = plan->small;
    const size_t inputs = plan->npol * plan->ndishes;
    const uintptr_t all = reinterpret_cast<uintptr_t>(span->e) | span->row | inputs;
    small_job w = {};
    w.T = plan->downsample;
    w.F = static_cast<unsigned>(plan->nchannels);
    const size_t pending = span->flush ? small->kept : span->pending;
    w.pending = static_cast<unsigned>(pending);
    w.blocks = static_cast<unsigned>(span->blocks);
    w.last = static_cast<unsigned>(pending + span->steps - (span->blocks - 1) * plan->downsample);
    w.complete = w.last == w.T || span->flush;
    w.e = span->e, w.row = span->row;
    w.valid = span->valid, w.valid_row = span->valid_row;
    w.dish = static_cast<const unsigned *>(small->dish);
    w.weights = static_cast<const uint4 *>(small->weights);
    w.level = static_cast<const float *>(small->level);
    w.factor = span->factor;
    w.unit = br_frb_grid_cuda_unit(plan);
    w.out = span->out, w.out_stride = span->out_stride;
    w.wide = reinterpret_cast<uintptr_t>(w.out) % 16 == 0;
    w.before = small->resume ? static_cast<const uint4 *>(small->piece[small->now]) : NULL;
    w.after = static_cast<uint8_t *>(small->piece[!small->now]);
    w.sums = small->resume ? small->sums[small->now] : NULL;
    w.sums_after = small->sums[!small->now];
    w.width = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
    w.fast = w.width == 16 && !w.valid && inputs <= 512 && 512 % inputs == 0 && w.row <= UINT32_MAX &&
             plan->nchannels * inputs <= UINT32_MAX;
    w.times = w.fast ? 512 / static_cast<unsigned>(inputs) : 0;
    w.further = w.times * w.row;
    w.inverse = (1u << 20) / static_cast<unsigned>(inputs / w.width) + 1;
    w.buffer = small->buffer;
    w.shared_weights = small->shared_weights;
    if (span->flush) w.e = w.after; /* some address: nothing is read */
    return w;
}

void br_frb_grid_small_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    small_work w;
    size_t order[MOST_JOBS], tasks = 0, samples = 0, shared_bytes = 0;
    struct br_frb_grid_small *small = plan[0]->small;
    bool words = true;
    for (size_t i = 0; i < n; i++) { /* the longest blocks first */
        size_t k = i;
        for (; k > 0 && plan[order[k - 1]]->downsample < plan[i]->downsample; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t i = 0; i < n; i++) samples += plan[i]->nchannels * span[i].blocks * plan[i]->downsample;
    w.grid = small->grid;
    w.njobs = static_cast<unsigned>(n);
    for (size_t k = 0; k < n; k++) {
        struct br_frb_grid *p = plan[order[k]];
        const struct frb_grid_span *s = &span[order[k]];
        w.job[k] = small_job_of(p, s);
        w.job[k].first_task = static_cast<unsigned>(tasks);
        words = words && p->small->words;
        /* Long enough runs to hide what a task begins with, and enough of them to fill the device evenly. */
        size_t run = samples / (MOST_TASKS * p->downsample);
        run = run < 1 ? 1 : run > 16 ? 16 : run;
        const size_t runs = (s->blocks + run - 1) / run;
        w.job[k].run = static_cast<unsigned>((s->blocks + runs - 1) / runs);
        tasks += p->nchannels * runs;
        if (p->small->shared_bytes > shared_bytes) shared_bytes = p->small->shared_bytes;
        p->small->kept = s->flush ? 0 : (s->pending + s->steps) % p->downsample;
        p->small->resume = p->small->kept != 0;
        if (p->small->resume) p->small->now = !p->small->now;
    }
    variant(small->L, words)<<<static_cast<unsigned>(tasks), 32, shared_bytes,
                               static_cast<cudaStream_t>(br_cuda_stream(plan[0]->cuda))>>>(w);
    br_cuda_ok(plan[0]->cuda, cudaGetLastError(), "the launch of the FRB grid");
}
