/* eop.h - the Earth's orientation as the IERS publishes it: finals2000A.all, finals2000A.daily and others of
 * their form (one line of fixed columns a day, of the past and predicted for about a year).
 *
 * Used are UT1 - UTC, which turns the sky by 15 arc seconds a second, and the pole's place in the Earth's
 * crust, which moves it by up to 0.6 arc seconds. */
#ifndef BEAMRING_FORMATS_SKY_EOP_H
#define BEAMRING_FORMATS_SKY_EOP_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eop_day {
    double ut1_utc_s, x_arcsec, y_arcsec;
};

enum { MJD_1970 = 40587 };

struct eop {
    size_t ndays;
    int64_t first_mjd;   /* day 0; the others follow day by day, at 0 h UTC */
    struct eop_day *day; /* [ndays] */
};

/* Free with eop_free in any case. Errors: BR_E_IO; BR_E_FORMAT naming the line and what is expected there;
 * BR_E_NO_MEMORY. */
int eop_read(struct eop *eop, const char *path, struct br_error *error);
void eop_free(struct eop *eop);

/* The orientation at a Unix time, interpolated between two days. Before the first and after the last day:
 * that day's. */
struct eop_day eop_at(const struct eop *eop, int64_t unix_ns);

/* Unix time of the last day that the file has. */
int64_t eop_end_ns(const struct eop *eop);

/* By how much directions may be off, in arc seconds: without a file (NULL), where UT1 - UTC and the pole's
 * offsets are taken to be 0; or outside of its days, UT1 being off by up to 2 ms for each day more. 0 within
 * them. */
double eop_error_arcsec(const struct eop *eop, int64_t unix_ns);

#endif
