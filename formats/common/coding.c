#include "formats/common/coding.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const char *const names[] = {"int4x2", "chime", "vdif"};

enum coding coding_from_name(const char *name)
{
    for (int i = 0; i < CODING_UNKNOWN; i++)
        if (strcmp(name, names[i]) == 0) return (enum coding)i;
    return CODING_UNKNOWN;
}

const char *coding_name(enum coding coding)
{
    return coding < CODING_UNKNOWN ? names[coding] : "?";
}

/* convert's name for int4x2 samples that become CHIME's, none of which stands for a missing one: the other
 * codings convert in both directions by the same operations. */
#define TO_CHIME CODING_UNKNOWN

/* Offset binary and two's complement differ in the sign bit of each nibble, so both conversions are a few
 * byte operations without branches: the compiler makes vector code of these loops. */
static inline __attribute__((always_inline)) void convert(enum coding coding, const uint8_t *in, uint8_t *out,
                                                          size_t count)
{
    if (coding == CODING_CHIME) {
        for (size_t i = 0; i < count; i++) {
            uint8_t byte = in[i], flipped = byte ^ 0x88;
            uint8_t swapped = (uint8_t)((flipped << 4) | (flipped >> 4));
            out[i] = byte == 0 ? 0 : swapped;
        }
    } else if (coding == TO_CHIME) {
        for (size_t i = 0; i < count; i++) {
            uint8_t flipped = in[i] ^ 0x88;
            out[i] = (uint8_t)((flipped << 4) | (flipped >> 4));
        }
    } else if (coding == CODING_VDIF) {
        for (size_t i = 0; i < count; i++) out[i] = in[i] ^ 0x88;
    } else {
        memcpy(out, in, count);
    }
}

#if defined(__x86_64__)
/* The same loops in wider vectors. */
__attribute__((target("avx2"))) static void convert_avx2(enum coding coding, const uint8_t *in, uint8_t *out,
                                                         size_t count)
{
    convert(coding, in, out, count);
}
#endif

void coding_convert(enum coding coding, const uint8_t *in, uint8_t *out, size_t count)
{
    if (coding == CODING_INT4X2) {
        if (in != out) memcpy(out, in, count);
        return;
    }
#if defined(__x86_64__)
    if (count >= 64 && __builtin_cpu_supports("avx2")) {
        convert_avx2(coding, in, out, count);
        return;
    }
#endif
    convert(coding, in, out, count);
}

void coding_encode(enum coding coding, const uint8_t *in, uint8_t *out, size_t count)
{
    coding_convert(coding == CODING_CHIME ? TO_CHIME : coding, in, out, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static __m256i convert_32(enum coding coding, __m256i in)
{
    const __m256i signs = _mm256_set1_epi8((char)0x88), high = _mm256_set1_epi8((char)0xf0);
    if (coding == CODING_INT4X2) return in;
    __m256i flipped = _mm256_xor_si256(in, signs);
    if (coding == CODING_VDIF) return flipped;
    __m256i up = _mm256_and_si256(_mm256_slli_epi16(flipped, 4), high),
            down = _mm256_srli_epi16(_mm256_and_si256(flipped, high), 4),
            missing = _mm256_cmpeq_epi8(in, _mm256_setzero_si256());
    return _mm256_andnot_si256(missing, _mm256_or_si256(up, down));
}

__attribute__((target("avx2"))) static void convert_past_caches(enum coding coding, const uint8_t *in,
                                                                uint8_t *out, size_t count)
{
    size_t head = -(uintptr_t)out % 32;
    convert(coding, in, out, head);
    for (in += head, out += head, count -= head; count >= 32; in += 32, out += 32, count -= 32)
        _mm256_stream_si256((__m256i *)out, convert_32(coding, _mm256_loadu_si256((const __m256i *)in)));
    convert(coding, in, out, count);
}
#endif

void coding_convert_past_caches(enum coding coding, const uint8_t *in, uint8_t *out, size_t count)
{
#if defined(__x86_64__)
    if (count >= 64 && __builtin_cpu_supports("avx2")) {
        convert_past_caches(coding, in, out, count);
        return;
    }
#endif
    coding_convert(coding, in, out, count);
}

void coding_settle(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

bool coding_all_missing(enum coding coding, const uint8_t *in, size_t count)
{
    if (coding != CODING_CHIME || count == 0) return false;
    return in[0] == 0 && memcmp(in, in + 1, count - 1) == 0;
}
