/* hopper.cuh - FRB stage 1 on the warpgroups of a Hopper GPU: grid, transform along both axes, square.
 *
 * The four warps of a block of threads do four samples at a time, times and polarisations of one channel,
 * each warp one: it makes the field where the tensor cores want the right factor of the first transform,
 * whose result is where they want the left factor of the second one. That one is the warpgroup's (wgmma):
 * real and imaginary parts of 16 directions along m by all directions along n, and while the tensor cores
 * make the next tile, the last one is squared and added up. Only the second transform's table and the
 * samples' bytes go through shared memory.
 *
 * Mirror images about the middle of the grid are folded along both axes before the first transform, which
 * halves the products of both: with x = (sums, i times differences), Y[p] = sum over cells behind the middle
 * of cos x_sum + sin x_difference.
 *
 * Each warp adds up its own samples in the order of time, samples that are not there being zeros, so that the
 * calls in which they come do not matter; at the end of a block of time the four are added up. */
#ifndef BEAMRING_KERNELS_FRB_GRID_HOPPER_CUH
#define BEAMRING_KERNELS_FRB_GRID_HOPPER_CUH

#include "kernels/common/device.cuh"
#include "kernels/common/hopper.cuh"
#include "kernels/frb_grid/fft.cuh"
#include "kernels/frb_grid/hopper_samples.cuh"

#include <float.h>

namespace beamring
{

/* Where things are in shared memory, in bytes. */
struct hopper_places {
    unsigned sums, slots, skews, dishes, weights, bytes; /* the table first */
};

static __host__ __device__ inline hopper_places hopper_places_of(unsigned M, unsigned N, unsigned P,
                                                                 unsigned pitch)
{
    hopper_places p;
    const unsigned image = frb_hopper_image(M, N, 4, 0, 0) * 4, kept = frb_hopper_kept_count(M, N) * 16;
    p.sums = frb_hopper_table_bytes(N);
    p.slots = p.sums + (image > kept ? image : kept); /* second sums, then the images */
    p.skews = p.slots + FRB_HOPPER_SLOTS * frb_hopper_times(P) * pitch;
    p.dishes = p.skews + FRB_HOPPER_SLOTS * 4 * 4;
    const unsigned pairs = frb_hopper_weight(frb_hopper_groups(M) * frb_hopper_groups(N), 0);
    p.weights = p.dishes + 4 * pairs * 4; /* of each warp */
    p.bytes = p.weights + P * pairs * 8;
    return p;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* What a lane needs again and again. Some of it is in shared memory where registers would not suffice for as
 * many of these blocks of threads on a multiprocessor. */
template <int M, int N> struct hopper_constants {
    static constexpr bool WEIGHTS_SHARED = M == 16 && N == 20,
                          DISHES_SHARED = WEIGHTS_SHARED || (M >= 20 && N == 24);
    static constexpr int MG = (M + 7) / 8, NG = (N + 7) / 8,
                         TILES = (2 * M + 15) / 16; /* frb_hopper_groups, _tiles */
    unsigned shared_dishes, shared_weights;         /* addresses, of this lane's */
    unsigned dishes[NG * MG];                       /* simd: b <-> m0: places of the bytes */
    uint2 weights[NG * MG];                         /* (re, im)  simd: b <-> m0 */
    unsigned wave[TILES][MG][2];                    /* see frb_hopper_wave */

    __device__ __forceinline__ unsigned dish(int pair) const
    {
        if (!DISHES_SHARED) return dishes[pair];
        unsigned v;
        asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(v) : "r"(shared_dishes + pair * 128));
        return v;
    }

    __device__ __forceinline__ uint2 weight(int pair) const
    {
        if (!WEIGHTS_SHARED) return weights[pair];
        uint2 v;
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];\n"
                     : "=r"(v.x), "=r"(v.y)
                     : "r"(shared_weights + pair * 256));
        return v;
    }
};

/* M, N: cells. */
template <int M, int N> struct hopper_image {
    static constexpr int MG = (M + 7) / 8, NG = (N + 7) / 8; /* frb_hopper_groups */
    static constexpr int TILES = (2 * M + 15) / 16, STEPS = (NG + 1) / 2;
    static constexpr int PIECES = 2 * TILES; /* piece: real, then imaginary part of a tile */

    unsigned x[2][NG][MG];       /* re, im: see frb_hopper_member_m */
    unsigned y[2][TILES][NG][2]; /* simd: b <-> n0  register: r <-> p3  thread: t4..t0 <-> p2 p1 p0 n2 n1 (re,
                                    im; p0 to p3 of the tile) */
    float sum[TILES][N];         /* see frb_hopper_sum_p */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < N; i++) sum[t][i] = 0;
    }

    /* here: the bytes of this warp's sample. Cells without a dish have some dish's number, and weight 0. */
    __device__ __forceinline__ void fill(const uint8_t *here, const hopper_constants<M, N> &constants,
                                         unsigned low, unsigned high)
    {
        const __half2 offset = as_half2(0x64086408u), sixteenth = as_half2(0x2c002c00u),
                      offset_16 = as_half2(0xd480d480u);
#pragma unroll
        for (int n = 0; n < NG; n++)
#pragma unroll
            for (int m = 0; m < MG; m++) {
                const int i = frb_hopper_pair(MG, n, m);
                const unsigned dishes = constants.dish(i);
                const uint2 weights = constants.weight(i);
                const unsigned both = __byte_perm(here[dishes & 0xffff], here[dishes >> 16], 0x5410);
                /* Offset binary in the last bits of 1024 and, 16 times, of 1024. */
                const __half2 r = __hsub2_rn(as_half2((both & low) ^ 0x64086408u), offset);
                const __half2 s = __hfma2(as_half2((both & high) ^ 0x64806480u), sixteenth, offset_16);
                const __half2 re = as_half2(weights.x), im = as_half2(weights.y);
                x[0][n][m] = as_bits(__hfma2(__hneg2(im), s, __hmul2_rn(re, r)));
                x[1][n][m] = as_bits(__hfma2(im, r, __hmul2_rn(re, s)));
            }
#pragma unroll
        for (int n = 0; n < NG; n++) {
#pragma unroll
            for (int m = 0; m + 1 < MG; m += 2) fold(x[0][n][m], x[1][n][m], x[0][n][m + 1], x[1][n][m + 1]);
            if (MG % 2) fold_lanes(x[0][n][MG - 1], x[1][n][MG - 1], 2);
        }
#pragma unroll
        for (int m = 0; m < MG; m++) {
#pragma unroll
            for (int n = 0; n + 1 < NG; n += 2) fold(x[0][n][m], x[1][n][m], x[0][n + 1][m], x[1][n + 1][m]);
            if (NG % 2) fold_lanes(x[0][NG - 1][m], x[1][NG - 1][m], 16);
        }
    }

    /* y = wave x */
    __device__ __forceinline__ void transform(const hopper_constants<M, N> &constants)
    {
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int n = 0; n < NG; n++)
#pragma unroll
                for (int part = 0; part < 2; part++)
                    multiply<MG>(y[part][t][n], constants.wave[t], x[part][n]);
    }

    /* Starts c = y table for one piece. table: descriptor's first word. */
    __device__ __forceinline__ void start(float (&c)[N], int piece, unsigned table) const
    {
        const int t = piece / 2, part = piece % 2;
        unsigned a[STEPS][4];
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const bool both = 2 * step + 1 == NG; /* parts beside each other, see frb_hopper_table_groups */
            const unsigned(&first)[2] = y[both ? 0 : part][t][2 * step];
            const unsigned(&second)[2] = y[both ? 1 : part][t][both ? 2 * step : 2 * step + 1];
            a[step][0] = first[0], a[step][1] = first[1], a[step][2] = second[0], a[step][3] = second[1];
            wgmma_hold(a[step]);
        }
        wgmma_hold(c);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            constexpr unsigned LEADING = N / 4 * 128; /* frb_hopper_table_leading */
            const unsigned at = frb_hopper_table_step(NG, step, part) * LEADING;
            wgmma_f16<2 * N>::multiply(c, a[step], static_cast<uint64_t>(8) << 32 | (table + at / 16),
                                       step > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void square(const float (&c)[N], int piece)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            float &to = sum[piece / 2][i];
            to = fmaf(c[i], c[i], to);
        }
    }

    /* Both transforms, squares. `meanwhile` is done while the tensor cores work. */
    template <class F>
    __device__ __forceinline__ void add_intensities(const hopper_constants<M, N> &constants, unsigned table,
                                                    F meanwhile)
    {
        float c[2][N];
        transform(constants);
        start(c[0], 0, table);
        start(c[1], 1, table);
        meanwhile();
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            if (i + 1 < PIECES)
                wgmma_wait<1>();
            else
                wgmma_wait<0>();
            wgmma_hold(c[i % 2]);
            square(c[i % 2], i);
            if (i + 2 < PIECES) start(c[i % 2], i + 2, table);
        }
    }

    __device__ __forceinline__ void store(float4 *to) const
    {
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                const float *s = &sum[t][4 * i];
                to[frb_hopper_kept(N, t, i, threadIdx.x)] = make_float4(s[0], s[1], s[2], s[3]);
            }
    }

    __device__ __forceinline__ void add(const float4 *from)
    {
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                const float4 v = from[frb_hopper_kept(N, t, i, threadIdx.x)];
                float *s = &sum[t][4 * i];
                s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
            }
    }

    /* This warp's image, see frb_hopper_image. */
    __device__ __forceinline__ void spread(float *images) const
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < N; i += 2) {
                const unsigned p = frb_hopper_sum_p(t, i, lane), q = frb_hopper_sum_q(i, lane);
                if (p >= 2 * M) continue;
                *reinterpret_cast<float2 *>(images + frb_hopper_image(M, N, warp, p, q)) =
                    make_float2(sum[t][i], sum[t][i + 1]);
            }
    }

  private:
    /* The cell behind the middle and its mirror image to their sum and i times their difference. */
    static __device__ __forceinline__ void fold(unsigned &re, unsigned &im, unsigned &mirrored_re,
                                                unsigned &mirrored_im)
    {
        const __half2 a = as_half2(re), b = as_half2(im), c = as_half2(mirrored_re),
                      d = as_half2(mirrored_im);
        re = as_bits(__hadd2_rn(a, c)), im = as_bits(__hadd2_rn(b, d));
        mirrored_re = as_bits(__hsub2_rn(d, b)), mirrored_im = as_bits(__hsub2_rn(a, c));
    }

    /* The same where they are in lanes `apart`, the mirror images with a factor -i. */
    static __device__ __forceinline__ void fold_lanes(unsigned &re, unsigned &im, int apart)
    {
        const unsigned other_re = __shfl_xor_sync(WHOLE_WARP, re, apart),
                       other_im = __shfl_xor_sync(WHOLE_WARP, im, apart);
        re = as_bits(__hsub2_rn(as_half2(re), as_half2(other_im)));
        im = as_bits(__hadd2_rn(as_half2(im), as_half2(other_re)));
    }

    /* Products over the members of all groups of m. */
    template <int GROUPS>
    static __device__ __forceinline__ void multiply(unsigned (&c)[2], const unsigned (&a)[GROUPS][2],
                                                    const unsigned (&b)[GROUPS])
    {
        c[0] = c[1] = 0;
#pragma unroll
        for (int k = 0; k + 1 < GROUPS; k += 2) {
            const unsigned both_a[4] = {a[k][0], a[k][1], a[k + 1][0], a[k + 1][1]},
                           both_b[2] = {b[k], b[k + 1]};
            mma_half(c, both_a, both_b);
        }
        if (GROUPS % 2) mma_half_k8(c, a[GROUPS - 1], b[GROUPS - 1]);
    }
};

#endif

/* The image of four warps, as float16; out: [2M][2N]. */
template <int M, int N>
static __device__ __forceinline__ void hopper_write(uint16_t *out, const float *images, float factor,
                                                    bool wide)
{
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < M * N; i += 128) { /* four values of a row */
        const unsigned p = i / (N / 2), q = i % (N / 2) * 4;
        float4 s = *reinterpret_cast<const float4 *>(images + frb_hopper_image(M, N, 0, p, q));
#pragma unroll
        for (unsigned warp = 1; warp < 4; warp++) {
            const float4 v = *reinterpret_cast<const float4 *>(images + frb_hopper_image(M, N, warp, p, q));
            s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
        }
        const __half2 most = as_half2(0x7bff7bffu);
        const unsigned a = as_bits(__hmin2(__floats2half2_rn(s.x * factor, s.y * factor), most)),
                       b = as_bits(__hmin2(__floats2half2_rn(s.z * factor, s.w * factor), most));
        if (wide) {
            reinterpret_cast<uint2 *>(out)[i] = make_uint2(a, b);
        } else {
            out[4 * i] = static_cast<uint16_t>(a), out[4 * i + 1] = static_cast<uint16_t>(a >> 16);
            out[4 * i + 2] = static_cast<uint16_t>(b), out[4 * i + 3] = static_cast<uint16_t>(b >> 16);
        }
    }
}

/* Blocks of threads of a multiprocessor that registers must suffice for. */
constexpr int hopper_resident(int M, int N)
{
    return M * N <= 256 ? 4 : M * N <= 320 ? 3 : 2;
}

template <int M, int N>
__global__ void __launch_bounds__(128, hopper_resident(M, N))
    make_images_hopper(const __grid_constant__ hopper_work all)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using image = hopper_image<M, N>;
    extern __shared__ __align__(128) uint8_t memory[];
    constexpr unsigned PAIRS = image::NG * image::MG * 32;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const hopper_places place = hopper_places_of(M, N, all.P, all.pitch);
    uint4 *table = reinterpret_cast<uint4 *>(memory);
    for (unsigned i = threadIdx.x; i < frb_hopper_table_bytes(N) / 16; i += 128) table[i] = all.table[i];
    const hopper_task task(all, blockIdx.x);
    const hopper_job &w = *task.job;
    const size_t f = task.f;
    const unsigned times = 4 / all.P;
    const bool is_long = w.T > PARTIAL;
    float4 *total = reinterpret_cast<float4 *>(memory + place.sums); /* in long blocks of time */
    float *images = reinterpret_cast<float *>(memory + place.sums);
    uint8_t *slots = memory + place.slots;
    unsigned *skews = reinterpret_cast<unsigned *>(memory + place.skews);
    int begin = task.begin, end = task.end;
    int64_t left = task.left;

    hopper_source source(w, all, f, slots, skews);
    source.at = begin - begin % static_cast<int>(times);
    source.begin = begin, source.end = end;
    source.step = task.step - (begin - source.at);
    source.field += source.step * static_cast<int64_t>(w.row);
    source.turns = task.turns;
#pragma unroll
    for (int i = 0; i < FRB_HOPPER_SLOTS - 1; i++) source.copy();

    const unsigned descriptor = shared_address(table) >> 4 | frb_hopper_table_leading(N) >> 4 << 16;
    const unsigned time = frb_hopper_time(all.P, warp), pol = frb_hopper_pol(all.P, warp);

    image v;
    hopper_constants<M, N> constants;
    const unsigned where =
        (time * all.pitch + pol * all.D) * 0x10001u; /* of this warp's bytes in a turn's, for both halves */
    if (hopper_constants<M, N>::DISHES_SHARED) {
        unsigned *to = reinterpret_cast<unsigned *>(memory + place.dishes) + warp * PAIRS;
        constants.shared_dishes = shared_address(to + lane);
#pragma unroll
        for (int i = 0; i < image::NG * image::MG; i++)
            to[frb_hopper_weight(i, lane)] = w.dishes[frb_hopper_weight(i, lane)] + where;
    } else {
#pragma unroll
        for (int i = 0; i < image::NG * image::MG; i++)
            constants.dishes[i] = w.dishes[frb_hopper_weight(i, lane)] + where;
    }
    /* weights: shape (F or 1, P, pairs, lanes), contiguous; after: shape (P, pairs, lanes) */
    const uint2 *weights = w.weights + (w.shared_weights ? 0 : f) * all.P * PAIRS;
    if (hopper_constants<M, N>::WEIGHTS_SHARED) {
        uint2 *to = reinterpret_cast<uint2 *>(memory + place.weights);
        for (unsigned i = threadIdx.x; i < all.P * PAIRS; i += 128) to[i] = weights[i];
        constants.shared_weights = shared_address(to + pol * PAIRS + lane);
    } else {
#pragma unroll
        for (int i = 0; i < image::NG * image::MG; i++)
            constants.weights[i] = weights[pol * PAIRS + frb_hopper_weight(i, lane)];
    }
#pragma unroll
    for (int i = 0; i < image::TILES * image::MG; i++) {
        const uint2 both = all.wave[frb_hopper_wave(image::MG, i / image::MG, i % image::MG, lane)];
        constants.wave[i / image::MG][i % image::MG][0] = both.x,
                                          constants.wave[i / image::MG][i % image::MG][1] = both.y;
    }
    copy_async_wait<FRB_HOPPER_SLOTS - 2>();
    publish_shared();
    __syncthreads();

    unsigned slot = 0;
    for (unsigned block = task.first_block; block < task.first_block + task.blocks; block++) {
        /* before, after: shape (F, 1 or 2, kept), contiguous */
        const size_t kept = frb_hopper_kept_count(M, N), state = f * (is_long ? 2 : 1) * kept;
        v.clear();
        if (is_long) {
            __syncthreads(); /* what was an image is no more */
            v.store(total);
        }
        if (block == 0 && w.before) {
            if (is_long) {
                v.add(w.before + state + kept);
                v.store(total);
                v.clear();
            }
            v.add(w.before + state);
        }
        if (w.steps > 0) {
#pragma unroll 1
            for (int at = begin - begin % static_cast<int>(times); at < end; at += static_cast<int>(times)) {
                if (is_long && at % static_cast<int>(PARTIAL) == 0 && at > 0 && at >= begin) {
                    v.add(total);
                    v.store(total);
                    v.clear();
                }
                const uint8_t *here =
                    slots + slot * times * all.pitch + (w.aligned ? 0 : skews[slot * 4 + time]);
                slot = (slot + 1) % FRB_HOPPER_SLOTS;
                v.fill(here, constants, all.low, all.high);
                v.add_intensities(constants, descriptor, [&] {
                    copy_async_wait<FRB_HOPPER_SLOTS -
                                    3>(); /* the next turn's; slots before this turn's are free */
                    __syncthreads();
                    source.copy();
                });
            }
        }
        const bool complete = end == static_cast<int>(w.T) || w.flush;
        if (!complete) { /* goes on in the next call */
            v.store(w.after + state);
            if (is_long) {
                v.clear();
                v.add(total);
                v.store(w.after + state + kept);
            }
            break;
        }
        if (is_long) {
            v.add(total);
            __syncthreads();
        }
        v.spread(images);
        float factor = w.factor ? w.factor[static_cast<size_t>(block) * w.F + f] : w.unit;
        factor = fminf(factor * w.level[w.shared_weights ? 0 : f], FLT_MAX);
        __syncthreads();
        /* out: shape (F, out_stride, cells), contiguous */
        hopper_write<M, N>(w.out + (f * w.out_stride + block) * (4 * M * N), images, factor, w.wide);
        left -= end - begin;
        begin = 0;
        end = static_cast<int>(left < w.T ? left : w.T);
    }
#endif
}

} // namespace beamring

#endif
