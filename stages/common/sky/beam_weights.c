/* beam_weights.c - see beam_weights.h. */
#include "stages/common/sky/beam_weights.h"
#include "stages/common/stage/gains.h"
#include "stages/common/stage/shape.h"

#include <math.h>
#include <string.h>

int br_beam_weights_read(struct br_stage *stage, const char *path, int64_t shift, struct br_weights *w)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    size_t npol = in->array.axis[2].length, ndishes = in->array.axis[3].length;
    struct br_error error = {0};
    if (br_weights_read(w, path, &error) != BR_OK)
        return br_stage_fail_at(stage, "weights", "%s", error.text);
    w->weight = br_stage_keep(stage, w->weight, w->nfreq * w->npol * w->nbeams * w->ndishes * 2);
    w->shift = br_stage_keep(stage, w->shift, w->nfreq * w->npol * w->nbeams * sizeof *w->shift);
    if ((w->nfreq != 1 && w->nfreq != in->nchannels) || w->npol != npol || w->ndishes != ndishes)
        return br_stage_fail_at(
            stage, "weights",
            "%s: /weights has freq %zu, pol %zu, dish %zu; expected freq 1 or %zu, pol %zu, "
            "dish %zu",
            path, w->nfreq, w->npol, w->ndishes, in->nchannels, npol, ndishes);
    for (size_t i = 0; shift >= 0 && i < w->nfreq * w->npol * w->nbeams; i++) w->shift[i] = (int32_t)shift;
    return BR_OK;
}

/* White input of rms r per component gives a sum of rms r sqrt(sum_d |A|^2): the shift is the nearest power
 * of two, so that the output has about the input's rms (127 sqrt(D) without gains), or 2^fine times as
 * much. */
static int32_t shift_that_keeps_rms(const int8_t *weight, size_t ndishes, int fine)
{
    double power = 0;
    for (size_t i = 0; i < 2 * ndishes; i++) power += (double)weight[i] * weight[i];
    long shift = power > 0 ? lround(log2(power) / 2) - fine : 0;
    return (int32_t)(shift < 0 ? 0 : shift > 30 ? 30 : shift);
}

/* The gain of row (channel, polarisation) and dish d, [2]. */
static const float *gain_of(const struct br_weights_rule *rule, size_t f, size_t p, size_t d)
{
    const struct br_gains *gains = &rule->gains;
    return gains->value + (((gains->nfreq == 1 ? 0 : f) * rule->npol + p) * rule->ndishes + d) * 2;
}

/* Weights while they are made. */
struct made {
    const struct br_weights_rule *rule;
    const struct br_beam *beams;
    int8_t *weight;
    int32_t *shift;
};

/* One row: a[ndishes][2]. A = round(127 g / max|g| exp(-2 pi i cycles)), cycles being those of the field of a
 * source in direction (x, y) at the dish: buffers/sky.h. */
static void make_row(const struct br_weights_rule *rule, size_t f, size_t p, struct br_beam beam, int8_t *a)
{
    const struct br_telescope *t = rule->telescope;
    for (size_t d = 0; d < rule->ndishes; d++) {
        double phase =
            -2 * M_PI * br_sky_cycles(rule->sideband, rule->freq_mhz[f], t->position[d], beam.x, beam.y);
        double re = 127 * cos(phase), im = 127 * sin(phase);
        if (rule->gains.value != NULL) {
            const float *g = gain_of(rule, f, p, d);
            double gr = (double)g[0] / rule->largest, gi = (double)g[1] / rule->largest, was = re;
            re = gr * was - gi * im;
            im = gr * im + gi * was;
        }
        a[2 * d] = (int8_t)lround(re);
        a[2 * d + 1] = (int8_t)lround(im);
    }
}

/* All rows of a channel. */
static void make_channel(void *arg, size_t f, unsigned worker)
{
    (void)worker;
    const struct made *m = arg;
    const struct br_weights_rule *rule = m->rule;
    size_t nbeams = rule->motion.nbeams, ndishes = rule->ndishes, rows = rule->npol * nbeams;
    for (size_t i = 0; i < rows; i++) {
        size_t row = f * rows + i, b = i % nbeams, p = i / nbeams;
        int8_t *a = m->weight + row * ndishes * 2;
        if (!isfinite(m->beams[b].x)) { /* below the horizon: a sum of nothing */
            memset(a, 0, ndishes * 2);
            m->shift[row] = rule->shift >= 0 ? (int32_t)rule->shift : 0;
        } else if (p > 0 && rule->gains.value == NULL) { /* without gains the polarisations are alike */
            memcpy(a, a - nbeams * ndishes * 2, ndishes * 2);
            m->shift[row] = m->shift[row - nbeams];
        } else {
            make_row(rule, f, p, m->beams[b], a);
            m->shift[row] =
                rule->shift >= 0 ? (int32_t)rule->shift : shift_that_keeps_rms(a, ndishes, rule->fine);
        }
    }
}

void br_beam_weights_of(const struct br_weights_rule *rule, const struct br_parallel *parallel,
                        const struct br_beam *beams, int8_t *weight, int32_t *shift)
{
    struct made made = {rule, beams, weight, shift};
    br_parallel_for(parallel, rule->nchannels, make_channel, &made);
}

const int32_t *br_beam_weights_incoherent(struct br_stage *stage, const struct br_weights_rule *rule)
{
    size_t n = rule->nchannels * rule->npol * rule->ndishes;
    int32_t *counts = br_stage_alloc(stage, n * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        size_t d = i % rule->ndishes, p = i / rule->ndishes % rule->npol, f = i / rule->ndishes / rule->npol;
        double a = 127;
        if (rule->gains.value != NULL) {
            const float *g = gain_of(rule, f, p, d);
            a *= hypot((double)g[0], (double)g[1]) / rule->largest;
        }
        counts[i] = (int32_t)lround(a * a);
    }
    return counts;
}

static int take_gains(struct br_stage *stage, const char *path, const struct br_stream *in,
                      struct br_weights_rule *rule)
{
    struct br_gains *gains = &rule->gains;
    const struct br_gains_shape shape = {in, in->nchannels, in->nchannels, rule->npol, rule->ndishes};
    int status = br_stage_gains(stage, path, &shape, gains);
    if (status != BR_OK || gains->value == NULL) return status;
    for (size_t i = 0; i < gains->nfreq * rule->npol * rule->ndishes; i++)
        rule->largest =
            fmax(rule->largest, hypot((double)gains->value[2 * i], (double)gains->value[2 * i + 1]));
    if (rule->largest == 0) return br_stage_fail_at(stage, "gains", "%s: all gains are 0", path);
    return BR_OK;
}

int br_beam_weights_make(struct br_stage *stage, const char *gains_file, int64_t shift,
                         struct br_weights_rule *rule, struct br_weights *weights)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    if (in->telescope == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "weights from beam directions need the dishes' places: add `telescope:` to "
                             "the pipeline");
    rule->telescope = in->telescope;
    rule->sideband = br_stage_sideband(stage);
    rule->freq_mhz = in->freq_mhz;
    rule->nchannels = in->nchannels;
    rule->npol = in->array.axis[2].length;
    rule->ndishes = in->array.axis[3].length;
    rule->shift = shift;
    int status = take_gains(stage, gains_file, in, rule);
    if (status != BR_OK) return status;
    size_t nbeams = rule->motion.nbeams, rows = rule->nchannels * rule->npol * nbeams;
    *weights = (struct br_weights){rule->nchannels,
                                   rule->npol,
                                   nbeams,
                                   rule->ndishes,
                                   br_stage_alloc(stage, rows * rule->ndishes * 2),
                                   br_stage_alloc(stage, rows * sizeof(int32_t))};
    const struct br_parallel alone = {0};
    br_beam_weights_of(rule, &alone, rule->motion.beams, weights->weight, weights->shift);
    return BR_OK;
}
