/* arbitrary.cuh - FRB stage 2 on a GPU in float32: J[t][b] = sum_k I[t][k] W[k][b], k = (p, q), W = U_p U_q,
 * without tensor cores.
 *
 * A block forms 128 steps of 128 beams. Each of its 256 threads has 8 steps by 8 beams in registers: 4 reads
 * of shared memory feed 64 multiplications. A chunk is 16 k's of the field (as float32, transposed) and of W
 * (multiplied out from U_p and U_q, which stay in shared memory). There are two buffers: the next chunk is
 * made while this one is multiplied. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_GPU_FP32_ARBITRARY_CUH
#define BEAMRING_KERNELS_FRB_BEAMS_GPU_FP32_ARBITRARY_CUH

#include "kernels/frb_beams/gpu/store.cuh"
#include "kernels/frb_beams/gpu/weights.cuh"

namespace beamring
{

namespace fp32_arbitrary
{

constexpr unsigned THREADS = 256, TILE = 128, DEPTH = 16;

/* The arguments of a launch. */
struct work {
    const uint16_t *in;                      /* [F][stride][2M][2N] */
    const uint8_t *valid;                    /* [F][stride] or NULL */
    const phase_params *phases_m, *phases_n; /* [F][B] */
    uint16_t *out;                           /* [F][stride][B] */
    unsigned T, stride, B, np, nq;           /* T of `stride` steps are formed */
};

/* Two buffers of field[DEPTH][TILE] and w[DEPTH][TILE], then u_q[nq][TILE], u_p[np][TILE], cosines and sines
 * [nq + np]. */
inline size_t shared_bytes(unsigned np, unsigned nq)
{
    return (4 * DEPTH * TILE + static_cast<size_t>(np + nq) * (TILE + 2)) * sizeof(float);
}

/* Cosine and sine of pi i / count, i < count, made by all threads. */
__device__ __forceinline__ void make_twiddles(float2 *twiddle, unsigned count)
{
    for (unsigned i = threadIdx.x; i < count; i += THREADS)
        twiddle[i] = make_float2(cospif(static_cast<float>(i) / static_cast<float>(count)),
                                 sinpif(static_cast<float>(i) / static_cast<float>(count)));
}

/* U of one beam along one axis: `period` weights, TILE floats apart. */
__device__ __forceinline__ void make_weights(float *u, const phase_params &s, const float2 *twiddle,
                                             int period)
{
    for (int q = 0; q < period; q++) {
        int m = twiddle_index(s, q, period);
        u[static_cast<unsigned>(q) * TILE] = weight(s, m, twiddle[m]) * (1 / WEIGHT_SCALE);
    }
}

/* A thread's loads to shared memory: 8 of each DEPTH k's, for one step of the field and for one beam's W. */
struct loader {
    const uint16_t *in;     /* the field's next k; shape (cells) from k = 0 on */
    const float *u_p, *u_q; /* of this thread's beam, TILE floats apart */
    unsigned k, p, q;       /* the next k = p nq + q */
    bool present, wide;     /* the step is there; 16 bytes of the field are aligned */
    uint4 next;             /* 8 k's of the field  simd: k0  register: k2 k1 */

    __device__ __forceinline__ void fetch(unsigned cells)
    {
        next = make_uint4(0, 0, 0, 0);
        if (!present || k >= cells) return;
        if (wide) {
            next = *reinterpret_cast<const uint4 *>(in);
        } else {
            unsigned word[4] = {};
            for (unsigned i = 0; i < 8; i++)
                if (k + i < cells) word[i / 2] |= static_cast<unsigned>(in[i]) << i % 2 * 16;
            next = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }

    /* To field[k][step] and product[k][beam], this thread's column of 8 rows. A warp writes 32 consecutive
     * floats. */
    __device__ __forceinline__ void put(float *field, float *product, unsigned np, unsigned nq)
    {
        const unsigned word[4] = {next.x, next.y, next.z, next.w};
#pragma unroll
        for (unsigned i = 0; i < 8; i++) {
            __half2 both = *reinterpret_cast<const __half2 *>(&word[i / 2]);
            field[i * TILE] = i % 2 ? __high2float(both) : __low2float(both);
            product[i * TILE] = p < np ? u_p[p * TILE] * u_q[q * TILE] : 0;
            if (++q == nq) q = 0, p++;
        }
        /* The other half's k's come between. */
        k += DEPTH, in += DEPTH;
        for (q += 8; q >= nq; q -= nq) p++;
    }
};

/* Adds DEPTH k's to sum, from a[DEPTH][TILE] (the field) and b[DEPTH][TILE] (W), both from this thread's
 * columns on.
 *   sum[i][j]  register: i2, j2, i1 i0, j1 j0 <-> t6, b6, t1 t0, b1 b0
 *              thread: t7..t0 <-> t5 t4 t3 t2 b5 b4 b3 b2 */
__device__ __forceinline__ void multiply(float (&sum)[8][8], const float *a, const float *b)
{
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
}

/* out: the tile's first step, shape (T, B), contiguous. 16 lanes write 128 consecutive bytes. */
__device__ __forceinline__ void store(uint16_t *out, const float (&sum)[8][8], const work &w,
                                      unsigned first_step, unsigned down, unsigned first_beam,
                                      unsigned across, bool wide)
{
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
            if (wide && beam < w.B) {
                *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
            } else {
                for (unsigned i = 0; i < 4; i++)
                    if (beam + i < w.B) to[i] = static_cast<uint16_t>(word[i / 2] >> i % 2 * 16);
            }
        }
    }
}

__global__ void __launch_bounds__(THREADS, 2)
    form(const work w, unsigned step_tiles, bool wide_in, bool wide_out)
{
    extern __shared__ float floats[];
    float *field = floats, *product = field + 2 * DEPTH * TILE, *u_q = product + 2 * DEPTH * TILE,
          *u_p = u_q + w.nq * TILE;
    float2 *twiddle_n = reinterpret_cast<float2 *>(u_p + w.np * TILE), *twiddle_m = twiddle_n + w.nq;
    unsigned first_beam = blockIdx.x * TILE, step_tile = blockIdx.y % step_tiles, f = blockIdx.y / step_tiles;
    unsigned first_step = step_tile * TILE, cells = w.np * w.nq, thread = threadIdx.x;

    make_twiddles(twiddle_n, w.nq);
    make_twiddles(twiddle_m, w.np);
    __syncthreads();

    /* This thread loads beam or step `row` of the tile, half `half` of DEPTH k's. */
    unsigned row = thread % TILE, half = thread / TILE;
    /* phases: shape (F, B), contiguous. Half of the threads make U_q, half U_p. */
    size_t beam = static_cast<size_t>(f) * w.B + min(first_beam + row, w.B - 1);
    make_weights((half ? u_p : u_q) + row, half ? w.phases_m[beam] : w.phases_n[beam],
                 half ? twiddle_m : twiddle_n, static_cast<int>(half ? w.np : w.nq));
    __syncthreads();

    size_t time = static_cast<size_t>(f) * w.stride + first_step;
    bool present = first_step + row < w.T && (!w.valid || w.valid[time + row]);
    unsigned k = 8 * half, p = k / w.nq, first = half * 8 * TILE + row, chunk_floats = DEPTH * TILE;
    /* in: shape (F stride, cells), contiguous; after: shape (cells), contiguous */
    loader mine = {w.in + (time + (present ? row : 0)) * cells + k,
                   u_p + row,
                   u_q + row,
                   k,
                   p,
                   k - p * w.nq,
                   present,
                   wide_in};
    float sum[8][8] = {}; /* see multiply */
    unsigned across = thread % 16 * 4, down = thread / 16 * 4;
    mine.fetch(cells);
    mine.put(field + first, product + first, w.np, w.nq);
    __syncthreads();
    unsigned chunks = (cells + DEPTH - 1) / DEPTH;
    for (unsigned chunk = 0; chunk < chunks; chunk++) {
        bool more = chunk + 1 < chunks;
        unsigned now = chunk % 2 * chunk_floats, then = (chunk + 1) % 2 * chunk_floats + first;
        if (more) mine.fetch(cells);
        multiply(sum, field + now + down, product + now + across);
        if (more) mine.put(field + then, product + then, w.np, w.nq);
        __syncthreads();
    }
    /* out: shape (F stride, B), contiguous; after: shape (T, B), contiguous */
    store(w.out + time * w.B, sum, w, first_step, down, first_beam, across, wide_out);
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

} // namespace fp32_arbitrary

} // namespace beamring

#endif
