/* hopper_samples.cuh - which samples a block of threads of hopper.cuh has, and how they come to it: what a
 * launch is told, tasks, and copies to shared memory ahead of their use. */
#ifndef BEAMRING_KERNELS_FRB_GRID_HOPPER_SAMPLES_CUH
#define BEAMRING_KERNELS_FRB_GRID_HOPPER_SAMPLES_CUH

#include "kernels/common/device.cuh"
#include "kernels/frb_grid/hopper_layout.h"
#include "kernels/frb_grid/plan.h"

namespace beamring
{

/* The blocks of time of one plan. */
struct hopper_job {
    unsigned first_task;          /* of the launch's: the number of tasks of the jobs before */
    unsigned T;                   /* samples of a block of time */
    unsigned F, blocks, together; /* blocks of time of the launch; those of one task */
    unsigned pending;             /* samples of block 0 before this launch */
    const uint8_t *e, *end;       /* [steps][row]; behind the last byte */
    size_t row, steps;
    const uint8_t *valid; /* [steps][valid_row] or NULL */
    size_t valid_row;
    const unsigned *dishes; /* [frb_hopper_weight]: simd: m0 */
    const uint2 *weights;   /* [F or 1][P][frb_hopper_weight] */
    const float *level;     /* [F or 1]: what intensities are multiplied by for the weights' scale */
    const float *factor;    /* [blocks][F] or NULL: all are `unit` */
    uint16_t *out;          /* [F][out_stride][2M][2N] */
    size_t out_stride;
    const float4 *before; /* [F][sums, second sums (long blocks)] of block 0; NULL: none */
    float4 *after;        /* the same of the last block, when it is not complete */
    float unit;
    bool aligned;        /* every row begins and ends at a multiple of 16 */
    bool flush;          /* block 0 ends here */
    bool shared_weights; /* by all channels */
    bool wide;           /* 8 bytes of out are aligned */
};

struct hopper_work {
    unsigned njobs, P, D;
    unsigned pitch;     /* of a time in shared memory, a multiple of 16 */
    unsigned low, high; /* 0x000f000f, 0x00f000f0, but the compiler does not know it: one logic operation
                           instead of two */
    const uint2 *wave;  /* see frb_hopper_wave */
    const uint4 *table; /* see frb_hopper_table_group */
    struct hopper_job job[MOST_JOBS];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* What a block of threads does: some blocks of time of one channel. */
struct hopper_task {
    const hopper_job *job;
    unsigned f, first_block, blocks;
    int begin, end;     /* samples of the first block of time that are in this launch, from `step` on */
    int64_t step, left; /* samples of the launch from there on */
    unsigned turns;

    __device__ __forceinline__ hopper_task(const hopper_work &all, unsigned number) : turns(0)
    {
        unsigned j = 0;
        while (j + 1 < all.njobs && number >= all.job[j + 1].first_task) j++;
        const hopper_job &w = *(job = &all.job[j]);
        const unsigned task = number - w.first_task, times = 4 / all.P;
        f = task % w.F;
        first_block = task / w.F * w.together;
        blocks = min(w.together, w.blocks - first_block);
        begin = first_block == 0 ? static_cast<int>(w.pending) : 0;
        step = first_block == 0 ? 0 : static_cast<int64_t>(first_block) * w.T - w.pending;
        left = static_cast<int64_t>(w.steps) - step;
        end = static_cast<int>(left < static_cast<int>(w.T) - begin ? begin + left : w.T);
        if (w.steps == 0) return;
        turns = (static_cast<unsigned>(end - begin + begin % static_cast<int>(times)) + times - 1) / times;
        if (blocks > 1) { /* the last one need not be complete */
            const int64_t rest = left - (end - begin) - static_cast<int64_t>(blocks - 2) * w.T;
            turns += (blocks - 2) * ((w.T + times - 1) / times) +
                     (static_cast<unsigned>(rest < w.T ? rest : w.T) + times - 1) / times;
        }
    }
};

/* The samples of a task, turn by turn (four samples), as they are copied to shared memory ahead of their use.
 */
struct hopper_source {
    const hopper_job &w;
    unsigned inputs, times, pitch, slot;
    unsigned turns;     /* that are left */
    int at, begin, end; /* the turn's first time, counted in its block of time; the samples of the block that
                           are there */
    int64_t step;       /* the turn's first time, counted in the launch */
    const uint8_t *field; /* of this channel, at that step */
    const uint8_t *valid; /* of this channel, all steps, or NULL */
    uint8_t *slots;       /* [FRB_HOPPER_SLOTS][times][pitch] */
    unsigned *skews;      /* [FRB_HOPPER_SLOTS][4] */
    unsigned time[2];     /* of this thread's pieces of 16 bytes */
    unsigned offset[2];   /* in memory, from the turn's first time on; both rows aligned */

    __device__ __forceinline__ hopper_source(const hopper_job &job, const hopper_work &all, size_t f,
                                             uint8_t *to, unsigned *skew)
        : w(job), inputs(all.P * all.D), times(4 / all.P), pitch(all.pitch), slot(0), slots(to), skews(skew)
    {
        valid = w.valid ? w.valid + f : nullptr;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned place = 16 * (threadIdx.x + 128 * i);
            time[i] = place / pitch;
            const unsigned piece = place - time[i] * pitch; /* its byte in the row */
            offset[i] = time[i] * static_cast<unsigned>(w.row) + piece;
            if (w.aligned && piece >= inputs) time[i] = times;
        }
        field = w.e + f * inputs;
    }

    /* One turn, or nothing when there is none. */
    __device__ __forceinline__ void copy()
    {
        if (turns > 0) {
            uint8_t *to = slots + slot * times * pitch + 16 * threadIdx.x;
            if (w.aligned) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (time[i] < times) copy_async_16(to + 2048 * i, field + offset[i], there(time[i]));
            } else {
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (time[i] < times)
                        copy_any(to + 2048 * i, time[i], 16 * (threadIdx.x + 128 * i) - time[i] * pitch);
            }
            advance();
        }
        copy_async_commit();
    }

  private:
    __device__ __forceinline__ bool there(unsigned t) const
    {
        const int sample = at + static_cast<int>(t);
        return sample >= begin && sample < end &&
               (!valid || valid[(step + t) * static_cast<int64_t>(w.valid_row)]);
    }

    /* From the multiple of 16 below the row's address on. */
    __device__ __forceinline__ void copy_any(uint8_t *to, unsigned t, unsigned byte)
    {
        const uint8_t *from = field + t * w.row;
        const unsigned skip = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 16);
        if (byte == 0) skews[slot * 4 + t] = skip;
        if (byte >= skip + inputs) return;
        const bool here = there(t);
        const uint8_t *first = from - skip + byte;
        if (here && first >= w.e && first + 16 <= w.end) {
            copy_async_16(to, first, true);
        } else { /* missing, or at the edges of the array */
#pragma unroll 1
            for (unsigned k = 0; k < 16; k++)
                to[k] =
                    here && byte + k >= skip && byte + k < skip + inputs ? first[k] : static_cast<uint8_t>(0);
        }
    }

    __device__ __forceinline__ void advance()
    {
        slot = (slot + 1) % FRB_HOPPER_SLOTS;
        turns--;
        at += static_cast<int>(times);
        step += times;
        field += times * w.row;
        if (at >= end) { /* the next block of time begins where this one ended */
            const int past = at - end;
            step -= past;
            field -= past * static_cast<int64_t>(w.row);
            at = begin = 0;
            end = static_cast<int>(
                static_cast<int64_t>(w.steps) - step < w.T ? static_cast<int64_t>(w.steps) - step : w.T);
        }
    }
};

#endif

} // namespace beamring

#endif
