/* images.cuh - FRB stage 1 on a GPU, any grid of 8 to 32 cells each way: every sample is transformed and
 * squared.
 *
 * One warp makes the image of one channel and one block of time, on its own and without barriers (or a part
 * of it, where registers do not suffice for all). Bytes of several times are copied to its part of shared
 * memory ahead of their use; all the rest happens in its registers (transform.cuh).
 *
 * Samples are added one after the other, in the order of time, whatever the calls are; missing ones are
 * zeros. The sums of a block that is not complete when a call ends are kept as they are, in device memory.
 * In long blocks the sums are closed every PARTIAL samples, counted from the block's start, and added up
 * in a second sum. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_IMAGES_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_DIRECT_IMAGES_CUH

#include "kernels/frb_grid/gpu/direct/transform.cuh"
#include "kernels/frb_grid/plan.h"

#include <float.h>

namespace beamring
{

namespace direct
{

constexpr unsigned RAW_BYTES = 4096; /* about: of bytes that are copied at once */
constexpr unsigned MOST_TIMES = 32;  /* the same in samples */

/* Values that all plans of a launch share. */
struct grid {
    unsigned M, N, P, D;
    unsigned zero;                  /* x ^ zero is a copy that the compiler does not undo */
    const uint2 *along_m, *along_n; /* see frb_grid_wave */
};

/* The blocks of one plan. */
struct job {
    unsigned first_task;    /* of the launch's: the number of tasks of the jobs before */
    unsigned T;             /* samples of a block */
    unsigned F, pending;    /* samples of block 0 before this launch */
    const uint8_t *e, *end; /* [steps][row]; behind the last byte */
    size_t row, steps;
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    const unsigned *dishes; /* [pairs][lane]: simd: m0 */
    const uint2 *weights;   /* [F or 1][P][frb_grid_weights] */
    const float *level;     /* [F or 1]: what intensities are multiplied by for the weights' scale */
    const float *factor;    /* [blocks][F] or NULL: all are `unit` */
    uint16_t *out;          /* [F][out_stride][2M][2N] */
    size_t out_stride;
    const float4 *before; /* [F][groups][sums, second sums (long blocks)] of block 0; NULL: none */
    float4 *after;        /* the same of the last block, when it is not complete */
    float unit;
    uint16_t times, pitch; /* that are copied at once; bytes of shared memory for each, a multiple of 16 */
    unsigned inverse;      /* 65536 over the 16 bytes of a pitch, rounded up */
    bool aligned;          /* every row begins and ends at a multiple of 16 */
    bool flush;            /* block 0 ends here */
    bool shared_weights;   /* by all channels */
    bool wide;             /* 16 bytes of out are aligned */
};

struct work {
    struct grid grid;
    unsigned njobs;
    struct job job[MOST_JOBS];
};

/* Copies `times` rows of this channel, from step `first` on, to raw[times][pitch], each from the multiple of
 * 16 below its address on; zeros for missing samples. */
__device__ __forceinline__ void stage(uint8_t *raw, const job &w, unsigned inputs, size_t f, size_t first,
                                      unsigned times)
{
    const unsigned pieces = w.pitch / 16u;
    const uint8_t *here = w.e + first * w.row + f * inputs;
    if (w.aligned) {
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < times * pieces; i += 32) {
            const unsigned t = i * w.inverse >> 16; /* i / pieces */
            const bool there = !w.valid || w.valid[(first + t) * w.valid_row + f];
            copy_async_16(raw + 16 * i, here + t * (w.row - w.pitch) + 16 * i, there);
        }
    } else {
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < times * pieces; i += 32) {
            const unsigned t = i * w.inverse >> 16, piece = (i - t * pieces) * 16;
            const uint8_t *from = here + t * w.row;
            const unsigned skip = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 16);
            if (piece >= skip + inputs) continue;
            const bool there = !w.valid || w.valid[(first + t) * w.valid_row + f];
            const uint8_t *at = from - skip + piece;
            uint8_t *to = raw + 16 * i;
            if (at >= w.e && at + 16 <= w.end) {
                copy_async_16(to, at, there);
            } else { /* the edges of the array */
                for (unsigned k = 0; k < 16; k++)
                    to[k] = there && piece + k >= skip && piece + k < skip + inputs ? at[k]
                                                                                    : static_cast<uint8_t>(0);
            }
        }
    }
    copy_async_commit();
}

/* Warps of a multiprocessor that registers must suffice for: as many as nothing goes to local memory. A
 * multiprocessor of 8.6 and 8.7 has no more than 16 blocks. */
#if defined __CUDA_ARCH__ && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
constexpr int resident(int, int NT, int PT)
{
    constexpr bool few = __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870;
    return PT * NT > 4 || NT == 4 ? 8 : PT * NT > 1 ? 12 : few ? 16 : 20;
}
#else
constexpr int resident(int MT, int NT, int PT)
{
    return PT * NT > 6 || (PT == 2 && NT == 3)   ? 8
           : PT * NT > 4 || (MT == 4 && NT == 2) ? 12
           : PT * NT > 2                         ? 12
                                                 : 16;
}
#endif

/* MT, NT: tiles of the grid; PT: tiles of p that a warp makes. VECTORS: float4s of its sums. */
template <int MT, int NT, int PT> struct variant_of {
    static constexpr int GROUPS = MT / PT, VECTORS = 2 * PT * NT * 32;
};

/* The samples of one block of time in this launch: [begin, begin + count) of the block, from step `first` of
 * the call on; and what its intensities are multiplied by. */
struct samples {
    unsigned begin, count;
    size_t first;
    bool complete; /* the block ends with them */
    float factor;
};

__device__ __forceinline__ samples samples_of(const job &w, unsigned block, size_t f)
{
    samples s;
    s.begin = block == 0 ? w.pending : 0;
    s.first = block == 0 ? 0 : static_cast<size_t>(block) * w.T - w.pending;
    s.count = w.steps - s.first < w.T - s.begin ? static_cast<unsigned>(w.steps - s.first) : w.T - s.begin;
    s.complete = s.begin + s.count == w.T || w.flush;
    s.factor = s.complete && w.factor ? w.factor[static_cast<size_t>(block) * w.F + f] : w.unit;
    if (s.complete && s.factor == 0) s.count = 0; /* masked */
    s.factor = fminf(s.factor * w.level[w.shared_weights ? 0 : f], FLT_MAX);
    return s;
}

/* The sums with which a warp begins: of block 0 those of calls before. state: this warp's part of `before`
 * and `after`, shape (F, groups, 1 or 2, VECTORS), contiguous; total: in shared memory, of a long block. */
template <int MT, int NT, int PT>
__device__ __forceinline__ void begin_sums(power<MT, NT, PT> &sums, float4 *total, const job &w, size_t state,
                                           unsigned block, bool is_long, unsigned lane)
{
    sums.clear();
    if (is_long) sums.store(total, lane);
    if (block == 0 && w.before) {
        if (is_long) {
            sums.add(w.before + state + variant_of<MT, NT, PT>::VECTORS, lane);
            sums.store(total, lane);
            sums.clear();
        }
        sums.add(w.before + state, lane);
    }
}

/* The same for the next call, of a block that is not complete. */
template <int MT, int NT, int PT>
__device__ __forceinline__ void keep_sums(power<MT, NT, PT> &sums, const float4 *total, const job &w,
                                          size_t state, bool is_long, unsigned lane)
{
    sums.store(w.after + state, lane);
    if (!is_long) return;
    sums.clear();
    sums.add(total, lane);
    sums.store(w.after + state + variant_of<MT, NT, PT>::VECTORS, lane);
}

/* Adds one sample, all polarisations, of which the bytes are at e. */
template <int MT, int NT, int PT>
__device__ __forceinline__ void
add_sample(power<MT, NT, PT> &sums, const uint8_t *e, const grid &L, const unsigned (&dishes)[MT * NT],
           const uint2 *weights, const waves<MT, NT, PT> &waves, bool lone_p, bool lone_q, unsigned lane)
{
    const unsigned polarisation = frb_grid_weights(MT * NT);
    if (PT * NT <= 4 && L.P == 2) { /* two at once: one has too little to do for a warp */
        field<MT, NT> x, y;
        x.fill(e, dishes, weights, lane);
        y.fill(e + L.D, dishes, weights + polarisation, lane);
        sums.add(x, waves, lone_p, lone_q, L.zero);
        sums.add(y, waves, lone_p, lone_q, L.zero);
        return;
    }
#pragma unroll 1
    for (unsigned pol = 0; pol < L.P; pol++) {
        field<MT, NT> x;
        x.fill(e + pol * L.D, dishes, weights + pol * polarisation, lane);
        sums.add(x, waves, lone_p, lone_q, L.zero);
    }
}

/* Copies a warp's rows of an image [2M][2N] from shared memory to out. */
template <int GROUPS, int PT>
__device__ __forceinline__ void write_image(uint16_t *out, const uint4 *image, const grid &L, unsigned group,
                                            bool wide, unsigned lane)
{
    const unsigned cells = 4 * L.M * L.N;
#pragma unroll 1
    for (unsigned i = 8 * lane; i < cells;
         i += 8 * 32) { /* N being a multiple of 4, 8 values are in the same row */
        if (GROUPS > 1) {
            const unsigned row = i / (2 * L.N), p = row < L.M ? row : row == L.M ? 0 : 2 * L.M - row;
            if (p / 8 / PT != group) continue;
        }
        if (wide)
            *reinterpret_cast<uint4 *>(out + i) = image[i / 8];
        else
            for (unsigned k = i; k < i + 8; k++) out[k] = reinterpret_cast<const uint16_t *>(image)[k];
    }
}

/* One warp makes the image of one channel and block of time, or one of GROUPS parts of it. */
template <int MT, int NT, int PT>
__global__ void __launch_bounds__(32, resident(MT, NT, PT)) make_images(const __grid_constant__ work all)
{
    constexpr int GROUPS = variant_of<MT, NT, PT>::GROUPS, VECTORS = variant_of<MT, NT, PT>::VECTORS;
    extern __shared__ uint4 memory[];
    const grid &L = all.grid;
    unsigned j = 0;
    while (j + 1 < all.njobs && blockIdx.x >= all.job[j + 1].first_task) j++;
    const job &w = all.job[j];
    const unsigned task = blockIdx.x - w.first_task, lane = threadIdx.x;
    const unsigned group = task % GROUPS, p_tile = group * PT, block = task / GROUPS / w.F;
    const size_t f = task / GROUPS % w.F;

    const bool is_long = w.T > PARTIAL;
    float4 *total = reinterpret_cast<float4 *>(memory);                           /* in long blocks */
    uint8_t *raw = reinterpret_cast<uint8_t *>(memory + (is_long ? VECTORS : 0)); /* [2][times][pitch] */
    const unsigned inputs = L.P * L.D, chunk_bytes = w.times * w.pitch;
    const samples here = samples_of(w, block, f);

    /* weights: shape (F, P, pairs and lanes), contiguous; after: shape (P, pairs and lanes) */
    const uint2 *weights =
        w.weights + (w.shared_weights ? 0 : f) * L.P * frb_grid_weights(MT * NT) + frb_grid_weight(0, lane);
    const size_t state = (f * GROUPS + group) * (is_long ? 2 : 1) * VECTORS;

    waves<MT, NT, PT> waves;
    waves.load(L.along_m, L.along_n, p_tile, lane);
    const bool lone_p = p_tile == 0 && lane / 4 == 0, lone_q = lane % 4 == 0;
    unsigned dishes[MT * NT]; /* simd: m0 */
#pragma unroll
    for (int i = 0; i < MT * NT; i++) dishes[i] = w.dishes[i * 32 + lane];
    power<MT, NT, PT> sums;
    begin_sums(sums, total, w, state, block, is_long, lane);

    /* Samples of the chunk that begins with sample `next`: none reaches over the end of a partial sum. */
    auto chunk = [&](unsigned next) {
        return min(here.count - next,
                   min(static_cast<unsigned>(w.times), PARTIAL - (here.begin + next) % PARTIAL));
    };
    unsigned ahead = 0, times = chunk(0);
    if (here.count > 0) stage(raw, w, inputs, f, here.first, times);
    for (unsigned c = 0; c < here.count; ahead ^= 1) {
        const unsigned at = here.begin + c, next = c + times, more = chunk(next);
        if (more > 0)
            stage(raw + (ahead ^ 1) * chunk_bytes, w, inputs, f, here.first + next, more);
        else
            copy_async_commit(); /* nothing: for the count of groups */
        copy_async_wait<1>();
        __syncwarp();
        if (is_long && at % PARTIAL == 0 && at > 0) {
            sums.add(total, lane);
            sums.store(total, lane);
            sums.clear();
        }
        for (unsigned t = 0; t < times; t++) {
            const uintptr_t from =
                reinterpret_cast<uintptr_t>(w.e) + (here.first + c + t) * w.row + f * inputs;
            add_sample(sums, raw + ahead * chunk_bytes + t * w.pitch + from % 16, L, dishes, weights, waves,
                       lone_p, lone_q, lane);
        }
        __syncwarp();
        c = next, times = more;
    }

    if (!here.complete) { /* goes on in the next call */
        keep_sums(sums, total, w, state, is_long, lane);
        return;
    }
    if (is_long) sums.add(total, lane);
    __syncwarp(); /* the rest of shared memory is not needed any more */
    sums.write(reinterpret_cast<__half *>(memory), L.M, L.N, here.factor, p_tile, lane);
    __syncwarp();
    /* out: shape (F, out_stride, cells), contiguous; after: shape (cells), contiguous */
    write_image<GROUPS, PT>(w.out + (f * w.out_stride + block) * (4 * L.M * L.N), memory, L, group, w.wide,
                            lane);
}

} // namespace direct

} // namespace beamring

#endif
