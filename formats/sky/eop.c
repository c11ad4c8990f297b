#include "formats/sky/eop.h"
#include "buffers/regular_file.h"
#include "formats/common/text.h"

#include <math.h>
#include <stdlib.h>

enum { LONGEST = 1 << 16 };
static const double day_ns = 86400e9;

/* Columns of a line, counted from 1 as the IERS's readme.finals2000A does. */
enum column { MJD, POLE_X, POLE_Y, UT1_UTC, NCOLUMNS };
static const struct {
    const char *name;
    int first, last;
    double least, most;
} columns[NCOLUMNS] = {{"the Modified Julian Date", 8, 15, 30000, 200000},
                       {"the pole's x in arc seconds", 19, 27, -2, 2},
                       {"the pole's y in arc seconds", 38, 46, -2, 2},
                       {"UT1 - UTC in seconds", 59, 68, -1, 1}};

/* 1: a number; 0: nothing but blanks; -1: neither, or not in range. */
static int read_column(const char *line, size_t length, enum column c, double *value)
{
    char word[16];
    size_t from = (size_t)columns[c].first - 1, to = (size_t)columns[c].last, n = 0;
    for (size_t i = from; i < to && i < length; i++)
        if (line[i] != ' ') word[n++] = line[i];
    word[n] = '\0';
    if (n == 0) return 0;
    if (length < to || text_real(word, value) != 0) return -1; /* a line that is cut off, too */
    return *value >= columns[c].least && *value <= columns[c].most ? 1 : -1;
}

struct reader {
    const char *path;
    size_t line, room;
    bool ended; /* a day without values came: the rest is not predicted yet */
    struct br_error *error;
};

static int add_day(struct eop *eop, struct reader *r, const char *line, size_t length)
{
    double value[NCOLUMNS];
    int found[NCOLUMNS], any = 0;
    for (int c = 0; c < NCOLUMNS; c++) {
        found[c] = read_column(line, length, c, &value[c]);
        if (c > 0) any |= found[c] != 0;
    }
    if (found[MJD] == 1 && !any) {
        r->ended = true;
        return BR_OK;
    }
    for (int c = 0; c < NCOLUMNS; c++)
        if (found[c] != 1)
            return br_fail(r->error, BR_E_FORMAT,
                           "%s:%zu: columns %d to %d do not hold %s; expected a whole line of the IERS's "
                           "finals2000A.all: fetch the file anew",
                           r->path, r->line, columns[c].first, columns[c].last, columns[c].name);
    int64_t mjd = (int64_t)value[MJD], expected = eop->first_mjd + (int64_t)eop->ndays;
    if (eop->ndays == 0) eop->first_mjd = expected = mjd;
    if (r->ended || mjd != expected || value[MJD] > (double)mjd)
        return br_fail(r->error, BR_E_FORMAT,
                       "%s:%zu: MJD %.2f follows %lld; expected all days, one after the other: fetch the "
                       "file anew",
                       r->path, r->line, value[MJD], (long long)expected - 1);
    if (eop->ndays == r->room) {
        r->room = 2 * r->room + 1024;
        struct eop_day *more = realloc(eop->day, r->room * sizeof *more);
        if (more == NULL) return br_fail(r->error, BR_E_NO_MEMORY, "no memory for %s", r->path);
        eop->day = more;
    }
    eop->day[eop->ndays++] = (struct eop_day){value[UT1_UTC], value[POLE_X], value[POLE_Y]};
    return BR_OK;
}

int eop_read(struct eop *eop, const char *path, struct br_error *error)
{
    struct reader r = {.path = path, .error = error};
    char line[256];
    int status = BR_OK;
    *eop = (struct eop){0};
    FILE *file = br_fopen_regular(path, NULL, error);
    if (file == NULL) return BR_E_IO;
    while (status == BR_OK && fgets(line, sizeof line, file) != NULL) {
        size_t length = strcspn(line, "\r\n");
        r.line++;
        if (line[length] == '\0' && !feof(file))
            status = br_fail(error, BR_E_FORMAT,
                             "%s:%zu: the line is longer than %zu bytes, or has a zero byte; expected the "
                             "IERS's finals2000A.all",
                             path, r.line, sizeof line - 1);
        else if (r.line == LONGEST)
            status =
                br_fail(error, BR_E_FORMAT, "%s has more than %d lines; expected one a day", path, LONGEST);
        else
            status = add_day(eop, &r, line, length);
    }
    if (status == BR_OK && ferror(file)) status = br_fail(error, BR_E_IO, "cannot read %s", path);
    fclose(file);
    if (status == BR_OK && eop->ndays < 2)
        status = br_fail(error, BR_E_FORMAT,
                         "%s has %zu days; expected the IERS's finals2000A.all, with at least two", path,
                         eop->ndays);
    return status;
}

void eop_free(struct eop *eop)
{
    free(eop->day);
    *eop = (struct eop){0};
}

/* Days from the first one on. */
static double days_since(const struct eop *eop, int64_t unix_ns)
{
    return (double)unix_ns / day_ns - (double)(eop->first_mjd - MJD_1970);
}

struct eop_day eop_at(const struct eop *eop, int64_t unix_ns)
{
    double at = days_since(eop, unix_ns);
    size_t last = eop->ndays - 1;
    if (at <= 0) return eop->day[0];
    if (at >= (double)last) return eop->day[last];
    const struct eop_day *a = &eop->day[(size_t)at], *b = a + 1;
    double part = at - floor(at), step = b->ut1_utc_s - a->ut1_utc_s;
    step -= round(step); /* a leap second at the day's end */
    return (struct eop_day){a->ut1_utc_s + part * step, a->x_arcsec + part * (b->x_arcsec - a->x_arcsec),
                            a->y_arcsec + part * (b->y_arcsec - a->y_arcsec)};
}

int64_t eop_end_ns(const struct eop *eop)
{
    return (eop->first_mjd + (int64_t)eop->ndays - 1 - MJD_1970) * INT64_C(86400000000000);
}

double eop_error_arcsec(const struct eop *eop, int64_t unix_ns)
{
    static const double arcsec_per_s = 15.04, pole = 0.6, most_s = 0.9, drift_s = 0.002;
    if (eop == NULL) return arcsec_per_s * most_s + pole;
    double at = days_since(eop, unix_ns), beyond = fmax(-at, at - (double)(eop->ndays - 1));
    if (beyond <= 0) return 0;
    return arcsec_per_s * fmin(2 * most_s, drift_s * beyond) + pole * fmin(1, beyond / 100);
}
