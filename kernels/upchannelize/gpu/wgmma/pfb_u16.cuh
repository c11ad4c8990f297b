/* pfb_u16.cuh - the filterbank for U up to 16 on Hopper: taps and transform as one band matrix, whose
 * products run while the warpgroup does the rest of the work.
 *
 * As in gpu/mma/pfb_u16.cuh, but samples are rows of the product, and the coefficients its columns: a chunk
 * of 16 steps is operand a (64 samples by 16 times, from registers), multiplied at once with the coefficients
 * of all outputs that it contributes to. The accumulators of these LAGS chunks of output stay in registers,
 * in a ring: chunk c has block c % LAGS of the columns. No sum ever moves: the matrix in shared memory has
 * the lags 0, 1, ... LAGS - 1 and again 0, 1, ..., and what begins within it is the matrix for another
 * position of the ring.
 *
 * Input and output go through shared memory (smem_io.cuh), CHUNKS chunks in each iteration. While a chunk's
 * products are under way, the chunk before it is quantized. An iteration's levels are stored in the next one,
 * so that there is one barrier an iteration. zones.cuh says which block has which samples and times. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U16_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U16_CUH

#include "kernels/upchannelize/gpu/wgmma/smem_io.cuh"

namespace
{

struct u16_shape {
    static constexpr int LAGS = BR_PFB_LAGS, BLOCKS = 4;
    static constexpr int CHUNKS = LAGS;                 /* of an iteration: once around the ring */
    static constexpr int AHEAD = 2;                     /* iterations whose input is staged before theirs */
    static constexpr int N = LAGS * 16;                 /* columns of a product */
    static constexpr int COLUMNS = (2 * LAGS - 1) * 16; /* columns of the matrix */
    static constexpr int STEPS = CHUNKS * BR_PFB_CHUNK; /* input steps of an iteration */
    static constexpr int STAGE = STEPS * BR_PFB_SPAN;   /* bytes of an iteration's field, and of its levels */
    static constexpr int FIELD = COLUMNS * BR_PFB_CHUNK * 2, LEVELS = FIELD + (AHEAD + 1) * STAGE,
                         SHARED = LEVELS + 2 * STAGE;
};

/* A thread's part of a block, which has chunks [unit, end) of the 64 samples from `base`. Iterations are
 * named by their first step, counted from the start of the call. MISSING: outputs may be missing. shared
 * [u16_shape::SHARED bytes]: matrix, field [iteration % (AHEAD + 1)][time][SPAN], levels [iteration %
 * 2][chunk][u, then U - 1 - u, of 8 pairs][SPAN] */
template <bool MISSING> struct u16_columns {
    using s = u16_shape;
    static constexpr int LAGS = s::LAGS, CHUNKS = s::CHUNKS, SPAN = BR_PFB_SPAN, STEPS = s::STEPS;

    const tensor_work &w;
    int base, unit, end;
    unsigned thread;
    int lane, warp, q;   /* q: lane % 4 */
    uint64_t b;          /* descriptor of the matrix */
    int half, per_chunk; /* U / 2; output steps of a chunk */
    /* A thread's part of an iteration: 16 bytes of the times thread / 4 + 32 i, and of its levels' rows. A
     * lane's part in ldmatrix: of times 4 3 2 1 0, in stmatrix: of two chunks' rows of levels. */
    int row;
    unsigned part_at, transposed_at;
    /* Iterations that lie wholly in this call are staged from `next`; else each time is looked up. Times
     * before the history or after the call have coefficients of 0 in every row that is stored. next: e,
     * shape (T, row) -> after the iteration's and the thread's offset */
    int before_first, step_end, step; /* step: of the iteration at hand */
    const uint8_t *next;
    unsigned wide_steps;
    unsigned slot; /* of the iteration at hand */
    /* what accumulators begin with, and scales of u and U - 1 - u, of pairs 2 q and 2 q + 1   simd: pair 0 */
    uint4 start;
    unsigned low_scale, high_scale;
    /* out: shape (T/U, F, U, X), contiguous -> after the iteration's and the thread's offset: 16 bytes of
     * the output step and fine channel of row thread / 4 % 16 of its levels; two chunks later 32 width
     * further */
    int f;
    uint8_t *out;
    ptrdiff_t two_chunks;
    int plain_from, plain_to; /* iterations of which all outputs are wanted, and wide stores are possible */
    unsigned beyond;          /* masks of clamped values, added up */
    /* sums [re, im]   simd: pair 0   register: ring, then cos and sin, sample 0
     *                 thread: sample 3 2 1, pair 2 1 */
    unsigned sums[2][LAGS * 4];
    /* Which of an iteration's outputs are missing, a bit each: of the iteration before, until that at hand
     * ends. */
    unsigned missing;
    /* Place, counted from the field, of this iteration's levels; those of the one before are in the other
     * half. */
    unsigned levels;

    /* ---- input ---- */

    __device__ __forceinline__ void stage(unsigned to_slot, int staged)
    {
        unsigned to = part_at + to_slot * s::STAGE;
        if (staged >= step_end) {
            /* nothing is left */
        } else if (static_cast<unsigned>(staged) < wide_steps) {
#pragma unroll
            for (int i = 0; i < CHUNKS / 2; i++) stage_16(to + i * 32 * SPAN, next + i * (32 * w.row));
        } else {
            const int own = base + static_cast<int>(threadIdx.x % 4 * 16);
#pragma unroll 1
            for (int i = 0; i < CHUNKS / 2; i++) {
                int t = max(min(staged + static_cast<int>(threadIdx.x / 4) + 32 * i, w.steps - 1), -w.kept);
                const uint8_t *from = field_row(w, t) + own;
                if (w.wide_in || t < 0)
                    stage_16(to + i * 32 * SPAN, from);
                else
                    stage_16_bytes(to + i * 32 * SPAN, from);
            }
        }
        beamring::copy_async_commit();
        next += STEPS * w.row;
    }

    /* ---- products ---- */

    /* Starting values of the accumulators of one block of the ring. */
    __device__ __forceinline__ void begin_block(int block)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            sums[0][block * 4 + i] = start.x;
            sums[0][block * 4 + 2 + i] = start.y;
            sums[1][block * 4 + i] = start.z;
            sums[1][block * 4 + 2 + i] = start.w;
        }
    }
    /* a [re, im] of chunk `chunk`, whose bytes are in two of four words.
     *   simd: time 0   register: time 3, sample 0   thread: sample 3 2 1, time 2 1 */
    static __device__ __forceinline__ void unpack_chunk(unsigned (&a)[2][4], const unsigned (&words)[4],
                                                        int chunk)
    {
#pragma unroll
        for (int late = 0; late < 2; late++) {
            unsigned both[2][2];
            unpack_pairs(both, words[chunk % 2 * 2 + late]);
#pragma unroll
            for (int i = 0; i < 4; i++) a[i % 2][late * 2 + i / 2] = both[i / 2][i % 2];
        }
    }
    /* Starts the products of a chunk: block `chunk` of the ring has lag 0. */
    __device__ __forceinline__ void multiply(unsigned (&a)[2][4], int chunk)
    {
        constexpr int BLOCK = 16 * 2 * BR_PFB_CHUNK / 16; /* of the matrix, in units of the descriptor */
#pragma unroll
        for (int part = 0; part < 2; part++) {
            beamring::wgmma_hold(a[part]);
            beamring::wgmma_hold(sums[part]);
        }
        beamring::wgmma_fence();
#pragma unroll
        for (int part = 0; part < 2; part++)
            product<s::N>::multiply(sums[part], a[part],
                                    b + br_pfb_lag_block(LAGS, static_cast<unsigned>(chunk)) * BLOCK);
        beamring::wgmma_commit();
    }
    /* Waits for the products of a chunk and takes the output that is complete out of the ring. */
    __device__ __forceinline__ void take_block(spectrum &low, spectrum &high, int chunk)
    {
        beamring::wgmma_wait<0>();
#pragma unroll
        for (int part = 0; part < 2; part++) beamring::wgmma_hold(sums[part]);
        join_sums(low, high, &sums[0][chunk * 4], &sums[0][chunk * 4 + 2], &sums[1][chunk * 4],
                  &sums[1][chunk * 4 + 2]);
        begin_block(chunk);
    }

    /* ---- output ---- */

    __device__ __forceinline__ bool is_plain(int iteration) const
    {
        return iteration >= plain_from && iteration <= plain_to;
    }
    /* Whether an output step is one of this block's. */
    __device__ __forceinline__ bool is_here(int chunk, int mine) const
    {
        return chunk >= unit && chunk < end && mine >= w.first && mine < w.last;
    }
    /* For one output of an iteration: each lane looks one up. */
    static_assert(STEPS / 2 <= 32, "as many bits as outputs");
    __device__ __forceinline__ bool is_missing(int iteration) const
    {
        int log_U = 31 - __clz(w.U);
        asm volatile("" : "+r"(log_U));
        const int of = static_cast<int>(threadIdx.x) % 32, mine = (iteration >> log_U) + of;
        return read_missing(w, static_cast<size_t>(mine - w.first) * w.F + static_cast<size_t>(f),
                            of < STEPS >> log_U && mine >= w.first && mine < w.last);
    }
    __device__ __forceinline__ bool is_kept(int of) const
    {
        return !MISSING || (missing >> of & 1) == 0;
    }
    __device__ __forceinline__ void store_plain(const uint4 (&v)[CHUNKS / 2])
    {
        int log_U = 31 - __clz(w.U), own = static_cast<int>(threadIdx.x);
        if (MISSING) asm volatile("" : "+r"(log_U), "+r"(own)); /* not to take registers elsewhere */
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++, out += two_chunks)
            *reinterpret_cast<uint4 *>(out) = field_bytes(
                is_kept(((own / 64 + 2 * i) * BR_PFB_CHUNK >> log_U) + (own / 4 % 8 * 2 >> log_U)))(v[i]);
    }
    /* Stores any iteration whose levels are ready. It must not take registers from other code. */
    __device__ __forceinline__ void store_part(int iteration, unsigned levels_at)
    {
        int log_U = 31 - __clz(w.U);
        unsigned own = threadIdx.x;
        asm volatile("" : "+r"(log_U), "+r"(own));
        const int chunk_0 = (iteration + (w.phase << log_U)) / BR_PFB_CHUNK;
#pragma unroll 1
        for (int i = 0; i < CHUNKS / 2; i++, out += two_chunks) {
            const int chunk = static_cast<int>(own / 64) + 2 * i,
                      of = (chunk * BR_PFB_CHUNK >> log_U) + static_cast<int>(own / 4 % 8 * 2 >> log_U);
            if (is_here(chunk_0 + chunk, (iteration >> log_U) + of))
                store_16(w, out, field_bytes(is_kept(of))(load_shared(levels_at + i * 32 * SPAN)));
        }
    }
    /* The bytes that a thread stores of the iteration whose levels are in the other half. */
    __device__ __forceinline__ void load_levels(uint4 (&v)[CHUNKS / 2]) const
    {
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++)
            v[i] = load_shared(part_at + (both_levels() - levels) + i * 32 * SPAN);
    }
    static __device__ __forceinline__ unsigned both_levels()
    {
        return 2 * (s::LEVELS - s::FIELD) + s::STAGE;
    }
    /* Adds the clamped values of an iteration, as far as its outputs are stored and not missing. */
    __device__ __forceinline__ void count(const unsigned (&masks)[CHUNKS], bool plain)
    {
        unsigned sum = beyond;
        if (plain && missing == 0) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) sum += masks[chunk];
        } else {
            int log_U = 31 - __clz(w.U);
            asm volatile("" : "+r"(log_U));
            const int chunk_0 = (step + (w.phase << log_U)) / BR_PFB_CHUNK;
#pragma unroll
            for (int i = 0; i < 2 * CHUNKS; i++) {
                const int of = (i / 2 * BR_PFB_CHUNK >> log_U) + ((2 * q + i % 2) * 2 >> log_U);
                mask_counts counts = count_masks(masks[i / 2]);
                /* back to masks: of which `beyond` has sums */
                if (is_here(chunk_0 + i / 2, (step >> log_U) + of) && is_kept(of))
                    sum += i % 2 ? counts.upper * 0xffff0000u : counts.lower * 0x0000ffffu;
            }
        }
        beyond = sum;
    }

    /* ---- the loop over time ---- */

    /* The first iterations' input and the matrix. */
    __device__ __forceinline__ void load_first(uint4 *shared)
    {
        thread = threadIdx.x;
        lane = static_cast<int>(thread % 32);
        warp = static_cast<int>(thread / 32);
        q = lane % 4;
        b = br_wgmma_descriptor(static_cast<unsigned>(__cvta_generic_to_shared(shared)), 128, 256,
                                BR_WGMMA_PLAIN);
        half = w.U / 2;
        per_chunk = BR_PFB_CHUNK / w.U;
        row = static_cast<int>(thread / 4);
        part_at = static_cast<unsigned>(__cvta_generic_to_shared(shared)) + s::FIELD;
        transposed_at = part_at + br_pfb_row_place(static_cast<unsigned>(lane), static_cast<unsigned>(warp));
        part_at += br_pfb_row_place(static_cast<unsigned>(row), thread % 4);
        /* they are not to be computed anew for each iteration */
        asm volatile("" : "+r"(part_at), "+r"(transposed_at));
        before_first = w.phase * w.U;
        step_end = end * BR_PFB_CHUNK - before_first;
        step = (unit - (LAGS - 1)) * BR_PFB_CHUNK - before_first;
        next = w.e + (static_cast<ptrdiff_t>(step) + row) * static_cast<ptrdiff_t>(w.row) +
               static_cast<ptrdiff_t>(base) + static_cast<ptrdiff_t>(thread % 4 * 16);
        wide_steps = w.wide_in ? static_cast<unsigned>(max(w.steps - STEPS + 1, 0)) : 0;
#pragma unroll 1
        for (int i = 0; i < s::AHEAD; i++) stage(static_cast<unsigned>(i), step + i * STEPS);
        slot = 0;
        const uint4 *matrices = w.matrices;
        for (int i = static_cast<int>(thread); i < s::COLUMNS * 2; i += 128) shared[i] = __ldg(matrices + i);
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();
    }
    /* The lane's tables, where its output goes, and the accumulators. */
    __device__ __forceinline__ void prepare()
    {
        start = __ldg(w.starts + q);
        const int u0 = 2 * q % half, u1 = (2 * q + 1) % half;
        low_scale = __byte_perm(__ldg(w.rules + u0).x, __ldg(w.rules + u1).x, 0x5410) ^ 0x80008000u;
        high_scale = __byte_perm(__ldg(w.rules + w.U - 1 - u0).x, __ldg(w.rules + w.U - 1 - u1).x, 0x5410) ^
                     0x80008000u;
        const int pair = row % 8, later = pair / half, low_u = pair % half,
                  u = row / 8 % 2 ? w.U - 1 - low_u : low_u;
        f = base / static_cast<int>(w.X);
        const int x = base - f * static_cast<int>(w.X);
        out = w.out + (static_cast<ptrdiff_t>(step) + row / 16 * BR_PFB_CHUNK + later * w.U) * w.width +
              (static_cast<ptrdiff_t>(f * w.U + u) * static_cast<ptrdiff_t>(w.X) + x +
               static_cast<ptrdiff_t>(thread % 4 * 16));
        two_chunks = static_cast<ptrdiff_t>(w.width) * (2 * BR_PFB_CHUNK);
        plain_from = max(unit, (w.phase + w.first + per_chunk - 1) / per_chunk) * BR_PFB_CHUNK - before_first;
        plain_to = w.wide_out
                       ? (min(end, (w.phase + w.last) / per_chunk) - CHUNKS) * BR_PFB_CHUNK - before_first
                       : plain_from - 1;
        beyond = 0;
#pragma unroll
        for (int i = 0; i < LAGS; i++) begin_block(i);
        missing = 0;
        levels = s::LEVELS - s::FIELD;
    }
    /* The products of an iteration; meanwhile the chunk before each is quantized, and `v` stored where it is
     * what the iteration before has made. masks: of clamped values. */
    __device__ __forceinline__ void filter(unsigned (&masks)[CHUNKS], const uint4 (&v)[CHUNKS / 2],
                                           bool plain_before)
    {
        const unsigned from = transposed_at + slot * s::STAGE, to = transposed_at + levels;
        unsigned words[4], low_word[2], high_word[2];
        spectrum low, high; /* of the chunk before */
        auto quantize = [&](int chunk) {
            masks[chunk] = 0;
            low_word[chunk % 2] = quantize_pair(low, low_scale, masks[chunk]);
            high_word[chunk % 2] = quantize_pair(high, high_scale, masks[chunk]);
            if (chunk % 2 != 0)
                store_transposed(to + (chunk - 1) * BR_PFB_CHUNK * SPAN, low_word[0], high_word[0],
                                 low_word[1], high_word[1]);
        };
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            unsigned a[2][4];
            if (chunk % 2 == 0)
                load_transposed(words[0], words[1], words[2], words[3], from + chunk * BR_PFB_CHUNK * SPAN);
            unpack_chunk(a, words, chunk);
            multiply(a, chunk);
            if (chunk > 0)
                quantize(chunk - 1);
            else if (plain_before)
                store_plain(v);
            take_block(low, high, chunk);
        }
        quantize(CHUNKS - 1);
    }
    __device__ __forceinline__ void run(uint4 *shared)
    {
        load_first(shared);
        prepare();
        bool missing_next = MISSING && is_missing(step); /* this lane's, of the next iteration */
#pragma unroll 1
        for (; step < step_end; step += STEPS) {
            beamring::copy_async_wait<s::AHEAD - 1>();
            __syncthreads();
            stage(slot < 1 ? s::AHEAD : slot - 1, step + s::AHEAD * STEPS);
            const bool plain = is_plain(step), plain_before = is_plain(step - STEPS);
            uint4 v[CHUNKS / 2];
            if (plain_before)
                load_levels(v);
            else if (step + before_first > unit * BR_PFB_CHUNK)
                store_part(step - STEPS, part_at + (both_levels() - levels));
            unsigned masks[CHUNKS];
            filter(masks, v, plain_before);
            if (MISSING) { /* asked for no later, or the next iteration would wait for it */
                missing = __ballot_sync(beamring::WHOLE_WARP, missing_next);
                missing_next = is_missing(step + STEPS);
            }
            count(masks, plain);
            slot = slot == s::AHEAD ? 0 : slot + 1;
            levels = both_levels() - levels;
            /* before there are too many of them */
            if ((step & (1024 * BR_PFB_CHUNK - 1)) < STEPS) add_masks(w, beyond);
        }
        add_masks(w, beyond);
        __syncthreads();
        if (is_plain(step - STEPS)) {
            uint4 v[CHUNKS / 2];
            load_levels(v);
            store_plain(v);
        } else {
            store_part(step - STEPS, part_at + (both_levels() - levels));
        }
    }
};

template <bool MISSING>
__device__ __forceinline__ void filter_u16(const tensor_work &w, uint4 *shared, int base, int unit, int end)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    u16_columns<MISSING> columns = {w, base, unit, end};
    columns.run(shared);
#endif
}

} // namespace

#endif
