/* products.c - see products.h. */
#include "kernels/correlate/gpu/products/products.h"
#include "kernels/common/cublaslt.h"

#if BR_HAS_CUBLASLT_HEADER
#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { MOST_LENGTHS = 8, CANDIDATES = 8, SHORTEST = 128 };

/* One column block, one length of rows. */
struct product {
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

struct products {
    const struct br_cublaslt *lt;
    struct br_cuda *cuda;
    size_t padded, nblocks, most_channels;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t what;
    void *workspace;
    struct product *product; /* [length][block] */
    cublasStatus_t status;   /* the first failure */
};

static void ok(struct products *p, cublasStatus_t status)
{
    if (p->status == CUBLAS_STATUS_SUCCESS) p->status = status;
}

static void set_batch(struct products *p, cublasLtMatrixLayout_t layout, size_t count, size_t stride)
{
    int32_t channels = (int32_t)count;
    int64_t apart = (int64_t)stride;
    ok(p, p->lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &channels,
                                                  sizeof channels));
    ok(p, p->lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart,
                                                  sizeof apart));
}

static void set_channels(struct products *p, struct product *one, size_t channels, size_t samples)
{
    set_batch(p, one->a, channels, 2 * p->padded * 2 * samples);
    set_batch(p, one->b, channels, 2 * p->padded * 2 * samples);
    set_batch(p, one->c, channels, products_offset(p->padded, p->nblocks));
}

/* Column-major, as the library counts: A is K x Mb and transposed, B is K x nb, C is Mb x nb. */
static void describe(struct products *p, struct product *one, size_t block, size_t samples)
{
    size_t left = p->padded - block * PRODUCTS_BLOCK, K = 2 * samples;
    size_t columns = left < PRODUCTS_BLOCK ? left : PRODUCTS_BLOCK;
    ok(p, p->lt->cublasLtMatrixLayoutCreate(&one->a, CUDA_R_8I, K, 2 * left, (int64_t)K));
    ok(p, p->lt->cublasLtMatrixLayoutCreate(&one->b, CUDA_R_8I, K, columns, (int64_t)K));
    ok(p, p->lt->cublasLtMatrixLayoutCreate(&one->c, CUDA_R_32I, 2 * left, columns, (int64_t)(2 * left)));
    if (p->status == CUBLAS_STATUS_SUCCESS) set_channels(p, one, p->most_channels, samples);
}

static void multiply(struct products *p, const struct product *one, const cublasLtMatmulAlgo_t *algorithm,
                     size_t block, size_t samples, const int8_t *xy, int32_t *sums, bool more)
{
    static const int32_t number[2] = {0, 1};
    const int8_t *rows = xy + 2 * block * PRODUCTS_BLOCK * 2 * samples;
    int32_t *to = sums + products_offset(p->padded, block);
    ok(p, p->lt->cublasLtMatmul(p->handle, p->what, &number[1], rows, one->a, rows, one->b, &number[more], to,
                                one->c, to, one->c, algorithm, p->workspace, PRODUCTS_WORKSPACE,
                                br_cuda_stream(p->cuda)));
}

/* The fastest of what the library proposes. Which one it is changes no result: sums of integers are exact. */
static void choose(struct products *p, struct product *one, size_t block, size_t samples, bool measure,
                   const int8_t *xy, int32_t *sums)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    cudaStream_t stream = br_cuda_stream(p->cuda);
    cudaEvent_t begin = NULL, end = NULL;
    size_t room = PRODUCTS_WORKSPACE;
    int count = 0;
    float best = -1;
    ok(p, p->lt->cublasLtMatmulPreferenceCreate(&preference));
    if (p->status != CUBLAS_STATUS_SUCCESS) return;
    ok(p, p->lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &room, sizeof room));
    ok(p, p->lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->what, one->a, one->b, one->c, one->c,
                                                preference, CANDIDATES, found, &count));
    p->lt->cublasLtMatmulPreferenceDestroy(preference);
    if (p->status == CUBLAS_STATUS_SUCCESS && count == 0) ok(p, CUBLAS_STATUS_NOT_SUPPORTED);
    if (p->status != CUBLAS_STATUS_SUCCESS) return;
    one->algorithm = found[0].algo;
    if (!measure || count == 1 || cudaEventCreate(&begin) != cudaSuccess) return;
    if (cudaEventCreate(&end) == cudaSuccess)
        for (int k = 0; k < count && p->status == CUBLAS_STATUS_SUCCESS; k++) {
            float ms = 0;
            multiply(p, one, &found[k].algo, block, samples, xy, sums, true); /* its code is loaded now */
            cudaEventRecord(begin, stream);
            multiply(p, one, &found[k].algo, block, samples, xy, sums, true);
            cudaEventRecord(end, stream);
            if (cudaEventSynchronize(end) != cudaSuccess ||
                cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
                break;
            if (best < 0 || ms < best) {
                best = ms;
                one->algorithm = found[k].algo;
            }
        }
    if (end != NULL) cudaEventDestroy(end);
    cudaEventDestroy(begin);
}

static size_t lengths_of(size_t most_samples)
{
    size_t n = 1;
    while ((size_t)SHORTEST << (n - 1) < most_samples) n++;
    return n;
}

int products_create(struct products **products, struct br_cuda *cuda, size_t padded, size_t most_channels,
                    size_t most_samples, const int8_t *xy, int32_t *sums, struct br_why *why)
{
    cublasOperation_t transposed = CUBLAS_OP_T;
    struct products *p = calloc(1, sizeof *p);
    *products = p;
    if (p == NULL) return br_because(why, "no memory for the correlator");
    size_t lengths = lengths_of(most_samples);
    *p = (struct products){.cuda = cuda, .padded = padded, .most_channels = most_channels};
    p->nblocks = products_blocks(padded);
    p->product = calloc(lengths * p->nblocks + 1, sizeof *p->product); /* the last one is empty */
    if (p->product == NULL) return br_because(why, "no memory for the correlator");
    if ((p->lt = br_cublaslt(why)) == NULL) return -1;
    if ((p->workspace = br_cuda_alloc(cuda, PRODUCTS_WORKSPACE, why)) == NULL) return -1;
    ok(p, p->lt->cublasLtCreate(&p->handle));
    if (p->status == CUBLAS_STATUS_SUCCESS)
        ok(p, p->lt->cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32I, CUDA_R_32I));
    if (p->status == CUBLAS_STATUS_SUCCESS)
        ok(p, p->lt->cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                    sizeof transposed));
    for (size_t k = 0; k < lengths; k++)
        for (size_t b = 0; b < p->nblocks && p->status == CUBLAS_STATUS_SUCCESS; b++) {
            struct product *one = &p->product[k * p->nblocks + b];
            size_t samples = (size_t)SHORTEST << k;
            describe(p, one, b, samples);
            if (p->status == CUBLAS_STATUS_SUCCESS) choose(p, one, b, samples, k + 1 == lengths, xy, sums);
        }
    if (p->status != CUBLAS_STATUS_SUCCESS)
        return br_because(why, "cuBLASLt cannot multiply bytes on device %d: status %d", br_cuda_device(cuda),
                          (int)p->status);
    return 0;
}

void products_destroy(struct products *p)
{
    if (p == NULL) return;
    for (struct product *one = p->product; p->lt != NULL && one != NULL && one->a != NULL; one++) {
        p->lt->cublasLtMatrixLayoutDestroy(one->a);
        if (one->b != NULL) p->lt->cublasLtMatrixLayoutDestroy(one->b);
        if (one->c != NULL) p->lt->cublasLtMatrixLayoutDestroy(one->c);
    }
    if (p->what != NULL) p->lt->cublasLtMatmulDescDestroy(p->what);
    if (p->handle != NULL) p->lt->cublasLtDestroy(p->handle);
    br_cuda_free(p->cuda, p->workspace);
    free(p->product);
    free(p);
}

bool products_enqueue(struct products *p, size_t channels, size_t samples, const int8_t *xy, int32_t *sums,
                      bool more)
{
    size_t length = lengths_of(samples) - 1;
    for (size_t b = 0; b < p->nblocks; b++) {
        struct product *one = &p->product[length * p->nblocks + b];
        set_channels(p, one, channels, samples);
        multiply(p, one, &one->algorithm, b, samples, xy, sums, more);
    }
    if (p->status != CUBLAS_STATUS_SUCCESS) br_cuda_ok(p->cuda, cudaErrorUnknown, "cublasLtMatmul");
    return p->status == CUBLAS_STATUS_SUCCESS;
}

#endif
