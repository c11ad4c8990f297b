/* The short FFT on the tensor cores alone, against float64: every length, impulses at every cell, single
 * tones, noise; each column (spectator) with data of its own. */
#include "buffers/half.h"
#include "tests/kernels/frb_grid/frb_fft.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/kernels/common/dump.h"

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"

enum { COLUMNS = FRB_FFT_COLUMNS, MOST = 32 };

static uint64_t seed = 8;

static double uniform(void)
{
    return (double)(dump_random(&seed) >> 11) / 0x1p53 * 2 - 1;
}

/* Relative rms error; no element may be off by more than `most` of a column's rms. */
static void check(unsigned M, double x[MOST][COLUMNS][2], double most, const char *what)
{
    uint16_t in[MOST][COLUMNS][2], out[2 * MOST][COLUMNS][2];
    for (unsigned m = 0; m < M; m++)
        for (unsigned i = 0; i < 2 * COLUMNS; i++) {
            in[m][i / 2][i % 2] = br_half_from_float((float)x[m][i / 2][i % 2]);
            x[m][i / 2][i % 2] = (double)br_half_to_float(in[m][i / 2][i % 2]);
        }
    assert_int_equal(frb_fft(M, &in[0][0][0], &out[0][0][0]), 0);
    for (unsigned column = 0; column < COLUMNS; column++) {
        double sum = 0, error = 0, worst = 0;
        for (unsigned p = 0; p < 2 * M; p++) {
            double re = 0, im = 0;
            for (unsigned m = 0; m < M; m++) {
                double angle = M_PI * (m * p % (2 * M)) / M, *v = x[m][column];
                re += v[0] * cos(angle) - v[1] * sin(angle);
                im += v[0] * sin(angle) + v[1] * cos(angle);
            }
            double off = hypot((double)br_half_to_float(out[p][column][0]) - re,
                               (double)br_half_to_float(out[p][column][1]) - im);
            assert_true(isfinite(off));
            sum += re * re + im * im;
            error += off * off;
            if (off > worst) worst = off;
        }
        double rms = sqrt(sum / (2 * M));
        if (!(sqrt(error / sum) <= 1e-3 && worst <= most * rms))
            fail_msg("M %u, %s, column %u: relative rms error %g, worst %g of an rms of %g", M, what, column,
                     sqrt(error / sum), worst, rms);
    }
}

static void impulses(void **state)
{
    NEEDS_GPU();
    for (unsigned M = 8; M <= MOST; M += 4)
        for (unsigned first = 0; first < M; first++) {
            double x[MOST][COLUMNS][2] = {{{0}}};
            for (unsigned column = 0; column < COLUMNS; column++) {
                x[(first + column) % M][column][0] = 3 + column;
                x[(first + column) % M][column][1] = column % 2 ? -2 : 5;
            }
            check(M, x, 2e-3, "impulses");
        }
}

static void tones(void **state)
{
    NEEDS_GPU();
    for (unsigned M = 8; M <= MOST; M += 4)
        for (unsigned first = 0; first < 2 * M; first += 3) {
            double x[MOST][COLUMNS][2] = {{{0}}};
            for (unsigned m = 0; m < M; m++)
                for (unsigned column = 0; column < COLUMNS; column++) {
                    double angle = M_PI * m * (first + column * 0.6) / M;
                    x[m][column][0] = 7 * cos(angle);
                    x[m][column][1] = -7 * sin(angle);
                }
            check(M, x, 1e-2, "tones"); /* one direction has all the power */
        }
}

static void noise(void **state)
{
    NEEDS_GPU();
    for (unsigned M = 8; M <= MOST; M += 4)
        for (int i = 0; i < 10; i++) {
            double x[MOST][COLUMNS][2] = {{{0}}};
            for (unsigned m = 0; m < M; m++)
                for (unsigned column = 0; column < COLUMNS; column++) {
                    x[m][column][0] = 8 * uniform();
                    x[m][column][1] = 8 * uniform();
                }
            check(M, x, 3e-3, "noise");
        }
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    const struct CMUnitTest tests[] = {cmocka_unit_test(impulses), cmocka_unit_test(tones),
                                       cmocka_unit_test(noise)};
    return cmocka_run_group_tests_name("frb_grid's FFT", tests, gpu_open, gpu_close);
#else
    printf("built without CUDA: skipped\n");
    return 0;
#endif
}
