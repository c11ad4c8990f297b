/* The beamformer on Hopper, its plan: the variant, weights as they are to stand in shared memory, launches.
 */
#include "kernels/baseband/hopper.cuh"
#include "kernels/baseband/hopper.h"
#include "kernels/baseband/hopper_small.cuh"
#include "kernels/common/cuda.h"
#include "kernels/common/tensor_map.cuh"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring::baseband::hopper;

using kernel = void (*)(const work, const CUtensorMap, const CUtensorMap);

/* Weights of so many bytes stay in the L2 of an H200 (60 MB) while a frame goes through it. */
constexpr size_t KEPT = 24 << 20;

/* What the host needs to know of a variant. */
struct kind {
    kernel run;
    unsigned beams, fps, threads, piece, parts, consumers, weights;
    places (*place)(unsigned chunks, unsigned buffers, unsigned stages, unsigned beam_tiles);
};

template <class V> static kind kind_of()
{
    return {beamform<V>,         V::BEAMS,     V::FPS,     V::THREADS,  V::PIECE,
            V::HALVES ? 2u : 1u, V::CONSUMERS, V::WEIGHTS, places_of<V>};
}

struct range {
    uintptr_t begin, end;
};

struct br_baseband_hopper {
    struct br_cuda *cuda;
    kind k;
    work w; /* all but what changes from call to call */
    unsigned processors, shared;
    uint8_t *weights;
    float *scales;
    /* frames of few tiles, where there is a kernel for them (small_bytes > 0) */
    int *offsets;
    unsigned small_bytes;
    order_state *state;
    unsigned long long launches, blocks[order_state::SLOTS]; /* blocks: that were launched */
    range e[TOGETHER], out[TOGETHER]; /* of the last launches, by number modulo TOGETHER */
    CUtensorMap weights_map;
    beamring::tensor_map_encoder encode;
};

/* Shared memory: two buffers of weights where these are small, and as many stages as there is room for. At
 * least two stages for each warpgroup; false if there is no room for these. */
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
    bool pair = p->ndishes == 64 && p->npol % 2 == 0 && p->nbeams <= 16;
    const kind kinds[] = {kind_of<variant<16, true>>(), kind_of<variant<16, false>>(),
                          kind_of<variant<32, false>>(), kind_of<variant<64, false>>(),
                          kind_of<variant<96, false>>()};
    size_t least = SIZE_MAX;
    work chosen = {};
    for (size_t i = pair ? 0 : 1; i < (pair ? 1 : sizeof kinds / sizeof *kinds); i++) {
        const kind &k = kinds[i];
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

static void arrange(uint8_t *weights, float *scales, const struct br_baseband_hopper *h,
                    const br_baseband_params *p)
{
    const work &w = h->w;
    unsigned beams = h->k.beams, fps = h->k.fps;
    for (size_t wp = 0; wp < p->weight_channels * p->npol; wp++)
        for (size_t b = 0; b < p->nbeams; b++) {
            const int8_t *given = p->weights + (wp * p->nbeams + b) * p->ndishes * 2;
            size_t row = wp / fps * w.beam_tiles + b / beams, within = wp % fps;
            unsigned beam = static_cast<unsigned>(b % beams);
            scales[(row * fps + within) * beams + beam] = ldexpf(1, -(p->shift[wp * p->nbeams + b] + 8));
            for (size_t dish = 0; dish < p->ndishes; dish++) {
                uint8_t *chunk = weights + (row * w.chunks + dish / DISHES) * h->k.weights;
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
    /* weights: shape (rows, chunks, 3, 96, DISHES), contiguous; the slowest dimensions, together, come last here */
    const cuuint64_t size[3] = {DISHES, h->k.beams, rows * h->w.chunks * 3},
                     stride[2] = {DISHES, static_cast<cuuint64_t>(DISHES) * h->k.beams};
    const cuuint32_t box[3] = {DISHES, small::BEAMS, 2}, ones[3] = {1, 1, 1};
    if (h->encode(&h->weights_map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, h->weights, size, stride, box, ones,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
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
    if (h->offsets != nullptr)
        h->state = static_cast<order_state *>(br_cuda_alloc(h->cuda, sizeof *h->state, why));
    return h->state == nullptr ? -1 : 0;
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
        arrange(weights, scales, h, p);
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
    int device = br_cuda_device(p->cuda), major = 0, minor = 0, room = 0, processors = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    bool takes = major == 9 && minor == 0 && p->ndishes % 16 == 0 && p->ndishes <= MOST_CHUNKS * DISHES &&
                 p->nbeams <= MOST_BEAMS && p->nchannels * p->npol * p->ndishes < INT32_MAX / 2;
    beamring::tensor_map_encoder encode = takes ? beamring::find_tensor_map_encoder() : nullptr;
    if (encode == nullptr) return 0;

    struct br_baseband_hopper *h = static_cast<struct br_baseband_hopper *>(calloc(1, sizeof *h));
    if (h == nullptr) return br_because(why, "no memory for the baseband beamformer");
    h->cuda = p->cuda;
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
    if (p->gpu != BR_BASEBAND_MANY && h->k.beams == 96 && h->w.chunks <= small::CHUNKS) {
        h->small_bytes = small_places_of(h->w.chunks).bytes;
        status = cudaFuncSetAttribute(reinterpret_cast<const void *>(beamform_small),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(h->small_bytes));
        if (status != cudaSuccess)
            return br_because(why, "the baseband beamformer for small frames cannot run on device %d: %s",
                              device, cudaGetErrorString(status));
    }
    if (make_tables(h, p, why) != 0) return -1;

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
    br_cuda_free(h->cuda, h->state);
    free(h);
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
    return h->small_bytes > 0 && tiles <= 3 * h->processors;
}

extern "C" bool br_baseband_hopper(struct br_baseband_hopper *h, const uint8_t *e, const uint8_t *valid,
                                   size_t nsteps, uint8_t *out, unsigned long long *clamped)
{
    size_t time_tiles = (nsteps + TIMES - 1) / TIMES;
    if (reinterpret_cast<uintptr_t>(e) % 16 != 0 || nsteps > INT32_MAX / 2 ||
        time_tiles * h->w.groups > UINT32_MAX / 2)
        return false;
    work w = h->w;
    w.valid = valid;
    w.out = out;
    w.clamped = clamped;
    w.T = static_cast<unsigned>(nsteps);
    w.time_tiles = static_cast<unsigned>(time_tiles);
    w.store_tensor = nsteps % 16 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;

    /* e: shape (T, F P D); out: shape (B, F P, T), contiguous. The slowest dimension comes last here. */
    CUtensorMap field = {}, out_map = {};
    cuuint64_t fp = static_cast<cuuint64_t>(w.F) * w.P, field_size[2] = {fp * w.D, nsteps},
               field_stride[1] = {fp * w.D};
    const bool few = are_few(h, time_tiles * h->w.groups);
    const unsigned piece = few ? small::PIECE : h->k.piece, beams = few ? small::BEAMS : h->k.beams;
    cuuint32_t field_box[2] = {DISHES, piece}, ones[3] = {1, 1, 1};
    CUresult status =
        h->encode(&field, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t *>(e), field_size,
                  field_stride, field_box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status == CUDA_SUCCESS && w.store_tensor) {
        cuuint64_t out_size[3] = {nsteps, fp, w.B}, out_stride[2] = {nsteps, fp * nsteps};
        cuuint32_t out_box[3] = {TIMES, 1, beams};
        status = h->encode(&out_map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, out, out_size, out_stride, out_box,
                           ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
    if (status != CUDA_SUCCESS) return false;

    size_t parts = time_tiles * w.groups * h->k.parts;
    unsigned blocks = parts < h->processors ? static_cast<unsigned>(parts) : h->processors;
    w.share = static_cast<unsigned>(parts / blocks);
    w.more = static_cast<unsigned>(parts % blocks);
    /* It may begin while the launch before it ends: see let_next_begin(). */
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(h->k.threads);
    config.dynamicSmemBytes = h->shared;
    config.stream = static_cast<cudaStream_t>(br_cuda_stream(h->cuda));
    config.attrs = &early;
    config.numAttrs = 1;
    if (!few) {
        br_cuda_ok(h->cuda, cudaLaunchKernelEx(&config, h->k.run, w, field, out_map),
                   "the launch of the baseband beamformer");
        return true;
    }
    config.gridDim = dim3(w.beam_tiles, w.time_tiles, static_cast<unsigned>(fp));
    config.blockDim = dim3(small::THREADS);
    config.dynamicSmemBytes = h->small_bytes;
    range reads = range_of(e, nsteps * fp * w.D), writes = range_of(out, nsteps * fp * w.B);
    unsigned long long number = h->launches + 1;
    order o = {h->state, number, h->blocks[(number + TOGETHER) % order_state::SLOTS],
               h->blocks[(number + 1) % order_state::SLOTS], valid == nullptr};
    for (unsigned i = 0; i < TOGETHER; i++)
        if (meet(reads, h->out[i]) || meet(writes, h->out[i]) || meet(writes, h->e[i])) o.beside = false;
    if (br_cuda_ok(h->cuda, cudaLaunchKernelEx(&config, beamform_small, w, o, field, h->weights_map, out_map),
                   "the launch of the baseband beamformer for small frames")) {
        h->launches = number;
        h->blocks[number % order_state::SLOTS] += w.beam_tiles * time_tiles * fp;
        h->e[number % TOGETHER] = reads;
        h->out[number % TOGETHER] = writes;
    }
    return true;
}
