/* plan.h - inside the polyphase filterbank.
 *
 * A call is cut into chunks of blocks (a block is U input steps, one output step). Channels and spectators
 * are treated alike by the filter, so that the fast path sees them as one row of F X samples. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_PLAN_H
#define BEAMRING_KERNELS_UPCHANNELIZE_PLAN_H

#include "kernels/upchannelize/upchannelize.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Samples of a row filtered together, and copied together (a cache line of input). */
enum { LANES = 8, TILE = 64 };

/* The filter in float32; transform.h says how the parts are used. */
struct upchannelize_filter {
    unsigned U, M;
    float *taps;        /* U >= 4: [U/4][M][4]; U = 2: [M][2] */
    float *first;       /* [U/4][4][2] */
    float *later;       /* [n/4][3][2] for n = U/4, U/16, ... while n > 4 */
    float *gain;        /* [U] */
    uint16_t *position; /* [U]: where the transform leaves fine channel u */
};

/* Most plans whose jobs go together. */
enum { UPCHANNELIZE_TOGETHER = 8 };

/* Some blocks of a call. */
struct upchannelize_job {
    const uint8_t *e; /* of the whole call */
    size_t row;
    size_t first, blocks;   /* within the call */
    const uint8_t *missing; /* [blocks][F]: these outputs are missing; NULL (only with BR_CUDA): none is */
    uint8_t *out;           /* of the whole call */
    /* cuda */
    uint64_t at; /* the call's first block, counted from the start of the stream */
    bool last;   /* of the call */
    bool early;  /* does not depend on the launch before it, and may begin before that has ended */
};

/* The memory of one worker on the CPU: a tile of some blocks, [part] of them. */
struct upchannelize_scratch {
    uint8_t *rows;    /* [(M-1 + part) U][TILE] */
    float *field;     /* [(M-1 + part) U][re, im][LANES] */
    float *spectrum;  /* [U][re, im][LANES] */
    uint8_t *packed;  /* [part][U][TILE] */
    uint8_t *keep;    /* [part][TILE]: 255 where the output is wanted and not missing, else 0 */
    uint64_t clamped; /* components, since they were asked for */
};

struct br_upchannelize {
    enum br_backend backend;
    size_t nchannels, nspectators; /* F, X */
    unsigned U, M;
    bool portable;        /* as in the parameters */
    size_t chunk;         /* most blocks of a job */
    uint8_t *history;     /* [(M-1) U][F X]: the rows before the next call */
    uint8_t *missing_in;  /* [M-1 + chunk][F]: input blocks with missing samples, the first M-1 from before */
    uint8_t *missing_out; /* [chunk][F]: outputs of this job that are missing */
    bool gaps;            /* whether there is any 1 among the first M-1 of `missing_in` */
    /* [M-1 + chunk][parts][F]: sums over a part of a block of 255 - validity; where `shares` is not set those
     * of the first M-1 blocks are 0 and the others undefined */
    uint16_t *lack_in;
    uint32_t *lack_out;             /* [F]: scratch */
    uint32_t part_weight[32 * 128]; /* [M parts]: of the square of the window */
    bool shares;                    /* whether anything of the first M-1 of `lack_in` is not 0 */
    uint64_t at;                    /* the next block, counted from the start of the stream */

    double *window, *gain; /* [M U], [U] */

    /* cpu */
    struct upchannelize_filter filter;
    size_t part; /* most blocks that are filtered together */
    struct br_parallel parallel;
    unsigned nscratch;
    struct upchannelize_scratch *scratch; /* [nscratch]: of a worker */
    void (*unpack)(float *field, const uint8_t *rows, size_t count);
    void (*transform)(const struct upchannelize_filter *filter, const float *field, float *spectrum);
    unsigned (*quantize)(const struct upchannelize_filter *filter, const float *spectrum, const uint8_t *keep,
                         uint8_t *packed);

    /* cuda */
    struct br_cuda *cuda;
    struct br_upchannelize_device *device; /* tables and history on the device, instead of `history` */
};

/* The row of input `steps_back` steps before the first step of the job's first block (at most (M-1) U), or,
 * where it is negative, after it. */
static inline const uint8_t *upchannelize_row(const struct br_upchannelize *plan,
                                              const struct upchannelize_job *job, ptrdiff_t steps_back)
{
    ptrdiff_t t = (ptrdiff_t)(job->first * plan->U) - steps_back, kept = (ptrdiff_t)((plan->M - 1) * plan->U);
    if (t >= 0) return job->e + (size_t)t * job->row;
    return plan->history + (size_t)(kept + t) * plan->nchannels * plan->nspectators;
}

/* Parts of a block whose validity is taken together, and what each part of the window weighs. */
unsigned br_upchannelize_parts(const struct br_upchannelize *plan);
void br_upchannelize_weigh_parts(struct br_upchannelize *plan);

/* From the validity of the input of blocks [first, first + blocks): plan->missing_in, plan->missing_out and
 * out_valid (unless NULL). Returns whether an output is missing; where all input is valid, the arrays of the
 * plan are not touched. */
int br_upchannelize_flag(struct br_upchannelize *plan, const uint8_t *e_valid, size_t valid_row, size_t first,
                         size_t blocks, uint8_t *out_valid);

/* Each returns the number of components clamped. */
uint64_t br_upchannelize_reference(const struct br_upchannelize *plan, const struct upchannelize_job *job);
uint64_t br_upchannelize_cpu(struct br_upchannelize *plan, const struct upchannelize_job *job);

int br_upchannelize_cpu_create(struct br_upchannelize *plan);
void br_upchannelize_cpu_destroy(struct br_upchannelize *plan);

void br_upchannelize_unpack_avx2(float *field, const uint8_t *rows, size_t count);
void br_upchannelize_transform_avx2(const struct upchannelize_filter *filter, const float *field,
                                    float *spectrum);
unsigned br_upchannelize_quantize_avx2(const struct upchannelize_filter *filter, const float *spectrum,
                                       const uint8_t *keep, uint8_t *packed);

/* Created in part after a failure: destroy frees what there is. A job's e and out are device memory. `copy`
 * is all there is to do for U = 1. */
int br_upchannelize_cuda_create(struct br_upchannelize *plan, struct br_why *why);
void br_upchannelize_cuda_destroy(struct br_upchannelize *plan);
/* Whether both have tables of one form; and the exchange of these tables. */
bool br_upchannelize_cuda_alike(const struct br_upchannelize *a, const struct br_upchannelize *b);
void br_upchannelize_cuda_exchange(struct br_upchannelize *a, struct br_upchannelize *b);
/* Thread blocks that the device runs at once. */
size_t br_upchannelize_cuda_resident(const struct br_upchannelize *plan);
/* Whether its jobs may be given to br_upchannelize_cuda together with those of other such plans. */
bool br_upchannelize_cuda_joins(const struct br_upchannelize *plan);
/* jobs[i] is one of plans[i], all of one br_cuda; more than one only of plans that join. */
void br_upchannelize_cuda(struct br_upchannelize *const *plans, const struct upchannelize_job *jobs,
                          size_t count);
void br_upchannelize_cuda_remember(struct br_upchannelize *plan, const uint8_t *e, size_t row, size_t nsteps);
void br_upchannelize_cuda_copy(const struct br_upchannelize *plan, const uint8_t *e, size_t row,
                               size_t nsteps, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
