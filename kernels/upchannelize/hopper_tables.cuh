/* hopper_tables.cuh - tables of the filterbank's kernels on Hopper (warpgroup.cuh, twostep.cuh). */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_HOPPER_TABLES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_HOPPER_TABLES_CUH

#include "kernels/upchannelize/tensor_tables.cuh"
#include "kernels/upchannelize/twostep.cuh"

namespace
{

/* ---- one product (warpgroup.cuh) ---- */

/* What `walking` of a plan has for template arguments. */
struct walk_shape {
    int lags, rows, chunks;
};

walk_shape walk_shape_for(int U, int M)
{
    if (U == 32) return {4, 32, 2};
    return {lags_of(U, M), 16, 1};
}

/* Column: cos of pairs (output step, u < U/2), then sin. `time` within the unit, `lag` units before the
 * output. */
double walk_element(const struct br_upchannelize *plan, const walk_shape &shape, int lag, int column,
                    int time)
{
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), pairs = shape.rows / 2,
        pair = column % pairs, u = pair % (U / 2),
        s = time - lag * shape.chunks * BR_BAND + (M - 1 - pair / (U / 2)) * U;
    if (s < 0 || s >= M * U) return 0;
    double phase = phase_of(U, u, s);
    return plan->window[s] * pair_gain(plan, u) * (column < pairs ? cos(phase) : sin(phase));
}

uint16_t half_of(double value)
{
    return br_half_from_float(static_cast<float>(value));
}

/* Places in the matrix of a chunk, and of (residue, part), in float16 values. */
size_t matrix_place(int column, unsigned k)
{
    return br_wgmma_plain_place(static_cast<unsigned>(column), 2 * k, 128, 256) / 2;
}

tensor_tables walk_places(int U, int M)
{
    walk_shape shape = walk_shape_for(U, M);
    size_t rules = static_cast<size_t>(shape.chunks * (2 * shape.lags - 1) * shape.rows) * BR_BAND * 2,
           starts = rules + static_cast<size_t>(U < 2 ? 2 : U) * sizeof(uint2);
    starts = (starts + 15) / 16 * 16;
    return {0, rules, starts, starts, starts + 8 * sizeof(uint4)};
}

void fill_walk(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    walk_shape shape = walk_shape_for(static_cast<int>(plan->U), static_cast<int>(plan->M));
    double factor = matrix_factor(plan);
    int columns = (2 * shape.lags - 1) * shape.rows;
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts);
    for (int chunk = 0; chunk < shape.chunks; chunk++, matrix += columns * BR_BAND)
        for (int column = 0; column < columns; column++)
            for (unsigned k = 0; k < BR_BAND; k++)
                matrix[matrix_place(column, k)] = half_of(
                    factor * walk_element(plan, shape, column / shape.rows % shape.lags, column % shape.rows,
                                          chunk * BR_BAND + static_cast<int>(br_band_time(k))));
    /* [pair / 2][C_re, S_re, C_im, S_im][pair % 2]: what takes off 8 times the coefficients of a column */
    for (int column = 0; column < shape.rows; column++) {
        double sum = 0;
        for (int lag = 0; lag < shape.lags; lag++)
            for (int time = 0; time < shape.chunks * BR_BAND; time++)
                sum += from_half(half_of(factor * walk_element(plan, shape, lag, column, time)));
        int pair = column % (shape.rows / 2), is_sin = column / (shape.rows / 2);
        double start = -8 * 0x1p-24 * sum;
        starts[(pair / 2 * 4 + is_sin) * 2 + pair % 2] = half_of(start);
        starts[(pair / 2 * 4 + is_sin + 2) * 2 + pair % 2] = half_of(16 * start);
    }
    fill_rules(reinterpret_cast<uint2 *>(table + at.rules), plan, 0x1p-24 * factor);
}

/* ---- two steps (twostep.cuh) ---- */

/* Step 1: the v-th time of residue r, `lag` blocks before the output's last. Column 2 p + (sin). */
double step1_element(const struct br_upchannelize *plan, double largest, int r, int lag, int column, int v)
{
    int m = static_cast<int>(plan->M) - 1 - lag, p = column / 2;
    if (m < 0) return 0;
    double phase =
        phase_of(16, p, 0) + 3.14159265358979323846 * ((16 * m + v) * (two::U - 1 - 2 * p) % 32) / 16;
    return plan->window[m * two::U + 4 * v + r] * largest * (column % 2 ? sin(phase) : cos(phase));
}

/* Step 2 for pair p: row k, column n of re or im, n = 2 n' + (0: of u = p + 16 n', 1: of U-1-u). With theta
 * the phase of residue r at u, X[u] = sum_r e^{i theta} (C + i S), X[U-1-u] = sum_r e^{-i theta} (C - i S).
 */
double step2_element(const struct br_upchannelize *plan, int p, bool of_im, unsigned k, int n)
{
    int u = p + 16 * (n / 2), r = static_cast<int>(br_two_residue(k, static_cast<unsigned>(p)));
    bool mirrored = n % 2 != 0, im = k / 2 % 2 != 0, sine = k % 2 != 0;
    double theta = phase_of(two::U, u, r), sign = mirrored ? -1 : 1,
           gain = plan->gain[mirrored ? two::U - 1 - u : u];
    /* e^{+-i theta} C = (cos +- i sin) (C_re + i C_im), e^{+-i theta} (+-i) S = (-sin +- i cos) (S_re + i
     * S_im) */
    double re = sine ? -sin(theta) : cos(theta), imaginary = sign * (sine ? cos(theta) : sin(theta));
    return gain * (of_im ? im ? re : imaginary : im ? -imaginary : re);
}

tensor_tables two_places()
{
    constexpr size_t SECOND = 8 * 2 * 32 * sizeof(uint2);
    return {0, two::EXCHANGE, two::EXCHANGE, two::EXCHANGE + SECOND,
            two::EXCHANGE + SECOND + BR_TWO_WALKS * 4 * sizeof(uint4)};
}

void fill_two(uint8_t *table, const tensor_tables &at, const struct br_upchannelize *plan)
{
    double factor = matrix_factor(plan), largest = largest_of(plan->gain, two::U);
    if (largest == 0) largest = 1;
    uint16_t *matrix = reinterpret_cast<uint16_t *>(table + at.matrices),
             *starts = reinterpret_cast<uint16_t *>(table + at.starts),
             *second = reinterpret_cast<uint16_t *>(table + at.taps);
    for (int r = 0; r < BR_TWO_WALKS; r++)
        for (int part = 0; part < 2; part++, matrix += two::MATRIX / 2) {
            /* imaginary parts come 16 times as large */
            double scale = part ? factor / 16 : factor;
            for (int n = 0; n < two::COLUMNS; n++)
                for (unsigned k = 0; k < BR_BAND; k++)
                    matrix[matrix_place(n, k)] =
                        half_of(scale * step1_element(plan, largest, r, n / 16 % two::LAGS, n % 16,
                                                      static_cast<int>(br_band_time(k))));
            for (int column = 0; column < 16; column++) {
                double sum = 0;
                for (int lag = 0; lag < two::LAGS; lag++)
                    for (int v = 0; v < BR_BAND; v++)
                        sum += from_half(half_of(scale * step1_element(plan, largest, r, lag, column, v)));
                /* [r][pair][re, im][C, S] */
                starts[((r * 8 + column / 2) * 2 + part) * 2 + column % 2] =
                    half_of((part ? 16 : 1) * -8 * 0x1p-24 * sum);
            }
        }
    /* [pair][re, im][lane][register][half]; with the other sign, as 7 - level is what is rounded */
    for (int p = 0; p < 8; p++)
        for (int of_im = 0; of_im < 2; of_im++)
            for (unsigned i = 0; i < 32 * 4; i++) {
                struct br_cell cell = br_mma_f16_b(i / 2 % 2, i % 2, i / 4);
                *second++ =
                    half_of(-step2_element(plan, p, of_im != 0, cell.row, static_cast<int>(cell.column)) /
                            (largest * factor));
            }
}

/* ---- which kernel ---- */

template <int LAGS, int ROWS, int CHUNKS> tensor_variant walk_variant()
{
    return {walking<LAGS, ROWS, CHUNKS>,
            walking<LAGS, ROWS, CHUNKS>,
            128,
            BR_WALK_SPAN,
            0,
            CHUNKS * BR_BAND,
            1,
            LAGS - 1,
            LAGS * CHUNKS * BR_BAND,
            walk_places,
            fill_walk};
}

/* Those of the portable kernels that are faster on Hopper; else all 0. */
tensor_variant hopper_variant_for(int U, int M)
{
    int lags = lags_of(U, M);
    if (U == two::U)
        return {two_steps,
                two_steps,
                two::THREADS,
                BR_WALK_SPAN,
                two::SHARED,
                two::U,
                1,
                two::LAGS - 1,
                (two::LAGS - 1) * two::U,
                [](int, int) { return two_places(); },
                fill_two};
    if (U == 32) return walk_variant<4, 32, 2>();
    if (U <= BR_BAND && lags == 2) return walk_variant<2, 16, 1>();
    if (U <= BR_BAND && lags == 3) return walk_variant<3, 16, 1>();
    if (U <= BR_BAND && lags == 4) return walk_variant<4, 16, 1>();
    return {};
}

} // namespace

#endif
