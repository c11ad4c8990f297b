/* closeness.h - how far float16 values are from those that they should be. For the C files that include it
 * after cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_CLOSENESS_H
#define BEAMRING_TESTS_KERNELS_COMMON_CLOSENESS_H

#include "buffers/half.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct closeness {
    double sum, error; /* of squares */
    double worst;
    size_t count;
};

/* Adds `count` values a[i], which should be b[i]. All must be finite. Differences of up to `spared` x b[i]
 * are not looked at for the worst one. */
static inline void closeness_add(struct closeness *c, const uint16_t *a, const uint16_t *b, size_t count,
                                 double spared)
{
    for (size_t i = 0; i < count; i++) {
        double x = (double)br_half_to_float(a[i]), y = (double)br_half_to_float(b[i]);
        assert_true(isfinite(x) && isfinite(y));
        c->sum += y * y;
        c->error += (x - y) * (x - y);
        if (fabs(x - y) > fabs(y) * spared && fabs(x - y) > c->worst) c->worst = fabs(x - y);
    }
    c->count += count;
}

static inline double closeness_rms(const struct closeness *c)
{
    return sqrt(c->sum / (double)c->count);
}

/* The rms error, relative to the rms. */
static inline double closeness_error(const struct closeness *c)
{
    return c->sum > 0 ? sqrt(c->error / c->sum) : 0;
}

/* The normative tolerance: 2e-3 relative rms, no element off by more than 2 % of the rms. */
static inline bool closeness_suffices(const struct closeness *c)
{
    return closeness_error(c) <= 2e-3 && c->worst <= 0.02 * closeness_rms(c);
}

#endif
