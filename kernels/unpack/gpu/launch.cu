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
    unsigned variant, threads, chunks; /* V: see tile/convert.cuh */
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

kernel variant(unsigned v, bool swap, bool sums)
{
    return v == 8   ? variant_of<8>(swap, sums)
           : v == 4 ? variant_of<4>(swap, sums)
           : v == 2 ? variant_of<2>(swap, sums)
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

/* Whether all samples come as [time][2 inputs], four times in 8 bytes. */
bool in_pairs(const struct br_unpack *plan)
{
    const struct br_unpack_params *p = &plan->p;
    bool are = p->npositions % 4 == 0 && p->time_stride == 2 && p->packet_samples % TIMES == 0 &&
               p->channel_stride % 8 == 0;
    for (size_t i = 0; i < p->ninputs && are; i++) are = in_packet(p, i) % 8 < 2;
    return are;
}

/* Streams of a tile. If E's rows are not whole sectors, streams whose channels alternate write parts of the
 * same sectors: they go together. */
unsigned find_beside(const struct br_unpack *plan, const unsigned *channel)
{
    const struct br_unpack_params *p = &plan->p;
    unsigned most = p->npositions % SECTOR == 0 || plan->gpu->w.outer > 1 ? 1 : MOST_BESIDE,
             channels = plan->gpu->w.packet_channels;
    for (unsigned beside = most; beside > 1; beside--) {
        bool are = p->nstreams % beside == 0;
        for (size_t s = 0; s < p->nstreams && are; s++)
            for (unsigned c = 0; c < channels && are; c++)
                are = channel[s * channels + c] == channel[(s - s % beside) * channels + c] + s % beside;
        if (are) return beside;
    }
    return 1;
}

void fit_tile(work *w, unsigned channels)
{
    w->channels = channels;
    w->pitch = unpack_pitch(channels * w->channel_stride);
    w->buffer_bytes = unpack_source(w->nsources, w->beside * w->outer, w->pitch);
}

size_t shared_of(const work *w)
{
    return static_cast<size_t>(w->buffers) * w->together * w->buffer_bytes +
           w->nsources * w->beside * (w->outer * sizeof(row) + 2 * sizeof(unsigned));
}

/* Channels of a tile: at least 128 threads, and long runs where not many more suffice (sums take more
 * registers: smaller blocks are faster), but of 128 bytes if at all possible; a third buffer, then packets
 * of at least 8 samples in each, as far as they find room. */
int choose_tile(struct br_unpack *plan, size_t most_shared, struct br_why *why)
{
    work *w = &plan->gpu->w;
    bool sums = plan->p.sum_samples > 0;
    unsigned row = w->beside * w->groups, channels = 1, run = sums ? 256 : 512, threads = sums ? 320 : 512;
    while (channels * row < 128 || (channels * w->channel_stride < run && 2 * channels * row <= threads) ||
           (channels * w->channel_stride < 128 && 2 * channels * row <= MOST_THREADS))
        channels *= 2;
    channels = channels < w->packet_channels ? channels : w->packet_channels;
    while (channels > 1 && channels * w->channel_stride % 16 != 0 && channels < w->packet_channels)
        channels--;
    w->together = 1, w->buffers = MOST_BUFFERS;
    fit_tile(w, channels);
    while (channels > 1 && 2 * shared_of(w) > most_shared) fit_tile(w, channels = (channels + 1) / 2);
    if (2 * shared_of(w) > most_shared) w->buffers = 2;
    while (w->together * w->samples < 8 && 2 * shared_of(w) <= most_shared / 4) w->together *= 2;
    if (row > MOST_THREADS || shared_of(w) > most_shared)
        return br_because(
            why,
            "%zu inputs in packets of %zu samples need %zu bytes of shared memory and %u threads; this GPU "
            "has %zu and %u: unpack on the CPU",
            plan->p.npositions, plan->p.packet_samples, shared_of(w), row, most_shared, MOST_THREADS);
    plan->gpu->shared_bytes = shared_of(w);
    plan->gpu->threads = (channels * row + 31) / 32 * 32;
    plan->gpu->chunks = (w->packet_channels + channels - 1) / channels;
    return 0;
}

/* Channel of E: [stream][channel of the packet]. NULL: no memory. */
unsigned *list_channels(const struct br_unpack *plan)
{
    const struct br_unpack_params *p = &plan->p;
    unsigned *channel = static_cast<unsigned *>(calloc(p->nchannels, sizeof *channel));
    for (size_t f = 0; channel && f < p->nchannels; f++) {
        size_t inside = p->channel_offset[f] - p->channel_stream[f] * p->packet_bytes;
        channel[p->channel_stream[f] * p->packet_channels + inside / p->channel_stride] =
            static_cast<unsigned>(f);
    }
    return channel;
}

uint2 *make_places(const struct br_unpack *plan, size_t entries)
{
    const struct br_unpack_params *p = &plan->p;
    const work *w = &plan->gpu->w;
    unsigned rows = w->beside * w->outer;
    size_t each = plan->gpu->variant > 2 ? plan->gpu->variant : 1;
    uint2 *place = static_cast<uint2 *>(calloc(entries, sizeof *place));
    for (size_t k = 0; place && k < entries; k++) {
        size_t n = k * each, i = n < p->npositions ? plan->input_at[n] : SIZE_MAX;
        place[k] = make_uint2(0, NO_SOURCE);
        if (i != SIZE_MAX)
            place[k] = make_uint2(unpack_place(p->input_source[i], rows, w->outer_bytes, w->pitch,
                                               static_cast<unsigned>(in_packet(p, i))),
                                  p->input_source[i] * w->beside);
    }
    return place;
}

/* Sorts by channel and then by stream: so the streams of a tile are neighbours in E. */
uint2 *make_channels(const struct br_unpack *plan, const unsigned *channel)
{
    const work *w = &plan->gpu->w;
    uint2 *sorted = static_cast<uint2 *>(calloc(w->F, sizeof *sorted));
    for (unsigned k = 0; sorted && k < w->F; k++) {
        unsigned beside = k % w->beside, c = k / w->beside % w->packet_channels,
                 stream = k / w->beside / w->packet_channels * w->beside + beside;
        sorted[k] = make_uint2(channel[stream * w->packet_channels + c], beside << 16 | c);
    }
    return sorted;
}

int make_tables(struct br_unpack *plan, const unsigned *channels, struct br_why *why)
{
    struct br_unpack_gpu *g = plan->gpu;
    size_t each = g->variant > 2 ? g->variant : 1, entries = (plan->p.npositions + 3) / 4 * 4 / each;
    uint2 *place = make_places(plan, entries), *channel = make_channels(plan, channels);
    int status = place && channel ? 0 : br_because(why, "no memory for the unpacker");
    if (status == 0) {
        g->place = br_cuda_table(plan->cuda, place, entries * sizeof *place, why);
        g->channel = br_cuda_table(plan->cuda, channel, plan->p.nchannels * sizeof *channel, why);
        if (!g->place || !g->channel) status = -1;
    }
    g->w.place = static_cast<const uint2 *>(g->place);
    g->w.channel = static_cast<const uint2 *>(g->channel);
    free(place);
    free(channel);
    return status;
}

void make_quad(work *w)
{
    quad *q = &w->quad;
    q->packets = w->samples > 2 ? 1 : TIMES / w->samples < w->together ? TIMES / w->samples : w->together;
    q->samples = w->samples > 2 ? TIMES : q->packets * w->samples;
    while (q->packets == 1 && w->samples % q->samples != 0) q->samples--;
    for (unsigned k = 0; k < q->samples; k++) {
        unsigned packet = q->packets > 1 ? k / w->samples : 0;
        q->at[k] = packet * w->buffer_bytes + (k - packet * w->samples) * w->time_place;
        q->left[k] = 31 - packet;
    }
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
    unsigned v = in_groups(plan, 8) ? 8 : in_groups(plan, 4) ? 4 : in_pairs(plan) ? 2 : 1;
    plan->gpu->variant = v;
    w->groups = (w->N + (v == 8 ? 7 : 3)) / (v == 8 ? 8 : 4);
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
    if (describe(plan, why) != 0) return -1;
    work *w = &plan->gpu->w;
    unsigned *channels = list_channels(plan);
    if (!channels) return br_because(why, "no memory for the unpacker");
    w->beside = find_beside(plan, channels);
    w->row_bytes = w->beside > 1 ? static_cast<unsigned>(w->packet_bytes) : w->outer_bytes;
    int status = choose_tile(plan, static_cast<size_t>(most), why);
    if (status == 0) status = make_tables(plan, channels, why);
    free(channels);
    if (status != 0) return -1;
    w->time_place = plan->p.time_stride < plan->p.channel_stride
                        ? static_cast<unsigned>(plan->p.time_stride)
                        : static_cast<unsigned>(plan->p.time_stride / w->outer_bytes * w->pitch);
    make_quad(w);
    for (int sums = 0; sums < 2; sums++) {
        cudaError_t set = cudaFuncSetAttribute(
            reinterpret_cast<const void *>(variant(plan->gpu->variant, plan->p.real_high, sums != 0)),
            cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan->gpu->shared_bytes));
        if (set != cudaSuccess) {
            (void)cudaGetLastError();
            return br_because(why, "%zu bytes of shared memory on device %d: %s", plan->gpu->shared_bytes,
                              br_cuda_device(plan->cuda), cudaGetErrorString(set));
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
    unsigned blocks = (w.nblocks + w.per_sum - 1) / w.per_sum * plan->gpu->chunks * (w.nstreams / w.beside);
    variant(plan->gpu->variant, plan->p.real_high,
            sums != NULL)<<<blocks, plan->gpu->threads, plan->gpu->shared_bytes,
                            static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w, wide);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the unpacker");
}
