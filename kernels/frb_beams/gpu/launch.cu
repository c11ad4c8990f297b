/* FRB stage 2 on a GPU: which kernel forms a plan's beams, the making of weights, and the launches.
 *
 * Weights and, for beams on a grid, the intermediate product are float16, sums float32. Measured against
 * float64 (noise, and point sources up to 60 dB above it, inside and outside of the beams): 3e-4 to 8e-4
 * relative rms, of which 2e-4 to 3e-4 come from the output's own rounding, so that one float16 per weight is
 * enough.
 *
 * Which kernel it is follows from the shape of the grid and of the beams alone, never from the number of
 * steps: kernels differ in the last bit. */
#include "kernels/frb_beams/gpu/fp32/arbitrary.cuh"
#include "kernels/frb_beams/gpu/mma/arbitrary.cuh"
#include "kernels/frb_beams/gpu/mma/grid.cuh"
#include "kernels/frb_beams/gpu/mma/grid_whole.cuh"
#include "kernels/frb_beams/gpu/steer.cuh"
#include "kernels/frb_beams/gpu/wgmma/wgmma.h"
#include "kernels/frb_beams/plan.h"

#include "kernels/common/cuda.h"
#include "kernels/common/exchange.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>

using namespace beamring;

namespace
{

/* The weights of one set of beams, all in device memory. */
struct weights_set {
    phase_params *phases_m, *phases_n; /* NULL for MMA_ARBITRARY, which keeps what is made of them */
    uint4 *q, *p; /* as the portable kernels want them; NULL for those that make them of phases */
};

enum method { MMA_ARBITRARY, WGMMA_ARBITRARY, MMA_GRID, FP32_ARBITRARY };

} // namespace

struct br_frb_beams_gpu {
    method how;
    mma_arbitrary::work arbitrary;
    mma_grid::work grid;
    mma_grid_whole::work whole; /* MMA_GRID: teams = 0 where it cannot be used */
    struct br_frb_beams_wgmma *wgmma;
    int variant;          /* largest MT, or IT */
    size_t shared_bytes;  /* of mma_grid::form */
    unsigned most_blocks; /* of mma_grid::form */
    unsigned whole_blocks, whole_it, whole_qt;
    float shrink;            /* MMA_GRID: |Y| <= 65504 shrink; a power of two */
    two_floats *mhz;         /* [F] */
    weights_set set[2];      /* the second: plan->steered */
    unsigned now;            /* which of them is in use */
    two_floats *theta2_host; /* [m.nbeams + n.nbeams] */
};

namespace
{

template <class T> T up(T count, T unit)
{
    return (count + unit - 1) / unit;
}

/* Sizes of the portable weights per channel in uint4's. */
size_t size_q(const struct br_frb_beams_gpu *gpu)
{
    const mma_arbitrary::work &a = gpu->arbitrary;
    const mma_grid::work &g = gpu->grid;
    return gpu->how == MMA_ARBITRARY ? static_cast<size_t>(a.blocks) * a.octets * 32
           : gpu->how == MMA_GRID    ? static_cast<size_t>(g.j_blocks) * g.q_steps * 64
                                     : 0;
}
size_t size_p(const struct br_frb_beams_gpu *gpu)
{
    const mma_arbitrary::work &a = gpu->arbitrary;
    const mma_grid::work &g = gpu->grid;
    return gpu->how == MMA_ARBITRARY ? static_cast<size_t>(a.blocks) * a.pairs * 8
           : gpu->how == MMA_GRID    ? static_cast<size_t>(g.p_blocks) * g.i_tiles * 32
                                     : 0;
}

two_floats split(double x)
{
    two_floats both;
    both.high = static_cast<float>(x);
    both.low = static_cast<float>(x - static_cast<double>(both.high));
    return both;
}

/* 2 theta at 1 MHz of all positions along m, then of those along n. */
void fill_theta(struct br_frb_beams *plan, const double *theta_m, const double *theta_n)
{
    two_floats *to = plan->gpu->theta2_host;
    for (size_t i = 0; i < plan->m.nbeams; i++) *to++ = split(2 * theta_m[i]);
    for (size_t i = 0; i < plan->n.nbeams; i++) *to++ = split(2 * theta_n[i]);
}

/* Enqueues the making of a set's weights. */
void make_weights(struct br_frb_beams *plan, weights_set &set, const two_floats *theta2)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    unsigned nm = static_cast<unsigned>(plan->m.nbeams), nn = static_cast<unsigned>(plan->n.nbeams),
             most = nm > nn ? nm : nn;
    unsigned F = static_cast<unsigned>(plan->nchannels), np = 2 * plan->m.n, nq = 2 * plan->n.n;
    const pointing beams = {theta2, theta2 + nm, gpu->mhz,  set.phases_m, set.phases_n,
                            nm,     nn,          plan->m.n, plan->n.n,    F};
    /* Channels are the y's of a launch, of which there are at most 65535. */
    unsigned y = F < 65535 ? F : 65535;
    dim3 blocks_q(static_cast<unsigned>(up(size_q(gpu), size_t{256})), y);
    dim3 blocks_p(static_cast<unsigned>(up(size_p(gpu), size_t{256})), y);
    if (gpu->how == MMA_ARBITRARY) {
        const mma_arbitrary::work &a = gpu->arbitrary;
        size_t table = (np > nq ? np : nq) * sizeof(float2);
        fill_arbitrary<<<dim3(up(a.blocks, 8u), y, 2), 256, table, stream>>>(beams, set.q, set.p, a.blocks,
                                                                             a.octets);
    } else {
        point<<<dim3(up(most, 256u), y), 256, 0, stream>>>(beams);
    }
    if (gpu->how == MMA_GRID) {
        const mma_grid::work &g = gpu->grid;
        fill_grid_q<<<blocks_q, 256, 0, stream>>>(set.q, set.phases_n, nn, nq, g.j_blocks, g.q_steps,
                                                  1 / (WEIGHT_SCALE * gpu->shrink), F);
        fill_grid_p<<<blocks_p, 256, 0, stream>>>(set.p, set.phases_m, nm, np, g.p_blocks, g.i_tiles,
                                                  gpu->shrink / WEIGHT_SCALE, F);
    }
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launches that make the weights of the FRB beams");
}

/* Memory for the weights, and the first set. */
int create_weights(struct br_frb_beams *plan, struct br_why *why)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    size_t positions = plan->m.nbeams + plan->n.nbeams, F = plan->nchannels, nq = size_q(gpu),
           np = size_p(gpu);
    two_floats *mhz = static_cast<two_floats *>(malloc(F * sizeof *mhz));
    gpu->theta2_host = static_cast<two_floats *>(malloc(positions * sizeof(two_floats)));
    if (!mhz || !gpu->theta2_host) {
        free(mhz);
        return br_because(why, "no memory for the weights of %zu beams", plan->nbeams);
    }
    for (size_t f = 0; f < F; f++) mhz[f] = split(plan->freq_mhz[f]);
    gpu->mhz = static_cast<two_floats *>(br_cuda_table(plan->cuda, mhz, F * sizeof *mhz, why));
    free(mhz);
    if (!gpu->mhz) return -1;
    for (int i = 0; i < (plan->steered ? 2 : 1); i++) {
        weights_set &set = gpu->set[i];
        if (gpu->how != MMA_ARBITRARY) {
            set.phases_m = static_cast<phase_params *>(
                br_cuda_alloc(plan->cuda, F * plan->m.nbeams * sizeof(phase_params), why));
            if (set.phases_m)
                set.phases_n = static_cast<phase_params *>(
                    br_cuda_alloc(plan->cuda, F * plan->n.nbeams * sizeof(phase_params), why));
            if (!set.phases_n) return -1;
        }
        if (nq == 0) continue;
        set.q = static_cast<uint4 *>(br_cuda_alloc(plan->cuda, F * nq * sizeof(uint4), why));
        if (set.q) set.p = static_cast<uint4 *>(br_cuda_alloc(plan->cuda, F * np * sizeof(uint4), why));
        if (!set.p) return -1;
    }
    fill_theta(plan, plan->m.theta_mhz, plan->n.theta_mhz);
    void *theta2 = br_cuda_table(plan->cuda, gpu->theta2_host, positions * sizeof(two_floats), why);
    if (!theta2) return -1;
    make_weights(plan, gpu->set[0], static_cast<two_floats *>(theta2));
    br_cuda_free(plan->cuda, theta2);
    return br_cuda_check(plan->cuda, why);
}

/* Kernels by their largest tile, and the shared memory that all their launches may take. */
using arbitrary_kernel = void (*)(mma_arbitrary::work);
using grid_kernel = void (*)(mma_grid::work);
using whole_kernel = void (*)(mma_grid_whole::work);

arbitrary_kernel arbitrary_variant(int mt)
{
    return mt == 1 ? mma_arbitrary::form<1> : mt == 2 ? mma_arbitrary::form<2> : mma_arbitrary::form<4>;
}

grid_kernel grid_variant(int it)
{
    return it == 1 ? mma_grid::form<1> : it == 2 ? mma_grid::form<2> : mma_grid::form<4>;
}

whole_kernel whole_variant(unsigned it, unsigned qt)
{
    if (qt == 2)
        return it == 2   ? mma_grid_whole::form<2, 2>
               : it == 4 ? mma_grid_whole::form<4, 2>
                         : mma_grid_whole::form<6, 2>;
    return it == 2   ? mma_grid_whole::form<2, 3>
           : it == 4 ? mma_grid_whole::form<4, 3>
                     : mma_grid_whole::form<6, 3>;
}

size_t arbitrary_shared(unsigned stride, int mt)
{
    return static_cast<size_t>(mma_arbitrary::STAGES) * 16 * mt * stride * sizeof(uint4);
}

size_t grid_shared(unsigned steps, unsigned stage_octets)
{
    return static_cast<size_t>(mma_grid::STAGES) * steps * 16 * (stage_octets + 1) * sizeof(uint4);
}

/* The limit belongs to the kernel, not to a plan, so it is the largest that any plan needs. */
int allow_shared(struct br_frb_beams *plan, const void *kernel, size_t bytes, struct br_why *why)
{
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "%zu bytes of shared memory on device %d: %s", bytes, br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

int create_mma_arbitrary(struct br_frb_beams *plan, struct br_why *why)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    if (!plan->portable && br_frb_beams_wgmma_create(&gpu->wgmma, plan, why) != 0) return -1;
    if (gpu->wgmma) {
        gpu->how = WGMMA_ARBITRARY;
        return 0;
    }
    mma_arbitrary::work &w = gpu->arbitrary;
    gpu->how = MMA_ARBITRARY;
    w.B = static_cast<unsigned>(plan->nbeams);
    w.nq = 2 * plan->n.n;
    w.cells = static_cast<unsigned>(plan->cells);
    w.blocks = up(w.B, 32u);
    w.pairs = plan->m.n;
    w.octets = up(w.nq, 8u);
    unsigned most = mma_arbitrary::MOST_PIECES / 2;
    w.stage_octets = up(w.octets, up(w.octets, most));
    w.stage_pairs = most / w.stage_octets < w.pairs ? most / w.stage_octets : w.pairs;
    w.stride_pieces = 2 * w.stage_pairs * w.stage_octets + 1;
    w.beam_tiles = up(w.blocks, static_cast<unsigned>(mma_arbitrary::WARPS));
    gpu->variant = plan->max_steps <= 16 ? 1 : plan->max_steps <= 32 ? 2 : 4;
    for (int mt = 1; mt <= gpu->variant; mt *= 2)
        if (allow_shared(plan, reinterpret_cast<const void *>(arbitrary_variant(mt)),
                         arbitrary_shared(mma_arbitrary::MOST_PIECES + 1, mt), why) != 0)
            return -1;
    return 0;
}

unsigned blocks_at_once(struct br_frb_beams *plan, const void *kernel, unsigned threads, size_t shared)
{
    int per_processor = 1, processors = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, static_cast<int>(threads), shared);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, br_cuda_device(plan->cuda));
    return static_cast<unsigned>((per_processor > 0 ? per_processor : 1) * processors);
}

/* mma/grid_whole.cuh where a time step of the field fits; it takes the weights of mma/grid.cuh. */
int create_whole(struct br_frb_beams *plan, struct br_why *why)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    mma_grid_whole::work &w = gpu->whole;
    const mma_grid::work &g = gpu->grid;
    int room = 0;
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, br_cuda_device(plan->cuda));
    if (plan->portable || g.nq % 8 != 0 || g.nq <= 16 || g.nq > 48 || g.np > 1024) return 0;
    unsigned it = gpu->whole_it, qt = gpu->whole_qt = g.q_steps;
    w.np = g.np, w.nq = g.nq, w.bx = g.bx, w.by = g.by, w.j_blocks = g.j_blocks, w.i_tiles = g.i_tiles,
    w.p_blocks = g.p_blocks;
    w.j_tiles = up(w.j_blocks, 4u), w.warps_j = up(w.j_blocks, w.j_tiles), w.i_blocks = w.i_tiles / it;
    w.octets = w.nq / 8, w.reciprocal = 65536 / w.octets + 1;
    bool all = w.j_tiles == 1 && w.i_blocks == 1 && w.by % 8 == 0;
    w.pitch = all ? w.by : 32 * w.warps_j;
    w.team_bytes =
        (mma_grid_whole::STAGES * mma_grid_whole::stage_pieces(w.p_blocks, qt) + w.p_blocks * it * 32) * 16 +
        (all ? w.bx : 16 * it) * w.pitch * 2;
    w.team_bytes = up(w.team_bytes, 128u) * 128;
    w.teams = static_cast<unsigned>(mma_grid_whole::MOST_WARPS) / w.warps_j;
    if (w.teams * w.team_bytes > static_cast<unsigned>(room))
        w.teams = static_cast<unsigned>(room) / w.team_bytes;
    if (w.teams == 0) return 0;
    const void *kernel = reinterpret_cast<const void *>(whole_variant(it, qt));
    if (allow_shared(plan, kernel, static_cast<size_t>(room), why) != 0) return -1;
    gpu->whole_blocks = blocks_at_once(plan, kernel, 32 * w.warps_j * w.teams, w.teams * w.team_bytes);
    if (all && plan->incoherent == BR_INCOHERENT_APPEND) plan->pitch = plan->nbeams + 1;
    return 0;
}

int create_grid(struct br_frb_beams *plan, struct br_why *why)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    mma_grid::work &w = gpu->grid;
    gpu->how = MMA_GRID;
    w.np = 2 * plan->m.n;
    w.nq = 2 * plan->n.n;
    w.bx = static_cast<unsigned>(plan->beams_x);
    w.by = static_cast<unsigned>(plan->beams_y);
    w.j_blocks = up(w.by, 32u);
    /* i's are tiled for both kernels: by 16 whole_it for the one, by 16 `it`, a part of that, for the
     * other. */
    unsigned most = gpu->whole_it = w.bx <= 32 ? 2 : w.bx <= 64 || (w.bx > 96 && w.bx <= 128) ? 4 : 6;
    int it = gpu->variant = w.bx <= 16 ? 1 : most == 4 ? 4 : 2;
    w.i_tiles = up(w.bx, 16u * most) * most;
    w.i_blocks = w.i_tiles / it;
    w.p_blocks = up(w.np, 16u);
    unsigned octets = up(w.nq, 16u) * 2, in_stage = mma_grid::MOST_OCTETS;
    w.chunks = up(octets, in_stage);
    w.stage_octets = up(up(octets, w.chunks), 2u) * 2;
    w.q_steps = w.chunks * w.stage_octets / 2;
    w.reciprocal = 65536 / w.stage_octets + 1;
    for (w.warps_j = 1; w.warps_j < w.j_blocks && w.warps_j < mma_grid::WARPS;) w.warps_j *= 2;
    w.steps = mma_grid::WARPS / w.warps_j;
    w.j_tiles = up(w.j_blocks, w.warps_j);
    gpu->shared_bytes = grid_shared(w.steps, w.stage_octets);
    const void *kernel = reinterpret_cast<const void *>(grid_variant(it));
    if (allow_shared(plan, kernel, grid_shared(mma_grid::WARPS, mma_grid::MOST_OCTETS), why) != 0) return -1;
    gpu->most_blocks = blocks_at_once(plan, kernel, mma_grid::THREADS, gpu->shared_bytes);
    /* |Y| <= 65504 times the largest sum of |U_q| over q, that of a beam halfway between two cells, and a
     * power of two brings it back into float16's range. */
    double largest = 0;
    double *u = static_cast<double *>(malloc(w.nq * sizeof *u));
    if (!u) return br_because(why, "no memory for the weights of %zu beams", plan->nbeams);
    br_frb_beams_weights(u, plan->n.n, 0.25);
    for (unsigned q = 0; q < w.nq; q++) largest += fabs(u[q]);
    free(u);
    gpu->shrink = 1;
    while (gpu->shrink < 1.01 * largest) gpu->shrink *= 2;
    w.middle_scale = w.scale = 1; /* it is in the weights */
    return create_whole(plan, why);
}

int create_fp32_arbitrary(struct br_frb_beams *plan, struct br_why *why)
{
    int room = 0;
    size_t bytes = fp32_arbitrary::shared_bytes(2 * plan->m.n, 2 * plan->n.n),
           tiles = up(plan->max_steps, size_t{fp32_arbitrary::TILE}) * plan->nchannels;
    plan->gpu->how = FP32_ARBITRARY;
    cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, br_cuda_device(plan->cuda));
    if (bytes > static_cast<size_t>(room))
        return br_because(why,
                          "a grid of %u x %u cells is too large for beams in float32 on device %d: %zu bytes "
                          "of shared memory, of "
                          "which it has %d",
                          plan->m.n, plan->n.n, br_cuda_device(plan->cuda), bytes, room);
    if (tiles > 65535)
        return br_because(why, "%zu channels of %zu steps are too many for one launch in float32",
                          plan->nchannels, plan->max_steps);
    return allow_shared(plan, reinterpret_cast<const void *>(fp32_arbitrary::form), static_cast<size_t>(room),
                        why);
}

void form_arbitrary(struct br_frb_beams *plan, const struct span *span, const weights_set &set,
                    cudaStream_t stream)
{
    mma_arbitrary::work w = plan->gpu->arbitrary;
    unsigned T = static_cast<unsigned>(span->count), F = static_cast<unsigned>(plan->nchannels);
    int mt = T <= 16 ? 1 : T <= 32 ? 2 : 4;
    w.in = span->in, w.valid = span->valid, w.out = span->out, w.T = T,
    w.stride = static_cast<unsigned>(span->stride);
    w.weights_q = set.q, w.weights_p = set.p;
    w.wide_in = w.nq % 8 == 0 && reinterpret_cast<uintptr_t>(span->in) % 16 == 0;
    w.wide_out = w.B % 8 == 0 && reinterpret_cast<uintptr_t>(span->out) % 16 == 0;
    w.step_tiles = up(T, 16u * mt);
    arbitrary_variant(mt)<<<F * w.step_tiles * w.beam_tiles, mma_arbitrary::THREADS,
                            arbitrary_shared(w.stride_pieces, mt), stream>>>(w);
}

void form_grid(struct br_frb_beams *plan, const struct span *span, const weights_set &set,
               cudaStream_t stream)
{
    const struct br_frb_beams_gpu *gpu = plan->gpu;
    unsigned T = static_cast<unsigned>(span->count), F = static_cast<unsigned>(plan->nchannels);
    unsigned stride = static_cast<unsigned>(span->stride);
    bool aligned_in = reinterpret_cast<uintptr_t>(span->in) % 16 == 0,
         aligned_out = reinterpret_cast<uintptr_t>(span->out) % 16 == 0;
    if (gpu->whole.teams > 0 && aligned_in) {
        mma_grid_whole::work w = gpu->whole;
        w.in = span->in, w.valid = span->valid, w.out = span->out, w.T = T, w.gap = stride - T;
        w.weights_q = set.q, w.weights_p = set.p;
        w.row = static_cast<unsigned>(plan->pitch);
        w.wide_out = aligned_out && w.by % 8 == 0 && w.row % 8 == 0;
        w.together = w.wide_out && w.pitch == w.by && w.i_blocks == 1;
        w.shifted = plan->pitch > plan->nbeams;
        w.steps = F * T;
        w.tasks = w.steps * w.j_tiles * w.i_blocks;
        unsigned blocks = up(w.tasks, w.teams) < gpu->whole_blocks ? up(w.tasks, w.teams) : gpu->whole_blocks;
        whole_variant(gpu->whole_it,
                      gpu->whole_qt)<<<blocks, 32 * w.warps_j * w.teams, w.teams * w.team_bytes, stream>>>(w);
        return;
    }
    mma_grid::work w = gpu->grid;
    w.in = span->in, w.valid = span->valid, w.out = span->out, w.T = T, w.stride = stride;
    w.weights_q = set.q, w.weights_p = set.p;
    w.wide_in = w.nq % 8 == 0 && aligned_in;
    w.row = static_cast<unsigned>(plan->pitch);
    w.wide_out = aligned_out && w.by % 8 == 0 && w.row % 8 == 0;
    w.step_tiles = up(T, w.steps);
    w.tasks = F * w.step_tiles * w.j_tiles * w.i_blocks;
    unsigned blocks = w.tasks < gpu->most_blocks ? w.tasks : gpu->most_blocks;
    grid_variant(gpu->variant)<<<blocks, mma_grid::THREADS, gpu->shared_bytes, stream>>>(w);
}

} // namespace

extern "C" void br_frb_beams_cuda_destroy(struct br_frb_beams *plan)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    if (!gpu) return;
    br_frb_beams_wgmma_destroy(gpu->wgmma);
    for (weights_set &set : gpu->set) {
        br_cuda_free(plan->cuda, set.phases_m);
        br_cuda_free(plan->cuda, set.phases_n);
        br_cuda_free(plan->cuda, set.q);
        br_cuda_free(plan->cuda, set.p);
    }
    br_cuda_free(plan->cuda, gpu->mhz);
    free(gpu->theta2_host);
    free(gpu);
    plan->gpu = NULL;
}

extern "C" int br_frb_beams_cuda_create(struct br_frb_beams *plan, struct br_why *why)
{
    double times = static_cast<double>(plan->nchannels) * static_cast<double>(plan->max_steps);
    if (times * static_cast<double>(up(plan->nbeams, static_cast<size_t>(256))) > 1e9 ||
        plan->nbeams > 1u << 28)
        return br_because(why, "%zu channels, %zu steps, %zu beams are too many for one launch",
                          plan->nchannels, plan->max_steps, plan->nbeams);
    struct br_frb_beams_gpu *gpu = plan->gpu =
        static_cast<struct br_frb_beams_gpu *>(calloc(1, sizeof *plan->gpu));
    if (!gpu) return br_because(why, "no memory for the FRB beams");
    int failed = plan->float32       ? create_fp32_arbitrary(plan, why)
                 : plan->beams_x > 0 ? create_grid(plan, why)
                                     : create_mma_arbitrary(plan, why);
    return failed ? -1 : create_weights(plan, why);
}

extern "C" void br_frb_beams_cuda_steer(struct br_frb_beams *plan)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    fill_theta(plan, plan->m.next_theta_mhz, plan->n.next_theta_mhz);
    br_cuda_begin(plan->cuda);
    const void *theta2 =
        br_cuda_upload(plan->cuda, gpu->theta2_host, (plan->m.nbeams + plan->n.nbeams) * sizeof(two_floats));
    if (theta2) make_weights(plan, gpu->set[1 - gpu->now], static_cast<const two_floats *>(theta2));
}

extern "C" void br_frb_beams_cuda_switch(struct br_frb_beams *plan)
{
    plan->gpu->now = 1 - plan->gpu->now;
}

extern "C" bool br_frb_beams_cuda_alike(const struct br_frb_beams *a, const struct br_frb_beams *b)
{
    return a->gpu->how == b->gpu->how && a->gpu->shrink == b->gpu->shrink;
}

extern "C" void br_frb_beams_cuda_exchange(struct br_frb_beams *a, struct br_frb_beams *b)
{
    BR_EXCHANGE(weights_set, a->gpu, b->gpu, set[0]);
    BR_EXCHANGE(weights_set, a->gpu, b->gpu, set[1]);
    BR_EXCHANGE(unsigned, a->gpu, b->gpu, now);
}

extern "C" bool br_frb_beams_cuda_begin(struct br_frb_beams *plan, const uint8_t *in_valid, size_t nsteps,
                                        const uint8_t **valid)
{
    *valid = NULL;
    br_cuda_begin(plan->cuda);
    if (in_valid && nsteps > 0)
        *valid = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, in_valid, plan->nchannels * nsteps));
    return !in_valid || *valid || nsteps == 0; /* a failure is kept */
}

extern "C" void br_frb_beams_cuda(struct br_frb_beams *plan, const struct span *span)
{
    struct br_frb_beams_gpu *gpu = plan->gpu;
    const weights_set &set = gpu->set[gpu->now];
    cudaStream_t stream = static_cast<cudaStream_t>(br_cuda_stream(plan->cuda));
    if (gpu->how == WGMMA_ARBITRARY) return br_frb_beams_wgmma(gpu->wgmma, set.phases_m, set.phases_n, span);
    if (gpu->how == MMA_ARBITRARY) form_arbitrary(plan, span, set, stream);
    if (gpu->how == MMA_GRID) form_grid(plan, span, set, stream);
    if (gpu->how == FP32_ARBITRARY) {
        const fp32_arbitrary::work w = {span->in,
                                        span->valid,
                                        set.phases_m,
                                        set.phases_n,
                                        span->out,
                                        static_cast<unsigned>(span->count),
                                        static_cast<unsigned>(span->stride),
                                        static_cast<unsigned>(plan->nbeams),
                                        2 * plan->m.n,
                                        2 * plan->n.n};
        fp32_arbitrary::launch(w, static_cast<unsigned>(plan->nchannels), stream);
    }
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the FRB beams");
}
