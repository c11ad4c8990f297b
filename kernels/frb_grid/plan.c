/* Parameters, and where blocks begin and end. */
#include "kernels/frb_grid/plan.h"
#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"
#include "kernels/common/validity.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The range of k in which powers of two, sums and products stay normal float32 numbers. */
enum { MIN_LOG2 = -100, MAX_LOG2 = 100 };

int br_frb_grid_exponent(const float *weights, size_t count)
{
    double most = 0;
    int exponent = 0;
    for (size_t i = 0; weights != NULL && i < count; i++) most = fmax(most, fabs((double)weights[i]));
    if (most > 0) (void)frexp(most, &exponent);
    return exponent;
}

void br_frb_grid_longest_first(struct br_frb_grid *const *plan, size_t n, size_t order[MOST_JOBS])
{
    for (size_t i = 0; i < n; i++) {
        size_t k = i;
        for (; k > 0 && plan[order[k - 1]]->downsample < plan[i]->downsample; k--) order[k] = order[k - 1];
        order[k] = i;
    }
}

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

size_t br_frb_grid_device_bytes(const struct br_frb_grid_params *params)
{
    enum { PIECE = 64 }; /* samples that are multiplied at a time, by both methods that keep samples */
    const unsigned m = params->grid_m, n = params->grid_n, most = m > n ? m : n;
    const size_t images = most <= 12 ? 16 * (size_t)most : 0, /* autocorr_2d keeps two images of the grid */
        raw = (params->npol * params->ndishes + 15) / 16 * 16;
    const size_t samples = images > 0 || params->downsample > PIECE ? PIECE : params->downsample;
    return 2 * params->nchannels * samples * (images > raw ? images : raw);
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
        plan->lack = malloc(plan->nchannels * sizeof *plan->lack);
        if (!plan->factor || !plan->lack)
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
    plan->parallel = params->parallel;
    plan->cells = (size_t)4 * params->grid_m * params->grid_n;
    plan->weight_channels = params->weights ? params->weight_channels : 1;
    plan->shares = calloc(plan->nchannels, sizeof *plan->shares);
    int status =
        plan->shares ? create_backend(plan, params, why) : br_because(why, "no memory for the FRB grid");
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
    free(plan->lack);
    free(plan->dish_cell);
    free(plan->weights);
    free(plan->sum);
    free(plan->shares);
    free(plan);
}

int br_frb_grid_may_exchange(const struct br_frb_grid *plan, const struct br_frb_grid *with,
                             struct br_why *why)
{
    if (plan->backend != with->backend || plan->nchannels != with->nchannels || plan->npol != with->npol ||
        plan->ndishes != with->ndishes || plan->grid_m != with->grid_m || plan->grid_n != with->grid_n ||
        plan->downsample != with->downsample || plan->log2_scale != with->log2_scale)
        return br_because(why, "the FRB grids have different shapes or scales");
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA && !br_frb_grid_cuda_alike(plan, with))
        return br_because(why, "these weights need another kernel on a GPU than the one that runs");
#endif
    return 0;
}

void br_frb_grid_exchange(struct br_frb_grid *plan, struct br_frb_grid *with)
{
    BR_EXCHANGE(double, plan, with, threshold);
    BR_EXCHANGE(size_t, plan, with, weight_channels);
    BR_EXCHANGE(float *, plan, with, weights);
    BR_EXCHANGE(float *, plan, with, lane_weights);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_frb_grid_cuda_exchange(plan, with);
#endif
}

static void finish(struct br_frb_grid *plan, size_t f, double factor, uint16_t *out)
{
    br_frb_grid_reference_finish(plan, f, factor, out);
    plan->shares[f] = 0;
}

/* The reference's: writes the block as row 0 of each channel. */
static void write_block(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                        size_t valid_stride)
{
    for (size_t f = 0; f < plan->nchannels; f++) {
        uint16_t *image = out + f * out_stride * plan->cells;
        double r = br_frb_grid_restore(plan, plan->shares[f], &out_valid[f * valid_stride]);
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
/* The progress of one call of many. */
struct progress {
    size_t t, blocks;          /* samples taken, blocks written */
    size_t first;              /* block that the next launch begins with */
    struct frb_grid_span span; /* of the next launch */
    bool missing;              /* some sample in it, altogether */
    bool partial;              /* some block of it has factors */
};

/* Factors and validity of `blocks` blocks of which nothing is missing. */
static void fill_factors(struct br_frb_grid *plan, size_t blocks)
{
    const float unit = br_frb_grid_cuda_unit(plan);
    for (size_t i = 0; i < blocks * plan->nchannels; i++) plan->factor[i] = unit;
}

static void fill_valid(const struct br_frb_grid *plan, uint8_t *out_valid, size_t valid_stride, size_t blocks)
{
    if (blocks == valid_stride) /* a whole frame */
        memset(out_valid, 255, plan->nchannels * blocks);
    else
        for (size_t f = 0; blocks > 0 && f < plan->nchannels; f++)
            memset(out_valid + f * valid_stride, 255, blocks);
}

/* Writes the factors and the validity of the finished block, if they differ from those of a whole block. */
static void close_block(struct br_frb_grid *plan, float *factor, uint8_t *out_valid, size_t valid_stride)
{
    const double unit = (double)br_frb_grid_cuda_unit(plan);
    const uint64_t whole = (uint64_t)plan->downsample * VALID_WHOLE,
                   all_valid = (uint64_t)plan->all_valid * VALID_WHOLE;
    uint64_t *shares = plan->shares;
    for (size_t f = 0; f < plan->nchannels; f++) {
        if (shares[f] + all_valid == whole) continue;
        factor[f] =
            (float)(br_frb_grid_restore(plan, shares[f] + all_valid, &out_valid[f * valid_stride]) * unit);
    }
    memset(shares, 0, plan->nchannels * sizeof *shares);
    plan->all_valid = plan->pending = 0;
}

/* Looks at the validity of as many blocks as a launch takes, and says what is to be launched. False when
 * there is nothing left. Factors are written only if one of its blocks needs them. */
static bool prepare(struct br_frb_grid_call *call, struct progress *now)
{
    struct br_frb_grid *plan = call->plan;
    size_t begin = now->t, touched = 0,
           most = (plan->pending + call->nsteps - begin) / plan->downsample; /* blocks that end in it */
    if (most > MOST_BLOCKS) most = MOST_BLOCKS;
    if (most > call->max_blocks - now->blocks) most = call->max_blocks - now->blocks;
    fill_valid(plan, call->out_valid + now->blocks, call->valid_stride, most);
    now->first = now->blocks;
    now->missing = now->partial = false;
    now->span = (struct frb_grid_span){.e = call->e + begin * call->row,
                                       .row = call->row,
                                       .valid_row = call->valid_row,
                                       .pending = plan->pending,
                                       .out = call->out + now->blocks * plan->cells,
                                       .out_stride = call->out_stride};
    while (now->t < call->nsteps && now->blocks < call->max_blocks && touched < MOST_BLOCKS) {
        size_t count = plan->downsample - plan->pending;
        if (count > call->nsteps - now->t) count = call->nsteps - now->t;
        now->missing |= br_frb_grid_count_valid(
            plan, call->e_valid ? call->e_valid + now->t * call->valid_row : NULL, call->valid_row, count);
        now->t += count;
        plan->pending += (unsigned)count;
        touched++;
        if (plan->pending < plan->downsample) break;
        if (plan->all_valid < plan->downsample) {
            if (!now->partial) fill_factors(plan, most);
            now->partial = true;
            close_block(plan, plan->factor + (now->blocks - now->first) * plan->nchannels,
                        call->out_valid + now->blocks, call->valid_stride);
        }
        plan->all_valid = plan->pending = 0;
        now->blocks++;
    }
    now->span.steps = now->t - begin;
    now->span.blocks = touched;
    return touched > 0;
}

/* False if memory runs out; br_cuda_check says why. */
static bool upload(const struct br_frb_grid_call *call, struct progress *now)
{
    struct br_frb_grid *plan = call->plan;
    struct frb_grid_span *span = &now->span;
    if (now->missing)
        span->valid = br_cuda_upload(plan->cuda, call->e_valid + (now->t - span->steps) * call->valid_row,
                                     (span->steps - 1) * call->valid_row + plan->nchannels);
    if (now->partial)
        span->factor = br_cuda_upload(plan->cuda, plan->factor,
                                      (now->blocks - now->first) * plan->nchannels * sizeof *plan->factor);
    return (!now->missing || span->valid) && (!now->partial || span->factor);
}

/* The host looks at validity; launches take up to MOST_BLOCKS blocks of each call. */
static void execute_cuda(struct br_frb_grid_call *call, size_t ncalls)
{
    struct progress now[MOST_JOBS] = {{0}};
    bool more = ncalls > 0;
    if (more) br_cuda_begin(call[0].plan->cuda);
    while (more) {
        struct br_frb_grid *plan[MOST_JOBS];
        struct frb_grid_span span[MOST_JOBS];
        size_t n = 0;
        for (size_t i = 0; more && i < ncalls; i++) {
            if (!prepare(&call[i], &now[i])) continue;
            more = upload(&call[i], &now[i]);
            plan[n] = call[i].plan;
            span[n++] = now[i].span;
        }
        more = more && n > 0;
        if (more) br_frb_grid_cuda_add(plan, span, n);
    }
    for (size_t i = 0; i < ncalls; i++) {
        call[i].taken = now[i].t;
        call[i].blocks = now[i].blocks;
    }
}

static void flush_cuda(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                       size_t valid_stride)
{
    struct frb_grid_span span = {.blocks = 1, .flush = true, .out = out, .out_stride = out_stride};
    fill_factors(plan, 1);
    fill_valid(plan, out_valid, valid_stride, 1);
    close_block(plan, plan->factor, out_valid, valid_stride);
    br_cuda_begin(plan->cuda);
    span.factor = br_cuda_upload(plan->cuda, plan->factor, plan->nchannels * sizeof *plan->factor);
    if (span.factor) br_frb_grid_cuda_add(&plan, &span, 1);
}
#endif

void br_frb_grid_begin(struct br_frb_grid *plan, unsigned phase)
{
    plan->pending = phase % plan->downsample;
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) {
        br_frb_grid_cuda_begin(plan);
        memset(plan->shares, 0, plan->nchannels * sizeof *plan->shares);
        plan->all_valid = 0;
        return;
    }
#endif
    if (plan->backend == BR_CPU) br_frb_grid_cpu_forget(plan);
    for (size_t f = 0; plan->backend == BR_REFERENCE && f < plan->nchannels; f++) finish(plan, f, 0, NULL);
}

static void execute_reference(struct br_frb_grid_call *call)
{
    struct br_frb_grid *plan = call->plan;
    const size_t channel = plan->npol * plan->ndishes;
    while (call->taken < call->nsteps && call->blocks < call->max_blocks) {
        unsigned first = plan->pending, count = plan->downsample - first;
        if (count > call->nsteps - call->taken) count = (unsigned)(call->nsteps - call->taken);
        for (size_t f = 0; f < plan->nchannels; f++) {
            const uint8_t *from = call->e + call->taken * call->row + f * channel,
                          *valid = call->e_valid ? call->e_valid + call->taken * call->valid_row + f : NULL;
            plan->shares[f] +=
                br_frb_grid_reference_add(plan, f, first, from, call->row, valid, call->valid_row, count);
        }
        call->taken += count;
        plan->pending += count;
        if (plan->pending == plan->downsample) {
            write_block(plan, call->out + call->blocks * plan->cells, call->out_stride,
                        call->out_valid + call->blocks, call->valid_stride);
            call->blocks++;
        }
    }
}

void br_frb_grid_execute_all(struct br_frb_grid_call *call, size_t ncalls)
{
    for (size_t i = 0; i < ncalls; i++) call[i].taken = call[i].blocks = 0;
#if BR_WITH_CUDA
    /* As many as can go together. */
    for (size_t i = 0, n; i < ncalls && call[i].plan->backend == BR_CUDA; i += n) {
        for (n = 1; n < MOST_JOBS && i + n < ncalls && call[i + n].plan->backend == BR_CUDA &&
                    br_frb_grid_cuda_together(call[i].plan, call[i + n].plan);)
            n++;
        execute_cuda(call + i, n);
    }
#endif
    for (size_t i = 0, n; i < ncalls; i += n) {
        for (n = 0; i + n < ncalls && call[i + n].plan->backend == BR_CPU;) n++;
        if (n > 0) br_frb_grid_cpu_execute(call + i, n);
        if (n == 0 && call[i].plan->backend == BR_REFERENCE) execute_reference(&call[i]);
        if (n == 0) n = 1;
    }
}

size_t br_frb_grid_execute(struct br_frb_grid *plan, const uint8_t *e, size_t row, const uint8_t *e_valid,
                           size_t valid_row, size_t nsteps, size_t max_blocks, uint16_t *out,
                           size_t out_stride, uint8_t *out_valid, size_t valid_stride, size_t *taken)
{
    struct br_frb_grid_call call = {.plan = plan,
                                    .e = e,
                                    .row = row,
                                    .e_valid = e_valid,
                                    .valid_row = valid_row,
                                    .nsteps = nsteps,
                                    .max_blocks = max_blocks,
                                    .out = out,
                                    .out_stride = out_stride,
                                    .out_valid = out_valid,
                                    .valid_stride = valid_stride};
    br_frb_grid_execute_all(&call, 1);
    *taken = call.taken;
    return call.blocks;
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
    if (plan->backend == BR_CPU)
        br_frb_grid_cpu_flush(plan, out, out_stride, out_valid, valid_stride);
    else
        write_block(plan, out, out_stride, out_valid, valid_stride);
    return 1;
}
