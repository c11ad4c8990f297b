#include "formats/chime/bitplanes.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The 8 x 8 bits of a 64-bit word, transposed: swaps of 1 x 1, 2 x 2, 4 x 4 blocks across the diagonal. */
static uint64_t transpose_word(uint64_t x)
{
    uint64_t t;
    t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaull;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccull;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ull;
    return x ^ t ^ (t << 28);
}

/* Groups [i, n / 8) of 8 bytes. */
static void join_rest(uint8_t *out, const uint8_t *in, size_t n, size_t i)
{
    for (size_t plane = n / 8; i < plane; i++) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 8; k++) word |= (uint64_t)in[k * plane + i] << 8 * k;
        word = transpose_word(word);
        for (unsigned k = 0; k < 8; k++) out[8 * i + k] = (uint8_t)(word >> 8 * k);
    }
}

/* Exchanges the bits `mask` << shift of a with the bits `mask` of b, in bytes. Shifts of wider words do: what
 * crosses into another byte is masked away. */
#define EXCHANGE(a, b, shift, mask)                                                                          \
    do {                                                                                                     \
        wide t_ = (((a) >> (shift)) ^ (b)) & (mask);                                                         \
        (b) ^= t_;                                                                                           \
        (a) ^= t_ << (shift);                                                                                \
    } while (0)

/* Eight registers, of plane k each: bit j of plane k against bit k of plane j, for every byte. Then register
 * j has the bytes 8 i + j. A third of the work of doing it in the words, because all of a register takes
 * part. */
#define TRANSPOSE_BITS(p)                                                                                    \
    do {                                                                                                     \
        for (int k_ = 0; k_ < 8; k_ += 2) EXCHANGE(p[k_], p[k_ + 1], 1, 0x5555555555555555ull);              \
        for (int k_ = 0; k_ < 2; k_++) EXCHANGE(p[k_], p[k_ + 2], 2, 0x3333333333333333ull);                 \
        for (int k_ = 4; k_ < 6; k_++) EXCHANGE(p[k_], p[k_ + 2], 2, 0x3333333333333333ull);                 \
        for (int k_ = 0; k_ < 4; k_++) EXCHANGE(p[k_], p[k_ + 4], 4, 0x0f0f0f0f0f0f0f0full);                 \
    } while (0)

/* Written out: a loop over them would go through memory. */
#define ALL_PLANES(load, at, plane)                                                                          \
    {                                                                                                        \
        load(at), load((at) + (plane)), load((at) + 2 * (plane)), load((at) + 3 * (plane)),                  \
            load((at) + 4 * (plane)), load((at) + 5 * (plane)), load((at) + 6 * (plane)),                    \
            load((at) + 7 * (plane))                                                                         \
    }

typedef uint8_t v16 __attribute__((vector_size(16)));
typedef uint64_t v2 __attribute__((vector_size(16)));

static v2 load16(const uint8_t *from)
{
    v2 value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Bytes a0 b0 a1 b1 ... of the low or high halves. */
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

void bitplanes_join_plain(uint8_t *out, const uint8_t *in, size_t n)
{
    typedef v2 wide;
    size_t plane = n / 8, i = 0;
    for (; i + 16 <= plane; i += 16) {
        wide p[8] = ALL_PLANES(load16, in + i, plane);
        v16 q[8], r[8];
        TRANSPOSE_BITS(p);
        /* three interleavings put byte i of the registers 0 ... 7 side by side */
        for (size_t k = 0; k < 4; k++) {
            q[2 * k] = LOW((v16)p[k], (v16)p[k + 4]);
            q[2 * k + 1] = HIGH((v16)p[k], (v16)p[k + 4]);
        }
        for (size_t k = 0; k < 4; k++) {
            r[2 * k] = LOW(q[k], q[k + 4]);
            r[2 * k + 1] = HIGH(q[k], q[k + 4]);
        }
        for (size_t k = 0; k < 4; k++) {
            v16 low = LOW(r[k], r[k + 4]), high = HIGH(r[k], r[k + 4]);
            memcpy(out + 8 * i + 32 * k, &low, 16);
            memcpy(out + 8 * i + 32 * k + 16, &high, 16);
        }
    }
    join_rest(out, in, n, i);
}

#if defined(__x86_64__)
#define LOAD32(from) (v4) _mm256_loadu_si256((const __m256i *)(from))

/* To an address that is aligned if `far`. */
__attribute__((target("avx2"), always_inline)) static inline void store(uint8_t *to, __m256i value, bool far)
{
    if (far)
        _mm256_stream_si256((__m256i *)to, value);
    else
        _mm256_storeu_si256((__m256i *)to, value);
}

typedef uint64_t v4 __attribute__((vector_size(32)));

/* 32 bytes of each plane: 256 bytes. The interleavings work in halves of registers, so the first half of the
 * result is in the low halves, the second in the high ones. */
__attribute__((target("avx2"), always_inline)) static inline void join_256(v4 p[8], uint8_t *out, bool far)
{
    typedef v4 wide;
    __m256i q[8], r[8];
    TRANSPOSE_BITS(p);
    for (size_t k = 0; k < 4; k++) {
        q[2 * k] = _mm256_unpacklo_epi8((__m256i)p[k], (__m256i)p[k + 4]);
        q[2 * k + 1] = _mm256_unpackhi_epi8((__m256i)p[k], (__m256i)p[k + 4]);
    }
    for (size_t k = 0; k < 4; k++) {
        r[2 * k] = _mm256_unpacklo_epi8(q[k], q[k + 4]);
        r[2 * k + 1] = _mm256_unpackhi_epi8(q[k], q[k + 4]);
    }
    __m256i low[4], high[4];
    for (size_t k = 0; k < 4; k++) {
        low[k] = _mm256_unpacklo_epi8(r[k], r[k + 4]);
        high[k] = _mm256_unpackhi_epi8(r[k], r[k + 4]);
    }
    for (size_t k = 0; k < 4; k++) store(out + 32 * k, _mm256_permute2x128_si256(low[k], high[k], 0x20), far);
    for (size_t k = 0; k < 4; k++)
        store(out + 128 + 32 * k, _mm256_permute2x128_si256(low[k], high[k], 0x31), far);
}

__attribute__((target("avx2"))) static void join_avx2(uint8_t *out, const uint8_t *in, size_t n)
{
    size_t plane = n / 8, i = 0;
    for (; i + 32 <= plane; i += 32) {
        v4 p[8] = ALL_PLANES(LOAD32, in + i, plane);
        join_256(p, out + 8 * i, false);
    }
    join_rest(out, in, n, i);
}

/* Conversion in planes: nibbles change places by their planes' numbers; offset binary differs from two's
 * complement in the planes of the signs, 3 and 7, and only where something was written. */
__attribute__((target("avx2"))) static bool join_chime(uint8_t *out, const uint8_t *in, size_t plane,
                                                       size_t n, bool far)
{
    v4 all = {0};
    for (size_t i = 0; i < n; i += 32) {
        v4 p[8] = ALL_PLANES(LOAD32, in + i, plane);
        v4 some = p[0] | p[1] | p[2] | p[3] | p[4] | p[5] | p[6] | p[7];
        v4 q[8] = {p[4], p[5], p[6], ~p[7] & some, p[0], p[1], p[2], ~p[3] & some};
        all |= some;
        join_256(q, out + 8 * i, far);
    }
    return !_mm256_testz_si256((__m256i)all, (__m256i)all);
}
#endif

bool bitplanes_join_chime(uint8_t *out, const uint8_t *in, size_t plane, size_t n, bool far, bool *written)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        *written = join_chime(out, in, plane, n, far);
        return true;
    }
#endif
    (void)out;
    (void)in;
    (void)plane;
    (void)n;
    (void)far;
    (void)written;
    return false;
}

bool bitplanes_join_avx2(uint8_t *out, const uint8_t *in, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        join_avx2(out, in, n);
        return true;
    }
#endif
    (void)out;
    (void)in;
    (void)n;
    return false;
}

void bitplanes_join(uint8_t *out, const uint8_t *in, size_t n)
{
    if (!bitplanes_join_avx2(out, in, n)) bitplanes_join_plain(out, in, n);
}
