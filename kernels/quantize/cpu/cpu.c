/* The quantizer, BEAMS beams of a channel at a time: two passes over time for mean and variance, and one that
 * makes the levels and transposes them from [time][beam] to [beam][time].
 *
 * Sums are of differences from the first valid sample, so that a constant block is exactly constant and a
 * large mean costs no precision; they are closed every STEPS samples. */
#include "kernels/common/cpu.h"
#include "buffers/half.h"
#include "kernels/quantize/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Variances: where a mean is so far from its pivot, its square costs too many digits. */
static const float FAR = 4;

/* The loops over beams, compiled twice. */
struct quantize_loops {
    /* With d = x - about: sum += d, squares += d^2. */
    void (*add)(float *restrict sum, float *restrict squares, const float *restrict x,
                const float *restrict about, size_t count);
    /* most = max(most, x) */
    void (*raise)(float *restrict most, const float *restrict x, size_t count);
    /* levels = code of round((x - offset) / divisor), clamped; clamped += 1 where it was */
    void (*round)(uint8_t *restrict levels, int32_t *restrict clamped, const float *restrict x,
                  const float *restrict offset, const float *restrict divisor, float most, int bias,
                  size_t count);
};

static inline void add_up(float *restrict sum, float *restrict squares, const float *restrict x,
                          const float *restrict about, size_t count)
{
    for (size_t b = 0; b < count; b++) {
        float d = x[b] - about[b];
        sum[b] += d;
        squares[b] += d * d;
    }
}

static inline void raise_most(float *restrict most, const float *restrict x, size_t count)
{
    for (size_t b = 0; b < count; b++) most[b] = x[b] > most[b] ? x[b] : most[b];
}

static inline void round_levels(uint8_t *restrict levels, int32_t *restrict clamped, const float *restrict x,
                                const float *restrict offset, const float *restrict divisor, float most,
                                int bias, size_t count)
{
    /* Adding it leaves an integer, rounded half to even by the addition itself. */
    const float magic = 0x1.8p23f;
    for (size_t b = 0; b < count; b++) {
        float v = (x[b] - offset[b]) / divisor[b];
        v = v < 1000 ? v : 1000; /* so that the addition works; also makes what is not a number one */
        v = v > -1000 ? v : -1000;
        v = (v + magic) - magic;
        clamped[b] += (v > most) | (v < -most);
        v = v < most ? v : most;
        v = v > -most ? v : -most;
        levels[b] = (uint8_t)((int)v + bias);
    }
}

#define LOOPS(name, attribute)                                                                               \
    attribute static void add_##name(float *restrict s, float *restrict q, const float *restrict x,          \
                                     const float *restrict a, size_t n)                                      \
    {                                                                                                        \
        add_up(s, q, x, a, n);                                                                               \
    }                                                                                                        \
    attribute static void raise_##name(float *restrict m, const float *restrict x, size_t n)                 \
    {                                                                                                        \
        raise_most(m, x, n);                                                                                 \
    }                                                                                                        \
    attribute static void round_##name(uint8_t *restrict l, int32_t *restrict c, const float *restrict x,    \
                                       const float *restrict o, const float *restrict d, float most,         \
                                       int bias, size_t n)                                                   \
    {                                                                                                        \
        round_levels(l, c, x, o, d, most, bias, n);                                                          \
    }                                                                                                        \
    static const struct quantize_loops loops_##name = {add_##name, raise_##name, round_##name};

LOOPS(generic, )
#if BR_X86_64
LOOPS(avx2, __attribute__((target("avx2"))))
#endif

static int make_scratch(struct quantize_scratch *s)
{
    s->row = calloc(9 * BEAMS, sizeof *s->row);
    s->clamped = calloc(BEAMS, sizeof *s->clamped);
    s->levels = calloc(STEPS, BEAMS);
    if (!s->row || !s->clamped || !s->levels) return -1;
    s->pivot = s->row + BEAMS;
    s->partial = s->pivot + BEAMS;
    s->sum = s->partial + 2 * BEAMS;
    s->squares = s->sum + BEAMS;
    s->offset = s->squares + BEAMS;
    s->divisor = s->offset + BEAMS;
    s->most = s->divisor + BEAMS;
    return 0;
}

int br_quantize_cpu_create(struct br_quantize *plan)
{
    unsigned workers = br_parallel_workers(&plan->parallel);
    plan->scratch = calloc(workers, sizeof *plan->scratch);
    if (!plan->scratch) return -1;
    plan->nscratch = workers;
    for (unsigned i = 0; i < workers; i++)
        if (make_scratch(&plan->scratch[i]) != 0) return -1;
    plan->loops = &loops_generic;
#if BR_X86_64
    if (br_cpu_has_avx2()) plan->loops = &loops_avx2;
#endif
    return 0;
}

void br_quantize_cpu_destroy(struct br_quantize *plan)
{
    for (unsigned i = 0; i < plan->nscratch; i++) {
        free(plan->scratch[i].row);
        free(plan->scratch[i].clamped);
        free(plan->scratch[i].levels);
    }
    free(plan->scratch);
}

/* A chunk of beams of one channel. */
struct chunk {
    const uint16_t *in; /* first beam at the first step */
    const uint8_t *valid;
    size_t beams;
    struct br_follow *state;           /* [beams] and */
    const struct br_follow_step *step; /* with slow statistics */
};

/* sum and squares of the differences from `about` over the valid ones of steps [from, last); raises `most`
 * unless it is NULL. Returns how many are valid. */
static size_t sum_up(const struct br_quantize *plan, struct quantize_scratch *s, const struct chunk *c,
                     const float *about, float *most, size_t from, size_t last)
{
    size_t count = 0;
    memset(s->sum, 0, c->beams * sizeof *s->sum);
    memset(s->squares, 0, c->beams * sizeof *s->squares);
    for (size_t start = from; start < last; start += STEPS) {
        size_t end = last - start < STEPS ? last : start + STEPS;
        memset(s->partial, 0, 2 * BEAMS * sizeof *s->partial);
        for (size_t t = start; t < end; t++) {
            if (c->valid && !c->valid[t]) continue;
            br_half_to_float_array(s->row, c->in + t * plan->nbeams, c->beams);
            plan->loops->add(s->partial, s->partial + BEAMS, s->row, about, c->beams);
            if (most) plan->loops->raise(most, s->row, c->beams);
            count++;
        }
        for (size_t b = 0; b < c->beams; b++) {
            s->sum[b] += s->partial[b];
            s->squares[b] += s->partial[BEAMS + b];
        }
    }
    return count;
}

/* The state of the chunk's beams at the first block of their channel; pivot: about the mean. */
static void begin(const struct br_quantize *plan, struct quantize_scratch *s, const struct chunk *c)
{
    struct br_follow_parts parts[BEAMS];
    size_t T = plan->block, n = br_follow_count(T);
    memset(parts, 0, c->beams * sizeof *parts);
    for (size_t part = 0; part < n; part++) {
        size_t from = (part * T + n - 1) / n, end = ((part + 1) * T + n - 1) / n;
        size_t count = sum_up(plan, s, c, s->pivot, NULL, from, end);
        for (size_t b = 0; b < c->beams; b++)
            br_follow_part(&parts[b], s->pivot[b], s->sum[b], s->squares[b], (unsigned)count);
    }
    for (size_t b = 0; b < c->beams; b++) br_follow_begin(&c->state[b], &parts[b]);
}

/* Mean and mean square of the differences from it, per beam, in offset and squares; raises `most` on the way.
 * pivot: an expected mean. Where one is far from the mean, differences are from about the mean, which as a
 * float16 is exactly that of a constant. */
static void find_moments(const struct br_quantize *plan, struct quantize_scratch *s, const struct chunk *c,
                         float *most)
{
    bool far = false;
    float n = (float)sum_up(plan, s, c, s->pivot, most, 0, plan->block);
    for (int again = 0; again < 2; again++) {
        for (size_t b = 0; b < c->beams; b++) {
            float mean = s->sum[b] / n, square = s->squares[b] / n - mean * mean;
            far = far || !(mean * mean <= FAR * square);
            s->offset[b] = s->pivot[b] + mean;
            s->squares[b] = square > 0 ? square : 0;
        }
        if (!far || again > 0) return;
        for (size_t b = 0; b < c->beams; b++)
            s->pivot[b] = br_half_to_float(br_half_from_float(s->offset[b]));
        sum_up(plan, s, c, s->pivot, NULL, 0, plan->block);
    }
}

/* offset and divisor of every beam of the chunk from what earlier blocks say, and its side. first: the first
 * valid step. */
static void slow_statistics(const struct br_quantize *plan, struct quantize_scratch *s, const struct chunk *c,
                            size_t first, float *side, size_t side_stride)
{
    float *most = plan->bits == 4 ? s->most : NULL, levels_rms = (float)plan->levels_rms;
    br_half_to_float_array(s->pivot, c->in + first * plan->nbeams, c->beams);
    for (size_t b = 0; most && b < c->beams; b++) most[b] = -INFINITY;
    if (c->step->first > 0) begin(plan, s, c);
    for (size_t b = 0; b < c->beams; b++)
        if (c->state[b].variance > 0) s->pivot[b] = c->state[b].expected;
    find_moments(plan, s, c, most);
    for (size_t b = 0; b < c->beams; b++) {
        struct br_follow *state = &c->state[b];
        bool known = state->variance > 0;
        float mean = s->offset[b], square = s->squares[b];
        float offset = known ? state->expected : mean,
              scale = sqrtf(known ? state->variance : square) / levels_rms;
        if (most && scale > 0 && most[b] - offset > 7 * scale) scale = (most[b] - offset) / 7;
        br_follow_block(state, c->step, mean, square);
        s->offset[b] = side[b * side_stride + 1] = offset;
        s->divisor[b] = scale > 0 ? scale : 1;
        side[b * side_stride] = scale;
    }
}

/* offset and divisor of every beam of the chunk, and its side. */
static void statistics(const struct br_quantize *plan, struct quantize_scratch *s, const struct chunk *c,
                       float *side, size_t side_stride)
{
    size_t first = 0, count = 0;
    for (size_t t = plan->block; t-- > 0;)
        if (!c->valid || c->valid[t]) {
            first = t;
            count++;
        }
    if (count == 0) {
        for (size_t b = 0; b < c->beams; b++) side[b * side_stride] = side[b * side_stride + 1] = 0;
        return;
    }
    if (plan->slow) {
        slow_statistics(plan, s, c, first, side, side_stride);
        return;
    }
    br_half_to_float_array(s->pivot, c->in + first * plan->nbeams, c->beams);
    sum_up(plan, s, c, s->pivot, NULL, 0, plan->block);
    for (size_t b = 0; b < c->beams; b++) s->offset[b] = s->pivot[b] + s->sum[b] / (float)count;
    sum_up(plan, s, c, s->offset, NULL, 0, plan->block);
    for (size_t b = 0; b < c->beams; b++) {
        /* A first value far from the others left an error in the mean, which the second pass finds. */
        float error = s->sum[b] / (float)count, variance = s->squares[b] / (float)count - error * error;
        float scale = sqrtf(variance > 0 ? variance : 0) / (float)plan->levels_rms;
        s->offset[b] += error;
        s->divisor[b] = scale > 0 ? scale : 1; /* a constant block: all differences are 0 */
        side[b * side_stride] = scale;
        side[b * side_stride + 1] = s->offset[b];
    }
}

/* Steps [start, end) from [time][beam] to rows of `out`, packed two in a byte for 4 bits. */
static void transpose(const struct br_quantize *plan, const struct quantize_scratch *s, size_t beams,
                      size_t start, size_t end, uint8_t *out, size_t out_stride)
{
    size_t steps = end - start;
    for (size_t b = 0; b < beams; b++) {
        const uint8_t *from = s->levels + b;
        if (plan->bits == 8) {
            uint8_t *to = out + b * out_stride + start;
            for (size_t t = 0; t < steps; t++) to[t] = from[t * BEAMS];
        } else {
            uint8_t *to = out + b * out_stride + start / 2;
            for (size_t t = 0; t < steps / 2; t++)
                to[t] = (uint8_t)((from[2 * t * BEAMS] & 15) | from[(2 * t + 1) * BEAMS] << 4);
        }
    }
}

/* One block of all channels. */
struct work {
    const struct br_quantize *plan;
    const uint16_t *in;
    size_t in_stride;
    const uint8_t *in_valid;
    uint8_t *out;
    float *side;
    size_t chunks; /* of beams, of a channel */
};

static void do_chunk(void *arg, size_t job, unsigned worker)
{
    const struct work *work = arg;
    const struct br_quantize *plan = work->plan;
    struct quantize_scratch *s = &plan->scratch[worker];
    size_t F = plan->nchannels, B = plan->nbeams, T = plan->block, row = plan->bits == 8 ? T : T / 2;
    size_t f = job / work->chunks, first = job % work->chunks * BEAMS;
    float most = plan->bits == 8 ? 127 : 7;
    struct chunk c = {.in = work->in + f * work->in_stride * B + first,
                      .valid = work->in_valid ? work->in_valid + f * work->in_stride : NULL,
                      .beams = B - first < BEAMS ? B - first : BEAMS,
                      .state = plan->slow ? plan->state + f * B + first : NULL,
                      .step = plan->slow ? plan->step + f : NULL};
    statistics(plan, s, &c, work->side + (first * F + f) * 2, F * 2);
    memset(s->clamped, 0, c.beams * sizeof *s->clamped);
    for (size_t start = 0; start < T; start += STEPS) {
        size_t end = T - start < STEPS ? T : start + STEPS;
        for (size_t t = start; t < end; t++) {
            uint8_t *levels = s->levels + (t - start) * BEAMS;
            if (c.valid && !c.valid[t]) {
                memset(levels, (int)missing_code(plan->bits), c.beams);
                continue;
            }
            br_half_to_float_array(s->row, c.in + t * B, c.beams);
            plan->loops->round(levels, s->clamped, s->row, s->offset, s->divisor, most,
                               plan->bits == 8 ? 128 : 0, c.beams);
        }
        transpose(plan, s, c.beams, start, end, work->out + (first * F + f) * row, F * row);
    }
    for (size_t b = 0; b < c.beams; b++) s->all_clamped += (uint64_t)s->clamped[b];
}

uint64_t br_quantize_cpu(struct br_quantize *plan, const uint16_t *in, size_t in_stride,
                         const uint8_t *in_valid, uint8_t *out, float *side)
{
    struct work work = {plan, in, in_stride, in_valid, out, side, (plan->nbeams + BEAMS - 1) / BEAMS};
    br_parallel_for(&plan->parallel, plan->nchannels * work.chunks, do_chunk, &work);
    uint64_t clamped = 0;
    for (unsigned i = 0; i < plan->nscratch; i++) {
        clamped += plan->scratch[i].all_clamped;
        plan->scratch[i].all_clamped = 0;
    }
    return clamped;
}
