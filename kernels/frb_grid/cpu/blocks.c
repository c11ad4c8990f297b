/* Which samples of a call belong to which block of which channel, and who computes them: a job is some
 * consecutive blocks of one channel. Blocks do not depend on each other, but for the one that the call before
 * began and the one that this call leaves unfinished; their sums are the plan's, those of the others the
 * worker's. */
#include "kernels/frb_grid/plan.h"

#include <math.h>
#include <string.h>

enum {
    JOBS_EACH = 8
}; /* at least, for each thread, if there are blocks: the last ones end nearly together */

/* The blocks that a call touches. */
struct extent {
    struct br_frb_grid_call *call;
    size_t nblocks; /* the last one may be left unfinished */
    size_t nsteps;  /* that are taken */
    bool unfinished;
    size_t pieces;    /* jobs of a channel */
    size_t first_job; /* of all calls' */
};

struct work {
    const struct extent *extent;
    size_t ncalls;
};

static struct extent extent_of(struct br_frb_grid_call *call)
{
    const struct br_frb_grid *plan = call->plan;
    size_t all = plan->pending + call->nsteps, ds = plan->downsample;
    struct extent x = {.call = call, .nblocks = (all + ds - 1) / ds, .pieces = 1};
    if (call->nsteps == 0) x.nblocks = 0;
    if (x.nblocks > call->max_blocks) x.nblocks = call->max_blocks;
    if (x.nblocks == 0) return x;
    x.unfinished = x.nblocks * ds > all;
    x.nsteps = (x.unfinished ? all : x.nblocks * ds) - plan->pending;
    return x;
}

static struct frb_grid_sums sums_of(const struct br_frb_grid *plan, const struct frb_grid_sums *all, size_t f)
{
    if (all->lags) return (struct frb_grid_sums){.lags = all->lags + f};
    return (struct frb_grid_sums){.partial = all->partial + f * plan->cells_padded,
                                  .total = all->total ? all->total + f * plan->cells_padded : NULL};
}

/* Writes a block whose valid samples have `shares` together. */
static void write_block(const struct br_frb_grid *plan, const struct frb_grid_scratch *scratch,
                        const struct frb_grid_sums *sums, size_t f, uint64_t shares, uint16_t *image,
                        uint8_t *validity)
{
    double r = br_frb_grid_restore(plan, shares, validity);
    br_frb_grid_cpu_finish(plan, scratch, sums, f, ldexp(r, -plan->log2_scale), r == 0 ? NULL : image);
    if (r == 0) memset(image, 0, plan->cells * sizeof *image);
}

/* Block b of those that the call touches; the same job may do the one behind it. */
static void do_block(const struct extent *x, size_t f, size_t b, bool more,
                     const struct frb_grid_scratch *scratch)
{
    const struct br_frb_grid_call *call = x->call;
    struct br_frb_grid *plan = call->plan;
    size_t ds = plan->downsample, at = b == 0 ? 0 : b * ds - plan->pending,
           end = (b + 1) * ds - plan->pending;
    bool last = x->unfinished && b + 1 == x->nblocks;
    if (last) end = x->nsteps;
    struct frb_grid_part part = {.f = f,
                                 .first = b == 0 ? plan->pending : 0,
                                 .nsteps = (unsigned)(end - at),
                                 .e = call->e + at * call->row + f * plan->npol * plan->ndishes,
                                 .e_valid = call->e_valid ? call->e_valid + at * call->valid_row + f : NULL,
                                 .row = call->row,
                                 .valid_row = call->valid_row};
    if (more) part.ahead = x->nsteps - end < ds ? x->nsteps - end : ds;
    struct frb_grid_sums sums = b == 0 ? sums_of(plan, &plan->open, f)
                                : last ? sums_of(plan, &plan->next, f)
                                       : scratch->sums;
    uint64_t shares = br_frb_grid_cpu_add(plan, scratch, &sums, &part);
    if (b == 0) shares += plan->shares[f];
    if (last) {
        *(b == 0 ? &plan->shares[f] : &plan->next_shares[f]) = shares;
        return;
    }
    write_block(plan, scratch, &sums, f, shares, call->out + (f * call->out_stride + b) * plan->cells,
                call->out_valid + f * call->valid_stride + b);
    if (b == 0) plan->shares[f] = 0;
}

static void do_job(void *arg, size_t job, unsigned worker)
{
    const struct work *work = arg;
    size_t i = 0;
    while (i + 1 < work->ncalls && job >= work->extent[i + 1].first_job) i++;
    const struct extent *x = &work->extent[i];
    const struct br_frb_grid *plan = x->call->plan;
    size_t piece = (job - x->first_job) % x->pieces, f = (job - x->first_job) / x->pieces;
    size_t end = (piece + 1) * x->nblocks / x->pieces;
    for (size_t b = piece * x->nblocks / x->pieces; b < end; b++)
        do_block(x, f, b, b + 1 < end, &plan->scratch[worker]);
}

/* The block that the call leaves unfinished is the one that the next call begins with. */
static void settle(const struct extent *x)
{
    struct br_frb_grid *plan = x->call->plan;
    x->call->taken = x->nsteps;
    x->call->blocks = x->nblocks - x->unfinished;
    if (x->unfinished && x->nblocks > 1) {
        struct frb_grid_sums open = plan->open;
        uint64_t *shares = plan->shares;
        plan->open = plan->next;
        plan->shares = plan->next_shares;
        plan->next = open;
        plan->next_shares = shares;
    }
    plan->pending = (unsigned)((plan->pending + x->nsteps) % plan->downsample);
}

static void execute(struct br_frb_grid_call *call, size_t ncalls)
{
    struct extent extent[MOST_JOBS];
    struct work work = {extent, ncalls};
    const struct br_parallel *parallel = &call->plan->parallel;
    size_t channels = 0, jobs = 0, wanted = br_parallel_workers(parallel);
    for (size_t i = 0; i < ncalls; i++) {
        extent[i] = extent_of(&call[i]);
        channels += call[i].plan->nchannels;
    }
    wanted = wanted > 1 ? (wanted * JOBS_EACH + channels - 1) / channels : 1;
    for (size_t i = 0; i < ncalls; i++) {
        struct extent *x = &extent[i];
        if (wanted > 1) x->pieces = x->nblocks < wanted ? x->nblocks : wanted;
        x->first_job = jobs;
        jobs += x->pieces * call[i].plan->nchannels;
    }
    br_parallel_for(parallel, jobs, do_job, &work);
    for (size_t i = 0; i < ncalls; i++) settle(&extent[i]);
}

void br_frb_grid_cpu_execute(struct br_frb_grid_call *call, size_t ncalls)
{
    for (size_t n; ncalls > 0; call += n, ncalls -= n) {
        n = ncalls < MOST_JOBS ? ncalls : MOST_JOBS;
        execute(call, n);
    }
}

void br_frb_grid_cpu_forget(struct br_frb_grid *plan)
{
    for (size_t f = 0; f < plan->nchannels; f++) {
        struct frb_grid_sums sums = sums_of(plan, &plan->open, f);
        br_frb_grid_cpu_finish(plan, plan->scratch, &sums, f, 0, NULL);
        plan->shares[f] = 0;
    }
}

void br_frb_grid_cpu_flush(struct br_frb_grid *plan, uint16_t *out, size_t out_stride, uint8_t *out_valid,
                           size_t valid_stride)
{
    for (size_t f = 0; f < plan->nchannels; f++) {
        struct frb_grid_sums sums = sums_of(plan, &plan->open, f);
        write_block(plan, plan->scratch, &sums, f, plan->shares[f], out + f * out_stride * plan->cells,
                    out_valid + f * valid_stride);
        plan->shares[f] = 0;
    }
    plan->pending = 0;
}
