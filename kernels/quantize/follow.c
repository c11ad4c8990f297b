#include "kernels/quantize/follow.h"

#include <stdlib.h>
#include <string.h>

int br_follow_clock_create(struct br_follow_clock *clock, size_t nchannels, size_t steps, double constant)
{
    clock->steps = steps;
    clock->least = br_follow_least(steps);
    clock->constant = constant;
    clock->nchannels = nchannels;
    clock->seen = calloc(nchannels, sizeof *clock->seen);
    clock->idle = calloc(nchannels, sizeof *clock->idle);
    return clock->seen && clock->idle ? 0 : -1;
}

void br_follow_clock_free(struct br_follow_clock *clock)
{
    free(clock->seen);
    free(clock->idle);
    clock->seen = clock->idle = NULL;
}

void br_follow_clock_reset(struct br_follow_clock *clock)
{
    memset(clock->seen, 0, clock->nchannels * sizeof *clock->seen);
}

struct br_follow_step br_follow_tick(struct br_follow_clock *clock, size_t f, size_t count)
{
    double *seen = &clock->seen[f], n = (double)count, c = clock->constant;
    clock->idle[f] = count > 0 ? 0 : clock->idle[f] + (double)clock->steps;
    if (clock->idle[f] > c) *seen = 0;
    struct br_follow_step step = {.first = *seen <= 0};
    if (count == 0 || (*seen <= 0 && count < clock->least)) return (struct br_follow_step){0};
    double rest = exp(-n / c), level = 1 - rest * rest, young = n / (*seen + n);
    step.near = (float)(16 * (1 / n + 2 / fmax(*seen, n)));
    step.again = *seen < c ? step.near : step.near / 4;
    step.noisy = (float)(1 + 6 * sqrt(2 / n));
    step.unbias = count > 1 ? (float)(n / (n - 1)) : 0;
    step.share = (float)(n / c);
    if (*seen > 0) {
        step.level = (float)(level > young ? level : young);
        step.noise = count > 1 ? step.level : 0;
        if (*seen >= c) step.trend = (float)(2 * (1 - rest) * (1 - rest));
    }
    /* From there on the weights stay what they are, and channels that lacked samples are like the others
     * again. */
    *seen = fmin(*seen + n, 4 * c);
    return step;
}
