/* gemm.c - matrix products by cuBLASLt, for comparison. */
#include "kernels/common/cublaslt.h"
#include "tools/bench/gpu/gpu.h"

#include <stdio.h>

#if !BR_HAS_CUBLASLT_HEADER

double gpu_gemm(struct gpu *g, const struct gpu_gemm *gemm, char *why)
{
    (void)g, (void)gemm;
    snprintf(why, 128, "built without cuBLASLt's headers");
    return 0;
}

#else

static const struct br_cublaslt *lt;

#define WORKSPACE ((size_t)64 << 20)
enum { CANDIDATES = 6 };

struct product {
    struct gpu *g;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int chosen;
    void *A, *B, *C, *workspace;
    const void *one, *zero;
    cublasStatus_t status;
};

static void multiply(void *arg, unsigned i)
{
    struct product *p = arg;
    (void)i;
    cublasStatus_t status =
        lt->cublasLtMatmul(p->handle, p->what, p->one, p->A, p->a, p->B, p->b, p->zero, p->C, p->c, p->C,
                           p->c, &p->found[p->chosen].algo, p->workspace, WORKSPACE, p->g->stream.handle);
    if (status != CUBLAS_STATUS_SUCCESS) p->status = status;
}

static void set_batch(struct product *p, cublasLtMatrixLayout_t layout, size_t batch, size_t stride)
{
    int32_t count = (int32_t)batch;
    int64_t apart = (int64_t)stride;
    p->status |= lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                      sizeof count);
    p->status |= lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                      &apart, sizeof apart);
}

/* Column-major: A is k x m and transposed, B k x n, C m x n, the form that tensor cores read best. */
static void describe(struct product *p, const struct gpu_gemm *s)
{
    bool ints = s->int8 && !s->narrow;
    cudaDataType_t in = s->int8      ? CUDA_R_8I
                        : s->float32 ? CUDA_R_32F
                                     : CUDA_R_16F,
                   out = ints ? CUDA_R_32I : in, scale = ints ? CUDA_R_32I : CUDA_R_32F;
    static const int32_t int_one = 1, int_zero = 0;
    static const float small = 1.0f / 4096, real_one = 1, real_zero = 0;
    cublasOperation_t transposed = CUBLAS_OP_T;
    size_t room = WORKSPACE;
    p->one = ints ? (const void *)&int_one : s->int8 ? (const void *)&small : (const void *)&real_one;
    p->zero = ints ? (const void *)&int_zero : (const void *)&real_zero;
    p->status |=
        lt->cublasLtMatmulDescCreate(&p->what, s->int8 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, scale);
    p->status |= lt->cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                    sizeof transposed);
    p->status |= lt->cublasLtMatrixLayoutCreate(&p->a, in, s->k, s->m, (int64_t)s->k);
    p->status |= lt->cublasLtMatrixLayoutCreate(&p->b, in, s->k, s->n, (int64_t)s->k);
    p->status |= lt->cublasLtMatrixLayoutCreate(&p->c, out, s->m, s->n, (int64_t)s->m);
    set_batch(p, p->a, s->batch, s->k * s->m);
    set_batch(p, p->b, s->batch, s->k * s->n);
    set_batch(p, p->c, s->batch, s->m * s->n);
    p->status |= lt->cublasLtMatmulPreferenceCreate(&p->preference);
    p->status |= lt->cublasLtMatmulPreferenceSetAttribute(
        p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
}

double gpu_gemm(struct gpu *g, const struct gpu_gemm *s, char *why)
{
    struct product p = {.g = g};
    size_t in = s->int8 ? 1 : s->float32 ? 4 : 2, out = s->int8 && !s->narrow ? 4 : in;
    int found = 0;
    double best = 0;
    struct br_why reason;
    if ((lt = br_cublaslt(&reason)) == NULL) {
        snprintf(why, 128, "%.127s", reason.text);
        return 0;
    }
    p.A = gpu_fill(g, s->m * s->k * s->batch * in, s->int8 ? GPU_BYTES : GPU_HALVES);
    p.B = gpu_fill(g, s->n * s->k * s->batch * in, s->int8 ? GPU_BYTES : GPU_HALVES);
    p.C = gpu_alloc(g, s->m * s->n * s->batch * out);
    p.workspace = gpu_alloc(g, WORKSPACE);
    snprintf(why, 128, "no memory");
    if (p.A == NULL || p.B == NULL || p.C == NULL || p.workspace == NULL) return 0;
    p.status = lt->cublasLtCreate(&p.handle);
    if (p.status == CUBLAS_STATUS_SUCCESS) describe(&p, s);
    if (p.status == CUBLAS_STATUS_SUCCESS)
        p.status = lt->cublasLtMatmulAlgoGetHeuristic(p.handle, p.what, p.a, p.b, p.c, p.c, p.preference,
                                                      CANDIDATES, p.found, &found);
    snprintf(why, 128, "cuBLASLt failed with status %d", (int)p.status);
    for (p.chosen = 0; p.chosen < found && p.status == CUBLAS_STATUS_SUCCESS; p.chosen++) {
        if (p.found[p.chosen].state != CUBLAS_STATUS_SUCCESS) continue;
        double ms = gpu_time(g, multiply, &p, NULL);
        if (p.status != CUBLAS_STATUS_SUCCESS || ms < 0)
            snprintf(why, 128, "cuBLASLt failed with status %d", (int)p.status);
        else if (best <= 0 || ms < best)
            best = ms;
    }
    if (p.preference != NULL) lt->cublasLtMatmulPreferenceDestroy(p.preference);
    if (p.c != NULL) lt->cublasLtMatrixLayoutDestroy(p.c);
    if (p.b != NULL) lt->cublasLtMatrixLayoutDestroy(p.b);
    if (p.a != NULL) lt->cublasLtMatrixLayoutDestroy(p.a);
    if (p.what != NULL) lt->cublasLtMatmulDescDestroy(p.what);
    if (p.handle != NULL) lt->cublasLtDestroy(p.handle);
    return best;
}

#endif
