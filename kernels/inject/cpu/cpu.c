/* cpu.c - bursts on a CPU, one line at a time. */
#include "kernels/inject/plan.h"

#include <string.h>

static size_t row_of(const struct br_inject *plan)
{
    return plan->p.nlines * plan->p.ndishes;
}

void br_inject_measure(const struct br_inject *plan, const struct br_inject_frame *frame,
                       const struct br_inject_noise *noise)
{
    size_t inputs = plan->p.npol * plan->p.ndishes, begin = noise->channel * inputs;
    uint32_t *power = br_inject_sums(plan, noise->sums).power + begin;
    for (uint32_t t = 0; t < noise->count; t++) {
        const uint8_t *e = frame->e + (noise->first + t) * row_of(plan) + begin;
        if (!(noise->used[t / 32] >> t % 32 & 1)) continue;
        for (size_t d = 0; d < inputs; d++) {
            int re = ((e[d] & 15) ^ 8) - 8, im = (e[d] >> 4 ^ 8) - 8;
            power[d] += (uint32_t)(re * re + im * im);
        }
    }
}

/* Where the noise of no input is known, nothing is added. */
static void aim(const struct br_inject *plan, const struct br_inject_piece *piece,
                const struct br_inject_input *input, struct inject_factor *factor)
{
    size_t D = plan->p.ndishes;
    const uint32_t *power = br_inject_sums(plan, piece->sums).power + piece->line * D;
    double sum[INJECT_LANES] = {0}, total = 0, alive = 0;
    for (size_t d = 0; d < D; d++) {
        double mean = piece->measured > 0 ? (double)power[d] / piece->measured : 0;
        factor[d].klass = inject_class(plan->tables, mean, input[d].gain);
        if (factor[d].klass == INJECT_CLASSES) continue;
        sum[d % INJECT_LANES] += mean * (double)input[d].gain;
        alive++;
    }
    for (int i = 0; i < INJECT_LANES; i++) total += sum[i];
    double rms = alive > 0 ? sqrt(piece->flux * total / alive / 2) : 0;
    for (size_t d = 0; d < D; d++) {
        factor[d].re = (float)(rms * (double)input[d].re);
        factor[d].im = (float)(rms * (double)input[d].im);
    }
}

/* Adds to `zeros` those in [from, to) of the frame, whose first is bit `at`. */
static void find_zeros(const struct br_inject *plan, const uint8_t *e, size_t from, size_t to, size_t at,
                       uint64_t *zeros)
{
    for (size_t t = from; t < to; t++, at++)
        for (size_t d = 0; d < plan->p.ndishes; d++)
            zeros[d] |= (uint64_t)(e[t * row_of(plan) + d] == 0) << at;
}

/* A sample whose runs of zeros are bit `at` of `gone`. */
static void add_sample(const struct br_inject *plan, const struct br_inject_piece *piece, size_t t,
                       const uint64_t *gone, size_t at, const struct inject_factor *factor, const float z[2],
                       uint64_t *lost, uint8_t *e, uint32_t *clipped)
{
    uint64_t energy = inject_energy(z[0], z[1]);
    uint32_t r[4];
    for (size_t d = 0; d < plan->p.ndishes; d++) {
        if (d % 4 == 0)
            random_block(piece->seed, piece->sample + t, piece->line, RANDOM_DITHER | (uint32_t)(d / 4), r);
        if (gone[d] >> at & 1)
            lost[d] += energy;
        else if (factor[d].klass != INJECT_CLASSES)
            e[d] = (uint8_t)inject_byte(plan->tables, factor[d], e[d], z[0], z[1], r[d % 4], clipped);
    }
}

void br_inject_add(const struct br_inject *plan, unsigned worker, const struct br_inject_frame *frame,
                   const uint8_t *pack, const struct br_inject_piece *piece)
{
    enum { SIDE = INJECT_GONE - 1 };
    const struct inject_scratch *w = &plan->scratch[worker];
    const float *field = (const float *)(const void *)(pack + piece->at);
    const struct br_inject_input *input = (const void *)(field + 2 * (size_t)piece->count);
    struct br_inject_sums sums = br_inject_sums(plan, piece->sums);
    size_t D = plan->p.ndishes, first = piece->first, last = first + piece->count,
           early = first > SIDE ? first - SIDE : 0, read = early;
    uint8_t *e = frame->e + piece->line * D;
    uint32_t clipped = 0;
    aim(plan, piece, input, w->factor);
    memset(w->zeros, 0, D * sizeof *w->zeros);
    for (size_t from = first; from < last; from += INJECT_SEGMENT) {
        size_t to = from + INJECT_SEGMENT < last ? from + INJECT_SEGMENT : last,
               late = to + SIDE < frame->samples ? to + SIDE : frame->samples;
        find_zeros(plan, e, read, late, read + SIDE - from, w->zeros);
        for (size_t d = 0; d < D; d++) w->gone[d] = inject_runs(w->zeros[d]);
        for (size_t t = from; t < to; t++) {
            const float *z = field + 2 * (t - first);
            if (isnan(z[0])) continue;
            add_sample(plan, piece, t - first, w->gone, t - from + SIDE, w->factor, z,
                       sums.lost + piece->line * D, e + t * row_of(plan), &clipped);
        }
        /* The next segment sees the zeros that were there before the burst. */
        for (size_t d = 0; d < D; d++) w->zeros[d] >>= INJECT_SEGMENT;
        read = late;
    }
    __atomic_fetch_add(sums.clipped, clipped, __ATOMIC_RELAXED);
}
