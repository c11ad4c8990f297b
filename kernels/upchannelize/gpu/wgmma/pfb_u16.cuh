/* pfb_u16.cuh - the filterbank for U up to 16 on Hopper: taps and transform as one banded matrix,
 * multiplied by whole warpgroups beside the rest of the work.
 *
 * As in gpu/mma/pfb_u16.cuh, but samples are rows of the product, and the coefficients its columns: a
 * chunk of 16 steps is a (64 samples by 16 times, from registers), multiplied at once with the
 * coefficients of all outputs that it contributes to. The sums of these LAGS chunks of output stay in
 * registers, in a ring: chunk c has block c % LAGS of the columns. No sum ever moves: the matrix in shared
 * memory has the lags 0, 1, ... LAGS - 1 and again 0, 1, ..., and what begins within it is the matrix for
 * another position of the ring.
 *
 * Input and output go through shared memory (smem_io.cuh), CHUNKS chunks at a turn. While a chunk's
 * products are under way, the chunk before it becomes levels. A turn's levels are stored in the next turn,
 * so that there is one barrier a turn. zones.cuh says who walks where. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U16_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_PFB_U16_CUH

#include "kernels/upchannelize/gpu/wgmma/smem_io.cuh"

namespace
{

struct walk {
    static constexpr int LAGS = BR_WALK_LAGS, CHUNKS = LAGS,
                         BLOCKS = 4; /* CHUNKS: a turn, once around the ring */
    static constexpr int AHEAD = 2;  /* turns that are staged before theirs */
    static constexpr int N = LAGS * 16, COLUMNS = (2 * LAGS - 1) * 16; /* of a product, of the matrix */
    static constexpr int TURN = CHUNKS * BR_BAND * BR_TURNED_SPAN;     /* bytes */
    static constexpr int FIELD = COLUMNS * BR_BAND * 2, LEVELS = FIELD + (AHEAD + 1) * TURN,
                         SHARED = LEVELS + 2 * TURN;
};

/* By a block: chunks [unit, end) of the 64 samples from `base`. LOST: outputs may be missing.
 * shared [walk::SHARED bytes]: matrix, field [turn % (AHEAD + 1)][time][SPAN], levels [turn % 2][chunk][u,
 * then U - 1 - u, of 8 pairs][SPAN] */
template <bool LOST>
__device__ __forceinline__ void walk_along(const tensor_work &w, uint4 *shared, int base, int unit, int end)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using s = walk;
    constexpr int LAGS = s::LAGS, CHUNKS = s::CHUNKS, SPAN = BR_TURNED_SPAN;
    const unsigned thread = threadIdx.x;
    const int lane = static_cast<int>(thread % 32), warp = static_cast<int>(thread / 32), q = lane % 4;
    const uint64_t b = br_wgmma_descriptor(static_cast<unsigned>(__cvta_generic_to_shared(shared)), 128, 256,
                                           BR_WGMMA_PLAIN);
    const int half = w.U / 2, per_chunk = BR_BAND / w.U;

    /* A thread's part of a turn: 16 bytes of the times thread / 4 + 32 i, and of its levels' rows. A lane's
     * part in ldmatrix: of times 4 3 2 1 0, in stmatrix: of two chunks' rows of levels. */
    const int row = static_cast<int>(thread / 4);
    unsigned part_at = static_cast<unsigned>(__cvta_generic_to_shared(shared)) + s::FIELD,
             turned_at = part_at + br_turned_place(static_cast<unsigned>(lane), static_cast<unsigned>(warp));
    part_at += br_turned_place(static_cast<unsigned>(row), thread % 4);
    /* they are not to be computed anew for each turn */
    asm volatile("" : "+r"(part_at), "+r"(turned_at));
    /* Turns are counted in steps of the call. Those that stand wholly in this call are staged from `next`;
     * else each time is looked for. What is before the history or after the call has coefficients of 0 in
     * every row that is stored. next: e, shape (T, row) -> after the turn's and the thread's offset */
    const int before_first = w.phase * w.U, step_end = end * BR_BAND - before_first;
    int step = (unit - (LAGS - 1)) * BR_BAND - before_first; /* of the turn at hand */
    constexpr int TURN_STEPS = CHUNKS * BR_BAND, STAGED = s::AHEAD * TURN_STEPS;
    const uint8_t *next = w.e + (static_cast<ptrdiff_t>(step) + row) * static_cast<ptrdiff_t>(w.row) +
                          static_cast<ptrdiff_t>(base) + static_cast<ptrdiff_t>(thread % 4 * 16);
    const unsigned wide_steps = w.wide_in ? static_cast<unsigned>(max(w.steps - TURN_STEPS + 1, 0)) : 0;
    auto stage = [&](unsigned slot, int staged) {
        unsigned to = part_at + slot * s::TURN;
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
#pragma unroll 1
                    for (unsigned k = 0; k < 4; k++)
                        asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to + i * 32 * SPAN + 4 * k),
                                     "r"(load_bytes(from + 4 * k))
                                     : "memory");
            }
        }
        beamring::copy_async_commit();
        next += TURN_STEPS * w.row;
    };
#pragma unroll 1
    for (int i = 0; i < s::AHEAD; i++) stage(static_cast<unsigned>(i), step + i * TURN_STEPS);
    unsigned slot = 0; /* of the turn at hand */
    for (int i = static_cast<int>(thread); i < s::COLUMNS * 2; i += 128) shared[i] = __ldg(w.matrices + i);
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();

    /* what sums begin with, and scales of u and U - 1 - u, of pairs 2 q and 2 q + 1   simd: pair 0 */
    const uint4 start = __ldg(w.starts + q);
    const int u0 = 2 * q % half, u1 = (2 * q + 1) % half;
    const unsigned low_scale =
                       __byte_perm(__ldg(w.rules + u0).x, __ldg(w.rules + u1).x, 0x5410) ^ 0x80008000u,
                   high_scale =
                       __byte_perm(__ldg(w.rules + w.U - 1 - u0).x, __ldg(w.rules + w.U - 1 - u1).x, 0x5410) ^
                       0x80008000u;

    /* out: shape (T/U, F, U, X), contiguous -> after the turn's and the thread's offset: 16 bytes of the
     * output step and fine channel of row thread / 4 % 16 of its levels; two chunks later 32 width further */
    const int pair = row % 8, later = pair / half, low_u = pair % half,
              u = row / 8 % 2 ? w.U - 1 - low_u : low_u;
    const int f = base / static_cast<int>(w.X), x = base - f * static_cast<int>(w.X);
    uint8_t *out = w.out + (static_cast<ptrdiff_t>(step) + row / 16 * BR_BAND + later * w.U) * w.width +
                   (static_cast<ptrdiff_t>(f * w.U + u) * static_cast<ptrdiff_t>(w.X) + x +
                    static_cast<ptrdiff_t>(thread % 4 * 16));
    const ptrdiff_t two_chunks = static_cast<ptrdiff_t>(w.width) * (2 * BR_BAND);
    /* Turns that begin in this range have nothing but what is wanted, and room for wide stores. */
    const int plain_from =
                  max(unit, (w.phase + w.first + per_chunk - 1) / per_chunk) * BR_BAND - before_first,
              plain_to = w.wide_out
                             ? (min(end, (w.phase + w.last) / per_chunk) - CHUNKS) * BR_BAND - before_first
                             : plain_from - 1;
    unsigned beyond = 0;

    /* sums [re, im]   simd: pair 0   register: ring, then cos and sin, sample 0   thread: sample 3 2 1, pair
     * 2 1 */
    unsigned sums[2][LAGS * 4];
    auto begin_block = [&](int block) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            sums[0][block * 4 + i] = start.x;
            sums[0][block * 4 + 2 + i] = start.y;
            sums[1][block * 4 + i] = start.z;
            sums[1][block * 4 + 2 + i] = start.w;
        }
    };
#pragma unroll
    for (int i = 0; i < LAGS; i++) begin_block(i);

    auto is_plain = [&](int turn) { return turn >= plain_from && turn <= plain_to; };
    /* Whether an output step is of this walk. */
    auto is_here = [&](int chunk, int mine) {
        return chunk >= unit && chunk < end && mine >= w.first && mine < w.last;
    };
    /* Which of a turn's outputs are missing, a bit each: of the turn before, until that at hand ends. Each
     * lane looks one up. */
    unsigned lost = 0;
    static_assert(TURN_STEPS / 2 <= 32, "as many bits as outputs");
    auto is_lost = [&](int turn) {
        int log_U = 31 - __clz(w.U);
        asm volatile("" : "+r"(log_U));
        const int of = static_cast<int>(threadIdx.x) % 32, mine = (turn >> log_U) + of;
        return read_lost(w, static_cast<size_t>(mine - w.first) * w.F + static_cast<size_t>(f),
                         of < TURN_STEPS >> log_U && mine >= w.first && mine < w.last);
    };
    auto is_kept = [&](int of) { return !LOST || (lost >> of & 1) == 0; };
    auto store_plain = [&](const uint4(&v)[CHUNKS / 2]) {
        int log_U = 31 - __clz(w.U), own = static_cast<int>(threadIdx.x);
        if (LOST) asm volatile("" : "+r"(log_U), "+r"(own)); /* not to take registers elsewhere */
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++, out += two_chunks)
            *reinterpret_cast<uint4 *>(out) = field_bytes(
                is_kept(((own / 64 + 2 * i) * BR_BAND >> log_U) + (own / 4 % 8 * 2 >> log_U)))(v[i]);
    };
    /* Of any turn, whose levels stand there. Nothing of this is to take registers elsewhere. */
    auto store_part = [&](int turn, unsigned levels_at) {
        int log_U = 31 - __clz(w.U);
        unsigned own = threadIdx.x;
        asm volatile("" : "+r"(log_U), "+r"(own));
        const int chunk_0 = (turn + (w.phase << log_U)) / BR_BAND;
#pragma unroll 1
        for (int i = 0; i < CHUNKS / 2; i++, out += two_chunks) {
            const int chunk = static_cast<int>(own / 64) + 2 * i,
                      of = (chunk * BR_BAND >> log_U) + static_cast<int>(own / 4 % 8 * 2 >> log_U);
            if (is_here(chunk_0 + chunk, (turn >> log_U) + of))
                store_16(w, out, field_bytes(is_kept(of))(load_shared(levels_at + i * 32 * SPAN)));
        }
    };
    unsigned levels =
        s::LEVELS - s::FIELD; /* of this turn; those of the turn before stand in the other half */
    const unsigned both_levels = 2 * (s::LEVELS - s::FIELD) + s::TURN;

    bool lost_next = LOST && is_lost(step); /* this lane's, of the next turn */
#pragma unroll 1
    for (; step < step_end; step += TURN_STEPS) {
        beamring::copy_async_wait<s::AHEAD - 1>();
        __syncthreads();
        stage(slot < 1 ? s::AHEAD : slot - 1, step + STAGED);
        const bool plain = is_plain(step), plain_before = is_plain(step - TURN_STEPS);
        uint4 v[CHUNKS / 2];
        if (plain_before) {
#pragma unroll
            for (int i = 0; i < CHUNKS / 2; i++)
                v[i] = load_shared(part_at + (both_levels - levels) + i * 32 * SPAN);
        } else if (step + before_first > unit * BR_BAND) {
            store_part(step - TURN_STEPS, part_at + (both_levels - levels));
        }
        const unsigned from = turned_at + slot * s::TURN, to = turned_at + levels;
        unsigned words[4], low_word[2], high_word[2], masks[CHUNKS];
        spectrum low, high; /* of the chunk before */
        auto finish = [&](int chunk) {
            masks[chunk] = 0;
            low_word[chunk % 2] = levels_of(low, low_scale, masks[chunk]);
            high_word[chunk % 2] = levels_of(high, high_scale, masks[chunk]);
            if (chunk % 2 != 0)
                store_turned(to + (chunk - 1) * BR_BAND * SPAN, low_word[0], high_word[0], low_word[1],
                             high_word[1]);
        };
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {   /* block `chunk` of the ring has lag 0 */
            constexpr int BLOCK = 16 * 2 * BR_BAND / 16; /* of the matrix, in units of the descriptor */
            unsigned a[2][4]; /* [re, im]   simd: time 0   register: time 3, sample 0   thread: sample 3 2 1,
                                 time 2 1 */
            if (chunk % 2 == 0)
                load_turned(words[0], words[1], words[2], words[3], from + chunk * BR_BAND * SPAN);
#pragma unroll
            for (int late = 0; late < 2; late++) {
                unsigned both[2][2];
                unpack_turned(both, words[chunk % 2 * 2 + late]);
#pragma unroll
                for (int i = 0; i < 4; i++) a[i % 2][late * 2 + i / 2] = both[i / 2][i % 2];
            }
#pragma unroll
            for (int part = 0; part < 2; part++) {
                beamring::wgmma_hold(a[part]);
                beamring::wgmma_hold(sums[part]);
            }
            beamring::wgmma_fence();
#pragma unroll
            for (int part = 0; part < 2; part++)
                product<s::N>::multiply(sums[part], a[part],
                                        b + br_walk_block(LAGS, static_cast<unsigned>(chunk)) * BLOCK);
            beamring::wgmma_commit();
            if (chunk > 0)
                finish(chunk - 1);
            else if (plain_before)
                store_plain(v);
            beamring::wgmma_wait<0>();
#pragma unroll
            for (int part = 0; part < 2; part++) beamring::wgmma_hold(sums[part]);
            join_sums(low, high, &sums[0][chunk * 4], &sums[0][chunk * 4 + 2], &sums[1][chunk * 4],
                      &sums[1][chunk * 4 + 2]);
            begin_block(chunk);
        }
        finish(CHUNKS - 1);
        if (LOST) { /* asked for no later, or the next turn would wait for it */
            lost = __ballot_sync(beamring::WHOLE_WARP, lost_next);
            lost_next = is_lost(step + TURN_STEPS);
        }
        if (plain && lost == 0) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) beyond += masks[chunk];
        } else {
            int log_U = 31 - __clz(w.U);
            asm volatile("" : "+r"(log_U));
            const int chunk_0 = (step + (w.phase << log_U)) / BR_BAND;
#pragma unroll
            for (int i = 0; i < 2 * CHUNKS; i++) {
                const int of = (i / 2 * BR_BAND >> log_U) + ((2 * q + i % 2) * 2 >> log_U);
                mask_counts counts = count_masks(masks[i / 2]);
                /* back to masks: of which `beyond` has sums */
                if (is_here(chunk_0 + i / 2, (step >> log_U) + of) && is_kept(of))
                    beyond += i % 2 ? counts.upper * 0xffff0000u : counts.lower * 0x0000ffffu;
            }
        }
        slot = slot == s::AHEAD ? 0 : slot + 1;
        levels = both_levels - levels;
        /* before there are too many of them */
        if ((step & (1024 * BR_BAND - 1)) < TURN_STEPS) add_masks(w, beyond);
    }
    add_masks(w, beyond);
    __syncthreads();
    if (is_plain(step - TURN_STEPS)) {
        uint4 v[CHUNKS / 2];
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++)
            v[i] = load_shared(part_at + (both_levels - levels) + i * 32 * SPAN);
        store_plain(v);
    } else {
        store_part(step - TURN_STEPS, part_at + (both_levels - levels));
    }
#endif
}

} // namespace

#endif
