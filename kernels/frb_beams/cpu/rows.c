#include "kernels/frb_beams/cpu/rows.h"

#include "kernels/common/cpu.h"

#include <string.h>

#if BR_X86_64
#include <immintrin.h>
#endif

enum {
    PANEL = 16,  /* columns whose b is copied into one piece: 6 rows of them are 12 registers of sums */
    DEPTH = 256, /* of a panel at a time: 16 KiB, half of the first-level cache */
    WORTH = 24   /* rows from which on the copy pays */
};

struct factors {
    const float *a, *b;
    size_t a_row, b_row, depth;
};

static void rows_generic(size_t rows, size_t columns, const struct factors *f, int add, float *c,
                         size_t c_row)
{
    for (size_t r = 0; r < rows; r++) {
        float *to = c + r * c_row;
        if (!add) memset(to, 0, columns * sizeof *to);
        for (size_t k = 0; k < f->depth; k++) {
            float value = f->a[r * f->a_row + k];
            for (size_t i = 0; i < columns; i++) to[i] += value * f->b[k * f->b_row + i];
        }
    }
}

#if BR_X86_64
/* `rows` and `vectors` are constants where this is called: loops unroll, and the sums stay in registers. */
__attribute__((target("avx2,fma"), always_inline)) static inline void
some_rows(unsigned rows, unsigned vectors, const struct factors *f, size_t first, int add, float *c,
          size_t c_row)
{
    const float *a = f->a + first * f->a_row, *b = f->b;
    __m256 sum[6][2];
#pragma GCC unroll 6
    for (unsigned r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (unsigned v = 0; v < vectors; v++)
            sum[r][v] = add ? _mm256_loadu_ps(c + (first + r) * c_row + 8 * v) : _mm256_setzero_ps();
    for (size_t k = 0; k < f->depth; k++, b += f->b_row) {
        __m256 factor[2];
#pragma GCC unroll 2
        for (unsigned v = 0; v < vectors; v++) factor[v] = _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 6
        for (unsigned r = 0; r < rows; r++) {
            __m256 value = _mm256_broadcast_ss(a + r * f->a_row + k);
#pragma GCC unroll 2
            for (unsigned v = 0; v < vectors; v++) sum[r][v] = _mm256_fmadd_ps(value, factor[v], sum[r][v]);
        }
    }
#pragma GCC unroll 6
    for (unsigned r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (unsigned v = 0; v < vectors; v++) _mm256_storeu_ps(c + (first + r) * c_row + 8 * v, sum[r][v]);
}

__attribute__((target("avx2,fma"))) static void rows_wide(size_t rows, const struct factors *f, int add,
                                                          float *c, size_t c_row)
{
    size_t r = 0;
    for (; r + 6 <= rows; r += 6) some_rows(6, 2, f, r, add, c, c_row);
    for (; r + 3 <= rows; r += 3) some_rows(3, 2, f, r, add, c, c_row);
    for (; r < rows; r++) some_rows(1, 2, f, r, add, c, c_row);
}

__attribute__((target("avx2,fma"))) static void rows_narrow(size_t rows, const struct factors *f, int add,
                                                            float *c, size_t c_row)
{
    size_t r = 0;
    for (; r + 6 <= rows; r += 6) some_rows(6, 1, f, r, add, c, c_row);
    for (; r < rows; r++) some_rows(1, 1, f, r, add, c, c_row);
}
#endif

void br_frb_beams_rows(size_t rows, size_t columns, size_t depth, const float *a, size_t a_row,
                       const float *b, size_t b_row, int add, float *c, size_t c_row)
{
#if BR_X86_64
    if (br_cpu_has_avx2() && br_cpu_has_fma()) {
        float panel[DEPTH * PANEL] __attribute__((aligned(64)));
        for (size_t from = 0; from < depth; from += DEPTH) {
            size_t some = depth - from < DEPTH ? depth - from : DEPTH;
            for (size_t i = 0; i < columns; i += PANEL) {
                struct factors f = {a + from, b + from * b_row + i, a_row, b_row, some};
                size_t left = columns - i;
                if (left < PANEL) {
                    if (left >= 8) rows_narrow(rows, &f, add || from > 0, c + i, c_row);
                    f.b += left / 8 * 8;
                    if (left % 8 > 0)
                        rows_generic(rows, left % 8, &f, add || from > 0, c + i + left / 8 * 8, c_row);
                    continue;
                }
                if (rows >= WORTH) {
                    for (size_t k = 0; k < some; k++)
                        memcpy(panel + k * PANEL, f.b + k * b_row, PANEL * sizeof *panel);
                    f.b = panel;
                    f.b_row = PANEL;
                }
                rows_wide(rows, &f, add || from > 0, c + i, c_row);
            }
        }
        return;
    }
#endif
    const struct factors f = {a, b, a_row, b_row, depth};
    rows_generic(rows, columns, &f, add, c, c_row);
}
