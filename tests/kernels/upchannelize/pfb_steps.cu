/* The steps of the filterbank's tensor-core kernels, each in a kernel of one warp or warpgroup. */
#include "tests/kernels/upchannelize/pfb_steps.h"

#include "kernels/upchannelize/gpu/wgmma/pfb_u32_64.cuh"

#include <cuda_runtime.h>

namespace
{

int finished()
{
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0 : -1;
}

__global__ void __launch_bounds__(256) unpack_words(const uint32_t *words, uint32_t *pairs)
{
    unsigned i = threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned re, im;
        unpack(re, im, words[i], words[(i + 1) % 256], k);
        pairs[(i * 4 + k) * 2] = re;
        pairs[(i * 4 + k) * 2 + 1] = im;
    }
}

__global__ void __launch_bounds__(256) unpack_ones(const uint32_t *words, uint32_t *pairs)
{
    const unsigned flip[2][2] = {{0x00080008u, 0x00070007u}, {0x00800080u, 0x00700070u}};
#pragma unroll
    for (int sample = 0; sample < 2; sample++)
#pragma unroll
        for (int part = 0; part < 2; part++)
#pragma unroll
            for (int how = 0; how < 2; how++)
                pairs[((threadIdx.x * 2 + sample) * 2 + part) * 2 + how] =
                    unpack_one(words[threadIdx.x], sample, part, flip[part][how]);
}

template <int SETS, bool MIRROR>
__global__ void __launch_bounds__(32) join_the_sets(const uint32_t *in, uint32_t *out)
{
    unsigned x[SETS][2];
    for (int i = 0; i < SETS; i++)
        for (int part = 0; part < 2; part++) x[i][part] = in[(threadIdx.x * SETS + i) * 2 + part];
    join_sets<SETS>(x, MIRROR);
    for (int i = 0; i < SETS; i++)
        for (int part = 0; part < 2; part++) out[(threadIdx.x * SETS + i) * 2 + part] = x[i][part];
}

__global__ void __launch_bounds__(32) join_the_sums(const uint32_t *sums, uint32_t *joined)
{
    const uint32_t *c = sums + threadIdx.x * 8;
    spectrum x[2];
    join_sums(x[0], x[1], c, c + 2, c + 4, c + 6);
    for (int i = 0; i < 2; i++)
        for (int sample = 0; sample < 2; sample++) {
            joined[((threadIdx.x * 2 + i) * 2 + 0) * 2 + sample] = x[i].re[sample];
            joined[((threadIdx.x * 2 + i) * 2 + 1) * 2 + sample] = x[i].im[sample];
        }
}

__global__ void __launch_bounds__(32)
    quantize_a_tile(const uint32_t *sums, const uint32_t *rules, uint32_t *bytes, unsigned long long *clamped)
{
    unsigned lane = threadIdx.x;
    const pair_rules both = {make_uint2(rules[0], rules[1]), make_uint2(rules[2], rules[3])};
    float counts[4] = {0, 0, 0, 0};
    quantize_tile(bytes[lane], bytes[32 + lane], sums[lane], sums[32 + lane], sums[64 + lane],
                  sums[96 + lane], both, counts);
    add_counts(counts, clamped);
}

__global__ void __launch_bounds__(32)
    quantize_samples(const uint32_t *x, uint32_t scale, uint32_t *bytes, uint32_t *clamped)
{
    unsigned lane = threadIdx.x, masks = 0;
    unsigned byte = quantize_sample(x[lane], x[32 + lane], scale, masks);
    bytes[lane] = field_bytes(true)(byte);
    bytes[32 + lane] = field_bytes(false)(byte);
    mask_counts counts = count_masks(masks);
    atomicAdd(&clamped[0], counts.lower);
    atomicAdd(&clamped[1], counts.upper);
}

__global__ void __launch_bounds__(128) transpose_rows(const uint8_t *rows, uint32_t *registers, uint8_t *back)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(512) uint8_t field[16 * 64], levels[32 * 64];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (unsigned i = threadIdx.x; i < 16 * 64; i += 128)
        field[br_pfb_row_place(i / 64, i % 64 / 16) + i % 16] = rows[i];
    __syncthreads();
    unsigned a, b;
    load_transposed(
        a, b, static_cast<unsigned>(__cvta_generic_to_shared(field)) + br_pfb_row_place(lane % 16, warp));
    registers[(warp * 2 + 0) * 32 + lane] = a;
    registers[(warp * 2 + 1) * 32 + lane] = b;
    store_transposed(static_cast<unsigned>(__cvta_generic_to_shared(levels)) + br_pfb_row_place(lane, warp),
                     a, b, a, b);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 32 * 64; i += 128)
        back[i] = levels[br_pfb_row_place(i / 64, i % 64 / 16) + i % 16];
#endif
}

} // namespace

extern "C" int pfb_unpack(const uint32_t *words, uint32_t *pairs)
{
    unpack_words<<<1, 256>>>(words, pairs);
    return finished();
}

extern "C" int pfb_unpack_one(const uint32_t *words, uint32_t *pairs)
{
    unpack_ones<<<1, 256>>>(words, pairs);
    return finished();
}

extern "C" int pfb_join_sets(int sets, int mirror, const uint32_t *in, uint32_t *out)
{
    if (sets == 2)
        mirror ? join_the_sets<2, true><<<1, 32>>>(in, out) : join_the_sets<2, false><<<1, 32>>>(in, out);
    else
        mirror ? join_the_sets<4, true><<<1, 32>>>(in, out) : join_the_sets<4, false><<<1, 32>>>(in, out);
    return finished();
}

extern "C" int pfb_join_sums(const uint32_t *sums, uint32_t *joined)
{
    join_the_sums<<<1, 32>>>(sums, joined);
    return finished();
}

extern "C" int pfb_quantize_tile(const uint32_t *sums, const uint32_t *rules, uint32_t *bytes,
                                 unsigned long long *clamped)
{
    quantize_a_tile<<<1, 32>>>(sums, rules, bytes, clamped);
    return finished();
}

extern "C" int pfb_quantize_sample(const uint32_t *x, uint32_t scale, uint32_t *bytes, uint32_t *clamped)
{
    quantize_samples<<<1, 32>>>(x, scale, bytes, clamped);
    return finished();
}

extern "C" int pfb_transpose(const uint8_t *rows, uint32_t *registers, uint8_t *back)
{
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (major != 9 || minor != 0) return 1;
    transpose_rows<<<1, 128>>>(rows, registers, back);
    return finished();
}
