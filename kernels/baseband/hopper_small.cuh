/* hopper_small.cuh - the beamformer on Hopper for frames of few tiles: one block, a warpgroup, forms 48 beams of one
 * tile and ends.
 *
 * A multiprocessor holds two blocks, of one frame or of two, so that one multiplies while the other loads, rounds
 * or stores; the next launch's blocks begin one by one as this one's end (hopper_order.cuh). All that a block
 * needs fits its half of the shared memory: the field of 128 times, up to 512 dishes, and the weights' real
 * and imaginary parts. Without a part -im there, products are formed one by one,
 *
 *   16 J_re = sum_d 16 E_re A_re + 16 (-E_im - 1) A_im + 16 A_im,   16 J_im = sum_d 16 E_re A_im + 16 E_im A_re:
 *
 * -x - 1 is what a bitwise "not" makes of x, and does not overflow where -x would; the sums begin at 16 times the
 * weights' sum_d A_im. */
#ifndef BEAMRING_KERNELS_BASEBAND_HOPPER_SMALL_CUH
#define BEAMRING_KERNELS_BASEBAND_HOPPER_SMALL_CUH

#include "kernels/baseband/hopper_order.cuh"
#include "kernels/baseband/hopper_round.cuh"

namespace beamring::baseband::hopper
{

constexpr unsigned APART = 1300; /* cycles for a chunk */

struct small {
    static constexpr int BEAMS = 48, FPS = 1, MT = 2, PIECE = 64 * MT;
    static constexpr int CHUNKS = 4; /* at most */
    static constexpr int THREADS = 128;
    static constexpr int STAGE = PIECE * DISHES, PART = BEAMS * DISHES, WEIGHTS = 2 * PART; /* of a chunk */
    static constexpr int OUT = BEAMS * TIMES, COUNTS = (BEAMS + 1) * 32;
    static constexpr int COUNTERS = BEAMS / 4;
    static constexpr bool HALVES = false, PAIR = false;
};

/* Bytes from the start of the block's shared memory. The result and what is counted take the place of the first
 * chunk's field. */
struct small_places {
    unsigned weights, barriers, scales, bytes;
};

__host__ __device__ inline small_places small_places_of(unsigned chunks)
{
    small_places p;
    p.weights = chunks * small::STAGE;
    p.barriers = p.weights + chunks * small::WEIGHTS;
    p.scales = p.barriers + small::CHUNKS * static_cast<unsigned>(sizeof(barrier));
    p.bytes = p.scales + small::BEAMS * static_cast<unsigned>(sizeof(float));
    return p;
}

/* What a block forms. Blocks are numbered (channel and polarisation, time, beam tile): neighbours share a
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
        row = static_cast<size_t>(fp < w.weight_rows ? fp : fp % w.weight_rows) * w.beam_tiles +
              blockIdx.x / 2;
        upper = blockIdx.x % 2;
    }
};

/* Two blocks of a multiprocessor that begin together would stay in step, and neither would multiply while the
 * other loads, rounds or stores: returns once the one that came before is a part of its work ahead. Where there
 * are so many blocks that they get out of step by themselves, this only costs time. */
__device__ __forceinline__ void fall_behind(const order &o, unsigned chunks)
{
    unsigned processor;
    asm volatile("mov.u32 %0, %%smid;\n" : "=r"(processor));
    const long long now = clock64(), apart = chunks * APART;
    unsigned long long *began = &o.state->began[processor % order_state::PROCESSORS];
    const long long before =
        static_cast<long long>(atomicExch(began, static_cast<unsigned long long>(now)));
    if (now - before >= 0 && now - before < apart)
        while (clock64() - before < apart) __nanosleep(40);
}

/* By one thread: brings everything, and lets the next launch begin. The first chunk is there when it arrives, too. */
__device__ __forceinline__ void load_small(const work &w, const order &o, const CUtensorMap *field,
                                           const small_piece &piece, uint8_t *stages, uint8_t *weights,
                                           barrier *full)
{
    using V96 = variant<96, false>;
    const order_seen seen(o);
    bool wait = false;
#pragma unroll 1
    for (unsigned chunk = 0; chunk < w.chunks; chunk++) barrier_start(&full[chunk], chunk == 0 ? 2 : 1);
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    /* shape (weight_rows, beam_tiles, chunks, 3, 96, DISHES), contiguous */
    const uint8_t *from = w.weights + piece.row * w.chunks * V96::WEIGHTS;
    int x = static_cast<int>(piece.fp * w.D), y = static_cast<int>(piece.tile * TIMES);
#pragma unroll 1
    for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
        barrier_expect(&full[chunk], small::STAGE + small::WEIGHTS);
#pragma unroll
        for (unsigned part = 0; part < 2; part++)
            bulk_load(weights + chunk * small::WEIGHTS + part * small::PART,
                      from + chunk * V96::WEIGHTS + br_hopper_small_from(piece.upper, part), small::PART,
                      &full[chunk]);
        if (chunk == 0) {
            wait = must_wait(o, seen);
            if (wait) {
                for (unsigned i = 0; i < min(AHEAD, w.chunks + 0u); i++)
                    tensor_prefetch_l2(field, x + static_cast<int>(i * DISHES), y);
                await_previous();
            }
            let_next_begin();
        }
        tensor_load(stages + chunk * small::STAGE, field, &full[chunk],
                    x + static_cast<int>(chunk * DISHES), y);
    }
    if (!wait && o.apart) fall_behind(o, w.chunks);
    barrier_arrive(&full[0]);
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

__global__ void __launch_bounds__(small::THREADS, 2)
    beamform_small(const work w, const order o, const __grid_constant__ CUtensorMap field,
                   const __grid_constant__ CUtensorMap out_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using V = small;
    extern __shared__ __align__(1024) uint8_t memory[];
    const small_places p = small_places_of(w.chunks);
    barrier *full = reinterpret_cast<barrier *>(memory + p.barriers);
    float *scales = reinterpret_cast<float *>(memory + p.scales);
    const unsigned thread = threadIdx.x, warp = __shfl_sync(WHOLE_WARP, thread / 32, 0), lane = thread % 32;
    const small_piece piece(w);

    /* scales, offsets: shape (weight_rows, beam_tiles, 96), contiguous */
    const size_t table = piece.row * 96 + piece.upper * V::BEAMS;
    const float scale = thread < V::BEAMS ? w.scales[table + thread] : 0;
    int2 offsets[V::BEAMS / 8]; /* [beam / 8] of beams lane % 4 * 2 and the next */
#pragma unroll
    for (int j = 0; j < V::BEAMS / 8; j++)
        offsets[j] = *reinterpret_cast<const int2 *>(w.offsets + table + j * 8 + lane % 4 * 2);
    if (thread == 32) tensor_prefetch(&field);
    if (thread == 64) tensor_prefetch(&out_map);
    if (thread == 0) load_small(w, o, &field, piece, memory, memory + p.weights, full);
    __syncwarp();
    if (thread < V::BEAMS) scales[thread] = scale;
    int sums[V::MT][V::BEAMS]; /* assigned as rounding::finish says */
#pragma unroll
    for (int m = 0; m < V::MT; m++)
#pragma unroll
        for (int i = 0; i < V::BEAMS / 2; i++) {
            sums[m][i] = i % 2 == 0 ? offsets[i / 4].x : offsets[i / 4].y;
            sums[m][V::BEAMS / 2 + i] = 0;
        }
    __syncthreads();
    rounding<V> r = {w, thread, lane, warp, lane % 4, 0, {}, 0};
    if (w.valid != nullptr) await_previous();
    const unsigned live =
        r.find_live(piece.tile * TIMES + br_hopper_time(V::MT, 0, 0, lane, warp), piece.fp / w.P);
    uint4 first[V::MT][2], second[V::MT][2];
    barrier_wait(&full[0], 0);
    read_small(first, memory, 0, lane, warp);
#pragma unroll 1
    for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
        const uint8_t *stage = memory + chunk * V::STAGE,
                      *weights = memory + p.weights + chunk * V::WEIGHTS;
        read_small(second, stage, 1, lane, warp);
        multiply_small(sums, first, weights, 0);
        if (chunk + 1 < w.chunks) {
            barrier_wait(&full[chunk + 1], 0);
            read_small(first, stage + V::STAGE, 0, lane, warp);
        }
        multiply_small(sums, second, weights, 1);
    }
    wgmma_wait<0>();
    wgmma_hold(sums[0]);
    wgmma_hold(sums[1]);
    asm volatile("bar.sync 1, 128;\n" ::: "memory"); /* all have read the first chunk's field */
    r.finish(sums, scales, live, memory);
    /* What was not clamped: a byte of each thread for each of its beams. */
    uint8_t *counts = memory + V::OUT;
#pragma unroll
    for (int i = 0; i < V::COUNTERS; i++)
        counts[br_hopper_small_count(i / 2 * 8 + r.quad * 2 + i % 2, warp, lane)] =
            static_cast<uint8_t>(r.whole[i]);
    if (r.quad == 0)
        counts[br_hopper_small_count(V::BEAMS, warp, lane)] = static_cast<uint8_t>(r.times);
    publish_shared();
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
    if (!w.store_tensor) {
        r.store_bytes(memory, piece.tile, piece.fp, piece.first_beam, 0, TIMES);
    } else if (thread == 0) {
        tensor_store(&out_map, memory, static_cast<int>(piece.tile * TIMES), static_cast<int>(piece.fp),
                     static_cast<int>(piece.first_beam));
        bulk_commit();
    }
    if (warp < 2) {
        unsigned clamped = 0;
        if (thread < V::BEAMS && piece.first_beam + thread < w.B) {
            unsigned whole = 0, times = 0;
#pragma unroll
            for (unsigned i = 0; i < 32; i += 16) {
                uint4 of_beam = *reinterpret_cast<const uint4 *>(counts + thread * 32 + i),
                      of_times = *reinterpret_cast<const uint4 *>(counts + V::BEAMS * 32 + i);
                whole = sum_of_bytes(of_beam, whole);
                times = sum_of_bytes(of_times, times);
            }
            clamped = 2 * times - whole / 16;
            if (clamped > 0)
                atomicAdd(&w.clamped[piece.first_beam + thread], static_cast<unsigned long long>(clamped));
        }
        clamped = __reduce_add_sync(WHOLE_WARP, clamped);
        if (lane == 0 && clamped > 0) atomicAdd(w.total, static_cast<unsigned long long>(clamped));
    }
    if (thread == 0) {
        bulk_wait_read<0>();
        end_in_order(o);
    }
#endif
}

} // namespace beamring::baseband::hopper

#endif
