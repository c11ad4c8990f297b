/* GUPPI RAW's headers: what they say of packets. */
#include "stages/common/formats/guppi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Packet numbers in a block of 64 channels, 2 polarisations, 1024 samples, of which 24 are repeated; 0
 * leaves a key out. */
static uint64_t packets(int64_t piperblk, int64_t pktsize)
{
    char text[40 * 80];
    struct guppi_writer w = {.text = text, .capacity = sizeof text};
    guppi_put_text(&w, "BACKEND", "GUPPI");
    guppi_put_int(&w, "BLOCSIZE", (int64_t)1024 * 64 * 2 * 2);
    guppi_put_int(&w, "OBSNCHAN", 64);
    guppi_put_int(&w, "NPOL", 4);
    guppi_put_int(&w, "NBITS", 8);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
