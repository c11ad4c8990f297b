/* The steps of the filterbank's tensor-core kernels, each alone: integers to float16 without a conversion,
 * the parts of the transform that are additions, rounding, counting, and the transposes on the way to and
 * from shared memory. All numbers are such that float16 is exact. */
#include "buffers/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/upchannelize/pfb_steps.h"

#include <complex.h>
#include <math.h>

static int value_of(unsigned nibble)
{
    return nibble > 7 ? (int)nibble - 16 : (int)nibble;
}

static double half_of(uint32_t pair, unsigned which)
{
    return (double)br_half_to_float((uint16_t)(pair >> 16 * which));
}

static uint32_t pair_of(double low, double high)
{
    return br_half_from_float((float)low) | (uint32_t)br_half_from_float((float)high) << 16;
}

/* A nibble becomes the subnormal (8 + n) 2^-24, or (7 - n) 2^-24; imaginary ones are 16 times as large. */
static void integers_to_float16(void **state)
{
    NEEDS_GPU();
    uint32_t *words = gpu_both_sides(256 * 4, 0), *pairs = gpu_both_sides(256 * 8 * 4, 0);
    for (unsigned i = 0; i < 256; i++) words[i] = i | (uint32_t)dump_random(&seed) << 8;
    gpu_done(pfb_unpack(words, pairs));
    for (unsigned i = 0; i < 256; i++)
        for (unsigned k = 0; k < 4; k++)
            for (unsigned time = 0; time < 2; time++) {
                unsigned byte = words[(i + time) % 256] >> 8 * k & 255;
                assert_true(half_of(pairs[(i * 4 + k) * 2], time) == (8 + value_of(byte & 15)) * 0x1p-24);
                assert_true(half_of(pairs[(i * 4 + k) * 2 + 1], time) ==
                            16 * (8 + value_of(byte >> 4)) * 0x1p-24);
            }
    gpu_done(pfb_unpack_one(words, pairs));
    for (unsigned i = 0; i < 256; i++)
        for (unsigned sample = 0; sample < 2; sample++)
            for (unsigned time = 0; time < 2; time++) { /* the halves of a word */
                unsigned byte = words[i] >> (16 * time + 8 * sample) & 255;
                const uint32_t *of = pairs + (i * 2 + sample) * 4;
                int re = value_of(byte & 15), im = value_of(byte >> 4);
                assert_true(half_of(of[0], time) == (8 + re) * 0x1p-24);
                assert_true(half_of(of[1], time) == (7 - re) * 0x1p-24);
                assert_true(half_of(of[2], time) == 16 * (8 + im) * 0x1p-24);
                assert_true(half_of(of[3], time) == 16 * (7 - im) * 0x1p-24);
            }
    gpu_ok(cudaFree(words));
    gpu_ok(cudaFree(pairs));
}

/* x[n] = sum_r e^{-2 pi i r n / SETS} x[r], or with the conjugate phases: multiples of a quarter, so i^k. */
static void sets_are_joined(void **state)
{
    NEEDS_GPU();
    static const double complex power[4] = {1, -I, -1, I};
    uint32_t *in = gpu_both_sides(32 * 8 * 4, 0), *out = gpu_both_sides(32 * 8 * 4, 0);
    for (int sets = 2; sets <= 4; sets += 2)
        for (int mirror = 0; mirror < 2; mirror++) {
            for (int i = 0; i < 32 * sets * 2; i++)
                in[i] = pair_of((double)pick(0, 200) - 100, (double)pick(0, 200) - 100);
            gpu_done(pfb_join_sets(sets, mirror, in, out));
            for (int lane = 0; lane < 32; lane++)
                for (int n = 0; n < sets; n++)
                    for (unsigned half = 0; half < 2; half++) {
                        const uint32_t *x = in + lane * sets * 2, *got = out + (lane * sets + n) * 2;
                        double complex want = 0;
                        for (int r = 0; r < sets; r++) {
                            double complex phase = power[r * n * (4 / sets) % 4];
                            want += (mirror ? conj(phase) : phase) *
                                    (half_of(x[2 * r], half) + I * half_of(x[2 * r + 1], half));
                        }
                        assert_true(half_of(got[0], half) == creal(want) &&
                                    half_of(got[1], half) == cimag(want));
                    }
        }
    gpu_ok(cudaFree(in));
    gpu_ok(cudaFree(out));
}

/* X[u] = C + i S and X[U - 1 - u] = C - i S of a complex field, of whose imaginary part the sums are 16 times
 * as large. */
static void sums_are_joined(void **state)
{
    NEEDS_GPU();
    uint32_t *sums = gpu_both_sides(32 * 8 * 4, 0), *joined = gpu_both_sides(32 * 8 * 4, 0);
    for (int i = 0; i < 32 * 8; i++) {
        double scale = i % 8 < 4 ? 1 : 16;
        sums[i] = pair_of(scale * ((double)pick(0, 100) - 50), scale * ((double)pick(0, 100) - 50));
    }
    gpu_done(pfb_join_sums(sums, joined));
    for (int lane = 0; lane < 32; lane++)
        for (int sample = 0; sample < 2; sample++)
            for (unsigned half = 0; half < 2; half++) {
                const uint32_t *of = sums + lane * 8 + sample;
                double complex c = half_of(of[0], half) + I * half_of(of[4], half) / 16,
                               s = half_of(of[2], half) + I * half_of(of[6], half) / 16;
                for (int high = 0; high < 2; high++) {
                    double complex want = high ? c - I * s : c + I * s;
                    const uint32_t *got = joined + (lane * 2 + high) * 4 + sample;
                    assert_true(half_of(got[0], half) == creal(want));
                    assert_true(half_of(got[2], half) == cimag(want));
                }
            }
    gpu_ok(cudaFree(sums));
    gpu_ok(cudaFree(joined));
}

static int clamped_level(double x, unsigned long long *clamped)
{
    double level = rint(x);
    if (fabs(level) > 7) ++*clamped;
    return level > 7 ? 7 : level < -7 ? -7 : (int)level;
}

/* Sums in units of 2^-11 (ratio 2^-13), in steps of an eighth of a level, none of them a tie. */
static void tiles_are_quantized(void **state)
{
    NEEDS_GPU();
    uint32_t *sums = gpu_both_sides(4 * 32 * 4, 0), *rules = gpu_both_sides(16, 0),
             *bytes = gpu_both_sides(2 * 32 * 4, 0);
    unsigned long long *clamped = gpu_both_sides(8, 0), want = 0;
    rules[0] = rules[2] = pair_of(0x1p-13, 0x1p-13);
    rules[1] = rules[3] = pair_of(7.5 * 0x1p-11, 7.5 * 0x1p-11);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 128; i++) { /* C of eighths, S of whole levels: a joined value is never a tie */
            double value[2];
            for (int half = 0; half < 2; half++) {
                bool is_s = i / 32 % 2;
                value[half] =
                    is_s ? (double)pick(0, 8) - 4 : (double)pick(0, 12) - 6 + (pick(0, 1) ? 0.125 : -0.25);
                value[half] *= (i / 64 ? 16 : 1) * 0x1p-11;
            }
            sums[i] = pair_of(value[0], value[1]);
        }
        gpu_done(pfb_quantize_tile(sums, rules, bytes, clamped));
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned half = 0; half < 2; half++) {
                double complex
                    c = (half_of(sums[lane], half) + I * half_of(sums[64 + lane], half) / 16) * 0x1p11,
                    s = (half_of(sums[32 + lane], half) + I * half_of(sums[96 + lane], half) / 16) * 0x1p11;
                for (unsigned high = 0; high < 2; high++) {
                    double complex x = high ? c - I * s : c + I * s;
                    int re = clamped_level(creal(x), &want), im = clamped_level(cimag(x), &want);
                    assert_int_equal(bytes[high * 32 + lane] >> 16 * half & 255, (im + 7) * 16 + re + 7);
                }
            }
        assert_int_equal(*clamped, want);
    }
    gpu_ok(cudaFree(sums));
    gpu_ok(cudaFree(rules));
    gpu_ok(cudaFree(bytes));
    gpu_ok(cudaFree(clamped));
}

static void samples_are_quantized(void **state)
{
    NEEDS_GPU();
    uint32_t *x = gpu_both_sides(64 * 4, 0), *bytes = gpu_both_sides(64 * 4, 0),
             *clamped = gpu_both_sides(8, 0);
    unsigned long long want[2] = {0, 0};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 64; i++) {
            double value[2];
            for (int half = 0; half < 2; half++)
                value[half] = ((double)pick(0, 24) - 12 + (pick(0, 1) ? 0.375 : -0.25)) * 0x1p-11;
            x[i] = pair_of(value[0], value[1]);
        }
        gpu_done(pfb_quantize_sample(x, pair_of(-0x1p-13, -0x1p-13), bytes, clamped));
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned half = 0; half < 2; half++) {
                int re = clamped_level(half_of(x[lane], half) * 0x1p11, &want[half]),
                    im = clamped_level(half_of(x[32 + lane], half) * 0x1p11, &want[half]);
                assert_int_equal(bytes[lane] >> 16 * half & 255, (re & 15) | (im & 15) << 4);
                assert_int_equal(bytes[32 + lane] >> 16 * half & 255, 0x88);
            }
        assert_int_equal(clamped[0], want[0]);
        assert_int_equal(clamped[1], want[1]);
    }
    gpu_ok(cudaFree(x));
    gpu_ok(cudaFree(bytes));
    gpu_ok(cudaFree(clamped));
}

/* ldmatrix takes two bytes for a number: a lane gets times 2 q and 2 q + 1 of samples 2 n and 2 n + 1;
 * stmatrix takes them back. */
static void rows_are_transposed(void **state)
{
    NEEDS_GPU();
    uint8_t *rows = gpu_both_sides(16 * 64, 0), *back = gpu_both_sides(32 * 64, 0);
    uint32_t *registers = gpu_both_sides(4 * 2 * 32 * 4, 0);
    for (int i = 0; i < 16 * 64; i++) rows[i] = (uint8_t)dump_random(&seed);
    gpu_done(pfb_transpose(rows, registers, back));
    for (unsigned warp = 0; warp < 4; warp++)
        for (unsigned late = 0; late < 2; late++)
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned part = 0; part < 4; part++) {
                    unsigned time = late * 8 + lane % 4 * 2 + part / 2,
                             sample = warp * 16 + lane / 4 * 2 + part % 2;
                    assert_int_equal(registers[(warp * 2 + late) * 32 + lane] >> 8 * part & 255,
                                     rows[time * 64 + sample]);
                }
    assert_memory_equal(back, rows, 16 * 64);
    assert_memory_equal(back + 16 * 64, rows, 16 * 64);
    gpu_ok(cudaFree(rows));
    gpu_ok(cudaFree(back));
    gpu_ok(cudaFree(registers));
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    seed = 2718;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_to_float16),   cmocka_unit_test(sets_are_joined),
        cmocka_unit_test(sums_are_joined),       cmocka_unit_test(tiles_are_quantized),
        cmocka_unit_test(samples_are_quantized), cmocka_unit_test(rows_are_transposed),
    };
    return cmocka_run_group_tests(tests, gpu_open, gpu_close);
#else
    return 77; /* skipped */
#endif
}
