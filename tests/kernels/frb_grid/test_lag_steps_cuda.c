/* The steps of frb_grid's 1-d autocorrelation, each alone, against float64: the transform along n by wgmma
 * and by mma.sync, and the products that become lags. Impulses find wrong places, noise wrong numbers. */
#include "buffers/half.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/gpu.h"
#include "tests/kernels/frb_grid/lag_steps.h"

enum { MOST = 24, SAMPLES = LAG_SAMPLES, ROWS = LAG_ROWS };

static double of_half(uint16_t bits)
{
    return (double)br_half_to_float(bits);
}

/* A number as float16, which x becomes. */
static uint16_t to_half(double *x)
{
    const uint16_t bits = br_half_from_float((float)*x);
    *x = of_half(bits);
    return bits;
}

static double phase(unsigned N, unsigned q, unsigned n)
{
    return M_PI * fmod(q * (n - (N - 1) / 2.0), 2.0 * N) / N;
}

/* Errors of float16 factors, fields and sums: relative rms, and the largest in units of the rms. */
static void compare(const double complex *got, const double complex *want, size_t count, const char *what,
                    unsigned N)
{
    double sum = 0, error = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double off = cabs(got[i] - want[i]);
        assert_true(isfinite(off));
        sum += cabs(want[i]) * cabs(want[i]);
        error += off * off;
        if (off > worst) worst = off;
    }
    const double rms = sqrt(sum / (double)count);
    printf("%s, N %u: relative rms %.2e, worst %.2e\n", what, N, sqrt(error / sum), worst / rms);
    if (!(sqrt(error / sum) <= 1e-3 && worst <= 1e-2 * rms)) fail_msg("%s, N %u", what, N);
}

/* One warpgroup. impulse: one cell of each sample and row has a field; or all have. */
static void check_wgmma(unsigned N, int impulse)
{
    static double complex x[SAMPLES][ROWS][MOST], want[2 * MOST * ROWS * SAMPLES],
        got[2 * MOST * ROWS * SAMPLES];
    uint8_t *e = gpu_both_sides(SAMPLES * ROWS * MOST, 0xff);
    uint16_t *weights = gpu_both_sides(ROWS * MOST * 2 * sizeof *weights, 0xff),
             *y = gpu_both_sides(2 * MOST * ROWS * SAMPLES * 2 * sizeof *y, 0xff);
    double complex weight[ROWS][MOST];
    for (unsigned i = 0; i < ROWS * N; i++) {
        double re = uniform() * 2 - 1, im = uniform() * 2 - 1;
        weights[2 * i] = to_half(&re), weights[2 * i + 1] = to_half(&im);
        weight[i / N][i % N] = CMPLX(re, im);
    }
    for (unsigned i = 0; i < SAMPLES * ROWS * N; i++) {
        const unsigned s = i / N / ROWS, m = i / N % ROWS, n = i % N;
        const int re = (int)pick(0, 15) - 8, im = (int)pick(0, 15) - 8,
                  there = !impulse || n == (s + 3 * m) % N;
        e[i] = (uint8_t)(there ? (re & 15) | (im & 15) << 4 : 0);
        x[s][m][n] = there ? weight[m][n] * CMPLX(re, im) : 0;
    }
    gpu_done(lag_transform_wgmma(N, e, weights, y));
    for (unsigned i = 0; i < 2 * N * ROWS * SAMPLES; i++) {
        const unsigned q = i / SAMPLES / ROWS, m = i / SAMPLES % ROWS, s = i % SAMPLES;
        want[i] = 0;
        for (unsigned n = 0; n < N; n++) want[i] += cexp(CMPLX(0, phase(N, q, n))) * x[s][m][n];
        got[i] = CMPLX(of_half(y[2 * i]), of_half(y[2 * i + 1]));
    }
    compare(got, want, (size_t)2 * N * ROWS * SAMPLES, impulse ? "wgmma, impulses" : "wgmma, noise", N);
    gpu_ok(cudaFree(e)), gpu_ok(cudaFree(weights)), gpu_ok(cudaFree(y));
}

static void transform_wgmma(void **state)
{
    NEEDS_GPU();
    for (unsigned N = 12; N <= MOST; N += 4)
        for (int impulse = 0; impulse < 2; impulse++) check_wgmma(N, impulse);
}

/* One warp: the real part is compared with cosines, the imaginary one with sines. */
static void check_mma(unsigned N, int impulse)
{
    static double complex want[MOST * SAMPLES], got[MOST * SAMPLES];
    uint16_t *x = gpu_both_sides(SAMPLES * MOST * sizeof *x, 0xff),
             *cosines = gpu_both_sides(MOST * SAMPLES * sizeof *x, 0xff),
             *sines = gpu_both_sides(MOST * SAMPLES * sizeof *x, 0xff);
    double cell[SAMPLES][MOST];
    for (unsigned i = 0; i < SAMPLES * N; i++) {
        const unsigned s = i / N, n = i % N;
        cell[s][n] = !impulse || n == 3 * s % N ? 16 * uniform() - 8 : 0;
        x[i] = to_half(&cell[s][n]);
    }
    gpu_done(lag_transform_mma(N, x, cosines, sines));
    for (unsigned i = 0; i < N * SAMPLES; i++) {
        const unsigned q = i / SAMPLES, s = i % SAMPLES;
        want[i] = 0;
        for (unsigned n = 0; n < N; n++)
            want[i] += CMPLX(cos(phase(N, q, n)), sin(phase(N, q == 0 ? N : q, n))) * cell[s][n];
        got[i] = CMPLX(of_half(cosines[i]), of_half(sines[i]));
    }
    compare(got, want, (size_t)N * SAMPLES, impulse ? "mma, impulses" : "mma, noise", N);
    gpu_ok(cudaFree(x)), gpu_ok(cudaFree(cosines)), gpu_ok(cudaFree(sines));
}

static void transform_mma(void **state)
{
    NEEDS_GPU();
    for (unsigned N = 12; N <= MOST; N += 4)
        for (int impulse = 0; impulse < 2; impulse++) check_mma(N, impulse);
}

/* Lags are float16, and so are the two or three sums of diagonals that make them: 2^-11 of the largest lag,
 * lag 0, each. */
static void check_lags(unsigned tiles, unsigned impulse)
{
    const unsigned M = 8 * tiles;
    uint16_t *y = gpu_both_sides(4 * MOST * SAMPLES * 2 * sizeof *y, 0xff),
             *lags = gpu_both_sides(4 * MOST * 2 * sizeof *lags, 0xff);
    static double complex x[4][MOST][SAMPLES];
    for (unsigned i = 0; i < 4 * M * SAMPLES; i++) {
        const unsigned direction = i / SAMPLES / M, m = i / SAMPLES % M, s = i % SAMPLES;
        double re = 8 * uniform() - 4, im = 8 * uniform() - 4;
        if (impulse && m != direction && m != direction + impulse)
            re = im = 0; /* lags 0 and `impulse` only */
        y[2 * i] = to_half(&re), y[2 * i + 1] = to_half(&im);
        x[direction][m][s] = CMPLX(re, im);
    }
    gpu_done(lag_correlate(tiles, y, lags));
    for (unsigned direction = 0; direction < 4; direction++) {
        double complex want[MOST] = {0};
        for (unsigned lag = 0; lag < M; lag++)
            for (unsigned m = 0; m + lag < M; m++)
                for (unsigned s = 0; s < SAMPLES; s++)
                    want[lag] += x[direction][m + lag][s] * conj(x[direction][m][s]);
        for (unsigned lag = 0; lag < M; lag++) {
            const uint16_t *at = lags + (direction * M + lag) * 2;
            const double complex got = CMPLX(of_half(at[0]), of_half(at[1]));
            if (!(cabs(got - want[lag]) <= 2e-3 * cabs(want[0])))
                fail_msg("%u tiles, impulse %u, direction %u, lag %u: %g %+g i instead of %g %+g i", tiles,
                         impulse, direction, lag, creal(got), cimag(got), creal(want[lag]), cimag(want[lag]));
        }
    }
    gpu_ok(cudaFree(y)), gpu_ok(cudaFree(lags));
}

static void lags(void **state)
{
    NEEDS_GPU();
    for (unsigned tiles = 2; tiles <= 3; tiles++)
        for (unsigned impulse = 0; impulse < 8 * tiles - 3; impulse++) check_lags(tiles, impulse);
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    seed = 9;
    const struct CMUnitTest tests[] = {cmocka_unit_test(transform_wgmma), cmocka_unit_test(transform_mma),
                                       cmocka_unit_test(lags)};
    return cmocka_run_group_tests_name("steps of frb_grid's autocorrelation", tests, gpu_open, gpu_close);
#else
    printf("built without CUDA: skipped\n");
    return 0;
#endif
}
