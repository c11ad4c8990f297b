/* The filterbank on a GPU, in float32: taps and first butterfly, exchange through shared memory, the rest of
 * the transform.
 *
 * transform.h says what is computed and why the signs and 1/sqrt(2) can stand in the taps. Here a thread
 * block walks along time with SPAN samples of the row (channels and spectators are one row: the filter treats
 * them alike), two output steps a turn, in these parts:
 *
 * gather.cuh  A thread has K = 4 (U = 2: 2) input steps j' + k U/K of each block, and 8/K samples of the row.
 *             A sample is unpacked once: what it contributes to this and the next three outputs is added to
 *             running sums (more than four taps: it is read again for each tap). Then the butterfly over k,
 *             and the turn by e^{-2 i pi j' (q + 1/2)/U}.
 * finish.cuh  U >= 32 only: transforms of length MIDDLE, in place in shared memory. Then transforms of length
 *             LAST; gain, rounding, clamping; four samples are stored as one word.
 *
 * With N = U/K, j' = c + LAST b and r = d + MIDDLE g, fine channel u = K r + q comes from rows q N + c + LAST d
 * of the exchange. The order of all sums is fixed: neither the length of a call nor the division of the work
 * changes a result by a bit. */
#include "kernels/common/cuda.h"
#include "kernels/upchannelize/finish.cuh"
#include "kernels/upchannelize/plan.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

namespace
{

template <int U, class FILTER>
__global__ void __launch_bounds__(shape<U>::THREADS, shape<U>::BLOCKS)
    upchannelize(const __grid_constant__ work w)
{
    using s = shape<U>;
    extern __shared__ float4 exchange[]; /* [TURN][U][PAIRS]: two samples, re and im */
    __shared__ float2 later[s::LAST * s::MIDDLE];
    __shared__ float4 taps[U], turns[U / 2];
    __shared__ __align__(16) float bias[U];
    __shared__ float2 gains[U];
    __shared__ unsigned long long sum;

    int sample = static_cast<int>(threadIdx.x) * s::V % s::SPAN; /* of the block's */
    position p = {static_cast<int>(threadIdx.x) * s::V / s::SPAN,
                  static_cast<int>(blockIdx.x) * s::SPAN + sample};
    if (p.at >= w.width) p.at = (w.width - 1) / s::V * s::V;
    int block = w.first + static_cast<int>(blockIdx.y) * w.each, end = min(w.last, block + w.each);
    unsigned clamped = 0;
    target to = first_target<U>(w, block);

    for (int i = static_cast<int>(threadIdx.x); i < s::LAST * s::MIDDLE; i += s::THREADS)
        later[i] = w.later[i];
    for (int i = static_cast<int>(threadIdx.x); i < U; i += s::THREADS) gains[i] = w.gain[i];
    if (threadIdx.x == 0) sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < U / 2; i += s::THREADS) turns[i] = w.turns[i];
    unsigned words[TURN][s::K];          /* of this turn; loaded while the one before is finished */
    rows next = rows_of<U>(w, p, block); /* at the end it stays where it is */
#pragma unroll
    for (int t = 0; t < TURN; t++) {
        load<U>(words[t], w, p, next);
        if (block + t + 1 < end) next.first += U * w.row;
    }
    FILTER filter;
    filter.start(taps, bias, w, p);
    __syncthreads();
    filter.warm_up(w, p, block);

    for (; block < end; block += TURN) {
#pragma unroll
        for (int t = 0; t < TURN; t++) {
            /* z [V][K]   register: v, k, then q   thread: at, then step */
            float2 z[s::V][s::K];
            /* Tables are read again for each step: kept, they would take 28 registers. */
            asm volatile("" ::: "memory");
            filter.filter(z, words[t], w, p, block + t);
            spread<U>(exchange + t * U * s::PAIRS, z, turns + p.step * (s::K / 2), p.step, sample);
        }
#pragma unroll
        for (int t = 0; t < TURN; t++) {
            load<U>(words[t], w, p, next);
            if (block + TURN + t + 1 < end) next.first += U * w.row;
        }
        __syncthreads();
        if constexpr (s::MIDDLE > 1) {
            middle<U>(exchange, later);
            __syncthreads();
        }
        clamped += finish<U>(exchange, w, gains, to, block, end);
        __syncthreads();
        to.out += static_cast<size_t>(w.width) * (TURN * U);
        if (to.lost != nullptr) to.lost += TURN * w.F;
    }
    clamped = __reduce_add_sync(beamring::WHOLE_WARP, clamped);
    if (threadIdx.x % 32 == 0 && clamped > 0) atomicAdd(&sum, static_cast<unsigned long long>(clamped));
    __syncthreads();
    if (threadIdx.x == 0 && sum > 0) atomicAdd(w.clamped, sum);
}

struct variant {
    void (*kernel)(work);
    int threads, span;
    size_t shared;
};

template <int U> variant variant_of(bool few)
{
    return {few ? upchannelize<U, few_taps<U>> : upchannelize<U, many_taps<U>>, shape<U>::THREADS,
            shape<U>::SPAN, shape<U>::SHARED};
}

variant variant_for(unsigned factor, bool few)
{
    switch (factor) {
    case 2:
        return variant_of<2>(few);
    case 4:
        return variant_of<4>(few);
    case 8:
        return variant_of<8>(few);
    case 16:
        return variant_of<16>(few);
    case 32:
        return variant_of<32>(few);
    case 64:
        return variant_of<64>(few);
    default:
        return variant_of<128>(few);
    }
}

/* The tables of a plan, one after another in one piece of memory, counted in floats. */
struct tables {
    size_t taps, bias, turns, later, gain, floats;
};

} // namespace

struct br_upchannelize_device {
    variant way;
    tables at;
    float *table;
    uint8_t *history, *spare; /* [(M-1) U][F X]: the rows before the next call; room for their successor */
    bool strong;
    size_t resident; /* thread blocks that run at once */
};

/* Taps scaled to 1, so that no window is too small or too large for float32, with the signs of the phases;
 * few are filled up to RING with zeros for the oldest. */
static void fill(float *table, const tables &at, const struct br_upchannelize *plan, int padded)
{
    constexpr double PI = 3.14159265358979323846;
    int U = static_cast<int>(plan->U), M = static_cast<int>(plan->M), K = U == 2 ? 2 : 4, N = U / K;
    int last = N >= 4 ? 4 : N, middle = N / last;
    double largest = 0;
    for (int s = 0; s < M * U; s++) largest = fmax(largest, fabs(plan->window[s]));
    if (largest == 0) largest = 1;
    for (int j = 0; j < N; j++)
        for (int k = 0; k < K; k++) {
            double sum = 0;
            for (int m = 0; m < M; m++) {
                int step = j + k * N;
                double tap = plan->window[m * U + step] / largest * ((m + step) % 2 ? -1 : 1) *
                             (K == 4 && k % 2 ? sqrt(0.5) : 1);
                float rounded = static_cast<float>(tap);
                table[at.taps + (j * padded + padded - M + m) * K + k] = rounded;
                sum += static_cast<double>(rounded);
            }
            table[at.bias + j * K + k] = static_cast<float>(-24 * sum);
            double phase = -2 * PI * j * (k + 0.5) / U;
            table[at.turns + 2 * (j * K + k)] = static_cast<float>(cos(phase));
            table[at.turns + 2 * (j * K + k) + 1] = static_cast<float>(sin(phase));
        }
    for (int c = 0; c < last; c++)
        for (int d = 0; d < middle; d++) {
            double phase = -2 * PI * c * d / N;
            table[at.later + 2 * (c * middle + d)] = static_cast<float>(cos(phase));
            table[at.later + 2 * (c * middle + d) + 1] = static_cast<float>(sin(phase));
        }
    for (int u = 0; u < U; u++) {
        double gain = plan->gain[u] * largest;
        table[at.gain + 2 * u] = static_cast<float>(gain);
        table[at.gain + 2 * u + 1] = static_cast<float>(fmin(static_cast<double>(FITS) / fabs(gain), 1e30));
    }
}

static bool is_strong(const struct br_upchannelize *plan)
{
    double sum = 0, gain = 0;
    for (unsigned s = 0; s < plan->M * plan->U; s++) sum += fabs(plan->window[s]);
    for (unsigned u = 0; u < plan->U; u++) gain = fmax(gain, fabs(plan->gain[u]));
    return sum * gain * 16 > static_cast<double>(FITS);
}

static int choose(br_upchannelize_device *d, const struct br_upchannelize *plan, bool few, struct br_why *why)
{
    int device = br_cuda_device(plan->cuda), processors = 0, blocks = 0;
    d->way = variant_for(plan->U, few);
    const void *function = reinterpret_cast<const void *>(d->way.kernel);
    cudaError_t status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(d->way.shared));
    if (status == cudaSuccess)
        status =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, d->way.threads, d->way.shared);
    if (status != cudaSuccess || blocks < 1)
        return br_because(why, "the filterbank with factor %u cannot run on device %d: %s", plan->U, device,
                          cudaGetErrorString(status));
    d->resident = static_cast<size_t>(blocks) * static_cast<size_t>(processors);
    return 0;
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

    size_t U = plan->U, K = U == 2 ? 2 : 4, few = plan->M <= RING, padded = few ? RING : plan->M;
    if (choose(d, plan, few, why) != 0) return -1;
    d->strong = is_strong(plan);
    /* every table begins at a multiple of 4 floats */
    d->at.bias = U * padded;
    d->at.turns = d->at.bias + (U < 4 ? 4 : U);
    d->at.later = d->at.turns + (2 * U < 4 ? 4 : 2 * U);
    d->at.gain = d->at.later + (2 * U / K < 4 ? 4 : 2 * U / K);
    d->at.floats = d->at.gain + 2 * U;
    float *table = static_cast<float *>(calloc(d->at.floats, sizeof *table));
    if (table == nullptr)
        return br_because(why, "no memory for a filter with factor %u and %u taps", plan->U, plan->M);
    fill(table, d->at, plan, static_cast<int>(padded));
    d->table = static_cast<float *>(br_cuda_table(plan->cuda, table, d->at.floats * sizeof *table, why));
    free(table);
    if (d->table == nullptr) return -1;

    size_t bytes = (plan->M - 1) * U * plan->nchannels * plan->nspectators;
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

extern "C" void br_upchannelize_cuda_remember(struct br_upchannelize *plan, const uint8_t *e, size_t row,
                                              size_t nsteps)
{
    br_upchannelize_device *d = plan->device;
    size_t width = plan->nchannels * plan->nspectators, wanted = static_cast<size_t>(plan->M - 1) * plan->U;
    size_t fresh = nsteps < wanted ? nsteps : wanted, old = wanted - fresh;
    if (fresh == 0) return;
    copy_rows(plan, d->spare, d->history + fresh * width, width, old);
    copy_rows(plan, d->spare + old * width, e + (nsteps - fresh) * row, row, fresh);
    uint8_t *history = d->spare;
    d->spare = d->history;
    d->history = history;
}

/* How many blocks a thread block walks through: few enough to keep all processors busy to the end, many
 * enough that the M-1 blocks before them, which it reads as well, weigh little. */
static size_t length_of_walk(size_t columns, size_t blocks, size_t resident, size_t before)
{
    size_t best = blocks, least = SIZE_MAX;
    for (size_t parts = 1; parts <= 64 && parts <= blocks; parts++) {
        size_t each = ((blocks + parts - 1) / parts + TURN - 1) / TURN * TURN,
               walks = (blocks + each - 1) / each;
        size_t cost =
            (columns * walks + resident - 1) / resident * (2 * each + before + 4); /* 4: what a start costs */
        if (cost >= least) continue;
        least = cost;
        best = each;
    }
    /* gridDim.y is at most 65535 */
    return best * 65535 < blocks ? (blocks + 65534) / 65535 : best;
}

extern "C" void br_upchannelize_cuda(struct br_upchannelize *plan, const struct upchannelize_job *job)
{
    const br_upchannelize_device *d = plan->device;
    work w = {};
    size_t width = plan->nchannels * plan->nspectators, lost_bytes = job->blocks * plan->nchannels,
           span = static_cast<size_t>(d->way.span), wide_in = plan->U == 2 ? 4 : 2;
    if (job->first + job->blocks > INT_MAX / 2) { /* more than a GiB of input for each sample of a row */
        br_cuda_ok(plan->cuda, cudaErrorInvalidValue, "a filterbank of so many steps at once");
        return;
    }
    if (memchr(job->missing, 1, lost_bytes) != nullptr) {
        w.lost = static_cast<const uint8_t *>(br_cuda_upload(plan->cuda, job->missing, lost_bytes));
        if (w.lost == nullptr) return; /* br_cuda_check says why */
    }
    w.e = job->e;
    w.history = d->history;
    w.out = job->out;
    w.taps = d->table + d->at.taps;
    w.bias = d->table + d->at.bias;
    w.turns = reinterpret_cast<const float4 *>(d->table + d->at.turns);
    w.later = reinterpret_cast<const float2 *>(d->table + d->at.later);
    w.gain = reinterpret_cast<const float2 *>(d->table + d->at.gain);
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
           each = length_of_walk(columns, job->blocks, d->resident, plan->M - 1);
    w.first = static_cast<int>(job->first);
    w.last = w.first + static_cast<int>(job->blocks);
    w.each = static_cast<int>(each);
    dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>((job->blocks + each - 1) / each));
    d->way.kernel<<<grid, static_cast<unsigned>(d->way.threads), d->way.shared,
                    static_cast<cudaStream_t>(br_cuda_stream(plan->cuda))>>>(w);
    br_cuda_ok(plan->cuda, cudaGetLastError(), "the launch of the filterbank");
}
