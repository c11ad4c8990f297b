/* FRB stage 1 on a GPU: which method makes a plan's images. It depends on the grid, the number of samples
 * in a block and the device alone, never on the data or on the length of calls. */
#include "kernels/common/cuda.h"
#include "kernels/frb_grid/gpu/autocorr_1d/autocorr_1d.h"
#include "kernels/frb_grid/gpu/autocorr_2d/autocorr_2d.h"
#include "kernels/frb_grid/gpu/direct/direct.h"
#include "kernels/frb_grid/plan.h"

#include <math.h>

int br_frb_grid_cuda_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                            struct br_why *why)
{
    const unsigned M = plan->grid_m, N = plan->grid_n;
    const size_t F = plan->nchannels;
    if (M % 4 != 0 || N % 4 != 0 || M < 8 || M > 32 || N < 8 || N > 32)
        return br_because(why, "on a GPU the grid must have 8, 12, ... 32 cells each way, not %u x %u", M, N);
    if (plan->npol > 2)
        return br_because(why, "%zu polarisations; on a GPU 1 or 2 are supported", plan->npol);
    if (F > (1u << 30) / (2 * MOST_BLOCKS * MOST_JOBS))
        return br_because(why, "%zu channels are too many for one launch on a GPU", F);
    if (!params->cuda) return br_because(why, "BR_CUDA needs a br_cuda");
    if (br_frb_grid_autocorr_2d_fits(plan)) return br_frb_grid_autocorr_2d_create(plan, params, why);
    if (br_frb_grid_autocorr_1d_fits(plan, params->cuda))
        return br_frb_grid_autocorr_1d_create(plan, params, why);
    return br_frb_grid_direct_create(plan, params, why);
}

void br_frb_grid_cuda_destroy(struct br_frb_grid *plan)
{
    br_frb_grid_autocorr_2d_destroy(plan);
    br_frb_grid_autocorr_1d_destroy(plan);
    br_frb_grid_direct_destroy(plan);
}

bool br_frb_grid_cuda_alike(const struct br_frb_grid *a, const struct br_frb_grid *b)
{
    return !a->autocorr_2d == !b->autocorr_2d && !a->autocorr_1d == !b->autocorr_1d &&
           !a->direct == !b->direct;
}

void br_frb_grid_cuda_exchange(struct br_frb_grid *a, struct br_frb_grid *b)
{
    if (a->autocorr_2d)
        br_frb_grid_autocorr_2d_exchange(a->autocorr_2d, b->autocorr_2d);
    else if (a->autocorr_1d)
        br_frb_grid_autocorr_1d_exchange(a->autocorr_1d, b->autocorr_1d);
    else
        br_frb_grid_direct_exchange(a->direct, b->direct);
}

void br_frb_grid_cuda_begin(struct br_frb_grid *plan)
{
    if (plan->autocorr_2d)
        br_frb_grid_autocorr_2d_begin(plan);
    else if (plan->autocorr_1d)
        br_frb_grid_autocorr_1d_begin(plan);
    else
        br_frb_grid_direct_begin(plan);
}

float br_frb_grid_cuda_unit(const struct br_frb_grid *plan)
{
    return static_cast<float>(ldexp(1, -plan->log2_scale));
}

bool br_frb_grid_cuda_together(const struct br_frb_grid *a, const struct br_frb_grid *b)
{
    return a->cuda == b->cuda && a->grid_m == b->grid_m && a->grid_n == b->grid_n && a->npol == b->npol &&
           a->ndishes == b->ndishes && !a->autocorr_2d == !b->autocorr_2d &&
           !a->autocorr_1d == !b->autocorr_1d;
}

void br_frb_grid_cuda_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    if (plan[0]->autocorr_2d)
        br_frb_grid_autocorr_2d_add(plan, span, n);
    else if (plan[0]->autocorr_1d)
        br_frb_grid_autocorr_1d_add(plan, span, n);
    else
        br_frb_grid_direct_add(plan, span, n);
}
