/* hopper_small.cuh - the beamformer on Hopper for frames of few tiles: one block, a warpgroup, forms up to 96 beams of
 * one tile, 48 and then 48 (two passes), and ends.
 *
 * A multiprocessor holds two blocks, of one frame or of two, so that one multiplies while the other loads, rounds
 * or stores; the next launches' blocks begin one by one as this one's end (hopper_order.cuh). All that a block
 * needs fits its half of the shared memory: the field of 128 times, up to 512 dishes, which both passes read, and the
 * weights' real and imaginary parts of a pass; those of the second one take the place of the first one's, chunk by
 * chunk, while these are still multiplied.
 *
 * Without a part -im in shared memory, products are formed one by one,
 *
 *   16 J_re = sum_d 16 E_re A_re + 16 (-E_im - 1) A_im + 16 A_im,   16 J_im = sum_d 16 E_re A_im + 16 E_im A_re:
 *
 * -x - 1 is what a bitwise "not" makes of x, and does not overflow where -x would; the sums begin at 16 times the
 * weights' sum_d A_im. */
#ifndef BEAMRING_KERNELS_BASEBAND_HOPPER_SMALL_CUH
#define BEAMRING_KERNELS_BASEBAND_HOPPER_SMALL_CUH

#include "kernels/baseband/hopper_loads.cuh"
#include "kernels/baseband/hopper_order.cuh"
#include "kernels/baseband/hopper_round.cuh"

namespace beamring::baseband::hopper
{

struct small {
    static constexpr int BEAMS = 48, FPS = 1, MT = 2, PIECE = 64 * MT; /* of a pass */
    static constexpr int PASSES = 2, CHUNKS = 4;                       /* at most */
    static constexpr int THREADS = 128;
    static constexpr int STAGE = PIECE * DISHES, PART = BEAMS * DISHES, WEIGHTS = 2 * PART; /* of a chunk */
    static constexpr int OUT = BEAMS * TIMES, COUNTS = (PASSES * BEAMS + 1) * 32;
    static constexpr int COUNTERS = BEAMS / 4;
    static constexpr bool HALVES = false, PAIR = false;
};

/* Bytes from the start of the block's shared memory. A pass's result takes the place of the fourth chunk's weights,
 * what is counted that of the first chunk's field. */
struct small_places {
    unsigned weights, out, scales, offsets, field_full, weights_full, waits, bytes;
};

__host__ __device__ inline small_places small_places_of(unsigned chunks)
{
    constexpr unsigned SLOT = small::WEIGHTS,
                       BARRIERS = small::CHUNKS * static_cast<unsigned>(sizeof(barrier)),
                       TABLE = small::PASSES * small::BEAMS * 4;
    small_places p;
    p.weights = chunks * small::STAGE;
    p.out = p.weights + (chunks < small::CHUNKS ? chunks : small::CHUNKS - 1u) * SLOT;
    p.scales = p.out + SLOT;
    p.offsets = p.scales + TABLE;
    p.field_full = p.offsets + TABLE;
    p.weights_full = p.field_full + BARRIERS;
    p.waits = p.weights_full + BARRIERS;
    p.bytes = p.waits + 8;
    return p;
}

/* What a block forms. Blocks are numbered (beam tile, time, channel and polarisation). */
struct small_piece {
    unsigned fp, tile, first_beam, passes;
    size_t row; /* of weights, scales and offsets, of 96 beams each */

    __device__ __forceinline__ explicit small_piece(const work &w)
    {
        fp = blockIdx.z;
        tile = blockIdx.y;
        first_beam = blockIdx.x * (small::PASSES * small::BEAMS);
        passes = w.B - first_beam > small::BEAMS ? 2 : 1;
        row = static_cast<size_t>(fp < w.weight_rows ? fp : fp % w.weight_rows) * w.beam_tiles + blockIdx.x;
    }
};

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

/* By one thread: asks for a chunk's weights of a pass, parts 1 and 2 of 48 beams of
 * shape (weight_rows, beam_tiles, chunks, 3, 96, DISHES). */
__device__ __forceinline__ void load_small_weights(const work &w, const CUtensorMap *from,
                                                   const small_piece &piece, unsigned pass, unsigned chunk,
                                                   uint8_t *weights, barrier *full)
{
    const struct br_cell box = br_hopper_small_box(pass);
    barrier_expect(&full[chunk], small::WEIGHTS);
    tensor_load(weights + chunk * small::WEIGHTS, from, &full[chunk], 0, static_cast<int>(box.column),
                static_cast<int>((piece.row * w.chunks + chunk) * 3 + box.row));
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

__device__ __forceinline__ unsigned sum_of_bytes(uint4 bytes, unsigned sum)
{
    sum = __dp4a(bytes.x, ONES, sum);
    sum = __dp4a(bytes.y, ONES, sum);
    sum = __dp4a(bytes.z, ONES, sum);
    return __dp4a(bytes.w, ONES, sum);
}

/* The warpgroup is done with a chunk's weights of the first pass (and with the result that stood in their place since):
 * those of the second one come there. The other warps do not wait for the first one, which sees to that. */
__device__ __forceinline__ void next_small_weights(const work &w, const CUtensorMap *from,
                                                   const small_piece &piece, unsigned chunk, unsigned thread,
                                                   uint8_t *weights, barrier *full)
{
    if (thread >= 32) {
        asm volatile("bar.arrive %0, 128;\n" ::"r"(2 + chunk) : "memory");
        return;
    }
    asm volatile("bar.sync %0, 128;\n" ::"r"(2 + chunk) : "memory");
    if (thread == 0) {
        bulk_wait_read<0>();
        load_small_weights(w, from, piece, 1, chunk, weights, full);
    }
    __syncwarp();
}

__device__ __forceinline__ void meet_small()
{
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
}

__global__ void __launch_bounds__(small::THREADS, 2)
    beamform_small(const work w, const order o, const __grid_constant__ CUtensorMap field,
                   const __grid_constant__ CUtensorMap weights_map,
                   const __grid_constant__ CUtensorMap out_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using V = small;
    constexpr unsigned ALL_BEAMS = V::PASSES * V::BEAMS;
    extern __shared__ __align__(1024) uint8_t memory[];
    const small_places p = small_places_of(w.chunks);
    barrier *field_full = reinterpret_cast<barrier *>(memory + p.field_full),
            *weights_full = reinterpret_cast<barrier *>(memory + p.weights_full);
    float *scales = reinterpret_cast<float *>(memory + p.scales);
    int *offsets = reinterpret_cast<int *>(memory + p.offsets);
    unsigned *waits = reinterpret_cast<unsigned *>(memory + p.waits);
    uint8_t *weights = memory + p.weights, *out = memory + p.out, *counts = memory;
    const unsigned thread = threadIdx.x, warp = __shfl_sync(WHOLE_WARP, thread / 32, 0), lane = thread % 32;
    const small_piece piece(w);

    /* scales, offsets: shape (weight_rows, beam_tiles, 96), contiguous */
    float scale = 0;
    int offset = 0;
    if (thread < ALL_BEAMS) {
        scale = w.scales[piece.row * ALL_BEAMS + thread];
        offset = w.offsets[piece.row * ALL_BEAMS + thread];
    }
    /* Four warps at once: the field, the weights, whether launches before have to be waited for. The field is asked for
     * before that is known: what comes too early is thrown away, and asked for once more. */
    if (warp == 0 && lane == 0) {
#pragma unroll 1
        for (unsigned chunk = 0; chunk < w.chunks; chunk++) barrier_start(&field_full[chunk], 1);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        load_small_field(w, &field, piece, memory, field_full);
    } else if (warp == 1 && lane == 0) {
#pragma unroll 1
        for (unsigned chunk = 0; chunk < w.chunks; chunk++) barrier_start(&weights_full[chunk], 1);
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
#pragma unroll 1
        for (unsigned chunk = 0; chunk < w.chunks; chunk++)
            load_small_weights(w, &weights_map, piece, 0, chunk, weights, weights_full);
    } else if (warp == 2 && lane == 0) {
        const order_seen seen(o);
        const bool wait = must_wait(o, seen);
        *waits = wait;
        if (blockIdx.x + blockIdx.y + blockIdx.z == 0) tell_host(o, seen, !wait);
        if (!wait) let_next_begin();
    } else if (warp == 3 && lane == 0) {
        tensor_prefetch(&out_map);
    }
    __syncwarp();
    if (thread < ALL_BEAMS) {
        scales[thread] = scale;
        offsets[thread] = offset;
    }
    __syncthreads();
    const unsigned waited = *waits;
    if (waited) {
        await_previous();
        if (thread == 0) {
            let_next_begin();
            for (unsigned chunk = 0; chunk < w.chunks; chunk++) barrier_wait(&field_full[chunk], 0);
            load_small_field(w, &field, piece, memory, field_full);
        }
        __syncthreads(); /* barriers are in their second phase */
    }
    rounding<V> r = {w, thread, lane, warp, lane % 4, 0, {}, 0};
    const unsigned live =
        r.find_live(piece.tile * TIMES + br_hopper_time(V::MT, 0, 0, lane, warp), piece.fp / w.P);
    unsigned whole[V::COUNTERS]; /* of the first pass; as r.whole */
#pragma unroll
    for (int i = 0; i < V::COUNTERS; i++) whole[i] = 0;
#pragma unroll 1
    for (unsigned pass = 0; pass < piece.passes; pass++) {
        const bool last = pass + 1 == piece.passes;
        int sums[V::MT][V::BEAMS]; /* assigned as rounding::finish says */
#pragma unroll
        for (int j = 0; j < V::BEAMS / 8; j++) {
            const int2 from = *reinterpret_cast<const int2 *>(offsets + pass * V::BEAMS + j * 8 + r.quad * 2);
#pragma unroll
            for (int m = 0; m < V::MT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    sums[m][j * 4 + i] = i % 2 == 0 ? from.x : from.y;
                    sums[m][V::BEAMS / 2 + j * 4 + i] = 0;
                }
        }
        uint4 first[V::MT][2], second[V::MT][2];
        barrier_wait(&field_full[0], waited);
        read_small(first, memory, 0, lane, warp);
        barrier_wait(&weights_full[0], pass);
#pragma unroll 1
        for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
            const uint8_t *stage = memory + chunk * V::STAGE, *here = weights + chunk * V::WEIGHTS;
            read_small(second, stage, 1, lane, warp);
            multiply_small(sums, first, here, 0);
            /* With this, all products but the last three are done, and so those of the chunk before. */
            if (!last && chunk > 0)
                next_small_weights(w, &weights_map, piece, chunk - 1, thread, weights, weights_full);
            if (pass > 0 && chunk == 0 && w.chunks == V::CHUNKS)
                next_small_weights(w, &weights_map, piece, V::CHUNKS - 1, thread, weights, weights_full);
            if (chunk + 1 < w.chunks) {
                barrier_wait(&field_full[chunk + 1], waited);
                read_small(first, stage + V::STAGE, 0, lane, warp);
                barrier_wait(&weights_full[chunk + 1], pass);
            }
            multiply_small(sums, second, here, 1);
        }
        wgmma_wait<0>();
        wgmma_hold(sums[0]);
        wgmma_hold(sums[1]);
        /* All are done with the last chunk's weights, where the result comes to stand, and the accelerator with the
         * result of the pass before. */
        if (thread == 0) bulk_wait_read<0>();
        meet_small();
        if (!last && w.chunks < V::CHUNKS && thread == 0)
            load_small_weights(w, &weights_map, piece, 1, w.chunks - 1u, weights, weights_full);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < V::COUNTERS; i++) {
            if (pass > 0) whole[i] = r.whole[i];
            r.whole[i] = 0;
        }
        r.finish(sums, scales + pass * V::BEAMS, live, out);
        if (last) {
            /* What was not clamped: a byte of each thread for each of its beams. */
#pragma unroll
            for (int i = 0; i < V::COUNTERS; i++) {
                const unsigned beam =
                    static_cast<unsigned>(i) / 2 * 8 + r.quad * 2 + static_cast<unsigned>(i) % 2;
                counts[br_hopper_small_count(pass * V::BEAMS + beam, warp, lane)] =
                    static_cast<uint8_t>(r.whole[i]);
                if (pass > 0) counts[br_hopper_small_count(beam, warp, lane)] = static_cast<uint8_t>(whole[i]);
            }
            if (r.quad == 0)
                counts[br_hopper_small_count(ALL_BEAMS, warp, lane)] = static_cast<uint8_t>(r.times);
        }
        publish_shared();
        meet_small();
        const unsigned first_beam = piece.first_beam + pass * V::BEAMS;
        if (!w.store_tensor) {
            r.store_bytes(out, piece.tile, piece.fp, first_beam, 0, TIMES);
        } else if (thread == 0) {
            tensor_store(&out_map, out, static_cast<int>(piece.tile * TIMES), static_cast<int>(piece.fp),
                         static_cast<int>(first_beam));
            bulk_commit();
        }
    }
    if (warp < 3) {
        unsigned clamped = 0;
        if (piece.first_beam + thread < w.B) {
            unsigned whole_sum = 0, times = 0;
#pragma unroll
            for (unsigned i = 0; i < 32; i += 16) {
                uint4 of_beam = *reinterpret_cast<const uint4 *>(counts + thread * 32 + i),
                      of_times = *reinterpret_cast<const uint4 *>(counts + ALL_BEAMS * 32 + i);
                whole_sum = sum_of_bytes(of_beam, whole_sum);
                times = sum_of_bytes(of_times, times);
            }
            clamped = 2 * times - whole_sum / 16;
            if (clamped > 0)
                atomicAdd(&w.clamped[piece.first_beam + thread], static_cast<unsigned long long>(clamped));
        }
        clamped = __reduce_add_sync(WHOLE_WARP, clamped);
        if (lane == 0 && clamped > 0) atomicAdd(w.total, static_cast<unsigned long long>(clamped));
    }
    if (thread == 0) {
        bulk_wait<0>();
        end_in_order(o);
    }
#endif
}

} // namespace beamring::baseband::hopper

#endif
