/* warpgroup.cuh - the filterbank for U up to 32 on Hopper: taps and transform as one banded matrix,
 * multiplied by whole warpgroups beside the rest of the work.
 *
 * As in banded.cuh, but samples are rows of the product, and the coefficients its columns: a chunk of 16
 * steps is a (64 samples by 16 times, from registers), multiplied at once with the coefficients of all
 * outputs that it contributes to. The sums of these LAGS units of output stay in registers, in a ring: unit c
 * has block c % LAGS of the columns. No sum ever moves: the matrix in shared memory has the lags 0, 1, ...
 * LAGS - 1 and again 0, 1, ..., and what begins within it is the matrix for another position of the ring.
 *
 * A unit is 16 steps, or 32 (two chunks) for U of 32. A warpgroup has 128 samples of the row and walks along
 * time; each of its warps stages the input of its own 32 through shared memory, some units ahead. While a
 * unit's products are under way, the unit before it becomes levels. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_WARPGROUP_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_WARPGROUP_CUH

#include "kernels/common/wgmma.cuh"
#include "kernels/upchannelize/level.cuh"

namespace
{

/* ---- products ---- */

/* c (64 by N, float16) += a b, as wgmma_f16 (which has float32 sums).
 *   c [N / 4]   simd: column0   register: column7 6 5 4 3, row3   thread: row5 4 2 1 0, column2 1
 *   a [4]       simd: k0        register: k3, row3                thread: row5 4 2 1 0, k2 1 */
template <int N> struct product;
#define BR_PRODUCT(N, COUNT, a0, a1, a2, a3, descriptor)                                                     \
    template <> struct product<N> {                                                                          \
        static __device__ __forceinline__ void multiply(unsigned (&c)[COUNT], const unsigned (&a)[4],        \
                                                        uint64_t b)                                          \
        {                                                                                                    \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f16.f16.f16 {" BR_LIST_##COUNT          \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #descriptor ", 1, 1, 1, 0;\n"      \
                         : BR_OUT_##COUNT(c, 0)                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
        }                                                                                                    \
    };
#define BR_LIST_8  "%0, %1, %2, %3, %4, %5, %6, %7"
#define BR_LIST_12 BR_LIST_8 ", %8, %9, %10, %11"
#define BR_LIST_16 BR_LIST_12 ", %12, %13, %14, %15"
#define BR_LIST_32                                                                                           \
    BR_LIST_16                                                                                               \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BR_OUT_4(c, i)  "+r"((c)[i]), "+r"((c)[(i) + 1]), "+r"((c)[(i) + 2]), "+r"((c)[(i) + 3])
#define BR_OUT_8(c, i)  BR_OUT_4(c, i), BR_OUT_4(c, (i) + 4)
#define BR_OUT_12(c, i) BR_OUT_8(c, i), BR_OUT_4(c, (i) + 8)
#define BR_OUT_16(c, i) BR_OUT_8(c, i), BR_OUT_8(c, (i) + 8)
#define BR_OUT_32(c, i) BR_OUT_16(c, i), BR_OUT_16(c, (i) + 16)
BR_PRODUCT(32, 8, 8, 9, 10, 11, 12)
BR_PRODUCT(48, 12, 12, 13, 14, 15, 16)
BR_PRODUCT(64, 16, 16, 17, 18, 19, 20)
BR_PRODUCT(128, 32, 32, 33, 34, 35, 36)
#undef BR_PRODUCT
#undef BR_LIST_8
#undef BR_LIST_12
#undef BR_LIST_16
#undef BR_LIST_32
#undef BR_OUT_4
#undef BR_OUT_8
#undef BR_OUT_12
#undef BR_OUT_16
#undef BR_OUT_32

/* ---- levels ---- */

/* 0xffff where |a| >= b, else 0 */
__device__ __forceinline__ unsigned beyond_mask2(unsigned a, unsigned b)
{
    unsigned c;
    asm("{.reg .b32 size;\n abs.f16x2 size, %1;\n set.ge.u32.f16x2 %0, size, %2;}\n"
        : "=r"(c)
        : "r"(a), "r"(b));
    return c;
}

/* How many of the masks that were added up to `sum` had their lower and their upper half set (fewer than
 * 65536 each): a mask is 65535 in its lower and -65536 in its upper half. */
struct mask_counts {
    unsigned lower, upper;
};

__device__ __forceinline__ mask_counts count_masks(unsigned sum)
{
    unsigned lower = -sum & 0xffffu;
    return {lower, (lower - ((sum + lower) >> 16)) & 0xffffu};
}

/* By whole warps. */
__device__ __forceinline__ void add_clamped(const tensor_work &w, unsigned count)
{
    count = __reduce_add_sync(beamring::WHOLE_WARP, count);
    if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(w.clamped, static_cast<unsigned long long>(count));
}

__device__ __forceinline__ void add_masks(const tensor_work &w, unsigned &sum)
{
    mask_counts counts = count_masks(sum);
    add_clamped(w, counts.lower + counts.upper);
    sum = 0;
}

/* Four samples' bytes (7 - level in both nibbles; in either half those of one of two fine channels) to the
 * two channels' words. 7 - n as a nibble is n with its lower three bits turned over. */
__device__ __forceinline__ void join(unsigned (&word)[2], const unsigned (&sample)[4])
{
    unsigned a = sample[1] * 256 + sample[0], b = sample[3] * 256 + sample[2];
    word[0] = __byte_perm(a, b, 0x5410) ^ 0x77777777u;
    word[1] = __byte_perm(a, b, 0x7632) ^ 0x77777777u;
}

__device__ __forceinline__ void store_word(const tensor_work &w, uint8_t *to, unsigned word)
{
    if (w.wide_out)
        *reinterpret_cast<unsigned *>(to) = word;
    else
        store_bytes(to, word);
}

/* ---- input ---- */

/* A warp's input of 16 times (`apart` steps from one to the next) to shared memory: 16 bytes a lane.
 * from: shape (T, row) -> after the first time's and the lane's offset */
__device__ __forceinline__ void stage_times(unsigned to, const uint8_t *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}

/* Four of these times of four samples.   words [4]   simd: sample 1 0   register: time 3 2   thread: sample 4
 * 3 2, time 1 0 */
__device__ __forceinline__ void read_staged(unsigned *words, unsigned from)
{
#pragma unroll
    for (unsigned i = 0; i < 4; i++)
        asm volatile("ld.shared.u32 %0, [%1];\n"
                     : "=r"(words[i])
                     : "r"(from + br_walk_stage(4 * i, 0))
                     : "memory");
}

/* What remember() does, 16 bytes at a time. */
__device__ __forceinline__ void remember_walk(const tensor_work &w, int column)
{
    int chunks = min(BR_WALK_SPAN, w.width - column) / 16;
    if (w.spare == nullptr) return;
    if (!w.wide_in) {
        remember(w, column, BR_WALK_SPAN);
        return;
    }
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < w.kept * chunks; i += static_cast<int>(blockDim.x)) {
        int r = i / chunks, at = column + i % chunks * 16;
        *reinterpret_cast<uint4 *>(w.spare + static_cast<size_t>(r) * w.width + at) =
            __ldg(reinterpret_cast<const uint4 *>(field_row(w, w.steps - w.kept + r) + at));
    }
}

/* The same from anywhere, `count` words at t, t + apart, ... What is after the call has coefficients of 0 in
 * every row that is stored. */
template <int COUNT>
__device__ __forceinline__ void load_slowly(unsigned (&words)[COUNT], const tensor_work &w, int t, int apart,
                                            int column)
{
#pragma unroll 1
    for (int i = 0; i < COUNT; i++) {
        unsigned word = load_bytes(field_row(w, min(t + i * apart, w.steps - 1)) + column);
#pragma unroll
        for (int to = 0; to < COUNT; to++)
            if (to == i) words[to] = word;
    }
}

/* a [tile][re, im]   simd: time 2   register: time 3, sample 0   thread: sample 4 3 2, time 1 0; tile is
 * sample 1 */
__device__ __forceinline__ void unpack_operands(unsigned (&a)[2][2][4], const unsigned *words)
{
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            unpack(a[tile][0][i], a[tile][1][i], words[i / 2 * 2], words[i / 2 * 2 + 1], tile * 2 + i % 2);
}

/* ---- the kernel ---- */

template <int VALUE> struct constant {
    static constexpr int value = VALUE;
};

/* LAGS units at once of ROWS sums (cos and sin of ROWS / 2 pairs of fine channels); CHUNKS to a unit. */
template <int LAGS, int ROWS, int CHUNKS> struct walk {
    static constexpr int N = LAGS * ROWS, UNIT = CHUNKS * BR_BAND, GROUPS = ROWS / 16; /* of 8 pairs */
    static constexpr int BLOCKS = N <= 48 ? 4 : N <= 64 ? 3 : 2;
    static constexpr int COLUMNS = (2 * LAGS - 1) * ROWS; /* in shared memory, for each chunk */
};

/* Ratio (with the other sign: 7 - level is what is rounded) and bound of a lane's two pairs.   simd: pair 0
 */
struct walk_rules {
    unsigned low, low_bound, high, high_bound;
};

__device__ __forceinline__ walk_rules rules_of(const tensor_work &w, int u0, int u1)
{
    uint2 a = __ldg(w.rules + u0), b = __ldg(w.rules + u1), c = __ldg(w.rules + w.U - 1 - u0),
          d = __ldg(w.rules + w.U - 1 - u1);
    return {__byte_perm(a.x, b.x, 0x5410) ^ 0x80008000u, __byte_perm(a.y, b.y, 0x5410),
            __byte_perm(c.x, d.x, 0x5410) ^ 0x80008000u, __byte_perm(c.y, d.y, 0x5410)};
}

/* What sums begin with.   block [ROWS / 4]: register: cos and sin, group, sample 0 */
template <int ROWS>
__device__ __forceinline__ void begin_sums(unsigned *block, const uint4 (&start)[ROWS / 16], int part)
{
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) {
        const uint4 &s = start[i / 2 % (ROWS / 16)];
        block[i] = i / 2 < ROWS / 16 ? part ? s.z : s.x : part ? s.w : s.y;
    }
}

template <int LAGS, int ROWS, int CHUNKS>
__global__ void __launch_bounds__(128, (walk<LAGS, ROWS, CHUNKS>::BLOCKS)) walking(const tensor_work w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using s = walk<LAGS, ROWS, CHUNKS>;
    constexpr int N = s::N, GROUPS = s::GROUPS, UNIT = s::UNIT, STAGES = BR_WALK_STAGES,
                  STAGE = UNIT * BR_WALK_PIECE;
    __shared__ uint4 matrix[CHUNKS * s::COLUMNS * 2];
    __shared__ __align__(16) uint8_t staged[4 * STAGES * STAGE]; /* [warp][unit % STAGES][UNIT][32] */
    int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, q = lane % 4;
    let_next_begin();
    if (blockIdx.y == 0) {
        remember_walk(w, static_cast<int>(blockIdx.x) * BR_WALK_SPAN);
        end_after_previous();
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < CHUNKS * s::COLUMNS * 2; i += 128)
        matrix[i] = __ldg(w.matrices + i);
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();
    uint64_t b = br_wgmma_descriptor(static_cast<unsigned>(__cvta_generic_to_shared(matrix)), 128, 256,
                                     BR_WGMMA_PLAIN);

    int half = w.U / 2, per_unit = UNIT / w.U,
        base = static_cast<int>(blockIdx.x) * BR_WALK_SPAN + warp * BR_WALK_PIECE;
    bool present = base < w.width; /* the whole warpgroup takes part in products */
    if (!present) base = 0;
    int column = base + lane / 4 * 4;
    int unit = (w.phase + w.first) / per_unit + static_cast<int>(blockIdx.y - 1) * w.each,
        end = min((w.phase + w.last + per_unit - 1) / per_unit, unit + w.each), at = unit - (LAGS - 1);
    auto step_of = [&](int c) { return c * UNIT - w.phase * w.U; };

    /* pairs 2 q and 2 q + 1 of each group of 8   simd: pair 0 */
    uint4 start[GROUPS];
    walk_rules rules[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        start[i] = __ldg(w.starts + i * 4 + q);
        rules[i] = rules_of(w, (8 * i + 2 * q) % half, (8 * i + 2 * q + 1) % half);
    }

    /* sums [tile][re, im]   simd: pair 0   register: ring, then cos and sin, group, sample 0   thread: sample
     * 4 3 2, pair 2 1; tile is sample 1 */
    unsigned sums[2][2][N / 4];
#pragma unroll
    for (int i = 0; i < LAGS * 4; i++)
        begin_sums<ROWS>(&sums[i / 2 % 2][i % 2][i / 4 * (ROWS / 4)], start, i % 2);

    /* Units from `staged_from` on, `nstaged`, stand wholly in this call and are staged, and so are those that
     * stand wholly in the history; others are loaded when they are wanted. */
    int staged_from = (w.phase * w.U + UNIT - 1) / UNIT,
        staged_to = min((w.steps + w.phase * w.U) / UNIT, end);
    unsigned nstaged =
        w.wide_in && staged_to > staged_from ? static_cast<unsigned>(staged_to - staged_from) : 0;
    unsigned staged_at = static_cast<unsigned>(__cvta_generic_to_shared(staged)) +
                         static_cast<unsigned>(warp * (STAGES * STAGE)),
             stage_to = staged_at + br_walk_stage(lane / 2, lane % 2 * 16),
             stage_from = staged_at + br_walk_stage(q, br_walk_sample(lane / 4, 0));
    auto in_history = [&](int which) { /* counted from staged_from, as below */
                                       int t = step_of(which + staged_from);
                                       return t + UNIT <= 0 && t + w.kept >= 0;
    };
    /* e: shape (T, row) -> after the unit's and the lane's offset: 16 bytes; the next chunk's are 16 row
     * further */
    const uint8_t *from = w.e + static_cast<ptrdiff_t>(step_of(at)) * static_cast<ptrdiff_t>(w.row) +
                          (static_cast<size_t>(lane / 2) * w.row + static_cast<size_t>(base + lane % 2 * 16));
    auto stage = [&](int which) {
        unsigned to = stage_to + static_cast<unsigned>((which & (STAGES - 1)) * STAGE);
        if (static_cast<unsigned>(which) < nstaged) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++)
                stage_times(to + chunk * BR_BAND * BR_WALK_PIECE, from + chunk * BR_BAND * w.row);
        } else if (in_history(which)) {
#pragma unroll 1
            for (int chunk = 0; chunk < CHUNKS; chunk++)
                stage_times(to + chunk * BR_BAND * BR_WALK_PIECE,
                            field_row(w, step_of(which + staged_from) + chunk * BR_BAND + lane / 2) + base +
                                lane % 2 * 16);
        }
        beamring::copy_async_commit();
        from += UNIT * w.row;
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) stage(at - staged_from + i);

    /* out: shape (T/U, F, U, X), contiguous -> after the unit's offset and that of the lane's pair k of the
     * first group: a word; other groups' are 8 X and -8 X further */
    size_t f = static_cast<size_t>(column) / w.X, x = column - f * w.X;
    unsigned low_offset[2], high_offset[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int pair = 2 * q + k, u = pair % half;
        size_t place = static_cast<size_t>(pair / half) * w.width * w.U + f * w.U * w.X + x;
        low_offset[k] = static_cast<unsigned>(place + u * w.X);
        high_offset[k] = static_cast<unsigned>(place + (w.U - 1 - u) * w.X);
    }
    uint8_t *out = w.out + static_cast<ptrdiff_t>(step_of(unit)) * w.width;
    bool plain = w.lost == nullptr && w.wide_out;

    unsigned fields[GROUPS][4][4]; /* of a unit: sample, then re, im of u, re, im of U-1-u   simd: pair 0 */
    unsigned beyond = 0;
    auto finish = [&]() {
        unsigned low_word[GROUPS][2], high_word[GROUPS][2], masks = 0;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            unsigned low[4], high[4];
            const walk_rules &r = rules[group];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned(&field)[4] = fields[group][i];
                masks += beyond_mask2(field[0], r.low_bound) + beyond_mask2(field[1], r.low_bound);
                masks += beyond_mask2(field[2], r.high_bound) + beyond_mask2(field[3], r.high_bound);
                low[i] = level(field[1], r.low) * 16 + level(field[0], r.low);
                high[i] = level(field[3], r.high) * 16 + level(field[2], r.high);
            }
            join(low_word[group], low);
            join(high_word[group], high);
        }
        size_t group_stride = 8 * w.X;
        int block = (at - 1) * per_unit - w.phase; /* the unit's first */
        if (plain && block >= w.first && block + per_unit <= w.last) {
            beyond += masks;
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    *reinterpret_cast<unsigned *>(out + low_offset[k] + group * group_stride) =
                        low_word[group][k];
                    *reinterpret_cast<unsigned *>(out + high_offset[k] - group * group_stride) =
                        high_word[group][k];
                }
        } else {
            mask_counts counts = count_masks(masks);
            unsigned clamped = 0;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                int mine = block + (2 * q + k) / half;
                if (mine < w.first || mine >= w.last) continue;
                bool kept =
                    w.lost == nullptr || !w.lost[static_cast<size_t>(mine - w.first) * w.F + column / w.X];
                if (kept) clamped += k ? counts.upper : counts.lower;
#pragma unroll
                for (int group = 0; group < GROUPS; group++) {
                    unsigned missing = beamring::MISSING_INT4 * 0x01010101u;
                    store_word(w, out + low_offset[k] + group * group_stride,
                               kept ? low_word[group][k] : missing);
                    store_word(w, out + high_offset[k] - group * group_stride,
                               kept ? high_word[group][k] : missing);
                }
            }
            add_clamped(w, clamped);
        }
        out += static_cast<size_t>(w.width) * UNIT;
    };
    auto hold_sums = [&]() {
#pragma unroll
        for (int i = 0; i < 4; i++) beamring::wgmma_hold(sums[i / 2][i % 2]);
    };

    /* One unit, `ring` = its number in the walk modulo LAGS. */
    auto one = [&](auto ring) {
        constexpr unsigned RING = decltype(ring)::value % LAGS, FIRST = RING * (ROWS / 4);
        unsigned words[CHUNKS * 4], a[CHUNKS][2][2][4];
        int which = at - staged_from;
        beamring::copy_async_wait<STAGES - 2>();
        __syncwarp();
        if (static_cast<unsigned>(which) < nstaged || in_history(which)) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++)
                read_staged(words + 4 * chunk,
                            stage_from + static_cast<unsigned>((which & (STAGES - 1)) * STAGE +
                                                               chunk * BR_BAND * BR_WALK_PIECE));
        } else {
            load_slowly(words, w, step_of(at) + q, 4, column);
        }
        stage(which + STAGES - 1);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            unpack_operands(a[chunk], words + 4 * chunk);
#pragma unroll
            for (int i = 0; i < 4; i++) beamring::wgmma_hold(a[chunk][i / 2][i % 2]);
            if (chunk == 0) hold_sums();
            beamring::wgmma_fence();
            uint64_t from_block =
                b + (chunk * s::COLUMNS + br_walk_block(LAGS, RING) * ROWS) * (2 * BR_BAND / 16);
#pragma unroll
            for (int i = 0; i < 4; i++)
                product<N>::multiply(sums[i / 2][i % 2], a[chunk][i / 2][i % 2], from_block);
        }
        beamring::wgmma_commit();
        if (at > unit && present) finish();
        beamring::wgmma_wait<0>();
        hold_sums();
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                constexpr unsigned SIXTEENTH = 0x2c002c00u, MINUS_SIXTEENTH = 0xac00ac00u;
                int c = FIRST + 2 * group + i % 2, sine = c + 2 * GROUPS;
                unsigned c_re = sums[i / 2][0][c], s_re = sums[i / 2][0][sine], c_im = sums[i / 2][1][c],
                         s_im = sums[i / 2][1][sine];
                fields[group][i][0] = fma2(s_im, MINUS_SIXTEENTH, c_re);
                fields[group][i][1] = fma2(c_im, SIXTEENTH, s_re);
                fields[group][i][2] = fma2(s_im, SIXTEENTH, c_re);
                fields[group][i][3] = fms2(c_im, SIXTEENTH, s_re);
            }
#pragma unroll
        for (int i = 0; i < 4; i++) begin_sums<ROWS>(&sums[i / 2][i % 2][FIRST], start, i % 2);
        at++;
    };
    while (at < end) {
        one(constant<0>());
        if (at >= end) break;
        one(constant<1>());
        if constexpr (LAGS > 2) {
            if (at >= end) break;
            one(constant<2>());
        }
        if constexpr (LAGS > 3) {
            if (at >= end) break;
            one(constant<3>());
        }
        if ((at & 1023) < LAGS) add_masks(w, beyond); /* before there are too many of them */
    }
    if (end > unit && present) finish();
    add_masks(w, beyond);
    end_after_previous();
#endif
}

} // namespace

#endif
