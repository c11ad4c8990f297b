/* select.cuh - the filterbank on tensor cores: which kernel, and its tables. Sums are float16; at usual gains
 * 4-bit outputs differ from float64's in about one of 500 (numbers: docs/numerics.md), by one level. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_SELECT_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_SELECT_CUH

#include "kernels/upchannelize/gpu/mma/pfb_u16.cuh"
#include "kernels/upchannelize/gpu/mma/pfb_u32up.cuh"
#include "kernels/upchannelize/gpu/wgmma/tables.cuh"

#include <math.h>

namespace
{

constexpr int MOST_LAGS = 8;
/* Sums may be so many levels: from 2048 on, float16 numbers are more than a level apart. */
constexpr double TENSOR_LEVELS = 1400;

/* Whether a plan's shape and gain suit the tensor cores. A call's alignment does not matter: all calls of a
 * plan use kernels that give the same bits. */
bool tensor_fits(const struct br_upchannelize *plan)
{
    double sum = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) sum += fabs(plan->window[s]);
    return plan->nspectators % 64 == 0 &&
           (plan->U <= BR_PFB_CHUNK ? plan->M <= 8 : plan->M <= BR_PFB_U32UP_TAPS) &&
           sum * largest_of(plan->gain, plan->U) * 8 * sqrt(2.0) < TENSOR_LEVELS;
}

/* ---- tables ---- */

tensor_tables tensor_places(int U, int M)
{
    size_t fragments = U <= BR_PFB_CHUNK ? static_cast<size_t>(lags_of(U, M))
                                         : static_cast<size_t>(U / 32) * (U / 32) * 2,
           rules = fragments * 32 * sizeof(uint4), taps = rules + static_cast<size_t>(U) * sizeof(uint2),
           starts = taps + static_cast<size_t>(U / 4) * sizeof(u32up_taps);
    return {0, rules, taps, starts, starts + 8 * sizeof(uint4)};
}

/* Row 0 to 7 cos and 8 to 15 sin of a chunk's eight (output step, u < U/2). */
double u16_mma_coefficient(const struct br_upchannelize *plan, int lag, unsigned row, unsigned k)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), pair = static_cast<int>(row % 8),
        u = pair % (U / 2),
        s = static_cast<int>(br_pfb_u16_time(k)) - lag * BR_PFB_CHUNK + (M - 1 - pair / (U / 2)) * U;
    if (s < 0 || s >= M * U) return 0;
    double phase = phase_of(U, u, s);
    return plan->window[s] * pair_gain(plan, u) * (row < 8 ? cos(phase) : sin(phase));
}

double u32up_coefficient(const struct br_upchannelize *plan, double largest, bool is_sin, unsigned u,
                         unsigned k)
{
    int U = static_cast<int>(plan->U), row = static_cast<int>(u);
    double phase = phase_of(U, row, is_sin && k == 0 ? U / 2 : static_cast<int>(k));
    return largest * pair_gain(plan, row) * (is_sin ? sin(phase) : cos(phase));
}

/* Taps are at most this. */
constexpr double TAPS = 8192;

void fill_matrices(unsigned *matrix, size_t fragments, const struct br_upchannelize *plan, double largest,
                   double factor)
{
    for (size_t fragment = 0; fragment < fragments; fragment++)
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned reg = 0; reg < 4; reg++) {
                double value[2];
                for (unsigned part = 0; part < 2; part++) {
                    struct br_cell cell = br_mma_f16_a(reg, part, lane);
                    if (plan->U <= BR_PFB_CHUNK) {
                        value[part] = factor * u16_mma_coefficient(plan, static_cast<int>(fragment), cell.row,
                                                                   cell.column);
                    } else { /* [U/32 rows][cos, sin][U/32 steps] */
                        size_t steps = plan->U / 32, step = fragment % steps, rest = fragment / steps;
                        value[part] = u32up_coefficient(plan, largest, rest % 2 != 0,
                                                        static_cast<unsigned>(rest / 2) * 16 + cell.row,
                                                        static_cast<unsigned>(step) * 16 + cell.column);
                    }
                }
                *matrix++ = halves(value[0], value[1]);
            }
}

/* mma/pfb_u16.cuh: what takes off 8 times the coefficients (as they are rounded) of each row. */
void fill_starts(unsigned *starts, const struct br_upchannelize *plan)
{
    double factor = matrix_factor(plan);
    for (unsigned row = 0; row < 16; row++) {
        double sum = 0;
        for (int lag = 0; lag < lags_of(static_cast<int>(plan->U), static_cast<int>(plan->M)); lag++)
            for (unsigned k = 0; k < BR_PFB_CHUNK; k++)
                sum += from_half(halves(factor * u16_mma_coefficient(plan, lag, row, k), 0));
        double start = -8 * 0x1p-24 * sum;
        starts[row % 8 * 4 + row / 8] = halves(start, start);
        starts[row % 8 * 4 + row / 8 + 2] = halves(16 * start, 16 * start);
    }
}

void fill_taps(u32up_taps *taps, const struct br_upchannelize *plan, double largest)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M);
    for (int pair = 0; pair < U / 4; pair++, taps++)
        for (int k = 0; k < 2; k++) {
            double sum[2] = {0, 0};
            for (int m = 0; m < M; m++) {
                double tap[2];
                for (unsigned i = 0; i < 2; i++) {
                    unsigned j = 2 * static_cast<unsigned>(pair) + i,
                             time = k == 0 ? j : br_pfb_u32up_partner(plan->U, j);
                    tap[i] = TAPS * plan->window[m * U + static_cast<int>(time)] / largest * (m % 2 ? -1 : 1);
                    sum[i] += from_half(halves(tap[i], 0));
                }
                taps->taps[k][BR_PFB_U32UP_TAPS - M + m] = halves(tap[0], tap[1]);
            }
            for (int part = 0; part < 2; part++) {
                double scale = (part ? 16 : 1) * -8 * 0x1p-24;
                taps->starts[2 * k + part] = halves(scale * sum[0], scale * sum[1]);
            }
        }
}

void fill_tensor_tables(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    bool is_band = plan->U <= BR_PFB_CHUNK;
    double largest = largest_of(plan->window, plan->M * plan->U), factor = is_band ? matrix_factor(plan) : 1;
    if (largest == 0) largest = 1;
    fill_matrices(reinterpret_cast<unsigned *>(table + at.matrices), at.rules / (32 * sizeof(uint4)), plan,
                  largest, factor);
    fill_rules(reinterpret_cast<uint2 *>(table + at.rules), plan, 0x1p-24 * (is_band ? factor : TAPS));
    if (is_band)
        fill_starts(reinterpret_cast<unsigned *>(table + at.starts), plan);
    else
        fill_taps(reinterpret_cast<u32up_taps *>(table + at.taps), plan, largest);
}

/* ---- which kernel ---- */

/* A kernel of its own for aligned data pays with three lags and with U = 32; elsewhere it is slower
 * (measured). */
template <int LAGS> void choose_u16(tensor_variant &v, int lags)
{
    constexpr int TILES = u16_tiles(LAGS);
    if (lags == LAGS)
        v = {mma_pfb_u16<LAGS, TILES, LAGS == 3>,
             mma_pfb_u16<LAGS, TILES, false>,
             BR_PFB_U16_WARPS * 32,
             BR_PFB_U16_WARPS * TILES * 8,
             0,
             BR_PFB_CHUNK,
             1,
             LAGS - 1,
             LAGS * BR_PFB_CHUNK,
             tensor_places,
             fill_tensor_tables,
             nullptr,
             nullptr,
             0,
             0};
    else if constexpr (LAGS < MOST_LAGS)
        choose_u16<LAGS + 1>(v, lags);
}

template <int U> tensor_variant u32up_variant(int M)
{
    using s = u32up_shape<U>;
    return {mma_pfb_u32up<U, U == 32>,
            mma_pfb_u32up<U, false>,
            s::THREADS,
            BR_PFB_U32UP_SPAN,
            s::SHARED,
            U,
            BR_PFB_U32UP_STEPS,
            M - 1,
            (M - 1) * U,
            tensor_places,
            fill_tensor_tables,
            nullptr,
            nullptr,
            0,
            0};
}

/* The variant of a plan for which tensor_fits; else all 0. */
tensor_variant tensor_variant_for(const struct br_upchannelize *plan, bool on_hopper)
{
    const int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M);
    tensor_variant v = {};
    if (on_hopper) v = hopper_variant_for(plan);
    if (v.threads > 0) return v;
    if (U <= BR_PFB_CHUNK)
        choose_u16<1>(v, lags_of(U, M));
    else
        v = U == 32 ? u32up_variant<32>(M) : U == 64 ? u32up_variant<64>(M) : u32up_variant<128>(M);
    return v;
}

} // namespace

#endif
