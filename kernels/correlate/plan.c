/* plan.c - parameters of the correlator, checked, and the sums of the implementations on the host. */
#include "kernels/correlate/plan.h"
#include "kernels/common/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 8192, MOST_CHANNELS = 65536 };

size_t br_correlate_baselines(const struct br_correlate_params *p)
{
    return p->autos ? p->ninputs : p->ninputs * (p->ninputs + 1) / 2;
}

size_t br_correlate_host_bytes(const struct br_correlate_params *p)
{
    size_t rows = p->autos ? 0 : p->ninputs + CORRELATE_J;
    return p->nchannels * br_correlate_baselines(p) * 2 * sizeof(int32_t) +
           br_parallel_workers(&p->parallel) * 3 * rows * CORRELATE_ROW;
}

size_t br_correlate_device_bytes(const struct br_correlate_params *p)
{
#if BR_WITH_CUDA
    return br_correlate_cuda_bytes(p);
#else
    (void)p;
    return 0;
#endif
}

#if !BR_WITH_CUDA
bool br_correlate_has_products(const struct br_correlate_params *p, struct br_why *why)
{
    (void)p;
    br_because(why, "this beamring was built without CUDA");
    return false;
}
#endif

static int make_backend(struct br_correlate *plan, struct br_why *why)
{
    size_t sums = plan->p.nchannels * plan->nbaselines * 2;
    if (plan->backend == BR_CUDA) {
#if BR_WITH_CUDA
        plan->cuda = plan->p.cuda;
        return plan->cuda ? br_correlate_cuda_create(plan, why) : br_because(why, "BR_CUDA needs a br_cuda");
#else
        return br_because(why, "this beamring was built without CUDA");
#endif
    }
    if (plan->backend == BR_REFERENCE) plan->sum64 = calloc(sums, sizeof *plan->sum64);
    if (plan->backend == BR_CPU) plan->sum = calloc(sums, sizeof *plan->sum);
    if ((!plan->sum64 && !plan->sum) || (plan->backend == BR_CPU && br_correlate_cpu_create(plan) != 0))
        return br_because(why, "no memory for %zu channels x %zu baselines", plan->p.nchannels,
                          plan->nbaselines);
    return 0;
}

int br_correlate_create(struct br_correlate **result, enum br_backend backend,
                        const struct br_correlate_params *p, struct br_why *why)
{
    *result = NULL;
    if (p->nchannels < 1 || p->ninputs < 1 || p->nchannels > MOST_CHANNELS || p->ninputs > MOST_INPUTS)
        return br_because(why, "%zu channels, %zu inputs; expected 1 to %d, 1 to %d", p->nchannels,
                          p->ninputs, MOST_CHANNELS, MOST_INPUTS);
    struct br_correlate *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the correlator");
    plan->backend = backend;
    plan->p = *p;
    plan->nbaselines = br_correlate_baselines(p);
    if (make_backend(plan, why) != 0) {
        br_correlate_destroy(plan);
        return -1;
    }
    *result = plan;
    return 0;
}

void br_correlate_destroy(struct br_correlate *plan)
{
    if (!plan) return;
    br_correlate_cpu_destroy(plan);
#if BR_WITH_CUDA
    br_correlate_cuda_destroy(plan);
#endif
    free(plan->sum64);
    free(plan->sum);
    free(plan);
}

int br_correlate_add(struct br_correlate *plan, size_t nsamples, const uint8_t *e, const uint8_t *valid,
                     struct br_why *why)
{
    if (nsamples > BR_CORRELATE_MAX_SAMPLES - plan->samples)
        return br_because(why,
                          "more than %d samples in one integration: their sum might not fit into 32 bits",
                          BR_CORRELATE_MAX_SAMPLES);
    plan->samples += nsamples;
    if (plan->backend == BR_REFERENCE) br_correlate_reference(plan, nsamples, e, valid);
    if (plan->backend == BR_CPU) br_correlate_cpu(plan, nsamples, e, valid);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_correlate_cuda(plan, nsamples, e, valid);
#endif
    return 0;
}

void br_correlate_read(struct br_correlate *plan, int32_t *v)
{
    size_t sums = plan->p.nchannels * plan->nbaselines * 2;
    plan->samples = 0;
    if (plan->backend == BR_REFERENCE) {
        for (size_t k = 0; k < sums; k++) v[k] = (int32_t)plan->sum64[k];
        memset(plan->sum64, 0, sums * sizeof *plan->sum64);
    }
    if (plan->backend == BR_CPU) {
        memcpy(v, plan->sum, sums * sizeof *v);
        memset(plan->sum, 0, sums * sizeof *plan->sum);
    }
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_correlate_cuda_read(plan, v);
#endif
}
