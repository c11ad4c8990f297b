/* decide.h - from sums to flags, in float32: the same operations in the same order on the CPU and the GPU,
 * none of them fused, sums of many inputs as integers. So a decision does not depend on who makes it. */
#ifndef BEAMRING_KERNELS_FLAG_DECIDE_H
#define BEAMRING_KERNELS_FLAG_DECIDE_H

#include "kernels/flag/flag.h"

#include <math.h>
#include <stdbool.h>

#ifdef __CUDACC__
#define FLAG_BOTH static __host__ __device__ __forceinline__
#else
#define FLAG_BOTH static inline
#endif

#ifdef __CUDA_ARCH__ /* a compiler for GPUs fuses products and sums where it may */
#define FLAG_MUL(a, b) __fmul_rn(a, b)
#define FLAG_ADD(a, b) __fadd_rn(a, b)
#define FLAG_SUB(a, b) __fsub_rn(a, b)
#define FLAG_DIV(a, b) __fdiv_rn(a, b)
#define FLAG_SQRT(a)   __fsqrt_rn(a)
#define FLAG_ROUND(a)  __float2ll_rn(a)
#else
#define FLAG_MUL(a, b) ((a) * (b))
#define FLAG_ADD(a, b) ((a) + (b))
#define FLAG_SUB(a, b) ((a) - (b))
#define FLAG_DIV(a, b) ((a) / (b))
#define FLAG_SQRT(a)   sqrtf(a)
#define FLAG_ROUND(a)  llrintf(a)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rows: numbers of samples; columns: mean powers 1, 1.25 ... 4, 5, 6 ... 76. See table.c. */
enum { FLAG_ROWS = 9, FLAG_POWERS = 85, FLAG_FINE = 12 };
extern const float br_flag_table[FLAG_ROWS][FLAG_POWERS][4], br_flag_table7[FLAG_ROWS][FLAG_POWERS][4];

/* 1 / the table's numbers of samples. */
#define FLAG_INVERSES                                                                                        \
    {                                                                                                        \
        1.0f / 16, 1.0f / 24, 1.0f / 32, 1.0f / 64, 1.0f / 128, 1.0f / 256, 1.0f / 1024, 1.0f / 4096, 0.0f   \
    }

/* Sums over several inputs, as integers: their order does not matter. */
struct flag_sums {
    long long r, k2, k3, k4; /* 2^20 (SK - b), 2^20 M k2, 2^16 M^2 k3, 2^10 M^3 k4 */
};

/* Where M samples stand between the table's rows. */
struct flag_row {
    int row;
    float part; /* of the next row */
};

FLAG_BOTH struct flag_row flag_find_row(float samples)
{
    const float inverse[FLAG_ROWS] = FLAG_INVERSES;
    struct flag_row found = {0, 0.0f};
    float x = FLAG_DIV(1.0f, samples);
    for (int i = 0; i < FLAG_ROWS - 1; i++)
        if (x <= inverse[i]) {
            found.row = i;
            found.part = FLAG_DIV(FLAG_SUB(inverse[i], x), FLAG_SUB(inverse[i], inverse[i + 1]));
        }
    return found;
}

FLAG_BOTH float flag_between(float a, float b, float part)
{
    return FLAG_ADD(a, FLAG_MUL(part, FLAG_SUB(b, a)));
}

/* Spectral kurtosis, for S0 >= 2 and S1 > 0. */
FLAG_BOTH float flag_kurtosis(float s0, float s1, float s2)
{
    float ratio = FLAG_DIV(FLAG_MUL(s0, s2), FLAG_MUL(s1, s1));
    return FLAG_MUL(FLAG_DIV(FLAG_ADD(s0, 1.0f), FLAG_SUB(s0, 1.0f)), FLAG_SUB(ratio, 1.0f));
}

/* Adds an input with spectral kurtosis `sk` and mean power `power`. It has 1 / more of the samples for which
 * the sums are. */
FLAG_BOTH void flag_add_input(struct flag_sums *sums, const float (*table)[FLAG_POWERS][4],
                              struct flag_row at, float sk, float power, float more)
{
    float place = power < 4.0f ? FLAG_MUL(4.0f, FLAG_SUB(power, 1.0f)) : FLAG_ADD(power, FLAG_FINE - 4.0f);
    float k[4];
    place = place < 0.0f ? 0.0f : place > FLAG_POWERS - 1.0f ? FLAG_POWERS - 1.0f : place;
    int column = (int)place < FLAG_POWERS - 2 ? (int)place : FLAG_POWERS - 2;
    float part = FLAG_SUB(place, (float)column);
    for (int i = 0; i < 4; i++) {
        float low = flag_between(table[at.row][column][i], table[at.row][column + 1][i], part);
        float high = flag_between(table[at.row + 1][column][i], table[at.row + 1][column + 1][i], part);
        k[i] = flag_between(low, high, at.part);
    }
    sums->r += FLAG_ROUND(FLAG_MUL(FLAG_SUB(sk, k[0]), 1048576.0f));
    float more2 = FLAG_MUL(more, more);
    sums->k2 += FLAG_ROUND(FLAG_MUL(FLAG_MUL(k[1], more), 1048576.0f));
    sums->k3 += FLAG_ROUND(FLAG_MUL(FLAG_MUL(k[2], more2), 65536.0f));
    sums->k4 += FLAG_ROUND(FLAG_MUL(FLAG_MUL(k[3], FLAG_MUL(more2, more)), 1024.0f));
}

FLAG_BOTH float flag_limit(float value, float most)
{
    return value > most ? most : value < -most ? -most : value;
}

/* Whether the inputs' mean is beyond `s` sigma. The Cornish-Fisher expansion is kept where it converges. */
FLAG_BOTH bool flag_stands_out(const struct flag_sums *sums, float samples, float s)
{
    float v = FLAG_DIV((float)sums->k2, 1048576.0f), root = FLAG_SQRT(FLAG_MUL(v, samples));
    float z = FLAG_DIV(FLAG_MUL(FLAG_DIV((float)sums->r, 1048576.0f), samples), root);
    float skew = FLAG_DIV(FLAG_DIV((float)sums->k3, 65536.0f), FLAG_MUL(v, root));
    float tail = FLAG_DIV(FLAG_DIV((float)sums->k4, 1024.0f), FLAG_MUL(FLAG_MUL(v, v), samples));
    float s2 = FLAG_MUL(s, s);
    skew = flag_limit(skew, FLAG_DIV(1.5f, s));
    tail = flag_limit(tail, FLAG_DIV(4.5f, s2));
    float even = FLAG_DIV(FLAG_MUL(skew, FLAG_SUB(s2, 1.0f)), 6.0f);
    float a = FLAG_DIV(FLAG_MUL(tail, FLAG_SUB(s2, 3.0f)), 24.0f);
    float b = FLAG_DIV(FLAG_MUL(FLAG_MUL(skew, skew), FLAG_SUB(FLAG_ADD(s2, s2), 5.0f)), 36.0f);
    float odd = FLAG_MUL(s, FLAG_ADD(1.0f, FLAG_SUB(a, b)));
    return FLAG_SUB(z, even) > odd || FLAG_SUB(even, z) > odd;
}

/* Whether `samples` of `block` are enough to tell. */
FLAG_BOTH bool flag_enough(uint32_t samples, uint32_t block)
{
    return samples >= BR_FLAG_LEAST_SAMPLES && 10 * (uint64_t)samples >= block;
}

/* An input's spectral kurtosis in a block, over `mine` of the block's `s0` samples; `at` is the place of s0.
 * Not a number where it has none. True if it takes part: then it is added to `sums`. */
FLAG_BOTH bool flag_block_input(struct flag_sums *sums, const float (*table)[FLAG_POWERS][4],
                                struct flag_row at, uint32_t s0, uint32_t mine, uint32_t steps, uint32_t s1,
                                uint32_t s2, const struct br_flag_rules *rules, bool bad, float *kurtosis)
{
    float n = (float)mine, first = (float)s1, power = FLAG_DIV(first, n);
    *kurtosis = NAN;
    if (mine < 2 || s1 == 0) return false;
    *kurtosis = flag_kurtosis(n, first, (float)s2);
    if (!flag_enough(mine, steps) || bad || power < rules->least_power || power > rules->most_power)
        return false;
    flag_add_input(sums, table, mine == s0 ? at : flag_find_row(n), *kurtosis, power, FLAG_DIV((float)s0, n));
    return true;
}

/* The verdict on a block in which `part` of `expected` inputs take part. */
FLAG_BOTH enum br_flag_reason flag_block(const struct flag_sums *sums, uint32_t samples, uint32_t part,
                                         uint32_t expected, float sigma)
{
    if (part == 0 || 4 * part < expected) return BR_FLAG_POWER;
    return flag_stands_out(sums, (float)samples, sigma) ? BR_FLAG_KURTOSIS : BR_FLAG_KEPT;
}

/* The verdict on an input in a long block of which `steps` steps came. */
FLAG_BOTH enum br_flag_reason flag_input(const float (*table)[FLAG_POWERS][4], uint32_t s0,
                                         unsigned long long s1, unsigned long long s2, uint32_t steps,
                                         const struct br_flag_rules *rules)
{
    struct flag_sums sums = {0, 0, 0, 0};
    if (!flag_enough(s0, steps)) return BR_FLAG_FEW;
    float n = (float)s0, first = (float)s1, power = FLAG_DIV(first, n);
    if (power < rules->least_power || power > rules->most_power || s1 == 0) return BR_FLAG_POWER;
    flag_add_input(&sums, table, flag_find_row(n), flag_kurtosis(n, first, (float)s2), power, 1.0f);
    return flag_stands_out(&sums, n, rules->input_sigma) ? BR_FLAG_KURTOSIS : BR_FLAG_KEPT;
}

#ifdef __cplusplus
}
#endif
#endif
