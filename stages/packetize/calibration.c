#include "stages/packetize/calibration.h"
#include "kernels/common/half.h"
#include "stages/packetize/level_sums.h"

#include <math.h>
#include <stdlib.h>

/* What a cell with so many valid levels weighed last: most weigh the same, and an exponential takes longer
 * than all the rest. */
struct calibration_weight {
    double seen, then; /* samples before and after; seen < 0: never */
    struct br_follow_step step;
};

int calibration_create(struct calibration *c)
{
    size_t cells = c->nbeams * c->nchannels;
    c->state = calloc(cells, sizeof *c->state);
    c->row = calloc(2 * c->nchannels, sizeof *c->row);
    c->weight = calloc(c->steps + 1, sizeof *c->weight);
    for (size_t i = 0; c->weight && i <= c->steps; i++) c->weight[i].seen = -1;
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

static inline const struct br_follow_step *weigh(struct calibration *c, size_t cell, int count)
{
    struct calibration_weight *w = &c->weight[count];
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
static inline void calibrate_cell(struct calibration *c, size_t cell, const uint8_t *levels,
                                  const float *side, float deviation, float *wire, sums_of *sums)
{
    struct br_follow *state = &c->state[cell];
    /* A constant for the compiler, in frb-node's minichunks. */
    struct level_sums s = c->steps == 256 ? sums(levels, 128) : sums(levels, c->steps / 2);
    float scale = side[0], offset = side[1], n = s.count > 0 ? (float)s.count : 1;
    float level = (float)s.sum / n, mean = offset + scale * level,
          square = scale * scale * ((float)s.squares / n - level * level), expected = mean, variance = square;
    if (c->follow > 0) {
        const struct br_follow_step *step = weigh(c, cell, s.count);
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

static inline void calibrate_all(struct calibration *c, const uint8_t *levels, const float *side,
                                 uint16_t *wire, sums_of *sums)
{
    for (size_t b = 0; b < c->nbeams; b++) {
        for (size_t f = 0; f < c->nchannels; f++) {
            size_t cell = b * c->nchannels + f;
            c->row[2 * f] = c->row[2 * f + 1] = 0;
            if (side[2 * cell] > 0)
                calibrate_cell(c, cell, levels + cell * c->steps / 2, side + 2 * cell, c->deviation[f],
                               c->row + 2 * f, sums);
        }
        br_half_from_float_array(wire + 2 * b * c->nchannels, c->row, 2 * c->nchannels);
    }
}

#if BR_X86_64
/* The same numbers: fmaf is exact with and without the instruction. */
__attribute__((target("avx2,fma"), flatten)) static void
calibrate_avx2(struct calibration *c, const uint8_t *levels, const float *side, uint16_t *wire)
{
    calibrate_all(c, levels, side, wire, level_sums_avx2);
}
#endif

void calibrate(struct calibration *c, const uint8_t *levels, const float *side, uint16_t *wire)
{
#if BR_X86_64
    if (br_cpu_has_avx2() && br_cpu_has_fma()) {
        calibrate_avx2(c, levels, side, wire);
        return;
    }
#endif
    calibrate_all(c, levels, side, wire, level_sums_plain);
}
