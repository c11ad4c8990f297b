/* The power of beams on a GPU, its plan: memory for powers and sums, and the launches of a slab. */
#include "kernels/baseband/gpu/launch.h"
#include "kernels/baseband/gpu/power/sums.cuh"
#include "kernels/common/cuda.h"

#include <cuda_runtime.h>
#include <stdlib.h>

using namespace beamring::baseband::power;

struct br_baseband_power_device {
    float *powers, *inputs; /* as in struct slab */
    int *incoherent;        /* [wf][P][D], or NULL */
};

extern "C" int br_baseband_cuda_power_create(struct br_baseband *plan, struct br_why *why)
{
    struct power_state *s = plan->power;
    if (s == nullptr) return 0;
    br_baseband_power_device *d = static_cast<br_baseband_power_device *>(calloc(1, sizeof *d));
    if (d == nullptr) return br_because(why, "no memory for the power of beams");
    s->device = d;
    const size_t F = plan->nchannels, FP = F * plan->npol, rows = plan->weight_channels * plan->npol;
    if (s->incoherent != nullptr) {
        d->incoherent = static_cast<int *>(
            br_cuda_table(plan->cuda, s->incoherent, rows * plan->ndishes * sizeof(int), why));
        if (d->incoherent == nullptr) return -1;
    }
    if (br_cuda_is_aside(plan->cuda)) return 0; /* never executed */
    auto floats = [&](float **to, size_t n) {
        *to = static_cast<float *>(br_cuda_alloc(plan->cuda, n * sizeof(float), why));
        return *to != nullptr;
    };
    bool good = floats(&d->powers, FP * s->slab * plan->nbeams);
    if (good && s->incoherent != nullptr) good = floats(&d->inputs, FP * s->slab);
    for (int i = 0; i < 2 && good; i++)
        good = floats(&s->running[i], F * s->columns) && floats(&s->rest[i], FP * GROUP * s->columns);
    return good ? 0 : -1;
}

extern "C" void br_baseband_cuda_power_destroy(struct br_baseband *plan)
{
    struct power_state *s = plan->power;
    if (s == nullptr || s->device == nullptr) return;
    br_cuda_free(plan->cuda, s->device->powers);
    br_cuda_free(plan->cuda, s->device->inputs);
    br_cuda_free(plan->cuda, s->device->incoherent);
    for (int i = 0; i < 2; i++) {
        br_cuda_free(plan->cuda, s->running[i]);
        br_cuda_free(plan->cuda, s->rest[i]);
    }
    free(s->device);
}

extern "C" void br_baseband_cuda_power_exchange(struct br_baseband *a, struct br_baseband *b)
{
    if (a->power == nullptr) return;
    int *kept = a->power->device->incoherent;
    a->power->device->incoherent = b->power->device->incoherent;
    b->power->device->incoherent = kept;
}

extern "C" void br_baseband_cuda_power_begin(struct br_baseband *plan)
{
    struct power_state *s = plan->power;
    if (s->position == 0) return; /* sums of a block that begins are not read */
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    const size_t floats = plan->nchannels * s->columns * sizeof(float);
    br_cuda_ok(plan->cuda, cudaMemsetAsync(s->running[s->now], 0, floats, stream), "cudaMemsetAsync");
    br_cuda_ok(plan->cuda, cudaMemsetAsync(s->rest[s->now], 0, floats * plan->npol * GROUP, stream),
               "cudaMemsetAsync");
}

extern "C" void br_baseband_cuda_power(struct br_baseband *plan, const struct power_slab *given)
{
    const struct power_state *p = plan->power;
    const br_baseband_power_device *d = p->device;
    const size_t F = plan->nchannels, P = plan->npol, T = given->nsteps;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    slab s = {};
    s.groups = T % GROUP == 0 && p->position % GROUP == 0 && p->integrate % GROUP == 0;
    br_cuda_begin(plan->cuda);
    s.same = p->factor[0];
    if (!given->alike && given->nblocks > 0) {
        s.factor = static_cast<const float *>(
            br_cuda_upload(plan->cuda, p->factor, F * given->nblocks * sizeof(float)));
        if (s.factor == nullptr) return; /* br_cuda_check says why */
    }
    const uint8_t *valid = nullptr;
    if (T > 0) {
        if (!br_baseband_cuda_upload(plan, given->e_valid, T, &valid)) return;
        br_baseband_cuda_launch(plan, given->e, valid, T, reinterpret_cast<uint8_t *>(d->powers), s.groups);
    }
    if (T > 0 && d->incoherent != nullptr)
        add_inputs<<<static_cast<unsigned>((T + GROUP - 1) / GROUP * F * P), 32 * GROUP, 0, stream>>>(
            given->e, valid, d->incoherent, plan->weight_channels == 1, d->inputs, T, F,
            static_cast<unsigned>(P), plan->ndishes, s.groups);
    s.powers = d->powers;
    s.inputs = d->inputs;
    s.running = p->running[p->now];
    s.rest = p->rest[p->now];
    s.running_after = p->running[p->now ^ 1];
    s.rest_after = p->rest[p->now ^ 1];
    s.out = given->out;
    s.out_stride = given->out_stride;
    s.T = static_cast<unsigned>(T);
    s.position = p->position;
    s.integrate = p->integrate;
    s.nblocks = static_cast<unsigned>(given->nblocks);
    s.spans = static_cast<unsigned>(power_spans(p, given));
    s.P = static_cast<unsigned>(P);
    s.B = static_cast<unsigned>(plan->nbeams);
    s.columns = static_cast<unsigned>(p->columns);
    s.width = static_cast<unsigned>(p->columns - p->subtract);
    s.subtract = p->subtract;
    const unsigned threads = s.columns < THREADS ? (s.columns + 31) / 32 * 32 : THREADS;
    const dim3 blocks(static_cast<unsigned>(F) * s.spans, (s.columns + threads - 1) / threads);
    if (blocks.x > 0) add_blocks<<<blocks, threads, 0, stream>>>(s);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the sums of beams' power");
}
