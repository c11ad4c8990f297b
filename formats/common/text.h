/* text.h - strict conversions between text and numbers, lists and times, for file headers.
 *
 * All parsers take the whole string or nothing: 0 when it is well formed, -1 when it is not (the caller knows
 * which file and field to name). Formatters always terminate and return their buffer. */
#ifndef BEAMRING_FORMATS_COMMON_TEXT_H
#define BEAMRING_FORMATS_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_TIME = 40, TEXT_REAL = 32 };

int text_u64(const char *text, uint64_t *value);
int text_i64(const char *text, int64_t *value);

/* Finite numbers only. */
int text_real(const char *text, double *value);

/* "a,b,c", or "first:step:count" for first + i * step. At most `max` values go to `out` (NULL: only count
 * them). -1 when malformed or when there are more than `max`. */
int text_reals(const char *text, double *out, size_t max, size_t *count);

/* Element i of a first:step:count list; one function, so that who writes and who reads round alike. */
double text_progression(double first, double step, size_t i);

/* True (1) when the values are first + i * step to the last bit for the step it finds. */
int text_is_progression(const double *values, size_t count, double *step);

/* The shortest decimal that reads back as the same double; buffer of TEXT_REAL. */
char *text_real_format(char *buffer, double value);

/* "yyyy-mm-dd-hh:mm:ss[.fraction]" (a T may stand between day and hour) to Unix nanoseconds. */
int text_utc(const char *text, int64_t *ns);

/* The same form, with nine decimals unless the second is whole; buffer of TEXT_TIME. */
char *text_utc_format(char *buffer, int64_t ns);

/* Adds to a text in a buffer of `size` bytes, as far as there is room. */
void text_append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Replaces control characters, and bytes that are not UTF-8 (such as those of a character that was cut off),
 * by '?', as JSON requires. */
void text_plain(char *text);

/* Modified Julian date with 18 decimals; buffer of TEXT_TIME. */
char *text_mjd_format(char *buffer, int64_t ns);

/* "56475.0678..." to Unix nanoseconds, to the precision of its digits. */
int text_mjd(const char *text, int64_t *ns);

#endif
