/* add.cuh - bursts on a GPU. A thread has 4 neighbouring dishes (a group), which share a block of random
 * bits. The last group of a line (a channel and polarisation) may have fewer.
 *
 * The kernels of a call run in this order: `measure` for the noise before bursts; `aim`, `sides` and `add`
 * for the pieces of bursts. Samples are [time][line][dish], int4x2. */
#ifndef BEAMRING_KERNELS_INJECT_GPU_ADD_CUH
#define BEAMRING_KERNELS_INJECT_GPU_ADD_CUH

#include "kernels/common/device.cuh"
#include "kernels/inject/dither.h"

namespace beamring::inject
{

constexpr unsigned THREADS = 128, WARP = 32, SIDE = INJECT_GONE - 1;

/* The arguments of a launch. */
struct work {
    const inject_tables *tables;
    uint8_t *e;    /* [samples][L][D] */
    uint8_t *pack; /* of each piece: its field, then its inputs, which `aim` replaces by factors */
    const br_inject_piece *pieces;
    uint8_t *side;  /* [segment of the call][4 * groups], see sides() */
    uint8_t *carry; /* [L][D]: zeros at the end of a line's last piece, for the call that continues it */
    unsigned samples, L, D, groups;
};

/* Two of a burst's sums (br_inject_sums): `lost` of a piece's line, and `power` of all lines. */
__device__ __forceinline__ unsigned long long *lost_of(const work &w, const br_inject_piece &piece)
{
    return static_cast<unsigned long long *>(piece.sums) + 1 + static_cast<size_t>(piece.line) * w.D;
}

__device__ __forceinline__ uint32_t *power_of(void *sums, unsigned L, unsigned D)
{
    return reinterpret_cast<uint32_t *>(static_cast<uint64_t *>(sums) + 1 + static_cast<size_t>(L) * D);
}

__device__ __forceinline__ inject_factor *factors_of(const work &w, const br_inject_piece &piece)
{
    return reinterpret_cast<inject_factor *>(w.pack + piece.at + 8ull * piece.count);
}

/* Load and store the bytes of a group of `n` dishes; dishes that the line lacks read as 0. WHOLE: D is a
 * multiple of 4, so that all groups are whole and aligned. */
template <bool WHOLE> __device__ __forceinline__ unsigned load(const uint8_t *e, unsigned n)
{
    if (WHOLE) return *reinterpret_cast<const unsigned *>(e);
    unsigned word = 0;
    for (unsigned i = 0; i < n; i++) word |= static_cast<unsigned>(e[i]) << 8 * i;
    return word;
}

template <bool WHOLE> __device__ __forceinline__ void store(uint8_t *e, unsigned n, unsigned word)
{
    if (WHOLE)
        *reinterpret_cast<unsigned *>(e) = word;
    else
        for (unsigned i = 0; i < n; i++) e[i] = static_cast<uint8_t>(word >> 8 * i);
}

/* Adds the power of each input over the samples of a noise. Grid: (inputs of a channel / THREADS, noises,
 * eighths of the samples). */
__global__ void measure(const br_inject_noise *noises, const uint8_t *e, unsigned L, unsigned D,
                        unsigned inputs)
{
    constexpr unsigned PART = BR_INJECT_NOISE / 8;
    const br_inject_noise &noise = noises[blockIdx.y];
    unsigned input = blockIdx.x * THREADS + threadIdx.x, from = blockIdx.z * PART,
             to = min(from + PART, noise.count);
    if (input >= inputs || from >= to) return;
    size_t line = static_cast<size_t>(noise.channel) * inputs + input;
    unsigned sum = 0;
    for (unsigned t = from; t < to; t++) {
        unsigned byte = e[(static_cast<size_t>(noise.first) + t) * L * D + line];
        int re = int4_re(byte), im = int4_im(byte);
        if (noise.used[t / 32] >> t % 32 & 1) sum += static_cast<unsigned>(re * re + im * im);
    }
    atomicAdd(power_of(noise.sums, L, D) + line, sum);
}

/* Computes the factors of a piece from its inputs and their noise, in place. One warp for each piece. */
__global__ void aim(work w, unsigned npieces)
{
    unsigned number = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (number >= npieces) return;
    const br_inject_piece piece = w.pieces[number];
    inject_factor *factor = factors_of(w, piece);
    const br_inject_input *input = reinterpret_cast<const br_inject_input *>(factor);
    const uint32_t *power = power_of(piece.sums, w.L, w.D) + static_cast<size_t>(piece.line) * w.D;
    double sum = 0, total = 0;
    unsigned alive = 0;
    for (unsigned d = lane; d < w.D; d += WARP) {
        double mean = piece.measured > 0 ? __ddiv_rn(power[d], piece.measured) : 0;
        float gain = input[d].gain;
        if (inject_class(w.tables, mean, gain) == INJECT_CLASSES) continue;
        sum = INJECT_DADD(sum, INJECT_DMUL(mean, static_cast<double>(gain)));
        alive++;
    }
    for (unsigned i = 0; i < WARP; i++) total = INJECT_DADD(total, __shfl_sync(0xffffffffu, sum, i));
    alive = __reduce_add_sync(0xffffffffu, alive);
    double flux = INJECT_DMUL(piece.flux, total);
    double rms = alive > 0 ? __dsqrt_rn(__ddiv_rn(__ddiv_rn(flux, alive), 2.0)) : 0;
    for (unsigned d = lane; d < w.D; d += WARP) {
        br_inject_input u = input[d];
        double mean = piece.measured > 0 ? __ddiv_rn(power[d], piece.measured) : 0;
        factor[d] = {static_cast<float>(INJECT_DMUL(rms, static_cast<double>(u.re))),
                     static_cast<float>(INJECT_DMUL(rms, static_cast<double>(u.im))),
                     inject_class(w.tables, mean, u.gain)};
    }
}

/* A segment of a piece, and the group of a thread. */
struct place {
    br_inject_piece piece;
    unsigned segment, group, from, count, n; /* samples [from, from + count) of the piece; n dishes */
    uint8_t *e;                              /* of the first sample */
    bool inside;
};

__device__ __forceinline__ place find(const work &w)
{
    place p;
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    p.piece = w.pieces[blockIdx.y];
    p.segment = i / w.groups;
    p.group = i % w.groups;
    p.from = p.segment * INJECT_SEGMENT;
    p.inside = p.from < p.piece.count;
    p.count = p.inside ? min(static_cast<unsigned>(INJECT_SEGMENT), p.piece.count - p.from) : 0;
    p.n = min(4u, w.D - 4 * p.group);
    p.e = w.e + (static_cast<size_t>(p.piece.first) + p.from) * w.L * w.D +
          static_cast<size_t>(p.piece.line) * w.D + 4 * p.group;
    return p;
}

__device__ __forceinline__ uint8_t *side_of(const work &w, const place &p)
{
    return w.side + (static_cast<size_t>(p.piece.segment) + p.segment) * 4 * w.groups + 4 * p.group;
}

/* Counts the zeros (up to SIDE) of each input directly before a segment, in the low nibble of its byte, and
 * directly behind it, in the high one. Runs before any segment is changed. */
template <bool WHOLE> __global__ void sides(work w)
{
    place p = find(w);
    if (!p.inside) return;
    unsigned first = p.piece.first + p.from, end = first + p.count;
    ptrdiff_t row = static_cast<ptrdiff_t>(w.L) * w.D;
    unsigned result = 0, run = 0x01010101u;
    if (p.segment == 0 && p.piece.continues) {
        result = load<false>(w.carry + static_cast<size_t>(p.piece.line) * w.D + 4 * p.group, p.n);
    } else {
        for (unsigned k = 1; k <= SIDE && k <= first; k++) {
            unsigned word = load<WHOLE>(p.e - static_cast<ptrdiff_t>(k) * row, p.n);
            run &= __vseteq4(word, 0);
            result += run;
        }
    }
    run = 0x10101010u;
    for (unsigned k = 0; k < SIDE && end + k < w.samples; k++) {
        unsigned word = load<WHOLE>(p.e + static_cast<ptrdiff_t>(p.count + k) * row, p.n);
        run &= __vseteq4(word, 0) << 4;
        result += run;
    }
    *reinterpret_cast<unsigned *>(side_of(w, p)) = result;
}

/* Adds the burst to a segment, except where an input's sample lies in a run of zeros: it had not arrived. */
template <bool WHOLE> __global__ void __launch_bounds__(THREADS) add(work w)
{
    place p = find(w);
    if (!p.inside) return;
    const br_inject_piece &piece = p.piece;
    size_t row = static_cast<size_t>(w.L) * w.D;
    unsigned side = *reinterpret_cast<const unsigned *>(side_of(w, p)), clipped = 0;
    uint64_t gone[4];
    for (int i = 0; i < 4; i++) gone[i] = inject_sides(side >> 8 * i & 15, side >> (8 * i + 4) & 15, p.count);
    for (unsigned k = 0; k < p.count; k++) {
        unsigned zero = __vseteq4(load<WHOLE>(p.e + k * row, p.n), 0);
#pragma unroll
        for (int i = 0; i < 4; i++) gone[i] |= static_cast<uint64_t>(zero >> 8 * i & 1) << (SIDE + k);
    }
    if (piece.ends && p.from + p.count == piece.count) { /* for the call that continues the line */
        uint8_t *carry = w.carry + static_cast<size_t>(piece.line) * w.D + 4 * p.group;
        for (unsigned i = 0; i < p.n; i++)
            carry[i] = static_cast<uint8_t>(
                min(static_cast<unsigned>(__clzll(~(gone[i] << (64 - SIDE - p.count)))), SIDE));
    }
    const float2 *field = reinterpret_cast<const float2 *>(w.pack + piece.at) + p.from;
    inject_factor factor[4];
    unsigned long long lost[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        gone[i] = inject_runs(gone[i]) >> SIDE;
        factor[i] = static_cast<unsigned>(i) < p.n ? factors_of(w, piece)[4 * p.group + i]
                                                   : inject_factor{0, 0, INJECT_CLASSES};
    }
    for (unsigned k = 0; k < p.count; k++) {
        float2 z = field[k];
        if (isnan(z.x)) continue;
        unsigned before = load<WHOLE>(p.e + k * row, p.n), after = 0;
        uint32_t r[4];
        random_block(piece.seed, piece.sample + p.from + k, piece.line, RANDOM_DITHER | p.group, r);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned byte = before >> 8 * i & 255;
            if (gone[i] >> k & 1)
                lost[i] += inject_energy(z.x, z.y);
            else if (factor[i].klass != INJECT_CLASSES)
                byte = inject_byte(w.tables, factor[i], byte, z.x, z.y, r[i], &clipped);
            after |= byte << 8 * i;
        }
        if (after != before) store<WHOLE>(p.e + k * row, p.n, after);
    }
    for (unsigned i = 0; i < p.n; i++)
        if (lost[i] > 0) atomicAdd(lost_of(w, piece) + 4 * p.group + i, lost[i]);
    if (clipped > 0) atomicAdd(static_cast<unsigned long long *>(piece.sums), clipped);
}

} // namespace beamring::inject

#endif
