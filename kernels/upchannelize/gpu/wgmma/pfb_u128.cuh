/* pfb_u128.cuh - the filterbank for U = 128 and up to 4 taps on Hopper: taps by multiplications of two times
 * at once (float16 pairs), the transform by products of whole warpgroups.
 *
 * With j the time within a block, z[j] = sum_m (-1)^m W[m U + j] E[(t - M + 1 + m) U + j] and psi the phase
 * of fine channel u at j,
 *
 *   X[u] = sum_j e^{i psi} z[j]
 *
 * The products are C = sum_j cos(psi) z[j] and S = sum_j sin(psi) z[j] of even and of odd times, for U/4 of
 * the phases: e^{i psi} of channel U/2 - 1 - u is (-1)^j times the conjugate of that of u, so that their sums
 * and differences make X of four channels of each (gpu/convert.cuh).
 *
 * A warpgroup makes one output step in each iteration. The field's bytes (smem_io.cuh) are in a ring of
 * windows (U times each) in shared memory, from which each iteration takes its own and the three before it:
 * nothing else is carried from one iteration to the next. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U128_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U128_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/upchannelize/gpu/wgmma/smem_io.cuh"

namespace
{

/* GROUPS warpgroups of a block. */
template <int U_, int GROUPS_> struct u128_shape {
    static constexpr int U = U_, GROUPS = GROUPS_, THREADS = 128 * GROUPS;
    static constexpr int N = U / 2;                     /* columns */
    static constexpr int CHUNKS = U / 16;               /* of 16 times: of even ones, then of odd ones */
    static constexpr int WINDOWS = BR_PFB_TAPS;         /* of an output step */
    static constexpr int RING = WINDOWS + 1;            /* the next step's is on its way */
    static constexpr int WINDOW = U * BR_PFB_SPAN;      /* bytes */
    static constexpr int MATRIX = N * BR_PFB_CHUNK * 2; /* bytes, of a chunk */
    /* Bytes of tables and, of each warpgroup, of field and levels in shared memory. Tables: matrices; taps
     * and starts [8 times][q]; scales [8 pairs][q]: low, high, nothing */
    static constexpr int TAPS = CHUNKS * MATRIX, STARTS = TAPS + U / 8 * 64, SCALES = STARTS + U / 8 * 64,
                         FIELD = SCALES + U / 16 * 64, LEVELS = RING * WINDOW, OWN = LEVELS + WINDOW,
                         BARRIERS = FIELD + GROUPS * OWN, SHARED = BARRIERS + GROUPS * 8;
    static_assert(FIELD % 512 == 0 && WINDOW % 512 == 0, "what is swizzled begins at a multiple of 512");
};

/* The barrier of a warpgroup, the `group`-th of its block. */
__device__ __forceinline__ void group_barrier(int group)
{
    asm volatile("bar.sync %0, 128;\n" ::"r"(group + 1) : "memory");
}

/* A thread's part of a warpgroup, which has 64 samples of the row from `base` and output steps [first, end).
 * MAPPED: all of the call is aligned, and the tensor memory accelerator copies windows and levels, as
 * `field_map` and `levels_map` say (mapped_work). MISSING: outputs may be missing. */
template <class S, bool MAPPED, bool MISSING> struct u128_filter {
    static constexpr int U = S::U, BEFORE = BR_PFB_TAPS - 1, SPAN = BR_PFB_SPAN;

    const tensor_work &w;
    const CUtensorMap *field_map, *levels_map;
    uint4 *shared;
    int lane, thread, group; /* thread: of the warpgroup */
    unsigned q, warp;        /* q: lane % 4 */
    beamring::barrier *full;
    int base, first, end;
    unsigned field_at, levels_at, taps_at; /* addresses of shared memory */
    uint64_t b;                            /* descriptor of the matrices */
    /* A thread's part of a window: 16 bytes of rows thread / 4 + 32 i. Row r has br_pfb_u128_time(r), which
     * is 2 r of the first ones and a sum of those of thread / 4 and of 32 i. */
    unsigned row, time, stage_to;
    size_t own;
    unsigned head; /* place in the ring of the window at hand */
    /* e: shape (T, row) -> after the thread's offset: of the window that is staged next */
    const uint8_t *next;
    unsigned load_from; /* of an operand of ldmatrix: time 2 1 0 */
    size_t f, x;        /* channel, and sample in it, of the warpgroup's first sample */
    /* out: shape (T/U, F, U, X), contiguous
     * -> after the output step's and the thread's offset: 16 bytes of u = thread / 4 + 32 i */
    uint8_t *out;
    unsigned beyond; /* masks of clamped values, added up */
    /* sums [even, odd][re, im]   simd: pair 0   register: cos and sin, pair 4 3, sample 0
     *                            thread: sample 3 2 1, pair 2 1 */
    unsigned sums[2][2][S::N / 4];

    __device__ __forceinline__ uint4 *own_field() const { return shared + (S::FIELD + group * S::OWN) / 16; }

    /* ---- input ---- */

    static __device__ __forceinline__ unsigned slot_of(unsigned slot)
    {
        return slot >= S::RING ? slot - S::RING : slot;
    }
    /* The time of a thread's i-th row after its first. */
    static __device__ __forceinline__ int later(int i) { return i % (U / 64) * 64 + i / (U / 64); }
    /* from: shape (U), stride `apart` -> after the thread's offset */
    __device__ __forceinline__ void stage(unsigned slot, const uint8_t *from, size_t apart, bool wide) const
    {
        unsigned to = field_at + stage_to + slot * S::WINDOW;
        if (wide) {
#pragma unroll
            for (int i = 0; i < U / 32; i++) stage_16(to + i * 32 * SPAN, from + later(i) * apart);
        } else {
#pragma unroll 1
            for (int i = 0; i < U / 32; i++) stage_16_bytes(to + i * 32 * SPAN, from + later(i) * apart);
        }
    }
    /* Windows first - BEFORE and on, to places - BEFORE and on of the ring. */
    __device__ __forceinline__ void stage_first() const
    {
#pragma unroll 1
        for (int i = 0; i < S::WINDOWS; i++) {
            int window = first - BEFORE + i;
            size_t apart = window < 0 ? static_cast<size_t>(w.width) : w.row;
            if (window < end)
                stage(slot_of(static_cast<unsigned>(S::RING - BEFORE + i)),
                      field_row(w, window * U) + time * apart + own, apart,
                      MAPPED || window < 0 || w.wide_in);
        }
        beamring::copy_async_commit();
    }
    /* Waits for the window of step `at`, and starts the copy of the next one. */
    __device__ __forceinline__ void next_window(int at)
    {
        if (!MAPPED || at == first)
            beamring::copy_async_wait<0>();
        else
            beamring::barrier_wait(full, (at - first - 1) % 2);
        if (MAPPED && thread == 0) beamring::bulk_wait_read<0>(); /* the levels before have been stored */
        group_barrier(group);
        const unsigned next_slot = slot_of(head + 1);
        if constexpr (MAPPED) {
            if (thread == 0 && at + 1 < end) {
                beamring::barrier_expect(full, S::WINDOW);
                beamring::tensor_load(own_field() + next_slot * (S::WINDOW / 16), field_map, full, base, 0, 0,
                                      at + 1);
            }
        } else {
            if (at + 1 < end) stage(next_slot, next, w.row, w.wide_in);
            next += U * w.row;
            beamring::copy_async_commit();
        }
    }

    /* ---- taps and products ---- */

    /* Of 8 times of the step's windows.
     * words: [window]; taps, simd: time 0: of each window; starts, what the taps' sums begin with: re, im */
    struct eight_times {
        unsigned words[S::WINDOWS];
        uint4 taps;
        uint2 starts;
    };
    __device__ __forceinline__ void load(eight_times &to, unsigned from, int half) const
    {
        load_transposed(to.words[0], to.words[1], to.words[2], to.words[3], from + half * 8 * SPAN);
        to.taps = load_shared(taps_at + half * 64);
        to.starts = load_shared_8(taps_at + (S::STARTS - S::TAPS) + half * 64);
    }
    /* z of 8 times, the first or second (late) of a chunk.
     * z [re, im]   simd: time 0   register: time 3, sample 0 */
    __device__ __forceinline__ void add_taps(unsigned (&z)[2][4], const eight_times &of, int late) const
    {
        const unsigned tap[4] = {of.taps.x, of.taps.y, of.taps.z, of.taps.w},
                       start[2] = {of.starts.x, of.starts.y};
#pragma unroll
        for (int m = 0; m < S::WINDOWS; m++) {
            unsigned both[2][2];
            unpack_pairs(both, of.words[m]);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int sample = k / 2, part = k % 2;
                unsigned &to = z[part][late * 2 + sample];
                to = fma2(tap[m], both[sample][part], m == 0 ? start[part] : to);
            }
        }
    }
    /* Adds z of a chunk of 16 times to the accumulators; at most one product is still under way at its
     * end. */
    __device__ __forceinline__ void multiply(const unsigned (&z)[2][4], int chunk)
    {
        const bool begins = chunk % (S::CHUNKS / 2) == 0;
        unsigned(&sum)[2][S::N / 4] = sums[chunk / (S::CHUNKS / 2)];
        if (!begins)
#pragma unroll
            for (int i = 0; i < 2; i++) beamring::wgmma_hold(sum[i]);
        beamring::wgmma_fence();
#pragma unroll
        for (int part = 0; part < 2; part++)
            if (begins)
                product<S::N>::begin(sum[part], z[part], b + chunk * (S::MATRIX / 16));
            else
                product<S::N>::multiply(sum[part], z[part], b + chunk * (S::MATRIX / 16));
        beamring::wgmma_commit();
        if (chunk > 0 && chunk < S::CHUNKS - 1) beamring::wgmma_wait<1>();
    }
    /* The accumulators of one output step, whose windows are in the ring. */
    __device__ __forceinline__ void transform()
    {
        const unsigned from = load_from + slot_of(head + (S::RING - BEFORE) + lane / 8) * S::WINDOW;
        eight_times of[2]; /* a double buffer: [half % 2] */
        load(of[0], from, 0);
        load(of[1], from, 1);
#pragma unroll
        for (int chunk = 0; chunk < S::CHUNKS; chunk++) {
            unsigned z[2][4]; /* [re, im]   simd: time 0   register: time 3, sample 0 */
#pragma unroll
            for (int late = 0; late < 2; late++) {
                const int half = chunk * 2 + late;
                add_taps(z, of[late], late);
                if (late == 1) {
#pragma unroll
                    for (int i = 0; i < 2; i++) beamring::wgmma_hold(z[i]);
                }
                if (half + 2 < 2 * S::CHUNKS) load(of[late], from, half + 2);
            }
            multiply(z, chunk);
        }
        beamring::wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 4; i++) beamring::wgmma_hold(sums[i / 2][i % 2]);
    }

    /* ---- output ---- */

    /* Sums of even and of odd times: their sum has the fine channels u and U - 1 - u, their difference (far)
     * U/2 + u and U/2 - 1 - u. words: bytes of these two, of phases 8 i and on. */
    __device__ __forceinline__ void quantize_sums(unsigned &low_word, unsigned &high_word, int i, int far,
                                                  unsigned &masks) const
    {
        unsigned c[4][2]; /* C_re, S_re, C_im, S_im   [sample] */
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int n = 2 * i + k / 2 % 2 * (U / 16) + k % 2;
            unsigned even = sums[0][k / 4][n], odd = sums[1][k / 4][n];
            c[k / 2][k % 2] = far ? sub2(even, odd) : add2(even, odd);
        }
        /* of u, of U - 1 - u; or of the other two */
        uint2 scale = load_shared_8(taps_at + (S::SCALES - S::TAPS) + (far * (U / 32) + i) * 64);
        spectrum low, high;
        join_sums(low, high, c[0], c[1], c[2], c[3]);
        low_word = quantize_pair(low, scale.x, masks);
        high_word = quantize_pair(high, scale.y, masks);
    }
    /* The accumulators to levels in shared memory. Returns the masks of clamped values. */
    __device__ __forceinline__ unsigned quantize(const field_bytes &to_int4) const
    {
        unsigned masks = 0, number; /* read again rather than kept */
        asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(number));
        number %= 128;
        /* of stmatrix: lanes 0 to 15 u = lane, lanes 16 to 31 U - 1 - (lane - 16) */
        const bool up = number % 32 < 16;
        const unsigned store_to =
            levels_at + br_pfb_row_place(up ? number % 32 : U - 1 - number % 16, number / 32);
        const int store_step = up ? 16 * SPAN : -16 * SPAN;
#pragma unroll
        for (int two = 0; two < U / 32; two += 2)
#pragma unroll
            for (int far = 0; far < 2; far++) {
                unsigned words[4];
#pragma unroll
                for (int i = 0; i < 2; i++) quantize_sums(words[i], words[2 + i], two + i, far, masks);
                if (MAPPED)
#pragma unroll
                    for (int i = 0; i < 4; i++) words[i] = to_int4(words[i]);
                store_transposed(store_to + static_cast<unsigned>((two / 2 + far * (U / 32)) * store_step),
                                 words[0], words[1], words[2], words[3]);
            }
        return masks;
    }
    /* The levels of step `at` from shared to global memory. */
    __device__ __forceinline__ void store(int at, const field_bytes &to_int4)
    {
        if constexpr (MAPPED) {
            beamring::publish_shared(); /* levels, to the accelerator */
            group_barrier(group);
            if (thread == 0) {
                beamring::tensor_store(levels_map, own_field() + S::LEVELS / 16, static_cast<int>(x), 0,
                                       static_cast<int>(f), at);
                beamring::bulk_commit();
            }
        } else {
            group_barrier(group);
#pragma unroll 1
            for (int i = 0; i < U / 32; i++)
                store_16(w, out + i * (32 * w.X), to_int4(load_shared(levels_at + stage_to + i * 32 * SPAN)));
            out += static_cast<size_t>(w.width) * U;
        }
    }

    __device__ __forceinline__ void start()
    {
        const unsigned shared_at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
        field_at = shared_at + S::FIELD + static_cast<unsigned>(group) * S::OWN;
        levels_at = field_at + S::LEVELS;
        taps_at = shared_at + S::TAPS + 16 * q;
        b = br_wgmma_descriptor(shared_at, 128, 256, BR_WGMMA_PLAIN);
        row = static_cast<unsigned>(thread) / 4;
        time = 2 * row;
        stage_to = br_pfb_row_place(row, static_cast<unsigned>(thread) % 4);
        own = static_cast<size_t>(base + thread % 4 * 16);
        stage_first();
        head = 0;
        next = w.e + (static_cast<size_t>(first + 1) * U + time) * w.row + own;
        load_from = field_at + br_pfb_row_place(static_cast<unsigned>(lane) % 8, warp);
        f = static_cast<size_t>(base) / w.X;
        x = static_cast<size_t>(base) - f * w.X;
        out = w.out + static_cast<size_t>(first) * (static_cast<size_t>(w.width) * U) + (f * U + row) * w.X +
              x + thread % 4 * 16;
        beyond = 0;
    }
    __device__ __forceinline__ void run()
    {
        start();
#pragma unroll 1
        for (int at = first; at < end; at++) {
            next_window(at);
            const bool kept = !MISSING || !read_missing(w, static_cast<size_t>(at - w.first) * w.F + f, true);
            transform();
            const field_bytes to_int4(kept);
            const unsigned masks = quantize(to_int4);
            if (kept) beyond += masks;
            store(at, to_int4);
            head = slot_of(head + 1);
            if ((at & 255) == 0) add_masks(w, beyond); /* before there are too many of them */
        }
        add_masks(w, beyond);
        if (MAPPED && thread == 0) beamring::bulk_wait<0>();
    }
};

/* The tables of a block and a warpgroup's barrier. */
template <class S, bool MAPPED>
__device__ __forceinline__ void load_tables(const tensor_work &w, uint4 *shared, beamring::barrier *full,
                                            int thread)
{
    for (int i = static_cast<int>(threadIdx.x); i < S::TAPS / 16; i += S::THREADS)
        shared[i] = __ldg(w.matrices + i);
    for (int i = static_cast<int>(threadIdx.x); i < (S::FIELD - S::TAPS) / 16; i += S::THREADS)
        shared[S::TAPS / 16 + i] = __ldg(w.taps + i);
    if (MAPPED && thread == 0) {
        beamring::barrier_start(full, 1);
        beamring::barrier_publish();
    }
    beamring::publish_shared();
    __syncthreads();
}

template <class S, bool MAPPED, bool MISSING>
__device__ __forceinline__ void filter_u128(const tensor_work &w, const CUtensorMap *field_map,
                                            const CUtensorMap *levels_map)
{
    extern __shared__ __align__(1024) uint4 shared[];
    const int lane = static_cast<int>(threadIdx.x) % 32, thread = static_cast<int>(threadIdx.x) % 128,
              group = static_cast<int>(threadIdx.x) / 128;
    const unsigned q = lane % 4, warp = thread / 32;
    let_next_begin();
    if (blockIdx.y == gridDim.y - 1) { /* the last row of blocks, while the others are still at work */
        remember_wide(w, static_cast<int>(blockIdx.x) * (BR_PFB_SPAN * S::GROUPS), BR_PFB_SPAN * S::GROUPS);
        end_after_previous();
        return;
    }
    beamring::barrier *full = reinterpret_cast<beamring::barrier *>(shared + S::BARRIERS / 16) + group;
    load_tables<S, MAPPED>(w, shared, full, thread);
    const int base = (static_cast<int>(blockIdx.x) * S::GROUPS + group) * BR_PFB_SPAN,
              first = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, first + w.each);
    if (base < w.width) {
        u128_filter<S, MAPPED, MISSING> filter = {w, field_map, levels_map, shared, lane,  thread, group,
                                                  q, warp,      full,       base,   first, end};
        filter.run();
    }
    end_after_previous();
}

template <class S, bool MISSING>
__global__ void __launch_bounds__(S::THREADS, 1) wgmma_pfb_u128_mapped(const __grid_constant__ mapped_work m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    filter_u128<S, true, MISSING>(m.w, &m.field, &m.levels);
#endif
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) wgmma_pfb_u128(const __grid_constant__ tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    filter_u128<S, false, true>(w, nullptr, nullptr);
#endif
}

} // namespace

#endif
