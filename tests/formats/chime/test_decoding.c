/* The inner loops of reading files: plain code, vector code and the definition agree byte for byte. */
#include "formats/chime/bitplanes.h"
#include "formats/chime/bitshuffle.h"
#include "formats/chime/planes.h"
#include "formats/common/coding.h"

#include <lz4.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 40000, GUARD = 0xa5 };
static uint8_t input[ROOM], expected[ROOM], got[ROOM];

static void fill(void)
{
    uint64_t seed = 7;
    for (size_t i = 0; i < ROOM; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        input[i] = (uint8_t)(seed >> 56);
    }
    for (size_t i = 100; i < 200; i++) input[i] = 0;
}

static void assert_got(size_t from, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (got[from + i] != expected[i])
            fail_msg("%s of %zu bytes at %zu: byte %zu is %02x, not %02x", what, n, from, i, got[from + i],
                     expected[i]);
    for (size_t i = 0; i < 64; i++)
        if (got[from + n + i] != GUARD || (i < from && got[from - 1 - i] != GUARD))
            fail_msg("%s of %zu bytes at %zu writes beyond its end", what, n, from);
}

static void test_bitplanes(void **state)
{
    (void)state;
    fill();
    for (size_t n = 8; n <= 9000; n += n < 1100 ? 8 : 776) {
        const uint8_t *in = input + n / 8 % 5;
        for (size_t i = 0; i < n; i++) {
            expected[i] = 0;
            for (size_t k = 0; k < 8; k++)
                expected[i] |= (uint8_t)((in[k * (n / 8) + i / 8] >> i % 8 & 1) << k);
        }
        size_t from = 64 + n / 8 % 3;
        memset(got, GUARD, sizeof got);
        bitplanes_join(got + from, in, n);
        assert_got(from, n, "joining");
        memset(got, GUARD, sizeof got);
        bitplanes_join_plain(got + from, in, n);
        assert_got(from, n, "plain joining");
        memset(got, GUARD, sizeof got);
        if (bitplanes_join_avx2(got + from, in, n)) assert_got(from, n, "AVX2 joining");
    }
}

static uint8_t int4x2_of(enum coding coding, uint8_t byte);

/* Joined and converted at once, some groups in the middle of longer planes. */
static void test_bitplanes_of_chime(void **state)
{
    static uint8_t room[ROOM] __attribute__((aligned(64)));
    (void)state;
    fill();
    for (size_t groups = 32; groups <= 256; groups += 32)
        for (size_t first = 0; first <= 300; first += 100)
            for (int kind = 0; kind < 4; kind++) {
                size_t plane = 600, n = 8 * groups;
                bool far = (kind & 1) != 0, written = kind < 2, nothing = kind >= 2;
                if (nothing) memset(input, 0, 8 * plane);
                for (size_t i = 0; i < n; i++) {
                    uint8_t byte = 0;
                    for (size_t k = 0; k < 8; k++)
                        byte |= (uint8_t)((input[k * plane + first + i / 8] >> i % 8 & 1) << k);
                    expected[i] = int4x2_of(CODING_CHIME, byte);
                }
                memset(room, GUARD, sizeof room);
                if (!bitplanes_join_chime(room + 64, input + first, plane, groups, far, &written)) return;
                coding_settle();
                memcpy(got, room, sizeof got);
                assert_got(64, n, "joining of coding chime");
                assert_int_equal(written, !nothing);
                if (nothing) fill();
            }
}

/* The value of a byte in a coding, as two's complement pair with the real part in the low nibble. */
static uint8_t int4x2_of(enum coding coding, uint8_t byte)
{
    int low = byte & 15, high = byte >> 4;
    if (coding == CODING_INT4X2) return byte;
    if (coding == CODING_CHIME && byte == 0) return 0;
    int re = (coding == CODING_CHIME ? high : low) - 8, im = (coding == CODING_CHIME ? low : high) - 8;
    return (uint8_t)((re & 15) | (im & 15) << 4);
}

static void test_coding(void **state)
{
    (void)state;
    fill();
    for (int coding = 0; coding < CODING_UNKNOWN; coding++)
        for (size_t n = 0; n < 400; n += n < 130 ? 1 : 37)
            for (size_t from = 64; from < 97; from += 11) {
                for (size_t i = 0; i < n; i++) expected[i] = int4x2_of((enum coding)coding, input[i + 3]);
                memset(got, GUARD, sizeof got);
                coding_convert((enum coding)coding, input + 3, got + from, n);
                assert_got(from, n, coding_name((enum coding)coding));
                memset(got, GUARD, sizeof got);
                coding_convert_past_caches((enum coding)coding, input + 3, got + from, n);
                coding_settle();
                assert_got(from, n, coding_name((enum coding)coding));
            }
}

/* Units of n rows against the definition; bytes between the rows stay. */
static void check_rows(size_t planes, size_t unit, size_t n, uint8_t flip, size_t gap, size_t from)
{
    static const uint8_t *in[64];
    size_t pitch = planes * unit + gap, end = from + n * pitch;
    for (size_t c = 0; c < planes; c++) in[c] = input + (c * 531 + c % 3) % (ROOM - n * unit);
    for (int far = 0; far < 2; far++) {
        memset(got, GUARD, sizeof got);
        planes_to_rows(in, planes, unit, n, flip, got + from, pitch, unit, far);
        coding_settle();
        for (size_t i = 0; i < end + 64; i++) {
            size_t row = i - from, at = row % pitch;
            uint8_t want = GUARD;
            if (i >= from && i < end && at < planes * unit)
                want = in[at / unit][row / pitch * unit + at % unit] ^ flip;
            if (got[i] != want)
                fail_msg("%zu planes, units of %zu, %zu rows, flip %d, gap %zu: byte %zu is %02x, not %02x",
                         planes, unit, n, flip, gap, i - from, got[i], want);
        }
    }
}

static void test_planes(void **state)
{
    static const size_t counts[] = {1, 2, 3, 4, 7, 8, 15, 16, 23, 24, 32, 37, 64};
    (void)state;
    fill();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t unit = 1; unit <= 8; unit++)
            for (size_t n = 0; n < 300 && n * (counts[i] * unit + 64) < ROOM - 300; n += n < 20 ? 1 : 67)
                for (size_t from = 64; from <= 128; from += n % 3 == 0 ? 64 : 27) {
                    check_rows(counts[i], unit, n, 0, 0, from);
                    check_rows(counts[i], unit, n, 0x88, 64, from);
                    if (from == 64) check_rows(counts[i], unit, n, 0x88, 0, from);
                    if (from == 64) check_rows(counts[i], unit, n, 0, 3, from);
                }
}

/* --- bitshuffle with LZ4 ------------------------------------------------------------------------- */

enum { LZ4_BLOCK = 8192, LZ4_BLOCKS = 48, LZ4_BYTES = LZ4_BLOCK * LZ4_BLOCKS };

static uint8_t packed[2 * LZ4_BYTES], unpacked[LZ4_BYTES], planes[LZ4_BYTES];
static size_t taken;

static size_t put_length(uint8_t *out, size_t at, size_t more)
{
    for (; more >= 255; more -= 255) out[at++] = 255;
    out[at++] = (uint8_t)more;
    return at;
}

/* One sequence of LZ4's block format: literals, and unless it is the last one, a match `back` bytes back. */
static size_t put_sequence(uint8_t *out, size_t at, const uint8_t *literals, size_t n, size_t back,
                           size_t match)
{
    size_t token = at++, above = match - 4;
    out[token] = (uint8_t)((n < 15 ? n : 15) << 4 | (match == 0 ? 0 : above < 15 ? above : 15));
    if (n >= 15) at = put_length(out, at, n - 15);
    memcpy(out + at, literals, n);
    at += n;
    if (match == 0) return at;
    out[at++] = (uint8_t)back;
    out[at++] = (uint8_t)(back >> 8);
    return above >= 15 ? put_length(out, at, above - 15) : at;
}

/* A block of which `head` bytes compress: `pairs` sequences of some literals and their repetition. Returns
 * the bytes; *planes_of: what they stand for. */
static size_t pack_block(uint8_t *out, uint8_t *planes_of, size_t head, size_t pairs)
{
    size_t at = 0, made = 0, each = pairs > 0 ? head / pairs : 0;
    for (size_t i = 0; i < LZ4_BLOCK; i++) planes_of[i] = (uint8_t)(rand() >> 7);
    for (size_t i = 0; i < pairs; i++) {
        size_t literals = 1 + i % 19, match = (i + 1 < pairs ? each : head - made) - literals;
        for (size_t k = literals; k < literals + match; k++)
            planes_of[made + k] = planes_of[made + k - literals];
        at = put_sequence(out, at, planes_of + made, literals, literals, match);
        made += literals + match;
    }
    return put_sequence(out, at, planes_of + made, LZ4_BLOCK - made, 0, 0);
}

static int read_packed(void *arg, void *buffer, size_t length, size_t offset, struct br_error *error)
{
    size_t size = *(size_t *)arg;
    (void)error;
    assert_true(offset <= size && length <= size - offset);
    memcpy(buffer, packed + offset, length);
    return BR_OK;
}

static void put_unpacked(void *arg, size_t at, const uint8_t *data, size_t n)
{
    (void)arg;
    assert_true(at == taken && n <= LZ4_BYTES - at);
    memcpy(unpacked + at, data, n);
    taken += n;
}

/* Literals at the end of a block are used where they stand: heads of all lengths before them, in one match
 * and in many, at all places of a page. */
static void test_lz4(void **state)
{
    static const size_t heads[] = {0, 1024, 5, 12, 64, 1000, 1023, 1025, 3072, 4095, 4096, 4097, 6000, 8100};
    (void)state;
    srand(5);
    size_t size = 12, room = bitshuffle_scratch(LZ4_BYTES, sizeof packed);
    memset(packed, 0, size);
    for (size_t i = 0; i < 4; i++) packed[4 + i] = (uint8_t)((size_t)LZ4_BYTES >> (24 - 8 * i));
    packed[10] = LZ4_BLOCK >> 8;
    for (size_t b = 0; b < LZ4_BLOCKS; b++) {
        size_t head = heads[b % (sizeof heads / sizeof *heads)], most = b % 5 == 4 ? 20 : 1 + b % 3,
               pairs = head == 0          ? 0
                       : head < 40 * most ? 1
                                          : most;
        size_t n = pack_block(packed + size + 4, planes + b * LZ4_BLOCK, head, pairs);
        for (size_t i = 0; i < 4; i++) packed[size + i] = (uint8_t)(n >> (24 - 8 * i));
        size += 4 + n;
    }
    uint8_t *scratch = malloc(room);
    assert_non_null(scratch);
    for (size_t place = 0; place < 4200; place += 517) {
        struct bitshuffle_chunk chunk = {.bytes = LZ4_BYTES,
                                         .length = size,
                                         .lz4 = true,
                                         .place = place,
                                         .read = read_packed,
                                         .put = put_unpacked,
                                         .arg = &size};
        struct br_error error = {0};
        taken = 0;
        if (bitshuffle_decode(&chunk, 0, LZ4_BYTES, scratch, &error) != BR_OK) fail_msg("%s", error.text);
        assert_int_equal(taken, LZ4_BYTES);
        for (size_t i = 0; i < LZ4_BYTES; i++) {
            const uint8_t *block = planes + i / LZ4_BLOCK * LZ4_BLOCK;
            size_t within = i % LZ4_BLOCK;
            unsigned byte = 0;
            for (size_t k = 0; k < 8; k++)
                byte |= (block[k * (LZ4_BLOCK / 8) + within / 8] >> within % 8 & 1u) << k;
            if (unpacked[i] != byte)
                fail_msg("byte %zu of block %zu is %02x, not %02x", within, i / LZ4_BLOCK, unpacked[i], byte);
        }
    }
    free(scratch);
}

/* Whatever the bytes of a block say, LZ4 itself has the last word: it is damaged where LZ4 says so, and else
 * it is what LZ4 makes of it. */
static void test_lz4_damaged(void **state)
{
    enum { HEAD = 12 + 4 };
    static uint8_t whole[LZ4_BLOCK + 64], wanted[LZ4_BLOCK], joined[LZ4_BLOCK];
    size_t good = 0, bad = 0, room = bitshuffle_scratch(LZ4_BLOCK, sizeof whole + HEAD);
    uint8_t *scratch = malloc(room);
    (void)state;
    srand(9);
    assert_non_null(scratch);
    for (unsigned i = 0; i < 20000; i++) {
        size_t pairs = 1 + i % 5, n = pack_block(whole, planes, 100 + (size_t)rand() % 3000, pairs),
               size = HEAD + n;
        for (unsigned k = i % 4; k > 0; k--) { /* tokens, lengths, distances */
            uint8_t *at = &whole[(size_t)rand() % (rand() % 2 ? 60 : 4)];
            *at = (uint8_t)(rand() % 3 ? rand() >> 5 : rand() % 2 ? 0 : 255);
        }
        memset(packed, 0, HEAD);
        packed[6] = packed[10] = LZ4_BLOCK >> 8;
        packed[14] = (uint8_t)(n >> 8);
        packed[15] = (uint8_t)n;
        memcpy(packed + HEAD, whole, n);
        struct bitshuffle_chunk chunk = {.bytes = LZ4_BLOCK,
                                         .length = size,
                                         .lz4 = true,
                                         .read = read_packed,
                                         .put = put_unpacked,
                                         .arg = &size};
        struct br_error error = {0};
        bool sound = LZ4_decompress_safe((char *)whole, (char *)wanted, (int)n, LZ4_BLOCK) == LZ4_BLOCK;
        taken = 0;
        int status = bitshuffle_decode(&chunk, 0, LZ4_BLOCK, scratch, &error);
        if (sound != (status == BR_OK))
            fail_msg("block %u: LZ4 says %s, we do not", i, sound ? "sound" : "damaged");
        sound ? good++ : bad++;
        if (!sound) continue;
        bitplanes_join_plain(joined, wanted, LZ4_BLOCK);
        assert_int_equal(taken, LZ4_BLOCK);
        assert_memory_equal(unpacked, joined, LZ4_BLOCK);
    }
    assert_true(good > 2000 && bad > 2000);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bitplanes), cmocka_unit_test(test_bitplanes_of_chime),
        cmocka_unit_test(test_coding),    cmocka_unit_test(test_planes),
        cmocka_unit_test(test_lz4),       cmocka_unit_test(test_lz4_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
