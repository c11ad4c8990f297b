#include "stages/simulate/gains.h"
#include "stages/common/stage/gains.h"
#include "stages/common/stage/random.h"
#include "stages/common/stage/shape.h"

#include <math.h>

static int take_drifts(struct gains *g, struct br_stage *stage, const struct gains_params *p)
{
    struct br_drifts drifts = {0};
    struct br_error error = {0};
    int status = br_stage_reads_file(stage, "drifts", p->drifts_file);
    if (status != BR_OK) return status;
    if (br_drifts_read(&drifts, p->drifts_file, &error) != BR_OK)
        return br_stage_fail_at(stage, "drifts", "%s", error.text);
    if (drifts.npol != p->npol || drifts.ndishes != p->ndishes)
        status = br_stage_fail_at(stage, "drifts", "%s: /drift is [%zu][%zu]; expected [%zu][%zu]",
                                  p->drifts_file, drifts.npol, drifts.ndishes, p->npol, p->ndishes);
    g->drift = br_stage_keep(stage, drifts.value, drifts.npol * drifts.ndishes * sizeof(float));
    return status;
}

/* Normal deviates by Box and Muller: one block of random bits for each input. */
static void draw_drifts(struct gains *g, struct br_stage *stage, const struct gains_params *p)
{
    size_t count = p->npol * p->ndishes;
    double rms = p->drift_rms * 2 * M_PI / 3600;
    g->drift = br_stage_alloc(stage, count * sizeof *g->drift);
    for (size_t i = 0; i < count; i++) {
        uint32_t r[4];
        random_block(p->seed, i, 0, RANDOM_DRIFT, r);
        double u = (r[0] + 1.0) / 4294967296.0, angle = 2 * M_PI * r[1] / 4294967296.0;
        g->drift[i] = (float)(rms * sqrt(-2 * log(u)) * cos(angle));
    }
}

int gains_take(struct gains *gains, struct br_stage *stage, const struct gains_params *p)
{
    *gains = (struct gains){0};
    if (p->drifts_file != NULL && p->drift_rms > 0)
        return br_stage_fail_at(stage, "drifts", "both drifts and drift_rms; expected one of them");
    struct br_gains file;
    const struct br_gains_shape shape = {NULL, p->nchannels, p->nchannels, p->npol, p->ndishes};
    int status = br_stage_gains(stage, p->gains_file, &shape, &file);
    gains->lines = file.nfreq * file.npol;
    gains->gain = file.value;
    if (status != BR_OK) return status;
    if (p->drifts_file != NULL) return take_drifts(gains, stage, p);
    if (p->drift_rms > 0) draw_drifts(gains, stage, p);
    return BR_OK;
}

void gains_rotation(const float *drift, size_t count, double t, float *rotation)
{
    for (size_t i = 0; i < count; i++) {
        double phase = (double)drift[i] * t;
        rotation[2 * i] = (float)cos(phase);
        rotation[2 * i + 1] = (float)sin(phase);
    }
}
