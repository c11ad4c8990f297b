/* plan.c - parameters of the unpacker, checked, and what all backends make of them. */
#include "kernels/unpack/plan.h"
#include "kernels/common/cuda.h"

#include <stdlib.h>
#include <string.h>

/* Every number that memory is addressed with, so that no execute can leave its arrays. */
static int check_shape(const struct br_unpack_params *p, struct br_why *why)
{
    if (p->nsources < 1 || p->nstreams < 1 || p->packet_samples < 1 || p->packet_channels < 1 ||
        p->ninputs < 1 || p->npositions < 1)
        return br_because(
            why,
            "%zu sources, %zu streams, packets of %zu samples and %zu channels, %zu inputs, %zu "
            "positions: each must be at least 1",
            p->nsources, p->nstreams, p->packet_samples, p->packet_channels, p->ninputs, p->npositions);
    if (p->nsources > 65536 || p->nstreams > 65536 || p->packet_bytes > 65536 || p->npositions > 1u << 24)
        return br_because(why, "%zu sources, %zu streams, %zu bytes a packet, %zu positions are too many",
                          p->nsources, p->nstreams, p->packet_bytes, p->npositions);
    if (p->nchannels != p->nstreams * p->packet_channels)
        return br_because(why, "%zu channels; expected %zu streams x %zu", p->nchannels, p->nstreams,
                          p->packet_channels);
    if (p->receipt_bytes * 8 < p->nsources * p->nstreams)
        return br_because(why, "a receipt of %zu bytes for %zu packets; expected a bit for each",
                          p->receipt_bytes, p->nsources * p->nstreams);
    if (p->sum_samples % p->packet_samples != 0 || p->sum_samples > BR_UNPACK_MAX_SUM)
        return br_because(why, "sums over %zu samples; expected a multiple of a packet's %zu, at most %d",
                          p->sum_samples, p->packet_samples, BR_UNPACK_MAX_SUM);
    return 0;
}

static int check_tables(const struct br_unpack_params *p, struct br_why *why)
{
    size_t last = (p->packet_samples - 1) * p->time_stride;
    for (size_t f = 0; f < p->nchannels; f++) {
        size_t start = p->channel_stream[f] * p->packet_bytes;
        if (p->channel_stream[f] >= p->nstreams || p->channel_offset[f] < start ||
            p->channel_offset[f] >= start + p->packet_bytes)
            return br_because(why, "channel %zu does not lie in a packet of its stream", f);
    }
    for (size_t i = 0; i < p->ninputs; i++) {
        size_t start = p->input_source[i] * p->nstreams * p->packet_bytes;
        if (p->input_source[i] >= p->nsources || p->input_offset[i] < start ||
            p->input_offset[i] - start + last + (p->packet_channels - 1) * p->channel_stride >=
                p->packet_bytes)
            return br_because(why, "input %zu does not lie in a packet of its source", i);
        if (p->position[i] >= p->npositions)
            return br_because(why, "input %zu goes to position %u of %zu", i, p->position[i], p->npositions);
    }
    return 0;
}

static void *copy(const void *from, size_t count, size_t each)
{
    void *to = malloc(count * each);
    if (to) memcpy(to, from, count * each);
    return to;
}

static int copy_tables(struct br_unpack *plan, struct br_why *why)
{
    struct br_unpack_params *p = &plan->p;
    p->channel_offset = copy(p->channel_offset, p->nchannels, sizeof *p->channel_offset);
    p->channel_stream = copy(p->channel_stream, p->nchannels, sizeof *p->channel_stream);
    p->input_offset = copy(p->input_offset, p->ninputs, sizeof *p->input_offset);
    p->input_source = copy(p->input_source, p->ninputs, sizeof *p->input_source);
    p->position = copy(p->position, p->ninputs, sizeof *p->position);
    plan->input_at = malloc(p->npositions * sizeof *plan->input_at);
    plan->run = malloc(p->ninputs * sizeof *plan->run);
    if (!p->channel_offset || !p->channel_stream || !p->input_offset || !p->input_source || !p->position ||
        !plan->input_at || !plan->run)
        return br_because(why, "no memory for the unpacker");
    for (size_t n = 0; n < p->npositions; n++) plan->input_at[n] = SIZE_MAX;
    for (size_t i = 0; i < p->ninputs; i++) {
        size_t *at = &plan->input_at[p->position[i]];
        if (*at != SIZE_MAX)
            return br_because(why, "inputs %zu and %zu both go to position %u", *at, i, p->position[i]);
        *at = i;
    }
    return 0;
}

static void find_runs(struct br_unpack *plan)
{
    const struct br_unpack_params *p = &plan->p;
    for (size_t n = 0; n < p->npositions; n++) {
        size_t i = plan->input_at[n];
        if (i == SIZE_MAX) continue;
        struct unpack_run *last = plan->nruns > 0 ? &plan->run[plan->nruns - 1] : NULL;
        if (last && last->position + last->length == n && last->source == p->input_source[i] &&
            last->offset + last->length == p->input_offset[i])
            last->length++;
        else
            plan->run[plan->nruns++] = (struct unpack_run){p->input_offset[i], n, 1, p->input_source[i]};
    }
}

static int make_backend(struct br_unpack *plan, struct br_why *why)
{
    if (plan->backend == BR_CPU && br_unpack_cpu_create(plan) != 0)
        return br_because(why, "no memory for the unpacker");
    if (plan->backend != BR_CUDA) return 0;
#if BR_WITH_CUDA
    plan->cuda = plan->p.cuda;
    return plan->cuda ? br_unpack_cuda_create(plan, why) : br_because(why, "BR_CUDA needs a br_cuda");
#else
    return br_because(why, "this beamring was built without CUDA");
#endif
}

int br_unpack_create(struct br_unpack **result, enum br_backend backend,
                     const struct br_unpack_params *params, struct br_why *why)
{
    *result = NULL;
    if (check_shape(params, why) != 0 || check_tables(params, why) != 0) return -1;
    struct br_unpack *plan = calloc(1, sizeof *plan);
    if (!plan) return br_because(why, "no memory for the unpacker");
    plan->backend = backend;
    plan->p = *params;
    plan->block_bytes = params->nsources * params->nstreams * params->packet_bytes;
    int status = copy_tables(plan, why);
    if (status == 0) {
        find_runs(plan);
        status = make_backend(plan, why);
    }
    if (status != 0)
        br_unpack_destroy(plan);
    else
        *result = plan;
    return status;
}

void br_unpack_destroy(struct br_unpack *plan)
{
    if (!plan) return;
    br_unpack_cpu_destroy(plan);
#if BR_WITH_CUDA
    br_unpack_cuda_destroy(plan);
#endif
    free((void *)plan->p.channel_offset);
    free((void *)plan->p.channel_stream);
    free((void *)plan->p.input_offset);
    free((void *)plan->p.input_source);
    free((void *)plan->p.position);
    free(plan->input_at);
    free(plan->run);
    free(plan);
}

void br_unpack_execute(struct br_unpack *plan, size_t nblocks, const uint8_t *in, const uint8_t *receipt,
                       uint8_t *out, uint32_t *sums)
{
    if (plan->p.sum_samples == 0) sums = NULL;
    if (plan->backend == BR_REFERENCE) br_unpack_reference(plan, nblocks, in, receipt, out, sums);
    if (plan->backend == BR_CPU) br_unpack_cpu(plan, nblocks, in, receipt, out, sums);
#if BR_WITH_CUDA
    if (plan->backend == BR_CUDA) br_unpack_cuda(plan, nblocks, in, receipt, out, sums);
#endif
}
