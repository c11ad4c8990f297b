/* The unpacker on a GPU: the tile and variant that suit the packets' order, and its launch. */
#include "kernels/unpack/gpu/tile/layout.h"
#include "kernels/unpack/gpu/tile/tile.cuh"
#include "kernels/unpack/plan.h"

#include "kernels/common/cuda.h"

#include <cuda_runtime.h>
#include <stdlib.h>

using namespace beamring;
using namespace beamring::unpack;

struct br_unpack_gpu {
    work w;
    unsigned group, threads, chunks; /* positions a thread owns: 8, 4, or 1 */
    size_t shared_bytes;
    void *place, *channel;
};

namespace
{

using kernel = void (*)(work, unsigned);

template <unsigned V> kernel variant_of(bool swap, bool sums)
{
    if (swap) return sums ? tile<V, true, true> : tile<V, true, false>;
    return sums ? tile<V, false, true> : tile<V, false, false>;
}

kernel variant(unsigned group, bool swap, bool sums)
{
    return group == 8   ? variant_of<8>(swap, sums)
           : group == 4 ? variant_of<4>(swap, sums)
                        : variant_of<1>(swap, sums);
}

/* Bytes of input i in a packet. */
size_t in_packet(const struct br_unpack_params *p, size_t i)
{
    return p->input_offset[i] - p->input_source[i] * p->nstreams * p->packet_bytes;
}

/* Whether positions can be taken V at a time: each such group has all of one source's adjacent inputs, or
 * none. */
bool in_groups(const struct br_unpack *plan, unsigned V)
{
    const struct br_unpack_params *p = &plan->p;
    if (p->npositions % V != 0 || p->channel_stride % V != 0 || p->time_stride % V != 0) return false;
    for (size_t n = 0; n < p->npositions; n += V) {
        size_t i = plan->input_at[n];
        if (i != SIZE_MAX && in_packet(p, i) % V != 0) return false;
        for (unsigned k = 1; k < V; k++) {
            size_t j = plan->input_at[n + k];
            if ((i == SIZE_MAX) != (j == SIZE_MAX)) return false;
            if (i != SIZE_MAX &&
                (p->input_source[j] != p->input_source[i] || in_packet(p, j) != in_packet(p, i) + k))
                return false;
        }
    }
    return true;
}

void fit_tile(work *w, unsigned channels)
{
    w->channels = channels;
    w->pitch = unpack_pitch(channels * w->channel_stride);
    w->buffer_bytes = unpack_source(w->nsources, w->outer, w->pitch);
}

size_t shared_of(const work *w)
{
    return static_cast<size_t>(BUFFERS) * w->together * w->buffer_bytes + w->nsources * sizeof(unsigned);
}

/* Channels of a tile: about 128 threads, and runs of at least 128 bytes, as far as both find room. Packets in
 * a buffer: at least 8 samples, as far as four blocks find room. */
int choose_tile(struct br_unpack *plan, size_t most_shared, struct br_why *why)
{
    work *w = &plan->gpu->w;
    unsigned channels = w->groups >= 128 ? 1 : 128 / w->groups;
    channels = channels < w->packet_channels ? channels : w->packet_channels;
    while (channels * w->channel_stride < 128 && 2 * channels * w->groups <= MOST_THREADS &&
           2 * channels <= w->packet_channels)
        channels *= 2;
    while (channels > 1 && channels * w->channel_stride % 16 != 0 && channels < w->packet_channels)
        channels--;
    w->together = 1;
    fit_tile(w, channels);
    while (channels > 1 && shared_of(w) > most_shared) fit_tile(w, channels = (channels + 1) / 2);
    while (w->together * w->samples < 8 && 2 * shared_of(w) <= most_shared / 4) w->together *= 2;
    if (w->groups > MOST_THREADS || shared_of(w) > most_shared)
        return br_because(
            why,
            "%zu inputs in packets of %zu samples need %zu bytes of shared memory and %u threads; this GPU "
            "has %zu and %u: unpack on the CPU",
            plan->p.npositions, plan->p.packet_samples, shared_of(w), w->groups, most_shared, MOST_THREADS);
    plan->gpu->shared_bytes = shared_of(w);
    plan->gpu->threads = (channels * w->groups + 31) / 32 * 32;
    plan->gpu->chunks = (w->packet_channels + channels - 1) / channels;
    return 0;
}

int make_tables(struct br_unpack *plan, struct br_why *why)
{
    const struct br_unpack_params *p = &plan->p;
    struct br_unpack_gpu *g = plan->gpu;
    work *w = &g->w;
    size_t each = g->group == 1 ? 1 : g->group, entries = (p->npositions + 3) / 4 * 4 / each;
    uint2 *place = static_cast<uint2 *>(calloc(entries, sizeof *place));
    unsigned *channel = static_cast<unsigned *>(calloc(p->nchannels, sizeof *channel));
    int status = place && channel ? 0 : br_because(why, "no memory for the unpacker");
    for (size_t k = 0; status == 0 && k < entries; k++) {
        size_t n = k * each, i = n < p->npositions ? plan->input_at[n] : SIZE_MAX;
        place[k] = make_uint2(0, NO_SOURCE);
        if (i != SIZE_MAX)
            place[k] = make_uint2(unpack_place(p->input_source[i], w->outer, w->outer_bytes, w->pitch,
                                               static_cast<unsigned>(in_packet(p, i))),
                                  p->input_source[i]);
    }
    for (size_t f = 0; status == 0 && f < p->nchannels; f++) {
        size_t inside = p->channel_offset[f] - p->channel_stream[f] * p->packet_bytes;
        channel[p->channel_stream[f] * p->packet_channels + inside / p->channel_stride] =
            static_cast<unsigned>(f);
    }
    if (status == 0) {
        g->place = br_cuda_table(plan->cuda, place, entries * sizeof *place, why);
        g->channel = br_cuda_table(plan->cuda, channel, p->nchannels * sizeof *channel, why);
        if (!g->place || !g->channel) status = -1;
    }
    w->place = static_cast<const uint2 *>(g->place);
    w->channel = static_cast<const unsigned *>(g->channel);
    free(place);
    free(channel);
    return status;
}

/* The packet as runs of adjacent channels. -1: its bytes are not an array's. */
int describe(struct br_unpack *plan, struct br_why *why)
{
    const struct br_unpack_params *p = &plan->p;
    work *w = &plan->gpu->w;
    size_t outer_bytes = p->packet_channels * p->channel_stride;
    bool whole =
        p->channel_stride > 0 && p->packet_bytes % outer_bytes == 0 &&
        (p->time_stride < p->channel_stride || p->time_stride % outer_bytes == 0 || p->packet_samples == 1);
    for (size_t f = 0; whole && f < p->nchannels; f++)
        whole = (p->channel_offset[f] - p->channel_stream[f] * p->packet_bytes) % p->channel_stride == 0 &&
                p->channel_offset[f] - p->channel_stream[f] * p->packet_bytes < outer_bytes;
    for (size_t i = 0; whole && i < p->ninputs; i++)
        whole = in_packet(p, i) % outer_bytes < p->channel_stride;
    if (!whole)
        return br_because(why,
                          "the bytes of a packet are not an array of time, channels and inputs in any order");
    w->F = static_cast<unsigned>(p->nchannels), w->N = static_cast<unsigned>(p->npositions);
    w->nsources = static_cast<unsigned>(p->nsources), w->nstreams = static_cast<unsigned>(p->nstreams);
    w->receipt_bytes = static_cast<unsigned>(p->receipt_bytes);
    w->samples = static_cast<unsigned>(p->packet_samples);
    w->packet_channels = static_cast<unsigned>(p->packet_channels);
    w->channel_stride = static_cast<unsigned>(p->channel_stride);
    w->outer_bytes = static_cast<unsigned>(outer_bytes);
    w->outer = static_cast<unsigned>(p->packet_bytes / outer_bytes);
    w->packet_bytes = p->packet_bytes, w->source_bytes = p->nstreams * p->packet_bytes;
    w->block_bytes = plan->block_bytes;
    w->flip = p->offset_binary ? 0x88888888u : 0;
    plan->gpu->group = in_groups(plan, 8) ? 8 : in_groups(plan, 4) ? 4 : 1;
    w->groups = (w->N + (plan->gpu->group == 8 ? 7 : 3)) / (plan->gpu->group == 8 ? 8 : 4);
    size_t each = p->sum_samples > 0 ? p->sum_samples / p->packet_samples : 256 / p->packet_samples;
    w->per_sum = static_cast<unsigned>(each > 0 ? each : 1);
    return 0;
}

} // namespace

extern "C" int br_unpack_cuda_create(struct br_unpack *plan, struct br_why *why)
{
    int most = 0;
    plan->gpu = static_cast<struct br_unpack_gpu *>(calloc(1, sizeof *plan->gpu));
    if (!plan->gpu) return br_because(why, "no memory for the unpacker");
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, br_cuda_device(plan->cuda));
    if (describe(plan, why) != 0 || choose_tile(plan, static_cast<size_t>(most), why) != 0 ||
        make_tables(plan, why) != 0)
        return -1;
    work *w = &plan->gpu->w;
    w->time_place = plan->p.time_stride < plan->p.channel_stride
                        ? static_cast<unsigned>(plan->p.time_stride)
                        : static_cast<unsigned>(plan->p.time_stride / w->outer_bytes * w->pitch);
    for (int sums = 0; sums < 2; sums++) {
        cudaError_t status = cudaFuncSetAttribute(
            reinterpret_cast<const void *>(variant(plan->gpu->group, plan->p.real_high, sums != 0)),
            cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan->gpu->shared_bytes));
        if (status != cudaSuccess) {
            (void)cudaGetLastError();
            return br_because(why, "%zu bytes of shared memory on device %d: %s", plan->gpu->shared_bytes,
                              br_cuda_device(plan->cuda), cudaGetErrorString(status));
        }
    }
    return 0;
}

extern "C" void br_unpack_cuda_destroy(struct br_unpack *plan)
{
    if (!plan->gpu) return;
    br_cuda_free(plan->cuda, plan->gpu->place);
    br_cuda_free(plan->cuda, plan->gpu->channel);
    free(plan->gpu);
    plan->gpu = NULL;
}

extern "C" void br_unpack_cuda(struct br_unpack *plan, size_t nblocks, const uint8_t *in,
                               const uint8_t *receipt, uint8_t *out, uint32_t *sums)
{
    if (nblocks == 0) return;
    work w = plan->gpu->w;
    w.in = in, w.receipt = receipt, w.out = out, w.sums = sums;
    w.nblocks = static_cast<unsigned>(nblocks);
    size_t together = reinterpret_cast<uintptr_t>(in) | w.packet_bytes | w.outer_bytes |
                      (w.channels < w.packet_channels ? w.channels * w.channel_stride : 0);
    unsigned wide = together % 16 == 0 ? 16 : together % 4 == 0 ? 4 : 1;
    unsigned blocks = (w.nblocks + w.per_sum - 1) / w.per_sum * plan->gpu->chunks * w.nstreams;
    variant(plan->gpu->group, plan->p.real_high,
            sums != NULL)<<<blocks, plan->gpu->threads, plan->gpu->shared_bytes,
                            static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w, wide);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the unpacker");
}
