/* The axes of an array in another order, and the codings of a byte: every element where the definition
 * puts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "formats/common/coding.h"
#include "formats/common/permute.h"

/* in[x0][x1][x2][x3] -> out[x_order0]...: by the definition, element by element. */
static void expect(const size_t *length, const unsigned *order, size_t element)
{
    size_t count = length[0] * length[1] * length[2] * length[3];
    uint8_t *in = malloc(count * element), *out = malloc(count * element + 8);
    for (size_t i = 0; i < count * element; i++) in[i] = (uint8_t)(i * 131 + i / 251);
    memset(out, 0xee, count * element + 8);
    struct permutation p;
    permutation_init(&p, 4, length, order, element);
    permute(&p, in, out);
    size_t x[4];
    for (x[0] = 0; x[0] < length[0]; x[0]++)
        for (x[1] = 0; x[1] < length[1]; x[1]++)
            for (x[2] = 0; x[2] < length[2]; x[2]++)
                for (x[3] = 0; x[3] < length[3]; x[3]++) {
                    size_t from = 0, to = 0;
                    for (int i = 0; i < 4; i++) {
                        from = from * length[i] + x[i];
                        to = to * length[order[i]] + x[order[i]];
                    }
                    assert_memory_equal(out + to * element, in + from * element, element);
                }
    for (int i = 0; i < 8; i++) assert_int_equal(out[count * element + (size_t)i], 0xee);
    free(in);
    free(out);
}

/* All orders of four axes, lengths around the tiles', one of length 1, all sizes of elements. */
static void test_orders(void **state)
{
    (void)state;
    static const size_t lengths[][4] = {{3, 5, 4, 7}, {33, 2, 1, 65}, {1, 1, 1, 1}, {2, 64, 31, 3}};
    unsigned tried = 0;
    for (unsigned code = 0; code < 256; code++) {
        unsigned order[4], seen = 0;
        for (unsigned i = 0; i < 4; i++) seen |= 1u << (order[i] = code >> 2 * i & 3);
        if (seen != 15) continue;
        tried++;
        assert_int_equal(permutation_is_copy(4, order),
                         order[0] == 0 && order[1] == 1 && order[2] == 2 && order[3] == 3);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            for (size_t element = 1; element <= 4; element *= 2) expect(lengths[k], order, element);
    }
    assert_int_equal(tried, 24);
}

/* value + 8, real part in the high nibble; two's complement, real part low. */
static void test_codings(void **state)
{
    (void)state;
    uint8_t ours[256], theirs[256], back[256];
    for (int re = -8; re < 8; re++)
        for (int im = -8; im < 8; im++) ours[(re + 8) * 16 + im + 8] = (uint8_t)((re & 15) | (im & 15) << 4);
    for (size_t n = 0; n <= 256; n += n < 70 ? 1 : 93) { /* with and without whole vectors */
        memset(theirs, 0xaa, sizeof theirs);
        coding_encode(CODING_CHIME, ours, theirs, n);
        for (size_t i = 0; i < n; i++) assert_int_equal(theirs[i], i); /* (re + 8) 16 + im + 8 */
        for (size_t i = n; i < 256; i++) assert_int_equal(theirs[i], 0xaa);
    }
    coding_encode(CODING_CHIME, ours, theirs, 256);
    coding_convert(CODING_CHIME, theirs, back, 256);
    assert_int_equal(back[0], 0); /* -8 - 8i is the missing sample */
    assert_memory_equal(back + 1, ours + 1, 255);
    for (enum coding c = CODING_INT4X2; c <= CODING_VDIF; c += CODING_VDIF) {
        coding_encode(c, ours, theirs, 256);
        coding_convert(c, theirs, back, 256);
        assert_memory_equal(back, ours, 256);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders), cmocka_unit_test(test_codings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
