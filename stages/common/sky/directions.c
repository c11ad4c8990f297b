#include "stages/common/sky/directions.h"
#include "formats/tables/hdf5_tables.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BEAMS = 1 << 20 };

static const struct br_param towards_params[] = {BR_TOWARDS_PARAMS, {0}};

const struct br_param br_beams_fields[] = {
    PARAM(INTS, struct br_beams_param, grid,
          "a regular grid of beams: [nx along m (x), ny along n (y)]; beam number = ix x ny + iy", .min = 1,
          .max = 65536, .min_count = 2, .max_count = 2),
    PARAM(REALS, struct br_beams_param, spacing_deg,
          "angle between neighbours of the grid; one number, or [along m, along n]", .unit = "degrees",
          .min_count = 1, .max_count = 2),
    PARAM(REALS, struct br_beams_param, center, "centre of the grid, [along m, along n]", .unit = "degrees",
          .min_count = 2, .max_count = 2, .min = -90, .max = 90, .def = "[0, 0]"),
    PARAM(REALS, struct br_beams_param, directions, "[[x, y], ...]: direction cosines along m and n",
          .group = 2, .min_count = 1, .max_count = MAX_BEAMS),
    PARAM(PATH, struct br_beams_param, file,
          "HDF5 file with /beams float64 [beam][2], direction cosines along m and n, and for beams that move "
          "/rates float64 [beam][2]"),
    PARAM(REALS, struct br_beams_param, rates,
          "[[x, y], ...]: how fast the beams move; one pair for all, or with `directions` one for each",
          .group = 2, .min_count = 1, .max_count = MAX_BEAMS, .unit = "direction cosines per second"),
    PARAM(MAPS, struct br_beams_param, towards,
          "a list of directions, one for each beam, in any of these forms", .fields = towards_params,
          .size = sizeof(struct br_towards), .min_count = 1, .max_count = MAX_BEAMS),
    PARAM(MAP, struct br_beams_param, around, "centre of the grid, in place of `center`",
          .fields = towards_params, .size = sizeof(struct br_towards)),
    PARAM(BOOL, struct br_beams_param, follow,
          "beams follow sources on the sky (radec, sun, moon); false: they stay where the source is at "
          "reference_ns",
          .def = "true"),
    PARAM(INT, struct br_beams_param, reference_ns,
          "with rates, or with follow: false: Unix time to which the directions refer; -1: sample 0 (rates "
          "only)",
          .def = "-1", .min = -1, .max = 9e18, .unit = "ns"),
    PARAM(REAL, struct br_beams_param, every_s,
          "interval for which moving beams keep the direction of its middle. Default: with rates 1; for "
          "followed sources, so short that no phase is off by more than 1 degree",
          .min = 1e-6, .max = 1e6, .unit = "s"),
    {0},
};

static int make_grid(struct br_directions *out, const struct br_beams_param *param, struct br_error *error)
{
    size_t nx = (size_t)param->grid.value[0], ny = (size_t)param->grid.value[1];
    double spacing[2], center[2] = {0, 0};
    if (param->spacing_deg.count == 0)
        return br_fail(error, BR_E_INVALID,
                       "a grid of beams needs spacing_deg: the angle between neighbouring beams");
    if (nx * ny > MAX_BEAMS)
        return br_fail(error, BR_E_INVALID, "%zu x %zu beams are more than the %d that are allowed", nx, ny,
                       MAX_BEAMS);
    for (size_t axis = 0; axis < 2; axis++) {
        spacing[axis] = param->spacing_deg.value[axis < param->spacing_deg.count ? axis : 0];
        if (param->center.count == 2) center[axis] = param->center.value[axis];
        double edge = fabs(center[axis]) + fabs(spacing[axis]) * ((double)(axis == 0 ? nx : ny) - 1) / 2;
        if (!(edge <= 90))
            return br_fail(error, BR_E_INVALID,
                           "the grid of beams reaches %.6g degrees along %s; expected at most 90", edge,
                           axis == 0 ? "m" : "n");
    }
    out->beams = malloc(nx * ny * sizeof *out->beams);
    if (out->beams == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu beams", nx * ny);
    for (size_t i = 0; i < nx; i++)
        for (size_t j = 0; j < ny; j++) {
            double x = center[0] + ((double)i - ((double)nx - 1) / 2) * spacing[0];
            double y = center[1] + ((double)j - ((double)ny - 1) / 2) * spacing[1];
            out->beams[i * ny + j] = (struct br_beam){sin(x * M_PI / 180), sin(y * M_PI / 180)};
        }
    for (int axis = 0; axis < 2; axis++) out->spacing[axis] = spacing[axis] * M_PI / 180;
    out->nbeams = nx * ny;
    out->nx = nx;
    out->ny = ny;
    return BR_OK;
}

static bool on_sky(const struct sky_source *source)
{
    return source->kind != SKY_FIXED;
}

/* The directions of `towards`, or the grid's centre `around`. */
static int take_sources(struct br_directions *out, const struct br_towards *towards, size_t count,
                        struct br_error *error)
{
    bool any = false;
    int status = BR_OK;
    out->sources = calloc(count, sizeof *out->sources);
    if (out->sources == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu directions", count);
    for (size_t i = 0; i < count && status == BR_OK; i++) {
        status = br_towards_source(&towards[i], &out->sources[i], &out->said, error);
        if (status != BR_OK && out->nx == 0) br_error_context(error, "towards[%zu]", i);
        if (status != BR_OK && out->nx > 0) br_error_context(error, "around");
        any = any || on_sky(&out->sources[i]);
    }
    if (status != BR_OK) return status;
    for (size_t i = 0; i < count; i++)
        out->beams[i] = on_sky(&out->sources[i]) ? (struct br_beam){NAN, NAN}
                                                 : (struct br_beam){out->sources[i].x, out->sources[i].y};
    if (out->nx > 0) br_grid_around(out->beams[0], out->nx, out->ny, out->spacing, out->beams);
    if (any) return BR_OK;
    free(out->sources);
    out->sources = NULL;
    return BR_OK;
}

static int make_towards(struct br_directions *out, const struct br_beams_param *param, struct br_error *error)
{
    out->beams = calloc(param->towards.count, sizeof *out->beams);
    if (out->beams == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu beams", param->towards.count);
    out->nbeams = param->towards.count;
    return take_sources(out, param->towards.value, out->nbeams, error);
}

/* Pairs [nbeams][2]; one pair for all with `same`. NULL after an error. */
static struct br_beam *take_pairs(const double *value, size_t nbeams, bool same, struct br_error *error)
{
    struct br_beam *pairs = malloc(nbeams * sizeof *pairs);
    if (pairs == NULL) br_fail(error, BR_E_NO_MEMORY, "no memory for %zu beams", nbeams);
    for (size_t b = 0; pairs != NULL && b < nbeams; b++, value += same ? 0 : 2)
        pairs[b] = (struct br_beam){value[0], value[1]};
    return pairs;
}

static int take_list(struct br_directions *out, const double *value, size_t nbeams, struct br_error *error)
{
    if (nbeams > MAX_BEAMS)
        return br_fail(error, BR_E_INVALID, "%zu beams are more than the %d that are allowed", nbeams,
                       MAX_BEAMS);
    out->nbeams = nbeams;
    out->beams = take_pairs(value, nbeams, false, error);
    return out->beams != NULL ? BR_OK : BR_E_NO_MEMORY;
}

/* Rates of the YAML file: one pair, or one for each beam. */
static int take_rates(struct br_directions *out, const struct br_beams_param *param, struct br_error *error)
{
    size_t count = param->rates.count / 2, nbeams = out->nbeams;
    if (count == 0) return BR_OK;
    if (param->file != NULL)
        return br_fail(error, BR_E_INVALID, "the rates of beams of a file are its dataset /rates");
    if (param->rates.count % 2 != 0 || (count != 1 && (count != nbeams || out->nx > 0)))
        return br_fail(error, BR_E_INVALID, "rates has %zu numbers; expected an x and a y for all beams%s",
                       param->rates.count, out->nx > 0 ? ", so that they stay a grid" : ", or for each");
    out->rates = take_pairs(param->rates.value, nbeams, count == 1, error);
    return out->rates != NULL ? BR_OK : BR_E_NO_MEMORY;
}

static int read_file(struct br_directions *out, const char *path, struct br_error *error)
{
    double *value = NULL, *rate = NULL;
    size_t nbeams = 0, nrates = 0;
    int status = br_beams_read(&value, &nbeams, path, error);
    if (status == BR_OK) status = br_rates_read(&rate, &nrates, path, error);
    if (status == BR_OK && rate != NULL && nrates != nbeams)
        status = br_fail(error, BR_E_FORMAT, "%s: /rates is for %zu beams, /beams for %zu; expected as many",
                         path, nrates, nbeams);
    if (status == BR_OK) status = take_list(out, value, nbeams, error);
    if (status == BR_OK && rate != NULL && (out->rates = take_pairs(rate, nbeams, false, error)) == NULL)
        status = BR_E_NO_MEMORY;
    free(value);
    free(rate);
    return status;
}

void br_directions_free(struct br_directions *directions)
{
    free(directions->beams);
    free(directions->rates);
    free(directions->sources);
    *directions = (struct br_directions){0};
}

int br_directions_make(struct br_directions *directions, const struct br_beams_param *param,
                       struct br_error *error)
{
    int forms = (param->grid.count > 0) + (param->directions.count > 0) + (param->file != NULL) +
                (param->towards.count > 0);
    int status;
    *directions = (struct br_directions){0};
    if (forms != 1)
        return br_fail(error, BR_E_INVALID, "%s of grid, directions, towards and file; expected exactly one",
                       forms == 0 ? "it has none" : "it has more than one");
    if (param->grid.count == 0 && param->spacing_deg.count > 0)
        return br_fail(error, BR_E_INVALID, "spacing_deg goes with grid, which is not given");
    if (param->grid.count == 0 && param->around != NULL)
        return br_fail(error, BR_E_INVALID, "around goes with grid, which is not given");
    if (param->around != NULL && param->center.count == 2 &&
        (param->center.value[0] != 0 || param->center.value[1] != 0))
        return br_fail(error, BR_E_INVALID, "it has both of around and center; expected at most one");
    if (param->grid.count > 0) {
        status = make_grid(directions, param, error);
        if (status == BR_OK && param->around != NULL)
            status = take_sources(directions, param->around, 1, error);
    } else if (param->towards.count > 0) {
        status = make_towards(directions, param, error);
    } else if (param->file != NULL) {
        status = read_file(directions, param->file, error);
    } else {
        if (param->directions.count % 2 != 0)
            return br_fail(error, BR_E_INVALID,
                           "directions has %zu numbers; expected an x and a y for each beam",
                           param->directions.count);
        status = take_list(directions, param->directions.value, param->directions.count / 2, error);
    }
    if (status == BR_OK) status = take_rates(directions, param, error);
    if (status == BR_OK && directions->sources != NULL && directions->rates != NULL)
        status =
            br_fail(error, BR_E_INVALID, "rates go with directions that do not follow the sky themselves");
    for (size_t i = 0; status == BR_OK && directions->sources == NULL && i < directions->nbeams; i++) {
        double x = directions->beams[i].x, y = directions->beams[i].y;
        if (!(x * x + y * y <= 1 + 1e-12))
            status =
                br_fail(error, BR_E_INVALID,
                        "beam %zu, (%.6g, %.6g), is not a direction: x^2 + y^2 must not exceed 1", i, x, y);
    }
    if (status != BR_OK) br_directions_free(directions);
    return status;
}

/* A regular grid of dishes repeats the sky every wavelength / spacing: beams that lie further apart than
 * that at the highest frequency see a source twice. */
static void note_width(struct br_stage *stage, const struct br_stream *out)
{
    const struct br_telescope *t = out->telescope;
    const struct br_beam *first = &out->beams[0], *last = &out->beams[out->nbeams - 1];
    double high = out->freq_mhz[0];
    for (size_t i = 1; i < out->nchannels; i++) high = fmax(high, out->freq_mhz[i]);
    const struct {
        const char *axis;
        double width, period, spacing;
    } along[2] = {{"m", last->x - first->x, 1e-6 * BR_LIGHT_M_PER_S / high / t->spacing_m_m, t->spacing_m_m},
                  {"n", last->y - first->y, 1e-6 * BR_LIGHT_M_PER_S / high / t->spacing_n_m, t->spacing_n_m}};
    for (int i = 0; i < 2; i++)
        if (fabs(along[i].width) > along[i].period)
            br_stage_note(stage,
                          "the grid of beams is %.4g wide along %s (direction cosine); dishes %g m apart "
                          "repeat the sky "
                          "every %.4g at %.6g MHz, so that a source is seen in several beams",
                          fabs(along[i].width), along[i].axis, along[i].spacing, along[i].period, high);
}

double br_sky_interval_s(const struct br_stream *stream, double degrees)
{
    static const double rate = 7.2921159e-5; /* radians per second */
    const struct br_telescope *t = stream->telescope;
    double high = 0, low[3] = {0}, far[3] = {0}, square = 0;
    for (size_t i = 0; i < stream->nchannels; i++)
        high = fmax(high, stream->freq_mhz[i] + stream->width_mhz[i] / 2);
    for (unsigned d = 0; d < t->ndishes; d++)
        for (int k = 0; k < 3; k++) {
            low[k] = d == 0 ? t->position[d][k] : fmin(low[k], t->position[d][k]);
            far[k] = d == 0 ? t->position[d][k] : fmax(far[k], t->position[d][k]);
        }
    for (int k = 0; k < 3; k++) square += (far[k] - low[k]) * (far[k] - low[k]);
    double waves = sqrt(square) * 1e6 * high / BR_LIGHT_M_PER_S;
    return waves > 0 ? 2 * degrees / 360 / (rate * waves) : INFINITY;
}

uint64_t br_sky_interval(const struct br_stream *stream, double degrees)
{
    double most = br_sky_interval_s(stream, degrees) / br_stream_sample_s(stream);
    uint64_t every = 1;
    while (2 * (double)every <= most && every < (uint64_t)1 << 40) every *= 2;
    return every;
}

static uint64_t whole_samples(double samples)
{
    return samples < 1 ? 1 : samples < 0x1p62 ? (uint64_t)samples : (uint64_t)1 << 62;
}

/* How they move, in samples of the stage's input. */
static int take_motion(struct br_stage *stage, const struct br_beams_param *param, struct br_motion *motion)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    bool given = isfinite(param->every_s), follows = motion->sources != NULL;
    if (!br_motion_moves(motion) && (given || (param->reference_ns >= 0 && param->follow)))
        return br_stage_fail_at(
            stage, "beams",
            "reference_ns and every_s go with rates, or with directions on the sky; it has neither");
    motion->sample_s = br_stream_sample_s(in);
    motion->epoch_ns = in->epoch_ns;
    if (param->reference_ns >= 0) motion->reference_s = 1e-9 * (double)(param->reference_ns - in->epoch_ns);
    motion->every = whole_samples(round((given ? param->every_s : 1) / motion->sample_s));
    if (!follows) return BR_OK;
    double most = br_sky_interval_s(in, 1) / motion->sample_s;
    if (!given) {
        motion->every = br_sky_interval(in, 1);
        br_stage_note(stage, "beams that follow the sky get new directions every %.6g s (%llu base samples)",
                      (double)motion->every * motion->sample_s, (unsigned long long)motion->every);
    } else if ((double)motion->every > most) {
        br_stage_warn(
            stage,
            "beams: every_s: in %.6g s the sky rotates so far that phases are off by up to %.2g degrees; "
            "expected at most %.3g s for 1 degree",
            param->every_s, (double)motion->every / most, most * motion->sample_s);
    }
    return BR_OK;
}

/* Points beams once and for all where what is on the sky stands at the reference time. */
static int stand_still(struct br_stage *stage, const struct br_beams_param *param,
                       const struct apparent_site *site, struct br_directions *made)
{
    if (param->reference_ns < 0)
        return br_stage_fail_at(stage, "beams",
                                "follow: false needs reference_ns: the Unix time at which what is on the sky "
                                "stands where the beams shall point");
    struct br_motion once = {.nbeams = made->nbeams,
                             .sources = made->sources,
                             .nx = made->nx,
                             .ny = made->ny,
                             .spacing = {made->spacing[0], made->spacing[1]},
                             .site = site,
                             .epoch_ns = param->reference_ns};
    br_motion_at(&once, 0, made->beams);
    for (size_t b = 0; b < made->nbeams; b++)
        if (!isfinite(made->beams[b].x))
            return br_stage_fail_at(stage, "beams", "beam %zu is below the horizon at reference_ns", b);
    free(made->sources);
    made->sources = NULL;
    return BR_OK;
}

/* Refuses what never rises at the site. */
static int must_rise(struct br_stage *stage, const struct apparent_site *site,
                     const struct br_directions *made)
{
    size_t count = made->nx > 0 ? 1 : made->nbeams;
    for (size_t b = 0; b < count; b++)
        if (made->sources[b].kind == SKY_RADEC &&
            fabs(made->sources[b].dec * 180 / M_PI - site->latitude_deg) > 90.1)
            return br_stage_fail_at(stage, "beams",
                                    "beam %zu follows a declination of %.4g degrees, which never rises above "
                                    "the horizon at latitude %.4g",
                                    b, made->sources[b].dec * 180 / M_PI, site->latitude_deg);
    return BR_OK;
}

int br_directions_configure(struct br_stage *stage, const struct br_beams_param *param, struct br_stream *out,
                            struct br_motion *motion)
{
    struct br_error error = {0};
    struct br_directions made;
    const struct apparent_site *site;
    int status = br_directions_make(&made, param, &error);
    if (status != BR_OK) return br_stage_fail_at(stage, "beams", "%s", error.text);
    status = br_stage_site(stage, "beams", br_stage_input(stage, 0)->telescope, &site);
    if (status == BR_OK && made.sources != NULL) {
        int64_t when = param->follow ? br_stage_input(stage, 0)->epoch_ns : param->reference_ns;
        status = br_stage_follows(stage, "beams", site, made.said, when);
        if (status == BR_OK) status = must_rise(stage, site, &made);
        if (status == BR_OK && !param->follow) status = stand_still(stage, param, site, &made);
    }
    if (status != BR_OK) {
        br_directions_free(&made);
        return status;
    }
    out->nbeams = made.nbeams;
    out->beams_x = made.nx;
    out->beams_y = made.ny;
    out->beams = br_stage_keep(stage, made.beams, made.nbeams * sizeof *made.beams);
    *motion = (struct br_motion){.nbeams = out->nbeams, .beams = out->beams, .site = site};
    if (made.rates != NULL)
        motion->rates = br_stage_keep(stage, made.rates, made.nbeams * sizeof *made.rates);
    if (made.sources != NULL) {
        motion->sources =
            br_stage_keep(stage, made.sources, (made.nx > 0 ? 1 : made.nbeams) * sizeof *made.sources);
        motion->nx = made.nx;
        motion->ny = made.ny;
        motion->spacing[0] = made.spacing[0];
        motion->spacing[1] = made.spacing[1];
    } else if (out->telescope != NULL && out->nchannels > 0 && made.nx > 0)
        note_width(stage, out);
    status = take_motion(stage, param, motion);
    struct br_motion *kept = br_stage_alloc(stage, sizeof *kept);
    *kept = *motion;
    if (!br_stage_is_update(stage)) {
        kept->pointings = br_stage_alloc(stage, sizeof *kept->pointings);
        pthread_mutex_init(&kept->pointings->lock, NULL);
    }
    out->motion = kept;
    return status;
}

void br_directions_append_incoherent(struct br_stage *stage, struct br_stream *out)
{
    struct br_beam *beams = br_stage_alloc(stage, (out->nbeams + 1) * sizeof *beams);
    memset(&beams[out->nbeams], 0, sizeof *beams);
    memcpy(beams, out->beams, out->nbeams * sizeof *beams);
    out->beams = beams;
    out->nbeams++;
    out->beams_x = out->beams_y = 0;
}
