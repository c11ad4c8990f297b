/* small_frames.cuh - the beamformer on Hopper for frames of few tiles: one block, a warpgroup, forms 48
 * beams of one tile and ends.
 *
 * A multiprocessor holds two blocks, of one frame or of two, so that one multiplies while the other loads,
 * rounds or stores; the next launches' blocks begin one by one as this one's end (launch_order.cuh). All
 * that a block needs fits its half of the shared memory: the field of 128 times, up to 512 dishes, and the
 * weights' real and imaginary parts. Without a part -im there, products are formed one by one,
 *
 *   16 J_re = sum_d 16 E_re A_re + 16 (-E_im - 1) A_im + 16 A_im
 *   16 J_im = sum_d 16 E_re A_im + 16 E_im A_re:
 *
 * -x - 1 is what a bitwise "not" makes of x, and does not overflow where -x would; the sums begin at 16
 * times the weights' sum_d A_im.
 *
 * Starting takes most of the time, so the warps of a block share it. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_SMALL_FRAMES_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_SMALL_FRAMES_CUH

#include "kernels/baseband/gpu/wgmma/launch_order.cuh"
#include "kernels/baseband/gpu/wgmma/loads.cuh"
#include "kernels/baseband/gpu/wgmma/round.cuh"

namespace beamring::baseband::hopper
{

struct small {
    static constexpr int BEAMS = 48, FPS = 1, MT = 2, PIECE = 64 * MT;
    static constexpr int CHUNKS = 4; /* at most */
    static constexpr int THREADS = 128;
    static constexpr int STAGE = PIECE * DISHES, PART = BEAMS * DISHES, WEIGHTS = 2 * PART; /* of a chunk */
    static constexpr int OUT = BEAMS * TIMES;
    static constexpr int COUNTERS = BEAMS / 4; /* a thread's beams */
    static constexpr bool HALVES = false, PAIR = false;
};

/* Bytes from the start of the block's shared memory. The result takes the place of the first chunk's
 * field. */
struct small_places {
    unsigned weights, scales, field_full, weights_full, bytes;
};

__host__ __device__ inline small_places small_places_of(unsigned chunks)
{
    constexpr unsigned BARRIERS = small::CHUNKS * static_cast<unsigned>(sizeof(barrier));
    small_places p;
    p.weights = chunks * small::STAGE;
    p.scales = p.weights + chunks * small::WEIGHTS;
    p.field_full = p.scales + small::BEAMS * static_cast<unsigned>(sizeof(float));
    p.weights_full = p.field_full + BARRIERS;
    p.bytes = p.weights_full + BARRIERS;
    return p;
}

/* The output of a block. Blocks are numbered (48 beams, time, channel and polarisation): neighbours share a
 * field. */
struct small_piece {
    unsigned fp, tile, first_beam;
    size_t row;     /* of weights, scales and offsets, of 96 beams each */
    unsigned upper; /* whether these are the last 48 of them */

    __device__ __forceinline__ explicit small_piece(const work &w)
    {
        fp = blockIdx.z;
        tile = blockIdx.y;
        first_beam = blockIdx.x * small::BEAMS;
        row =
            static_cast<size_t>(fp < w.weight_rows ? fp : fp % w.weight_rows) * w.beam_tiles + blockIdx.x / 2;
        upper = blockIdx.x % 2;
    }
};

/* By one thread. */
__device__ __forceinline__ void start_barriers(barrier *full, unsigned chunks)
{
#pragma unroll 1
    for (unsigned chunk = 0; chunk < chunks; chunk++) barrier_start(&full[chunk], 1);
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

/* By one thread: asks for all the field, a barrier for each chunk. */
__device__ __forceinline__ void load_small_field(const work &w, const CUtensorMap *field,
                                                 const small_piece &piece, uint8_t *stages, barrier *full)
{
    int x = static_cast<int>(piece.fp * w.D), y = static_cast<int>(piece.tile * TIMES);
#pragma unroll 1
    for (unsigned chunk = 0; chunk < w.chunks; chunk++, x += DISHES) {
        barrier_expect(&full[chunk], small::STAGE);
        tensor_load(stages + chunk * small::STAGE, field, &full[chunk], x, y);
    }
}

/* By one thread: asks for the weights, parts 1 and 2 of 48 beams of shape (weight_rows, beam_tiles,
 * chunks, 3, 96, DISHES), a barrier for each chunk. */
__device__ __forceinline__ void load_small_weights(const work &w, const CUtensorMap *from,
                                                   const small_piece &piece, uint8_t *weights, barrier *full)
{
    const struct br_cell box = br_hopper_small_box(piece.upper);
#pragma unroll 1
    for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
        barrier_expect(&full[chunk], small::WEIGHTS);
        tensor_load(weights + chunk * small::WEIGHTS, from, &full[chunk], 0, static_cast<int>(box.column),
                    static_cast<int>((piece.row * w.chunks + chunk) * 3 + box.row));
    }
}

/* A thread's bytes of half a chunk's field.
 *   packed [MT][upper]  simd: b1 b0 <-> dish1 dish0   register: r1 r0 <-> dish3 dish2
 *     thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 dish5 dish4 */
__device__ __forceinline__ void read_small(uint4 (&packed)[small::MT][2], const uint8_t *stage, unsigned half,
                                           unsigned lane, unsigned warp)
{
#pragma unroll
    for (int m = 0; m < small::MT; m++)
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            packed[m][upper] = *reinterpret_cast<const uint4 *>(
                stage +
                br_hopper_field(br_hopper_time(small::MT, m, upper, lane, warp), half * 4 + lane % 4));
}

/* Adds the products of half a chunk to the sums; three are still under way at its end. */
__device__ __forceinline__ void multiply_small(int (&sums)[small::MT][small::BEAMS],
                                               const uint4 (&packed)[small::MT][2], const uint8_t *weights,
                                               int half)
{
    using V = small;
    uint64_t b_re = br_wgmma_descriptor(shared_address(weights), 16, 1024, BR_WGMMA_128) + half * 64 / 16,
             b_im = b_re + V::PART / 16; /* descriptors count in 16 bytes */
#pragma unroll
    for (int step = 0; step < 2; step++) {
#pragma unroll
        for (int m = 0; m < V::MT; m++) {
            /* a_re, a_im, a_not [4], operand a: see br_wgmma_s8_a */
            unsigned a_re[4], a_im[4], a_not[4];
            wgmma_wait<3>();
#pragma unroll
            for (int upper = 0; upper < 2; upper++)
#pragma unroll
                for (int k4 = 0; k4 < 2; k4++) {
                    const uint4 &p = packed[m][upper];
                    unsigned word = step == 0 ? (k4 == 0 ? p.x : p.y) : (k4 == 0 ? p.z : p.w);
                    a_re[upper + 2 * k4] = int4x4_re16(word);
                    a_im[upper + 2 * k4] = int4x4_im16(word);
                    a_not[upper + 2 * k4] = int4x4_not_im16(word);
                }
            wgmma_hold(a_re);
            wgmma_hold(a_im);
            wgmma_hold(a_not);
            wgmma_fence();
            int(&re)[V::BEAMS / 2] = *reinterpret_cast<int(*)[V::BEAMS / 2]>(&sums[m][0]);
            int(&im)[V::BEAMS / 2] = *reinterpret_cast<int(*)[V::BEAMS / 2]>(&sums[m][V::BEAMS / 2]);
            wgmma_s8<V::BEAMS>::multiply(re, a_re, b_re + step * 32 / 16, true);
            wgmma_s8<V::BEAMS>::multiply(im, a_re, b_im + step * 32 / 16, true);
            wgmma_s8<V::BEAMS>::multiply(re, a_not, b_im + step * 32 / 16, true);
            wgmma_s8<V::BEAMS>::multiply(im, a_im, b_re + step * 32 / 16, true);
            wgmma_commit();
        }
    }
}

/* Adds what was clamped: what was not is in `whole`, as in rounding. Eight lanes have the same beams: they
 * add two counters at a time, i and i + 6 in the halves of a word, and at last four of them have three
 * counters each. */
__device__ __forceinline__ void count_small(const work &w, unsigned first_beam, unsigned lane, unsigned times,
                                            const unsigned (&whole)[small::COUNTERS])
{
    constexpr int HALF = small::COUNTERS / 2, LEFT = HALF / 2;
    constexpr unsigned BOTH = 0x10001;
    const bool upper = (lane & 16) != 0, high = (lane & 8) != 0, idle = (lane & 4) != 0;
    unsigned clamped[HALF], sum = 0;
#pragma unroll
    for (int i = 0; i < HALF; i++) clamped[i] = 2 * times * BOTH - (whole[i] + (whole[i + HALF] << 16)) / 16;
#pragma unroll
    for (int i = 0; i < LEFT; i++) {
        unsigned give = upper ? clamped[i] : clamped[LEFT + i], both = upper ? clamped[LEFT + i] : clamped[i];
        both += __shfl_xor_sync(WHOLE_WARP, give, 16);
        both += __shfl_xor_sync(WHOLE_WARP, both, 8);
        both += __shfl_xor_sync(WHOLE_WARP, both, 4);
        const unsigned counter = static_cast<unsigned>(i) + (upper ? LEFT : 0) + (high ? HALF : 0),
                       beam = first_beam + counter / 2 * 8 + lane % 4 * 2 + counter % 2,
                       here = idle || beam >= w.B ? 0
                              : high              ? both >> 16
                                                  : both & 0xffff;
        if (here > 0) atomicAdd(&w.clamped[beam], static_cast<unsigned long long>(here));
        sum += here;
    }
    sum = __reduce_add_sync(WHOLE_WARP, sum);
    if (lane == 0 && sum > 0) atomicAdd(w.total, static_cast<unsigned long long>(sum));
}

__global__ void __launch_bounds__(small::THREADS, 2)
    beamform_small(const work w, const order o, const __grid_constant__ CUtensorMap field,
                   const __grid_constant__ CUtensorMap weights_map,
                   const __grid_constant__ CUtensorMap out_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using V = small;
    extern __shared__ __align__(1024) uint8_t memory[];
    const small_places p = small_places_of(w.chunks);
    barrier *field_full = reinterpret_cast<barrier *>(memory + p.field_full),
            *weights_full = reinterpret_cast<barrier *>(memory + p.weights_full);
    float *scales = reinterpret_cast<float *>(memory + p.scales);
    uint8_t *weights = memory + p.weights;
    const unsigned thread = threadIdx.x, warp = __shfl_sync(WHOLE_WARP, thread / 32, 0), lane = thread % 32;
    const small_piece piece(w);

    /* scales, offsets: shape (weight_rows, beam_tiles, 96), contiguous */
    const size_t table = piece.row * 96 + piece.upper * V::BEAMS;
    const float scale = thread < V::BEAMS ? w.scales[table + thread] : 0;
    int2 offsets[V::BEAMS / 8]; /* [beam / 8] of beams lane % 4 * 2 and the next */
#pragma unroll
    for (int j = 0; j < V::BEAMS / 8; j++)
        offsets[j] = *reinterpret_cast<const int2 *>(w.offsets + table + j * 8 + lane % 4 * 2);
    if (warp == 0 && lane == 0) {
        const order_seen seen(o);
        start_barriers(field_full, w.chunks);
        const bool wait = must_wait(o, seen);
        if (wait) await_previous();
        if (blockIdx.x + blockIdx.y + blockIdx.z == 0) tell_host(o, seen, !wait);
        let_next_begin();
        load_small_field(w, &field, piece, memory, field_full);
    } else if (warp == 1 && lane == 0) {
        start_barriers(weights_full, w.chunks);
        load_small_weights(w, &weights_map, piece, weights, weights_full);
    } else if (warp == 2 && lane == 0) {
        tensor_prefetch(&out_map);
    } else if (warp == 3 && lane == 0) {
        tensor_prefetch(&field);
    }
    __syncwarp();
    if (thread < V::BEAMS) scales[thread] = scale;
    int sums[V::MT][V::BEAMS]; /* assigned as rounding::round_sums says */
#pragma unroll
    for (int m = 0; m < V::MT; m++)
#pragma unroll
        for (int i = 0; i < V::BEAMS / 2; i++) {
            sums[m][i] = i % 2 == 0 ? offsets[i / 4].x : offsets[i / 4].y;
            sums[m][V::BEAMS / 2 + i] = 0;
        }
    __syncthreads();
    if (w.valid != nullptr) await_previous();
    rounding<V> r = {w, thread, lane, warp, lane % 4, 0, {}, 0};
    const unsigned live =
        r.find_live(piece.tile * TIMES + br_hopper_time(V::MT, 0, 0, lane, warp), piece.fp / w.P);
    uint4 first[V::MT][2], second[V::MT][2];
    barrier_wait(&field_full[0], 0);
    read_small(first, memory, 0, lane, warp);
    barrier_wait(&weights_full[0], 0);
#pragma unroll 1
    for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
        const uint8_t *stage = memory + chunk * V::STAGE, *here = weights + chunk * V::WEIGHTS;
        read_small(second, stage, 1, lane, warp);
        multiply_small(sums, first, here, 0);
        if (chunk + 1 < w.chunks) {
            barrier_wait(&field_full[chunk + 1], 0);
            read_small(first, stage + V::STAGE, 0, lane, warp);
            barrier_wait(&weights_full[chunk + 1], 0);
        }
        multiply_small(sums, second, here, 1);
    }
    wgmma_wait<0>();
    wgmma_hold(sums[0]);
    wgmma_hold(sums[1]);
    asm volatile("bar.sync 1, 128;\n" ::: "memory"); /* all have read the first chunk's field */
    r.round_sums(sums, scales, live, memory);
    publish_shared();
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
    if (!w.store_tensor) {
        r.store_bytes(memory, piece.tile, piece.fp, piece.first_beam, 0, TIMES);
    } else if (thread == 0) {
        tensor_store(&out_map, memory, static_cast<int>(piece.tile * TIMES), static_cast<int>(piece.fp),
                     static_cast<int>(piece.first_beam));
        bulk_commit();
    }
    __syncwarp();
    count_small(w, piece.first_beam, lane, r.times, r.whole);
    if (thread == 0) {
        bulk_wait<0>();
        end_in_order(o);
    }
#endif
}

} // namespace beamring::baseband::hopper

#endif
