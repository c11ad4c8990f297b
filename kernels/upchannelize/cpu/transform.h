/* transform.h - one block of eight samples: M taps, then a Fourier transform of odd frequencies.
 *
 * With s = m U + j the phases of the filterbank are (-1)^m (-1)^j e^{-2 i pi j (u + 1/2) / U} (U even). The
 * signs are in the taps:
 *
 *   z[j] = sum_m taps[m U + j] field[m U + j]
 *   X[u] = sum_j z[j] e^{-2 i pi j (u + 1/2) / U}
 *
 * and X comes from passes that quarter (or at the end halve) the length. With N = U/4, j = j' + k N and
 * u = 4 r + q,
 *
 *   y_k = e^{-i pi k / 4} z[j' + k N]
 *   X[4 r + q] = sum_j' e^{-2 i pi j' r / N} ( e^{-2 i pi j' (q + 1/2) / U} sum_k (-i)^{k q} y_k )
 *
 * The first pass (taps, y_k, sum over k, times first[j'][q]) leaves ordinary transforms of length N, done in
 * the usual way: from length n, a quarter each time, times later[j'][q - 1] = e^{-2 i pi j' q / n}. Each pass
 * works in place and leaves its digit of u first, so that X[u] ends at position[u]. The 1/sqrt(2) in y_1 and
 * y_3 is in the taps as well.
 *
 * This header is compiled once for every instruction set; vectors are passed by address only, because how
 * they are passed by value depends on the instruction set. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_CPU_TRANSFORM_H
#define BEAMRING_KERNELS_UPCHANNELIZE_CPU_TRANSFORM_H

#include "kernels/upchannelize/plan.h"

typedef float lanes __attribute__((vector_size(4 * LANES), may_alias));

struct z {
    lanes re, im;
};

#define EVERYWHERE static inline __attribute__((always_inline))

/* y_q = sum_k (-i)^{k q} y_k */
EVERYWHERE void four_point(struct z *y0, struct z *y1, struct z *y2, struct z *y3)
{
    struct z even = {y0->re + y2->re, y0->im + y2->im}, even2 = {y0->re - y2->re, y0->im - y2->im};
    struct z odd = {y1->re + y3->re, y1->im + y3->im}, odd2 = {y1->re - y3->re, y1->im - y3->im};
    y0->re = even.re + odd.re;
    y0->im = even.im + odd.im;
    y1->re = even2.re + odd2.im;
    y1->im = even2.im - odd2.re;
    y2->re = even.re - odd.re;
    y2->im = even.im - odd.im;
    y3->re = even2.re - odd2.im;
    y3->im = even2.im + odd2.re;
}

/* out = factor y, factor = re, im */
EVERYWHERE void times(struct z *out, const struct z *y, const float *factor)
{
    lanes re = y->re * factor[0] - y->im * factor[1];
    lanes im = y->re * factor[1] + y->im * factor[0];
    out->re = re;
    out->im = im;
}

EVERYWHERE void first_pass(const struct upchannelize_filter *filter, const struct z *field, struct z *out)
{
    size_t U = filter->U, N = U / 4;
    const float *taps = filter->taps, *first = filter->first;
    for (size_t j = 0; j < N; j++, first += 8) {
        const struct z *e = field + j;
        struct z z0 = {0}, z1 = {0}, z2 = {0}, z3 = {0};
        for (unsigned m = 0; m < filter->M; m++, taps += 4, e += U) {
            z0.re += taps[0] * e[0].re;
            z0.im += taps[0] * e[0].im;
            z1.re += taps[1] * e[N].re;
            z1.im += taps[1] * e[N].im;
            z2.re += taps[2] * e[2 * N].re;
            z2.im += taps[2] * e[2 * N].im;
            z3.re += taps[3] * e[3 * N].re;
            z3.im += taps[3] * e[3 * N].im;
        }
        struct z y1 = {z1.re + z1.im, z1.im - z1.re}, y2 = {z2.im, -z2.re},
                 y3 = {z3.im - z3.re, -z3.re - z3.im};
        four_point(&z0, &y1, &y2, &y3);
        times(&out[j], &z0, first);
        times(&out[j + N], &y1, first + 2);
        times(&out[j + 2 * N], &y2, first + 4);
        times(&out[j + 3 * N], &y3, first + 6);
    }
}

EVERYWHERE void quarter(struct z *x, size_t n, const float *later)
{
    size_t N = n / 4;
    for (size_t j = 0; j < N; j++, later += 6) {
        struct z x0 = x[j], x1 = x[j + N], x2 = x[j + 2 * N], x3 = x[j + 3 * N];
        four_point(&x0, &x1, &x2, &x3);
        x[j] = x0;
        times(&x[j + N], &x1, later);
        times(&x[j + 2 * N], &x2, later + 2);
        times(&x[j + 3 * N], &x3, later + 4);
    }
}

EVERYWHERE void two_steps(const struct upchannelize_filter *filter, const struct z *field, struct z *out)
{
    struct z z0 = {0}, z1 = {0};
    for (unsigned m = 0; m < filter->M; m++) {
        float tap0 = filter->taps[2 * m], tap1 = filter->taps[2 * m + 1];
        z0.re += tap0 * field[2 * m].re;
        z0.im += tap0 * field[2 * m].im;
        z1.re += tap1 * field[2 * m + 1].re;
        z1.im += tap1 * field[2 * m + 1].im;
    }
    out[0].re = z0.re + z1.im; /* z0 - i z1 */
    out[0].im = z0.im - z1.re;
    out[1].re = z0.re - z1.im;
    out[1].im = z0.im + z1.re;
}

/* field [M U][re, im][LANES] -> spectrum [U][re, im][LANES], aligned to 32 bytes */
EVERYWHERE void upchannelize_transform(const struct upchannelize_filter *filter, const float *field,
                                       float *spectrum)
{
    const struct z *e = (const struct z *)(const void *)field;
    struct z *x = (struct z *)(void *)spectrum;
    const float *later = filter->later;
    size_t U = filter->U, n = U / 4;
    if (U == 2) {
        two_steps(filter, e, x);
        return;
    }
    first_pass(filter, e, x);
    for (; n > 4; later += n / 4 * 6, n /= 4)
        for (size_t i = 0; i < U; i += n) quarter(x + i, n, later);
    if (n == 4)
        for (size_t i = 0; i < U; i += 4) four_point(&x[i], &x[i + 1], &x[i + 2], &x[i + 3]);
    if (n == 2)
        for (size_t i = 0; i < U; i += 2) {
            struct z a = x[i], b = x[i + 1];
            x[i].re = a.re + b.re;
            x[i].im = a.im + b.im;
            x[i + 1].re = a.re - b.re;
            x[i + 1].im = a.im - b.im;
        }
}

#endif
