/* grid_run.h - FRB stage 1: cases by chance, for its tests on the CPU and on a GPU. */
#ifndef BEAMRING_TESTS_KERNELS_FRB_GRID_GRID_RUN_H
#define BEAMRING_TESTS_KERNELS_FRB_GRID_GRID_RUN_H

#include "buffers/half.h"
#include "kernels/frb_grid/frb_grid.h"
#include "tests/kernels/common/draws.h"

#include <stdlib.h>
#include <string.h>

struct run {
    size_t T, row, valid_row, cells;
    size_t off_e, off_out; /* bytes, values by which they are moved from their alignment */
    size_t multiple;       /* of which the lengths of calls are multiples; 0: any */
    unsigned phase;
    uint8_t *e, *valid; /* [T][row]; [T][valid_row] or NULL */
    uint16_t *cell;
    float *weights;
    struct br_frb_grid_params params;
};

/* D 0: some number of dishes, spread over the grid; weights: their channels; missing: percent. */
static inline struct run make(size_t T, size_t F, size_t P, unsigned M, unsigned N, size_t D,
                              unsigned downsample, size_t weights, unsigned missing)
{
    size_t cells = (size_t)M * N;
    struct run r = {.T = T, .cells = 4 * cells};
    if (D == 0) D = pick(1, cells);
    r.row = F * P * D + (pick(0, 2) ? pick(0, 20) : 0);
    if (pick(0, 1)) r.row = (r.row + 15) / 16 * 16;
    r.valid_row = F + pick(0, 3);
    r.phase = (unsigned)pick(0, downsample - 1);
    r.cell = malloc(2 * D * sizeof *r.cell);
    uint16_t *order = malloc(cells * sizeof *order);
    for (size_t i = 0; i < cells; i++) order[i] = (uint16_t)i;
    for (size_t d = 0; d < D; d++) {
        size_t other = pick(d, cells - 1);
        uint16_t mine = order[other];
        order[other] = order[d];
        order[d] = mine;
        r.cell[2 * d] = (uint16_t)(mine / N);
        r.cell[2 * d + 1] = (uint16_t)(mine % N);
    }
    free(order);
    r.e = malloc(T * r.row);
    for (size_t i = 0; i < T * r.row; i++) r.e[i] = (uint8_t)dump_random(&seed);
    r.valid = missing ? malloc(T * r.valid_row) : NULL;
    for (size_t i = 0; missing && i < T * r.valid_row; i++)
        r.valid[i] = (uint8_t)(pick(0, 99) < missing ? 0 : pick(0, 2) ? 255 : pick(150, 254));
    r.weights = weights ? malloc(weights * P * D * 2 * sizeof *r.weights) : NULL;
    for (size_t i = 0; i < weights * P * D * 2; i++) r.weights[i] = (float)(60 * uniform() - 30);
    r.params = (struct br_frb_grid_params){.nchannels = F,
                                           .npol = P,
                                           .ndishes = D,
                                           .grid_m = M,
                                           .grid_n = N,
                                           .dish_cell = r.cell,
                                           .weights = r.weights,
                                           .weight_channels = weights,
                                           .downsample = downsample,
                                           .threshold = 0.5};
    r.params.log2_scale = br_frb_grid_log2_scale(&r.params);
    return r;
}

static inline void finish(struct run *r)
{
    free(r->e);
    free(r->valid);
    free(r->cell);
    free(r->weights);
}

static inline void place_in_order(struct run *r, unsigned columns)
{
    for (size_t d = 0; d < r->params.ndishes; d++)
        r->cell[2 * d] = (uint16_t)(d / columns), r->cell[2 * d + 1] = (uint16_t)(d % columns);
}

#endif
