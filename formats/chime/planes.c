#include "formats/chime/planes.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LINE = 64 };

/* Units [from, n) of all planes; constant sizes so that units are moved in registers. */
#define MOVE(bytes)                                                                                          \
    for (size_t t = from; t < n; t++)                                                                        \
        for (size_t c = 0; c < planes; c++) memcpy(out + t * pitch + c * step, in[c] + t * (bytes), bytes)

static void move_units(const uint8_t *const *in, size_t planes, size_t unit, size_t from, size_t n,
                       uint8_t flip, uint8_t *out, size_t pitch, size_t step)
{
    if (flip != 0) {
        for (size_t t = from; t < n; t++)
            for (size_t c = 0; c < planes; c++)
                for (size_t b = 0; b < unit; b++) out[t * pitch + c * step + b] = in[c][t * unit + b] ^ flip;
        return;
    }
    switch (unit) {
    case 1:
        MOVE(1);
        break;
    case 2:
        MOVE(2);
        break;
    case 4:
        MOVE(4);
        break;
    case 8:
        MOVE(8);
        break;
    default:
        MOVE(unit);
        break;
    }
}

#if defined(__x86_64__)

/* To an aligned address: through the caches, or past them. */
__attribute__((target("avx2"), always_inline)) static inline void put(uint8_t *to, __m256i value, bool far)
{
    if (far)
        _mm256_stream_si256((__m256i *)to, value);
    else
        _mm256_store_si256((__m256i *)to, value);
}

/* --- units of 4 bytes ---------------------------------------------------------------------------- */

/* 8 planes of 8 units: v[c] of plane c becomes row t. */
__attribute__((target("avx2"), always_inline)) static inline void transpose_8x8(__m256i v[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) { /* pairs of planes */
        a[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) { /* fours; units 0 and 4, 1 and 5, 2 and 6, 3 and 7 in the two halves */
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

#define LOAD(c) _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(in[c] + 4 * t)), flips)

/* Rows of 16 planes are a cache line: written at once it need not be read. Returns the units done. */
__attribute__((target("avx2"))) static size_t words_16(const uint8_t *const *in, size_t n, uint8_t flip,
                                                       uint8_t *out, size_t pitch, bool far)
{
    const __m256i flips = _mm256_set1_epi8((char)flip);
    bool line = far && (uintptr_t)out % LINE == 0 && pitch % LINE == 0;
    size_t t = 0;
    for (; t + 8 <= n; t += 8) {
        __m256i v[8] = {LOAD(0), LOAD(1), LOAD(2), LOAD(3), LOAD(4), LOAD(5), LOAD(6), LOAD(7)};
        __m256i w[8] = {LOAD(8), LOAD(9), LOAD(10), LOAD(11), LOAD(12), LOAD(13), LOAD(14), LOAD(15)};
        transpose_8x8(v);
        transpose_8x8(w);
        for (size_t i = 0; i < 8; i++) {
            __m256i *to = (__m256i *)(out + (t + i) * pitch);
            if (line) {
                _mm256_stream_si256(to, v[i]);
                _mm256_stream_si256(to + 1, w[i]);
            } else {
                _mm256_storeu_si256(to, v[i]);
                _mm256_storeu_si256(to + 1, w[i]);
            }
        }
    }
    return t;
}

__attribute__((target("avx2"))) static size_t words_8(const uint8_t *const *in, size_t n, uint8_t flip,
                                                      uint8_t *out, size_t pitch)
{
    const __m256i flips = _mm256_set1_epi8((char)flip);
    size_t t = 0;
    for (; t + 8 <= n; t += 8) {
        __m256i v[8] = {LOAD(0), LOAD(1), LOAD(2), LOAD(3), LOAD(4), LOAD(5), LOAD(6), LOAD(7)};
        transpose_8x8(v);
        for (size_t i = 0; i < 8; i++) _mm256_storeu_si256((__m256i *)(out + (t + i) * pitch), v[i]);
    }
    return t;
}

/* --- single bytes -------------------------------------------------------------------------------- */

/* `p` registers of 16 bytes, one of each plane, interleaved: the bytes of sample 0, of sample 1, ... With a
 * constant power of two, all in registers. */
__attribute__((always_inline)) static inline void interleave(__m128i *r, size_t p)
{
    __m128i q[16];
    for (size_t done = 1; done < p; done *= 2) {
        for (size_t k = 0; k < p / 2; k++) {
            q[2 * k] = _mm_unpacklo_epi8(r[k], r[k + p / 2]);
            q[2 * k + 1] = _mm_unpackhi_epi8(r[k], r[k + p / 2]);
        }
        for (size_t k = 0; k < p; k++) r[k] = q[k];
    }
}

/* p planes side by side, rows `pitch` apart. Returns the samples done. */
__attribute__((always_inline)) static inline size_t bytes_side_by_side(const uint8_t *const *in, size_t p,
                                                                       size_t n, uint8_t flip, uint8_t *out,
                                                                       size_t pitch, bool far)
{
    const __m128i flips = _mm_set1_epi8((char)flip);
    bool line = far && pitch == p && (uintptr_t)out % 16 == 0 && n * p >= 4 * LINE;
    size_t t = 0;
    for (; t + 16 <= n; t += 16) {
        __m128i r[16];
        for (size_t c = 0; c < p; c++)
            r[c] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(in[c] + t)), flips);
        interleave(r, p);
        for (size_t k = 0; k < p; k++) {
            uint8_t *to = out + (t + k * (16 / p)) * pitch;
            if (line) {
                _mm_stream_si128((__m128i *)to, r[k]);
            } else if (pitch == p) {
                _mm_storeu_si128((__m128i *)to, r[k]);
            } else {
                uint8_t bytes[16];
                memcpy(bytes, &r[k], 16);
                for (size_t i = 0; i < 16 / p; i++) memcpy(to + i * pitch, bytes + i * p, p);
            }
        }
    }
    return t;
}

/* The same of one plane, and of two: what most recordings have, so in wider registers. */
__attribute__((target("avx2"))) static size_t bytes_1(const uint8_t *in, size_t n, uint8_t flip, uint8_t *out,
                                                      bool far)
{
    const __m256i flips = _mm256_set1_epi8((char)flip);
    size_t t = 0;
    for (; t < n && (uintptr_t)(out + t) % 32 != 0; t++) out[t] = in[t] ^ flip;
    for (; t + 32 <= n; t += 32)
        put(out + t, _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(in + t)), flips), far);
    return t;
}

__attribute__((target("avx2"))) static size_t bytes_2(const uint8_t *const *in, size_t n, uint8_t flip,
                                                      uint8_t *out, bool far)
{
    const __m256i flips = _mm256_set1_epi8((char)flip);
    if ((uintptr_t)out % 32 != 0) return 0;
    size_t t = 0;
    for (; t + 32 <= n; t += 32) {
        __m256i a = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(in[0] + t)), flips),
                b = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(in[1] + t)), flips),
                low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        put(out + 2 * t, _mm256_permute2x128_si256(low, high, 0x20), far);
        put(out + 2 * t + 32, _mm256_permute2x128_si256(low, high, 0x31), far);
    }
    return t;
}

static size_t some_bytes(const uint8_t *const *in, size_t p, size_t n, uint8_t flip, uint8_t *out,
                         size_t pitch, bool far)
{
    switch (p) {
    case 16:
        return bytes_side_by_side(in, 16, n, flip, out, pitch, far);
    case 8:
        return bytes_side_by_side(in, 8, n, flip, out, pitch, far);
    case 4:
        return bytes_side_by_side(in, 4, n, flip, out, pitch, far);
    default:
        return bytes_side_by_side(in, 2, n, flip, out, pitch, far);
    }
}

enum { ROWS = 128 }; /* of many planes at a time: what is written of them stays in the nearest cache */

static void bytes_to_rows(const uint8_t *const *in, size_t planes, size_t n, uint8_t flip, uint8_t *out,
                          size_t pitch, bool far)
{
    size_t done = 0;
    bool wide = n >= 64 && __builtin_cpu_supports("avx2");
    if (wide && planes == 1 && pitch == 1) done = bytes_1(in[0], n, flip, out, far);
    if (wide && planes == 2 && pitch == 2) done = bytes_2(in, n, flip, out, far);
    for (size_t from = done; from < n; from += ROWS) {
        size_t rows = n - from < ROWS ? n - from : ROWS;
        for (size_t c = 0, p; c < planes; c += p) {
            p = 16;
            while (p > planes - c) p /= 2;
            const uint8_t *at[16];
            for (size_t i = 0; i < p; i++) at[i] = in[c + i] + from;
            size_t ready = p > 1 ? some_bytes(at, p, rows, flip, out + from * pitch + c, pitch, far) : 0;
            move_units(at, p, 1, ready, rows, flip, out + from * pitch + c, pitch, 1);
        }
    }
}

#endif

void planes_to_rows(const uint8_t *const *in, size_t planes, size_t unit, size_t n, uint8_t flip,
                    uint8_t *out, size_t pitch, size_t step, bool far)
{
#if defined(__x86_64__)
    if (unit == 1 && step == 1) {
        bytes_to_rows(in, planes, n, flip, out, pitch, far);
        return;
    }
    if (unit == 4 && step == 4 && __builtin_cpu_supports("avx2")) {
        for (; planes >= 8;) {
            size_t p = planes >= 16 ? 16 : 8,
                   done = p == 16 ? words_16(in, n, flip, out, pitch, far) : words_8(in, n, flip, out, pitch);
            move_units(in, p, 4, done, n, flip, out, pitch, 4);
            in += p;
            out += 4 * p;
            planes -= p;
        }
    }
#endif
    (void)far;
    move_units(in, planes, unit, 0, n, flip, out, pitch, step);
}
