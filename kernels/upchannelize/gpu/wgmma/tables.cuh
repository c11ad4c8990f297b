/* tables.cuh - the tables of the filterbank's kernels for Hopper (pfb_u16.cuh, pfb_u32_64.cuh, pfb_u128.cuh),
 * and the choice of the kernel. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_TABLES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_TABLES_CUH

#include "kernels/upchannelize/gpu/tables.cuh"
#include "kernels/upchannelize/gpu/wgmma/pfb_u128.cuh"
#include "kernels/upchannelize/gpu/wgmma/pfb_u16.cuh"
#include "kernels/upchannelize/gpu/wgmma/pfb_u32_64.cuh"

namespace
{

uint16_t half_of(double value)
{
    return br_half_from_float(static_cast<float>(value));
}

/* Place of an element in the matrix of a chunk, counted in float16 values. */
size_t matrix_place(int column, unsigned k)
{
    return br_wgmma_plain_place(static_cast<unsigned>(column), 2 * k, 128, 256) / 2;
}

/* The factor from sums to levels of fine channel u; `unit` is the gain that the matrices have already. It is
 * negative, because kernels round 7 - level. */
uint16_t scale_of(const struct br_upchannelize *plan, int u, double unit)
{
    return half_of(unit > 0 ? -plan->gain[u] / unit : 0);
}

/* ---- U up to 16 (pfb_u16.cuh) ---- */

/* Element of the matrix. Columns 0 to 7 are the cosines of pairs (output step, u < U/2), 8 to 15 their sines.
 * `time` is the step within the chunk, which lies `lag` chunks before the chunk of the output. */
double u16_coefficient(const struct br_upchannelize *plan, int lag, int column, int time)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), pair = column % 8, u = pair % (U / 2),
        s = time - lag * BR_PFB_CHUNK + (M - 1 - pair / (U / 2)) * U;
    if (s < 0 || s >= M * U) return 0;
    double phase = phase_of(U, u, s);
    return plan->window[s] * pair_gain(plan, u) * (column < 8 ? cos(phase) : sin(phase));
}

tensor_tables u16_places(int U, int)
{
    size_t rules = static_cast<size_t>(u16_shape::COLUMNS) * BR_PFB_CHUNK * 2,
           starts = rules + static_cast<size_t>(U < 2 ? 2 : U) * sizeof(uint2);
    return {0, rules, starts, starts, starts + 4 * sizeof(uint4)};
}

void fill_u16(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    double factor = matrix_factor(plan);
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts);
    for (int column = 0; column < u16_shape::COLUMNS; column++)
        for (unsigned k = 0; k < BR_PFB_CHUNK; k++)
            matrix[matrix_place(column, k)] =
                half_of(factor * u16_coefficient(plan, column / 16 % u16_shape::LAGS, column % 16,
                                                 static_cast<int>(k)));
    /* [pair / 2][C_re, S_re, C_im, S_im][pair % 2]: initial sums, which subtract the 8 in 8 + n */
    for (int column = 0; column < 16; column++) {
        double sum = 0;
        for (int lag = 0; lag < u16_shape::LAGS; lag++)
            for (int time = 0; time < BR_PFB_CHUNK; time++)
                sum += from_half(half_of(factor * u16_coefficient(plan, lag, column, time)));
        int pair = column % 8, is_sin = column / 8;
        double start = -8 * 0x1p-24 * sum;
        starts[(pair / 2 * 4 + is_sin) * 2 + pair % 2] = half_of(start);
        starts[(pair / 2 * 4 + is_sin + 2) * 2 + pair % 2] = half_of(16 * start);
    }
    fill_rules(reinterpret_cast<uint2 *>(table + at.rules), plan, 0x1p-24 * factor);
}

/* ---- U = 128 (pfb_u128.cuh) ---- */

/* Matrices; taps of two times each; initial sums [re, im] of two times each; scales [low, high] of two fine
 * channels each. */
template <class S> tensor_tables u128_places(int, int)
{
    return {0, S::SCALES, S::TAPS, S::STARTS, S::FIELD};
}

/* The gain in column u of the matrices: the largest of the four fine channels that come from this column. */
template <class S> double u128_gain(const struct br_upchannelize *plan, int u)
{
    return fmax(pair_gain(plan, u), pair_gain(plan, S::U / 2 - 1 - u));
}

template <class S> void fill_u128(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    constexpr int U = S::U;
    int M = static_cast<int>(plan->M);
    double largest = largest_of(plan->window, plan->M * plan->U);
    if (largest == 0) largest = 1;
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *taps = reinterpret_cast<uint16_t *>(table + at.taps),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts),
             *scales = reinterpret_cast<uint16_t *>(table + at.rules);
    /* columns: the cosines of all phases, then the sines */
    for (unsigned chunk = 0; chunk < S::CHUNKS; chunk++, matrix += S::MATRIX / 2)
        for (int column = 0; column < S::N; column++)
            for (unsigned k = 0; k < BR_PFB_CHUNK; k++) {
                int u = column % (S::N / 2);
                double phase =
                           phase_of(U, u, static_cast<int>(br_pfb_u128_time(U, chunk * BR_PFB_CHUNK + k))),
                       value = column < S::N / 2 ? cos(phase) : sin(phase);
                matrix[matrix_place(column, k)] = half_of(largest * u128_gain<S>(plan, u) * value);
            }
    for (int i = 0; i < U / 2; i++, taps += 8, starts += 8) /* two times */
        for (int k = 0; k < 2; k++) {
            int j = static_cast<int>(br_pfb_u128_time(U, static_cast<unsigned>(2 * i + k)));
            double sum = 0;
            for (int m = 0; m < M; m++) {
                double tap = BR_PFB_TAP_UNIT * plan->window[m * U + j] / largest * (m % 2 ? -1 : 1);
                taps[(BR_PFB_TAPS - M + m) * 2 + k] = half_of(tap);
                sum += from_half(half_of(tap));
            }
            for (int part = 0; part < 2; part++)
                starts[part * 2 + k] = half_of((part ? 16 : 1) * -8 * 0x1p-24 * sum);
        }
    for (int pair = 0; pair < U / 2; pair++) {
        bool far = pair >= U / 4;
        int u = far ? pair - U / 4 : pair;
        double unit = u128_gain<S>(plan, u) * BR_PFB_TAP_UNIT;
        scales[pair / 2 * 8 + pair % 2] = scale_of(plan, far ? U / 2 + u : u, unit);
        scales[pair / 2 * 8 + 2 + pair % 2] = scale_of(plan, far ? U / 2 - 1 - u : U - 1 - u, unit);
    }
}

/* ---- U = 32 and 64 (pfb_u32_64.cuh) ---- */

/* Matrices of the sets; [set][q]: initial sums of real parts, [cos, sin] of two phases each; [n][q]: scales
 * [low, high] of two fine channels each. */
template <class S> tensor_tables u32_64_places(int, int)
{
    return {0, S::SCALES, S::STARTS, S::STARTS, S::FIELD};
}

/* The gain of phase u in the matrices: the largest of the fine channels that come from this phase. */
template <class S> double u32_64_gain(const struct br_upchannelize *plan, int u)
{
    double gain = 0;
    for (int n = 0; n < S::SETS; n++) gain = fmax(gain, pair_gain(plan, u + 16 * n));
    return gain;
}

/* Element of the matrix of a set. Columns 0 to 7 are the cosines of the phases, 8 to 15 their sines. `lag`
 * counts windows before the output, `k` is the row within the set. */
template <class S>
double u32_64_coefficient(const struct br_upchannelize *plan, int lag, int set, int column, unsigned k)
{
    int U = S::U, u = column % 8,
        s = static_cast<int>(br_pfb_u32_64_time(S::U, static_cast<unsigned>(set) * BR_PFB_CHUNK + k)) +
            (static_cast<int>(plan->M) - 1 - lag) * U;
    if (s < 0) return 0;
    double phase = phase_of(U, u, s), value = column < 8 ? cos(phase) : sin(phase);
    return (br_pfb_u32_64_is_negated(k) ? -1 : 1) * plan->window[s] * u32_64_gain<S>(plan, u) * value;
}

template <class S>
void fill_u32_64(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    double factor = matrix_factor(plan);
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts),
             *scales = reinterpret_cast<uint16_t *>(table + at.rules);
    for (int set = 0; set < S::SETS; set++, matrix += S::MATRIX / 2, starts += 16) {
        double added[16] = {}; /* by the offsets of unpacked samples: 8, in negated rows 7 */
        for (int column = 0; column < S::COLUMNS; column++)
            for (unsigned k = 0; k < BR_PFB_CHUNK; k++) {
                int lag = static_cast<int>(br_pfb_u32_64_lag(S::LAGS, static_cast<unsigned>(column) / 16));
                uint16_t half = half_of(factor * u32_64_coefficient<S>(plan, lag, set, column % 16, k));
                matrix[matrix_place(column, k)] = half;
                if (column < S::N)
                    added[column % 16] += (br_pfb_u32_64_is_negated(k) ? 7 : 8) * from_half(half);
            }
        for (int column = 0; column < 16; column++)
            starts[column % 8 / 2 * 4 + column / 8 * 2 + column % 2] = half_of(-0x1p-24 * added[column]);
    }
    for (int n = 0; n < S::SETS; n++)
        for (int u = 0; u < 8; u++) {
            double unit = u32_64_gain<S>(plan, u) * factor;
            uint16_t *scale = scales + n * 16 + u / 2 * 4 + u % 2;
            scale[0] = scale_of(plan, u + 16 * n, unit);
            scale[2] = scale_of(plan, S::U - 1 - u - 16 * n, unit);
        }
}

/* ---- which kernel ---- */

template <class S> tensor_variant u128_variant()
{
    return {wgmma_pfb_u128<S>,
            wgmma_pfb_u128<S>,
            S::THREADS,
            BR_PFB_SPAN * S::GROUPS,
            S::SHARED,
            S::U,
            1,
            BR_PFB_TAPS - 1,
            (BR_PFB_TAPS - 1) * S::U,
            u128_places<S>,
            fill_u128<S>,
            wgmma_pfb_u128_mapped<S, false>,
            wgmma_pfb_u128_mapped<S, true>,
            2,
            1};
}

template <class S> tensor_variant u32_64_variant()
{
    return {wgmma_pfb_u32_64<S>,
            wgmma_pfb_u32_64<S>,
            S::THREADS,
            BR_PFB_SPAN,
            S::SHARED,
            S::U,
            S::LAGS,
            BR_PFB_TAPS - 1,
            (BR_PFB_TAPS - 1) * S::U,
            u32_64_places<S>,
            fill_u32_64<S>,
            wgmma_pfb_u32_64_mapped<S, false>,
            wgmma_pfb_u32_64_mapped<S, true>,
            S::SETS,
            S::PART};
}

/* The kernel for Hopper; all members are 0 if there is none. The shapes' second arguments are the fastest
 * that were measured. */
tensor_variant hopper_variant_for(const struct br_upchannelize *plan)
{
    const int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M);
    if (U <= BR_PFB_CHUNK && lags_of(U, M) <= u16_shape::LAGS) /* wgmma_pfb_u16 */
        return {nullptr,
                nullptr,
                128,
                BR_PFB_SPAN,
                0,
                BR_PFB_CHUNK,
                u16_shape::CHUNKS,
                u16_shape::LAGS - 1,
                u16_shape::LAGS * BR_PFB_CHUNK,
                u16_places,
                fill_u16};
    if (U > BR_PFB_CHUNK && M > BR_PFB_TAPS) return {};
    if (U == 32) return u32_64_variant<u32_64_shape<32, 4>>();
    if (U == 64) return u32_64_variant<u32_64_shape<64, 3>>();
    if (U == 128) return u128_variant<u128_shape<128, 4>>();
    return {};
}

} // namespace

#endif
