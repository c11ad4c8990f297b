/* FRB stage 1 on Hopper: tables and launches of hopper.cuh. */
#include "kernels/common/cuda.h"
#include "kernels/common/half.h"
#include "kernels/frb_grid/hopper.cuh"
#include "kernels/frb_grid/hopper.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>

using namespace beamring;

namespace
{

using kernel = void (*)(hopper_work);

/* Turns of a task, about: as many as make loading its weights cheap. */
constexpr unsigned TURNS = 24;

template <int M> kernel of_n(unsigned N)
{
    return N == 16   ? make_images_hopper<M, 16>
           : N == 20 ? make_images_hopper<M, 20>
           : N == 24 ? make_images_hopper<M, 24>
                     : static_cast<kernel>(nullptr);
}

/* NULL: none for this grid. */
kernel variant(unsigned M, unsigned N)
{
    return M == 16   ? of_n<16>(N)
           : M == 20 ? of_n<20>(N)
           : M == 24 ? of_n<24>(N)
                     : static_cast<kernel>(nullptr);
}

struct part {
    double re, im;
};

/* (re + i im) (-i)^turns */
part turned(part w, unsigned turns)
{
    for (; turns > 0; turns--) w = {w.im, -w.re};
    return w;
}

} // namespace

struct br_frb_grid_hopper {
    kernel kernel;
    unsigned M, N, P, D, pitch;
    size_t shared_bytes;
    void *wave, *table, *dishes, *weights, *level;
    float4 *sums[2]; /* of the unfinished block of time, in turn: one is read while the other is written */
    int now;
    bool resume, shared_weights,
        aligned; /* sums[now] holds an unfinished block; ; whole multiples of 16 bytes */
};

/* Cosine (or sine, for mirror images) that member `member` of a group of cells has in direction `direction`.
 */
static double wave_of(unsigned cells, unsigned group, unsigned member, unsigned direction)
{
    const unsigned groups = frb_hopper_groups(cells), distance = frb_hopper_distance(groups, group, member);
    if (distance >= cells / 2 || direction >= 2 * cells) return 0;
    const double angle = M_PI * (direction * (2 * distance + 1) % (4 * cells)) / (2 * cells);
    return frb_hopper_mirrored(groups, group, member) ? sin(angle) : cos(angle);
}

static uint16_t half_of(double value)
{
    return br_half_from_float(static_cast<float>(value));
}

static void *make_wave(struct br_cuda *cuda, unsigned M, struct br_why *why)
{
    uint16_t wave[4 * 4 * 32][2][2];
    const unsigned groups = frb_hopper_groups(M), tiles = frb_hopper_tiles(M);
    for (unsigned i = 0; i < tiles * groups * 32 * 4; i++) {
        const unsigned tile = i / 128 / groups, group = i / 128 % groups, lane = i / 4 % 32,
                       below = i / 2 % 2, k = i % 2;
        wave[frb_hopper_wave(groups, tile, group, lane)][below][k] =
            half_of(wave_of(M, group, frb_hopper_member_m(lane, k), frb_hopper_wave_p(tile, lane, below)));
    }
    return br_cuda_table(cuda, wave, tiles * groups * 32 * sizeof *wave, why);
}

static void *make_table(struct br_cuda *cuda, unsigned N, struct br_why *why)
{
    uint16_t table[6 * 8 * 64];
    const unsigned groups = frb_hopper_groups(N), leading = frb_hopper_table_leading(N);
    for (unsigned i = 0; i < frb_hopper_table_groups(groups) * 2 * N * 8; i++) {
        const unsigned k_group = i / 8 / (2 * N), q = i / 8 % (2 * N), member = i % 8,
                       group = frb_hopper_table_group(groups, k_group);
        table[br_wgmma_plain_place(q, 16 * k_group + 2 * member, leading, 128) / 2] =
            half_of(group < groups ? wave_of(N, group, member, q) : 0);
    }
    return br_cuda_table(cuda, table, frb_hopper_table_bytes(N), why);
}

/* Which dishes, with which weights, a lane puts on its cells. */
static int make_cells(struct br_frb_grid *plan, const struct br_frb_grid_params *params, struct br_why *why)
{
    struct br_frb_grid_hopper *h = plan->hopper;
    const unsigned mg = frb_hopper_groups(h->M), ng = frb_hopper_groups(h->N), pairs = mg * ng,
                   polarisation = frb_hopper_weight(pairs, 0);
    const size_t P = plan->npol, D = plan->ndishes, W = plan->weight_channels;
    int32_t dish[32][32];
    uint16_t(*dishes)[2] = static_cast<uint16_t(*)[2]>(calloc(polarisation, sizeof *dishes));
    uint16_t(*weights)[2][2] = static_cast<uint16_t(*)[2][2]>(calloc(W * P * polarisation, sizeof *weights));
    float *level = static_cast<float *>(malloc(W * sizeof *level));
    bool ok = dishes && weights && level;
    if (!ok) br_because(why, "no memory for the FRB grid");
    for (unsigned i = 0; i < 32 * 32; i++) dish[i / 32][i % 32] = -1;
    for (size_t d = 0; d < D; d++)
        dish[params->dish_cell[2 * d]][params->dish_cell[2 * d + 1]] = static_cast<int32_t>(d);
    for (size_t c = 0; ok && c < W; c++) {
        /* Powers of two that bring the channel's weights below 1, so that float16 holds all sums. */
        const float *given = params->weights ? params->weights + c * P * D * 2 : NULL;
        double most = given ? 0 : 0.5;
        int exponent;
        for (size_t i = 0; given && i < P * D * 2; i++)
            most = fmax(most, fabs(static_cast<double>(given[i])));
        (void)frexp(most, &exponent);
        if (!given || most == 0) exponent = 0;
        level[c] = static_cast<float>(ldexp(1, 2 * exponent));
        for (unsigned i = 0; i < pairs * 64; i++) {
            const unsigned n_group = i / 64 / mg, m_group = i / 64 % mg, lane = i / 2 % 32, k = i % 2,
                           at = frb_hopper_weight(frb_hopper_pair(mg, n_group, m_group), lane),
                           m_member = frb_hopper_member_m(lane, k), n_member = frb_hopper_member_n(lane),
                           m = frb_hopper_cell(h->M, m_group, m_member),
                           n = frb_hopper_cell(h->N, n_group, n_member);
            const int32_t d = m < h->M && n < h->N ? dish[m][n] : -1;
            if (d < 0) continue; /* weight 0 */
            if (c == 0) dishes[at][k] = static_cast<uint16_t>(d);
            for (size_t pol = 0; pol < P; pol++) {
                part w = {1, 0};
                if (given) {
                    const float *one = given + (pol * D + static_cast<size_t>(d)) * 2;
                    w = {ldexp(static_cast<double>(one[0]), -exponent),
                         ldexp(static_cast<double>(one[1]), -exponent)};
                }
                w = turned(w, frb_hopper_turned(mg, m_group, m_member) +
                                  frb_hopper_turned(ng, n_group, n_member));
                uint16_t(*to)[2] = weights[(c * P + pol) * polarisation + at];
                to[0][k] = half_of(w.re);
                to[1][k] = half_of(w.im);
            }
        }
    }
    ok = ok && (h->dishes = br_cuda_table(plan->cuda, dishes, polarisation * sizeof *dishes, why)) &&
         (h->weights = br_cuda_table(plan->cuda, weights, W * P * polarisation * sizeof *weights, why)) &&
         (h->level = br_cuda_table(plan->cuda, level, W * sizeof *level, why));
    free(dishes);
    free(weights);
    free(level);
    return ok ? 0 : -1;
}

void br_frb_grid_hopper_destroy(struct br_frb_grid *plan)
{
    struct br_frb_grid_hopper *h = plan->hopper;
    if (!h) return;
    void *memory[] = {h->wave, h->table, h->dishes, h->weights, h->level, h->sums[0], h->sums[1]};
    for (void *one : memory) br_cuda_free(plan->cuda, one);
    free(h);
    plan->hopper = NULL;
}

bool br_frb_grid_hopper_fits(const struct br_frb_grid *plan, const struct br_frb_grid_params *params)
{
    int device = br_cuda_device(params->cuda), major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major == 9 && minor == 0 && variant(plan->grid_m, plan->grid_n) != NULL &&
           plan->downsample < 1u << 30;
}

int br_frb_grid_hopper_create(struct br_frb_grid *plan, const struct br_frb_grid_params *params,
                              struct br_why *why)
{
    struct br_frb_grid_hopper *h = plan->hopper =
        static_cast<struct br_frb_grid_hopper *>(calloc(1, sizeof *h));
    if (!h) return br_because(why, "no memory for the FRB grid");
    plan->cuda = params->cuda;
    h->M = plan->grid_m, h->N = plan->grid_n;
    h->P = static_cast<unsigned>(plan->npol), h->D = static_cast<unsigned>(plan->ndishes);
    h->kernel = variant(h->M, h->N);
    h->shared_weights = plan->weight_channels == 1;
    h->wave = make_wave(plan->cuda, h->M, why);
    h->table = h->wave ? make_table(plan->cuda, h->N, why) : NULL;
    if (!h->table || make_cells(plan, params, why) != 0) return -1;
    const size_t bytes = static_cast<size_t>(plan->downsample > PARTIAL ? 2 : 1) *
                         frb_hopper_kept_count(h->M, h->N) * sizeof(float4);
    for (int i = 0; i < 2; i++) {
        h->sums[i] = static_cast<float4 *>(br_cuda_alloc(plan->cuda, plan->nchannels * bytes, why));
        if (!h->sums[i]) return -1;
    }
    /* unaligned rows begin up to 15 bytes behind a multiple of 16 */
    h->pitch = (h->P * h->D + 30) / 16 * 16;
    h->shared_bytes = hopper_places_of(h->M, h->N, h->P, h->pitch).bytes;
    cudaError_t status =
        cudaFuncSetAttribute(reinterpret_cast<const void *>(h->kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(h->shared_bytes));
    if (status == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return br_because(why, "shared memory for the FRB grid on device %d: %s", br_cuda_device(plan->cuda),
                      cudaGetErrorString(status));
}

void br_frb_grid_hopper_begin(struct br_frb_grid *plan)
{
    plan->hopper->resume = false;
}

static hopper_job job_of(struct br_frb_grid *plan, const struct frb_grid_span *span)
{
    struct br_frb_grid_hopper *h = plan->hopper;
    const size_t inputs = plan->npol * plan->ndishes;
    const unsigned turns = (plan->downsample * h->P + 3) / 4;
    hopper_job w = {};
    w.T = plan->downsample;
    w.F = static_cast<unsigned>(plan->nchannels);
    w.blocks = static_cast<unsigned>(span->blocks);
    w.together = turns < TURNS ? TURNS / turns : 1;
    w.pending = span->pending;
    w.e = span->e, w.row = span->row, w.steps = span->steps;
    if (span->steps > 0) w.end = span->e + (span->steps - 1) * span->row + plan->nchannels * inputs;
    w.valid = span->valid, w.valid_row = span->valid_row;
    w.dishes = static_cast<const unsigned *>(h->dishes);
    w.weights = static_cast<const uint2 *>(h->weights);
    w.level = static_cast<const float *>(h->level);
    w.factor = span->factor;
    w.unit = br_frb_grid_cuda_unit(plan);
    w.out = span->out, w.out_stride = span->out_stride;
    w.wide = reinterpret_cast<uintptr_t>(w.out) % 8 == 0;
    w.before = h->resume ? h->sums[h->now] : NULL;
    w.after = h->sums[!h->now];
    w.aligned =
        reinterpret_cast<uintptr_t>(w.e) % 16 == 0 && w.row % 16 == 0 && inputs % 16 == 0 && w.row < 1u << 30;
    w.flush = span->flush;
    w.shared_weights = h->shared_weights;
    return w;
}

void br_frb_grid_hopper_add(struct br_frb_grid *const *plan, const struct frb_grid_span *span, size_t n)
{
    hopper_work w;
    size_t order[MOST_JOBS], tasks = 0;
    const struct br_frb_grid_hopper *h = plan[0]->hopper;
    for (size_t i = 0; i < n; i++) { /* the longest blocks first */
        size_t k = i;
        for (; k > 0 && plan[order[k - 1]]->downsample < plan[i]->downsample; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    w.njobs = static_cast<unsigned>(n);
    w.P = h->P, w.D = h->D, w.pitch = h->pitch;
    w.low = 0x000f000fu, w.high = 0x00f000f0u;
    w.wave = static_cast<const uint2 *>(h->wave);
    w.table = static_cast<const uint4 *>(h->table);
    for (size_t k = 0; k < n; k++) {
        struct br_frb_grid *p = plan[order[k]];
        const struct frb_grid_span *s = &span[order[k]];
        hopper_job *job = &w.job[k];
        *job = job_of(p, s);
        job->first_task = static_cast<unsigned>(tasks);
        tasks += p->nchannels * ((s->blocks + job->together - 1) / job->together);
        p->hopper->resume = !s->flush && (s->pending + s->steps) % p->downsample != 0;
        if (p->hopper->resume) p->hopper->now = !p->hopper->now;
    }
    h->kernel<<<static_cast<unsigned>(tasks), 128, h->shared_bytes,
                static_cast<cudaStream_t>(br_cuda_stream(plan[0]->cuda))>>>(w);
    br_cuda_ok(plan[0]->cuda, cudaGetLastError(), "the launch of the FRB grid");
}
