#include "stages/common/sky/calibration.h"

#include "buffers/numbers.h"

#include <stdlib.h>

/* One channel and polarisation. */
struct scratch {
    double *gain, *gain_snr, *misfit;
    uint8_t *flag;
};

static bool make_arrays(struct calibration *c, struct scratch *s, const struct visibilities *v)
{
    size_t n = v->shape.ndishes, rows = v->shape.nchannels * v->shape.npol;
    *c = (struct calibration){v->shape.nchannels, v->shape.npol, n};
    c->gain = calloc(rows * n, 2 * sizeof *c->gain);
    c->flag = calloc(rows, n);
    c->weight = calloc(rows * n, sizeof *c->weight);
    c->residual = calloc(rows * n, sizeof *c->residual);
    c->snr = calloc(rows, sizeof *c->snr);
    c->misfit = calloc(rows, sizeof *c->misfit);
    c->reference = calloc(rows, sizeof *c->reference);
    c->why = calloc(rows, sizeof *c->why);
    s->gain = calloc(n, 2 * sizeof *s->gain);
    s->gain_snr = calloc(n, sizeof *s->gain_snr);
    s->misfit = calloc(n, sizeof *s->misfit);
    s->flag = calloc(n, 1);
    return c->gain != NULL && c->flag != NULL && c->weight != NULL && c->residual != NULL && c->snr != NULL &&
           c->misfit != NULL && c->reference != NULL && c->why != NULL && s->gain != NULL &&
           s->gain_snr != NULL && s->misfit != NULL && s->flag != NULL;
}

static int fit(struct calibration *c, struct scratch *s, const struct visibilities *v,
               const struct calibration_options *options, size_t f, size_t p, struct br_error *error)
{
    size_t n = c->ndishes, row = f * c->npol + p, cell = (p * c->nfreq + f) * v->npairs;
    struct br_calibrate_params params = {n, options->min_snr, options->max_residual, options->min_amplitude,
                                         options->reference >= 0 ? (size_t)options->reference : 0};
    struct br_calibrate_result result = {
        .gain = s->gain, .gain_snr = s->gain_snr, .misfit = s->misfit, .flag = s->flag};
    struct br_why why = {""};
    if (br_calibrate(&params, v->sum + 2 * cell, v->samples + cell, &result, &why) != 0)
        return br_fail(error, BR_E_NO_MEMORY, "%s", why.text);
    for (size_t d = 0; d < n; d++) {
        c->gain[2 * (row * n + d)] = (float)s->gain[2 * d];
        c->gain[2 * (row * n + d) + 1] = (float)s->gain[2 * d + 1];
        c->flag[row * n + d] = s->flag[d];
        c->weight[row * n + d] = (float)(s->gain_snr[d] * s->gain_snr[d]);
        c->residual[row * n + d] = (float)s->misfit[d];
    }
    c->snr[row] = result.solved ? (float)result.snr : 0;
    c->misfit[row] = result.solved ? (float)result.residual : 0;
    c->reference[row] = (int32_t)result.reference;
    c->why[row] = result.why;
    c->nsolved += result.solved;
    return BR_OK;
}

/* The dish that is good in most of the channels of a polarisation, and in how many. */
static size_t best_dish(const struct calibration *c, size_t p, long asked, size_t *channels)
{
    size_t best = asked >= 0 ? (size_t)asked : 0;
    *channels = 0;
    for (size_t d = asked >= 0 ? best : 0; d < c->ndishes; d++) {
        size_t good = 0;
        for (size_t f = 0; f < c->nfreq; f++)
            good += c->flag[(f * c->npol + p) * c->ndishes + d] == BR_GAIN_GOOD;
        if (good > *channels) {
            *channels = good;
            best = d;
        }
        if (asked >= 0) break;
    }
    return best;
}

static void refer(struct calibration *c, struct scratch *s, size_t p, size_t dish)
{
    size_t n = c->ndishes;
    for (size_t f = 0; f < c->nfreq; f++) {
        size_t row = f * c->npol + p;
        float *gain = c->gain + 2 * row * n;
        if (c->flag[row * n + dish] != BR_GAIN_GOOD) continue; /* stays with the first good one */
        for (size_t i = 0; i < 2 * n; i++) s->gain[i] = (double)gain[i];
        br_calibrate_refer(n, s->gain, dish);
        for (size_t i = 0; i < 2 * n; i++) gain[i] = (float)s->gain[i];
        c->reference[row] = (int32_t)dish;
    }
}

static int make(struct calibration *c, struct scratch *s, const struct visibilities *v,
                const struct calibration_options *options, struct br_error *error)
{
    int status = BR_OK;
    for (size_t f = 0; f < c->nfreq && status == BR_OK; f++)
        for (size_t p = 0; p < c->npol && status == BR_OK; p++) status = fit(c, s, v, options, f, p, error);
    if (status != BR_OK) return status;
    if (c->nsolved == 0)
        return br_fail(error, BR_E_INVALID, "no channel has a result: at %.9g MHz %s", v->freq_mhz[0],
                       c->why[0].text);
    for (size_t p = 0; p < c->npol; p++) {
        size_t channels, dish = best_dish(c, p, options->reference, &channels);
        if (options->reference >= 0 && channels == 0)
            return br_fail(error, BR_E_INVALID,
                           "--ref-input %ld: this dish is flagged in all channels of polarisation %zu (%s); "
                           "name another one, or none",
                           options->reference, p, v->shape.pol[p]);
        refer(c, s, p, dish);
    }
    return BR_OK;
}

int calibration_make(struct calibration *c, const struct visibilities *v,
                     const struct calibration_options *options, struct br_error *error)
{
    struct scratch s = {0};
    int status;
    if (options->reference >= (long)v->shape.ndishes) {
        *c = (struct calibration){0};
        return br_fail(error, BR_E_INVALID, "--ref-input %ld: expected a dish, 0 to %zu", options->reference,
                       v->shape.ndishes - 1);
    }
    if (make_arrays(c, &s, v))
        status = make(c, &s, v, options, error);
    else
        status = br_fail(error, BR_E_NO_MEMORY, "no memory for gains of %zu channels", v->shape.nchannels);
    free(s.gain);
    free(s.gain_snr);
    free(s.misfit);
    free(s.flag);
    return status;
}

void calibration_free(struct calibration *c)
{
    free(c->gain);
    free(c->flag);
    free(c->weight);
    free(c->residual);
    free(c->snr);
    free(c->misfit);
    free(c->reference);
    free(c->why);
    *c = (struct calibration){0};
}

uint64_t visibilities_digest(const struct visibilities *v)
{
    size_t cells = v->shape.npol * v->shape.nchannels * v->npairs;
    uint64_t hash = br_fnv(BR_FNV_START, v->freq_mhz, v->shape.nchannels * sizeof(double));
    hash = br_fnv(hash, v->sum, 2 * cells * sizeof(double));
    return br_fnv(hash, v->samples, cells * sizeof(double));
}
