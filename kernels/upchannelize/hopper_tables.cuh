/* hopper_tables.cuh - tables of the filterbank's kernels on Hopper (warpgroup.cuh, dense.cuh, resident.cuh),
 * and which one it is. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_HOPPER_TABLES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_HOPPER_TABLES_CUH

#include "kernels/upchannelize/dense.cuh"
#include "kernels/upchannelize/resident.cuh"
#include "kernels/upchannelize/tensor_tables.cuh"
#include "kernels/upchannelize/warpgroup.cuh"

namespace
{

uint16_t half_of(double value)
{
    return br_half_from_float(static_cast<float>(value));
}

/* Place in the matrix of a chunk, in float16 values. */
size_t matrix_place(int column, unsigned k)
{
    return br_wgmma_plain_place(static_cast<unsigned>(column), 2 * k, 128, 256) / 2;
}

/* ---- one product (warpgroup.cuh) ---- */

/* Column: cos of pairs (output step, u < U/2), then sin. `time` within the chunk, `lag` chunks before the
 * output. */
double walk_element(const struct br_upchannelize *plan, int lag, int column, int time)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), pair = column % 8, u = pair % (U / 2),
        s = time - lag * BR_BAND + (M - 1 - pair / (U / 2)) * U;
    if (s < 0 || s >= M * U) return 0;
    double phase = phase_of(U, u, s);
    return plan->window[s] * pair_gain(plan, u) * (column < 8 ? cos(phase) : sin(phase));
}

tensor_tables walk_places(int U, int)
{
    size_t rules = static_cast<size_t>(walk::COLUMNS) * BR_BAND * 2,
           starts = rules + static_cast<size_t>(U < 2 ? 2 : U) * sizeof(uint2);
    return {0, rules, starts, starts, starts + 4 * sizeof(uint4)};
}

void fill_walk(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    double factor = matrix_factor(plan);
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts);
    for (int column = 0; column < walk::COLUMNS; column++)
        for (unsigned k = 0; k < BR_BAND; k++)
            matrix[matrix_place(column, k)] = half_of(
                factor * walk_element(plan, column / 16 % walk::LAGS, column % 16, static_cast<int>(k)));
    /* [pair / 2][C_re, S_re, C_im, S_im][pair % 2]: what takes off 8 times the coefficients of a column */
    for (int column = 0; column < 16; column++) {
        double sum = 0;
        for (int lag = 0; lag < walk::LAGS; lag++)
            for (int time = 0; time < BR_BAND; time++)
                sum += from_half(half_of(factor * walk_element(plan, lag, column, time)));
        int pair = column % 8, is_sin = column / 8;
        double start = -8 * 0x1p-24 * sum;
        starts[(pair / 2 * 4 + is_sin) * 2 + pair % 2] = half_of(start);
        starts[(pair / 2 * 4 + is_sin + 2) * 2 + pair % 2] = half_of(16 * start);
    }
    fill_rules(reinterpret_cast<uint2 *>(table + at.rules), plan, 0x1p-24 * factor);
}

/* ---- dense (dense.cuh) ---- */

/* Matrices; of two times each: taps, [re, im] of what sums begin with; of two fine channels each: scales
 * [low, high]. */
template <class S> tensor_tables dense_places(int, int)
{
    return {0, S::SCALES_AT, S::TAPS, S::STARTS, S::FIELD};
}

/* Time of a row of the inner dimension. SPLIT: even times, then odd ones. */
template <class S> int dense_time(int row)
{
    return S::SPLIT ? static_cast<int>(br_split_time(S::U, static_cast<unsigned>(row))) : row;
}

/* The gain that the matrices have for what column u makes: two fine channels, SPLIT: four. */
template <class S> double dense_gain(const struct br_upchannelize *plan, int u)
{
    return S::SPLIT ? fmax(pair_gain(plan, u), pair_gain(plan, S::U / 2 - 1 - u)) : pair_gain(plan, u);
}

/* Of the fine channel's gain to that of the matrices; with the other sign, as 7 - level is what is rounded.
 */
uint16_t dense_ratio(const struct br_upchannelize *plan, int u, double gain)
{
    return half_of(gain > 0 ? -plan->gain[u] / gain / BR_DENSE_UNIT : 0);
}

template <class S>
void fill_dense(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    constexpr int U = S::U;
    int M = static_cast<int>(plan->M);
    double largest = largest_of(plan->window, plan->M * plan->U);
    if (largest == 0) largest = 1;
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *taps = reinterpret_cast<uint16_t *>(table + at.taps),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts),
             *scales = reinterpret_cast<uint16_t *>(table + at.rules);
    /* Of C and S: cos of all pairs, then sin. WHOLE: what z_re, then what 16 z_im contributes to columns of 8
     * u: real parts, imaginary parts. */
    for (int chunk = 0; chunk < S::CHUNKS; chunk++)
        for (int part = 0; part < (S::WHOLE ? 2 : 1); part++, matrix += S::MATRIX / 2)
            for (int column = 0; column < S::N; column++)
                for (unsigned k = 0; k < BR_BAND; k++) {
                    int j = dense_time<S>(chunk * BR_BAND + static_cast<int>(k)), is_im = column / 8 % 2,
                        u = S::WHOLE ? column / 16 * 8 + column % 8 : column % (S::N / 2);
                    double phase = phase_of(U, u, j), value;
                    if (!S::WHOLE)
                        value = dense_gain<S>(plan, u) * (column < S::N / 2 ? cos(phase) : sin(phase));
                    else if (part == 0)
                        value = plan->gain[u] * (is_im ? sin(phase) : cos(phase));
                    else
                        value = plan->gain[u] / 16 * (is_im ? cos(phase) : -sin(phase));
                    matrix[matrix_place(column, k)] = half_of(largest * value);
                }
    for (int i = 0; i < U / 2; i++, taps += 8, starts += 8) /* two times */
        for (int k = 0; k < 2; k++) {
            int j = dense_time<S>(2 * i + k);
            double sum = 0;
            for (int m = 0; m < M; m++) {
                double tap = BR_DENSE_UNIT * plan->window[m * U + j] / largest * (m % 2 ? -1 : 1);
                taps[(BR_DENSE_TAPS - M + m) * 2 + k] = half_of(tap);
                sum += from_half(half_of(tap));
            }
            for (int part = 0; part < 2; part++)
                starts[part * 2 + k] = half_of((part ? 16 : 1) * -8 * 0x1p-24 * sum);
        }
    for (int pair = 0; pair < U / 2; pair++) {
        bool far = S::SPLIT && pair >= U / 4;
        int u = far ? pair - U / 4 : pair;
        double gain = dense_gain<S>(plan, u);
        scales[pair / 2 * 8 + pair % 2] = dense_ratio(plan, far ? U / 2 + u : u, gain);
        scales[pair / 2 * 8 + 2 + pair % 2] = dense_ratio(plan, far ? U / 2 - 1 - u : U - 1 - u, gain);
    }
}

/* ---- resident (resident.cuh) ---- */

/* Whether times that mirror each other have the same taps, in reverse order. */
bool is_symmetric(const struct br_upchannelize *plan)
{
    unsigned N = plan->M * plan->U;
    double least = 1e-6 * largest_of(plan->window, N);
    for (unsigned s = 0; s < N / 2; s++)
        if (fabs(plan->window[s] - plan->window[N - 1 - s]) > least) return false;
    return true;
}

template <class S> tensor_tables resident_places(int, int)
{
    return {0, S::FIELD, S::TAPS, S::FIELD, S::FIELD};
}

/* Matrices, of 8 times and of those that mirror them; [chunk][q]: taps of two times, what sums begin with
 * (re), nothing, scales [low, high] of two fine channels. */
template <class S>
void fill_resident(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    constexpr int U = S::U;
    double largest = largest_of(plan->window, plan->M * plan->U);
    if (largest == 0) largest = 1;
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *record = reinterpret_cast<uint16_t *>(table + at.taps);
    for (int chunk = 0; chunk < S::CHUNKS; chunk++, matrix += S::MATRIX / 2)
        for (int column = 0; column < U; column++)
            for (unsigned k = 0; k < BR_BAND; k++) {
                int i = chunk * 8 + static_cast<int>(k % 8), u = column % (U / 2);
                double phase = phase_of(U, u, k < 8 ? i : U - 1 - i),
                       value = largest * pair_gain(plan, u) * (column < U / 2 ? cos(phase) : sin(phase));
                matrix[matrix_place(column, k)] = half_of(k < 8 ? value : -value);
            }
    for (int i = 0; i < U / 4; i++, record += S::RECORD / 2)
        for (int k = 0; k < 2; k++) { /* time, and pair of fine channels */
            int j = 2 * i + k;
            double sum = 0;
            for (int m = 0; m < BR_DENSE_TAPS; m++) {
                record[m * 2 + k] =
                    half_of(BR_DENSE_UNIT * plan->window[m * U + j] / largest * (m % 2 ? -1 : 1));
                sum += from_half(record[m * 2 + k]);
            }
            record[8 + k] = half_of(-8 * 0x1p-24 * sum);
            record[12 + k] = dense_ratio(plan, j, pair_gain(plan, j));
            record[14 + k] = dense_ratio(plan, U - 1 - j, pair_gain(plan, j));
        }
}

/* ---- which kernel ---- */

template <class S> tensor_variant dense_variant()
{
    return {dense<S>,     dense<S>, S::THREADS,        BR_TURNED_SPAN * S::GROUPS, S::SHARED,
            S::U,         S::OUT,   BR_DENSE_TAPS - 1, (BR_DENSE_TAPS - 1) * S::U, dense_places<S>,
            fill_dense<S>};
}

template <class S> tensor_variant resident_variant()
{
    return {resident<S>,
            resident<S>,
            S::THREADS,
            BR_TURNED_SPAN,
            S::SHARED,
            S::U,
            S::TURN,
            BR_DENSE_TAPS - 1,
            (BR_DENSE_TAPS - 1) * S::U,
            resident_places<S>,
            fill_resident<S>};
}

/* Those of the portable kernels that are faster on Hopper; else all 0. How many output steps at a turn,
 * warpgroups and blocks, and whether the products are X itself: as measured. */
tensor_variant hopper_variant_for(const struct br_upchannelize *plan)
{
    const int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M);
    if (U <= BR_BAND && lags_of(U, M) <= walk::LAGS) /* `walking` */
        return {nullptr,
                nullptr,
                128,
                BR_TURNED_SPAN,
                0,
                BR_BAND,
                walk::CHUNKS,
                walk::LAGS - 1,
                walk::LAGS * BR_BAND,
                walk_places,
                fill_walk};
    if (U > BR_BAND && M > BR_DENSE_TAPS) return {};
    if (U == 32) return dense_variant<dense_shape<32, 4, 1, 3, 1, true>>();
    if (U == 64 && M == BR_DENSE_TAPS && is_symmetric(plan)) return resident_variant<resident_shape<64, 3>>();
    if (U == 64) return dense_variant<dense_shape<64, 2, 1, 1, 3, false>>();
    if (U == 128) return dense_variant<dense_shape<128, 1, 1, 4, 1, false, true>>();
    return {};
}

} // namespace

#endif
