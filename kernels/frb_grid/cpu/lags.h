/* lags.h - FRB stage 1 on the CPU for small grids: the autocorrelation of the field, summed over a block, and
 * one transform of it. See lags.c. */
#ifndef BEAMRING_KERNELS_FRB_GRID_CPU_LAGS_H
#define BEAMRING_KERNELS_FRB_GRID_CPU_LAGS_H

#include "kernels/frb_grid/frb_grid.h"

#include <fftw3.h>
#include <stdbool.h>

struct br_frb_grid;
struct frb_grid_part;

/* Lanes that are multiplied at once, at least; of which a row's width is a multiple; samples that are summed
 * at a time: 16 bits take 136 times two products of 15 by 8. */
enum { FRB_GRID_LANES = 8, FRB_GRID_ROW = 4, FRB_GRID_PIECE = 48 };

/* A block that is not finished, of one channel. */
struct frb_grid_lags {
    uint8_t *samples; /* [piece, or one more][P][lanes]: int4x2 to be summed; 0 from `filled` on */
    unsigned filled;
    /* [M][pitch]: the autocorrelation at (m, n - (N - 1)) of all before; of m = 0 only from n = N - 1 on */
    float *re, *im;
};

/* The memory of one worker. Samples stand in pairs, the last one's partner may be 0. */
struct frb_grid_lag_scratch {
    uint8_t *u;          /* [P][pairs][lanes][(re, im) of one sample, of the next]: values plus 8 */
    int8_t *x, *y;       /* the same: (re, im); (im, -re) */
    int32_t *x_off;      /* [P][lanes]: -8 times the sum of x */
    int32_t *y_off;      /* of y */
    float *re, *im;      /* [lanes]: products of one dish with others, weighted */
    fftwf_complex *half; /* [2N][M + 1] */
    float *image;        /* [2N][2M] */
};

/* Dishes of one row of the grid: `width` lanes for its cells from n on. */
struct frb_grid_row {
    unsigned m, n;
    size_t lane, width;
};

struct frb_grid_dish {
    size_t dish, lane;
    const struct frb_grid_row *row;
};

/* 8, 4 or 1 dishes next to each other in the input, and on the grid. */
struct frb_grid_run {
    size_t dish, lane, count;
};

/* A dish, by its lane, and what its products need. Without weights all samples are of one polarisation: their
 * products have one sum. */
struct frb_grid_products {
    const struct frb_grid_lag_scratch *s;
    const float *weights;     /* [npol][re, im][lanes], or NULL: all are 1 */
    size_t npol, lanes, used; /* as in the plan */
    size_t lane, from; /* the dish's; the first that is multiplied with it, a multiple of FRB_GRID_LANES */
    size_t skip;       /* places of the dish's own row that are not added, a multiple of FRB_GRID_ROW */
    unsigned pairs;
};

/* The inner loops, for any processor or for some. All make the same bits, but for the sign of a zero:
 * integers are exact, and no product is fused with a sum. */
struct frb_grid_lag_loops {
    /* u, x, y and what u has too much. */
    void (*spread)(const struct frb_grid_lag_scratch *s, const uint8_t *samples, size_t npol, size_t lanes,
                   unsigned pairs);
    /* To s->re and s->im, of lanes [from, used). */
    void (*multiply)(const struct frb_grid_products *p);
    /* Adds them to the lags: those of row r to the lags' row r->m - row->m, from its place r->n + shift on;
     * `row` is the dish's own. */
    void (*add)(const struct frb_grid_products *p, const struct frb_grid_row *row,
                const struct frb_grid_row *end, float *re, float *im, size_t pitch, size_t shift);
};

/* lags_avx2.c */
extern const struct frb_grid_lag_loops br_frb_grid_lag_avx2;

struct frb_grid_lag_plan {
    unsigned piece;             /* samples that are summed at a time */
    size_t used, lanes;         /* that hold dishes, in FRB_GRID_LANES; that are stored, in twice as many */
    size_t nrows, pitch;        /* of lags: 2N - 1, and room for what a row's last vector adds: zeros */
    struct frb_grid_row *row;   /* [nrows], by m */
    struct frb_grid_dish *dish; /* [D], by lane */
    struct frb_grid_run *run;   /* [nruns], by lane */
    size_t nruns;
    fftwf_plan transform;
    const struct frb_grid_lag_loops *loops;
};

/* Whether it is faster than transforming every sample; `dish_cell` is [D][2] = (m, n). */
bool br_frb_grid_lags_pay(const struct br_frb_grid *plan, const uint16_t *dish_cell);

/* Bytes of a plan without its weights; of `plan` the shape is looked at. */
size_t br_frb_grid_lags_bytes(const struct br_frb_grid *plan, const uint16_t *dish_cell, size_t workers);

/* Makes plan->by_lags and the weights of its lanes; -1 if memory runs out; destroy frees
 * the rest. */
int br_frb_grid_lag_plan_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params);
void br_frb_grid_lag_plan_destroy(struct br_frb_grid *plan);

/* `count` channels without a sample; NULL: no memory. */
struct frb_grid_lags *br_frb_grid_lags_create(const struct br_frb_grid *plan, size_t count);
void br_frb_grid_lags_destroy(struct frb_grid_lags *lags, size_t count);

/* NULL: no memory. */
struct frb_grid_lag_scratch *br_frb_grid_lag_scratch_create(const struct br_frb_grid *plan);
void br_frb_grid_lag_scratch_destroy(struct frb_grid_lag_scratch *scratch);

/* As br_frb_grid_cpu_add. */
uint64_t br_frb_grid_lags_add(const struct br_frb_grid *plan, const struct frb_grid_lag_scratch *scratch,
                              struct frb_grid_lags *lags, const struct frb_grid_part *part);

/* The sums over the block that has ended, [2N][2M] in the scratch, NULL where the image is not wanted; `lags`
 * are empty then. */
const float *br_frb_grid_lags_finish(const struct br_frb_grid *plan,
                                     const struct frb_grid_lag_scratch *scratch, struct frb_grid_lags *lags,
                                     size_t f, bool wanted);

#endif
