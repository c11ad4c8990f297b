/* tables.cuh - what the tables of the filterbank's tensor-core kernels are made with, and what the host knows
 * of a kernel. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_TABLES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_TABLES_CUH

#include "buffers/half.h"
#include "kernels/common/fragments.h"
#include "kernels/upchannelize/gpu/convert.cuh"
#include "kernels/upchannelize/plan.h"

#include <math.h>

namespace
{

/* The tables, one after another; what a kernel has none of takes no room. */
struct tensor_tables {
    size_t matrices, rules, taps, starts, bytes; /* offsets in bytes */
};

struct tensor_variant {
    /* for aligned data with nothing missing, and for any; NULL: wgmma_pfb_u16 (wgmma/zones.cuh), for several
     * plans at once */
    void (*kernel)(tensor_work), (*anywhere)(tensor_work);
    int threads, span; /* of a block; samples of the row */
    size_t shared;
    int unit;   /* steps of a unit, of which a block has several */
    int grain;  /* their number is a multiple of this */
    int before; /* units before a block's first that it reads too */
    int kept;   /* steps of history */
    tensor_tables (*places)(int U, int M);
    void (*fill)(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan);
    /* for aligned data with nothing missing, and with something; instead of the others, or NULL */
    void (*mapped)(mapped_work), (*mapped_missing)(mapped_work);
    int sets;    /* in which it has a window's times: those that are 0, 1, ... modulo that */
    int windows; /* that are copied at once */
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

/* The gain that the matrices have for a pair of fine channels. */
double pair_gain(const struct br_upchannelize *plan, int u)
{
    return fmax(fabs(plan->gain[u]), fabs(plan->gain[static_cast<int>(plan->U) - 1 - u]));
}

double from_half(unsigned half)
{
    return static_cast<double>(br_half_to_float(static_cast<uint16_t>(half)));
}

/* Elements come with a factor that makes good use of float16: sums are in units of 2^24 / factor to the
 * level. */
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
