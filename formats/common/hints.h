/* hints.h - what the pipeline's `stream:` says against what a recording says.
 *
 * A recording's own value wins. A hint that says something else is an error, unless the user insists with
 * `stream: {override: [KEY]}`. A header may be coarser than the hint (TSAMP of six digits, UTC_START without
 * a fraction): a hint that agrees with it within its precision is the better value and is taken.
 *
 * Each function has the header's value at its pointer and leaves the one to use there. `hints` may be NULL.
 * `file` and `key` are what a message names: the file, and where in it the value stands. Errors:
 * BR_E_INVALID with both values and what to do. */
#ifndef BEAMRING_FORMATS_COMMON_HINTS_H
#define BEAMRING_FORMATS_COMMON_HINTS_H

#include "buffers/error.h"
#include "buffers/hints.h"

/* Sample times, ns; they agree within `precision_ns` (0: exactly). */
int hints_sample(const struct br_stream_hints *hints, const char *file, const char *key,
                 struct br_rational *sample_ns, double precision_ns, struct br_error *error);

/* Times of sample 0, Unix ns. */
int hints_epoch(const struct br_stream_hints *hints, const char *file, const char *key, int64_t *epoch_ns,
                int64_t precision_ns, struct br_error *error);

/* Centres of n channels, MHz. Another number of channels is an error that nobody can insist on. */
int hints_frequencies(const struct br_stream_hints *hints, const char *file, const char *key, size_t n,
                      double *freq_mhz, double precision_mhz, struct br_error *error);

/* Widths of n channels, MHz. */
int hints_widths(const struct br_stream_hints *hints, const char *file, const char *key, size_t n,
                 double *width_mhz, double precision_mhz, struct br_error *error);

/* The first sample that a recording counts itself: its place in the file depends on it, so that nobody can
 * insist on another one. */
int hints_first(const struct br_stream_hints *hints, const char *file, uint64_t first,
                struct br_error *error);

/* The coding by name; *coding may be NULL: then the hint's. */
int hints_coding(const struct br_stream_hints *hints, const char *file, const char *key, const char **coding,
                 struct br_error *error);

/* The sideband; where the recording does not say it, the hint's. */
int hints_sideband(const struct br_stream_hints *hints, const char *file, const char *key,
                   enum br_sideband *sideband, struct br_error *error);

/* One unit of the last digit of a decimal number as it stands in a header: "2.56" has 0.01, "1e-3" 1e-3. */
double hints_precision(const char *number);

/* NULL, or what is odd about the channels of an electric field or its packets, written into `text` for a
 * warning: all are below 5 MHz, as if GHz were given; width times sample time is not 1 within 1 %; or
 * channels are more than twice as wide as they lie apart. A comb, channels further apart than they are wide,
 * is not odd: a node of a correlator has every n-th channel. */
const char *hints_doubt(const struct br_stream *stream, char *text, size_t size);

#endif
