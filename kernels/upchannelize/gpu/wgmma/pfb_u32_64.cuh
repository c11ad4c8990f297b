/* pfb_u32_64.cuh - the filterbank for U = 32 and 64 and up to 4 taps on Hopper: taps and the first part of
 * the transform, decimated in time, in one product, whose sums stay in registers until they are complete.
 *
 * With SETS = U / 16, r = j mod SETS, and psi(u, s) the phase of fine channel u at step s = m U + j of the
 * window,
 *
 *   F_r[u] = sum over m and j = r mod SETS of e^{i psi(u, s)} W[s] E[(t - M + 1 + m) U + j]
 *   X[u + 16 n] = sum_r e^{-2 pi i r n / SETS} F_r[u]
 *
 * because psi(u + 16 n, s) = psi(u, s) - 2 pi r n / SETS. Fine channels U - 1 - u - 16 n mirror those:
 * their phases are conjugate, and the same sums of cosines and sines make them (gpu/convert.cuh). So
 * products have eight phases u of each set of 16 times, and additions make U fine channels of them.
 *
 * A window of U times contributes to LAGS outputs, each of which has a block of the columns. Their sums
 * are a ring in registers as in pfb_u16.cuh: no sum ever moves, and each sample is read and unpacked once.
 * Windows before the first output of a walk are multiplied with matrices that have zeros for the outputs
 * before it.
 *
 * Samples are unpacked as 8 + n at the first four of eight times of a product, and as 7 - n at the others,
 * whose coefficients have the other sign. What sums begin with takes off what that adds. Were all of them
 * 8 + n, it would add so much to phase 0 that its sums were rounded coarsely; so it is spread over all
 * phases. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U32_64_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U32_64_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/upchannelize/gpu/wgmma/smem_io.cuh"

namespace
{

template <int U_, int BLOCKS_> struct decimated_shape {
    static constexpr int U = U_, BLOCKS = BLOCKS_, THREADS = 128;
    static constexpr int LAGS = BR_DENSE_TAPS, SETS = U / 16;
    static constexpr int N = LAGS * 16, COLUMNS = (4 * LAGS - 3) * 16; /* of a product, of a set's matrix */
    static constexpr int MATRIX = COLUMNS * BR_BAND * 2;               /* bytes, of a set */
    static constexpr int PART = LAGS / 2;                              /* windows between barriers */
    static constexpr int WINDOW = U * BR_TURNED_SPAN;                  /* bytes */
    /* bytes of shared memory: matrices; starts [set][q][cos, sin]; scales [n][q][low, high]; field (from a
     * multiple of 512, as it is swizzled) and levels [window % LAGS]; barriers [part] */
    static constexpr int STARTS = SETS * MATRIX, SCALES = STARTS + SETS * 32, TABLES = SCALES + SETS * 32,
                         FIELD = (TABLES + 511) / 512 * 512, LEVELS = FIELD + LAGS * WINDOW,
                         BARRIERS = LEVELS + LAGS * WINDOW, SHARED = BARRIERS + 16;
};

/* re or im of one of both samples of a word, as unpack_turned, but for which bits are turned over
 * simd: time 0 */
__device__ __forceinline__ unsigned unpack_one(unsigned word, int sample, int is_im, unsigned turned)
{
    unsigned value, bytes = sample ? word >> 8 : word;
    if (is_im)
        asm("lop3.b32 %0, %1, 0x00f000f0, %2, 0x6a;\n" : "=r"(value) : "r"(bytes), "r"(turned));
    else
        asm("lop3.b32 %0, %1, 0x000f000f, %2, 0x6a;\n" : "=r"(value) : "r"(bytes), "r"(turned));
    return value;
}

/* x [n][re, im] = sum_r e^{-2 pi i r n / SETS} x[r], mirror: of the conjugates' phases */
template <int SETS> __device__ __forceinline__ void join_sets(unsigned (&x)[SETS][2], bool mirror)
{
    if constexpr (SETS == 2) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            unsigned even = x[0][k], odd = x[1][k];
            x[0][k] = add2(even, odd);
            x[1][k] = sub2(even, odd);
        }
    } else {
        static_assert(SETS == 4, "two or four sets");
        unsigned even[2][2], odd[2][2]; /* [sum, difference] */
#pragma unroll
        for (int k = 0; k < 2; k++) {
            even[0][k] = add2(x[0][k], x[2][k]);
            even[1][k] = sub2(x[0][k], x[2][k]);
            odd[0][k] = add2(x[1][k], x[3][k]);
            odd[1][k] = sub2(x[1][k], x[3][k]);
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            x[0][k] = add2(even[0][k], odd[0][k]);
            x[2][k] = sub2(even[0][k], odd[0][k]);
        }
        const int one = mirror ? 3 : 1; /* even - i odd */
        x[one][0] = add2(even[1][0], odd[1][1]);
        x[one][1] = sub2(even[1][1], odd[1][0]);
        x[4 - one][0] = sub2(even[1][0], odd[1][1]);
        x[4 - one][1] = add2(even[1][1], odd[1][0]);
    }
}

/* PLAIN: all of the call is aligned, and the accelerator copies windows and levels, as `field_map` and
 * `levels_map` say (mapped_work). LOST: outputs may be missing. */
template <class S, bool PLAIN, bool LOST>
__device__ __forceinline__ void decimate(const tensor_work &w, const CUtensorMap *field_map,
                                         const CUtensorMap *levels_map)
{
    constexpr int U = S::U, SETS = S::SETS, LAGS = S::LAGS, PART = S::PART, SPAN = BR_TURNED_SPAN;
    extern __shared__ __align__(1024) uint4 shared[];
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
                   tables_at = shared_at + S::STARTS + 8 * q;
    const uint64_t b = br_wgmma_descriptor(shared_at, 128, 256, BR_WGMMA_PLAIN);

    /* The thread's number, read again rather than kept over a turn. */
    unsigned me = static_cast<unsigned>(thread);
    auto read_me = [&] { asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(me)); };
    /* 16 bytes of the rows me / 4 + 32 i of a window. from: shape (U), stride `apart` -> after the block's
     * column */
    auto stage = [&](unsigned to, const uint8_t *from, size_t apart, bool wide) {
        to += shared_at + S::FIELD + br_turned_place(me / 4, me % 4);
        from += me % 4 * 16 + br_decimated_time(U, me / 4) * apart;
        if (wide) {
#pragma unroll
            for (unsigned i = 0; i < U / 32; i++)
                stage_16(to + i * 32 * SPAN, from + br_decimated_time(U, i * 32) * apart);
        } else {
#pragma unroll 1
            for (unsigned i = 0; i < U / 32; i++)
#pragma unroll 1
                for (unsigned k = 0; k < 4; k++)
                    asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to + i * 32 * SPAN + 4 * k),
                                 "r"(load_bytes(from + br_decimated_time(U, i * 32) * apart + 4 * k))
                                 : "memory");
        }
    };
    /* `count` windows from `at` on, wherever they are */
    auto stage_any = [&](int at, int count, unsigned to) {
#pragma unroll 1
        for (int window = at; window < at + count && window < end; window++, to += S::WINDOW) {
            size_t apart = window < 0 ? static_cast<size_t>(w.width) : w.row;
            stage(to, field_row(w, window * U) + base, apart, PLAIN || window < 0 || w.wide_in);
        }
    };
    constexpr int STORER = 32; /* the thread that has levels stored; thread 0 has windows loaded */
    beamring::barrier *full = reinterpret_cast<beamring::barrier *>(shared + S::BARRIERS / 16);
    /* PART windows from `at` on, none of them history, to a part of the ring */
    auto stage_part = [&](int at, unsigned to) {
        if constexpr (PLAIN) {
            if (me != 0) return;
            beamring::barrier *of_part = full + to / (PART * S::WINDOW);
            beamring::barrier_expect(of_part, at < end ? PART * S::WINDOW : 0);
            if (at < end)
                beamring::tensor_load(shared + (S::FIELD + to) / 16, field_map, of_part, base, 0, 0, at);
        } else {
            stage_any(at, PART, to);
            beamring::copy_async_commit();
        }
    };
    auto wait_for_part = [&](unsigned part, unsigned phase) {
        if constexpr (PLAIN)
            beamring::barrier_wait(full + part, phase);
        else
            beamring::copy_async_wait<0>();
    };
    if (PLAIN && thread == 0) {
        for (int part = 0; part < LAGS / PART; part++) beamring::barrier_start(full + part, 1);
        beamring::barrier_publish();
    }
    /* The windows before the first output's are where levels will be, each in its place of the ring. */
    constexpr unsigned BEFORE = S::LEVELS - S::FIELD;
    stage_any(first - (LAGS - 1), LAGS - 1, BEFORE + S::WINDOW);
    if (PLAIN) beamring::copy_async_commit();
    stage_part(first, 0);
    stage_part(first + PART, PART * S::WINDOW);
    for (int i = thread; i < S::STARTS / 16; i += S::THREADS) shared[i] = __ldg(w.matrices + i);
    for (int i = thread; i < (S::TABLES - S::STARTS) / 16; i += S::THREADS)
        shared[S::STARTS / 16 + i] = __ldg(w.starts + i);
    beamring::publish_shared();
    beamring::copy_async_wait<PLAIN ? 0 : 1>();
    __syncthreads();

    /* out: shape (T/U, F, U, X), contiguous -> after the output step and the block's samples of u = 0 */
    const size_t f = static_cast<size_t>(base) / w.X, x = static_cast<size_t>(base) - f * w.X;
    const ptrdiff_t out_step = static_cast<ptrdiff_t>(w.width) * U;
    uint8_t *out = w.out + first * out_step + static_cast<ptrdiff_t>(f * U * w.X + x);
    unsigned beyond = 0;

    auto is_kept = [&](int at) {
        return !LOST || !read_lost(w, static_cast<size_t>(at - w.first) * w.F + f, at < end);
    };
    /* Levels of PART output steps from `at` on, of which those from `end` on are none. */
    auto store = [&](int at, unsigned from) {
        if constexpr (PLAIN) { /* walks are whole parts, but the last, where the map ends too */
            if (me != STORER || at >= end) return;
            beamring::tensor_store(levels_map, shared + (S::LEVELS + from) / 16, static_cast<int>(x), 0,
                                   static_cast<int>(f), at);
            beamring::bulk_commit();
        } else {
            from += shared_at + S::LEVELS + br_turned_place(me / 4, me % 4);
#pragma unroll 1
            for (int o = 0; o < PART; o++, out += out_step, from += S::WINDOW) {
                if (at + o >= end) continue;
                const field_bytes finished(is_kept(at + o));
#pragma unroll 1
                for (unsigned i = 0; i < U / 32; i++)
                    store_16(w, out + me % 4 * 16 + (me / 4 + 32 * i) * w.X,
                             finished(load_shared(from + i * 32 * SPAN)));
            }
        }
    };

    /* sums [set][re, im]   simd: phase 0   register: ring, then cos and sin, sample 0   thread: sample 3 2 1,
     * phase 2 1 */
    unsigned sums[SETS][2][LAGS * 4];
    auto begin_sums = [&](int ring) {
#pragma unroll
        for (int set = 0; set < SETS; set++) {
            const uint2 start = load_shared_8(tables_at + set * 32);
            const unsigned start_of[2] = {start.x, start.y};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sums[set][0][ring * 4 + i] = start_of[i / 2];
                sums[set][1][ring * 4 + i] = mul2(start_of[i / 2], 0x4c004c00u); /* 16 times */
            }
        }
    };
#pragma unroll
    for (int i = 0; i < LAGS; i++) begin_sums(i);

    unsigned words[2][2]; /* of a set and of the next one: [set % 2] */
    const unsigned load_from = shared_at + S::FIELD + br_turned_place(static_cast<unsigned>(lane) % 16, warp);
    auto load_words = [&](unsigned window, int set) {
        load_turned(words[set % 2][0], words[set % 2][1], load_from + window + set * BR_BAND * SPAN);
    };
    const bool is_turned = br_decimated_is_turned(2 * q);
    const unsigned turned[2] = {is_turned ? 0x00070007u : 0x00080008u, is_turned ? 0x00700070u : 0x00800080u};
    /* With a window, whose first words are loaded; block: of the matrices, with which their columns begin. */
    auto multiply = [&](unsigned block, unsigned window) {
        constexpr int BLOCK = 16 * 2 * BR_BAND / 16; /* of the matrix, in units of the descriptor */
        const uint64_t columns = b + block * BLOCK;
        unsigned a[2][4]; /* [re, im]   simd: time 0   register: time 3, sample 0   thread: sample 3 2 1, time
                             2 1 */
#pragma unroll
        for (int set = 0; set < SETS; set++) {
            if (set + 1 < SETS) load_words(window, set + 1);
#pragma unroll
            for (int part = 0; part < 2; part++) {
                if (set > 0) {
                    beamring::wgmma_wait<1>();
                    beamring::wgmma_hold(a[part]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[part][i] = unpack_one(words[set % 2][i / 2], i % 2, part, turned[part]);
                beamring::wgmma_hold(a[part]);
                beamring::wgmma_hold(sums[set][part]);
                beamring::wgmma_fence();
                product<S::N>::multiply(sums[set][part], a[part], columns + set * (S::MATRIX / 16));
                beamring::wgmma_commit();
            }
        }
    };
    auto wait_for_sums = [&] {
        beamring::wgmma_wait<0>();
#pragma unroll
        for (int set = 0; set < SETS; set++)
#pragma unroll
            for (int part = 0; part < 2; part++) beamring::wgmma_hold(sums[set][part]);
    };
#pragma unroll
    for (int i = 1; i < LAGS; i++) { /* window `first` - LAGS + i */
        load_words(BEFORE + i * S::WINDOW, 0);
        multiply(br_decimated_block(LAGS, static_cast<unsigned>(i)), BEFORE + i * S::WINDOW);
        wait_for_sums();
    }
    __syncthreads(); /* before levels take their place */
    if (PLAIN) wait_for_part(0, 0);
    load_words(0, 0);
    unsigned turn = 0; /* its parity */
    /* a turn: once around the ring */
#pragma unroll 1
    for (int at = first; at < end; at += LAGS, turn ^= 1) {
#pragma unroll
        for (int ring = 0; ring < LAGS; ring++) { /* whose block `ring` becomes complete */
            const bool kept = is_kept(at + ring);
            multiply(br_walk_block(LAGS, static_cast<unsigned>(ring)), ring * S::WINDOW);
            const field_bytes finished(kept);
            unsigned number; /* of stmatrix: row 4 3 2 1 0 */
            asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(number));
            const unsigned levels_at = shared_at + S::LEVELS + ring * S::WINDOW,
                           store_to =
                               levels_at + br_turned_place(br_decimated_channel(U, number % 32), number / 32);
            wait_for_sums();

            /* levels [u + 16 n; U - 1 - u - 16 n]: bytes of a sample, then of both   simd: phase 0 */
            unsigned masks = 0, levels[2 * SETS];
#pragma unroll
            for (int mirror = 0; mirror < 2; mirror++) {
#pragma unroll
                for (int sample = 0; sample < 2; sample++) {
                    constexpr unsigned SIXTEENTH = 0x2c002c00u, MINUS_SIXTEENTH = 0xac00ac00u;
                    unsigned x[SETS][2];
#pragma unroll
                    for (int set = 0; set < SETS; set++) { /* [cos, sin][sample] */
                        const unsigned *re = &sums[set][0][ring * 4 + sample],
                                       *im = &sums[set][1][ring * 4 + sample];
                        x[set][0] = fma2(im[2], mirror ? SIXTEENTH : MINUS_SIXTEENTH, re[0]);
                        x[set][1] = mirror ? fms2(im[0], SIXTEENTH, re[2]) : fma2(im[0], SIXTEENTH, re[2]);
                    }
                    join_sets<SETS>(x, mirror);
#pragma unroll
                    for (int n = 0; n < SETS; n++) {
                        unsigned byte = byte_of(
                                     x[n][0], x[n][1],
                                     load_shared_4(tables_at + (S::SCALES - S::STARTS) + n * 32 + mirror * 4),
                                     masks),
                                 &level = levels[mirror * SETS + n];
                        level = sample ? byte * 256 + level : byte;
                    }
                }
                /* Counting is put off else, until there are too many registers to be counted. */
                levels[mirror * SETS] |= masks & w.zero;
                if (PLAIN)
#pragma unroll
                    for (int n = 0; n < SETS; n++)
                        levels[mirror * SETS + n] = finished(levels[mirror * SETS + n]);
                const unsigned *four = &levels[mirror * SETS / 4 * 4];
                /* U = 64: the place of row 63 - u is as far from the end as that of u from the beginning */
                if (SETS == 4 && mirror)
                    store_turned(2 * levels_at + (S::WINDOW - 16) - store_to, four[0], four[1], four[2],
                                 four[3]);
                else if (SETS == 4 || mirror)
                    store_turned(store_to, four[0], four[1], four[2], four[3]);
            }
            if (ring % PART == PART - 1) {
                /* Who is here has read this part of the field and made its levels: the next part but one
                 * takes its place, and the next one has come. */
                const int part = ring + 1 - PART;
                read_me();
                wait_for_part(part == 0, part == 0 ? turn : turn ^ 1);
                if (PLAIN) beamring::publish_shared(); /* levels, to the accelerator */
                if (PLAIN && me == STORER)
                    beamring::bulk_wait_read<0>(); /* the part before has been stored */
                __syncthreads();
                load_words((ring + 1) % LAGS * S::WINDOW, 0);
                stage_part(at + part + LAGS, part * S::WINDOW);
                store(at + part, part * S::WINDOW);
            }
            if (ring % PART != PART - 1) load_words((ring + 1) % LAGS * S::WINDOW, 0);
            begin_sums(ring);
            if (at + ring < end && kept) beyond += masks;
        }
        if ((at & 255) < LAGS) add_masks(w, beyond); /* before there are too many of them */
    }
    add_masks(w, beyond);
    if (PLAIN && thread == STORER) beamring::bulk_wait<0>();
    end_after_previous();
}

template <class S, bool LOST>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    decimated_mapped(const __grid_constant__ mapped_work m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    decimate<S, true, LOST>(m.w, &m.field, &m.levels);
#endif
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS) decimated(const __grid_constant__ tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    decimate<S, false, true>(w, nullptr, nullptr);
#endif
}

} // namespace

#endif
