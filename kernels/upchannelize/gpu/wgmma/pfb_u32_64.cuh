/* pfb_u32_64.cuh - the filterbank for U = 32 and 64 and up to 4 taps on Hopper: the taps and the first part
 * of the transform (a Cooley-Tukey step) are one product. Its sums stay in registers until they are complete.
 *
 * With SETS = U / 16, r = j mod SETS, and psi(u, s) the phase of fine channel u at step s = m U + j of the
 * window,
 *
 *   F_r[u] = sum over m and j = r mod SETS of e^{i psi(u, s)} W[s] E[(t - M + 1 + m) U + j]
 *   X[u + 16 n] = sum_r e^{-2 pi i r n / SETS} F_r[u]
 *
 * because psi(u + 16 n, s) = psi(u, s) - 2 pi r n / SETS. Fine channels U - 1 - u - 16 n mirror those: their
 * phases are conjugate, and the same sums of cosines and sines make them (gpu/convert.cuh). So the products
 * have only eight phases u of each set of 16 times, and additions make U fine channels of them.
 *
 * A window of U times contributes to LAGS outputs, each of which has a block of 16 columns. Their
 * accumulators are a ring in registers, as in pfb_u16.cuh: no sum ever moves, and each sample is read and
 * unpacked once. The prologue multiplies the windows before a block's first output with matrices that have
 * zeros for the outputs before it.
 *
 * Samples are unpacked as 8 + n at the first four of eight times of a product, and as 7 - n at the others,
 * whose coefficients have the other sign. The accumulators' starting values take off what that adds. Were all
 * samples 8 + n, they would add so much to phase 0 that its sums were rounded coarsely; this way it is spread
 * over all phases. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U32_64_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U32_64_CUH

#include "kernels/common/hopper.cuh"
#include "kernels/upchannelize/gpu/wgmma/smem_io.cuh"

namespace
{

template <int U_, int BLOCKS_> struct u32_64_shape {
    static constexpr int U = U_, BLOCKS = BLOCKS_, THREADS = 128;
    /* For the kernel that also takes unaligned data: its addresses need registers that three blocks of U = 64
     * leave no room for. Without them ptxas would serialise the products. */
    static constexpr int BLOCKS_ANYWHERE = U == 64 ? 2 : BLOCKS;
    static constexpr int LAGS = BR_PFB_TAPS, SETS = U / 16;
    static constexpr int N = LAGS * 16;                       /* columns of a product */
    static constexpr int COLUMNS = (4 * LAGS - 3) * 16;       /* columns of a set's matrix */
    static constexpr int MATRIX = COLUMNS * BR_PFB_CHUNK * 2; /* bytes, of a set */
    static constexpr int PART = LAGS / 2;                     /* windows between barriers */
    static constexpr int WINDOW = U * BR_PFB_SPAN;            /* bytes */
    /* Bytes of shared memory: matrices; starts [set][q][cos, sin]; scales [n][q][low, high]; field (from a
     * multiple of 512, as it is swizzled) and levels [window % LAGS]; barriers [part] */
    static constexpr int STARTS = SETS * MATRIX, SCALES = STARTS + SETS * 32, TABLES = SCALES + SETS * 32,
                         FIELD = (TABLES + 511) / 512 * 512, LEVELS = FIELD + LAGS * WINDOW,
                         BARRIERS = LEVELS + LAGS * WINDOW, SHARED = BARRIERS + 16;
};

/* re or im of one of the two samples of a word, as unpack_pairs does it with 8 + n; `flip`: the bits to
 * invert
 *   simd: time 0 */
__device__ __forceinline__ unsigned unpack_one(unsigned word, int sample, int is_im, unsigned flip)
{
    unsigned value, bytes = sample ? word >> 8 : word;
    if (is_im)
        asm("lop3.b32 %0, %1, 0x00f000f0, %2, 0x6a;\n" : "=r"(value) : "r"(bytes), "r"(flip));
    else
        asm("lop3.b32 %0, %1, 0x000f000f, %2, 0x6a;\n" : "=r"(value) : "r"(bytes), "r"(flip));
    return value;
}

/* x [n][re, im] = sum_r e^{-2 pi i r n / SETS} x[r], in place; mirror: with the conjugate phases. */
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

/* A thread's part of a block, which has 64 samples of the row from `base` and output steps [first, end).
 * MAPPED: all of the call is aligned, and the tensor memory accelerator copies windows and levels, as
 * `field_map` and `levels_map` say (mapped_work). MISSING: outputs may be missing. */
template <class S, bool MAPPED, bool MISSING> struct u32_64_filter {
    static constexpr int U = S::U, SETS = S::SETS, LAGS = S::LAGS, PART = S::PART, SPAN = BR_PFB_SPAN;
    static constexpr int STORER = 32; /* the thread that stores levels; thread 0 loads windows */
    /* The windows before the first output's are where levels will be, each in its place of the ring. */
    static constexpr unsigned BEFORE = S::LEVELS - S::FIELD;

    const tensor_work &w;
    const CUtensorMap *field_map, *levels_map;
    uint4 *shared;
    int lane, thread;
    unsigned q, warp; /* q: lane % 4 */
    int base, first, end;
    unsigned shared_at, tables_at; /* addresses of shared memory; of the lane's starts and scales */
    unsigned me;                   /* the thread's number, read again rather than kept over an iteration */
    uint64_t b;                    /* descriptor of the matrices */
    size_t f, x;                   /* channel, and sample in it, of the block's first sample */
    /* out: shape (T/U, F, U, X), contiguous -> after the output step and the block's samples of u = 0 */
    uint8_t *out;
    /* sums [set][re, im]   simd: phase 0   register: ring, then cos and sin, sample 0
     *                      thread: sample 3 2 1, phase 2 1 */
    unsigned sums[SETS][2][LAGS * 4];
    unsigned words[2][2]; /* of a set and of the next one: [set % 2] */
    unsigned load_from;   /* of ldmatrix */
    unsigned flip[2];     /* which bits unpack_one inverts: re, im */
    unsigned beyond;      /* masks of clamped values, added up */

    __device__ __forceinline__ beamring::barrier *full() const
    {
        return reinterpret_cast<beamring::barrier *>(shared + S::BARRIERS / 16);
    }
    __device__ __forceinline__ void read_me() { asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(me)); }

    /* ---- input ---- */

    /* 16 bytes of the rows me / 4 + 32 i of a window.
     * from: shape (U), stride `apart` -> after the block's column */
    __device__ __forceinline__ void stage(unsigned to, const uint8_t *from, size_t apart, bool wide) const
    {
        to += shared_at + S::FIELD + br_pfb_row_place(me / 4, me % 4);
        from += me % 4 * 16 + br_pfb_u32_64_time(U, me / 4) * apart;
        if (wide) {
#pragma unroll
            for (unsigned i = 0; i < U / 32; i++)
                stage_16(to + i * 32 * SPAN, from + br_pfb_u32_64_time(U, i * 32) * apart);
        } else {
#pragma unroll 1
            for (unsigned i = 0; i < U / 32; i++)
                stage_16_bytes(to + i * 32 * SPAN, from + br_pfb_u32_64_time(U, i * 32) * apart);
        }
    }
    /* `count` windows from `at` on, in this call or in the history. */
    __device__ __forceinline__ void stage_any(int at, int count, unsigned to) const
    {
#pragma unroll 1
        for (int window = at; window < at + count && window < end; window++, to += S::WINDOW) {
            size_t apart = window < 0 ? static_cast<size_t>(w.width) : w.row;
            stage(to, field_row(w, window * U) + base, apart, MAPPED || window < 0 || w.wide_in);
        }
    }
    /* PART windows from `at` on, none of them history, to a part of the ring. */
    __device__ __forceinline__ void stage_part(int at, unsigned to) const
    {
        if constexpr (MAPPED) {
            if (me != 0) return;
            beamring::barrier *of_part = full() + to / (PART * S::WINDOW);
            beamring::barrier_expect(of_part, at < end ? PART * S::WINDOW : 0);
            if (at < end)
                beamring::tensor_load(shared + (S::FIELD + to) / 16, field_map, of_part, base, 0, 0, at);
        } else {
            stage_any(at, PART, to);
            beamring::copy_async_commit();
        }
    }
    __device__ __forceinline__ void wait_for_part(unsigned part, unsigned phase) const
    {
        if constexpr (MAPPED)
            beamring::barrier_wait(full() + part, phase);
        else
            beamring::copy_async_wait<0>();
    }
    /* The first windows and the tables; ends with a barrier. */
    __device__ __forceinline__ void load_first()
    {
        if (MAPPED && thread == 0) {
            for (int part = 0; part < LAGS / PART; part++) beamring::barrier_start(full() + part, 1);
            beamring::barrier_publish();
        }
        stage_any(first - (LAGS - 1), LAGS - 1, BEFORE + S::WINDOW);
        if (MAPPED) beamring::copy_async_commit();
        stage_part(first, 0);
        stage_part(first + PART, PART * S::WINDOW);
        for (int i = thread; i < S::STARTS / 16; i += S::THREADS) shared[i] = __ldg(w.matrices + i);
        for (int i = thread; i < (S::TABLES - S::STARTS) / 16; i += S::THREADS)
            shared[S::STARTS / 16 + i] = __ldg(w.starts + i);
        beamring::publish_shared();
        beamring::copy_async_wait<MAPPED ? 0 : 1>();
        __syncthreads();
    }

    /* ---- products ---- */

    /* Starting values of the accumulators of one block of the ring. */
    __device__ __forceinline__ void begin_sums(int ring)
    {
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
    }
    __device__ __forceinline__ void load_words(unsigned window, int set)
    {
        load_transposed(words[set % 2][0], words[set % 2][1], load_from + window + set * BR_PFB_CHUNK * SPAN);
    }
    /* Adds a window, whose first words are loaded; block: where in the matrices its columns begin. */
    __device__ __forceinline__ void multiply(unsigned block, unsigned window)
    {
        constexpr int BLOCK = 16 * 2 * BR_PFB_CHUNK / 16; /* of the matrix, in units of the descriptor */
        const uint64_t columns = b + block * BLOCK;
        /* a [re, im]   simd: time 0   register: time 3, sample 0   thread: sample 3 2 1, time 2 1 */
        unsigned a[2][4];
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
                    a[part][i] = unpack_one(words[set % 2][i / 2], i % 2, part, flip[part]);
                beamring::wgmma_hold(a[part]);
                beamring::wgmma_hold(sums[set][part]);
                beamring::wgmma_fence();
                product<S::N>::multiply(sums[set][part], a[part], columns + set * (S::MATRIX / 16));
                beamring::wgmma_commit();
            }
        }
    }
    __device__ __forceinline__ void wait_for_sums()
    {
        beamring::wgmma_wait<0>();
#pragma unroll
        for (int set = 0; set < SETS; set++)
#pragma unroll
            for (int part = 0; part < 2; part++) beamring::wgmma_hold(sums[set][part]);
    }
    /* The prologue: windows `first` - LAGS + 1 to `first` - 1. */
    __device__ __forceinline__ void multiply_before()
    {
#pragma unroll
        for (int i = 1; i < LAGS; i++) { /* window `first` - LAGS + i */
            load_words(BEFORE + i * S::WINDOW, 0);
            multiply(br_pfb_u32_64_first_block(LAGS, static_cast<unsigned>(i)), BEFORE + i * S::WINDOW);
            wait_for_sums();
        }
    }

    /* ---- output ---- */

    __device__ __forceinline__ bool is_kept(int at) const
    {
        return !MISSING || !read_missing(w, static_cast<size_t>(at - w.first) * w.F + f, at < end);
    }
    /* levels [n]: sample `sample` of fine channels u + 16 n, or of U - 1 - u - 16 n (mirror), of the complete
     * block `ring` of the accumulators: the transform's second part, and rounding.
     *   simd: phase 0 */
    __device__ __forceinline__ void quantize_sums(unsigned *levels, int ring, int mirror, int sample,
                                                  unsigned &masks) const
    {
        constexpr unsigned SIXTEENTH = 0x2c002c00u, MINUS_SIXTEENTH = 0xac00ac00u;
        unsigned z[SETS][2];
#pragma unroll
        for (int set = 0; set < SETS; set++) { /* [cos, sin][sample] */
            const unsigned *re = &sums[set][0][ring * 4 + sample], *im = &sums[set][1][ring * 4 + sample];
            z[set][0] = fma2(im[2], mirror ? SIXTEENTH : MINUS_SIXTEENTH, re[0]);
            z[set][1] = mirror ? fms2(im[0], SIXTEENTH, re[2]) : fma2(im[0], SIXTEENTH, re[2]);
        }
        join_sets<SETS>(z, mirror);
#pragma unroll
        for (int n = 0; n < SETS; n++) {
            unsigned scale = load_shared_4(tables_at + (S::SCALES - S::STARTS) + n * 32 + mirror * 4),
                     byte = quantize_sample(z[n][0], z[n][1], scale, masks);
            levels[n] = sample ? byte * 256 + levels[n] : byte;
        }
    }
    /* The complete block `ring` of the accumulators to levels in shared memory. Returns the masks of clamped
     * values. */
    __device__ __forceinline__ unsigned quantize_ring(int ring, const field_bytes &to_int4,
                                                      unsigned levels_at, unsigned store_to) const
    {
        /* levels [u + 16 n; U - 1 - u - 16 n]: bytes of a sample, then of both   simd: phase 0 */
        unsigned masks = 0, levels[2 * SETS];
#pragma unroll
        for (int mirror = 0; mirror < 2; mirror++) {
#pragma unroll
            for (int sample = 0; sample < 2; sample++)
                quantize_sums(levels + mirror * SETS, ring, mirror, sample, masks);
            /* Adds nothing, but the masks are needed here: the compiler would put off counting otherwise,
             * until there are too many registers to be counted. */
            levels[mirror * SETS] |= masks & w.zero;
            if (MAPPED)
#pragma unroll
                for (int n = 0; n < SETS; n++) levels[mirror * SETS + n] = to_int4(levels[mirror * SETS + n]);
            const unsigned *four = &levels[mirror * SETS / 4 * 4];
            /* U = 64: the place of row 63 - u is as far from the end as that of u from the beginning */
            if (SETS == 4 && mirror)
                store_transposed(2 * levels_at + (S::WINDOW - 16) - store_to, four[0], four[1], four[2],
                                 four[3]);
            else if (SETS == 4 || mirror)
                store_transposed(store_to, four[0], four[1], four[2], four[3]);
        }
        return masks;
    }
    /* Levels of PART output steps from `at` on, from shared to global memory; steps from `end` on do not
     * exist. */
    __device__ __forceinline__ void store(int at, unsigned from)
    {
        if constexpr (MAPPED) { /* a block has whole parts, but for the last block, where the map ends too */
            if (me != STORER || at >= end) return;
            beamring::tensor_store(levels_map, shared + (S::LEVELS + from) / 16, static_cast<int>(x), 0,
                                   static_cast<int>(f), at);
            beamring::bulk_commit();
        } else {
            from += shared_at + S::LEVELS + br_pfb_row_place(me / 4, me % 4);
            const ptrdiff_t out_step = static_cast<ptrdiff_t>(w.width) * U;
#pragma unroll 1
            for (int o = 0; o < PART; o++, out += out_step, from += S::WINDOW) {
                if (at + o >= end) continue;
                const field_bytes to_int4(is_kept(at + o));
#pragma unroll 1
                for (unsigned i = 0; i < U / 32; i++)
                    store_16(w, out + me % 4 * 16 + (me / 4 + 32 * i) * w.X,
                             to_int4(load_shared(from + i * 32 * SPAN)));
            }
        }
    }

    /* ---- the loop over time ---- */

    /* At the end of a part of the ring: all threads have read this part of the field and made its levels. The
     * next part but one takes its place, and the next one has come. */
    __device__ __forceinline__ void next_part(int at, int part, unsigned next_window, unsigned parity)
    {
        read_me();
        wait_for_part(part == 0, part == 0 ? parity : parity ^ 1);
        if (MAPPED) beamring::publish_shared();                    /* levels, to the accelerator */
        if (MAPPED && me == STORER) beamring::bulk_wait_read<0>(); /* the part before has been stored */
        __syncthreads();
        load_words(next_window, 0);
        stage_part(at + part + LAGS, part * S::WINDOW);
        store(at + part, part * S::WINDOW);
    }
    /* One output step: block `ring` of the accumulators becomes complete. Returns its masks of clamped
     * values, 0 where they do not count. */
    __device__ __forceinline__ void output(int at, int ring, unsigned parity)
    {
        const bool kept = is_kept(at + ring);
        multiply(br_pfb_lag_block(LAGS, static_cast<unsigned>(ring)), ring * S::WINDOW);
        const field_bytes to_int4(kept);
        unsigned number; /* of stmatrix: row 4 3 2 1 0 */
        asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(number));
        const unsigned levels_at = shared_at + S::LEVELS + ring * S::WINDOW,
                       store_to =
                           levels_at + br_pfb_row_place(br_pfb_u32_64_channel(U, number % 32), number / 32);
        wait_for_sums();
        const unsigned masks = quantize_ring(ring, to_int4, levels_at, store_to),
                       next_window = (ring + 1) % LAGS * S::WINDOW;
        if (ring % PART == PART - 1)
            next_part(at, ring + 1 - PART, next_window, parity);
        else
            load_words(next_window, 0);
        begin_sums(ring);
        if (at + ring < end && kept) beyond += masks;
    }
    __device__ __forceinline__ void run()
    {
        shared_at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
        tables_at = shared_at + S::STARTS + 8 * q;
        me = static_cast<unsigned>(thread);
        b = br_wgmma_descriptor(shared_at, 128, 256, BR_WGMMA_PLAIN);
        load_first();
        f = static_cast<size_t>(base) / w.X;
        x = static_cast<size_t>(base) - f * w.X;
        out = w.out + first * (static_cast<ptrdiff_t>(w.width) * U) + static_cast<ptrdiff_t>(f * U * w.X + x);
#pragma unroll
        for (int i = 0; i < LAGS; i++) begin_sums(i);
        load_from = shared_at + S::FIELD + br_pfb_row_place(static_cast<unsigned>(lane) % 16, warp);
        const bool is_negated = br_pfb_u32_64_is_negated(2 * q);
        flip[0] = is_negated ? 0x00070007u : 0x00080008u;
        flip[1] = is_negated ? 0x00700070u : 0x00800080u;
        beyond = 0;
        multiply_before();
        __syncthreads(); /* before levels take their place */
        if (MAPPED) wait_for_part(0, 0);
        load_words(0, 0);
        unsigned parity = 0; /* of the iteration, once around the ring */
#pragma unroll 1
        for (int at = first; at < end; at += LAGS, parity ^= 1) {
#pragma unroll
            for (int ring = 0; ring < LAGS; ring++) output(at, ring, parity);
            if ((at & 255) < LAGS) add_masks(w, beyond); /* before there are too many of them */
        }
        add_masks(w, beyond);
        if (MAPPED && thread == STORER) beamring::bulk_wait<0>();
    }
};

template <class S, bool MAPPED, bool MISSING>
__device__ __forceinline__ void filter_u32_64(const tensor_work &w, const CUtensorMap *field_map,
                                              const CUtensorMap *levels_map)
{
    extern __shared__ __align__(1024) uint4 shared[];
    const int lane = static_cast<int>(threadIdx.x) % 32, thread = static_cast<int>(threadIdx.x);
    const unsigned q = lane % 4, warp = thread / 32;
    let_next_begin();
    const int base = static_cast<int>(blockIdx.x) * BR_PFB_SPAN;
    if (blockIdx.y == gridDim.y - 1) { /* the last row of blocks, while the others are still at work */
        remember_wide(w, base, BR_PFB_SPAN);
        end_after_previous();
        return;
    }
    const int first = w.first + static_cast<int>(blockIdx.y) * w.each;
    u32_64_filter<S, MAPPED, MISSING> filter = {
        w, field_map, levels_map, shared, lane, thread, q, warp, base, first, min(w.last, first + w.each)};
    filter.run();
    end_after_previous();
}

template <class S, bool MISSING>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    wgmma_pfb_u32_64_mapped(const __grid_constant__ mapped_work m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    filter_u32_64<S, true, MISSING>(m.w, &m.field, &m.levels);
#endif
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS_ANYWHERE)
    wgmma_pfb_u32_64(const __grid_constant__ tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    filter_u32_64<S, false, true>(w, nullptr, nullptr);
#endif
}

} // namespace

#endif
