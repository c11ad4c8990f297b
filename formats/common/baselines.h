/* baselines.h - how the baselines of visibilities V[time][freq][baseline] are numbered.
 *
 * An input is number pol x dishes + dish. With N inputs, baselines stand row after row of the upper triangle:
 * (0, 0) (0, 1) ... (0, N-1) (1, 1) (1, 2) ...; with autocorrelations alone baseline i is (i, i). */
#ifndef BEAMRING_FORMATS_COMMON_BASELINES_H
#define BEAMRING_FORMATS_COMMON_BASELINES_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>

struct baselines {
    size_t ndishes, npol, ninputs;
    bool autos; /* each input with itself alone */
};

/* What `count` baselines of `ndishes` dishes are; `npol` is 1, 2 or 0: to be found out. Errors:
 * BR_E_INVALID where no number of polarisations gives so many baselines, or two do. */
int baselines_find(struct baselines *baselines, size_t count, size_t ndishes, size_t npol,
                   struct br_error *error);

/* The number of baseline (i, j), i <= j; i == j with autocorrelations alone. */
static inline size_t baselines_index(const struct baselines *b, size_t i, size_t j)
{
    return b->autos ? i : i * b->ninputs - i * (i + 1) / 2 + j;
}

#endif
