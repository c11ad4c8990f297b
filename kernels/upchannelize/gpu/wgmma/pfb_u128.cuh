/* pfb_u128.cuh - the filterbank for U = 128 and up to 4 taps on Hopper: taps by multiplications of two
 * times at once, the transform by whole warpgroups.
 *
 * With j the time within a block, z[j] = sum_m (-1)^m W[m U + j] E[(t - M + 1 + m) U + j] and the phase
 * psi of fine channel u at j, X[u] = sum_j e^{i psi} z[j]. Products are C = sum_j cos(psi) z[j] and S =
 * sum_j sin(psi) z[j] of even and of odd times, of U/4 of the phases: with e^{i psi} of channel U/2 - 1 -
 * u being (-1)^j times that of u turned over, their sums and differences make X of four channels of each
 * (gpu/convert.cuh).
 *
 * A warpgroup has an output step at a turn. The field's bytes (smem_io.cuh) stand in a ring of windows (U
 * times each) in shared memory, from which each turn takes its own and the three before it: nothing but
 * them is carried from turn to turn. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U128_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U128_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/upchannelize/gpu/wgmma/smem_io.cuh"

namespace
{

/* GROUPS warpgroups of a block. */
template <int U_, int GROUPS_> struct dense_shape {
    static constexpr int U = U_, GROUPS = GROUPS_, THREADS = 128 * GROUPS;
    static constexpr int N = U / 2;                   /* columns */
    static constexpr int CHUNKS = U / 16;             /* of 16 times: of even ones, then of odd ones */
    static constexpr int WINDOWS = BR_DENSE_TAPS;     /* of a turn */
    static constexpr int RING = WINDOWS + 1;          /* the next turn's is staged */
    static constexpr int WINDOW = U * BR_TURNED_SPAN; /* bytes */
    static constexpr int MATRIX = N * BR_BAND * 2;    /* bytes, of a chunk */
    /* bytes of tables and, of each warpgroup, of field and levels in shared memory. Tables: matrices; taps
     * and starts [8 times][q]; scales [8 pairs][q]: low, high, nothing */
    static constexpr int TAPS = CHUNKS * MATRIX, STARTS = TAPS + U / 8 * 64, SCALES = STARTS + U / 8 * 64,
                         FIELD = SCALES + U / 16 * 64, LEVELS = RING * WINDOW, OWN = LEVELS + WINDOW,
                         BARRIERS = FIELD + GROUPS * OWN, SHARED = BARRIERS + GROUPS * 8;
    static_assert(FIELD % 512 == 0 && WINDOW % 512 == 0, "what is swizzled begins at a multiple of 512");
};

/* Of a warpgroup, the `group`-th of its block. */
__device__ __forceinline__ void group_barrier(int group)
{
    asm volatile("bar.sync %0, 128;\n" ::"r"(group + 1) : "memory");
}

/* PLAIN: all of the call is aligned, and the accelerator copies windows and levels, as `field_map` and
 * `levels_map` say (mapped_work). LOST: outputs may be missing. */
template <class S, bool PLAIN, bool LOST>
__device__ __forceinline__ void transform_densely(const tensor_work &w, const CUtensorMap *field_map,
                                                  const CUtensorMap *levels_map)
{
    constexpr int U = S::U, BEFORE = BR_DENSE_TAPS - 1, SPAN = BR_TURNED_SPAN;
    extern __shared__ __align__(1024) uint4 shared[];
    const int lane = static_cast<int>(threadIdx.x) % 32, thread = static_cast<int>(threadIdx.x) % 128,
              group = static_cast<int>(threadIdx.x) / 128;
    const unsigned q = lane % 4, warp = thread / 32;
    let_next_begin();
    if (blockIdx.y == gridDim.y - 1) { /* last, beside those that are still at work */
        remember_wide(w, static_cast<int>(blockIdx.x) * (SPAN * S::GROUPS), SPAN * S::GROUPS);
        end_after_previous();
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < S::TAPS / 16; i += S::THREADS)
        shared[i] = __ldg(w.matrices + i);
    for (int i = static_cast<int>(threadIdx.x); i < (S::FIELD - S::TAPS) / 16; i += S::THREADS)
        shared[S::TAPS / 16 + i] = __ldg(w.taps + i);
    beamring::barrier *full = reinterpret_cast<beamring::barrier *>(shared + S::BARRIERS / 16) + group;
    if (PLAIN && thread == 0) {
        beamring::barrier_start(full, 1);
        beamring::barrier_publish();
    }
    beamring::publish_shared();
    __syncthreads();

    const int base = (static_cast<int>(blockIdx.x) * S::GROUPS + group) * SPAN;
    const int first = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, first + w.each);
    if (base < w.width) {
        const unsigned shared_at = static_cast<unsigned>(__cvta_generic_to_shared(shared)),
                       field_at = shared_at + S::FIELD + static_cast<unsigned>(group) * S::OWN,
                       levels_at = field_at + S::LEVELS, taps_at = shared_at + S::TAPS + 16 * q;
        const uint64_t b = br_wgmma_descriptor(shared_at, 128, 256, BR_WGMMA_PLAIN);
        uint4 *own_field = shared + (S::FIELD + group * S::OWN) / 16;

        /* A thread's part of a window: 16 bytes of rows thread / 4 + 32 i. Row r has br_split_time(r), which
         * is 2 r of the first ones and a sum of those of thread / 4 and of 32 i. */
        const unsigned row = static_cast<unsigned>(thread) / 4, time = 2 * row,
                       stage_to = br_turned_place(row, static_cast<unsigned>(thread) % 4);
        const size_t own = static_cast<size_t>(base + thread % 4 * 16);
        /* its i-th, after the first */
        auto later = [](int i) { return i % (U / 64) * 64 + i / (U / 64); };
        /* from: shape (U), stride `apart` -> after the thread's offset */
        auto stage = [&](unsigned slot, const uint8_t *from, size_t apart, bool wide) {
            unsigned to = field_at + stage_to + slot * S::WINDOW;
            if (wide) {
#pragma unroll
                for (int i = 0; i < U / 32; i++) stage_16(to + i * 32 * SPAN, from + later(i) * apart);
            } else {
#pragma unroll 1
                for (int i = 0; i < U / 32; i++)
#pragma unroll 1
                    for (unsigned k = 0; k < 4; k++)
                        asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to + i * 32 * SPAN + 4 * k),
                                     "r"(load_bytes(from + later(i) * apart + 4 * k))
                                     : "memory");
            }
        };
        auto slot_of = [&](unsigned slot) { return slot >= S::RING ? slot - S::RING : slot; };

        /* windows first - BEFORE and on: slots - BEFORE and on */
#pragma unroll 1
        for (int i = 0; i < S::WINDOWS; i++) {
            int window = first - BEFORE + i;
            size_t apart = window < 0 ? static_cast<size_t>(w.width) : w.row;
            if (window < end)
                stage(slot_of(static_cast<unsigned>(S::RING - BEFORE + i)),
                      field_row(w, window * U) + time * apart + own, apart, PLAIN || window < 0 || w.wide_in);
        }
        beamring::copy_async_commit();
        unsigned head = 0; /* slot of window `at` */
        /* e: shape (T, row) -> after the thread's offset: of the window that is staged next */
        const uint8_t *next = w.e + (static_cast<size_t>(first + 1) * U + time) * w.row + own;

        /* of an operand of ldmatrix: time 2 1 0 */
        const unsigned load_from = field_at + br_turned_place(static_cast<unsigned>(lane) % 8, warp);
        /* out: shape (T/U, F, U, X), contiguous -> after the output step's and the thread's offset: 16 bytes
         * of u = thread / 4 + 32 i */
        const size_t f = static_cast<size_t>(base) / w.X, x = static_cast<size_t>(base) - f * w.X;
        uint8_t *out = w.out + static_cast<size_t>(first) * (static_cast<size_t>(w.width) * U) +
                       (f * U + row) * w.X + x + thread % 4 * 16;
        unsigned beyond = 0;

#pragma unroll 1
        for (int at = first; at < end; at++) {
            if (!PLAIN || at == first)
                beamring::copy_async_wait<0>();
            else
                beamring::barrier_wait(full, (at - first - 1) % 2);
            if (PLAIN && thread == 0) beamring::bulk_wait_read<0>(); /* the levels before have been stored */
            group_barrier(group);
            const unsigned next_slot = slot_of(head + 1);
            if constexpr (PLAIN) {
                if (thread == 0 && at + 1 < end) {
                    beamring::barrier_expect(full, S::WINDOW);
                    beamring::tensor_load(own_field + next_slot * (S::WINDOW / 16), field_map, full, base, 0,
                                          0, at + 1);
                }
            } else {
                if (at + 1 < end) stage(next_slot, next, w.row, w.wide_in);
                next += U * w.row;
                beamring::copy_async_commit();
            }
            const bool kept = !LOST || !read_lost(w, static_cast<size_t>(at - w.first) * w.F + f, true);
            const unsigned from = load_from + slot_of(head + (S::RING - BEFORE) + lane / 8) * S::WINDOW;

            /* sums [even, odd][re, im]   simd: pair 0   register: cos and sin, pair 4 3, sample 0   thread:
             * sample 3 2 1, pair 2 1 */
            unsigned sums[2][2][S::N / 4];
            /* Of 8 times, the next ones' beside them: [half % 2]. words: [window]; taps, simd: time 0: of
             * each window; starts, what sums begin with: re, im */
            unsigned words[2][S::WINDOWS];
            uint4 taps[2];
            uint2 starts[2];
            auto load = [&](int half) {
                unsigned(&to)[S::WINDOWS] = words[half % 2];
                load_turned(to[0], to[1], to[2], to[3], from + half * 8 * SPAN);
                taps[half % 2] = load_shared(taps_at + half * 64);
                starts[half % 2] = load_shared_8(taps_at + (S::STARTS - S::TAPS) + half * 64);
            };
            load(0);
            load(1);
#pragma unroll
            for (int chunk = 0; chunk < S::CHUNKS; chunk++) {
                unsigned z[2][4]; /* [re, im]   simd: time 0   register: time 3, sample 0 */
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    const int half = chunk * 2 + late;
                    const unsigned tap[4] = {taps[late].x, taps[late].y, taps[late].z, taps[late].w},
                                   start[2] = {starts[late].x, starts[late].y};
#pragma unroll
                    for (int m = 0; m < S::WINDOWS; m++) {
                        unsigned both[2][2];
                        unpack_turned(both, words[late][m]);
#pragma unroll
                        for (int k = 0; k < 4; k++) {
                            int sample = k / 2, part = k % 2;
                            unsigned &to = z[part][late * 2 + sample];
                            to = fma2(tap[m], both[sample][part], m == 0 ? start[part] : to);
                        }
                    }
                    if (late == 1) {
#pragma unroll
                        for (int i = 0; i < 2; i++) beamring::wgmma_hold(z[i]);
                    }
                    if (half + 2 < 2 * S::CHUNKS) load(half + 2);
                }
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
            beamring::wgmma_wait<0>();
#pragma unroll
            for (int i = 0; i < 4; i++) beamring::wgmma_hold(sums[i / 2][i % 2]);
            const field_bytes finished(kept);
            unsigned masks = 0, number; /* read again rather than kept */
            asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(number));
            number %= 128;
            /* of stmatrix: lanes 0 to 15 u = lane, lanes 16 to 31 U - 1 - (lane - 16) */
            const bool up = number % 32 < 16;
            const unsigned store_to =
                levels_at + br_turned_place(up ? number % 32 : U - 1 - number % 16, number / 32);
            const int store_step = up ? 16 * SPAN : -16 * SPAN;
            /* Of even and of odd times: their sum has the fine channels u and U - 1 - u, their difference U/2
             * + u and U/2 - 1 - u. */
#pragma unroll
            for (int two = 0; two < U / 32; two += 2)
#pragma unroll
                for (int far = 0; far < 2; far++) {
                    unsigned words[4];
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        unsigned c[4][2]; /* C_re, S_re, C_im, S_im   [sample] */
#pragma unroll
                        for (int k = 0; k < 8; k++) {
                            const int n = 2 * (two + i) + k / 2 % 2 * (U / 16) + k % 2;
                            unsigned even = sums[0][k / 4][n], odd = sums[1][k / 4][n];
                            c[k / 2][k % 2] = far ? sub2(even, odd) : add2(even, odd);
                        }
                        /* of u, of U - 1 - u; or of the other two */
                        uint2 scale =
                            load_shared_8(taps_at + (S::SCALES - S::TAPS) + (far * (U / 32) + two + i) * 64);
                        spectrum low, high;
                        join_sums(low, high, c[0], c[1], c[2], c[3]);
                        words[i] = levels_of(low, scale.x, masks);
                        words[2 + i] = levels_of(high, scale.y, masks);
                    }
                    if (PLAIN)
#pragma unroll
                        for (int i = 0; i < 4; i++) words[i] = finished(words[i]);
                    store_turned(store_to + static_cast<unsigned>((two / 2 + far * (U / 32)) * store_step),
                                 words[0], words[1], words[2], words[3]);
                }
            if (kept) beyond += masks;
            if constexpr (PLAIN) {
                beamring::publish_shared(); /* levels, to the accelerator */
                group_barrier(group);
                if (thread == 0) {
                    beamring::tensor_store(levels_map, own_field + S::LEVELS / 16, static_cast<int>(x), 0,
                                           static_cast<int>(f), at);
                    beamring::bulk_commit();
                }
            } else {
                group_barrier(group);
#pragma unroll 1
                for (int i = 0; i < U / 32; i++)
                    store_16(w, out + i * (32 * w.X),
                             finished(load_shared(levels_at + stage_to + i * 32 * SPAN)));
                out += static_cast<size_t>(w.width) * U;
            }
            head = slot_of(head + 1);
            if ((at & 255) == 0) add_masks(w, beyond); /* before there are too many of them */
        }
        add_masks(w, beyond);
        if (PLAIN && thread == 0) beamring::bulk_wait<0>();
    }
    end_after_previous();
}

template <class S, bool LOST>
__global__ void __launch_bounds__(S::THREADS, 1) dense_mapped(const __grid_constant__ mapped_work m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    transform_densely<S, true, LOST>(m.w, &m.field, &m.levels);
#endif
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) dense(const __grid_constant__ tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    transform_densely<S, false, true>(w, nullptr, nullptr);
#endif
}

} // namespace

#endif
