/* launch_order.cuh - launches of a plan, one after the other in a stream, that run concurrently.
 *
 * With programmatic dependent launch a kernel may begin when every block of the one before it in the
 * stream has said so or has ended; a wait (await_previous) then lasts until that one has ended wholly and
 * what it wrote can be seen. Frames seldom have anything to do with each other, and then waiting is a
 * waste: blocks of the next frame could begin one by one as those of this one end.
 *
 * A launch need not wait for launches of its own plan that touch nothing of its inputs
 * and outputs: the host compares addresses with those of the last TOGETHER launches. The host cannot
 * know whether these are directly before it in the stream, or whether other work lies between, for
 * which the launch must wait. The device finds out:
 *
 * - A launch lets the next one begin only once it knows that everything before it has ended, but for
 *   launches of its plan with which it may run concurrently.
 * - So if the launch before it of its plan has not ended, nothing is between them: that other thing would
 *   still wait for it, and would not let this one begin. A block that sees this tells the launch's others.
 * - Launches end in order: the last block of each waits, at its end, for the launch before. So when all
 *   blocks of a launch have ended, what is older has ended wholly.
 * - A launch that touches nothing of the `depth` ones before it waits until the first of these has ended.
 *
 * Whatever does not follow this plan's launches at once (a copy, an event, a kernel of another kind,
 * another plan) is waited for as always. Other kernels of these streams that let the next one begin early
 * must keep to the first rule, too: they wait first.
 *
 * A frame alone is done soonest by as many blocks as there are multiprocessors. Where frames
 * follow each other it is better that few blocks do more of each, since these lose the time of a begin and
 * an end less often, and the next frames' blocks take the other multiprocessors. Only the device knows
 * which it is: it tells the host, which reads that, without waiting, when it launches the next frame. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_LAUNCH_ORDER_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_LAUNCH_ORDER_CUH

#include "kernels/common/hopper.cuh"

namespace beamring::baseband::hopper
{

constexpr unsigned TOGETHER = 5;
constexpr unsigned FOLLOWING =
    4; /* once so many launches overlapped the one before, frames follow each other */

/* State that the launches of a plan share; launches are numbered from 1. */
struct order_state {
    static constexpr unsigned SLOTS = TOGETHER + 1;
    unsigned long long ended[SLOTS]; /* blocks, of launches with that number modulo SLOTS */
    /* the last launch of which a block knows that nothing is between it and the one before */
    unsigned long long known;
    unsigned overlapping; /* launches, the last ones, that overlapped the one before: up to FOLLOWING */
};

/* A launch's place among those of its plan. */
struct order {
    order_state *state;
    unsigned long long number;
    /* where blocks are counted as they end: this launch's, those of the launch before and of the one
     * `depth` before; how many these are when they all have ended */
    unsigned long long *ended;
    const unsigned long long *last, *oldest;
    unsigned long long last_blocks, oldest_blocks;
    unsigned *follows; /* in the host's memory: whether frames follow each other */
    bool apart; /* touches nothing that the `depth` before it write, and writes nothing that they read */
};

/* ---- launches one after the other ---- */

/* A launch begins while the one before it in the stream still runs, as multiprocessors become free. Until
 * that one has ended and what it wrote can be seen, which await_previous() waits for, it may only touch what
 * no launch writes, weights and scales, but for what is said above. */
__device__ __forceinline__ void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

__device__ __forceinline__ void await_previous()
{
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

__device__ __forceinline__ unsigned long long look(const unsigned long long *at)
{
    unsigned long long value;
    asm volatile("ld.volatile.global.u64 %0, [%1];\n" : "=l"(value) : "l"(at) : "memory");
    return value;
}

/* The state when a block began. */
struct order_seen {
    unsigned long long last = 0, oldest = 0, known = 0;
    unsigned overlapping = 0;

    __device__ __forceinline__ explicit order_seen(const order &o, bool looks = true)
    {
        if (!looks) return;
        last = look(o.last);
        oldest = look(o.oldest);
        known = look(&o.state->known);
        asm volatile("ld.volatile.global.u32 %0, [%1];\n"
                     : "=r"(overlapping)
                     : "l"(&o.state->overlapping)
                     : "memory");
    }
};

/* Whether the launch before this one has to be waited for before memory is touched that any launch writes. */
__device__ __forceinline__ bool must_wait(const order &o, order_seen seen)
{
    if (!o.apart) return true;
    if (seen.known != o.number) {
        if (seen.last >= o.last_blocks) return true;
        asm volatile("st.volatile.global.u64 [%0], %1;\n" ::"l"(&o.state->known), "l"(o.number) : "memory");
    }
    for (; seen.oldest < o.oldest_blocks; seen.oldest = look(o.oldest)) __nanosleep(20);
    return false;
}

/* By one thread of a launch, before it lets the next one begin: whether it overlaps the one before. */
__device__ __forceinline__ void tell_host(const order &o, const order_seen &seen, bool overlaps)
{
    unsigned now = overlaps ? min(seen.overlapping + 1, FOLLOWING) : 0, follows = now == FOLLOWING;
    if (now == seen.overlapping) return;
    asm volatile("st.volatile.global.u32 [%0], %1;\n" ::"l"(&o.state->overlapping), "r"(now) : "memory");
    if (follows || seen.overlapping == FOLLOWING)
        asm volatile("st.volatile.global.u32 [%0], %1;\n" ::"l"(o.follows), "r"(follows) : "memory");
}

/* By one thread at the end of its block. */
__device__ __forceinline__ void end_in_order(const order &o)
{
    if (blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1 && blockIdx.z == gridDim.z - 1)
        await_previous();
    atomicAdd(o.ended, 1ull);
}

} // namespace beamring::baseband::hopper

#endif
