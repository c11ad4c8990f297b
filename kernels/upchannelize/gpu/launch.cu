/* The filterbank on a GPU: on tensor cores where shape and gain allow it (select.cuh), else in float32
 * (gpu/fp32/pfb.cuh). The table at the top of upchannelize.h says which kernel is run when. */
#include "kernels/common/cuda.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/upchannelize/gpu/fp32/pfb.cuh"
#include "kernels/upchannelize/gpu/select.cuh"
#include "kernels/upchannelize/gpu/wgmma/zones.cuh"
#include "kernels/upchannelize/plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct br_upchannelize_device {
    bool on_tensor_cores;
    bool may_begin_early; /* the device can start a launch before the one ahead of it has ended */
    tensor_variant tensor;
    tensor_tables tensor_at;
    variant way; /* float32 */
    tables at;
    void *table;
    uint8_t *history, *spare; /* [kept][F X]: the rows before the next call; room for their successor */
    size_t kept;
    bool strong;
    size_t resident;                     /* thread blocks that run at once */
    beamring::tensor_map_encoder encode; /* NULL: `mapped` is not used */
};

/* Whether a plan is one of those that go together in a launch of wgmma_pfb_u16. */
static bool joins(const br_upchannelize_device *d)
{
    return d->on_tensor_cores && d->tensor.kernel == nullptr;
}

static int choose(br_upchannelize_device *d, const struct br_upchannelize *plan, struct br_why *why)
{
    int device = br_cuda_device(plan->cuda), processors = 0, blocks = 0, most = 0, major = 0;
    cudaError_t status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    d->may_begin_early = major >= 9;
    d->tensor = tensor_variant_for(plan, !plan->portable && br_cuda_is_hopper(device));
    d->on_tensor_cores = tensor_fits(plan) && d->tensor.shared <= static_cast<size_t>(most);
    d->way = variant_for(plan->U, plan->M <= RING);
    const void *functions[4] = {reinterpret_cast<const void *>(d->way.kernel), nullptr, nullptr, nullptr};
    if (joins(d)) {
        functions[0] = reinterpret_cast<const void *>(wgmma_pfb_u16<false>);
        functions[1] = reinterpret_cast<const void *>(wgmma_pfb_u16<true>);
    } else if (d->on_tensor_cores) {
        functions[0] = reinterpret_cast<const void *>(d->tensor.kernel);
        functions[1] = reinterpret_cast<const void *>(d->tensor.anywhere);
        functions[2] = reinterpret_cast<const void *>(d->tensor.mapped);
        functions[3] = reinterpret_cast<const void *>(d->tensor.mapped_missing);
        if (functions[2] != nullptr) d->encode = beamring::find_tensor_map_encoder();
    }
    const void *usual = d->encode != nullptr ? functions[2] : functions[0];
    size_t shared = d->on_tensor_cores ? d->tensor.shared : d->way.shared;
    int threads = d->on_tensor_cores ? d->tensor.threads : d->way.threads;
    for (const void *function : functions)
        if (status == cudaSuccess && function != nullptr)
            status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared));
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, usual, threads, shared);
    if (status != cudaSuccess || blocks < 1)
        return br_because(why, "the filterbank with factor %u cannot run on device %d: %s", plan->U, device,
                          cudaGetErrorString(status));
    d->resident = static_cast<size_t>(blocks) * static_cast<size_t>(processors);
    return 0;
}

static int make_tables(br_upchannelize_device *d, const struct br_upchannelize *plan, struct br_why *why)
{
    size_t U = plan->U, K = U == 2 ? 2 : 4, padded = plan->M <= RING ? RING : plan->M, bytes;
    if (d->on_tensor_cores) {
        d->tensor_at = d->tensor.places(static_cast<int>(plan->U), static_cast<int>(plan->M));
        bytes = d->tensor_at.bytes;
    } else {
        /* every table begins at a multiple of 4 floats */
        d->at.bias = U * padded;
        d->at.twiddles = d->at.bias + (U < 4 ? 4 : U);
        d->at.later = d->at.twiddles + (2 * U < 4 ? 4 : 2 * U);
        d->at.gain = d->at.later + (2 * U / K < 4 ? 4 : 2 * U / K);
        d->at.floats = d->at.gain + 2 * U;
        bytes = d->at.floats * sizeof(float);
    }
    void *table = calloc(1, bytes);
    if (table == nullptr)
        return br_because(why, "no memory for a filter with factor %u and %u taps", plan->U, plan->M);
    if (d->on_tensor_cores)
        d->tensor.fill(static_cast<uint8_t *>(table), d->tensor_at, plan);
    else
        fill(static_cast<float *>(table), d->at, plan, static_cast<int>(padded));
    d->table = br_cuda_table(plan->cuda, table, bytes, why);
    free(table);
    return d->table == nullptr ? -1 : 0;
}

extern "C" int br_upchannelize_cuda_create(struct br_upchannelize *plan, struct br_why *why)
{
    br_upchannelize_device *d = static_cast<br_upchannelize_device *>(calloc(1, sizeof *d));
    if (d == nullptr) return br_because(why, "no memory for the filterbank");
    plan->device = d;
    if (plan->U == 1) return 0;
    if (plan->nchannels * plan->nspectators > INT_MAX / 2)
        return br_because(why, "%zu channels of %zu samples: rows of more than 1 GiB are too long for a GPU",
                          plan->nchannels, plan->nspectators);
    if (choose(d, plan, why) != 0 || make_tables(d, plan, why) != 0) return -1;
    d->strong = is_strong(plan);
    d->kept =
        d->on_tensor_cores ? static_cast<size_t>(d->tensor.kept) : static_cast<size_t>(plan->M - 1) * plan->U;
    size_t bytes = d->kept * plan->nchannels * plan->nspectators;
    if (bytes == 0) return 0;
    d->history = static_cast<uint8_t *>(br_cuda_alloc(plan->cuda, bytes, why));
    if (d->history == nullptr) return -1;
    d->spare = static_cast<uint8_t *>(br_cuda_alloc(plan->cuda, bytes, why));
    return d->spare == nullptr ? -1 : 0;
}

extern "C" void br_upchannelize_cuda_destroy(struct br_upchannelize *plan)
{
    if (plan->device == nullptr) return;
    br_cuda_free(plan->cuda, plan->device->table);
    br_cuda_free(plan->cuda, plan->device->history);
    br_cuda_free(plan->cuda, plan->device->spare);
    free(plan->device);
}

extern "C" bool br_upchannelize_cuda_alike(const struct br_upchannelize *a, const struct br_upchannelize *b)
{
    const br_upchannelize_device *x = a->device, *y = b->device;
    return x->on_tensor_cores == y->on_tensor_cores && x->kept == y->kept &&
           x->tensor.kernel == y->tensor.kernel && x->way.kernel == y->way.kernel;
}

extern "C" void br_upchannelize_cuda_exchange(struct br_upchannelize *a, struct br_upchannelize *b)
{
    br_upchannelize_device *x = a->device, *y = b->device;
    void *table = x->table;
    bool strong = x->strong;
    x->table = y->table;
    x->strong = y->strong;
    y->table = table;
    y->strong = strong;
}

static void copy_rows(const struct br_upchannelize *plan, uint8_t *to, const uint8_t *from, size_t row,
                      size_t count)
{
    size_t width = plan->nchannels * plan->nspectators;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    if (count == 0) return;
    cudaError_t status =
        row == width
            ? cudaMemcpyAsync(to, from, count * width, cudaMemcpyDeviceToDevice, stream)
            : cudaMemcpy2DAsync(to, width, from, row, width, count, cudaMemcpyDeviceToDevice, stream);
    br_cuda_ok(plan->cuda, status, "cudaMemcpyAsync of the filterbank's input");
}

extern "C" void br_upchannelize_cuda_copy(const struct br_upchannelize *plan, const uint8_t *e, size_t row,
                                          size_t nsteps, uint8_t *out)
{
    copy_rows(plan, out, e, row, nsteps);
}

static void swap_histories(br_upchannelize_device *d)
{
    uint8_t *history = d->spare;
    d->spare = d->history;
    d->history = history;
}

extern "C" void br_upchannelize_cuda_remember(struct br_upchannelize *plan, const uint8_t *e, size_t row,
                                              size_t nsteps)
{
    br_upchannelize_device *d = plan->device;
    size_t width = plan->nchannels * plan->nspectators, fresh = nsteps < d->kept ? nsteps : d->kept,
           old = d->kept - fresh;
    if (fresh == 0) return;
    if (!d->on_tensor_cores) { /* those kernels write the next history themselves */
        copy_rows(plan, d->spare, d->history + fresh * width, width, old);
        copy_rows(plan, d->spare + old * width, e + (nsteps - fresh) * row, row, fresh);
    }
    swap_histories(d);
}

/* How many units of input a thread block filters: few enough to keep all processors busy to the end, many
 * enough that the units before them, which it reads as well, weigh little. */
static size_t units_per_block(size_t columns, size_t units, size_t resident, size_t before, size_t grain)
{
    size_t best = units, least = SIZE_MAX;
    for (size_t parts = 1; parts <= 64 && parts <= units; parts++) {
        size_t each = ((units + parts - 1) / parts + grain - 1) / grain * grain,
               blocks = (units + each - 1) / each;
        size_t cost = (columns * blocks + resident - 1) / resident *
                      (2 * each + before + 4); /* 4: what a start costs */
        if (cost >= least) continue;
        least = cost;
        best = each;
    }
    /* gridDim.y is at most 65535 */
    return best * 65534 < units ? (units + 65533) / 65534 : best;
}

static void launch_float32(struct br_upchannelize *plan, const struct upchannelize_job *job,
                           const uint8_t *missing)
{
    const br_upchannelize_device *d = plan->device;
    const float *table = static_cast<const float *>(d->table);
    work w = {};
    size_t width = plan->nchannels * plan->nspectators, span = static_cast<size_t>(d->way.span),
           wide_in = plan->U == 2 ? 4 : 2;
    w.missing = missing;
    w.e = job->e;
    w.history = d->history;
    w.out = job->out;
    w.taps = table + d->at.taps;
    w.bias = table + d->at.bias;
    w.twiddles = reinterpret_cast<const float4 *>(table + d->at.twiddles);
    w.later = reinterpret_cast<const float2 *>(table + d->at.later);
    w.gain = reinterpret_cast<const float2 *>(table + d->at.gain);
    w.clamped = br_cuda_counter(plan->cuda);
    w.row = job->row;
    w.F = plan->nchannels;
    w.X = plan->nspectators;
    w.width = static_cast<int>(width);
    w.M = static_cast<int>(plan->M);
    w.wide_in =
        reinterpret_cast<uintptr_t>(job->e) % wide_in == 0 && job->row % wide_in == 0 && width % wide_in == 0;
    w.wide_out = reinterpret_cast<uintptr_t>(job->out) % 4 == 0 && w.X % 4 == 0;
    w.strong = d->strong;

    size_t columns = (width + span - 1) / span,
           each = units_per_block(columns, job->blocks, d->resident, plan->M - 1, STEPS);
    w.first = static_cast<int>(job->first);
    w.last = w.first + static_cast<int>(job->blocks);
    w.each = static_cast<int>(each);
    dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>((job->blocks + each - 1) / each));
    d->way.kernel<<<grid, static_cast<unsigned>(d->way.threads), d->way.shared,
                    static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the filterbank");
}

/* All but `each`. missing: job->missing on the device. */
static tensor_work work_of(const struct br_upchannelize *plan, const struct upchannelize_job *job,
                           const uint8_t *missing)
{
    const br_upchannelize_device *d = plan->device;
    const uint8_t *table = static_cast<const uint8_t *>(d->table);
    tensor_work w = {};
    w.e = job->e;
    w.history = d->history;
    w.spare = job->last ? d->spare : nullptr;
    w.missing = missing;
    w.out = job->out;
    w.matrices = reinterpret_cast<const uint4 *>(table + d->tensor_at.matrices);
    w.rules = reinterpret_cast<const uint2 *>(table + d->tensor_at.rules);
    w.taps = reinterpret_cast<const uint4 *>(table + d->tensor_at.taps);
    w.starts = reinterpret_cast<const uint4 *>(table + d->tensor_at.starts);
    w.clamped = br_cuda_counter(plan->cuda);
    w.row = job->row;
    w.F = plan->nchannels;
    w.X = plan->nspectators;
    w.U = static_cast<int>(plan->U);
    w.M = static_cast<int>(plan->M);
    w.width = static_cast<int>(plan->nchannels * plan->nspectators);
    w.kept = d->tensor.kept;
    w.first = static_cast<int>(job->first);
    w.last = static_cast<int>(job->first + job->blocks);
    w.steps = w.last * w.U;
    w.phase = static_cast<int>(job->at % (static_cast<size_t>(d->tensor.unit) / plan->U));
    /* and their offsets fit 32 bits */
    w.wide_in = reinterpret_cast<uintptr_t>(job->e) % 16 == 0 && job->row % 16 == 0 &&
                job->row * static_cast<size_t>(d->tensor.unit) <= UINT32_MAX;
    w.wide_out = reinterpret_cast<uintptr_t>(job->out) % 16 == 0;
    return w;
}

/* early: may begin before what was launched last has ended */
static void launch(const struct br_upchannelize *plan, const void *kernel, dim3 grid, void *work, bool early)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(plan->device->tensor.threads));
    config.dynamicSmemBytes = plan->device->tensor.shared;
    config.stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    config.attrs = &attribute;
    config.numAttrs = early && plan->device->may_begin_early ? 1 : 0;
    br_cuda_ok(plan->cuda, cudaLaunchKernelExC(&config, kernel, &work), "the launch of the filterbank");
}

/* Field and levels for `mapped`. A box is a block's part of some windows of U times, or of output steps.
 * False if such a kernel does not exist or the driver refuses it. */
static bool describe(const struct br_upchannelize *plan, mapped_work *m)
{
    const br_upchannelize_device *d = plan->device;
    const tensor_work &w = m->w;
    if (d->encode == nullptr) return false;
    auto encode = [d](CUtensorMap *map, const void *memory, const cuuint64_t *size, const cuuint64_t *strides,
                      const cuuint32_t *box) {
        const cuuint32_t every[4] = {1, 1, 1, 1};
        return d->encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void *>(memory), size, strides,
                         box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
    };
    const cuuint64_t sets = static_cast<cuuint64_t>(d->tensor.sets), each = plan->U / sets,
                     windows = static_cast<cuuint64_t>(w.last), width = static_cast<cuuint64_t>(w.width);
    const cuuint64_t times[4] = {width, each, sets, windows},
                     times_apart[3] = {w.row * sets, w.row, w.row * plan->U},
                     channels[4] = {w.X, plan->U, w.F, windows},
                     channels_apart[3] = {w.X, w.X * plan->U, width * plan->U};
    const cuuint32_t together = static_cast<cuuint32_t>(d->tensor.windows),
                     field[4] = {BR_PFB_SPAN, static_cast<cuuint32_t>(each), static_cast<cuuint32_t>(sets),
                                 together},
                     levels[4] = {BR_PFB_SPAN, plan->U, 1, together};
    return encode(&m->field, w.e, times, times_apart, field) &&
           encode(&m->levels, w.out, channels, channels_apart, levels);
}

static void launch_tensor(const struct br_upchannelize *plan, const struct upchannelize_job *job,
                          const uint8_t *missing)
{
    const br_upchannelize_device *d = plan->device;
    const tensor_variant &v = d->tensor;
    mapped_work m = {work_of(plan, job, missing), {}, {}}; /* begins as what the other kernels take */
    tensor_work &w = m.w;
    size_t unit_blocks = static_cast<size_t>(v.unit) / plan->U, phase = static_cast<size_t>(w.phase),
           begin = (phase + job->first) / unit_blocks,
           end = (phase + job->first + job->blocks + unit_blocks - 1) / unit_blocks,
           columns =
               (static_cast<size_t>(w.width) + static_cast<size_t>(v.span) - 1) / static_cast<size_t>(v.span),
           each = units_per_block(columns, end - begin, d->resident, static_cast<size_t>(v.before),
                                  static_cast<size_t>(v.grain));
    w.each = static_cast<int>(each);
    /* one row of blocks more keeps the history */
    dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>((end - begin + each - 1) / each + 1));
    const bool is_aligned = w.wide_in && w.wide_out, is_whole = missing == nullptr;
    const void *kernel = reinterpret_cast<const void *>(is_aligned && is_whole ? v.kernel : v.anywhere);
    if (is_aligned && describe(plan, &m))
        kernel = reinterpret_cast<const void *>(is_whole ? v.mapped : v.mapped_missing);
    /* not right after the upload of `missing` */
    launch(plan, kernel, grid, &m, job->early && is_whole);
}

/* Jobs of one launch of wgmma_pfb_u16. */
static void launch_zones(struct br_upchannelize *const *plans, const struct upchannelize_job *jobs,
                         const uint8_t *const *missing, size_t count)
{
    static_assert(static_cast<int>(UPCHANNELIZE_TOGETHER) == static_cast<int>(BR_PFB_ZONES),
                  "a launch has room for what may go together");
    zones_work work = {};
    int chunks = 0; /* most of a zone */
    bool early = true, is_whole = true;
    for (size_t i = 0; i < BR_PFB_ZONES; i++) {
        work.columns[i + 1] = work.columns[i];
        if (i >= count) continue;
        tensor_work &w = work.zone[i];
        w = work_of(plans[i], &jobs[i], missing[i]);
        int per_chunk = BR_PFB_CHUNK / w.U, end = (w.phase + w.last + per_chunk - 1) / per_chunk,
            own = end - (w.phase + w.first) / per_chunk;
        if (own > chunks) chunks = own;
        work.columns[i + 1] += w.width / BR_PFB_SPAN;
        early = early && jobs[i].early;
        is_whole = is_whole && missing[i] == nullptr;
    }
    unsigned columns = static_cast<unsigned>(work.columns[BR_PFB_ZONES]), pieces = 0;
    size_t resident = plans[0]->device->resident, length = static_cast<size_t>(chunks);
    if (columns * length < resident * BR_PFB_FEW_CHUNKS) { /* at once, as far as they can */
        size_t each = units_per_block(columns, length, resident, u16_shape::LAGS - 1, u16_shape::CHUNKS);
        for (size_t at = 0; at < length && pieces < BR_PFB_PIECES; at += each)
            work.from[pieces++] = static_cast<unsigned>(at);
        work.from[pieces] = static_cast<unsigned>(chunks);
    } else {
        pieces = br_pfb_cut_columns(work.from, columns, static_cast<unsigned>(chunks),
                                    static_cast<unsigned>(resident));
    }
    /* not right after the upload of `missing` */
    launch(plans[0], reinterpret_cast<const void *>(is_whole ? wgmma_pfb_u16<false> : wgmma_pfb_u16<true>),
           dim3(columns, pieces), &work, early && is_whole);
}

extern "C" size_t br_upchannelize_cuda_resident(const struct br_upchannelize *plan)
{
    return plan->device->resident;
}

extern "C" bool br_upchannelize_cuda_joins(const struct br_upchannelize *plan)
{
    return joins(plan->device);
}

extern "C" void br_upchannelize_cuda(struct br_upchannelize *const *plans,
                                     const struct upchannelize_job *jobs, size_t count)
{
    const uint8_t *missing[UPCHANNELIZE_TOGETHER] = {};
    for (size_t i = 0; i < count; i++) {
        struct br_cuda *cuda = plans[i]->cuda;
        if ((jobs[i].first + jobs[i].blocks) * plans[i]->U > INT_MAX / 2) {
            br_cuda_ok(cuda, cudaErrorInvalidValue, "a filterbank of so many steps at once");
            return;
        }
        if (jobs[i].missing == nullptr) continue;
        missing[i] = static_cast<const uint8_t *>(
            br_cuda_upload(cuda, jobs[i].missing, jobs[i].blocks * plans[i]->nchannels));
        if (missing[i] == nullptr) return; /* br_cuda_check says why */
    }
    if (joins(plans[0]->device))
        launch_zones(plans, jobs, missing, count);
    else if (plans[0]->device->on_tensor_cores)
        launch_tensor(plans[0], jobs, missing[0]);
    else
        launch_float32(plans[0], jobs, missing[0]);
}
