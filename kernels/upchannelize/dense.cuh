/* dense.cuh - the filterbank for U of 32 and more and up to 4 taps on Hopper: taps by multiplications of two
 * times at once, the transform by whole warpgroups.
 *
 * With j the time within a block, z[j] = sum_m (-1)^m W[m U + j] E[(t - M + 1 + m) U + j] and the phase psi
 * of fine channel u at j, X[u] = sum_j e^{i psi} z[j]. Either the products are C = sum_j cos(psi) z[j] and S
 * = sum_j sin(psi) z[j], from which X of a pair of fine channels comes afterwards (level.cuh), or they are X
 * itself, which costs twice the products and saves multiplications.
 *
 * A warpgroup has OUT output steps at a turn. The field's bytes (turned.cuh) stand in a ring of windows (U
 * times each) in shared memory, from which each turn takes its own and the three before it: nothing but them
 * is carried from turn to turn. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_DENSE_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_DENSE_CUH

#include "kernels/upchannelize/turned.cuh"

namespace
{

/* OUT output steps at a time, whose input is staged AHEAD such turns before; GROUPS warpgroups of a block.
 * WHOLE: the product has all of X, U real and U imaginary parts, for twice the products; else C and S.
 * SPLIT: C and S of even and of odd times, of U/4 of the phases: with e^{i psi} of channel U/2 - 1 - u being
 * (-1)^j times that of u turned over, their sums and differences make four channels of each, for half the
 * products. */
template <int U_, int OUT_, int AHEAD_, int GROUPS_, int BLOCKS_, bool WHOLE_, bool SPLIT_ = false>
struct dense_shape {
    static constexpr int U = U_, OUT = OUT_, AHEAD = AHEAD_, GROUPS = GROUPS_, BLOCKS = BLOCKS_;
    static constexpr bool WHOLE = WHOLE_, SPLIT = SPLIT_;
    static constexpr int N = WHOLE ? 2 * U : SPLIT ? U / 2 : U;       /* columns */
    static constexpr int PARTS = WHOLE ? 1 : 2, SETS = SPLIT ? 2 : 1; /* sums of re and im apart */
    static constexpr int CHUNKS = U / 16;                             /* of 16 times */
    static constexpr int THREADS = 128 * GROUPS;
    static constexpr int WINDOWS = BR_DENSE_TAPS - 1 + OUT; /* of a turn */
    static constexpr int RING = (WINDOWS + OUT * AHEAD + OUT - 1) / OUT * OUT;
    static constexpr int WINDOW = U * BR_TURNED_SPAN; /* bytes */
    static constexpr int MATRIX = N * BR_BAND * 2;    /* bytes, of a chunk (WHOLE: and re or im) */
    static constexpr int SCALES = U / 16;             /* [8 pairs][q]: low, high, nothing */
    /* bytes of tables and, of each warpgroup, of field and levels in shared memory */
    static constexpr int TAPS = CHUNKS * MATRIX * (WHOLE ? 2 : 1), STARTS = TAPS + U / 8 * 64,
                         SCALES_AT = STARTS + U / 8 * 64, FIELD = SCALES_AT + SCALES * 64,
                         LEVELS = RING * WINDOW, OWN = LEVELS + OUT * WINDOW, SHARED = FIELD + GROUPS * OWN;
};

__device__ __forceinline__ unsigned add2(unsigned a, unsigned b)
{
    unsigned c;
    asm("add.rn.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

__device__ __forceinline__ unsigned sub2(unsigned a, unsigned b)
{
    unsigned c;
    asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

/* Of a warpgroup, the `group`-th of its block. */
template <class S> __device__ __forceinline__ void group_barrier(int group)
{
    if constexpr (S::GROUPS == 1)
        __syncthreads();
    else
        asm volatile("bar.sync %0, 128;\n" ::"r"(group + 1) : "memory");
}

template <class S> __global__ void __launch_bounds__(S::THREADS, S::BLOCKS) dense(const tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int U = S::U, OUT = S::OUT, BEFORE = BR_DENSE_TAPS - 1, SPAN = BR_TURNED_SPAN;
    extern __shared__ uint4 shared[];
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
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();

    const int base = (static_cast<int>(blockIdx.x) * S::GROUPS + group) * SPAN;
    const int first = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, first + w.each);
    if (base < w.width) {
        const unsigned shared_at = static_cast<unsigned>(__cvta_generic_to_shared(shared)),
                       field_at = shared_at + S::FIELD + static_cast<unsigned>(group) * S::OWN,
                       levels_at = field_at + S::LEVELS, taps_at = shared_at + S::TAPS + 16 * q;
        const uint64_t b = br_wgmma_descriptor(shared_at, 128, 256, BR_WGMMA_PLAIN);

        /* A thread's part of a window: 16 bytes of rows thread / 4 + 32 i; SPLIT: row r has br_split_time(r),
         * which is 2 r of the first ones and a sum of those of thread / 4 and of 32 i. */
        const unsigned row = static_cast<unsigned>(thread) / 4, time = S::SPLIT ? 2 * row : row,
                       stage_to = br_turned_place(row, static_cast<unsigned>(thread) % 4);
        const size_t own = static_cast<size_t>(base + thread % 4 * 16);
        /* its i-th, after the first */
        auto later = [](int i) { return S::SPLIT ? i % (U / 64) * 64 + i / (U / 64) : i * 32; };
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
        for (int i = 0; i < S::WINDOWS + OUT * (S::AHEAD - 1); i++) {
            int window = first - BEFORE + i;
            if (i >= S::WINDOWS && (i - S::WINDOWS) % OUT == 0) beamring::copy_async_commit();
            size_t apart = window < 0 ? static_cast<size_t>(w.width) : w.row;
            if (window < end)
                stage(slot_of(static_cast<unsigned>(S::RING - BEFORE + i)),
                      field_row(w, window * U) + time * apart + own, apart, window < 0 || w.wide_in);
        }
        beamring::copy_async_commit();
        unsigned head = 0; /* slot of window `at`, a multiple of OUT */
        /* e: shape (T, row) -> after the thread's offset: of the window that is staged next */
        const uint8_t *next = w.e + (static_cast<size_t>(first + OUT * S::AHEAD) * U + time) * w.row + own;

        /* of an operand of ldmatrix: time 2 1 0 */
        const unsigned load_from = field_at + br_turned_place(static_cast<unsigned>(lane) % 8, warp);
        /* out: shape (T/U, F, U, X), contiguous -> after the output step's and the thread's offset: 16 bytes
         * of u = thread / 4 + 32 i */
        const size_t f = static_cast<size_t>(base) / w.X, x = static_cast<size_t>(base) - f * w.X;
        uint8_t *out = w.out + static_cast<size_t>(first) * (static_cast<size_t>(w.width) * U) +
                       (f * U + row) * w.X + x + thread % 4 * 16;
        const bool all_plain = w.wide_out && w.lost == nullptr;
        unsigned beyond = 0;

#pragma unroll 1
        for (int at = first; at < end; at += OUT) {
            beamring::copy_async_wait<S::AHEAD - 1>();
            group_barrier<S>(group);
            const unsigned last_slot = slot_of(head + OUT * S::AHEAD);
            if (w.wide_in && at + OUT * (S::AHEAD + 1) <= end) {
#pragma unroll
                for (int o = 0; o < OUT; o++) stage(last_slot + o, next + o * (U * w.row), w.row, true);
            } else {
#pragma unroll 1
                for (int o = 0; o < OUT && at + OUT * S::AHEAD + o < end; o++)
                    stage(last_slot + o, next + o * (U * w.row), w.row, w.wide_in);
            }
            next += OUT * U * w.row;
            beamring::copy_async_commit();
            /* of four windows each, then of the two and the one that are left */
            constexpr int LOADS = S::WINDOWS / 4 + S::WINDOWS / 2 % 2 + S::WINDOWS % 2;
            unsigned from[LOADS];
#pragma unroll
            for (int i = 0, window = 0; i < LOADS; i++) {
                int count = S::WINDOWS - window >= 4 ? 4 : S::WINDOWS - window >= 2 ? 2 : 1;
                from[i] =
                    load_from + slot_of(head + (S::RING - BEFORE + window) + lane / 8 % count) * S::WINDOW;
                window += count;
            }

            /* sums [output][re, im]   simd: pair 0   register: cos and sin, pair 5 4 3, sample 0   thread:
             * sample 3 2 1, pair 2 1; WHOLE: simd: u 0   register: u 4 3, re and im, sample 0   thread:
             * sample 3 2 1, u 2 1 */
            unsigned sums[OUT][S::SETS * S::PARTS][S::N / 4];
            /* Of 8 times, the next ones' beside them: [half % 2]. words: [window]; taps, simd: time 0: of
             * each window; starts, what sums begin with: re, im */
            unsigned words[2][S::WINDOWS];
            uint4 taps[2];
            uint2 starts[2];
            auto load = [&](int half) {
                unsigned(&to)[S::WINDOWS] = words[half % 2];
#pragma unroll
                for (int i = 0, window = 0; i < LOADS; i++) {
                    unsigned at_half = from[i] + half * 8 * SPAN;
                    if (S::WINDOWS - window >= 4) {
                        load_turned(to[window], to[window + 1], to[window + 2], to[window + 3], at_half);
                        window += 4;
                    } else if (S::WINDOWS - window >= 2) {
                        load_turned(to[window], to[window + 1], at_half);
                        window += 2;
                    } else {
                        load_turned(to[window], at_half);
                    }
                }
                taps[half % 2] = load_shared(taps_at + half * 64);
                starts[half % 2] = load_shared_8(taps_at + (S::STARTS - S::TAPS) + half * 64);
            };
            load(0);
            load(1);
#pragma unroll
            for (int chunk = 0; chunk < S::CHUNKS; chunk++) {
                unsigned z[OUT][2][4]; /* [re, im]   simd: time 0   register: time 3, sample 0 */
#pragma unroll
                for (int late = 0; late < 2; late++) {
                    const int half = chunk * 2 + late;
                    const unsigned tap[4] = {taps[late].x, taps[late].y, taps[late].z, taps[late].w},
                                   start[2] = {starts[late].x, starts[late].y};
#pragma unroll
                    for (int i = 0; i < S::WINDOWS; i++) {
                        unsigned both[2][2];
                        unpack_turned(both, words[late][i]);
#pragma unroll
                        for (int o = 0; o < OUT; o++)
#pragma unroll
                            for (int k = 0; k < 4; k++) {
                                int m = i - o, sample = k / 2, part = k % 2;
                                if (m < 0 || m > BEFORE) continue;
                                unsigned &to = z[o][part][late * 2 + sample];
                                to = fma2(tap[m], both[sample][part], m == 0 ? start[part] : to);
                            }
                    }
                    if (late == 1) {
#pragma unroll
                        for (int i = 0; i < OUT * 2; i++) beamring::wgmma_hold(z[i / 2][i % 2]);
                    }
                    if (half + 2 < 2 * S::CHUNKS) load(half + 2);
                }
                constexpr int LONG = S::CHUNKS / S::SETS; /* chunks of a set */
                const bool begins = chunk % LONG == 0;
                const int set = chunk / LONG * S::PARTS;
                if (!begins)
#pragma unroll
                    for (int i = 0; i < OUT * S::PARTS; i++)
                        beamring::wgmma_hold(sums[i / S::PARTS][set + i % S::PARTS]);
                beamring::wgmma_fence();
                uint64_t re_from = b + chunk * ((S::WHOLE ? 2 : 1) * S::MATRIX / 16),
                         im_from = re_from + (S::WHOLE ? S::MATRIX / 16 : 0);
#pragma unroll
                for (int o = 0; o < OUT; o++) {
                    if (begins)
                        product<S::N>::begin(sums[o][set], z[o][0], re_from);
                    else
                        product<S::N>::multiply(sums[o][set], z[o][0], re_from);
                    if (begins && !S::WHOLE)
                        product<S::N>::begin(sums[o][set + S::PARTS - 1], z[o][1], im_from);
                    else
                        product<S::N>::multiply(sums[o][set + S::PARTS - 1], z[o][1], im_from);
                    /* of the last chunk each output step is waited for alone */
                    if (o == OUT - 1 || chunk == S::CHUNKS - 1) beamring::wgmma_commit();
                }
                if (chunk > 0 && chunk < S::CHUNKS - 1) beamring::wgmma_wait<1>();
            }
            const bool plain = all_plain && at + OUT <= end;
            /* of output step `at` + o: it is wanted, and not missing */
            auto is_kept = [&](int o) {
                if (at + o >= end || w.lost == nullptr) return at + o < end;
                return !w.lost[static_cast<size_t>(at + o - w.first) * w.F + base / static_cast<int>(w.X)];
            };
#pragma unroll
            for (int o = 0; o < OUT; o++) {
                static_assert(OUT <= 4, "waits for more");
                if (OUT - 1 - o == 0) beamring::wgmma_wait<0>();
                if (OUT - 1 - o == 1) beamring::wgmma_wait<1>();
                if (OUT - 1 - o == 2) beamring::wgmma_wait<2>();
                if (OUT - 1 - o == 3) beamring::wgmma_wait<3>();
#pragma unroll
                for (int i = 0; i < S::SETS * S::PARTS; i++) beamring::wgmma_hold(sums[o][i]);
                unsigned masks = 0, number = static_cast<unsigned>(thread);
                /* read again rather than kept */
                if (S::SPLIT) asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(number));
                number %= 128;
                /* of stmatrix: u = lane; else lanes 0 to 15 u = lane, lanes 16 to 31 U - 1 - (lane - 16) */
                const bool up = S::WHOLE || number % 32 < 16;
                const unsigned store_to =
                    levels_at + br_turned_place(up ? number % 32 : U - 1 - number % 16, number / 32);
                const int store_step = up ? 16 * SPAN : -16 * SPAN;
                if constexpr (S::WHOLE) {
                    constexpr unsigned SCALE = 0x88008800u; /* -1 / BR_DENSE_UNIT */
#pragma unroll
                    for (int four = 0; four < U / 8; four += 4) {
                        unsigned words[4];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const unsigned *sum = &sums[o][0][4 * (four + i)];
                            words[i] = levels_of({{sum[0], sum[1]}, {sum[2], sum[3]}}, SCALE, masks);
                        }
                        store_turned(store_to + static_cast<unsigned>(o * S::WINDOW + four * 8 * SPAN),
                                     words[0], words[1], words[2], words[3]);
                    }
                } else if constexpr (S::SPLIT) {
                    /* Of even and of odd times: their sum has the fine channels u and U - 1 - u, their
                     * difference U/2 + u and U/2 - 1 - u. */
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
                                    unsigned even = sums[o][k / 4][n], odd = sums[o][2 + k / 4][n];
                                    c[k / 2][k % 2] = far ? sub2(even, odd) : add2(even, odd);
                                }
                                /* of u, of U - 1 - u; or of the other two */
                                uint2 scale = load_shared_8(taps_at + (S::SCALES_AT - S::TAPS) +
                                                            (far * (U / 32) + two + i) * 64);
                                spectrum low, high;
                                join_sums(low, high, c[0], c[1], c[2], c[3]);
                                words[i] = levels_of(low, scale.x, masks);
                                words[2 + i] = levels_of(high, scale.y, masks);
                            }
                            store_turned(store_to +
                                             static_cast<unsigned>(o * S::WINDOW +
                                                                   (two / 2 + far * (U / 32)) * store_step),
                                         words[0], words[1], words[2], words[3]);
                        }
                } else {
#pragma unroll
                    for (int two = 0; two < U / 16; two += 2) {
                        unsigned words[4];
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            int c = 2 * (two + i);
                            const unsigned *re = &sums[o][0][c], *im = &sums[o][S::PARTS - 1][c];
                            uint2 scale; /* of u, of U - 1 - u */
                            spectrum low, high;
                            scale = load_shared_8(taps_at + (S::SCALES_AT - S::TAPS) + (two + i) * 64);
                            join_sums(low, high, re, re + U / 8, im, im + U / 8);
                            words[i] = levels_of(low, scale.x, masks);
                            words[2 + i] = levels_of(high, scale.y, masks);
                        }
                        store_turned(store_to + static_cast<unsigned>(o * S::WINDOW + two / 2 * store_step),
                                     words[0], words[1], words[2], words[3]);
                    }
                }
                if (plain || is_kept(o)) beyond += masks;
            }
            group_barrier<S>(group);
            uint8_t *to = out;
            out += static_cast<size_t>(w.width) * (U * OUT);
            if (S::GROUPS == 1) asm volatile("" : "+l"(out)); /* now: later the stores would hold it up */
            if (plain) {
                uint4 v[OUT * (U / 32)];
#pragma unroll
                for (int i = 0; i < OUT * (U / 32); i++)
                    v[i] = load_shared(levels_at + stage_to + i * 32 * SPAN);
#pragma unroll
                for (int o = 0; o < OUT; o++, to += static_cast<size_t>(w.width) * U)
#pragma unroll
                    for (int i = 0; i < U / 32; i++)
                        *reinterpret_cast<uint4 *>(to + i * (32 * w.X)) = finished(v[o * (U / 32) + i], true);
            } else {
#pragma unroll 1
                for (int o = 0; o < OUT && at + o < end; o++, to += static_cast<size_t>(w.width) * U) {
                    bool kept = is_kept(o);
#pragma unroll 1
                    for (int i = 0; i < U / 32; i++)
                        store_16(w, to + i * (32 * w.X),
                                 finished(load_shared(levels_at + stage_to + o * S::WINDOW + i * 32 * SPAN),
                                          kept));
                }
            }
            head = slot_of(head + OUT);
            if ((at & 255) < OUT) add_masks(w, beyond); /* before there are too many of them */
        }
        add_masks(w, beyond);
    }
    end_after_previous();
#endif
}

} // namespace

#endif
