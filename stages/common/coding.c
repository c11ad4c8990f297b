#include "stages/common/coding.h"

#include <string.h>

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
    } else {
        for (size_t i = 0; i < count; i++) out[i] = in[i] ^ 0x88;
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

bool coding_all_missing(enum coding coding, const uint8_t *in, size_t count)
{
    if (coding != CODING_CHIME || count == 0) return false;
    return in[0] == 0 && memcmp(in, in + 1, count - 1) == 0;
}
