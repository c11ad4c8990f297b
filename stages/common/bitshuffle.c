#include "stages/common/bitshuffle.h"

#include <lz4.h>
#include <string.h>

enum { DEFAULT_BLOCK = 8192, MOST_BLOCK = 1 << 30 };

typedef uint8_t v16 __attribute__((vector_size(16)));
typedef uint64_t v2 __attribute__((vector_size(16)));

static v16 load(const uint8_t *from)
{
    v16 value;
    memcpy(&value, from, 16);
    return value;
}

/* Bytes a0 b0 a1 b1 ... of the low or high halves. */
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* The 8 x 8 bits in each 64-bit word, transposed: swaps of 1 x 1, 2 x 2, 4 x 4 blocks across the diagonal. */
static v2 transpose_words(v2 x)
{
    v2 t;
    t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaull;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccull;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ull;
    return x ^ t ^ (t << 28);
}

static uint64_t transpose_word(uint64_t x)
{
    return transpose_words((v2){x, 0})[0];
}

/* One block of n elements, a multiple of 8: bit k of element 8 i + j is bit j of byte i of plane k. */
static void unshuffle(uint8_t *out, const uint8_t *in, size_t n)
{
    size_t plane = n / 8, i = 0;
    for (; i + 16 <= plane; i += 16) {
        v16 p[8], q[8];
        for (size_t k = 0; k < 8; k++) p[k] = load(in + k * plane + i);
        /* three interleavings put byte i of the planes 0 ... 7 side by side */
        for (size_t k = 0; k < 4; k++) {
            q[2 * k] = LOW(p[k], p[k + 4]);
            q[2 * k + 1] = HIGH(p[k], p[k + 4]);
        }
        for (size_t k = 0; k < 4; k++) {
            p[2 * k] = LOW(q[k], q[k + 4]);
            p[2 * k + 1] = HIGH(q[k], q[k + 4]);
        }
        for (size_t k = 0; k < 4; k++) {
            q[2 * k] = LOW(p[k], p[k + 4]);
            q[2 * k + 1] = HIGH(p[k], p[k + 4]);
        }
        for (size_t k = 0; k < 8; k++) {
            v2 word = transpose_words((v2)q[k]);
            memcpy(out + 8 * i + 16 * k, &word, 16);
        }
    }
    for (; i < plane; i++) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 8; k++) word |= (uint64_t)in[k * plane + i] << 8 * k;
        word = transpose_word(word);
        memcpy(out + 8 * i, &word, 8);
    }
}

size_t bitshuffle_scratch(size_t bytes)
{
    return bytes;
}

static uint64_t big_endian(const uint8_t *b, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value = value << 8 | b[i];
    return value;
}

static int decode_plain(uint8_t *out, size_t bytes, const uint8_t *in, size_t length, size_t block,
                        struct br_error *error)
{
    if (length != bytes)
        return br_fail(error, BR_E_FORMAT, "a bitshuffled chunk has %zu bytes; expected %zu", length, bytes);
    if (block == 0) block = DEFAULT_BLOCK;
    if (block % 8 != 0 || block > MOST_BLOCK)
        return br_fail(error, BR_E_FORMAT, "the filter's block size is %zu; expected a multiple of 8", block);
    size_t at = 0;
    while (bytes - at >= 8) {
        size_t n = bytes - at < block ? (bytes - at) / 8 * 8 : block;
        unshuffle(out + at, in + at, n);
        at += n;
    }
    memcpy(out + at, in + at, bytes - at);
    return BR_OK;
}

int bitshuffle_decode(uint8_t *out, size_t bytes, const uint8_t *in, size_t length, bool lz4, size_t block,
                      void *scratch, struct br_error *error)
{
    if (!lz4) return decode_plain(out, bytes, in, length, block, error);
    if (length < 12)
        return br_fail(error, BR_E_FORMAT, "a compressed chunk has %zu bytes; expected a header of 12",
                       length);
    uint64_t announced = big_endian(in, 8);
    block = (size_t)big_endian(in + 8, 4);
    if (announced != bytes)
        return br_fail(error, BR_E_FORMAT, "a compressed chunk announces %llu bytes; expected %zu",
                       (unsigned long long)announced, bytes);
    if (block == 0 || block % 8 != 0 || block > MOST_BLOCK)
        return br_fail(error, BR_E_FORMAT,
                       "a compressed chunk has blocks of %zu bytes; expected a multiple of 8", block);
    size_t at = 0, from = 12;
    while (bytes - at >= 8) {
        size_t n = bytes - at < block ? (bytes - at) / 8 * 8 : block;
        uint64_t packed = length - from >= 4 ? big_endian(in + from, 4) : UINT64_MAX;
        if (packed > length - from - 4)
            return br_fail(error, BR_E_FORMAT, "a compressed chunk ends in the block at byte %zu", from);
        from += 4;
        if (LZ4_decompress_safe((const char *)in + from, scratch, (int)packed, (int)n) != (int)n)
            return br_fail(error, BR_E_FORMAT, "the compressed block at byte %zu of a chunk is damaged",
                           from);
        unshuffle(out + at, scratch, n);
        from += (size_t)packed;
        at += n;
    }
    if (length - from != bytes - at)
        return br_fail(error, BR_E_FORMAT, "a compressed chunk has %zu bytes after its blocks; expected %zu",
                       length - from, bytes - at);
    memcpy(out + at, in + from, bytes - at);
    return BR_OK;
}
