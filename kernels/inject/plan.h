/* plan.h - what the implementations of inject share. */
#ifndef BEAMRING_KERNELS_INJECT_PLAN_H
#define BEAMRING_KERNELS_INJECT_PLAN_H

#include "kernels/inject/dither.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The memory of one thread. */
struct inject_scratch {
    uint64_t *zeros, *gone;       /* [dish] of a segment and its sides; runs of them */
    struct inject_factor *factor; /* [dish] */
};

struct br_inject {
    struct br_inject_params p;
    enum br_backend backend;
    struct inject_tables *tables;   /* host; on a GPU device memory */
    struct inject_scratch *scratch; /* [nworkers] */
    uint8_t *side;                  /* GPU: [segment][dish] zeros before (low nibble) and after it */
    uint8_t *carry;                 /* GPU: [line][dish] zeros at the end of the line's last piece */
};

/* Bytes of `pack` of a call, and pieces. */
size_t inject_room(const struct br_inject_params *p);
size_t inject_side_bytes(const struct br_inject_params *p);
enum { INJECT_MOST = 2048 };

#ifdef __cplusplus
}
#endif
#endif
