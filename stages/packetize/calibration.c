#include "stages/packetize/calibration.h"
#include "buffers/half.h"
#include "stages/packetize/level_sums.h"

#include <math.h>
#include <stdlib.h>

/* The last weight of a cell with so many valid levels: most weigh the same, and an exponential takes longer
 * than all the rest. */
struct calibration_weight {
    double seen, then; /* samples before and after; seen < 0: never */
    struct br_follow_step step;
};

int calibration_create(struct calibration *c)
{
    size_t cells = c->nbeams * c->nchannels;
    c->state = calloc(cells, sizeof *c->state);
    size_t workers = br_parallel_workers(&c->parallel), weights = workers * (c->steps + 1);
    c->row = calloc(workers * 2 * c->nchannels, sizeof *c->row);
    c->weight = calloc(weights, sizeof *c->weight);
    for (size_t i = 0; c->weight && i < weights; i++) c->weight[i].seen = -1;
    if (!c->weight || br_follow_clock_create(&c->clock, cells, c->steps, c->follow) != 0) return -1;
    return c->state && c->row ? 0 : -1;
}

void calibration_free(struct calibration *c)
{
    br_follow_clock_free(&c->clock);
    free(c->state);
    free(c->weight);
    free(c->row);
}

static float in_half(float value)
{
    value = value < BR_HALF_MAX ? value : BR_HALF_MAX;
    return value > -BR_HALF_MAX ? value : -BR_HALF_MAX;
}

static inline const struct br_follow_step *weigh(struct calibration *c, unsigned worker, size_t cell,
                                                 int count)
{
    struct calibration_weight *w = &c->weight[worker * (c->steps + 1) + (size_t)count];
    double *seen = &c->clock.seen[cell];
    if (w->seen != *seen) {
        w->seen = *seen;
        w->step = br_follow_tick(&c->clock, cell, (size_t)count);
        w->then = *seen;
    }
    *seen = w->then;
    return &w->step;
}

/* The state at the first minichunk. */
static void begin(const struct calibration *c, const uint8_t *levels, struct br_follow *state, float scale,
                  float offset)
{
    struct br_follow_parts parts = {.means = 0};
    size_t bytes = c->steps / 2, n = br_follow_count(c->steps);
    for (size_t part = 0; part < n; part++) {
        size_t from = part * bytes / n, end = (part + 1) * bytes / n;
        struct level_sums s = level_sums(levels + from, end - from);
        br_follow_part(&parts, offset, scale * (float)s.sum, scale * scale * (float)s.squares,
                       (unsigned)s.count);
    }
    br_follow_begin(state, &parts);
}

typedef struct level_sums sums_of(const uint8_t *packed, size_t bytes);

/* scale and offset of the wire, of a cell with a scale. */
static inline void calibrate_cell(struct calibration *c, unsigned worker, size_t cell, const uint8_t *levels,
                                  const float *side, float deviation, float *wire, sums_of *sums)
{
    struct br_follow *state = &c->state[cell];
    /* A constant for the compiler, in frb-node's minichunks. */
    struct level_sums s = c->steps == 256 ? sums(levels, 128) : sums(levels, c->steps / 2);
    float scale = side[0], offset = side[1], n = s.count > 0 ? (float)s.count : 1;
    float level = (float)s.sum / n, mean = offset + scale * level,
          square = scale * scale * ((float)s.squares / n - level * level), expected = mean, variance = square;
    if (c->follow > 0) {
        const struct br_follow_step *step = weigh(c, worker, cell, s.count);
        if (step->first > 0) begin(c, levels, state, scale, offset);
        if (state->variance > 0) {
            expected = state->expected;
            variance = state->variance;
        }
        br_follow_block(state, step, mean, square > 0 ? square : 0);
    }
    float k = variance > 0 ? deviation / sqrtf(variance) : 0;
    wire[0] = in_half(scale * k);
    wire[1] = in_half((offset - expected) * k);
}

/* A call's minichunk, and the beams that are a job. */
struct minichunk {
    struct calibration *c;
    const uint8_t *levels;
    const float *side;
    uint16_t *wire;
    size_t beams; /* of a job */
};

static inline void calibrate_beams(const struct minichunk *m, size_t job, unsigned worker, sums_of *sums)
{
    struct calibration *c = m->c;
    float *row = c->row + worker * 2 * c->nchannels;
    size_t end = (job + 1) * m->beams < c->nbeams ? (job + 1) * m->beams : c->nbeams;
    for (size_t b = job * m->beams; b < end; b++) {
        for (size_t f = 0; f < c->nchannels; f++) {
            size_t cell = b * c->nchannels + f;
            row[2 * f] = row[2 * f + 1] = 0;
            if (m->side[2 * cell] > 0)
                calibrate_cell(c, worker, cell, m->levels + cell * c->steps / 2, m->side + 2 * cell,
                               c->deviation[f], row + 2 * f, sums);
        }
        br_half_from_float_array(m->wire + 2 * b * c->nchannels, row, 2 * c->nchannels);
    }
}

static void calibrate_plain(void *arg, size_t job, unsigned worker)
{
    calibrate_beams(arg, job, worker, level_sums_plain);
}

#if BR_X86_64
/* The same numbers: fmaf is exact with and without the instruction. */
__attribute__((target("avx2,fma"), flatten)) static void calibrate_avx2(void *arg, size_t job,
                                                                        unsigned worker)
{
    calibrate_beams(arg, job, worker, level_sums_avx2);
}
#endif

void calibrate(struct calibration *c, const uint8_t *levels, const float *side, uint16_t *wire)
{
    size_t jobs = 4 * br_parallel_workers(&c->parallel);
    struct minichunk m = {c, levels, side, wire, (c->nbeams + jobs - 1) / jobs};
    br_parallel_work *work = calibrate_plain;
#if BR_X86_64
    if (br_cpu_has_avx2() && br_cpu_has_fma()) work = calibrate_avx2;
#endif
    br_parallel_for(&c->parallel, (c->nbeams + m.beams - 1) / m.beams, work, &m);
}
