#include "formats/common/text.h"
#include "runtime/base/plain.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S          1000000000
#define NS_PER_DAY        ((int64_t)86400 * NS_PER_S)
#define MJD_OF_UNIX_EPOCH 40587

int text_u64(const char *text, uint64_t *value)
{
    if (!isdigit((unsigned char)text[0])) return -1;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') return -1;
    *value = v;
    return 0;
}

int text_i64(const char *text, int64_t *value)
{
    const char *digits = text[0] == '-' || text[0] == '+' ? text + 1 : text;
    if (!isdigit((unsigned char)digits[0])) return -1;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0') return -1;
    *value = v;
    return 0;
}

/* One number that ends at one of `stops` or at the end of the text. NULL if there is none. */
static const char *number(const char *text, const char *stops, double *value)
{
    if (!isdigit((unsigned char)text[0]) && strchr("+-.", text[0]) == NULL) return NULL;
    if (text[0] == '\0') return NULL;
    char *end;
    double v = strtod(text, &end);
    if (end == text || !isfinite(v) || (*end != '\0' && strchr(stops, *end) == NULL)) return NULL;
    *value = v;
    return end;
}

int text_real(const char *text, double *value)
{
    double v;
    if (number(text, "", &v) == NULL) return -1;
    *value = v;
    return 0;
}

double text_progression(double first, double step, size_t i)
{
    volatile double product = (double)i * step; /* never contracted into a fused multiply-add */
    return first + product;
}

int text_is_progression(const double *values, size_t count, double *step)
{
    if (count < 3) return 0;
    const double candidates[2] = {values[1] - values[0],
                                  (values[count - 1] - values[0]) / (double)(count - 1)};
    for (int c = 0; c < 2; c++) {
        size_t i = 0;
        while (i < count && text_progression(values[0], candidates[c], i) == values[i]) i++;
        if (i == count) {
            *step = candidates[c];
            return 1;
        }
    }
    return 0;
}

int text_reals(const char *text, double *out, size_t max, size_t *count)
{
    double first, step;
    const char *end = number(text, ",:", &first);
    if (end == NULL) return -1;
    if (*end == ':') {
        uint64_t n;
        end = number(end + 1, ":", &step);
        if (end == NULL || *end != ':' || text_u64(end + 1, &n) != 0 || n == 0 || n > max) return -1;
        for (size_t i = 0; out != NULL && i < n; i++) out[i] = text_progression(first, step, i);
        *count = n;
        return 0;
    }
    size_t n = 0;
    double value = first;
    for (;;) {
        if (n == max) return -1;
        if (out != NULL) out[n] = value;
        n++;
        if (*end == '\0') break;
        end = number(end + 1, ",", &value);
        if (end == NULL) return -1;
    }
    *count = n;
    return 0;
}

char *text_real_format(char *buffer, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, TEXT_REAL, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) break;
    }
    return buffer;
}

/* Reads exactly `width` digits and the character `after` (0: any character but a digit). */
static const char *digits(const char *text, int width, char after, int *value)
{
    int v = 0;
    for (int i = 0; i < width; i++) {
        if (!isdigit((unsigned char)text[i])) return NULL;
        v = 10 * v + (text[i] - '0');
    }
    *value = v;
    if (after != 0) return text[width] == after ? text + width + 1 : NULL;
    return text + width;
}

/* ".123" as parts of `whole`, any number of digits; NULL if it is not a fraction. The result is rounded down.
 * */
static const char *fraction(const char *text, int64_t whole, int64_t *value)
{
    if (*text != '.') return NULL;
    int64_t v = 0, unit = whole;
    double rest = 0, weight = 1; /* below the unit that integers can hold */
    const char *p = text + 1;
    for (; isdigit((unsigned char)*p); p++) {
        int d = *p - '0';
        if (unit % 10 == 0) {
            unit /= 10;
            v += d * unit;
        } else {
            weight /= 10;
            rest += d * weight;
        }
    }
    if (p == text + 1) return NULL;
    *value = v + (int64_t)(rest * (double)unit);
    return p;
}

int text_utc(const char *text, int64_t *ns)
{
    struct tm tm = {0};
    int year, month;
    const char *p = digits(text, 4, '-', &year);
    if (p != NULL) p = digits(p, 2, '-', &month);
    if (p != NULL) p = digits(p, 2, 0, &tm.tm_mday);
    if (p == NULL || (*p != '-' && *p != 'T')) return -1;
    p = digits(p + 1, 2, ':', &tm.tm_hour);
    if (p != NULL) p = digits(p, 2, ':', &tm.tm_min);
    if (p != NULL) p = digits(p, 2, 0, &tm.tm_sec);
    if (p == NULL) return -1;
    int64_t part = 0;
    if (*p == '.') {
        p = fraction(p, NS_PER_S, &part);
        if (p == NULL) return -1;
    }
    if (*p == 'Z') p++;
    if (*p != '\0') return -1;
    if (year < 1700 || year > 2250 || month < 1 || month > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
        tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > (tm.tm_hour == 23 && tm.tm_min == 59 ? 60 : 59))
        return -1; /* second 60 is a leap second, which comes at the end of a day */
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    struct tm day = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = tm.tm_mday};
    timegm(&day);
    if (day.tm_mday != tm.tm_mday) return -1; /* February 30 */
    *ns = (int64_t)timegm(&tm) * NS_PER_S + part;
    return 0;
}

static void split(int64_t ns, int64_t unit, int64_t *whole, int64_t *part)
{
    *whole = ns / unit;
    *part = ns % unit;
    if (*part < 0) {
        *part += unit;
        --*whole;
    }
}

char *text_utc_format(char *buffer, int64_t ns)
{
    int64_t seconds, part;
    split(ns, NS_PER_S, &seconds, &part);
    time_t clock = (time_t)seconds;
    struct tm tm;
    gmtime_r(&clock, &tm);
    size_t used = strftime(buffer, TEXT_TIME, "%Y-%m-%d-%H:%M:%S", &tm);
    if (part != 0) snprintf(buffer + used, TEXT_TIME - used, ".%09lld", (long long)part);
    return buffer;
}

char *text_mjd_format(char *buffer, int64_t ns)
{
    int64_t day, part;
    split(ns, NS_PER_DAY, &day, &part);
    __uint128_t scaled = (__uint128_t)(uint64_t)part * 1000000000000000000u / (uint64_t)NS_PER_DAY;
    snprintf(buffer, TEXT_TIME, "%lld.%018llu", (long long)(day + MJD_OF_UNIX_EPOCH),
             (unsigned long long)scaled);
    return buffer;
}

int text_mjd(const char *text, int64_t *ns)
{
    char *end;
    if (!isdigit((unsigned char)text[0])) return -1;
    errno = 0;
    long long day = strtoll(text, &end, 10);
    if (errno != 0 || day < 0 || day > 140000) return -1;
    int64_t part = 0;
    if (*end == '.') {
        const char *p = fraction(end, NS_PER_DAY, &part);
        if (p == NULL || *p != '\0') return -1;
    } else if (*end != '\0') {
        return -1;
    }
    *ns = (day - MJD_OF_UNIX_EPOCH) * NS_PER_DAY + part;
    return 0;
}

void text_plain(char *text)
{
    br_text_plain(text);
}

void text_append(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}
