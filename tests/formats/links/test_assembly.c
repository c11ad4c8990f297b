/* Blocks that are put together from pieces: what a cell's validity follows from. */
#include "formats/links/assembly.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A cell is there where any beam has a level: the first one, the last one, in either half of a byte. */
static void test_validity(void **state)
{
    (void)state;
    enum { BEAMS = 3, CHANNELS = 2, STEPS = 16 };
    static const double freq[CHANNELS] = {400, 401}, width[CHANNELS] = {1, 1};
    for (int nibbles = 0; nibbles < 2; nibbles++) {
        struct br_error error = {0};
        struct wire_counts counts = {0};
        struct assembly a = {.nbeams = BEAMS,
                             .nchannels = CHANNELS,
                             .row = nibbles ? STEPS / 2 : STEPS,
                             .units = 1,
                             .window = 2,
                             .missing = nibbles ? 0x88 : 0,
                             .nibbles = nibbles != 0,
                             .counts = &counts};
        struct br_stream s = {.frame_samples = STEPS,
                              .sample_ns = {1000, 1},
                              .nchannels = CHANNELS,
                              .freq_mhz = freq,
                              .width_mhz = width,
                              .nzones = 1,
                              .zone = {{0, CHANNELS, 1, 1, 0}},
                              .scale = 1,
                              .nbeams = BEAMS};
        br_array_init(&s.array, nibbles ? BR_INT4 : BR_UINT8, "beam,freq,time",
                      (size_t[]){BEAMS, CHANNELS, STEPS}, NULL);
        uint8_t data[BEAMS * CHANNELS * STEPS], valid[CHANNELS * STEPS];
        float side[BEAMS * CHANNELS * 2];
        for (size_t beam = 0; beam < BEAMS; beam++)
            for (size_t cell = 0; cell < CHANNELS * STEPS; cell++) {
                struct assembly_block *block;
                struct br_frame frame = {.data = data, .side = side, .valid = valid, .samples = STEPS};
                assert_int_equal(assembly_create(&a, &error), BR_OK);
                assert_int_equal(assembly_open(&a, 0, &block), ASSEMBLY_OPEN);
                size_t at = beam * CHANNELS * STEPS + cell;
                if (nibbles)
                    block->levels[at / 2] = at % 2 ? 0x18 : 0x81;
                else
                    block->levels[at] = 1;
                assembly_fill(&a, block, &s, &frame);
                assert_false(frame.complete);
                for (size_t k = 0; k < CHANNELS * STEPS; k++)
                    assert_int_equal(valid[k], k == cell ? BR_VALID : BR_MISSING);
                assembly_free(&a);
                a.block = NULL;
                a.started = false;
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_validity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
