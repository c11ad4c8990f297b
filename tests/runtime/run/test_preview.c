/* Previews of frames whose values are known, in every element type and order of axes. */
#include "runtime/run/preview.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_CHANNELS = 300 };
static double mhz[MAX_CHANNELS], width[MAX_CHANNELS];

static struct br_stream stream_of(enum br_dtype dtype, const char *axes, const size_t *lengths)
{
    struct br_stream s = {
        .sample_ns = {1000, 1}, .freq_mhz = mhz, .width_mhz = width, .nzones = 1, .scale = 1};
    assert_int_equal(br_array_init(&s.array, dtype, axes, lengths, NULL), BR_OK);
    s.nchannels = br_array_length(&s.array, "freq");
    s.frame_samples = br_array_length(&s.array, "time");
    s.zone[0] = (struct br_zone){0, s.nchannels, 1, 1, 0};
    for (size_t c = 0; c < s.nchannels; c++) mhz[c] = 400 + (double)c, width[c] = 1;
    return s;
}

static void add(struct br_preview *p, const struct br_stream *stream, struct br_frame *frame)
{
    p->next_ns = 0;
    frame->samples = stream->frame_samples;
    assert_true(br_preview_add(p, stream, frame)); /* until_ns has passed */
}

static struct br_preview *fill(const struct br_stream *stream, struct br_frame *frame, size_t item)
{
    struct br_preview *p = calloc(1, sizeof *p);
    p->nlooks = 2;
    p->item[1] = item;
    add(p, stream, frame);
    return p;
}

static float mean(const struct br_preview *p, size_t k)
{
    return p->sum[k] / (float)p->cells;
}

/* Each element type, with one value that its bytes stand for. */
static void test_element_types(void **state)
{
    (void)state;
    static const struct {
        enum br_dtype dtype;
        uint8_t bytes[4];
        float is;
    } one[] = {
        {BR_INT4X2, {0x7d}, 9 + 49},          /* re = -3, im = 7 */
        {BR_INT4X2, {0x88}, 64 + 64},         /* -8 both */
        {BR_INT8X2, {0x80, 0x03}, 16384 + 9}, /* -128, 3 */
        {BR_INT8, {0xff}, -1},
        {BR_UINT8, {0xff}, 255},
        {BR_INT4, {0x29}, -7}, /* of two elements the first is low */
        {BR_F16, {0x00, 0xc1}, -2.5f},
        {BR_F16, {0x01, 0x00}, 5.9604645e-8f}, /* the smallest there is */
        {BR_F32, {0x00, 0x00, 0x20, 0x41}, 10},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        uint8_t data[8];
        memcpy(data, one[i].bytes, 4);
        struct br_stream s = stream_of(one[i].dtype, "time,freq", (size_t[]){1, 1});
        struct br_frame frame = {.complete = true, .data = data};
        struct br_preview *p = fill(&s, &frame, 0);
        assert_int_equal(p->nitems, 1);
        assert_true(mean(p, 0) == one[i].is);
        assert_true(p->ncolumns == 1 && p->column[0].power[1][0] == one[i].is);
        free(p);
    }
}

/* value = 1000 item + 10 channel + step, in three orders of axes; item 5 of 6 is pol 1, dish 2. */
static void test_orders(void **state)
{
    (void)state;
    static const char *const axes[] = {"time,freq,pol,dish", "pol,dish,freq,time", "freq,pol,time,dish"};
    for (int order = 0; order < 3; order++) {
        size_t length[4];
        float data[4 * 3 * 2 * 3];
        struct br_stream s;
        char names[32];
        strcpy(names, axes[order]);
        unsigned n = 0;
        for (char *word = strtok(names, ","); word != NULL; word = strtok(NULL, ","), n++)
            length[n] = word[0] == 't' ? 4 : word[0] == 'p' ? 2 : 3;
        s = stream_of(BR_F32, axes[order], length);
        for (size_t e = 0; e < 72; e++) {
            size_t at[4], left = e;
            for (int a = 3; a >= 0; a--) at[a] = left % length[a], left /= length[a];
            size_t t = at[br_array_axis(&s.array, "time")], f = at[br_array_axis(&s.array, "freq")];
            size_t item = at[br_array_axis(&s.array, "pol")] * 3 + at[br_array_axis(&s.array, "dish")];
            data[e] = (float)(1000 * item + 10 * f + t);
        }
        struct br_frame frame = {.complete = true, .data = data};
        struct br_preview *p = fill(&s, &frame, 5);
        assert_int_equal(p->nitems, 6);
        assert_int_equal(p->ncolumns, 1);
        assert_int_equal(p->nchannels, 3);
        for (unsigned c = 0; c < 3; c++) { /* of steps 0 to 3 the mean is 1.5 */
            assert_true(p->freq_mhz[c] == 400 + c);
            assert_true(p->column[0].power[0][c] == (float)(10 * c) + 1.5f);
            assert_true(p->column[0].power[1][c] == (float)(5000 + 10 * c) + 1.5f);
        }
        assert_int_equal(p->cells, 12);
        for (unsigned k = 0; k < 6; k++) assert_true(mean(p, k) == (float)(1000 * k) + 11.5f);
        free(p);
    }
}

/* Missing cells are none of the picture, in validity of either order. */
static void test_missing(void **state)
{
    (void)state;
    for (int freq_first = 0; freq_first < 2; freq_first++) {
        uint8_t data[6], valid[6];
        memset(data, 7, sizeof data);
        memset(valid, 200, sizeof valid);
        struct br_stream s = freq_first ? stream_of(BR_UINT8, "freq,time", (size_t[]){3, 2})
                                        : stream_of(BR_UINT8, "time,freq", (size_t[]){2, 3});
        size_t hole = freq_first ? 2 * 2 + 1 : 1 * 3 + 2; /* channel 2, step 1 */
        valid[hole] = BR_MISSING;
        data[hole] = 255;
        struct br_frame frame = {.complete = false, .missing = 1, .data = data, .valid = valid};
        struct br_preview *p = fill(&s, &frame, 0);
        assert_true(p->column[0].power[0][2] == 7 && p->column[0].power[0][1] == 7);
        assert_true(mean(p, 0) == 7 && p->cells == 5);
        memset(valid, 0, sizeof valid);
        add(p, &s, &frame);
        assert_true(p->cells == 5 && isnan(p->column[1].power[0][0]));
        free(p);
    }
}

/* Zones of other resolutions: channels 0-1 with 8 steps, channels 2-5 with 4. */
static void test_zones(void **state)
{
    (void)state;
    struct br_stream s = stream_of(BR_UINT8, "time,freq", (size_t[]){8, 4});
    uint8_t data[32];
    s.nzones = 2;
    s.nchannels = 6;
    for (int c = 0; c < 6; c++) mhz[c] = 400 + c;
    s.zone[0] = (struct br_zone){0, 2, 1, 1, 0};
    s.zone[1] = (struct br_zone){2, 4, 2, 2, 0};
    for (int i = 0; i < 16; i++) data[i] = (uint8_t)(10 * (i % 2) + i / 2);
    for (int i = 0; i < 16; i++) data[16 + i] = (uint8_t)(100 + 10 * (i % 4) + i / 4);
    struct br_frame frame = {.complete = true, .data = data};
    struct br_preview *p = fill(&s, &frame, 0);
    assert_int_equal(p->nchannels, 6);
    for (unsigned c = 0; c < 6; c++) assert_true(p->freq_mhz[c] == 400 + c);
    assert_true(p->column[0].power[0][1] == 10 + 3.5f); /* of steps 0 to 7 */
    assert_true(p->column[0].power[0][4] == 120 + 1.5f);
    assert_int_equal(p->cells, 32);
    free(p);
}

/* Large frames are bounded, and what there is more of is thinned evenly. */
static void test_bounds(void **state)
{
    (void)state;
    size_t beams = 3 * PREVIEW_ITEMS + 5;
    struct br_stream s = stream_of(BR_INT8, "beam,freq,time", (size_t[]){beams, 300, 2});
    uint8_t *data = calloc(beams, 600);
    struct br_frame frame = {.complete = true, .data = data};
    struct br_preview *p = fill(&s, &frame, beams - 1);
    assert_int_equal(p->item_step, 4);
    assert_int_equal(p->nitems, (beams + 3) / 4);
    assert_int_equal(p->nchannels, PREVIEW_CHANNELS);
    assert_int_equal(p->cells, PREVIEW_ELEMENTS / p->nitems);
    assert_true(p->freq_mhz[0] == 401 && p->freq_mhz[PREVIEW_CHANNELS - 1] == 698);
    assert_null(br_preview_refuses(&s));
    free(p);
    free(data);
}

/* A long frame is several columns, each of its own time; a preview that is full is handed back, and one that
 * was just filled waits. */
static void test_columns(void **state)
{
    (void)state;
    enum { STEPS = 1000 };
    static uint8_t data[STEPS];
    struct br_stream s = stream_of(BR_UINT8, "time,freq", (size_t[]){STEPS, 1});
    s.sample_ns = (struct br_rational){400000, 1}; /* the frame lasts 0.4 s: 10 columns of 40 ms */
    for (int t = 0; t < STEPS; t++) data[t] = (uint8_t)(t / 100);
    struct br_frame frame = {.complete = true, .data = data, .first = 5000};
    struct br_preview *p = fill(&s, &frame, 0);
    assert_int_equal(p->ncolumns, 10);
    for (unsigned c = 0; c < 10; c++) {
        assert_true(p->column[c].power[0][0] == (float)c);
        assert_true(p->column[c].first == 5000 + 100 * c && p->column[c].samples == 100);
    }
    assert_true(p->column[9].at_ns - p->column[0].at_ns == 360000000);
    uint64_t next = p->next_ns;
    p->next_ns = UINT64_MAX;
    p->until_ns = UINT64_MAX;
    assert_false(br_preview_add(p, &s, &frame));
    assert_int_equal(p->ncolumns, 10);
    assert_true(next >= p->column[9].at_ns + PREVIEW_COLUMN_NS && next >= PREVIEW_SHARE * p->took_ns);
    for (int i = 0; i < 3; i++) {
        p->next_ns = 0;
        assert_int_equal(br_preview_add(p, &s, &frame), i == 2); /* 20, 30, 32 columns */
    }
    assert_int_equal(p->ncolumns, PREVIEW_COLUMNS);
    br_preview_clear(p);
    assert_true(p->ncolumns == 0 && p->cells == 0 && p->sum[0] == 0);
    free(p);
}

/* Means over many frames: an input with half the power of the others is told apart. */
static void test_a_weak_input(void **state)
{
    (void)state;
    enum { INPUTS = 64, STEPS = 256, CHANNELS = 8 };
    static int8_t data[STEPS][CHANNELS][INPUTS][2];
    struct br_stream s = stream_of(BR_INT8X2, "time,freq,dish", (size_t[]){STEPS, CHANNELS, INPUTS});
    struct br_frame frame = {.complete = true, .data = data};
    struct br_preview *p = calloc(1, sizeof *p);
    srand(1);
    for (unsigned f = 0; f < 16; f++) {
        for (size_t i = 0; i < sizeof data; i++)
            ((int8_t *)data)[i] = (int8_t)(rand() % 41 - 20); /* a variance of 140: |z|^2 is 280 */
        for (size_t i = 0; i < STEPS * CHANNELS; i++) {
            int8_t *z = data[i / CHANNELS][i % CHANNELS][5];
            z[0] = (int8_t)(z[0] * 9 / 10), z[1] = (int8_t)(z[1] * 9 / 10);
        }
        frame.first = f * STEPS;
        add(p, &s, &frame);
    }
    assert_int_equal(p->cells, 16 * PREVIEW_ELEMENTS / INPUTS);
    for (size_t k = 0; k < INPUTS; k++) {
        if (k == 5)
            assert_true(mean(p, k) < 240);
        else
            assert_true(fabsf(mean(p, k) - 280) < 14);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_element_types), cmocka_unit_test(test_orders),
                                       cmocka_unit_test(test_missing),       cmocka_unit_test(test_zones),
                                       cmocka_unit_test(test_bounds),        cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_a_weak_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
