/* The device inlines of kernels/common/, and the quantizer's pivot, each in a kernel of one warp or
 * warpgroup. */
#include "tests/kernels/common/inlines.h"

#include "kernels/common/hopper.cuh"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/transpose.cuh"
#include "kernels/quantize/gpu/rows.cuh"

#include <cuda_runtime.h>

using namespace beamring;

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER 1
#else
#define HOPPER 0
#endif

namespace
{

int finished()
{
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess ? 0 : -1;
}

bool is_hopper()
{
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major == 9 && minor == 0;
}

__global__ void __launch_bounds__(32) transposes(const uint32_t *in, uint32_t *out)
{
    for (int which = 0; which < INLINES_TRANSPOSES; which++) {
        unsigned x0 = in[which * 64 + threadIdx.x], x1 = in[which * 64 + 32 + threadIdx.x];
        if (which == 0)
            transpose_bytes<0>(x0, x1);
        else
            transpose_bytes<1>(x0, x1);
        out[which * 64 + threadIdx.x] = x0;
        out[which * 64 + 32 + threadIdx.x] = x1;
    }
}

__global__ void __launch_bounds__(256)
    int4s(int32_t *re, int32_t *im, uint32_t *packed, const uint32_t *words, uint32_t *re16, uint32_t *im16,
          uint32_t *not_im16)
{
    unsigned i = threadIdx.x,
             other = i * 0x9e3779b1u & 0xffffff00u; /* what is above the byte does not matter */
    re[i] = int4_re(i | other);
    im[i] = int4_im(i | other);
    packed[i] = pack_int4(re[i], im[i]);
    re16[i] = int4x4_re16(words[i]);
    im16[i] = int4x4_im16(words[i]);
    not_im16[i] = int4x4_not_im16(words[i]);
}

__global__ void __launch_bounds__(32) mma_of_int8(const int8_t *a, const int8_t *b, int *c)
{
    unsigned lane = threadIdx.x, fragment_a[4] = {}, fragment_b[2] = {};
    int sums[4];
    for (unsigned r = 0; r < 4; r++)
        for (unsigned part = 0; part < 4; part++) {
            struct br_cell cell = br_mma_s8_a(r, part, lane);
            fragment_a[r] |= static_cast<unsigned>(static_cast<uint8_t>(a[cell.row * 32 + cell.column]))
                             << part * 8;
        }
    for (unsigned r = 0; r < 2; r++)
        for (unsigned part = 0; part < 4; part++) {
            struct br_cell cell = br_mma_s8_b(r, part, lane);
            fragment_b[r] |= static_cast<unsigned>(static_cast<uint8_t>(b[cell.row * 8 + cell.column]))
                             << part * 8;
        }
    for (unsigned r = 0; r < 4; r++) sums[r] = c[br_mma_c(r, lane).row * 8 + br_mma_c(r, lane).column];
    mma_s8(sums, make_uint4(fragment_a[0], fragment_a[1], fragment_a[2], fragment_a[3]), fragment_b);
    for (unsigned r = 0; r < 4; r++) c[br_mma_c(r, lane).row * 8 + br_mma_c(r, lane).column] = sums[r];
}

template <unsigned K>
__global__ void __launch_bounds__(32) mma_of_float16(const uint16_t *a, const uint16_t *b, float *c)
{
    unsigned lane = threadIdx.x, fragment_a[4] = {}, fragment_b[2] = {};
    float sums[4];
    for (unsigned r = 0; r < K / 4; r++)
        for (unsigned part = 0; part < 2; part++) {
            struct br_cell cell = br_mma_f16_a(r, part, lane);
            fragment_a[r] |= static_cast<unsigned>(a[cell.row * K + cell.column]) << part * 16;
        }
    for (unsigned r = 0; r < K / 8; r++)
        for (unsigned part = 0; part < 2; part++) {
            struct br_cell cell = br_mma_f16_b(r, part, lane);
            fragment_b[r] |= static_cast<unsigned>(b[cell.row * 8 + cell.column]) << part * 16;
        }
    for (unsigned r = 0; r < 4; r++) sums[r] = c[br_mma_c(r, lane).row * 8 + br_mma_c(r, lane).column];
    if (K == 16) {
        mma_f16(sums, fragment_a, fragment_b);
    } else {
        unsigned two[2] = {fragment_a[0], fragment_a[1]};
        mma_f16_k8(sums, two, fragment_b[0]);
    }
    for (unsigned r = 0; r < 4; r++) c[br_mma_c(r, lane).row * 8 + br_mma_c(r, lane).column] = sums[r];
}

__global__ void __launch_bounds__(32) pivots(const uint32_t *x, float *start)
{
    float minus[4];
    quantize::minus_pivot(minus, x[threadIdx.x], x[32 + threadIdx.x], 1);
    for (unsigned r = 0; r < 4; r++) start[r * 32 + threadIdx.x] = minus[r];
}

__global__ void __launch_bounds__(32) matrices(const uint4 *rows, uint32_t *registers)
{
    __shared__ uint4 shared[32];
    unsigned to[4];
    shared[threadIdx.x] = rows[threadIdx.x];
    __syncwarp();
    load_matrices(to, shared_address(&shared[threadIdx.x]));
    for (int r = 0; r < 4; r++) registers[r * 32 + threadIdx.x] = to[r];
}

/* ---- wgmma ---- */

enum { ROW = 128 }; /* bytes of k */

template <bool FIRST, typename A, typename B> struct conditional {
    using type = A;
};
template <typename A, typename B> struct conditional<false, A, B> {
    using type = B;
};

/* a: shape (64, ROW) bytes, b: shape (COLUMNS, ROW) bytes, c: shape (64, COLUMNS), all contiguous. */
template <int COLUMNS, bool FLOAT, typename VALUE>
__global__ void __launch_bounds__(128) warpgroup(const uint8_t *a, const uint8_t *b, VALUE *c, bool swizzled)
{
#if HOPPER
    extern __shared__ __align__(1024) uint8_t shared_b[];
    unsigned lane = threadIdx.x;
    /* plainly: 8 core matrices of a row of them side by side, 128 bytes each */
    for (unsigned i = lane; i < COLUMNS * ROW; i += 128)
        shared_b[swizzled ? br_wgmma_128_place(i / ROW, i % ROW)
                          : br_wgmma_plain_place(i / ROW, i % ROW, 128, 1024)] = b[i];
    publish_shared();
    __syncthreads();

    VALUE sums[COLUMNS / 2];
    unsigned fragments[4][4] = {};
#pragma unroll
    for (unsigned r = 0; r < COLUMNS / 2; r++) {
        struct br_cell cell = br_wgmma_c(r, lane);
        sums[r] = c[cell.row * COLUMNS + cell.column];
    }
#pragma unroll
    for (unsigned step = 0; step < 4; step++)
#pragma unroll
        for (unsigned r = 0; r < 4; r++)
#pragma unroll
            for (unsigned byte = 0; byte < 4; byte++) {
                struct br_cell cell =
                    FLOAT ? br_wgmma_f16_a(r, byte / 2, lane) : br_wgmma_s8_a(r, byte, lane);
                unsigned k = FLOAT ? cell.column * 2 + byte % 2 : cell.column;
                fragments[step][r] |= static_cast<unsigned>(a[cell.row * ROW + step * 32 + k]) << byte * 8;
            }
    /* 32 bytes of k: 32 on within the swizzled row, or two core matrices of 128 */
    unsigned on = swizzled ? 32 : 256;
    br_wgmma_swizzle how = swizzled ? BR_WGMMA_128 : BR_WGMMA_PLAIN;
    using product = typename conditional<FLOAT, wgmma_f16<COLUMNS>, wgmma_s8<COLUMNS>>::type;
    wgmma_hold(sums);
#pragma unroll
    for (unsigned step = 0; step < 4; step++) wgmma_hold(fragments[step]);
    wgmma_fence();
#pragma unroll
    for (unsigned step = 0; step < 4; step++)
        product::multiply(sums, fragments[step],
                          br_wgmma_descriptor(shared_address(shared_b) + step * on, 128, 1024, how), true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(sums);
#pragma unroll
    for (unsigned r = 0; r < COLUMNS / 2; r++) {
        struct br_cell cell = br_wgmma_c(r, lane);
        c[cell.row * COLUMNS + cell.column] = sums[r];
    }
#else
    (void)a, (void)b, (void)c, (void)swizzled;
#endif
}

template <int COLUMNS> int run_warpgroup(bool is_float, bool swizzled, const void *a, const void *b, void *c)
{
    constexpr int BYTES = COLUMNS * ROW;
    const uint8_t *x = static_cast<const uint8_t *>(a), *y = static_cast<const uint8_t *>(b);
    if constexpr (COLUMNS == 64) {
        if (is_float)
            warpgroup<COLUMNS, true, float><<<1, 128, BYTES>>>(x, y, static_cast<float *>(c), swizzled);
    }
    if (!is_float) warpgroup<COLUMNS, false, int><<<1, 128, BYTES>>>(x, y, static_cast<int *>(c), swizzled);
    return finished();
}

__global__ void __launch_bounds__(32)
    boxes(uint8_t *seen, int x, int y, const __grid_constant__ CUtensorMap from,
          const __grid_constant__ CUtensorMap to)
{
#if HOPPER
    __shared__ __align__(1024) uint8_t box[16 * 128];
    __shared__ barrier full;
    if (threadIdx.x == 0) {
        barrier_start(&full, 1);
        barrier_publish();
        tensor_prefetch(&from);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        barrier_expect(&full, sizeof box);
        tensor_load(box, &from, &full, x, y);
    }
    barrier_wait(&full, 0);
    for (unsigned i = threadIdx.x; i < sizeof box; i += 32) seen[i] = box[i];
    publish_shared();
    __syncwarp();
    if (threadIdx.x == 0 && x >= 0 && y >= 0) {
        tensor_store(&to, box, x, y);
        bulk_commit();
        bulk_wait_read<0>();
        bulk_wait<0>();
    }
#else
    (void)seen, (void)x, (void)y, (void)from, (void)to;
#endif
}

} // namespace

extern "C" int inlines_transpose(const uint32_t *in, uint32_t *out)
{
    transposes<<<1, 32>>>(in, out);
    return finished();
}

extern "C" int inlines_int4(int32_t *re, int32_t *im, uint32_t *packed, const uint32_t *words, uint32_t *re16,
                            uint32_t *im16, uint32_t *not_im16)
{
    int4s<<<1, 256>>>(re, im, packed, words, re16, im16, not_im16);
    return finished();
}

extern "C" int inlines_mma(int which, const void *a, const void *b, void *c)
{
    const uint16_t *x = static_cast<const uint16_t *>(a), *y = static_cast<const uint16_t *>(b);
    if (which == 0)
        mma_of_int8<<<1, 32>>>(static_cast<const int8_t *>(a), static_cast<const int8_t *>(b),
                               static_cast<int *>(c));
    else if (which == 1)
        mma_of_float16<16><<<1, 32>>>(x, y, static_cast<float *>(c));
    else
        mma_of_float16<8><<<1, 32>>>(x, y, static_cast<float *>(c));
    return finished();
}

extern "C" int inlines_load_matrices(const uint16_t *rows, uint32_t *registers)
{
    matrices<<<1, 32>>>(reinterpret_cast<const uint4 *>(rows), registers);
    return finished();
}

extern "C" int inlines_pivot(const uint32_t *x, float *start)
{
    pivots<<<1, 32>>>(x, start);
    return finished();
}

extern "C" int inlines_wgmma(int is_float, int columns, int swizzled, const void *a, const void *b, void *c)
{
    if (!is_hopper()) return 1;
    switch (columns) {
    case 32:
        return run_warpgroup<32>(is_float, swizzled, a, b, c);
    case 48:
        return run_warpgroup<48>(is_float, swizzled, a, b, c);
    case 64:
        return run_warpgroup<64>(is_float, swizzled, a, b, c);
    case 128:
        return run_warpgroup<128>(is_float, swizzled, a, b, c);
    case 192:
        return run_warpgroup<192>(is_float, swizzled, a, b, c);
    default:
        return -1;
    }
}

extern "C" int inlines_tensor(const uint8_t *in, uint8_t *seen, uint8_t *out, unsigned rows,
                              unsigned row_bytes, int x, int y)
{
    tensor_map_encoder encode = is_hopper() ? find_tensor_map_encoder() : nullptr;
    if (encode == nullptr) return 1;
    CUtensorMap maps[2];
    uint8_t *memory[2] = {const_cast<uint8_t *>(in), out};
    cuuint64_t size[2] = {row_bytes, rows}, stride[1] = {row_bytes};
    cuuint32_t box[2] = {128, 16}, ones[2] = {1, 1};
    for (int i = 0; i < 2; i++)
        if (encode(&maps[i], CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, memory[i], size, stride, box, ones,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
            return -1;
    boxes<<<1, 32>>>(seen, x, y, maps[0], maps[1]);
    return finished();
}
