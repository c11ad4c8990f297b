/* The steps of FRB stage 2's kernels, each alone: the weights of a beam against Eq. (7), and the operand that
 * the Hopper kernel multiplies out of them, register by register. */
#include "buffers/half.h"
#include "kernels/common/fragments.h"

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
#include "tests/kernels/frb_beams/beam_steps.h"

/* Eq. (7) */
static double u_of(unsigned n, double theta2, unsigned q)
{
    double sum = 0;
    for (unsigned s = 0; s <= n; s++)
        sum += (s == 0 || s == n ? 0.5 : 1) * cos(M_PI * fmod((theta2 - q) * s, 2.0 * n) / n);
    return sum / n;
}

/* Anywhere in a few periods; every eighth on a direction, where the closed form is 0 / 0, and every eighth
 * next to one. */
static double some_theta2(unsigned n, unsigned i)
{
    const double anywhere = (uniform() - 0.5) * 6 * n;
    return i % 8 == 0 ? rint(anywhere) : i % 8 == 1 ? rint(anywhere) + 1e-5 * (uniform() - 0.5) : anywhere;
}

static void weights(void **state)
{
    NEEDS_GPU();
    enum { COUNT = 400, MOST = 64 };
    double *theta2 = gpu_both_sides(COUNT * sizeof *theta2, 0xff),
           *mhz = gpu_both_sides(COUNT * sizeof *mhz, 0xff), worst = 0;
    float *u = gpu_both_sides((size_t)COUNT * 2 * MOST * sizeof *u, 0xff);
    static const unsigned cells[] = {1, 4, 8, 12, 16, 24, MOST};
    for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
        const unsigned n = cells[k];
        for (unsigned i = 0; i < COUNT; i++) {
            mhz[i] = i % 8 < 2 ? 1024 : 300 + 1500 * uniform(); /* a power of two keeps directions exact */
            theta2[i] = some_theta2(n, i) / mhz[i];
        }
        gpu_done(beam_weights(COUNT, theta2, mhz, n, u));
        for (unsigned i = 0; i < COUNT; i++)
            for (unsigned q = 0; q < 2 * n; q++) {
                const double off = fabs((double)u[i * 2 * n + q] - u_of(n, theta2[i] * mhz[i], q));
                if (!(off <= 3e-6)) /* 1.4e-6 with float32 angles and exact functions */
                    fail_msg("n %u, 2 theta %.9g, q %u: %.9g instead of %.9g", n, theta2[i] * mhz[i], q,
                             (double)u[i * 2 * n + q], u_of(n, theta2[i] * mhz[i], q));
                if (off > worst) worst = off;
            }
    }
    printf("largest error of a weight: %.2e\n", worst);
    gpu_ok(cudaFree(theta2)), gpu_ok(cudaFree(mhz)), gpu_ok(cudaFree(u));
}

/* 2^14 U_p U_q where wgmma wants the row of the beam and the column of k = p nq + q. Each factor is rounded
 * to float16 and so is the product: three times 2^-11, and what float32 leaves of weights of 2^7. */
static void check_operand(unsigned nq, unsigned mb, unsigned np)
{
    const unsigned B = 64 * mb, steps = beam_operand_steps(nq),
                   k_steps = (np * nq + 16 * steps - 1) / (16 * steps) * steps;
    double *theta2_m = gpu_both_sides(B * sizeof *theta2_m, 0xff),
           *theta2_n = gpu_both_sides(B * sizeof *theta2_n, 0xff);
    const size_t words = (size_t)k_steps * mb * 128 * 4;
    uint32_t *a = gpu_both_sides(words * sizeof *a, 0xff);
    double(*u_m)[128] = malloc(B * sizeof *u_m), (*u_n)[64] = malloc(B * sizeof *u_n);
    assert_true(u_m && u_n && np <= 128 && nq <= 64);
    for (unsigned b = 0; b < B; b++) {
        theta2_m[b] = some_theta2(np / 2, b), theta2_n[b] = some_theta2(nq / 2, b + 3);
        for (unsigned p = 0; p < np; p++) u_m[b][p] = u_of(np / 2, theta2_m[b], p);
        for (unsigned q = 0; q < nq; q++) u_n[b][q] = u_of(nq / 2, theta2_n[b], q);
    }
    gpu_done(beam_operand(nq, mb, np, theta2_m, theta2_n, a));
    for (size_t i = 0; i < 2 * words; i++) {
        const unsigned half = i % 2, r = i / 2 % 4, thread = i / 8 % 128;
        const struct br_cell at = br_wgmma_f16_a(r, half, thread);
        const unsigned b = (unsigned)(i / 1024 % mb) * 64 + at.row,
                       k = (unsigned)(i / 1024 / mb) * 16 + at.column, p = k / nq, q = k % nq;
        const double got = (double)br_half_to_float((uint16_t)(a[i / 2] >> 16 * half)),
                     want = p < np ? 0x1p14 * u_m[b][p] * u_n[b][q] : 0;
        if (!(fabs(got - want) <= 1.6e-3 * fabs(want) + 0.05))
            fail_msg("2N %u, %u beams, beam %u, p %u, q %u: %g instead of %g", nq, B, b, p, q, got, want);
    }
    free(u_m);
    free(u_n);
    gpu_ok(cudaFree(theta2_m)), gpu_ok(cudaFree(theta2_n)), gpu_ok(cudaFree(a));
}

static void operands(void **state)
{
    NEEDS_GPU();
    for (unsigned mb = 2; mb <= 3; mb++) {
        check_operand(24, mb, 24);
        check_operand(24, mb, 20); /* fewer p's than whole iterations have */
        check_operand(32, mb, 32);
        check_operand(48, mb, 48);
        check_operand(48, mb, 2);
    }
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    seed = 4;
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights), cmocka_unit_test(operands)};
    return cmocka_run_group_tests_name("steps of FRB stage 2", tests, gpu_open, gpu_close);
#else
    printf("built without CUDA: skipped\n");
    return 0;
#endif
}
