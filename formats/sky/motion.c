#include "formats/sky/motion.h"

#include <math.h>
#include <stdlib.h>

static const double degrees = 57.29577951308232;
static const struct br_beam nowhere = {NAN, NAN};

bool br_motion_moves(const struct br_motion *motion)
{
    return motion->rates != NULL || motion->sources != NULL;
}

uint64_t br_motion_interval(const struct br_motion *motion, uint64_t sample)
{
    return br_motion_moves(motion) ? sample / motion->every : 0;
}

uint64_t br_motion_end(const struct br_motion *motion, uint64_t interval)
{
    if (!br_motion_moves(motion) || interval >= UINT64_MAX / motion->every) return UINT64_MAX;
    return (interval + 1) * motion->every;
}

void br_grid_around(struct br_beam centre, size_t nx, size_t ny, const double spacing[2],
                    struct br_beam *beams)
{
    double x0 = asin(centre.x), y0 = asin(centre.y);
    for (size_t i = 0; i < nx; i++)
        for (size_t j = 0; j < ny; j++) {
            struct br_beam *beam = &beams[i * ny + j];
            double x = x0 + ((double)i - ((double)nx - 1) / 2) * spacing[0];
            double y = y0 + ((double)j - ((double)ny - 1) / 2) * spacing[1];
            *beam = (struct br_beam){sin(x), sin(y)};
            if (!(fabs(x) <= M_PI / 2 && fabs(y) <= M_PI / 2 && beam->x * beam->x + beam->y * beam->y <= 1))
                *beam = nowhere;
        }
}

static int64_t time_ns(const struct br_motion *motion, double sample)
{
    double ns = sample * motion->sample_s * 1e9;
    return fabs(ns) < 0x1p62 ? motion->epoch_ns + llround(ns) : INT64_MAX;
}

/* Directions at a number of base samples since sample 0. */
static void follow(const struct br_motion *motion, double sample, struct br_beam *beams)
{
    enum { SOME = 1024 };
    double up[SOME];
    size_t count = motion->nx > 0 ? 1 : motion->nbeams;
    int64_t now = time_ns(motion, sample);
    for (size_t b = 0, n; b < count; b += n) {
        n = count - b < SOME ? count - b : SOME;
        bool known = apparent_places(motion->site, now, motion->sources + b, n, beams + b, up, NULL) == BR_OK;
        for (size_t i = 0; i < n; i++)
            if (!known || !(up[i] >= 0)) beams[b + i] = nowhere;
    }
    if (motion->nx > 0) br_grid_around(beams[0], motion->nx, motion->ny, motion->spacing, beams);
}

static void where(const struct br_motion *motion, double sample, struct br_beam *beams)
{
    if (motion->sources != NULL) {
        follow(motion, sample, beams);
        return;
    }
    double t = sample * motion->sample_s - motion->reference_s;
    for (size_t b = 0; b < motion->nbeams; b++) {
        beams[b] = motion->beams[b];
        if (motion->rates == NULL) continue;
        beams[b].x += motion->rates[b].x * t;
        beams[b].y += motion->rates[b].y * t;
    }
}

void br_motion_at(const struct br_motion *motion, uint64_t interval, struct br_beam *beams)
{
    where(motion, ((double)interval + 0.5) * (double)motion->every, beams);
}

int br_motion_looks(const struct br_motion *motion, int64_t unix_ns, struct br_look *look)
{
    size_t n = motion->nbeams;
    struct br_beam *beams = malloc(n * (sizeof *beams + 2 * sizeof(double)) + 1);
    if (beams == NULL) return BR_E_NO_MEMORY;
    double(*radec)[2] = (double(*)[2])(beams + n);
    where(motion, (double)(unix_ns - motion->epoch_ns) * 1e-9 / motion->sample_s, beams);
    bool known = motion->site != NULL && apparent_is_there() &&
                 apparent_radec(motion->site, unix_ns, beams, n, radec, NULL) == BR_OK;
    for (size_t b = 0; b < n; b++) {
        double away = hypot(beams[b].x, beams[b].y);
        look[b] = (struct br_look){beams[b].x, beams[b].y, NAN, NAN, NAN, NAN};
        if (!(away <= 1)) continue;
        look[b].azimuth_deg = fmod(atan2(beams[b].y, beams[b].x) * degrees + 360, 360);
        look[b].altitude_deg = acos(away) * degrees;
        if (!known) continue;
        look[b].ra_deg = radec[b][0] * degrees;
        look[b].dec_deg = radec[b][1] * degrees;
    }
    free(beams);
    return BR_OK;
}
