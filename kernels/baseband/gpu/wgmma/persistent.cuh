/* persistent.cuh - the beamformer on Hopper, the kernel: for each channel and polarisation a product of
 * matrices with wgmma.
 *
 * Times are the product's rows, beams its columns: 2 BEAMS of them, first all real parts, then all
 * imaginary ones. The field comes packed to shared memory (tensor memory accelerator), goes from there to
 * registers and becomes 16 re and 16 im there, by a shift and a mask; these registers are the products'
 * operand a. With the weights -im, re and im of a chunk of dishes one after the other in shared memory,
 * operand b is a window of them:
 *
 *   16 (J_re | J_im) = sum_d 16 E_re (A_re | A_im) + 16 E_im (-A_im | A_re),
 *
 * exact in 32 bits up to 65536 dishes; all of a sum stays in one thread's register.
 *
 * A block has a warpgroup of which single threads start the loads, and 2 or 3 warpgroups that multiply, each
 * with stages of its own. With many beams, two share each tile of 128 times, one multiplying while the other
 * rounds; with few, where memory is what counts, they alternate, tile by tile, and so do three in tiles of 64
 * times where powers of 33 to 64 beams are formed (THREE). The kernel is persistent: each block has a part
 * of all tiles (or halves of tiles) without gaps, numbered [channel and polarisation][beam tile][time], and
 * loads weights, chunk by chunk as the ones before are done with, only where it comes to another channel.
 * Where a channel and polarisation has only 64 dishes, a chunk holds two of them (PAIR).
 *
 * Small frames take as long as a block needs to begin and to end, so both are short: blocks begin while those
 * of the launch before end, start few barriers, and load the first weights at once; the field of the first
 * tile is asked for meanwhile and loaded once it is known that the launch before need not be waited for, or
 * it has ended (launch_order.cuh). Where frames follow each other, they have fewer blocks than there are
 * multiprocessors and run concurrently. Frames of still fewer tiles have the kernel in small_frames.cuh. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_PERSISTENT_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_PERSISTENT_CUH

#include "kernels/baseband/gpu/wgmma/ends.cuh"

namespace beamring::baseband::hopper
{

/* ---- a warpgroup that multiplies ---- */

template <class V, ending END> struct consumer : rounding<V> {
    using rounding<V>::w, rounding<V>::thread, rounding<V>::lane, rounding<V>::warp, rounding<V>::quad,
        rounding<V>::first_time, rounding<V>::whole, rounding<V>::times;
    using rounding<V>::find_live, rounding<V>::round_sums, rounding<V>::store_bytes;

    const CUtensorMap *out_map;
    uint8_t *stages, *out;
    const uint8_t *weights;
    float *scales; /* of the warpgroup */
    barriers &b;
    unsigned which; /* of the block's consumers */

    /* Two warpgroups share the tensor cores best when one rounds while the other multiplies, and left alone
     * they would stay where they are, in step with each other: so each, before it rounds its half of tile i
     * (of `tiles`), waits until the other has rounded its one before (warpgroup 0: of tile i - 1, warpgroup
     * 1: of tile i). `both`: whether the block has both halves of tile i. */
    __device__ __forceinline__ void await_rounding(unsigned i, bool both) const
    {
        if (which == 1 ? both : i > 0) asm volatile("bar.sync %0, 256;\n" ::"r"(5 + which) : "memory");
    }
    __device__ __forceinline__ void allow_rounding(unsigned i, bool both, unsigned tiles) const
    {
        if (which == 0 ? both : i + 1 < tiles)
            asm volatile("bar.arrive %0, 256;\n" ::"r"(6 - which) : "memory");
    }

    __device__ __forceinline__ void meet() const
    {
        asm volatile("bar.sync %0, 128;\n" ::"r"(which + 1) : "memory");
    }

    /* The segment's scales, of each thread that of the beam with its number, to where the warpgroup reads
     * them. */
    __device__ __forceinline__ void place_scales(float scale) const
    {
        meet(); /* all have read those of the segment before */
        if (thread < V::FPS * V::BEAMS) scales[thread] = scale;
        meet();
    }

    /* Bytes of a tile from shared to global memory. */
    __device__ __forceinline__ void store(const uint8_t *from, unsigned tile, unsigned first_fp,
                                          unsigned first_beam)
    {
        /* Once all have met, the bytes of the tile before have been read, and the next ones can take their
         * place. */
        if (thread == 0) bulk_wait_read<0>();
        meet();
        if (w.store_tensor) {
            if (thread == 0) {
#pragma unroll
                for (int i = 0; i < V::FPS; i++)
                    tensor_store(out_map, from + i * (V::OUT / V::FPS), static_cast<int>(tile * TIMES),
                                 static_cast<int>(first_fp) + i, static_cast<int>(first_beam));
                bulk_commit();
            }
            return;
        }
        store_bytes(from, tile, first_fp, first_beam, 0, TIMES);
    }

    /* The warpgroup's own half of a tile. */
    __device__ __forceinline__ void store_half(const uint8_t *from, unsigned tile, unsigned first_fp,
                                               unsigned first_beam) const
    {
        meet();
        if (!w.store_tensor) {
            store_bytes(from, tile, first_fp, first_beam, first_time, first_time + V::PIECE);
            return;
        }
        /* out: shape (B, F P, T), contiguous. Four lanes hold a beam, 16 times each; T is a multiple
         * of 16. */
        size_t beam_stride = static_cast<size_t>(w.F) * w.P * w.T;
        unsigned time = first_time + lane % 4 * 16, beams = min(V::BEAMS + 0u, w.B - first_beam);
        uint8_t *to = w.out + first_beam * beam_stride + static_cast<size_t>(first_fp) * w.T +
                      static_cast<size_t>(tile) * TIMES + time;
        if (tile * TIMES + time >= w.T) return;
#pragma unroll
        for (int pass = 0; pass < V::BEAMS / 32; pass++) {
            unsigned beam = br_hopper_half_beam(static_cast<unsigned>(pass), warp, lane);
            if (beam < beams)
                *reinterpret_cast<uint4 *>(to + beam * beam_stride) =
                    *reinterpret_cast<const uint4 *>(from + br_hopper_out(beam, time));
        }
    }

    /* Lanes whose numbers differ in BIT share the work of adding up LEFT counters of both, or, if that is
     * odd, do it both: each has the sums of half of them then, from counter `first` on. */
    template <int LEFT, unsigned BIT>
    __device__ __forceinline__ void halve(unsigned (&clamped)[V::COUNTERS], unsigned &first) const
    {
        bool upper = (lane & BIT) != 0;
        constexpr int HALF = LEFT % 2 == 0 ? LEFT / 2 : 0;
#pragma unroll
        for (int i = 0; i < (LEFT + 1) / 2; i++) {
            unsigned give = upper ? clamped[i] : clamped[HALF + i],
                     keep = upper ? clamped[HALF + i] : clamped[i];
            clamped[i] = keep + __shfl_xor_sync(WHOLE_WARP, give, BIT);
        }
        if (upper) first += HALF;
    }

    /* Adds what was clamped to the block's counts, of beams from `first_beam` on: eight lanes have each
     * beam. */
    __device__ __forceinline__ void count(unsigned *counts)
    {
        constexpr int N = V::COUNTERS, LEFT = N > 8 ? N / 8 : 1;
        unsigned clamped[N], first = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            clamped[i] = 2 * times - whole[i] / 16;
            whole[i] = 0;
        }
        times = 0;
        halve<N, 16>(clamped, first);
        halve<N / 2, 8>(clamped, first);
        halve<N / 4, 4>(clamped, first);
        bool mine = N >= 8 || (lane & 4) == 0; /* of 4 counters one is left after two halvings */
#pragma unroll
        for (int i = 0; i < LEFT; i++) {
            unsigned counter = first + i;
            if (mine && clamped[i] > 0)
                atomicAdd(&counts[counter / 2 * 8 + quad * 2 + counter % 2], clamped[i]);
        }
    }

    /* Multiplies half a chunk and adds it to the sums, or, without `adds`, sets them; one step is still under
     * way at its end. Where `earlier` is not NULL, arrives there once what was multiplied before is done
     * with. */
    __device__ __forceinline__ void multiply(int (&sums)[V::MT][V::BEAMS], const ring &at,
                                             const uint8_t *chunk, int half, bool adds,
                                             barrier *earlier) const
    {
        uint64_t b_of_im =
            br_wgmma_descriptor(shared_address(chunk), 16, 1024, BR_WGMMA_128) + half * 64 / 16;
        uint64_t b_of_re = b_of_im + V::BEAMS * DISHES / 16; /* descriptors count in 16 bytes */
        /* packed [MT][upper]  simd: b1 b0 <-> dish1 dish0   register: r1 r0 <-> dish3 dish2
         *   thread: t4 t3 t2 t1 t0 <-> row2 row1 row0 dish5 dish4 */
        uint4 packed[V::MT][2];
#pragma unroll
        for (int m = 0; m < V::MT; m++)
#pragma unroll
            for (int upper = 0; upper < 2; upper++)
                packed[m][upper] = *reinterpret_cast<const uint4 *>(
                    stages + at.at * V::STAGE +
                    br_hopper_field(br_hopper_time(V::MT, m, upper, lane, warp), half * 4 + quad));
        if (half == 1) {
            __syncwarp();
            if (lane == 0) barrier_arrive(&b.empty[which][at.at]);
        }
#pragma unroll
        for (int step = 0; step < 2; step++) {
            /* a_re, a_im [MT][4], operand a: see br_wgmma_s8_a */
            unsigned a_re[V::MT][4], a_im[V::MT][4];
            wgmma_wait<1>();
            if (step == 1 && earlier != nullptr && lane == 0) barrier_arrive(earlier);
#pragma unroll
            for (int m = 0; m < V::MT; m++) {
#pragma unroll
                for (int upper = 0; upper < 2; upper++)
#pragma unroll
                    for (int k4 = 0; k4 < 2; k4++) {
                        const uint4 &p = packed[m][upper];
                        unsigned word = step == 0 ? (k4 == 0 ? p.x : p.y) : (k4 == 0 ? p.z : p.w);
                        a_re[m][upper + 2 * k4] = int4x4_re16(word);
                        a_im[m][upper + 2 * k4] = int4x4_im16(word);
                    }
                wgmma_hold(a_re[m]);
                wgmma_hold(a_im[m]);
            }
            wgmma_fence();
#pragma unroll
            for (int m = 0; m < V::MT; m++)
                wgmma_s8<2 * V::BEAMS>::multiply(sums[m], a_re[m], b_of_re + step * 32 / 16,
                                                 adds || step > 0);
#pragma unroll
            for (int m = 0; m < V::MT; m++)
                wgmma_s8<2 * V::BEAMS>::multiply(sums[m], a_im[m], b_of_im + step * 32 / 16, true);
            wgmma_commit();
        }
    }

    __device__ __forceinline__ void run(unsigned *counts)
    {
        int sums[V::MT][V::BEAMS]; /* assigned as round_sums() says */
#pragma unroll
        for (int i = 0; i < V::COUNTERS; i++) whole[i] = 0;
        times = 0;
        ring at, buffer;
        unsigned before = 0, done = 0; /* tiles */
        segments<V> s;
        s.start(w);
        if (w.valid != nullptr) await_previous();
        /* Tiles of the block; whether it lacks the first half of the first one, the second half of the last
         * one. */
        const unsigned tiles = s.end - s.now;
        const bool late = s.late, early = s.early_at_end;
        if (V::HALVES && late && which == 0) done = 1;
        /* At first the one that has the earlier half multiplies alone, if there is something to multiply
         * while it rounds. */
        const unsigned follower = late ? 0 : 1;
        bool begins = tiles > 1;
        for (; s.more(); before += s.count, s.next(w), buffer.advance(w.buffers)) {
            unsigned fp = s.group / w.beam_tiles * V::FPS, beam_tile = s.group % w.beam_tiles;
            const uint8_t *my_weights = weights + buffer.at * w.chunks * V::WEIGHTS;
            unsigned first = s.first(before, which), limit = s.limit(which);
            /* scales: shape (weight_rows, beam_tiles, FPS BEAMS), contiguous; placed when they are needed */
            float scale = 0;
            if (first < limit && thread < V::FPS * V::BEAMS)
                scale = w.scales[s.row(w) * (V::FPS * V::BEAMS) + thread];
            if (first >= limit) /* none of the tiles is this warpgroup's: it need not hold the weights */
                for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
                    barrier_wait(&b.weights_full[buffer.at][chunk], buffer.phase);
                    if (lane == 0) barrier_arrive(&b.weights_empty[buffer.at][chunk]);
                }
            for (unsigned k = first; k < limit; k += V::EVERY, done++) {
                bool fresh = k == first, last = k + V::EVERY >= limit;
                unsigned tile = s.tile + k;
                unsigned live = find_live(
                    tile * V::TILE + first_time + br_hopper_time(V::MT, 0, 0, lane, warp), fp / w.P);
                uint8_t *to = out + done % 2 * V::OUT;
                if (V::PAIR && fresh) place_scales(scale);
                if (V::HALVES && begins && which == follower) asm volatile("bar.sync 7, 256;\n" ::: "memory");
#pragma unroll 1
                for (unsigned chunk = 0; chunk < w.chunks; chunk++, at.advance(w.stages)) {
                    barrier_wait(&b.full[which][at.at], at.phase);
                    if (fresh) barrier_wait(&b.weights_full[buffer.at][chunk], buffer.phase);
                    const uint8_t *here = my_weights + chunk * V::WEIGHTS;
                    multiply(sums, at, here, 0, chunk > 0,
                             last && chunk > 0 ? &b.weights_empty[buffer.at][chunk - 1] : nullptr);
                    if (V::PAIR) {
                        wgmma_wait<0>();
                        round_sums(sums, scales, live, to);
                    }
                    multiply(sums, at, here, 1, !V::PAIR, nullptr);
                }
                if (V::HALVES && begins && which != follower)
                    asm volatile("bar.arrive 7, 256;\n" ::: "memory");
                begins = false;
                if (!V::PAIR && fresh) place_scales(scale);
                /* Whether the other warpgroup has its half of this tile. */
                bool both = !(which == 1 && done == 0 && late) && !(which == 0 && done + 1 == tiles && early);
                /* After the last tile nothing is left to multiply meanwhile. */
                bool wait_later = which == 1 && done + 1 == tiles;
                if (V::HALVES && !wait_later) await_rounding(done, both);
                wgmma_wait<0>();
                if constexpr (END == ending::NIBBLES) {
                    round_sums(sums, scales + (V::FPS - 1) * V::BEAMS, live, to + V::OUT - V::OUT / V::FPS);
                    publish_shared();
                } else {
                    store_end<END>(*this, piece_of_sums<V>{sums, scales, live, fp,
                                                           static_cast<size_t>(tile) * V::TILE + first_time +
                                                               br_hopper_time(V::MT, 0, 0, lane, warp),
                                                           beam_tile * V::BEAMS});
                }
                if (V::HALVES && wait_later) await_rounding(done, both);
                if constexpr (END == ending::NIBBLES) {
                    if (V::HALVES && !both)
                        store_half(to, tile, fp, beam_tile * V::BEAMS);
                    else if (!V::HALVES || which == 1)
                        store(to, tile, fp, beam_tile * V::BEAMS);
                }
                if (V::HALVES) allow_rounding(done, both, tiles);
                if (last && lane == 0) barrier_arrive(&b.weights_empty[buffer.at][w.chunks - 1]);
            }
            if (END != ending::POWERS && w.beam_tiles > 1) count(counts + beam_tile * V::BEAMS);
        }
        if (END != ending::POWERS && w.beam_tiles == 1) count(counts);
        if (thread == 0) bulk_wait_read<0>();
    }
};

template <class V, ending END>
__global__ void __launch_bounds__(V::THREADS, 1)
    beamform(const work w, const order o, const __grid_constant__ CUtensorMap field,
             const __grid_constant__ CUtensorMap out_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t memory[];
    const places p = places_of<V>(w.chunks, w.buffers, w.stages, w.beam_tiles);
    barriers &b = *reinterpret_cast<barriers *>(memory + p.barriers);
    float *scales = reinterpret_cast<float *>(memory + p.scales);
    unsigned *counts = reinterpret_cast<unsigned *>(memory + p.counts);
    unsigned group = __shfl_sync(WHOLE_WARP, threadIdx.x / 128, 0), warp = threadIdx.x / 32 % 4;

    const order_seen seen(o, group == V::CONSUMERS && threadIdx.x % 32 == 0);
    if (group == V::CONSUMERS && threadIdx.x % 32 == 0) {
        /* To start a barrier takes 40 cycles: only those that are used. */
        if (warp < V::CONSUMERS) {
#pragma unroll 1
            for (unsigned j = 0; j < w.stages; j++) {
                barrier_start(&b.full[warp][j], 1);
                barrier_start(&b.empty[warp][j], 4);
            }
        } else if (warp == V::CONSUMERS) {
#pragma unroll 1
            for (unsigned i = 0; i < w.buffers; i++)
#pragma unroll 1
                for (unsigned j = 0; j < w.chunks; j++) {
                    barrier_start(&b.weights_full[i][j], 1);
                    barrier_start(&b.weights_empty[i][j], 4 * V::CONSUMERS);
                }
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        if (warp == V::CONSUMERS) tensor_prefetch(&field);
    }
    for (unsigned i = threadIdx.x; i < w.beam_tiles * V::BEAMS; i += V::THREADS) counts[i] = 0;
    __syncthreads();

    if (group == V::CONSUMERS) {
        registers_fewer<40>();
        if (threadIdx.x % 32 == 0) {
            if (warp < V::CONSUMERS)
                field_loads<V>{w, &field, warp}.run(memory + p.stages + warp * w.stages * V::STAGE, b, o,
                                                    seen);
            else if (warp == V::CONSUMERS)
                load_weights<V>(w, memory + p.weights, b, o, seen);
        }
    } else {
        registers_more<V::REGISTERS>();
        consumer<V, END> c = {{w,
                               threadIdx.x % 128,
                               threadIdx.x % 32,
                               warp,
                               threadIdx.x % 4,
                               V::HALVES ? group * V::PIECE : 0,
                               {},
                               0},
                              &out_map,
                              memory + p.stages + group * w.stages * V::STAGE,
                              memory + p.out + (V::HALVES ? 0 : group * 2 * V::OUT),
                              memory + p.weights,
                              scales + group * V::FPS * V::BEAMS,
                              b,
                              group};
        c.run(counts);
        /* All that multiply have counted. */
        asm volatile("bar.sync 4, %0;\n" ::"n"(128 * V::CONSUMERS) : "memory");
        unsigned sum = 0;
        for (unsigned beam = threadIdx.x; beam < w.beam_tiles * V::BEAMS; beam += 128 * V::CONSUMERS) {
            unsigned clamped = counts[beam];
            if (clamped > 0) atomicAdd(&w.clamped[beam], static_cast<unsigned long long>(clamped));
            sum += clamped;
        }
        sum = __reduce_add_sync(WHOLE_WARP, sum);
        if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(w.total, static_cast<unsigned long long>(sum));
        if (threadIdx.x == 0) end_in_order(o);
    }
#endif
}

} // namespace beamring::baseband::hopper

#endif
