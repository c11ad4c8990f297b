/* products.c - see products.h. */
#include "kernels/correlate/gpu/products/products.h"
#include "kernels/common/cublaslt.h"

#if BR_HAS_CUBLASLT_HEADER
#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { CANDIDATES = 8 };

/* One column block. */
struct product {
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    const int8_t *rows;
    int32_t *to;
};

struct products {
    const struct br_cublaslt *lt;
    struct br_cuda *cuda;
    size_t channels, padded, pitch, nblocks;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t what;
    void *workspace;
    struct product *product; /* [nblocks] */
    cublasStatus_t status;   /* the first failure */
};

bool products_there(struct br_why *why)
{
    return br_cublaslt(why) != NULL;
}

static void ok(struct products *p, cublasStatus_t status)
{
    if (p->status == CUBLAS_STATUS_SUCCESS) p->status = status;
}

static void make_layout(struct products *p, cublasLtMatrixLayout_t *layout, cudaDataType_t type, size_t rows,
                        size_t columns, size_t pitch, size_t stride)
{
    int32_t count = (int32_t)p->channels;
    int64_t apart = (int64_t)stride;
    ok(p, p->lt->cublasLtMatrixLayoutCreate(layout, type, rows, columns, (int64_t)pitch));
    if (p->status != CUBLAS_STATUS_SUCCESS) return;
    ok(p, p->lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count));
    ok(p, p->lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &apart, sizeof apart));
}

/* Column-major, as the library counts: A is K x Mb and transposed, B is K x nb, C is Mb x nb. */
static void describe(struct products *p, struct product *one, size_t block, const int8_t *xy, int32_t *sums)
{
    size_t left = p->padded - block * PRODUCTS_BLOCK, columns = left < PRODUCTS_BLOCK ? left : PRODUCTS_BLOCK;
    size_t channel = 2 * p->padded * p->pitch;
    one->rows = xy + 2 * block * PRODUCTS_BLOCK * p->pitch;
    one->to = sums + products_offset(p->padded, block);
    make_layout(p, &one->a, CUDA_R_8I, p->pitch, 2 * left, p->pitch, channel);
    make_layout(p, &one->b, CUDA_R_8I, p->pitch, columns, p->pitch, channel);
    make_layout(p, &one->c, CUDA_R_32I, 2 * left, columns, 2 * left, products_offset(p->padded, p->nblocks));
}

static void multiply(struct products *p, const struct product *one, const cublasLtMatmulAlgo_t *algorithm,
                     bool more)
{
    static const int32_t number[2] = {0, 1};
    ok(p, p->lt->cublasLtMatmul(p->handle, p->what, &number[1], one->rows, one->a, one->rows, one->b,
                                &number[more], one->to, one->c, one->to, one->c, algorithm, p->workspace,
                                PRODUCTS_WORKSPACE, br_cuda_stream(p->cuda)));
}

/* Milliseconds of one product; negative where they could not be measured. */
static float time_of(struct products *p, const struct product *one, const cublasLtMatmulAlgo_t *algorithm,
                     cudaEvent_t begin, cudaEvent_t end)
{
    float ms = -1;
    cudaStream_t stream = br_cuda_stream(p->cuda);
    multiply(p, one, algorithm, true); /* its code is loaded now */
    cudaEventRecord(begin, stream);
    multiply(p, one, algorithm, true);
    cudaEventRecord(end, stream);
    if (cudaEventSynchronize(end) != cudaSuccess || cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
        return -1;
    return ms;
}

/* The fastest of what the library proposes. Which one it is changes no result: sums of integers are exact. */
static void choose(struct products *p, struct product *one, cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    cudaEvent_t begin = NULL, end = NULL;
    int count = 0;
    float best = -1;
    ok(p, p->lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->what, one->a, one->b, one->c, one->c,
                                                preference, CANDIDATES, found, &count));
    if (p->status == CUBLAS_STATUS_SUCCESS && count == 0) ok(p, CUBLAS_STATUS_NOT_SUPPORTED);
    if (p->status != CUBLAS_STATUS_SUCCESS) return;
    one->algorithm = found[0].algo;
    bool measure = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
    for (int k = 0; measure && k < count && p->status == CUBLAS_STATUS_SUCCESS; k++) {
        float ms = time_of(p, one, &found[k].algo, begin, end);
        if (ms < 0 || (best >= 0 && ms >= best)) continue;
        best = ms;
        one->algorithm = found[k].algo;
    }
    if (begin != NULL) cudaEventDestroy(begin);
    if (end != NULL) cudaEventDestroy(end);
}

static void make_all(struct products *p, const int8_t *xy, int32_t *sums)
{
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t preference = NULL;
    size_t room = PRODUCTS_WORKSPACE;
    ok(p, p->lt->cublasLtCreate(&p->handle));
    if (p->status == CUBLAS_STATUS_SUCCESS)
        ok(p, p->lt->cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32I, CUDA_R_32I));
    if (p->status == CUBLAS_STATUS_SUCCESS)
        ok(p, p->lt->cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                    sizeof transposed));
    if (p->status == CUBLAS_STATUS_SUCCESS) ok(p, p->lt->cublasLtMatmulPreferenceCreate(&preference));
    if (preference == NULL) return;
    ok(p, p->lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &room, sizeof room));
    for (size_t b = 0; b < p->nblocks && p->status == CUBLAS_STATUS_SUCCESS; b++) {
        describe(p, &p->product[b], b, xy, sums);
        if (p->status == CUBLAS_STATUS_SUCCESS) choose(p, &p->product[b], preference);
    }
    p->lt->cublasLtMatmulPreferenceDestroy(preference);
}

int products_create(struct products **products, struct br_cuda *cuda, size_t channels, size_t padded,
                    size_t pitch, const int8_t *xy, int32_t *sums, struct br_why *why)
{
    struct products *p = calloc(1, sizeof *p);
    *products = p;
    if (p == NULL) return br_because(why, "no memory for the correlator");
    *p = (struct products){.cuda = cuda, .channels = channels, .padded = padded, .pitch = pitch};
    p->nblocks = products_blocks(padded);
    p->product = calloc(p->nblocks, sizeof *p->product);
    if (p->product == NULL) return br_because(why, "no memory for the correlator");
    if ((p->lt = br_cublaslt(why)) == NULL) return -1;
    if ((p->workspace = br_cuda_alloc(cuda, PRODUCTS_WORKSPACE, why)) == NULL) return -1;
    make_all(p, xy, sums);
    if (p->status != CUBLAS_STATUS_SUCCESS)
        return br_because(why, "cuBLASLt cannot multiply bytes on device %d: status %d", br_cuda_device(cuda),
                          (int)p->status);
    return 0;
}

void products_destroy(struct products *p)
{
    if (p == NULL) return;
    for (size_t b = 0; p->product != NULL && b < p->nblocks; b++) {
        cublasLtMatrixLayout_t layout[] = {p->product[b].a, p->product[b].b, p->product[b].c};
        for (size_t i = 0; i < 3; i++)
            if (layout[i] != NULL) p->lt->cublasLtMatrixLayoutDestroy(layout[i]);
    }
    if (p->what != NULL) p->lt->cublasLtMatmulDescDestroy(p->what);
    if (p->handle != NULL) p->lt->cublasLtDestroy(p->handle);
    br_cuda_free(p->cuda, p->workspace);
    free(p->product);
    free(p);
}

void products_enqueue(struct products *p, size_t K, bool more)
{
    uint64_t length = K;
    for (size_t b = 0; b < p->nblocks; b++) {
        struct product *one = &p->product[b];
        ok(p, p->lt->cublasLtMatrixLayoutSetAttribute(one->a, CUBLASLT_MATRIX_LAYOUT_ROWS, &length,
                                                      sizeof length));
        ok(p, p->lt->cublasLtMatrixLayoutSetAttribute(one->b, CUBLASLT_MATRIX_LAYOUT_ROWS, &length,
                                                      sizeof length));
        multiply(p, one, &one->algorithm, more);
    }
    if (p->status != CUBLAS_STATUS_SUCCESS) br_cuda_ok(p->cuda, cudaErrorUnknown, "cublasLtMatmul");
}

#else

bool products_there(struct br_why *why)
{
    br_because(why, "this beamring was built without cuBLASLt's header");
    return false;
}

int products_create(struct products **products, struct br_cuda *cuda, size_t channels, size_t padded,
                    size_t pitch, const int8_t *xy, int32_t *sums, struct br_why *why)
{
    (void)cuda, (void)channels, (void)padded, (void)pitch, (void)xy, (void)sums;
    *products = NULL;
    return products_there(why) ? 0 : -1;
}

void products_destroy(struct products *products)
{
    (void)products;
}

void products_enqueue(struct products *products, size_t K, bool more)
{
    (void)products, (void)K, (void)more;
}

#endif
