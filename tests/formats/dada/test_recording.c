/* Keys of recordings: ORDER, and the byte that marks missing samples. */
#include "formats/dada/recording.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const double mhz[] = {700, 699, 698}, width[] = {1, 1, 1};

/* A stream of an array with 3 channels in frames of 8 samples. */
static struct br_stream stream_of(enum br_dtype dtype, const char *axes, const size_t *lengths)
{
    struct br_stream s = {.frame_samples = 8,
                          .sample_ns = {5120, 1},
                          .nchannels = 3,
                          .freq_mhz = mhz,
                          .width_mhz = width,
                          .nzones = 1,
                          .zone = {{0, 3, 1, 1, 0}},
                          .scale = 1};
    struct br_error error = {0};
    assert_int_equal(br_array_init(&s.array, dtype, axes, lengths, &error), BR_OK);
    return s;
}

static void order_of(const char *axes, const size_t *lengths, enum br_dtype dtype, const char *expected)
{
    struct br_stream s = stream_of(dtype, axes, lengths);
    char text[4096], line[64];
    struct dada_writer writer = {.text = text, .capacity = sizeof text};
    recording_format(
        &writer, &s,
        &(struct recording_file){.name = "x", .obs_id = "x", .samples = 8, .header_bytes = 4096});
    assert_true(dada_finish(&writer, sizeof text));
    snprintf(line, sizeof line, "\n%-15s %s\n", "ORDER", expected);
    if (strstr(text, line) == NULL) fail_msg("no ORDER %s in\n%s", expected, text);
}

static void test_order(void **state)
{
    (void)state;
    order_of("time,freq,pol,dish", (const size_t[]){8, 3, 2, 5}, BR_INT4X2, "TFPA");
    order_of("beam,freq,pol,time", (const size_t[]){4, 3, 2, 8}, BR_INT4X2, "BFPT");
    order_of("freq,time,gridp,gridq", (const size_t[]){3, 8, 4, 6}, BR_F16, "FTXY");
    order_of("freq,time,beam", (const size_t[]){3, 8, 4}, BR_F16, "FTB");
    order_of("beam,freq,time", (const size_t[]){4, 3, 8}, BR_UINT8, "BFT");
}

/* -8 in both halves of products of 4 bits, -128 in voltages of 8 bits; zero elsewhere, in the field too. */
static void test_missing_byte(void **state)
{
    (void)state;
    struct br_stream field = stream_of(BR_INT4X2, "time,freq,pol,dish", (const size_t[]){8, 3, 2, 5}),
                     voltage = stream_of(BR_INT4X2, "beam,freq,pol,time", (const size_t[]){4, 3, 2, 8}),
                     voltage8 = stream_of(BR_INT8X2, "beam,freq,pol,time", (const size_t[]){4, 3, 2, 8}),
                     levels4 = stream_of(BR_INT4, "beam,freq,time", (const size_t[]){4, 3, 8}),
                     levels8 = stream_of(BR_UINT8, "beam,freq,time", (const size_t[]){4, 3, 8}),
                     beams = stream_of(BR_F16, "freq,time,beam", (const size_t[]){3, 8, 4});
    assert_int_equal(recording_missing_byte(&field), 0);
    assert_int_equal(recording_missing_byte(&voltage), 0x88);
    assert_int_equal(recording_missing_byte(&voltage8), 0x80);
    assert_int_equal(recording_missing_byte(&levels4), 0x88);
    assert_int_equal(recording_missing_byte(&levels8), 0);
    assert_int_equal(recording_missing_byte(&beams), 0);
}

/* --- the telescope in a header --- */

enum { HEADER = 1 << 16 };

/* The memory of a description: the next one takes it again. */
static _Alignas(max_align_t) char memory[1 << 18];
static size_t taken;

static void *take(void *owner, size_t bytes)
{
    (void)owner;
    void *at = memory + taken;
    taken += (bytes + 63) / 64 * 64;
    assert_true(taken <= sizeof memory);
    return memset(at, 0, bytes);
}

/* The header of a field of an array. */
static void write_header(char text[HEADER], const struct br_telescope *t)
{
    struct br_stream s = stream_of(BR_INT4X2, "time,freq,pol,dish", (const size_t[]){8, 3, 2, t->ndishes});
    struct dada_writer writer = {.text = text, .capacity = HEADER};
    s.telescope = t;
    recording_format(
        &writer, &s,
        &(struct recording_file){.name = "x", .obs_id = "x", .samples = 8, .header_bytes = HEADER});
    assert_true(dada_finish(&writer, HEADER));
}

static int read_header(const char *text, struct recording *r, struct br_error *error)
{
    struct dada_header header;
    *error = (struct br_error){0};
    taken = 0;
    assert_int_equal(dada_parse(&header, "x.dada", text, HEADER, error), 0);
    int status =
        recording_describe(r, &header, NULL, NULL, NULL, (struct recording_memory){take, NULL}, error);
    dada_free(&header);
    return status;
}

static void comes_back(const struct br_telescope *t)
{
    static char text[HEADER];
    struct recording r;
    struct br_error error;
    write_header(text, t);
    if (read_header(text, &r, &error) != BR_OK) fail_msg("%s", error.text);
    const struct br_telescope *back = r.stream.telescope;
    assert_non_null(back);
    assert_true(br_telescope_same(back, t));
    assert_string_equal(back->name, t->name);
    assert_int_equal(back->grid_m, t->grid_m);
    assert_int_equal(back->dishes != NULL, t->dishes != NULL);
    for (size_t d = 0; t->dishes != NULL && d < t->ndishes; d++)
        assert_true(back->dishes[d].m == t->dishes[d].m && back->dishes[d].n == t->dishes[d].n);
    if (t->dishes != NULL)
        assert_true(back->spacing_m_m == t->spacing_m_m && back->spacing_n_m == t->spacing_n_m);
    const double site[3] = {t->latitude_deg, t->longitude_deg, t->height_m},
                 is[3] = {back->latitude_deg, back->longitude_deg, back->height_m};
    for (int k = 0; k < 3; k++) assert_true(is[k] == site[k] || (isnan(is[k]) && isnan(site[k])));
}

static void test_telescope(void **state)
{
    (void)state;
    enum { MANY = 352 };
    static double many[MANY][3];
    static const struct br_dish cells[3] = {{0, 0}, {1, 2}, {0, 1}};
    static const double on[3][3] = {{0, 0, 0}, {2 * 6.3, 8.5, 0}, {6.3, 0, 0}},
                        off[3][3] = {{0, 0, 0.1}, {12.5, 8.6, 0}, {6.3, 0.001, -2}};
    for (size_t d = 0; d < MANY; d++)
        for (int k = 0; k < 3; k++) many[d][k] = 1300 * sin((double)(3 * d + (size_t)k + 1) * 1.7) / 3;
    struct br_telescope t = {.name = "grid",
                             .grid_m = 2,
                             .grid_n = 3,
                             .spacing_m_m = 8.5,
                             .spacing_n_m = 6.3,
                             .ndishes = 3,
                             .dishes = cells,
                             .position = on,
                             .latitude_deg = NAN,
                             .longitude_deg = NAN,
                             .height_m = NAN};
    comes_back(&t);
    t.position = off; /* measured, beside the cells */
    comes_back(&t);
    t = (struct br_telescope){.name = "many",
                              .ndishes = MANY,
                              .position = (const double(*)[3])many,
                              .spacing_m_m = NAN,
                              .spacing_n_m = NAN,
                              .latitude_deg = -30.7123456789,
                              .longitude_deg = 21.4,
                              .height_m = 1053.5};
    comes_back(&t);
}

/* Refuses a header in which one line is replaced, naming the key. */
static void refuses(const char *text, const char *key, const char *value)
{
    static char changed[HEADER];
    char line[32];
    struct recording r;
    struct br_error error;
    snprintf(line, sizeof line, "\n%s ", key);
    const char *at = strstr(text, line);
    assert_non_null(at);
    const char *rest = strchr(at + 1, '\n');
    memset(changed, 0, sizeof changed);
    snprintf(changed, sizeof changed, "%.*s\n%s %s%s", (int)(at - text), text, key, value, rest);
    if (read_header(changed, &r, &error) == BR_OK || strstr(error.text, key) == NULL)
        fail_msg("%s %s: '%s'", key, value, error.text);
}

static void test_damaged_telescope(void **state)
{
    (void)state;
    static char text[HEADER];
    static const struct br_dish cells[2] = {{0, 0}, {1, 2}};
    static const double off[2][3] = {{0, 0, 0.1}, {12.5, 8.6, 0}};
    const struct br_telescope t = {.name = "t",
                                   .grid_m = 2,
                                   .grid_n = 3,
                                   .spacing_m_m = 8.5,
                                   .spacing_n_m = 6.3,
                                   .ndishes = 2,
                                   .dishes = cells,
                                   .position = off,
                                   .latitude_deg = 3,
                                   .longitude_deg = 4,
                                   .height_m = 5};
    write_header(text, &t);
    static const char *const bad[][2] = {{"GRID", "0,3"},
                                         {"GRID", "2"},
                                         {"GRID", "2.5,3"},
                                         {"GRID", "2,1e9"},
                                         {"GRID_SPACING_M", "0,6"},
                                         {"GRID_SPACING_M", "8"},
                                         {"GRID_SPACING_M", "8,x"},
                                         {"GRID_CELLS", "0,0,1,3"},
                                         {"GRID_CELLS", "0,0,1"},
                                         {"GRID_CELLS", "0,0,-1,0"},
                                         {"GRID_CELLS", "0,0,1,0.5"},
                                         {"POSITIONS_M", "1,2,3"},
                                         {"POSITIONS_M", "1,2,3,4,5,1e9"},
                                         {"POSITIONS_M", "1,2,3,4,5,x"},
                                         {"SITE_DEG", "91,0"},
                                         {"SITE_DEG", "9"},
                                         {"SITE_HEIGHT_M", "high"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuses(text, bad[i][0], bad[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_missing_byte),
                                       cmocka_unit_test(test_telescope),
                                       cmocka_unit_test(test_damaged_telescope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
