/* Parameters, and where blocks begin and end. */
#include "kernels/frb_grid/plan.h"
#include "kernels/common/cuda.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The range of k in which powers of two, sums and products stay normal float32 numbers. */
enum { MIN_LOG2 = -100, MAX_LOG2 = 100 };

/* Largest intensity of a block before scaling, over 65504. */
static double full_scale(const struct br_frb_grid_params *p)
{
    double most = p->weights ? 0 : (double)p->ndishes;
    for (size_t i = 0; p->weights && i < p->weight_channels * p->npol; i++) {
        const float *w = p->weights + i * p->ndishes * 2;
        double sum = 0;
        for (size_t d = 0; d < p->ndishes; d++) sum += hypot((double)w[2 * d], (double)w[2 * d + 1]);
        if (sum > most) most = sum;
    }
    return (double)p->npol * p->downsample * 128 * most * most / 65504;
}

int br_frb_grid_log2_scale(const struct br_frb_grid_params *params)
{
    double most = full_scale(params);
    if (!(most > ldexp(1, MIN_LOG2))) return MIN_LOG2;
    if (most > ldexp(1, MAX_LOG2)) return MAX_LOG2 + 1; /* refused by create */
    int k;
    double fraction = frexp(most, &k); /* most = fraction 2^k, 1/2 <= fraction < 1 */
    return fraction == 0.5 ? k - 1 : k;
}

static int check(const struct br_frb_grid_params *p, struct br_why *why)
{
    if (p->nchannels < 1 || p->npol < 1 || p->ndishes < 1)
        return br_because(why, "%zu channels, %zu polarisations, %zu dishes: each must be at least 1",
                          p->nchannels, p->npol, p->ndishes);
    if (p->grid_m < 1 || p->grid_m > 64 || p->grid_n < 1 || p->grid_n > 64)
        return br_because(why, "a grid of %u x %u cells; expected 1 to 64 each", p->grid_m, p->grid_n);
    if (p->ndishes > (size_t)p->grid_m * p->grid_n)
        return br_because(why, "%zu dishes do not fit on %u x %u cells", p->ndishes, p->grid_m, p->grid_n);
    if (!p->dish_cell) return br_because(why, "the cells of the dishes are needed");
    if (p->downsample < 1) return br_because(why, "downsample is 0; expected at least 1");
    if (!(p->threshold >= 0 && p->threshold <= 1))
        return br_because(why, "threshold is %g; expected 0 to 1", p->threshold);
    if (p->nchannels > SIZE_MAX / 64 / ((size_t)4 * p->grid_m * p->grid_n) ||
        p->npol > SIZE_MAX / 64 / p->ndishes)
        return br_because(why, "the sums of %zu channels do not fit into memory", p->nchannels);

    uint32_t owner[64 * 64] = {0};
    for (size_t d = 0; d < p->ndishes; d++) {
        unsigned m = p->dish_cell[2 * d], n = p->dish_cell[2 * d + 1];
        if (m >= p->grid_m || n >= p->grid_n)
            return br_because(why, "dish %zu is on cell (%u, %u), outside the grid of %u x %u cells", d, m, n,
                              p->grid_m, p->grid_n);
        uint32_t *cell = &owner[m * p->grid_n + n];
        if (*cell)
            return br_because(why, "dishes %u and %zu are both on cell (%u, %u)", (unsigned)*cell - 1, d, m,
                              n);
        *cell = (uint32_t)d + 1;
    }
    if (p->weights) {
        if (p->weight_channels != 1 && p->weight_channels != p->nchannels)
            return br_because(why, "weights for %zu channels; expected 1 (shared by all) or %zu",
                              p->weight_channels, p->nchannels);
        for (size_t i = 0; i < p->weight_channels * p->npol * p->ndishes * 2; i++)
            if (!isfinite(p->weights[i])) {
                size_t d = i / 2 % p->ndishes, pol = i / 2 / p->ndishes % p->npol,
                       f = i / 2 / p->ndishes / p->npol;
                return br_because(why, "the weight of channel %zu, polarisation %zu, dish %zu is not finite",
                                  f, pol, d);
            }
    }
    if (br_frb_grid_log2_scale(p) > MAX_LOG2)
        return br_because(
            why, "the weights are so large that intensities exceed the range of float32; make them smaller");
    if (p->log2_scale < MIN_LOG2 || p->log2_scale > MAX_LOG2)
        return br_because(why, "log2_scale is %d; expected %d to %d", p->log2_scale, MIN_LOG2, MAX_LOG2);
    return 0;
}

/* -1 with `why`. */
static int create_backend(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                          struct br_why *why)
{
    int failed;
    if (plan->backend == BR_CUDA) {
#if BR_WITH_CUDA
        plan->factor = malloc(plan->nchannels * (MOST_BLOCKS + 1) * sizeof *plan->factor);
        if (!plan->factor)
            return br_because(why, "no memory for the FRB grid of %zu channels", plan->nchannels);
        return br_frb_grid_cuda_create(plan, params, why);
#else
        return br_because(why, "this beamring was built without CUDA");
#endif
    }
    failed = plan->backend == BR_REFERENCE ? br_frb_grid_reference_create(plan, params)
                                           : br_frb_grid_cpu_create(plan, params);
    if (failed)
        return br_because(why, "no memory for the FRB grid of %zu channels and %u x %u cells",
                          params->nchannels, params->grid_m, params->grid_n);
    return 0;
}

int br_frb_grid_create(struct br_frb_grid **result, enum br_backend backend,
                       const struct br_frb_grid_params *params, struct br_why *why)
{
    *result = NULL;
    if (check(params, why) != 0) return -1;
    struct br_frb_grid *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the FRB grid");
    plan->backend = backend;
    plan->nchannels = params->nchannels;
    plan->npol = params->npol;
    plan->ndishes = params->ndishes;
    plan->grid_m = params->grid_m;
    plan->grid_n = params->grid_n;
    plan->downsample = params->downsample;
    plan->log2_scale = params->log2_scale;
    plan->threshold = params->threshold;
    plan->cells = (size_t)4 * params->grid_m * params->grid_n;
    plan->weight_channels = params->weights ? params->weight_channels : 1;
    plan->nvalid = calloc(plan->nchannels, sizeof *plan->nvalid);
    int status =
        plan->nvalid ? create_backend(plan, params, why) : br_because(why, "no memory for the FRB grid");
    if (status != 0) {
        br_frb_grid_destroy(plan);
        return status;
    }
    *result = plan;
    return 0;
}

void br_frb_grid_destroy(struct br_frb_grid *plan)
{
    if (!plan) return;
#if BR_WITH_CUDA
    br_frb_grid_cuda_destroy(plan);
#endif
    br_frb_grid_cpu_destroy(plan);
    free(plan->factor);
    free(plan->dish_cell);
    free(plan->weights);
    free(plan->sum);
    free(plan->nvalid);
    free(plan);
}

static void finish(struct br_frb_grid *plan, size_t f, double factor, uint16_t *out)
{
    if (plan->backend == BR_REFERENCE)
        br_frb_grid_reference_finish(plan, f, factor, out);
    else
        br_frb_grid_cpu_finish(plan, f, factor, out);
    plan->nvalid[f] = 0;
}

/* 0 only when none is valid, 255 only when all are. */
static uint8_t fraction(unsigned valid, unsigned total)
{
    if (valid == 0 || valid == total) return valid ? 255 : 0;
    uint64_t byte = ((uint64_t)valid * 255 + total / 2) / total;
    return (uint8_t)(byte < 1 ? 1 : byte > 254 ? 254 : byte);
}

/* What channel f's sums of a finished block are multiplied by, relative to a block without missing samples:
 * R, or 0 where the block is masked. Writes its validity. */
static double restore(const struct br_frb_grid *plan, size_t f, uint8_t *validity)
{
    unsigned valid = plan->nvalid[f], total = plan->downsample;
    bool masked = valid == 0 || (double)valid / total < plan->threshold;
    *validity = masked ? 0 : fraction(valid, total);
    return masked ? 0 : (double)total / valid;
}

/* Writes the block as row 0 of each channel. */
static void write_block(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                        size_t valid_stride)
{
    for (size_t f = 0; f < plan->nchannels; f++) {
        uint16_t *image = out + f * out_stride * plan->cells;
        double r = restore(plan, f, &out_valid[f * valid_stride]);
        if (r == 0) {
            finish(plan, f, 0, NULL);
            memset(image, 0, plan->cells * sizeof *image);
        } else {
            finish(plan, f, ldexp(r, -plan->log2_scale), image);
        }
    }
    plan->pending = 0;
}

#if BR_WITH_CUDA
/* Counts the valid ones of `count` samples of every channel into the unfinished block. */
static void count_valid(struct br_frb_grid *plan, const uint8_t *e_valid, size_t valid_row, size_t count)
{
    if (!e_valid) {
        plan->all_valid += (unsigned)count;
        return;
    }
    for (size_t t = 0; t < count; t++)
        for (size_t f = 0; f < plan->nchannels; f++) plan->nvalid[f] += e_valid[t * valid_row + f] != 0;
}

/* Factors of the block that is finished now; true when nothing of it is missing. */
static bool close_block(struct br_frb_grid *plan, float *factor, uint8_t *out_valid, size_t valid_stride)
{
    float unit = br_frb_grid_cuda_unit(plan);
    bool complete = true, whole = plan->all_valid == plan->downsample; /* the usual case is worth the shortcut */
    for (size_t f = 0; whole && f < plan->nchannels; f++) {
        factor[f] = unit;
        out_valid[f * valid_stride] = 255;
    }
    for (size_t f = 0; !whole && f < plan->nchannels; f++) {
        plan->nvalid[f] += plan->all_valid;
        double r = restore(plan, f, &out_valid[f * valid_stride]);
        factor[f] = (float)(r * (double)unit);
        complete = complete && r == 1;
        plan->nvalid[f] = 0;
    }
    plan->all_valid = 0;
    plan->pending = 0;
    return complete;
}

/* br_frb_grid_execute on a GPU: the host looks at validity, launches take up to MOST_BLOCKS blocks each. */
static size_t execute_cuda(struct br_frb_grid *plan, const uint8_t *e, size_t row, const uint8_t *e_valid,
                           size_t valid_row, size_t nsteps, size_t max_blocks, uint16_t *out,
                           size_t out_stride, uint8_t *out_valid, size_t valid_stride, size_t *taken)
{
    size_t t = 0, blocks = 0;
    br_cuda_begin(plan->cuda);
    while (t < nsteps && blocks < max_blocks) {
        size_t begin = t, first = blocks, touched = 0;
        struct frb_grid_span span = {.e = e + t * row,
                                     .row = row,
                                     .pending = plan->pending,
                                     .out = out + blocks * plan->cells,
                                     .out_stride = out_stride};
        bool complete = true;
        while (t < nsteps && blocks < max_blocks && touched < MOST_BLOCKS) {
            size_t count = plan->downsample - plan->pending;
            if (count > nsteps - t) count = nsteps - t;
            count_valid(plan, e_valid ? e_valid + t * valid_row : NULL, valid_row, count);
            t += count;
            plan->pending += (unsigned)count;
            touched++;
            if (plan->pending < plan->downsample) break;
            complete &= close_block(plan, plan->factor + (blocks - first) * plan->nchannels,
                                    out_valid + blocks, valid_stride);
            blocks++;
        }
        span.steps = t - begin;
        span.blocks = touched;
        if (e_valid) {
            span.valid = br_cuda_upload(plan->cuda, e_valid + begin * valid_row,
                                        (span.steps - 1) * valid_row + plan->nchannels);
            span.valid_row = valid_row;
        }
        if (!complete)
            span.factor = br_cuda_upload(plan->cuda, plan->factor,
                                         (blocks - first) * plan->nchannels * sizeof *plan->factor);
        if ((e_valid && !span.valid) || (!complete && !span.factor)) break; /* br_cuda_check says why */
        br_frb_grid_cuda_add(plan, &span);
    }
    *taken = t;
    return blocks;
}

static void flush_cuda(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                       size_t valid_stride)
{
    close_block(plan, plan->factor, out_valid, valid_stride);
    br_cuda_begin(plan->cuda);
    const float *factor = br_cuda_upload(plan->cuda, plan->factor, plan->nchannels * sizeof *plan->factor);
    if (factor) br_frb_grid_cuda_flush(plan, factor, out, out_stride);
}
#endif

void br_frb_grid_begin(struct br_frb_grid *plan, unsigned phase)
{
    plan->pending = phase % plan->downsample;
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_frb_grid_cuda_begin(plan);
        memset(plan->nvalid, 0, plan->nchannels * sizeof *plan->nvalid);
        plan->all_valid = 0;
        return;
    }
#endif
    for (size_t f = 0; f < plan->nchannels; f++) finish(plan, f, 0, NULL);
}

size_t br_frb_grid_execute(struct br_frb_grid *plan, const uint8_t *e, size_t row, const uint8_t *e_valid,
                           size_t valid_row, size_t nsteps, size_t max_blocks, uint16_t *out,
                           size_t out_stride, uint8_t *out_valid, size_t valid_stride, size_t *taken)
{
    size_t t = 0, blocks = 0, channel = plan->npol * plan->ndishes;
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA)
        return execute_cuda(plan, e, row, e_valid, valid_row, nsteps, max_blocks, out, out_stride, out_valid,
                            valid_stride, taken);
#endif
    while (t < nsteps && blocks < max_blocks) {
        unsigned first = plan->pending, count = plan->downsample - first;
        if (count > nsteps - t) count = (unsigned)(nsteps - t);
        for (size_t f = 0; f < plan->nchannels; f++) {
            const uint8_t *from = e + t * row + f * channel,
                          *valid = e_valid ? e_valid + t * valid_row + f : NULL;
            plan->nvalid[f] +=
                plan->backend == BR_REFERENCE
                    ? br_frb_grid_reference_add(plan, f, first, from, row, valid, valid_row, count)
                    : br_frb_grid_cpu_add(plan, f, first, from, row, valid, valid_row, count);
        }
        t += count;
        plan->pending += count;
        if (plan->pending == plan->downsample) {
            write_block(plan, out + blocks * plan->cells, out_stride, out_valid + blocks, valid_stride);
            blocks++;
        }
    }
    *taken = t;
    return blocks;
}

unsigned br_frb_grid_pending(const struct br_frb_grid *plan)
{
    return plan->pending;
}

size_t br_frb_grid_flush(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                         size_t valid_stride)
{
    if (plan->pending == 0) return 0;
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        flush_cuda(plan, out, out_stride, out_valid, valid_stride);
        return 1;
    }
#endif
    write_block(plan, out, out_stride, out_valid, valid_stride);
    return 1;
}
