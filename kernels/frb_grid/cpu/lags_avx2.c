/* Inner loops of FRB stage 1 by autocorrelation with AVX2. */
#include "kernels/common/cpu.h"
#include "kernels/frb_grid/cpu/lags.h"

#if BR_X86_64
#include <immintrin.h>
#include <string.h>

#define AVX2   __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline))

/* 16 lanes of (a, b) of one sample and of the next, interleaved: 64 bytes. */
AVX2 INLINE void put(void *to, __m128i a0, __m128i b0, __m128i a1, __m128i b1)
{
    __m128i *out = to;
    __m128i low0 = _mm_unpacklo_epi8(a0, b0), high0 = _mm_unpackhi_epi8(a0, b0);
    __m128i low1 = _mm_unpacklo_epi8(a1, b1), high1 = _mm_unpackhi_epi8(a1, b1);
    _mm_store_si128(out, _mm_unpacklo_epi16(low0, low1));
    _mm_store_si128(out + 1, _mm_unpackhi_epi16(low0, low1));
    _mm_store_si128(out + 2, _mm_unpacklo_epi16(high0, high1));
    _mm_store_si128(out + 3, _mm_unpackhi_epi16(high0, high1));
}

/* -8 times the sums of x, [pairs][lanes][4], for eight lanes. */
AVX2 INLINE void put_sums(int32_t *to, const int8_t *x, unsigned pairs, size_t step)
{
    __m256i sum = _mm256_setzero_si256();
    for (unsigned t = 0; t < pairs; t++, x += step)
        sum =
            _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_set1_epi8(8),
                                                       _mm256_load_si256((const __m256i *)(const void *)x)));
    _mm256_store_si256((__m256i *)(void *)to, _mm256_madd_epi16(sum, _mm256_set1_epi16(-1)));
}

AVX2 static void spread_avx2(const struct frb_grid_lag_scratch *s, const uint8_t *samples, size_t npol,
                             size_t lanes, unsigned pairs)
{
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    for (size_t pol = 0; pol < npol; pol++) {
        for (unsigned t = 0; t < pairs; t++) {
            const uint8_t *one = samples + (2 * t * npol + pol) * lanes, *next = one + npol * lanes;
            for (size_t l = 0; l < lanes; l += 16) {
                size_t at = ((pol * pairs + t) * lanes + l) * 4;
                __m128i v0 = _mm_loadu_si128((const __m128i *)(const void *)(one + l));
                __m128i v1 = _mm_loadu_si128((const __m128i *)(const void *)(next + l));
                /* values plus 8 */
                __m128i re0 = _mm_xor_si128(_mm_and_si128(v0, low), eight);
                __m128i re1 = _mm_xor_si128(_mm_and_si128(v1, low), eight);
                __m128i im0 = _mm_xor_si128(_mm_and_si128(_mm_srli_epi16(v0, 4), low), eight);
                __m128i im1 = _mm_xor_si128(_mm_and_si128(_mm_srli_epi16(v1, 4), low), eight);
                put(s->u + at, re0, im0, re1, im1);
                __m128i x_im0 = _mm_sub_epi8(im0, eight), x_im1 = _mm_sub_epi8(im1, eight);
                put(s->x + at, _mm_sub_epi8(re0, eight), x_im0, _mm_sub_epi8(re1, eight), x_im1);
                put(s->y + at, x_im0, _mm_sub_epi8(eight, re0), x_im1, _mm_sub_epi8(eight, re1));
            }
        }
        for (size_t l = 0; l < lanes; l += 8) {
            size_t at = (pol * pairs * lanes + l) * 4;
            put_sums(s->x_off + pol * lanes + l, s->x + at, pairs, 4 * lanes);
            put_sums(s->y_off + pol * lanes + l, s->y + at, pairs, 4 * lanes);
        }
    }
}

/* Sums of both samples of the pairs, without what u has too much. */
AVX2 INLINE __m256 sum_of(__m256i pairs, const int32_t *off)
{
    __m256i sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(sum, _mm256_load_si256((const __m256i *)(const void *)off)));
}

/* v = conj(W_i) W_j v */
AVX2 INLINE void weigh(__m256 *v_re, __m256 *v_im, const float *w_re, const float *w_im, float i_re,
                       float i_im)
{
    __m256 j_re = _mm256_load_ps(w_re), j_im = _mm256_load_ps(w_im);
    __m256 c_re = _mm256_set1_ps(i_re), c_im = _mm256_set1_ps(i_im);
    __m256 a_re = _mm256_sub_ps(_mm256_mul_ps(*v_re, j_re), _mm256_mul_ps(*v_im, j_im));
    __m256 a_im = _mm256_add_ps(_mm256_mul_ps(*v_re, j_im), _mm256_mul_ps(*v_im, j_re));
    *v_re = _mm256_add_ps(_mm256_mul_ps(a_re, c_re), _mm256_mul_ps(a_im, c_im));
    *v_im = _mm256_sub_ps(_mm256_mul_ps(a_im, c_re), _mm256_mul_ps(a_re, c_im));
}

/* `n` times eight lanes, a constant of at most 4: 8 sums of 16 bits, of each sample of the pairs. */
AVX2 INLINE void multiply_some_avx2(const struct frb_grid_products *p, size_t from, int n)
{
    size_t step = 4 * p->lanes;
    for (size_t pol = 0; pol < p->npol; pol++) {
        const uint8_t *u = p->s->u + pol * p->pairs * step + 4 * p->lane;
        const int8_t *x = p->s->x + pol * p->pairs * step + 4 * from,
                     *y = p->s->y + pol * p->pairs * step + 4 * from;
        __m256i re[4], im[4];
#pragma GCC unroll 4
        for (int b = 0; b < n; b++) re[b] = im[b] = _mm256_setzero_si256();
        for (unsigned t = 0; t < p->pairs; t++, u += step, x += step, y += step) {
            int32_t mine;
            memcpy(&mine, u, 4);
            __m256i all = _mm256_set1_epi32(mine);
#pragma GCC unroll 4
            for (int b = 0; b < n; b++) {
                const __m256i *x_in = (const __m256i *)(const void *)(x + 32 * b),
                              *y_in = (const __m256i *)(const void *)(y + 32 * b);
                re[b] = _mm256_add_epi16(re[b], _mm256_maddubs_epi16(all, _mm256_load_si256(x_in)));
                im[b] = _mm256_add_epi16(im[b], _mm256_maddubs_epi16(all, _mm256_load_si256(y_in)));
            }
        }
        const float *w = p->weights ? p->weights + pol * 2 * p->lanes : NULL;
#pragma GCC unroll 4
        for (int b = 0; b < n; b++) {
            size_t l = from + 8 * (size_t)b;
            __m256 v_re = sum_of(re[b], p->s->x_off + pol * p->lanes + l),
                   v_im = sum_of(im[b], p->s->y_off + pol * p->lanes + l);
            if (w) weigh(&v_re, &v_im, w + l, w + p->lanes + l, w[p->lane], w[p->lanes + p->lane]);
            if (pol > 0) v_re = _mm256_add_ps(_mm256_load_ps(p->s->re + l), v_re);
            if (pol > 0) v_im = _mm256_add_ps(_mm256_load_ps(p->s->im + l), v_im);
            _mm256_store_ps(p->s->re + l, v_re);
            _mm256_store_ps(p->s->im + l, v_im);
        }
    }
}

AVX2 static void multiply_avx2(const struct frb_grid_products *p)
{
    size_t from = p->from;
    for (; p->used - from >= 32; from += 32) multiply_some_avx2(p, from, 4);
    if (p->used - from == 24) multiply_some_avx2(p, from, 3);
    if (p->used - from == 16) multiply_some_avx2(p, from, 2);
    if (p->used - from == 8) multiply_some_avx2(p, from, 1);
}

/* From lane l on, a multiple of FRB_GRID_ROW. */
AVX2 INLINE void add_some(float *to, const float *from, size_t l, size_t width)
{
    for (; l + 8 <= width; l += 8)
        _mm256_storeu_ps(to + l, _mm256_add_ps(_mm256_loadu_ps(to + l), _mm256_loadu_ps(from + l)));
    if (l < width) _mm_storeu_ps(to + l, _mm_add_ps(_mm_loadu_ps(to + l), _mm_loadu_ps(from + l)));
}

AVX2 static void add_avx2(const struct frb_grid_products *p, const struct frb_grid_row *row,
                          const struct frb_grid_row *end, float *re, float *im, size_t pitch, size_t shift)
{
    for (const struct frb_grid_row *r = row; r < end; r++) {
        size_t to = (r->m - row->m) * pitch + r->n + shift;
        size_t l = r == row ? p->skip : 0;
        add_some(re + to, p->s->re + r->lane, l, r->width);
        add_some(im + to, p->s->im + r->lane, l, r->width);
    }
}

const struct frb_grid_lag_loops br_frb_grid_lag_avx2 = {spread_avx2, multiply_avx2, add_avx2};

#endif
