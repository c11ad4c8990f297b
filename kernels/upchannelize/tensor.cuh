/* tensor.cuh - the filterbank on tensor cores: which kernel, and its tables. Sums are float16; at usual gains 4-bit outputs
 * differ from float64's in about one of 500 (numbers: docs/numerics.md), by one level. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_TENSOR_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_TENSOR_CUH

#include "kernels/common/fragments.h"
#include "kernels/common/half.h"
#include "kernels/upchannelize/banded.cuh"
#include "kernels/upchannelize/folded.cuh"
#include "kernels/upchannelize/plan.h"

#include <math.h>

namespace
{

constexpr int MOST_LAGS = 8;
/* Outputs beyond this many levels would leave the range in which adding 1536 rounds. */
constexpr double TENSOR_LEVELS = 1400;

struct tensor_variant {
    void (*kernel)(tensor_work);
    int threads, span; /* of a block; samples of the row */
    size_t shared;
    int unit, grain; /* steps of a unit of a walk; a walk is a multiple of so many units */
    int before;      /* units before a walk that it reads too */
    int kept;        /* steps of history */
};

int lags_of(int U, int M)
{
    return 1 + ((M - 1) * U + BR_BAND - 1) / BR_BAND;
}

double largest_of(const double *values, unsigned count)
{
    double largest = 0;
    for (unsigned i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
    return largest;
}

/* Whether the tensor cores' kernels do for a plan. Not a question of where a call's data stand: all calls of a plan have one kernel. */
bool tensor_fits(const struct br_upchannelize *plan)
{
    double sum = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) sum += fabs(plan->window[s]);
    return plan->nspectators % 64 == 0 && (plan->U <= BR_BAND ? plan->M <= 8 : plan->M <= BR_FOLD_RING) &&
           sum * largest_of(plan->gain, plan->U) * 8 * sqrt(2.0) < TENSOR_LEVELS;
}

template <int LAGS> void choose_band(tensor_variant &v, int lags)
{
    constexpr int TILES = LAGS <= 4 ? 8 : 4;
    if (lags == LAGS)
        v = {banded<LAGS, TILES>, BR_BAND_WARPS * 32, BR_BAND_WARPS * TILES * 8, 0, BR_BAND, 1, LAGS - 1, LAGS * BR_BAND};
    else if constexpr (LAGS < MOST_LAGS)
        choose_band<LAGS + 1>(v, lags);
}

template <int U> tensor_variant fold_variant(int M)
{
    using s = folding<U>;
    return {folded<U>, s::THREADS, BR_FOLD_SPAN, s::SHARED, U, BR_FOLD_TURN, M - 1, (M - 1) * U};
}

tensor_variant tensor_variant_for(int U, int M)
{
    tensor_variant v = {};
    if (U <= BR_BAND)
        choose_band<1>(v, lags_of(U, M));
    else
        v = U == 32 ? fold_variant<32>(M) : U == 64 ? fold_variant<64>(M) : fold_variant<128>(M);
    return v;
}

/* The tables, one after another. */
struct tensor_tables {
    size_t matrices, rules, taps, bytes; /* offsets in bytes */
};

tensor_tables tensor_places(int U, int M)
{
    size_t fragments = U <= BR_BAND ? static_cast<size_t>(lags_of(U, M)) : static_cast<size_t>(U / 32) * (U / 32) * 2,
           rules = fragments * 32 * sizeof(uint4), taps = rules + static_cast<size_t>(U < 4 ? 4 : U) * sizeof(uint2);
    return {0, rules, taps, taps + static_cast<size_t>(U / 4 + 1) * BR_FOLD_RING * sizeof(uint2)};
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

/* Row 0 to 7 cos and 8 to 15 sin of a chunk's eight (output step, u < U/2). */
double band_element(const struct br_upchannelize *plan, int lag, unsigned row, unsigned k)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), pair = static_cast<int>(row % 8), u = pair % (U / 2),
        s = static_cast<int>(br_band_time(k)) - lag * BR_BAND + (M - 1 - pair / (U / 2)) * U;
    if (s < 0 || s >= M * U) return 0;
    double phase = phase_of(U, u, s);
    return plan->window[s] * pair_gain(plan, u) * (row < 8 ? cos(phase) : sin(phase));
}

double fold_element(const struct br_upchannelize *plan, double largest, bool is_sin, unsigned u, unsigned k)
{
    int U = static_cast<int>(plan->U), row = static_cast<int>(u);
    double phase = phase_of(U, row, is_sin && k == 0 ? U / 2 : static_cast<int>(k));
    return largest * pair_gain(plan, row) * (is_sin ? sin(phase) : cos(phase));
}

void fill_tensor_tables(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M);
    unsigned *matrix = reinterpret_cast<unsigned *>(table + at.matrices);
    uint2 *rules = reinterpret_cast<uint2 *>(table + at.rules), *taps = reinterpret_cast<uint2 *>(table + at.taps);
    double largest = largest_of(plan->window, plan->M * plan->U);
    if (largest == 0) largest = 1;
    for (size_t fragment = 0; fragment < at.rules / (32 * sizeof(uint4)); fragment++)
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned reg = 0; reg < 4; reg++) {
                double value[2];
                for (unsigned part = 0; part < 2; part++) {
                    struct br_cell cell = br_mma_f16_a(reg, part, lane);
                    if (U <= BR_BAND) {
                        value[part] = band_element(plan, static_cast<int>(fragment), cell.row, cell.column);
                    } else { /* [U/32 rows][cos, sin][U/32 steps] */
                        size_t steps = plan->U / 32, step = fragment % steps, rest = fragment / steps;
                        value[part] =
                            fold_element(plan, largest, rest % 2 != 0, static_cast<unsigned>(rest / 2) * 16 + cell.row,
                                         static_cast<unsigned>(step) * 16 + cell.column);
                    }
                }
                *matrix++ = halves(value[0], value[1]);
            }
    for (int u = 0; u < U; u++) {
        double gain = pair_gain(plan, u), ratio = gain > 0 ? plan->gain[u] / gain : 0,
               bound = ratio != 0 ? fmin(7.5 / fabs(ratio), 65504) : 65504;
        rules[u] = make_uint2(halves(ratio, ratio), halves(bound, bound));
    }
    if (U <= BR_BAND) return;
    for (int pair = 0; pair < U / 4; pair++)
        for (int m = 0; m < M; m++) {
            auto tap = [&](int j) { return plan->window[m * U + j] / largest * (m % 2 ? -1 : 1); };
            auto partner = [&](int j) { return static_cast<int>(br_fold_partner(plan->U, static_cast<unsigned>(j))); };
            taps[pair * BR_FOLD_RING + BR_FOLD_RING - M + m] =
                make_uint2(halves(tap(2 * pair), tap(2 * pair + 1)),
                           halves(tap(partner(2 * pair)), tap(partner(2 * pair + 1))));
        }
}

} // namespace

#endif
