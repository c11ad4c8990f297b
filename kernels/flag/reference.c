/* The definition, one sample and one input at a time, in float64. */
#include "kernels/flag/plan.h"

#include <math.h>

void br_flag_reference_add(struct br_flag *plan, size_t at, size_t nsteps, const uint8_t *e,
                           const uint8_t *cells, uint8_t *out)
{
    size_t F = plan->p.nchannels, N = plan->p.ninputs;
    for (size_t t = at; t < at + nsteps; t++)
        for (size_t f = 0; f < F; f++)
            for (size_t n = 0; n < N; n++) {
                size_t cell = (t - at) * F + f, byte = e[cell * N + n];
                int re = (int)(byte & 15) - (byte & 8 ? 16 : 0),
                    im = (int)(byte >> 4) - (byte & 128 ? 16 : 0);
                uint32_t power = (uint32_t)(re * re + im * im);
                uint32_t *s1 = plan->sums + (t / plan->p.block * F + f) * 2 * N + n;
                uint16_t *lost = plan->lost + (t / plan->p.block * F + f) * N + n;
                if (t % plan->p.block == 0 || t == plan->begin) s1[0] = s1[N] = *lost = 0;
                if (cells == NULL || cells[cell] != FLAG_OUT) {
                    s1[0] += power;
                    s1[N] += power * power;
                }
                if (cells != NULL && cells[cell] == FLAG_GAPS && t % plan->p.block % FLAG_RUN == 0) {
                    int there = 0;
                    for (size_t k = 0; k < FLAG_RUN; k++) there |= e[(cell + k * F) * N + n];
                    *lost += there == 0 ? FLAG_RUN : 0;
                }
                out[cell * N + n] = plan->bad[n] ? 0 : (uint8_t)byte;
            }
}

static double kurtosis(double s0, double s1, double s2)
{
    return (s0 + 1) / (s0 - 1) * (s0 * s2 / (s1 * s1) - 1);
}

/* b, k2, k3, k4 of noise with this mean power, of M samples. */
static void expected(const struct br_flag *plan, double k[4], double power, double M)
{
    static const float inverse[FLAG_ROWS] = FLAG_INVERSES;
    double p = fmin(fmax(power, 1), 76), place = p < 4 ? 4 * (p - 1) : FLAG_FINE + p - 4;
    int row = 0, column = (int)fmin(place, FLAG_POWERS - 2);
    while (row < FLAG_ROWS - 2 && 1 / M <= (double)inverse[row + 1]) row++;
    double u = ((double)inverse[row] - 1 / M) / ((double)inverse[row] - (double)inverse[row + 1]),
           v = place - column;
    for (int i = 0; i < 4; i++) {
        double value = 0;
        for (int j = 0; j < 4; j++)
            value += (j & 1 ? v : 1 - v) * (j & 2 ? u : 1 - u) *
                     (double)plan->table[row + j / 2][column + j % 2][i];
        k[i] = value / pow(M, i);
    }
}

/* Cornish-Fisher: the normal deviate s is this many standard deviations, up and down. */
static bool stands_out(const double k[4], double s)
{
    double skew = k[2] / pow(k[1], 1.5), tail = k[3] / (k[1] * k[1]), z = k[0] / sqrt(k[1]);
    skew = fmax(fmin(skew, 1.5 / s), -1.5 / s);
    tail = fmax(fmin(tail, 4.5 / (s * s)), -4.5 / (s * s));
    double even = skew * (s * s - 1) / 6,
           odd = s + tail * (s * s * s - 3 * s) / 24 - skew * skew * (2 * s * s * s - 5 * s) / 36;
    return z > even + odd || z < even - odd;
}

static double lost_of(const struct br_flag *plan, size_t cell, size_t n)
{
    return plan->lost[cell * plan->p.ninputs + n];
}

/* One block of one channel, of which `steps` samples came. */
static enum br_flag_reason judge_block(const struct br_flag *plan, size_t cell, size_t steps)
{
    const struct br_flag_rules *r = &plan->rules;
    const uint32_t *s1 = plan->sums + cell * 2 * plan->p.ninputs, *s2 = s1 + plan->p.ninputs;
    double M = plan->s0[cell], all[4] = {0, 0, 0, 0};
    size_t part = 0;
    if (M < BR_FLAG_LEAST_SAMPLES || M < 0.1 * (double)steps) return BR_FLAG_FEW;
    for (size_t n = 0; n < plan->p.ninputs; n++) {
        double mine = M - lost_of(plan, cell, n), power = s1[n] / mine, k[4];
        if (mine < BR_FLAG_LEAST_SAMPLES || mine < 0.1 * (double)steps) continue;
        if (plan->bad[n] || s1[n] == 0 || power < (double)r->least_power || power > (double)r->most_power)
            continue;
        expected(plan, k, power, mine);
        k[0] = kurtosis(mine, s1[n], s2[n]) - k[0];
        for (int i = 0; i < 4; i++) all[i] += k[i];
        part++;
    }
    if (part == 0 || 4 * part < plan->expected) return BR_FLAG_POWER;
    return stands_out(all, (double)r->block_sigma) ? BR_FLAG_KURTOSIS : BR_FLAG_KEPT;
}

/* One input of one channel, over what the blocks kept. */
static enum br_flag_reason judge_input(const struct br_flag *plan, size_t f, size_t n)
{
    const struct br_flag_rules *r = &plan->rules;
    double s0 = 0, s1 = 0, s2 = 0, k[4];
    for (size_t b = 0; b < plan->p.nblocks; b++) {
        size_t cell = b * plan->p.nchannels + f;
        if (plan->reason[cell] != BR_FLAG_KEPT) continue;
        s0 += plan->s0[cell] - lost_of(plan, cell, n);
        s1 += plan->sums[cell * 2 * plan->p.ninputs + n];
        s2 += plan->sums[(cell * 2 + 1) * plan->p.ninputs + n];
    }
    if (s0 < BR_FLAG_LEAST_SAMPLES || s0 < 0.1 * (double)(plan->end - plan->begin)) return BR_FLAG_FEW;
    double power = s1 / s0;
    if (s1 == 0 || power < (double)r->least_power || power > (double)r->most_power) return BR_FLAG_POWER;
    expected(plan, k, power, s0);
    k[0] = kurtosis(s0, s1, s2) - k[0];
    return stands_out(k, (double)r->input_sigma) ? BR_FLAG_KURTOSIS : BR_FLAG_KEPT;
}

void br_flag_reference_end(struct br_flag *plan, uint8_t *out, float *sk)
{
    size_t F = plan->p.nchannels, N = plan->p.ninputs, from, to, row = 0;
    for (size_t b = plan->begin / plan->p.block; flag_span(plan, b, plan->begin, plan->end, &from, &to);
         b++, row++)
        for (size_t f = 0; f < F; f++) {
            const uint32_t *s1 = plan->sums + (b * F + f) * 2 * N;
            plan->reason[b * F + f] = (uint8_t)judge_block(plan, b * F + f, to - from);
            for (size_t n = 0; sk != NULL && n < N; n++) {
                double M = plan->s0[b * F + f] - lost_of(plan, b * F + f, n);
                sk[(row * F + f) * N + n] = M >= 2 && s1[n] > 0 ? (float)kurtosis(M, s1[n], s1[N + n]) : NAN;
            }
        }
    for (size_t f = 0; f < F; f++)
        for (size_t n = 0; n < N; n++) {
            enum br_flag_reason reason = judge_input(plan, f, n);
            plan->used[f] += reason == BR_FLAG_KEPT && !plan->bad[n];
            if (reason == BR_FLAG_KEPT) continue;
            plan->input[(reason == BR_FLAG_KURTOSIS ? 0 : N) + n]++;
            for (size_t t = plan->begin; t < plan->end; t++) out[((t - plan->begin) * F + f) * N + n] = 0;
        }
}
