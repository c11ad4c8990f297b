/* decode.c - elements of 4 and 8 bits as float32: complex ones as pairs. */
#include "core.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

/* Sixteen bytes at a time: nibbles become bytes by a table of sixteen, then numbers. Returns the bytes done.
 */
__attribute__((target("avx2"))) static size_t decode_nibbles_avx2(const uint8_t *from, float *to,
                                                                  size_t bytes)
{
    const __m128i value = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m128i low = _mm_set1_epi8(15);
    size_t i = 0;
    for (; i + 16 <= bytes; i += 16) {
        __m128i both = _mm_loadu_si128((const __m128i *)(from + i));
        __m128i even = _mm_shuffle_epi8(value, _mm_and_si128(both, low));
        __m128i odd = _mm_shuffle_epi8(value, _mm_and_si128(_mm_srli_epi16(both, 4), low));
        __m128i half[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
        for (int h = 0; h < 2; h++) {
            float *at = to + 2 * i + 16 * h;
            _mm256_storeu_ps(at, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half[h])));
            _mm256_storeu_ps(at + 8,
                             _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(half[h], half[h]))));
        }
    }
    return i;
}
#endif

/* Both nibbles of a byte, in two's complement, the low one first. */
static void decode_nibbles(const uint8_t *from, float *to, size_t bytes)
{
    static _Thread_local float table[256][2];
    if (table[1][0] == 0)
        for (int b = 0; b < 256; b++) {
            table[b][0] = (float)(((b & 15) ^ 8) - 8);
            table[b][1] = (float)(((b >> 4) ^ 8) - 8);
        }
    size_t i = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) i = decode_nibbles_avx2(from, to, bytes);
#endif
    for (; i < bytes; i++) memcpy(to + 2 * i, table[from[i]], sizeof table[0]);
}

static void decode_bytes(const int8_t *from, float *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) to[i] = from[i];
}

PyObject *core_decode(PyObject *module, PyObject *args)
{
    (void)module;
    const char *kind;
    unsigned long long source, destination, bytes;
    if (!PyArg_ParseTuple(args, "sKKK", &kind, &source, &destination, &bytes)) return NULL;
    const void *from = (const void *)(uintptr_t)source;
    float *to = (float *)(uintptr_t)destination;
    Py_BEGIN_ALLOW_THREADS;
    if (strcmp(kind, "nibbles") == 0)
        decode_nibbles(from, to, bytes);
    else
        decode_bytes(from, to, bytes);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}
