/* tables.cuh - helpers that compute the tables of the filterbank's tensor-core kernels, and a description of
 * such a kernel for the host. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_TABLES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_TABLES_CUH

#include "buffers/half.h"
#include "kernels/common/fragments.h"
#include "kernels/upchannelize/gpu/convert.cuh"
#include "kernels/upchannelize/plan.h"

#include <math.h>

namespace
{

/* Where each table of a kernel begins, and the size of all, in bytes. A table that the kernel does not have
 * takes no room. */
struct tensor_tables {
    size_t matrices, rules, taps, starts, bytes;
};

/* A kernel. Each block of threads has a part of the row and a number of units of time. */
struct tensor_variant {
    /* For aligned data with nothing missing, and for any data. NULL: wgmma_pfb_u16 (wgmma/zones.cuh), which
     * serves several plans in one launch. */
    void (*kernel)(tensor_work), (*anywhere)(tensor_work);
    int threads, span; /* of a block: threads, samples of the row */
    size_t shared;     /* bytes of shared memory */
    int unit;          /* input steps of a unit */
    int grain;         /* the number of a block's units is a multiple of this */
    int before;        /* units before a block's first one that the block reads, too */
    int kept;          /* input steps of history */
    tensor_tables (*places)(int U, int M);
    void (*fill)(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan);
    /* With TMA, for aligned data: with nothing missing, and with something missing. They replace the two
     * kernels above; NULL: there are none. */
    void (*mapped)(mapped_work), (*mapped_missing)(mapped_work);
    int sets;    /* of `mapped`: the times of a window are sorted into sets, by time modulo this number */
    int windows; /* of `mapped`: windows that one TMA load brings */
};

int lags_of(int U, int M)
{
    return 1 + ((M - 1) * U + BR_PFB_CHUNK - 1) / BR_PFB_CHUNK;
}

double largest_of(const double *values, unsigned count)
{
    double largest = 0;
    for (unsigned i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
    return largest;
}

unsigned halves(double low, double high)
{
    return br_half_from_float(static_cast<float>(low)) |
           static_cast<unsigned>(br_half_from_float(static_cast<float>(high))) << 16;
}

/* Phase of fine channel u at step s of the window, in units of pi / U, without losing digits. */
double phase_of(int U, int u, int s)
{
    return 3.14159265358979323846 * (s * (U - 1 - 2 * u) % (2 * U)) / U;
}

/* The gain of a pair of fine channels in the matrices: the larger of the two. */
double pair_gain(const struct br_upchannelize *plan, int u)
{
    return fmax(fabs(plan->gain[u]), fabs(plan->gain[static_cast<int>(plan->U) - 1 - u]));
}

double from_half(unsigned half)
{
    return static_cast<double>(br_half_to_float(static_cast<uint16_t>(half)));
}

/* The factor by which the matrices are scaled to use the range of float16. A level is a sum of 2^24 / factor
 * units. */
double matrix_factor(const struct br_upchannelize *plan)
{
    double largest = largest_of(plan->window, plan->M * plan->U) * largest_of(plan->gain, plan->U),
           factor = 4096;
    while (factor > 1 && largest * factor > 16384) factor /= 2;
    return factor;
}

/* unit: of sums, for one level */
void fill_rules(uint2 *rules, const struct br_upchannelize *plan, double unit)
{
    int U = static_cast<int>(plan->U);
    for (int u = 0; u < U; u++) {
        double gain = pair_gain(plan, u), ratio = gain > 0 ? plan->gain[u] / gain : 0,
               bound = ratio != 0 ? fmin(7.5 * unit / fabs(ratio), 65504) : 65504;
        ratio *= 0x1p-24 / unit;
        rules[u] = make_uint2(halves(ratio, ratio), halves(bound, bound));
    }
}

} // namespace

#endif
