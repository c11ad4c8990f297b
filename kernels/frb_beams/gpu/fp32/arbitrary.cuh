/* arbitrary.cuh - FRB stage 2 on a GPU in float32: J[t][b] = sum_k I[t][k] W[k][b], k = (p, q), W = U_p U_q,
 * without tensor cores.
 *
 * A block forms 128 steps of 128 beams, each of its 256 threads 8 steps by 8 beams in registers, so that 4
 * reads of shared memory feed 64 multiplications. 16 k's of the field (as float32, transposed) and of W
 * (multiplied out from U_p and U_q, which stay in shared memory) are there at a time, and those that follow
 * are made meanwhile. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_FP32_ARBITRARY_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_FP32_ARBITRARY_CUH

#include "kernels/frb_beams/gpu/store.cuh"
#include "kernels/frb_beams/gpu/weights.cuh"

namespace beamring
{

namespace single
{

constexpr unsigned THREADS = 256, TILE = 128, DEPTH = 16;

/* What a launch works on. */
struct work {
    const uint16_t *in;            /* [F][stride][2M][2N] */
    const uint8_t *valid;          /* [F][stride] or NULL */
    const seat *seats_m, *seats_n; /* [F][B] */
    uint16_t *out;                 /* [F][stride][B] */
    unsigned T, stride, B, np, nq; /* T of `stride` steps are formed */
};

/* Two buffers of field[DEPTH][TILE] and w[DEPTH][TILE], then u_q[nq][TILE], u_p[np][TILE], cosines and sines
 * [nq + np]. */
inline size_t shared_bytes(unsigned np, unsigned nq)
{
    return (4 * DEPTH * TILE + static_cast<size_t>(np + nq) * (TILE + 2)) * sizeof(float);
}

__global__ void __launch_bounds__(THREADS, 2)
    form(const work w, unsigned step_tiles, bool wide_in, bool wide_out)
{
    extern __shared__ float floats[];
    float *field = floats, *product = field + 2 * DEPTH * TILE, *u_q = product + 2 * DEPTH * TILE,
          *u_p = u_q + w.nq * TILE;
    float2 *turn_n = reinterpret_cast<float2 *>(u_p + w.np * TILE), *turn_m = turn_n + w.nq;
    unsigned first_beam = blockIdx.x * TILE, step_tile = blockIdx.y % step_tiles, f = blockIdx.y / step_tiles;
    unsigned first_step = step_tile * TILE, cells = w.np * w.nq, thread = threadIdx.x;

    for (unsigned i = thread; i < w.nq; i += THREADS)
        turn_n[i] = make_float2(cospif(static_cast<float>(i) / static_cast<float>(w.nq)),
                                sinpif(static_cast<float>(i) / static_cast<float>(w.nq)));
    for (unsigned i = thread; i < w.np; i += THREADS)
        turn_m[i] = make_float2(cospif(static_cast<float>(i) / static_cast<float>(w.np)),
                                sinpif(static_cast<float>(i) / static_cast<float>(w.np)));
    __syncthreads();

    /* What this thread brings: beam or step `row` of the tile, k's of half `half` of DEPTH. */
    unsigned row = thread % TILE, half = thread / TILE;
    {
        /* seats: shape (F, B), contiguous. Half of the threads make U_q, half U_p. */
        size_t beam = static_cast<size_t>(f) * w.B + min(first_beam + row, w.B - 1);
        const seat s = half ? w.seats_m[beam] : w.seats_n[beam];
        const float2 *turn = half ? turn_m : turn_n;
        float *u = (half ? u_p : u_q) + row;
        int period = static_cast<int>(half ? w.np : w.nq);
        for (int q = 0; q < period; q++) {
            int m = find_turn(s, q, period);
            u[static_cast<unsigned>(q) * TILE] = weight(s, m, turn[m]) * (1 / WEIGHT_SCALE);
        }
    }
    __syncthreads();

    size_t time = static_cast<size_t>(f) * w.stride + first_step;
    bool present = first_step + row < w.T && (!w.valid || w.valid[time + row]);
    /* in: shape (F stride, cells), contiguous; after: shape (cells), contiguous */
    const uint16_t *in = w.in + (time + (present ? row : 0)) * cells + 8 * half;
    unsigned k = 8 * half, p = k / w.nq, q = k - p * w.nq; /* the next k that this thread brings */

    /* next: 8 k's of the field  simd: k0  register: k2 k1 */
    uint4 next;
    auto fetch = [&]() {
        next = make_uint4(0, 0, 0, 0);
        if (!present || k >= cells) return;
        if (wide_in) {
            next = *reinterpret_cast<const uint4 *>(in);
        } else {
            unsigned word[4] = {};
            for (unsigned i = 0; i < 8; i++)
                if (k + i < cells) word[i / 2] |= static_cast<unsigned>(in[i]) << i % 2 * 16;
            next = make_uint4(word[0], word[1], word[2], word[3]);
        }
    };
    /* Into buffer `to`: a warp writes 32 consecutive floats. */
    auto put = [&](unsigned to) {
        const unsigned word[4] = {next.x, next.y, next.z, next.w};
        float *field_to = field + (to * DEPTH + 8 * half) * TILE + row,
              *product_to = product + (to * DEPTH + 8 * half) * TILE + row;
#pragma unroll
        for (unsigned i = 0; i < 8; i++) {
            __half2 both = *reinterpret_cast<const __half2 *>(&word[i / 2]);
            field_to[i * TILE] = i % 2 ? __high2float(both) : __low2float(both);
            product_to[i * TILE] = p < w.np ? u_p[p * TILE + row] * u_q[q * TILE + row] : 0;
            if (++q == w.nq) q = 0, p++;
        }
        /* The other half's k's come between. */
        k += DEPTH, in += DEPTH;
        for (q += 8; q >= w.nq; q -= w.nq) p++;
    };

    /* sum[i][j]  register: i2, j2, i1 i0, j1 j0 <-> t6, b6, t1 t0, b1 b0   thread: t7..t0 <-> t5 t4 t3 t2 b5
     * b4 b3 b2 */
    float sum[8][8] = {};
    unsigned across = thread % 16 * 4, down = thread / 16 * 4;
    fetch();
    put(0);
    __syncthreads();
    unsigned chunks = (cells + DEPTH - 1) / DEPTH;
    for (unsigned chunk = 0; chunk < chunks; chunk++) {
        bool more = chunk + 1 < chunks;
        if (more) fetch();
        const float *a = field + chunk % 2 * DEPTH * TILE + down,
                    *b = product + chunk % 2 * DEPTH * TILE + across;
#pragma unroll
        for (unsigned i = 0; i < DEPTH; i++) {
            float4 a0 = *reinterpret_cast<const float4 *>(a + i * TILE),
                   a1 = *reinterpret_cast<const float4 *>(a + i * TILE + 64);
            float4 b0 = *reinterpret_cast<const float4 *>(b + i * TILE),
                   b1 = *reinterpret_cast<const float4 *>(b + i * TILE + 64);
            const float x[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
            const float y[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int t = 0; t < 8; t++)
#pragma unroll
                for (int n = 0; n < 8; n++) sum[t][n] = fmaf(x[t], y[n], sum[t][n]);
        }
        if (more) put((chunk + 1) % 2);
        __syncthreads();
    }
    /* out: shape (F stride, B), contiguous; after: shape (T, B), contiguous. 16 lanes write 128 consecutive
     * bytes. */
    uint16_t *out = w.out + time * w.B;
#pragma unroll
    for (unsigned t = 0; t < 8; t++) {
        unsigned step = t / 4 * 64 + down + t % 4;
        if (first_step + step >= w.T) continue;
#pragma unroll
        for (unsigned n = 0; n < 8; n += 4) {
            unsigned beam = first_beam + n / 4 * 64 + across;
            uint16_t *to = out + static_cast<size_t>(step) * w.B + beam;
            const unsigned word[2] = {pack_clamped(sum[t][n], sum[t][n + 1]),
                                      pack_clamped(sum[t][n + 2], sum[t][n + 3])};
            if (wide_out && beam < w.B) {
                *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
            } else {
                for (unsigned i = 0; i < 4; i++)
                    if (beam + i < w.B) to[i] = static_cast<uint16_t>(word[i / 2] >> i % 2 * 16);
            }
        }
    }
}

/* shared_bytes() must have been allowed. */
inline void launch(const work &w, unsigned F, cudaStream_t stream)
{
    unsigned step_tiles = (w.T + TILE - 1) / TILE;
    bool wide_in = w.np * w.nq % 8 == 0 && reinterpret_cast<uintptr_t>(w.in) % 16 == 0,
         wide_out = w.B % 4 == 0 && reinterpret_cast<uintptr_t>(w.out) % 8 == 0;
    form<<<dim3((w.B + TILE - 1) / TILE, step_tiles * F), THREADS, shared_bytes(w.np, w.nq), stream>>>(
        w, step_tiles, wide_in, wide_out);
}

} // namespace single

} // namespace beamring

#endif
