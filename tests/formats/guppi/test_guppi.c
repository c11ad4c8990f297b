/* GUPPI RAW's headers: what they say of packets. */
#include "formats/guppi/guppi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Complex samples of 2 x 8 bits, two polarisations. */
static void put_shape(struct guppi_writer *w, int64_t block_bytes, int64_t nchannels)
{
    guppi_put_int(w, "BLOCSIZE", block_bytes);
    guppi_put_int(w, "OBSNCHAN", nchannels);
    guppi_put_int(w, "NPOL", 4);
    guppi_put_int(w, "NBITS", 8);
}

/* Packet numbers in a block of 64 channels, 2 polarisations, 1024 samples, of which 24 are repeated; 0
 * leaves a key out. */
static uint64_t packets(int64_t piperblk, int64_t pktsize)
{
    char text[40 * 80];
    struct guppi_writer w = {.text = text, .capacity = sizeof text};
    guppi_put_text(&w, "BACKEND", "GUPPI");
    put_shape(&w, (int64_t)1024 * 64 * 2 * 2, 64);
    guppi_put_int(&w, "OVERLAP", 24);
    guppi_put_real(&w, "OBSFREQ", 1400);
    guppi_put_real(&w, "OBSBW", 64);
    guppi_put_real(&w, "TBIN", 1e-6);
    guppi_put_int(&w, "PKTIDX", 0);
    if (piperblk > 0) guppi_put_int(&w, "PIPERBLK", piperblk);
    if (pktsize > 0) guppi_put_int(&w, "PKTSIZE", pktsize);
    assert_true(guppi_finish(&w, false));
    struct guppi_header header;
    struct br_error error = {0};
    if (guppi_parse(&header, "x.raw", 0, text, w.used, &error) != BR_OK) fail_msg("%s", error.text);
    return guppi_packets(&header);
}

static void test_packets(void **state)
{
    (void)state;
    assert_int_equal(packets(0, 0), 0);
    assert_int_equal(packets(125, 0), 125);
    assert_int_equal(packets(125, 8192), 125); /* what is said goes before what follows */
    assert_int_equal(packets(0, 256),
                     1000); /* a sample a packet: those that are repeated have their numbers already */
    assert_int_equal(packets(0, 2048), 125);
    assert_int_equal(packets(0, 1000), 256);
    assert_int_equal(packets(0, 8192), 0); /* 31.25 packets: no number */
}

/* The result of guppi_parse for the first `length` bytes of `text`. */
static int parsed(const char *text, size_t length, struct br_error *error)
{
    struct guppi_header header;
    return guppi_parse(&header, "x.raw", 0, text, length, error);
}

/* A good header of seven cards. */
static struct guppi_writer good_header(char *text, size_t capacity)
{
    struct guppi_writer w = {.text = text, .capacity = capacity};
    put_shape(&w, 4096, 4);
    guppi_put_real(&w, "OBSFREQ", 1400);
    guppi_put_real(&w, "OBSBW", 4);
    return w;
}

/* Wherever a header is cut, more may help; bytes that are not a header are not a cut header. */
static void test_cut(void **state)
{
    (void)state;
    char text[20 * 80];
    struct br_error error = {0};
    struct guppi_writer w = good_header(text, sizeof text);
    assert_true(guppi_finish(&w, false));
    for (size_t n = 0; n < w.used; n++) assert_int_equal(parsed(text, n, &error), 1);
    assert_int_equal(parsed(text, w.used, &error), BR_OK);
    static const char *const others[] = {"\x0b\x30U", "blocsize:", "BLOCSIZE:", "\t", "A B", "ENDED IN VAIN"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        memcpy(text + 80, others[i], strlen(others[i]));
        assert_int_equal(parsed(text, 80 + strlen(others[i]), &error), BR_E_FORMAT);
    }
}

/* A zero byte ends no number. */
static void test_zero_bytes(void **state)
{
    (void)state;
    for (size_t at = 26; at < 30; at++) {
        char text[20 * 80];
        struct br_error error = {0};
        struct guppi_writer w = good_header(text, sizeof text);
        assert_true(guppi_finish(&w, false));
        text[at] = '\0';
        assert_int_equal(parsed(text, w.used, &error), BR_E_FORMAT);
        assert_non_null(strstr(error.text, "BLOCSIZE"));
    }
}

/* The same twice is one; with two values it is refused where it is read, and no matter where it is not. */
static void test_twice(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t value, other;
        int status;
    } cases[] = {{"NPOL", 4, 4, BR_OK},
                 {"NPOL", 4, 1, BR_E_FORMAT},
                 {"PKTIDX", 1, 2, BR_E_FORMAT},
                 {"DIRECTIO", 0, 1, BR_E_FORMAT},
                 {"STT_IMJD", 60000, 60001, BR_E_FORMAT},
                 {"NPOLX", 4, 1, BR_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[20 * 80];
        struct br_error error = {0};
        struct guppi_writer w = good_header(text, sizeof text);
        guppi_put_int(&w, cases[i].key, cases[i].value);
        guppi_put_int(&w, cases[i].key, cases[i].other);
        assert_true(guppi_finish(&w, false));
        assert_int_equal(parsed(text, w.used, &error), cases[i].status);
        if (cases[i].status != BR_OK) assert_non_null(strstr(error.text, cases[i].key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packets), cmocka_unit_test(test_cut),
                                       cmocka_unit_test(test_zero_bytes), cmocka_unit_test(test_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
