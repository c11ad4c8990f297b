/* tile.cuh - the quantizer for blocks of 64, 128 or 256 steps: a block of threads takes 64 beams of a
 * channel, a warp 8 of them.
 *
 * All of the tile is copied to shared memory, in lines of 128 bytes, and loaded transposed into the warps'
 * registers (kernels/quantize/gpu/layout.h): the input is read once. */
#ifndef BEAMRING_KERNELS_QUANTIZE_GPU_TILE_CUH
#define BEAMRING_KERNELS_QUANTIZE_GPU_TILE_CUH

#include "kernels/quantize/gpu/rows.cuh"
#include "kernels/quantize/gpu/work.cuh"

namespace beamring
{

namespace quantize
{

constexpr unsigned TILE_BEAMS = 64;

template <int STEPS> struct tile {
    uint4 chunks[STEPS * 8]; /* [step][br_quantize_chunk]: 8 beams each */
    uint8_t valid[2][STEPS]; /* 0xff or 0; of this tile and of the next */
};

/* Four matrices of 8 rows of 16 bytes from shared memory, transposed; lane 8 m + i gives the address of row i
 * of matrix m.
 *   to[4]  simd: row0  register: m1 m0  thread: t4..t0 <-> k2 k1 k0 row2 row1   (16 bits; k: the column) */
__device__ __forceinline__ void load_transposed(unsigned *to, unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

/* 16 bytes to shared memory, of which the first `bytes` (16 or 0) come from `from` and the others are 0. */
__device__ __forceinline__ void copy_16(unsigned to, const void *from, unsigned bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
}

/* Where a block's tiles are: tile `number` of all channels', and its place. Advances without dividing. */
struct position {
    unsigned f, beam_tile, step_f, step_tile;

    __device__ __forceinline__ position(const work &w)
        : f(blockIdx.x / w.beam_tiles), beam_tile(blockIdx.x % w.beam_tiles),
          step_f(gridDim.x / w.beam_tiles), step_tile(gridDim.x % w.beam_tiles)
    {
    }
    __device__ __forceinline__ void advance(const work &w)
    {
        f += step_f;
        beam_tile += step_tile;
        if (beam_tile >= w.beam_tiles) beam_tile -= w.beam_tiles, f++;
    }
};

/* Starts the copies of a tile. Missing samples, and beams beyond the last, become 0. valid: [STEPS]. */
template <int BITS, int STEPS>
__device__ __forceinline__ void load(tile<STEPS> &s, const work &w, const position &at, const uint8_t *valid)
{
    constexpr unsigned ROWS = THREADS / 8; /* at once: 8 threads copy the 128 bytes of a step */
    const unsigned first = threadIdx.x / 8 % ROWS, chunk = threadIdx.x % 8,
                   first_beam = at.beam_tile * TILE_BEAMS + 8 * chunk;
    const bool exist = first_beam < w.B;
    /* in: shape (F, stride, B), contiguous; after: shape (STEPS), stride B */
    const uint16_t *in = exist ? w.in + (at.f * w.stride + first) * w.B + first_beam : w.in;
    const size_t stride = exist ? ROWS * w.B : 0;
    const unsigned to = shared_address(s.chunks + first * 8 + br_quantize_chunk(BITS, STEPS, first, chunk));
#pragma unroll
    for (unsigned t = 0; t < STEPS; t += ROWS) {
        /* The chunk's place is linear in the step's bits: the part of t is a constant. */
        const unsigned place = (to ^ br_quantize_chunk(BITS, STEPS, t, 0) * 16) + t * 128;
        bool inside = exist && (!w.valid || valid[t + first]);
        copy_16(place, in, inside ? 16 : 0);
        in += stride;
    }
}

/* A persistent kernel: a block takes every gridDim.x'th tile, and copies the next one while it makes the
 * levels of this one. */
template <int BITS, int STEPS, bool SLOW>
__global__ void __launch_bounds__(THREADS, STEPS == 256   ? 2
                                           : STEPS == 128 ? 3
                                                          : 4) rows(const work w)
{
    extern __shared__ uint4 memory[]; /* by 128 bytes, as the places of chunks require */
    tile<STEPS> &s = *reinterpret_cast<tile<STEPS> *>(memory);
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned valid_steps = STEPS, clamped = 0, half = 0;
    position at(w), next(w);

    /* Whether this thread's step of tile `next` is there (not 0): asked for a tile before it is needed. */
    auto ask = [&]() -> unsigned {
        if (!w.valid || next.f >= w.F || threadIdx.x >= STEPS) return 0;
        return w.valid[static_cast<size_t>(next.f) * STEPS + threadIdx.x];
    };
    unsigned there = ask();

    /* Starts loading tile `next` and counts its valid steps; all threads have read the one before when this
     * returns. */
    auto begin = [&]() {
        unsigned steps = STEPS;
        if (w.valid) {
            if (threadIdx.x < STEPS) s.valid[half][threadIdx.x] = there ? 0xff : 0;
            steps = static_cast<unsigned>(__syncthreads_count(there != 0));
        } else {
            __syncthreads();
        }
        if (next.f < w.F) load<BITS, STEPS>(s, w, next, s.valid[half]);
        copy_async_commit();
        next.advance(w);
        there = ask();
        return steps;
    };

    /* Lane 8 m + i of a load gives row i of matrix m, the steps of register r + m. The bits of r
     * are separate from theirs and do not move the chunk. */
    const unsigned first = br_quantize_step(BITS, STEPS, lane / 8, lane % 8 / 2, lane % 2);
    const unsigned from = shared_address(s.chunks + first * 8 + br_quantize_chunk(BITS, STEPS, first, warp));

    for (valid_steps = begin(); at.f < w.F; at.advance(w)) {
        copy_async_wait<0>();
        __syncthreads();
        unsigned x[STEPS / 8]; /* see layout.h */
#pragma unroll
        for (unsigned r = 0; r < STEPS / 8; r += 4)
            load_transposed(x + r, from + br_quantize_step(BITS, STEPS, r, 0, 0) * 128);
        half ^= 1;
        unsigned steps = begin();

        /* out: shape (B, F, row), contiguous; after: shape (row). side: shape (B, F), contiguous */
        unsigned beam = at.beam_tile * TILE_BEAMS + 8 * warp + lane / 4;
        if (beam < w.B) { /* the same in the whole warp */
            size_t row = static_cast<size_t>(beam) * w.F + at.f;
            uint8_t *out = w.out + row * (STEPS * BITS / 8);
            /* state: shape (F, B), contiguous; steps: shape (F) */
            br_follow *state = SLOW ? state_at(w.slow, at.f, w.B, beam) : nullptr;
            const br_follow_step *step = SLOW ? w.slow.steps + at.f : nullptr;
            if (valid_steps == STEPS)
                quantize_rows<BITS, STEPS, false, SLOW>(x, make_rule(w.levels_rms, STEPS), nullptr, out,
                                                        w.side + row, state, step, clamped);
            else
                quantize_rows<BITS, STEPS, true, SLOW>(x, make_rule(w.levels_rms, valid_steps),
                                                       s.valid[half ^ 1], out, w.side + row, state, step,
                                                       clamped);
        }
        valid_steps = steps;
    }
    clamped = __reduce_add_sync(WHOLE_WARP, clamped);
    if (lane == 0 && clamped > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(clamped));
}

} // namespace quantize

} // namespace beamring

#endif
