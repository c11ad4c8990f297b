/* resident.cuh - the filterbank for U = 64 and 4 taps on Hopper: as dense.cuh, but the windows before stay in
 * registers, so that each sample is read from shared memory and unpacked once.
 *
 * A warpgroup has 64 samples of the row, and of them all U times of the last three windows, ready to be
 * multiplied: where a new window's samples go is where the oldest ones were, so a turn has three output
 * steps.
 *
 * Times j and U - 1 - j have the same taps in reverse order, as the window is symmetric; with the signs
 * (-1)^m that turns over the latter's z, which its coefficients undo. A product's inner dimension so has
 * eight times and the eight that mirror them, with one set of taps. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_RESIDENT_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_RESIDENT_CUH

#include "kernels/upchannelize/turned.cuh"

namespace
{

template <int U_, int BLOCKS_> struct resident_shape {
    static constexpr int U = U_, BLOCKS = BLOCKS_, TURN = BR_DENSE_TAPS - 1, THREADS = 128;
    static constexpr int CHUNKS = U / 16;             /* of 8 times and of those that mirror them */
    static constexpr int WINDOW = U * BR_TURNED_SPAN; /* bytes */
    static constexpr int MATRIX = U * BR_BAND * 2;    /* bytes, of a chunk */
    static constexpr int RECORD = BR_RESIDENT_RECORD; /* of each chunk and q: taps, start, scales */
    /* bytes of tables, of two turns' windows and of their levels in shared memory */
    static constexpr int TAPS = CHUNKS * MATRIX, FIELD = TAPS + CHUNKS * 4 * RECORD, HALF = TURN * WINDOW,
                         LEVELS = FIELD + 2 * HALF, SHARED = LEVELS + 2 * HALF;
};

__device__ __forceinline__ unsigned load_shared_4(unsigned from)
{
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(v) : "r"(from) : "memory");
    return v;
}

__device__ __forceinline__ unsigned mul2(unsigned a, unsigned b)
{
    unsigned c;
    asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

/* re or im of one of both samples of a word, as unpack_turned   simd: time 0 */
__device__ __forceinline__ void unpack_one(unsigned &value, unsigned word, int sample, int is_im)
{
    unsigned bytes = sample ? word >> 8 : word;
    if (is_im)
        asm("lop3.b32 %0, %1, 0x00f000f0, %2, 0x6a;\n" : "=r"(value) : "r"(bytes), "r"(0x00800080u));
    else
        asm("lop3.b32 %0, %1, 0x000f000f, %2, 0x6a;\n" : "=r"(value) : "r"(bytes), "r"(0x00080008u));
}

template <class S> __global__ void __launch_bounds__(S::THREADS, S::BLOCKS) resident(const tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int U = S::U, CHUNKS = S::CHUNKS, TURN = S::TURN, SPAN = BR_TURNED_SPAN;
    constexpr unsigned HALF = S::HALF;
    extern __shared__ uint4 shared[];
    const int lane = static_cast<int>(threadIdx.x) % 32, thread = static_cast<int>(threadIdx.x);
    const unsigned q = lane % 4, warp = thread / 32;
    let_next_begin();
    const int base = static_cast<int>(blockIdx.x) * SPAN;
    if (blockIdx.y == gridDim.y - 1) { /* last, beside those that are still at work */
        remember_wide(w, base, SPAN);
        end_after_previous();
        return;
    }

    const int first = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, first + w.each);
    const unsigned shared_at = static_cast<unsigned>(__cvta_generic_to_shared(shared)),
                   record_at = shared_at + S::TAPS + S::RECORD * q;
    const uint64_t b = br_wgmma_descriptor(shared_at, 128, 256, BR_WGMMA_PLAIN);

    /* The thread's number, read again rather than kept over a turn. */
    unsigned me = static_cast<unsigned>(thread);
    auto read_me = [&] { asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(me)); };
    /* Time or fine channel of its i-th 16 bytes of a window or of its levels: row me / 4 + 32 i. */
    auto place_of = [&](int i) { return br_resident_place(U, me / 4 + 32 * static_cast<unsigned>(i)); };
    /* from: shape (U), stride `apart` -> after the block's column */
    auto stage = [&](unsigned to, const uint8_t *from, size_t apart, bool wide) {
        to += shared_at + S::FIELD + br_turned_place(me / 4, me % 4);
        from += me % 4 * 16;
        if (wide) {
#pragma unroll
            for (int i = 0; i < U / 32; i++) stage_16(to + i * 32 * SPAN, from + place_of(i) * apart);
        } else {
#pragma unroll 1
            for (int i = 0; i < U / 32; i++)
#pragma unroll 1
                for (unsigned k = 0; k < 4; k++)
                    asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to + i * 32 * SPAN + 4 * k),
                                 "r"(load_bytes(from + place_of(i) * apart + 4 * k))
                                 : "memory");
        }
    };
    /* windows `at` and on */
    auto stage_turn = [&](int at, unsigned to) {
        if (w.wide_in && at >= 0 && at + TURN <= end) {
            /* e: shape (T, row) -> after the window's first time and the block's column */
            const uint8_t *from = w.e + base + static_cast<size_t>(at) * (U * w.row);
#pragma unroll
            for (int i = 0; i < TURN; i++, from += U * w.row) stage(to + i * S::WINDOW, from, w.row, true);
        } else {
#pragma unroll 1
            for (int window = at; window < at + TURN && window < end; window++, to += S::WINDOW) {
                size_t apart = window < 0 ? static_cast<size_t>(w.width) : w.row;
                stage(to, field_row(w, window * U) + base, apart, window < 0 || w.wide_in);
            }
        }
        beamring::copy_async_commit();
    };
    stage_turn(first - TURN, HALF);
    stage_turn(first, 0);
    for (int i = thread; i < S::TAPS / 16; i += S::THREADS) shared[i] = __ldg(w.matrices + i);
    for (int i = thread; i < (S::FIELD - S::TAPS) / 16; i += S::THREADS)
        shared[S::TAPS / 16 + i] = __ldg(w.taps + i);
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");

    /* of an operand of ldmatrix: 8 rows, then those that mirror them */
    const unsigned load_from =
        shared_at + S::FIELD +
        br_turned_place(br_resident_half_row(U, static_cast<unsigned>(lane) % 16, 8), warp);

    /* out: shape (T/U, F, U, X), contiguous -> after the output step and the block's samples of u = 0 */
    const size_t f = static_cast<size_t>(base) / w.X, x = static_cast<size_t>(base) - f * w.X;
    uint8_t *out = w.out + static_cast<size_t>(first) * (static_cast<size_t>(w.width) * U) + f * U * w.X + x;
    unsigned beyond = 0;

    auto is_kept = [&](int at) {
        return w.lost == nullptr ||
               !w.lost[static_cast<size_t>(at - w.first) * w.F + base / static_cast<int>(w.X)];
    };
    /* Levels of `count` output steps from `at` on, to where they belong. */
    auto store = [&](int at, int count, unsigned from) {
        from += shared_at + S::LEVELS + br_turned_place(me / 4, me % 4);
        if (count == TURN && w.wide_out && w.lost == nullptr) {
            uint4 v[TURN][U / 32];
#pragma unroll
            for (int o = 0; o < TURN; o++)
#pragma unroll
                for (int i = 0; i < U / 32; i++) v[o][i] = load_shared(from + o * S::WINDOW + i * 32 * SPAN);
#pragma unroll
            for (int o = 0; o < TURN; o++, out += static_cast<size_t>(w.width) * U)
#pragma unroll
                for (int i = 0; i < U / 32; i++)
                    *reinterpret_cast<uint4 *>(out + me % 4 * 16 + place_of(i) * w.X) =
                        finished(v[o][i], true);
        } else {
#pragma unroll 1
            for (int o = 0; o < count; o++, out += static_cast<size_t>(w.width) * U) {
                bool kept = is_kept(at + o);
#pragma unroll 1
                for (int i = 0; i < U / 32; i++)
                    store_16(w, out + me % 4 * 16 + place_of(i) * w.X,
                             finished(load_shared(from + o * S::WINDOW + i * 32 * SPAN), kept));
            }
        }
    };

    /* words: of 8 rows, of those that mirror them */
    auto load_words = [&](unsigned(&words)[2], unsigned from, int chunk) {
        load_turned(words[0], words[1], from + chunk * 8 * SPAN);
    };
    /* past [of the last windows][chunk, mirror][sample 0, re or im]   simd: time 0   thread: sample 3 2 1,
     * time 2 1 */
    unsigned past[TURN][2 * CHUNKS][4];
    beamring::copy_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int o = 0; o < TURN; o++)
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            unsigned words[2];
            load_words(words, load_from + HALF + o * S::WINDOW, chunk);
#pragma unroll
            for (int i = 0; i < 8; i++)
                unpack_one(past[o][chunk * 2 + i / 4][i % 4], words[i / 4], i % 4 / 2, i % 2);
        }

    /* half: of the windows and of the levels, which a turn has; the other one is that of the turns beside it
     */
    unsigned half = 0;
#pragma unroll 1
    for (int at = first; at < end; at += TURN, half = HALF - half) {
        read_me();
        beamring::copy_async_wait<0>();
        __syncthreads();
        stage_turn(at + TURN, HALF - half);

        /* words of a chunk; taps (simd: time 0) and start (of re), the next chunk's beside them: [now % 2],
         * now is the chunk's number within the turn */
        unsigned words[2], starts[2];
        uint4 taps[2];
        auto load = [&](int now) {
            taps[now % 2] = load_shared(record_at + now % CHUNKS * (4 * S::RECORD));
            starts[now % 2] = load_shared_4(record_at + now % CHUNKS * (4 * S::RECORD) + 16);
        };
        load_words(words, load_from + half, 0);
        load(0);
        if (at > first) store(at - TURN, TURN, HALF - half);
#pragma unroll
        for (int o = 0; o < TURN; o++) {
            /* sums [re, im]   simd: pair 0   register: cos and sin, pair 4 3, sample 0   thread: sample 3 2
             * 1, pair 2 1 */
            unsigned sums[2][U / 4];
            unsigned z[2][4]; /* [re, im]   simd: time 0   register: mirror, sample 0 */
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                const int now = o * CHUNKS + chunk;
                if (now + 1 < TURN * CHUNKS) load(now + 1);
                const uint4 t = taps[now % 2];
                const unsigned tap[4] = {t.x, t.y, t.z, t.w},
                               start[2] = {starts[now % 2],
                                           mul2(starts[now % 2], 0x4c004c00u)}; /* 16 times */
#pragma unroll
                for (int part = 0; part < 2; part++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int mirror = i / 2, sample = i % 2, n = chunk * 2 + mirror,
                                  k = sample * 2 + part;
                        unsigned sum = fma2(tap[mirror ? 3 : 0], past[o][n][k], start[part]);
                        sum = fma2(tap[mirror ? 2 : 1], past[(o + 1) % TURN][n][k], sum);
                        sum = fma2(tap[mirror ? 1 : 2], past[(o + 2) % TURN][n][k], sum);
                        unpack_one(past[o][n][k], words[mirror], sample, part);
                        z[part][i] = fma2(tap[mirror ? 0 : 3], past[o][n][k], sum);
                    }
                    beamring::wgmma_hold(z[part]);
                    if (chunk > 0) beamring::wgmma_hold(sums[part]);
                    beamring::wgmma_fence();
                    if (chunk == 0)
                        product<U>::begin(sums[part], z[part], b);
                    else
                        product<U>::multiply(sums[part], z[part], b + chunk * (S::MATRIX / 16));
                    beamring::wgmma_commit();
                    if (part == 1 && now + 1 < TURN * CHUNKS)
                        load_words(words, load_from + half + (now + 1) / CHUNKS * S::WINDOW,
                                   (now + 1) % CHUNKS);
                    if (chunk > 0 || part > 0) beamring::wgmma_wait<1>();
                }
            }
            unsigned number; /* of stmatrix: 16 pairs' lower fine channels, then their other ones */
            asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(number));
            const unsigned store_to = shared_at + S::LEVELS + half + o * S::WINDOW +
                                      br_turned_place(br_resident_half_row(U, number % 32, 16), number / 32);
            beamring::wgmma_wait<0>();
#pragma unroll
            for (int i = 0; i < 2; i++) beamring::wgmma_hold(sums[i]);
            unsigned masks = 0;
#pragma unroll
            for (int two = 0; two < U / 16; two += 2) {
                unsigned levels[4];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int c = 2 * (two + i);
                    const unsigned *re = &sums[0][c], *im = &sums[1][c];
                    /* of u, of U - 1 - u */
                    const uint2 scale = load_shared_8(record_at + (two + i) * (4 * S::RECORD) + 24);
                    spectrum low, high;
                    join_sums(low, high, re, re + U / 8, im, im + U / 8);
                    levels[i] = levels_of(low, scale.x, masks);
                    levels[2 + i] = levels_of(high, scale.y, masks);
                }
                store_turned(store_to + two / 2 * 16 * SPAN, levels[0], levels[1], levels[2], levels[3]);
            }
            if (at + o < end && (w.lost == nullptr || is_kept(at + o))) beyond += masks;
        }
        if ((at & 255) < TURN) add_masks(w, beyond); /* before there are too many of them */
    }
    read_me();
    __syncthreads();
    const int last = first + (end - first - 1) / TURN * TURN; /* turn */
    store(last, end - last, HALF - half);
    add_masks(w, beyond);
    end_after_previous();
#endif
}

} // namespace

#endif
