/* The beamformer on Hopper, its plan: the variant, weights in the layout of shared memory, launches. */
#include "kernels/baseband/gpu/wgmma/persistent.cuh"
#include "kernels/baseband/gpu/wgmma/small_frames.cuh"
#include "kernels/baseband/gpu/wgmma/wgmma.h"
#include "kernels/common/cuda.h"
#include "kernels/common/tensor_map.cuh"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using beamring::baseband::ending;
using namespace beamring::baseband::hopper;

using kernel = void (*)(const work, const order, const CUtensorMap, const CUtensorMap);

/* Weights of so many bytes stay in the L2 of an H200 (60 MB) while a frame goes through it. */
constexpr size_t KEPT = 24 << 20;

/* The host's description of a variant. */
struct kind {
    kernel run;
    unsigned beams, fps, threads, piece, times, parts, consumers, weights;
    places (*place)(unsigned chunks, unsigned buffers, unsigned stages, unsigned beam_tiles);
};

template <class V, ending END = ending::NIBBLES> static kind kind_of()
{
    return {beamform<V, END>,    V::BEAMS,     V::FPS,     V::THREADS,  V::PIECE, V::TILE,
            V::HALVES ? 2u : 1u, V::CONSUMERS, V::WEIGHTS, places_of<V>};
}

/* The variants without pairs, with an end. */
constexpr size_t KINDS = 4;

template <ending END> static kind kind_number(size_t i)
{
    constexpr bool THREE = END == ending::POWERS;
    return i == 0   ? kind_of<variant<16, false>, END>()
           : i == 1 ? kind_of<variant<32, false>, END>()
           : i == 2 ? kind_of<variant<64, false, THREE>, END>()
                    : kind_of<variant<96, false>, END>();
}

static kind kind_number(ending makes, size_t i)
{
    return makes == ending::BYTES    ? kind_number<ending::BYTES>(i)
           : makes == ending::POWERS ? kind_number<ending::POWERS>(i)
                                     : kind_number<ending::NIBBLES>(i);
}

struct range {
    uintptr_t begin, end;
};

struct br_baseband_hopper {
    struct br_cuda *cuda;
    ending makes;
    kind k;
    work w; /* all but what changes from call to call */
    unsigned processors, shared;
    uint8_t *weights;
    float *scales;

    /* frames of few tiles, where there is a kernel for them (small_bytes > 0) */
    int *offsets;
    unsigned small_bytes;

    /* launches that run concurrently */
    order_state *state;
    volatile unsigned *follows;                              /* the device writes there; see tell_host() */
    unsigned long long launches, blocks[order_state::SLOTS]; /* blocks: that were launched */
    range e[TOGETHER], out[TOGETHER]; /* of the last launches, by number modulo TOGETHER */
    CUtensorMap weights_map;
    beamring::tensor_map_encoder encode;
};

/* Shared memory: two buffers of weights where these are small, and as many stages as there is room for. At
 * least two stages for each warpgroup; false if they do not fit. */
static bool fits(const kind &k, work *w, unsigned room)
{
    constexpr unsigned SMALL = 48 * 1024;
    w->buffers = 2 * w->chunks * k.weights <= SMALL ? 2 : 1;
    for (w->stages = MOST_STAGES; w->stages >= 2; w->stages--)
        if (k.place(w->chunks, w->buffers, w->stages, w->beam_tiles).bytes <= room) return true;
    return false;
}

/* The variant with which all tiles together cost least: the time of one goes with its beams, plus about as
 * much as for 12 beams to bring and unpack the field. */
static bool choose(struct br_baseband_hopper *h, const br_baseband_params *p, unsigned room)
{
    bool nibbles = h->makes == ending::NIBBLES;
    bool pair = p->ndishes == 64 && p->npol % 2 == 0 && p->nbeams <= 16 && nibbles;
    size_t least = SIZE_MAX;
    work chosen = {};
    for (size_t i = 0; i < (pair ? 1 : KINDS); i++) {
        const kind k = pair ? kind_of<variant<16, true>>() : kind_number(h->makes, i);
        work w = {};
        w.chunks = static_cast<uint8_t>((p->ndishes + DISHES - 1) / DISHES);
        w.beam_tiles = static_cast<unsigned>((p->nbeams + k.beams - 1) / k.beams);
        size_t cost = w.beam_tiles * (static_cast<size_t>(k.beams) + 12);
        if (cost >= least || !fits(k, &w, room)) continue;
        least = cost;
        chosen = w;
        h->k = k;
    }
    h->w = chosen;
    return least != SIZE_MAX;
}

/* Tables while they are made. */
struct arranged {
    uint8_t *weights;
    float *scales;
    const struct br_baseband_hopper *h;
    const br_baseband_params *p;
};

/* One channel and polarisation. */
static void arrange(void *arg, size_t wp, unsigned worker)
{
    (void)worker;
    const arranged *a = static_cast<const arranged *>(arg);
    const struct br_baseband_hopper *h = a->h;
    const br_baseband_params *p = a->p;
    const work &w = h->w;
    unsigned beams = h->k.beams, fps = h->k.fps;
    for (size_t b = 0; b < p->nbeams; b++) {
        const int8_t *given = p->weights + (wp * p->nbeams + b) * p->ndishes * 2;
        size_t row = wp / fps * w.beam_tiles + b / beams, within = wp % fps;
        unsigned beam = static_cast<unsigned>(b % beams);
        a->scales[(row * fps + within) * beams + beam] = ldexpf(1, -(p->shift[wp * p->nbeams + b] + 8));
        for (size_t dish = 0; dish < p->ndishes; dish++) {
            uint8_t *chunk = a->weights + (row * w.chunks + dish / DISHES) * h->k.weights;
            unsigned in = static_cast<unsigned>(dish % DISHES + within * 64);
            chunk[br_hopper_weight(beams, 0, beam, in)] = static_cast<uint8_t>(-given[2 * dish + 1]);
            chunk[br_hopper_weight(beams, 1, beam, in)] = static_cast<uint8_t>(given[2 * dish]);
            chunk[br_hopper_weight(beams, 2, beam, in)] = static_cast<uint8_t>(given[2 * dish + 1]);
        }
    }
}

/* For frames of few tiles: how 48 beams' weights of a chunk, re and im, are loaded. */
static int make_weights_map(struct br_baseband_hopper *h, size_t rows, struct br_why *why)
{
    /* weights: shape (rows, chunks, 3, 96, DISHES), contiguous; the slowest dimensions, together, come
     * last here */
    const cuuint64_t size[3] = {DISHES, h->k.beams, rows * h->w.chunks * 3},
                     stride[2] = {DISHES, static_cast<cuuint64_t>(DISHES) * h->k.beams};
    const cuuint32_t box[3] = {DISHES, small::BEAMS, 2}, ones[3] = {1, 1, 1};
    if (h->encode(&h->weights_map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, h->weights, size, stride, box, ones,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return br_because(why, "the driver refuses to describe the weights of %zu beam tiles", rows);
    return 0;
}

/* For frames of few tiles: what sums begin with, laid out as scales. */
static int make_small_tables(struct br_baseband_hopper *h, const br_baseband_params *p, size_t rows,
                             struct br_why *why)
{
    unsigned beams = h->k.beams;
    size_t bytes = rows * beams * sizeof(int);
    int *offsets = static_cast<int *>(calloc(1, bytes));
    if (offsets == nullptr)
        return br_because(why, "no memory for %zu beams and %zu dishes", p->nbeams, p->ndishes);
    for (size_t i = 0; i < p->weight_channels * p->npol * p->nbeams; i++) {
        size_t row = i / p->nbeams * h->w.beam_tiles + i % p->nbeams / beams;
        for (size_t dish = 0; dish < p->ndishes; dish++)
            offsets[row * beams + i % p->nbeams % beams] += 16 * p->weights[(i * p->ndishes + dish) * 2 + 1];
    }
    h->offsets = static_cast<int *>(br_cuda_table(h->cuda, offsets, bytes, why));
    free(offsets);
    return h->offsets == nullptr ? -1 : 0;
}

/* Not for a plan that is never executed: locked memory that comes or goes may hold up the device. */
static int make_order(struct br_baseband_hopper *h, struct br_why *why)
{
    if (br_cuda_is_aside(h->cuda)) return 0;
    h->state = static_cast<order_state *>(br_cuda_alloc(h->cuda, sizeof *h->state, why));
    if (h->state == nullptr) return -1;
    void *follows = nullptr;
    cudaError_t status = cudaHostAlloc(&follows, sizeof *h->follows, cudaHostAllocMapped);
    if (status != cudaSuccess)
        return br_because(why, "no memory that host and device share for the baseband beamformer: %s",
                          cudaGetErrorString(status));
    h->follows = static_cast<volatile unsigned *>(follows);
    *h->follows = 0;
    return 0;
}

static int make_tables(struct br_baseband_hopper *h, const br_baseband_params *p, struct br_why *why)
{
    size_t rows = p->weight_channels * p->npol / h->k.fps * h->w.beam_tiles,
           weight_bytes = rows * h->w.chunks * h->k.weights,
           scale_bytes = rows * h->k.fps * h->k.beams * sizeof(float);
    h->w.keep_weights = weight_bytes <= KEPT;
    uint8_t *weights = static_cast<uint8_t *>(calloc(1, weight_bytes));
    float *scales = static_cast<float *>(calloc(1, scale_bytes));
    int failed = 0;
    if (weights == nullptr || scales == nullptr) {
        failed =
            br_because(why, "no memory for the weights of %zu beams and %zu dishes", p->nbeams, p->ndishes);
    } else {
        arranged to = {weights, scales, h, p};
        br_parallel_for(&p->making, p->weight_channels * p->npol, arrange, &to);
        h->weights = static_cast<uint8_t *>(br_cuda_table(h->cuda, weights, weight_bytes, why));
        if (h->weights != nullptr)
            h->scales = static_cast<float *>(br_cuda_table(h->cuda, scales, scale_bytes, why));
        failed = h->scales == nullptr ? -1 : 0;
        if (!failed && h->small_bytes > 0)
            failed = make_small_tables(h, p, rows, why) != 0 || make_weights_map(h, rows, why) != 0;
    }
    free(weights);
    free(scales);
    return failed;
}

extern "C" int br_baseband_hopper_create(struct br_baseband_hopper **hopper,
                                         const struct br_baseband_params *p, struct br_why *why)
{
    *hopper = nullptr;
    int device = br_cuda_device(p->cuda), room = 0, processors = 0;
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    bool takes = br_cuda_is_hopper(device) && p->ndishes % 16 == 0 && p->ndishes <= MOST_CHUNKS * DISHES &&
                 p->nbeams <= MOST_BEAMS && p->nchannels * p->npol * p->ndishes < INT32_MAX / 2;
    beamring::tensor_map_encoder encode = takes ? beamring::find_tensor_map_encoder() : nullptr;
    if (encode == nullptr) return 0;

    struct br_baseband_hopper *h = static_cast<struct br_baseband_hopper *>(calloc(1, sizeof *h));
    if (h == nullptr) return br_because(why, "no memory for the baseband beamformer");
    h->cuda = p->cuda;
    h->makes = p->integrate > 0 ? ending::POWERS : p->bits == 8 ? ending::BYTES : ending::NIBBLES;
    h->encode = encode;
    h->processors = static_cast<unsigned>(processors);
    if (!choose(h, p, static_cast<unsigned>(room))) {
        free(h);
        return 0;
    }
    *hopper = h;
    h->shared = h->k.place(h->w.chunks, h->w.buffers, h->w.stages, h->w.beam_tiles).bytes;
    cudaError_t status =
        cudaFuncSetAttribute(reinterpret_cast<const void *>(h->k.run),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(h->shared));
    if (status != cudaSuccess)
        return br_because(why, "the baseband beamformer cannot run on device %d: %s", device,
                          cudaGetErrorString(status));
    if (p->gpu != BR_BASEBAND_MANY && h->k.beams == 96 && h->w.chunks <= small::CHUNKS &&
        h->makes == ending::NIBBLES) {
        h->small_bytes = small_places_of(h->w.chunks).bytes;
        status = cudaFuncSetAttribute(reinterpret_cast<const void *>(beamform_small),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(h->small_bytes));
        if (status != cudaSuccess)
            return br_because(why, "the baseband beamformer for small frames cannot run on device %d: %s",
                              device, cudaGetErrorString(status));
    }
    if (make_tables(h, p, why) != 0 || make_order(h, why) != 0) return -1;

    work &w = h->w;
    w.weights = h->weights;
    w.scales = h->scales;
    w.offsets = h->offsets;
    w.total = br_cuda_counter(p->cuda);
    w.F = static_cast<unsigned>(p->nchannels);
    w.P = static_cast<unsigned>(p->npol);
    w.B = static_cast<unsigned>(p->nbeams);
    w.D = static_cast<unsigned>(p->ndishes);
    w.weight_rows = static_cast<unsigned>(p->weight_channels * p->npol / h->k.fps);
    w.groups = static_cast<unsigned>(p->nchannels * p->npol / h->k.fps) * w.beam_tiles;
    return 0;
}

extern "C" void br_baseband_hopper_destroy(struct br_baseband_hopper *h)
{
    if (h == nullptr) return;
    br_cuda_free(h->cuda, h->weights);
    br_cuda_free(h->cuda, h->scales);
    br_cuda_free(h->cuda, h->offsets);
    br_cuda_free(h->cuda, h->state); /* waits for the stream */
    if (h->follows != nullptr) cudaFreeHost(const_cast<unsigned *>(h->follows));
    free(h);
}

extern "C" bool br_baseband_hopper_alike(const struct br_baseband_hopper *a,
                                         const struct br_baseband_hopper *b)
{
    if (a == nullptr || b == nullptr) return a == b;
    return a->k.run == b->k.run && a->small_bytes == b->small_bytes && a->shared == b->shared;
}

/* All that follows from the weights; the order of launches is that of a plan. */
extern "C" void br_baseband_hopper_exchange(struct br_baseband_hopper *a, struct br_baseband_hopper *b)
{
    const struct br_baseband_hopper kept = *a;
    unsigned long long *total = a->w.total, *other = b->w.total;
    a->w = b->w;
    a->weights = b->weights;
    a->scales = b->scales;
    a->offsets = b->offsets;
    a->weights_map = b->weights_map;
    b->w = kept.w;
    b->weights = kept.weights;
    b->scales = kept.scales;
    b->offsets = kept.offsets;
    b->weights_map = kept.weights_map;
    a->w.total = total;
    b->w.total = other;
}

static range range_of(const void *memory, size_t bytes)
{
    uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    return {begin, begin + bytes};
}

static bool meet(range a, range b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Whether a frame has so few tiles that the kernel made for that is faster. The other one has less to do for
 * each tile, but more for each launch. */
static bool are_few(const struct br_baseband_hopper *h, size_t tiles)
{
    return h->small_bytes > 0 && tiles * 2 <= h->processors;
}

/* The boxes in which the field comes and the beams go.
 * e: shape (T, F P D); out: shape (B, F P, T), contiguous. The slowest dimension comes last here. */
static bool make_maps(const struct br_baseband_hopper *h, const work &w, const uint8_t *e, unsigned piece,
                      unsigned beams, CUtensorMap *field, CUtensorMap *out)
{
    const cuuint64_t fp = static_cast<cuuint64_t>(w.F) * w.P, field_size[2] = {fp * w.D, w.T},
                     field_stride[1] = {fp * w.D}, out_size[3] = {w.T, fp, w.B},
                     out_stride[2] = {w.T, fp * w.T};
    const cuuint32_t field_box[2] = {DISHES, piece}, out_box[3] = {TIMES, 1, beams}, ones[3] = {1, 1, 1};
    CUresult status =
        h->encode(field, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t *>(e), field_size, field_stride,
                  field_box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status == CUDA_SUCCESS && w.store_tensor && h->makes == ending::NIBBLES)
        status = h->encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, w.out, out_size, out_stride, out_box, ones,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return status == CUDA_SUCCESS;
}

/* The number of launches directly before the next one that share no memory with it, other than reads. */
static unsigned count_apart(const struct br_baseband_hopper *h, range reads, range writes)
{
    for (unsigned depth = 0; depth < TOGETHER; depth++) {
        unsigned i = (h->launches + TOGETHER - depth) % TOGETHER;
        if (meet(reads, h->out[i]) || meet(writes, h->out[i]) || meet(writes, h->e[i])) return depth;
    }
    return TOGETHER;
}

/* Blocks that share a frame's tiles. A frame alone: as many as run at once, shares in halves of tiles.
 * Where frames follow each other, `depth` of them concurrently: whole tiles, 4 a block (or 2, where
 * only 2 or 3 frames can be) so long as all multiprocessors have work. */
static unsigned share_out(const struct br_baseband_hopper *h, work *w, size_t tiles, unsigned depth,
                          bool follows)
{
    size_t parts = tiles * h->k.parts, processors = h->processors;
    size_t blocks = parts < processors ? parts : processors;
    if (follows && depth > 1 && tiles <= 8 * processors) {
        size_t each = (tiles + processors - 1) / processors, most = depth >= 4 ? 4 : 2,
               several = (tiles * most + processors - 1) / processors;
        if (each < most) each = several < most ? several : most;
        blocks = (tiles + each - 1) / each;
    }
    w->share = static_cast<unsigned>(parts / blocks);
    w->more = static_cast<unsigned>(parts % blocks);
    return static_cast<unsigned>(blocks);
}

extern "C" bool br_baseband_hopper(struct br_baseband_hopper *h, const uint8_t *e, const uint8_t *valid,
                                   size_t nsteps, uint8_t *out, unsigned long long *clamped, bool groups)
{
    if (h->state == nullptr)
        return !br_cuda_ok(h->cuda, cudaErrorInvalidValue, "executing a plan that was made aside");
    const size_t time_tiles = (nsteps + h->k.times - 1) / h->k.times, tiles = time_tiles * h->w.groups,
                 fp = static_cast<size_t>(h->w.F) * h->w.P;
    if (reinterpret_cast<uintptr_t>(e) % 16 != 0 || nsteps > INT32_MAX / 2 || tiles > UINT32_MAX / 2)
        return false;
    const size_t each = h->makes == ending::NIBBLES ? 1 : h->makes == ending::BYTES ? 2 : sizeof(float);
    const range reads = range_of(e, nsteps * fp * h->w.D),
                writes = range_of(out, nsteps * fp * h->w.B * each);
    const unsigned depth = valid == nullptr ? count_apart(h, reads, writes) : 0;
    const bool follows = *h->follows != 0, few = are_few(h, tiles);
    work w = h->w;
    w.valid = valid;
    w.out = out;
    w.clamped = clamped;
    w.T = static_cast<unsigned>(nsteps);
    w.time_tiles = static_cast<unsigned>(time_tiles);
    w.store_tensor =
        h->makes == ending::POWERS ? groups : nsteps % 16 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
    CUtensorMap field = {}, out_map = {};
    if (!make_maps(h, w, e, few ? small::PIECE : h->k.piece, few ? small::BEAMS : h->k.beams, &field,
                   &out_map))
        return false;

    /* It may begin while the launch before it ends: see let_next_begin(). */
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.stream = static_cast<cudaStream_t>(br_cuda_stream(h->cuda));
    config.attrs = &early;
    config.numAttrs = 1;
    if (few) {
        config.gridDim =
            dim3((w.B + small::BEAMS - 1) / small::BEAMS, w.time_tiles, static_cast<unsigned>(fp));
        config.blockDim = dim3(small::THREADS);
        config.dynamicSmemBytes = h->small_bytes;
    } else {
        config.gridDim = dim3(share_out(h, &w, tiles, depth, follows));
        config.blockDim = dim3(h->k.threads);
        config.dynamicSmemBytes = h->shared;
    }
    constexpr unsigned SLOTS = order_state::SLOTS;
    const unsigned long long number = h->launches + 1;
    const unsigned slot = number % SLOTS, last = (number + SLOTS - 1) % SLOTS,
                   oldest = (number + SLOTS - (depth > 0 ? depth : 1)) % SLOTS;
    const order o = {h->state,
                     number,
                     &h->state->ended[slot],
                     &h->state->ended[last],
                     &h->state->ended[oldest],
                     h->blocks[last],
                     h->blocks[oldest],
                     const_cast<unsigned *>(h->follows),
                     depth > 1};
    if (br_cuda_ok(h->cuda,
                   few ? cudaLaunchKernelEx(&config, beamform_small, w, o, field, h->weights_map, out_map)
                       : cudaLaunchKernelEx(&config, h->k.run, w, o, field, out_map),
                   "the launch of the baseband beamformer")) {
        h->launches = number;
        h->blocks[slot] +=
            static_cast<unsigned long long>(config.gridDim.x) * config.gridDim.y * config.gridDim.z;
        h->e[number % TOGETHER] = reads;
        h->out[number % TOGETHER] = writes;
    }
    return true;
}
