/* plain.h - what the tests of buffers/ share. */
#ifndef BEAMRING_TESTS_BUFFERS_PLAIN_H
#define BEAMRING_TESTS_BUFFERS_PLAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the four that it needs */
#include <cmocka.h>

#include "buffers/queue.h"

static const double plain_freq[16] = {400, 401, 402, 403, 404, 405, 406, 407,
                                      408, 409, 410, 411, 412, 413, 414, 415};
static const double plain_width[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* int8 [time samples][freq channels][dish dishes], one zone. */
static inline struct br_stream plain_stream(size_t samples, size_t channels, size_t dishes)
{
    struct br_stream s = {.frame_samples = samples,
                          .sample_ns = {2560, 1},
                          .nchannels = channels,
                          .freq_mhz = plain_freq,
                          .width_mhz = plain_width,
                          .nzones = 1,
                          .zone = {{0, channels, 1, 1, 0}},
                          .scale = 1};
    struct br_error error = {0};
    assert_int_equal(
        br_array_init(&s.array, BR_INT8, "time,freq,dish", (size_t[]){samples, channels, dishes}, &error), 0);
    assert_int_equal(br_stream_check(&s, &error), 0);
    return s;
}

/* Fails the test unless the message holds `text`. */
static inline void assert_says(const struct br_error *error, const char *text)
{
    if (strstr(error->text, text) == NULL) fail_msg("'%s' does not say '%s'", error->text, text);
}

#endif
