/* plan.h - inside FRB stage 1: what both implementations share, and the tables of the fast one. */
#ifndef BEAMRING_KERNELS_FRB_GRID_PLAN_H
#define BEAMRING_KERNELS_FRB_GRID_PLAN_H

#include "kernels/frb_grid/cpu/lags.h"
#include "kernels/frb_grid/frb_grid.h"

#include <fftw3.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Cells that are gridded at once. */
enum { LANES = 8 };

/* Float32 sums are closed after this many samples and added up in a second sum, so that long blocks keep
 * their precision. */
enum { PARTIAL = 256 };

/* The memory of one worker. */
struct frb_grid_sums {
    float *partial, *total;     /* [...][cells_padded]; total is NULL when blocks are short */
    struct frb_grid_lags *lags; /* [...]: instead of both, where the autocorrelation is summed */
};
struct frb_grid_scratch {
    uint8_t *bytes; /* [nmoves] */
    fftwf_complex *field, *rows, *sky;
    float *line; /* [2N] */
    struct frb_grid_lag_scratch *by_lags;
    struct frb_grid_sums sums; /* of one channel: all 0 between blocks */
};

/* Some samples of channel f, within one block, of which `first` have been counted before; e and e_valid (or
 * NULL) stand at this channel's first one. */
struct frb_grid_part {
    size_t f;
    unsigned first, nsteps;
    const uint8_t *e, *e_valid;
    size_t row, valid_row;
    size_t ahead; /* samples that stand behind these, and will be asked for next */
};

struct br_frb_grid {
    enum br_backend backend;
    size_t nchannels, npol, ndishes;
    unsigned grid_m, grid_n, downsample;
    int log2_scale;
    double threshold;
    size_t cells; /* 2M 2N */

    /* The unfinished block: samples in it, and per channel the sum of what is there of them, in 255ths. */
    unsigned pending;
    uint64_t *shares;   /* [F] */
    unsigned all_valid; /* on a GPU: samples of the block that are whole in every channel, not in shares */
    uint16_t *lack;     /* [F], on a GPU: scratch of the counting */

    /* reference */
    uint16_t *dish_cell; /* [D][2] */
    float *weights;      /* [weight_channels][P][D][2] or NULL */
    size_t weight_channels;
    double *sum; /* [F][2M][2N] */

    /* cpu: see cpu.c */
    size_t nvectors, nmoves;
    int32_t *source;                   /* [nvectors] */
    uint32_t *target;                  /* [nvectors] */
    uint8_t (*order)[LANES];           /* [nvectors] */
    uint16_t *moves;                   /* [nmoves], the dishes of */
    float *lane_weights;               /* [weight_channels][P][nvectors][re, im][LANES];
                              * by lags: [weight_channels][P][re, im][lanes], or NULL where all are 1 */
    struct frb_grid_lag_plan *by_lags; /* NULL: every sample is transformed */
    fftwf_plan along_n, along_m;
    /* [F]: of the unfinished block, and of the one that a call leaves unfinished, which then change places:
     * another thread may still be at the first when the last is begun. `next` is 0 between calls. */
    struct frb_grid_sums open, next;
    uint64_t *next_shares;
    size_t cells_padded;
    uint16_t *position; /* [2M][2N]: where the sums are */
    struct br_parallel parallel;
    unsigned nscratch;
    struct frb_grid_scratch *scratch; /* [nscratch]: of a worker */
    void (*grid)(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch, const float *weights,
                 const uint8_t *e);
    void (*square)(float *sum, const float *field, size_t count);

    /* cuda: see gpu/launch.cu */
    struct br_cuda *cuda;
    struct br_frb_grid_direct *direct; /* one of these three */
    struct br_frb_grid_autocorr_2d *autocorr_2d;
    struct br_frb_grid_autocorr_1d *autocorr_1d;
    float *factor; /* [MOST_BLOCKS][F], of the blocks of a launch */
};

/* Blocks that a launch on a GPU touches at most. */
enum { MOST_BLOCKS = 64 };

/* Plans that one launch serves at most. */
enum { MOST_JOBS = 16 };

/* Adds `nsteps` samples of channel f to the block, of which `first` have been counted before; e and e_valid
 * stand at this channel's first one. Returns the sum of their validity. */
uint64_t br_frb_grid_reference_add(struct br_frb_grid *plan, size_t f, unsigned first, const uint8_t *e,
                                   size_t row, const uint8_t *e_valid, size_t valid_row, unsigned nsteps);
uint64_t br_frb_grid_cpu_add(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                             const struct frb_grid_sums *sums, const struct frb_grid_part *part);

/* Writes factor * the sums of channel f as float16 (unless out is NULL) and clears them. */
void br_frb_grid_reference_finish(struct br_frb_grid *plan, size_t f, double factor, uint16_t *out);
void br_frb_grid_cpu_finish(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                            const struct frb_grid_sums *sums, size_t f, double factor, uint16_t *out);

/* cpu/blocks.c: executes the calls, all of plans with BR_CPU; forgets or writes the unfinished block. */
void br_frb_grid_cpu_execute(struct br_frb_grid_call *call, size_t ncalls);
void br_frb_grid_cpu_forget(struct br_frb_grid *plan);
void br_frb_grid_cpu_flush(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                           size_t valid_stride);

/* The factor of a channel's sums of a finished block, relative to a whole block: R, or 0 if the block is
 * masked. `shares` is the sum of the shares of its samples. Writes its validity. */
double br_frb_grid_restore(const struct br_frb_grid *plan, uint64_t shares, uint8_t *validity);

/* On a GPU: adds what is there of `count` samples of every channel to the unfinished block. Mostly all is,
 * which is quickly seen. Returns whether any sample is missing altogether. */
bool br_frb_grid_count_valid(struct br_frb_grid *plan, const uint8_t *e_valid, size_t valid_row,
                             size_t count);

/* -1 if memory runs out; destroy frees the rest. */
int br_frb_grid_reference_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params);
int br_frb_grid_cpu_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params);
void br_frb_grid_cpu_destroy(struct br_frb_grid *plan);

/* The power of two, as its exponent, that brings all of `count` weights below 1; 0 where all are 0, and
 * for NULL (all are 1, and stay so). */
int br_frb_grid_exponent(const float *weights, size_t count);

/* In which order one launch takes n plans: those with the longest blocks first, others as they come. */
void br_frb_grid_longest_first(struct br_frb_grid *const *plan, size_t n, size_t order[MOST_JOBS]);

/* Samples on a GPU: `steps` of all channels, which touch `blocks` blocks, the first of which had `pending`
 * samples before. */
struct frb_grid_span {
    const uint8_t *e;
    size_t row;
    const uint8_t *valid; /* [steps][valid_row] on the device, NULL: all valid */
    size_t valid_row;
    unsigned pending;
    size_t steps, blocks;
    const float *factor; /* [blocks][F] on the device; NULL: nothing is missing */
    uint16_t *out;
    size_t out_stride;
    bool flush; /* no samples; block 0 ends */
};

int br_frb_grid_cuda_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                            struct br_why *why);
void br_frb_grid_cuda_destroy(struct br_frb_grid *plan);
void br_frb_grid_cuda_begin(struct br_frb_grid *plan);
/* One launch for n plans, 1 to MOST_JOBS, that go together; a span has at least one block. */
void br_frb_grid_cuda_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n);
bool br_frb_grid_cuda_together(const struct br_frb_grid *a, const struct br_frb_grid *b);
/* Whether the same method makes the images of both, with tables of one form; and the exchange of weights. */
bool br_frb_grid_cuda_alike(const struct br_frb_grid *a, const struct br_frb_grid *b);
void br_frb_grid_cuda_exchange(struct br_frb_grid *a, struct br_frb_grid *b);
float br_frb_grid_cuda_unit(const struct br_frb_grid *plan); /* intensity per sum, nothing missing */

#ifdef __cplusplus
}
#endif
#endif
