/* The beamformer on a GPU, its plan: the tile's size, weights in the order of the tensor cores, launches. The
 * table in baseband.h says which kernel is run when. */
#include "kernels/baseband/gpu/launch.h"
#include "kernels/baseband/gpu/mma/beamform.cuh"
#include "kernels/baseband/gpu/mma/few_dishes.cuh"
#include "kernels/baseband/gpu/wgmma/wgmma.h"
#include "kernels/baseband/plan.h"
#include "kernels/common/cuda.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

using namespace beamring::baseband;

namespace
{

using kernel = void (*)(work);

/* A tile's kernel and the shared memory of a block. */
struct variant {
    kernel function;
    size_t shared_bytes;
};

template <int MT> variant variant_of(ending makes, bool few)
{
    if (few) return {beamform_few<MT>, sizeof(few_shared<MT>)};
    return {makes == ending::BYTES    ? beamform<MT, ending::BYTES>
            : makes == ending::POWERS ? beamform<MT, ending::POWERS>
                                      : beamform<MT, ending::NIBBLES>,
            sizeof(shared<MT>)};
}

variant variant_for(int mt, ending makes, bool few)
{
    return mt == 1   ? variant_of<1>(makes, few)
           : mt == 2 ? variant_of<2>(makes, few)
           : mt == 3 ? variant_of<3>(makes, few)
                     : variant_of<4>(makes, few);
}

} // namespace

struct br_baseband_device {
    uint8_t *weights;
    int4 *rounding;
    unsigned long long *clamped; /* [B] */
    ending makes;
    variant way;
    bool few;       /* dishes: way.function is a beamform_few */
    int mt, blocks; /* blocks: as many as run at once */
    unsigned chunks, groups, beam_tiles;
    struct br_baseband_hopper *hopper; /* NULL: another device, or another shape */
};

/* Tables while they are made. */
struct arranged {
    uint8_t *weights;
    int4 *rounding;
    const br_baseband_device *d;
    const struct br_baseband_params *p;
};

/* Weights of one channel and polarisation in the order of the MMA's registers; see struct work, and the
 * assignments of a_re and a_im in multiply(). */
static void arrange(void *arg, size_t wp, unsigned worker)
{
    (void)worker;
    const arranged *a = static_cast<const arranged *>(arg);
    const br_baseband_device *d = a->d;
    const struct br_baseband_params *p = a->p;
    const size_t steps = d->chunks * (d->few ? FEW : DISHES) / STEP;
    for (size_t b = 0; b < p->nbeams; b++) {
        const int8_t *given = p->weights + (wp * p->nbeams + b) * p->ndishes * 2;
        size_t group = wp * d->groups + b / ROWS, row = b % ROWS;
        int sum_im = 0, shift = p->shift[wp * p->nbeams + b], half = shift > 0 ? 1 << (shift - 1) : 0;
        for (size_t dish = 0; dish < p->ndishes; dish++) {
            int place = br_tile_weight_of(static_cast<int>(row), static_cast<int>(dish % STEP));
            uint8_t *re = a->weights + (group * steps + dish / STEP) * 2 * FRAGMENT + place;
            re[0] = static_cast<uint8_t>(given[2 * dish]);
            re[FRAGMENT] = static_cast<uint8_t>(given[2 * dish + 1]);
            sum_im += given[2 * dish + 1];
        }
        float scale = ldexpf(1, -(shift + 8));
        int scale_bits;
        memcpy(&scale_bits, &scale, sizeof scale_bits);
        a->rounding[group * ROWS + row] = make_int4(half + sum_im, half, shift, scale_bits);
    }
}

/* The tile with which all tiles together cost least, as far as the device has shared memory for it: the time
 * of one goes with its beams, plus about as much as for 16 beams to bring the field. */
static int choose(br_baseband_device *d, const struct br_baseband_params *p, struct br_why *why)
{
    int device = br_cuda_device(p->cuda), room = 0, processors = 0, together = 0;
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    size_t least = SIZE_MAX;
    for (int mt = 1; mt <= LARGEST; mt++) {
        size_t beams = ROWS * static_cast<size_t>(mt), tiles = (p->nbeams + beams - 1) / beams;
        size_t cost = tiles * (static_cast<size_t>(mt) + 1);
        const variant way = variant_for(mt, d->makes, d->few);
        if (cost > least || way.shared_bytes > static_cast<size_t>(room)) continue;
        least = cost;
        d->way = way;
        d->mt = mt;
        d->beam_tiles = static_cast<unsigned>(tiles);
    }
    if (d->mt == 0)
        return br_because(
            why, "device %d lets a block have %d bytes of shared memory; the baseband beamformer needs %zu",
            device, room, variant_for(1, d->makes, d->few).shared_bytes);
    d->groups = d->beam_tiles * static_cast<unsigned>(d->mt);
    d->chunks = static_cast<unsigned>((p->ndishes + DISHES - 1) / DISHES); /* 1 where they are few */
    const void *function = reinterpret_cast<const void *>(d->way.function);
    int bytes = static_cast<int>(d->way.shared_bytes);
    cudaError_t status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, function, THREADS, bytes);
    if (status != cudaSuccess || together < 1)
        return br_because(why, "the baseband beamformer cannot run on device %d: %s", device,
                          cudaGetErrorString(status));
    d->blocks = together * processors;
    return 0;
}

extern "C" int br_baseband_cuda_create(struct br_baseband *plan, const struct br_baseband_params *params,
                                       struct br_why *why)
{
    br_baseband_device *d = static_cast<br_baseband_device *>(calloc(1, sizeof *d));
    if (d == nullptr) return br_because(why, "no memory for the baseband beamformer");
    plan->device = d;
    plan->cuda = params->cuda;
    d->makes = params->integrate > 0 ? ending::POWERS : params->bits == 8 ? ending::BYTES : ending::NIBBLES;
    d->few = d->makes == ending::NIBBLES && params->ndishes <= FEW;
    if (choose(d, params, why) != 0) return -1;

    size_t groups = params->weight_channels * params->npol * d->groups;
    size_t weight_bytes = groups * d->chunks * (d->few ? FEW : DISHES) / STEP * 2 * FRAGMENT,
           rounding_bytes = groups * ROWS * sizeof(int4);
    uint8_t *weights = static_cast<uint8_t *>(calloc(1, weight_bytes));
    int4 *rounding = static_cast<int4 *>(calloc(1, rounding_bytes));
    int failed = 0;
    if (weights == nullptr || rounding == nullptr)
        failed = br_because(why, "no memory for the weights of %zu beams and %zu dishes", params->nbeams,
                            params->ndishes);
    if (!failed) {
        arranged to = {weights, rounding, d, params};
        br_parallel_for(&params->making, params->weight_channels * params->npol, arrange, &to);
        d->weights = static_cast<uint8_t *>(br_cuda_table(plan->cuda, weights, weight_bytes, why));
        failed = d->weights == nullptr;
    }
    if (!failed) {
        d->rounding = static_cast<int4 *>(br_cuda_table(plan->cuda, rounding, rounding_bytes, why));
        failed = d->rounding == nullptr;
    }
    if (!failed) {
        d->clamped = static_cast<unsigned long long *>(
            br_cuda_alloc(plan->cuda, params->nbeams * sizeof *d->clamped, why));
        failed = d->clamped == nullptr;
    }
    free(weights);
    free(rounding);
    if (!failed && params->gpu != BR_BASEBAND_PORTABLE)
        failed = br_baseband_hopper_create(&d->hopper, params, why) != 0;
    return failed ? -1 : br_baseband_cuda_power_create(plan, why);
}

extern "C" void br_baseband_cuda_destroy(struct br_baseband *plan)
{
    if (plan->device == nullptr) return;
    br_baseband_cuda_power_destroy(plan);
    br_baseband_hopper_destroy(plan->device->hopper);
    br_cuda_free(plan->cuda, plan->device->weights);
    br_cuda_free(plan->cuda, plan->device->rounding);
    br_cuda_free(plan->cuda, plan->device->clamped);
    free(plan->device);
}

extern "C" bool br_baseband_cuda_alike(const struct br_baseband *a, const struct br_baseband *b)
{
    const br_baseband_device *x = a->device, *y = b->device;
    return x->mt == y->mt && br_baseband_hopper_alike(x->hopper, y->hopper);
}

extern "C" void br_baseband_cuda_exchange(struct br_baseband *a, struct br_baseband *b)
{
    br_baseband_device *x = a->device, *y = b->device;
    uint8_t *weights = x->weights;
    int4 *rounding = x->rounding;
    x->weights = y->weights;
    x->rounding = y->rounding;
    y->weights = weights;
    y->rounding = rounding;
    if (x->hopper != nullptr) br_baseband_hopper_exchange(x->hopper, y->hopper);
    br_baseband_cuda_power_exchange(a, b);
}

extern "C" bool br_baseband_cuda_upload(struct br_baseband *plan, const uint8_t *e_valid, size_t nsteps,
                                        const uint8_t **valid)
{
    size_t samples = nsteps * plan->nchannels;
    *valid = nullptr;
    if (e_valid == nullptr || memchr(e_valid, 0, samples) == nullptr) return true;
    *valid = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, e_valid, samples));
    return *valid != nullptr;
}

extern "C" void br_baseband_cuda(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                                 size_t nsteps, uint8_t *out)
{
    const uint8_t *valid;
    if (nsteps == 0) return;
    br_cuda_begin(plan->cuda);
    if (br_baseband_cuda_upload(plan, e_valid, nsteps, &valid))
        br_baseband_cuda_launch(plan, e, valid, nsteps, out, false);
}

extern "C" void br_baseband_cuda_launch(struct br_baseband *plan, const uint8_t *e, const uint8_t *valid,
                                        size_t nsteps, uint8_t *out, bool groups)
{
    const br_baseband_device *d = plan->device;
    if (d->hopper != nullptr && br_baseband_hopper(d->hopper, e, valid, nsteps, out, d->clamped, groups))
        return;
    work w = {};
    w.valid = valid;
    w.e = e;
    w.weights = d->weights;
    w.rounding = d->rounding;
    w.out = out;
    w.clamped = d->clamped;
    w.total = br_cuda_counter(plan->cuda);
    w.T = nsteps;
    w.F = plan->nchannels;
    w.P = plan->npol;
    w.B = plan->nbeams;
    w.D = plan->ndishes;
    w.shared_weights = plan->weight_channels == 1;
    w.wide_in = reinterpret_cast<uintptr_t>(e) % 16 == 0 && w.D % 16 == 0;
    w.wide_out =
        d->makes == ending::POWERS ? groups : reinterpret_cast<uintptr_t>(out) % 16 == 0 && w.T % 16 == 0;
    w.chunks = d->chunks;
    w.groups = d->groups;
    w.beam_tiles = d->beam_tiles;
    size_t tiles = (nsteps + TIMES - 1) / TIMES * w.F * w.P * w.beam_tiles;
    if (tiles > UINT32_MAX / 2) { /* more than 100 GB of input, or of output */
        br_cuda_ok(plan->cuda, cudaErrorInvalidValue, "baseband beamforming of so many samples at once");
        return;
    }
    w.tiles = static_cast<unsigned>(tiles);
    unsigned blocks = tiles < static_cast<size_t>(d->blocks) ? w.tiles : static_cast<unsigned>(d->blocks),
             pairs = static_cast<unsigned>(w.F * w.P);
    w.step_beam = blocks % w.beam_tiles;
    w.step_fp = blocks / w.beam_tiles % pairs;
    w.step_time = blocks / w.beam_tiles / pairs;
    d->way.function<<<blocks, THREADS, d->way.shared_bytes,
                      static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the baseband beamformer");
}

extern "C" int br_baseband_cuda_clamped(const struct br_baseband *plan, uint64_t *per_beam)
{
    static_assert(sizeof(uint64_t) == sizeof(unsigned long long), "counters are 64 bits");
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    size_t bytes = plan->nbeams * sizeof *per_beam;
    bool ok =
        br_cuda_ok(plan->cuda,
                   cudaMemcpyAsync(per_beam, plan->device->clamped, bytes, cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync") &&
        br_cuda_ok(plan->cuda, cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return ok ? 0 : -1;
}
