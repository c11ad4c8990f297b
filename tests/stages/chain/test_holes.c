/* Frames that a queue dropped: a stage with history must give what it would give had the lost samples been
 * missing, and its output must jump where its input did. */
#include "tests/stages/stage_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct br_stage_type upchannelize_stage, frb_grid_stage, quantize_stage;

enum { FRAME = 256, HOLE = 256, HOLE_END = 768, END = 1216 };

static const struct br_dish dishes[3] = {{0, 0}, {0, 1}, {1, 1}};
static const double position[3][3] = {{0 * 6, 0 * 8, 0}, {1 * 6, 0 * 8, 0}, {1 * 6, 1 * 8, 0}};
static const struct br_telescope telescope = {.name = "t",
                                              .grid_m = 2,
                                              .grid_n = 2,
                                              .spacing_m_m = 8,
                                              .spacing_n_m = 6,
                                              .ndishes = 3,
                                              .dishes = dishes,
                                              .position = position};
static const double freq[2] = {400, 401}, width[2] = {1, 1};

/* The output of a stage, step by step: `row` bytes and a validity for each channel, by step number. */
struct product {
    size_t steps, row, channels;
    uint8_t *data, *valid, *covered;
};

static struct product product_new(size_t steps, size_t row, size_t channels)
{
    return (struct product){
        steps, row, channels, calloc(steps * channels, row), calloc(steps, channels), calloc(steps, 1)};
}

static void product_free(struct product *p)
{
    free(p->data);
    free(p->valid);
    free(p->covered);
}

/* Sorts one frame's cells into the product. The row of a cell is contiguous for frb_grid and upchannelize,
 * single levels with beams far apart for quantize. */
static void collect(struct product *p, const struct br_stream *s, const struct br_frame *f)
{
    bool time_slow = strcmp(s->array.axis[0].name, "time") == 0,
         levels = strcmp(s->array.axis[0].name, "beam") == 0;
    unsigned down = s->zone[0].downsample;
    size_t steps = br_time_steps(f->first, f->samples, down);
    for (size_t t = 0; t < steps; t++)
        for (size_t c = 0; c < p->channels; c++) {
            size_t to = (f->first / down + t) * p->channels + c,
                   cell = time_slow ? t * p->channels + c : c * steps + t;
            assert_true(f->first / down + t < p->steps);
            p->covered[f->first / down + t] = 1;
            p->valid[to] = f->complete ? 255 : f->valid[cell];
            for (size_t i = 0; i < p->row; i++)
                p->data[to * p->row + i] = levels ? ((uint8_t *)f->data)[(i * p->channels + c) * steps + t]
                                                  : ((uint8_t *)f->data)[cell * p->row + i];
        }
}

/* Feeds [0, END) in frames; the samples of the hole either never come or come as missing. */
static void run(struct br_stage *stage, struct product *p, bool lost)
{
    const struct br_stream *s = &stage->in[0];
    struct br_frame *in = driver_frame(s), *out = driver_frame(&stage->out[0]);
    unsigned down = s->zone[0].downsample;
    size_t row = br_array_bytes(&s->array) / s->array.axis[0].length / s->array.axis[1].length;
    bool time_slow = strcmp(s->array.axis[0].name, "time") == 0;
    uint64_t covered = 0, expected = 0;
    for (uint64_t first = 0; first < END; first += FRAME) {
        in->first = first;
        in->samples = first + FRAME < END ? FRAME : END - first;
        size_t steps = br_time_steps(first, in->samples, down);
        bool missing = first >= HOLE && first < HOLE_END;
        if (missing && lost) continue;
        expected += in->samples;
        in->complete = false;
        for (size_t t = 0; t < steps; t++)
            for (size_t c = 0; c < 2; c++) {
                size_t cell = time_slow ? t * 2 + c : c * steps + t;
                in->valid[cell] = missing ? 0 : 255;
                for (size_t i = 0; i < row; i++) {
                    uint64_t x = (first / down + t) * 7919 + c * 104729 + i * 31;
                    x ^= x >> 7;
                    x *= UINT64_C(0x9e3779b97f4a7c15);
                    uint8_t byte = (uint8_t)(x >> 40);
                    if (s->array.dtype == BR_F16) byte = i % 2 == 1 ? 0x3c + (byte & 3) : byte; /* 1 to 16 */
                    ((uint8_t *)in->data)[cell * row + i] = byte;
                }
            }
        br_frame_close_validity(s, in);
        for (int result = 0, calls = 0; (result & BR_CONSUMED) == 0; calls++) {
            result = driver_process(stage, in, out);
            assert_true(result > 0 && calls < 1000);
            if (result & BR_PRODUCED) covered += out->samples;
            if (result & BR_PRODUCED) collect(p, &stage->out[0], out);
        }
    }
    for (int result = BR_PRODUCED; (result & BR_PRODUCED) && !(result & BR_FINISHED);) {
        result = driver_process(stage, NULL, out);
        assert_true(result >= 0);
        if (result & BR_PRODUCED) covered += out->samples;
        if (result & BR_PRODUCED) collect(p, &stage->out[0], out);
    }
    assert_int_equal(covered, expected); /* base samples out = base samples in */
    driver_frame_free(in);
    driver_frame_free(out);
}

static struct br_stage *new_stage(const struct br_stage_type *type, bool beams)
{
    struct br_stage *stage = driver_new(type);
    struct br_stream *s = &stage->in[0];
    *s = (struct br_stream){.frame_samples = FRAME,
                            .sample_ns = {1, 1},
                            .nchannels = 2,
                            .freq_mhz = freq,
                            .width_mhz = width,
                            .nzones = 1,
                            .zone = {{0, 2, 1, beams ? 8 : 1, 0}},
                            .scale = 1,
                            .telescope = &telescope,
                            .nbeams = beams ? 3 : 0};
    size_t field[4] = {FRAME, 2, 2, 3}, j[3] = {2, FRAME / 8, 3};
    assert_int_equal(br_array_init(&s->array, beams ? BR_F16 : BR_INT4X2,
                                   beams ? "freq,time,beam" : "time,freq,pol,dish", beams ? j : field, NULL),
                     BR_OK);
    return stage;
}

static void compare(const struct br_stage_type *type, bool beams, const char *name, int64_t value,
                    unsigned down, size_t row, size_t channels)
{
    struct product p[2];
    for (int lost = 0; lost < 2; lost++) {
        struct br_stage *stage = new_stage(type, beams);
        if (type == &quantize_stage) driver_set_int(stage, "bits", 8);
        driver_set_int(stage, name, value);
        if (driver_configure(stage) != BR_OK || driver_start(stage) != BR_OK) fail_msg("%s", stage->error);
        p[lost] = product_new((END + down - 1) / down, row, channels);
        run(stage, &p[lost], lost);
        assert_int_equal(driver_stop(stage), BR_OK);
        driver_free(stage);
    }
    size_t seen = 0;
    for (size_t t = 0; t < p[0].steps; t++) {
        bool inside = t * down >= HOLE && (t + 1) * down <= HOLE_END;
        assert_int_equal(p[0].covered[t], 1);
        assert_int_equal(p[1].covered[t], !inside);
        if (inside) continue;
        assert_memory_equal(p[1].valid + t * channels, p[0].valid + t * channels, channels);
        for (size_t c = 0; c < channels; c++)
            if (p[0].valid[t * channels + c] != 0) {
                assert_memory_equal(p[1].data + (t * channels + c) * row,
                                    p[0].data + (t * channels + c) * row, row);
                seen++;
            }
    }
    assert_true(seen > channels * (END - HOLE_END) / down / 4);
    product_free(&p[0]);
    product_free(&p[1]);
}

static void test_upchannelize(void **state)
{
    (void)state;
    compare(&upchannelize_stage, false, "factor", 16, 16, 6, 32);
}

static void test_frb_grid(void **state)
{
    (void)state;
    compare(&frb_grid_stage, false, "integrate", 48, 48, 32,
            2); /* 256 and 768 lie within blocks or on their edges */
    compare(&frb_grid_stage, false, "downsample", 5, 5, 32, 2);
}

static void test_quantize(void **state)
{
    (void)state;
    compare(&quantize_stage, true, "block", 10, 8, 3, 2);
    compare(&quantize_stage, true, "block", 32, 8, 3, 2);
    compare(&quantize_stage, true, "block", 64, 8, 3, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_upchannelize), cmocka_unit_test(test_frb_grid),
                                       cmocka_unit_test(test_quantize)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
