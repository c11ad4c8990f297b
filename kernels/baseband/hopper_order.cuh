/* hopper_order.cuh - launches of a plan, one after the other in a stream, that run beside each other.
 *
 * With programmatic dependent launch a kernel may begin when every block of the one before it in the stream has
 * said so or has ended; a wait (await_previous) then lasts until that one has ended wholly and what it wrote can be
 * seen. Frames seldom have anything to do with each other, and then waiting is time lost: blocks of the next
 * frame could begin one by one as those of this one end.
 *
 * What a launch may leave out is the wait for launches of its own plan that touch nothing of what it reads or
 * writes: the host compares addresses with those of the last TOGETHER launches. What the host cannot know is
 * whether these stand right before it in the stream, or whether there is something else between, which has to
 * be waited for. The device finds out:
 *
 * - A launch lets the next one begin only once it knows that everything before it has ended, but for launches
 *   of its plan beside which it may run.
 * - So if the launch before it of its plan has not ended, nothing stands between: that other thing would still
 *   wait for it, and would not let this one begin. A block that sees this tells the launch's other blocks.
 * - Launches end in order: the last block of each waits, at its end, for the launch before. So when all blocks
 *   of a launch have ended, what is older has ended wholly.
 * - A launch waits until of those before it all but TOGETHER - 1 have ended.
 *
 * Whatever does not follow this plan's launches at once (a copy, an event, a kernel of another kind, another plan)
 * is waited for as always. Other kernels of these streams that let the next one begin early must keep to the first
 * rule, too: they wait first. */
#ifndef BEAMRING_KERNELS_BASEBAND_HOPPER_ORDER_CUH
#define BEAMRING_KERNELS_BASEBAND_HOPPER_ORDER_CUH

#include "kernels/baseband/hopper_loads.cuh"

namespace beamring::baseband::hopper
{

constexpr unsigned TOGETHER = 3;

/* What the launches of a plan tell each other; they are numbered from 1 on. */
struct order_state {
    static constexpr unsigned SLOTS = TOGETHER + 1;
    unsigned long long ended[SLOTS]; /* blocks, of launches with that number modulo SLOTS */
    unsigned long long known;        /* the last launch of which a block knows that nothing stands before it but the
                                        one before */
};

/* Where a launch stands among those of its plan. */
struct order {
    order_state *state;
    unsigned long long number;
    unsigned long long last, oldest; /* blocks ended when the launch before has, and when the one TOGETHER before has */
    bool beside; /* touches nothing that the TOGETHER before it write, and writes nothing that they read */
};

__device__ __forceinline__ unsigned long long look(const unsigned long long *at)
{
    unsigned long long value;
    asm volatile("ld.volatile.global.u64 %0, [%1];\n" : "=l"(value) : "l"(at) : "memory");
    return value;
}

/* What stood in the state when a block began. */
struct order_seen {
    unsigned long long last, oldest, known;

    __device__ __forceinline__ explicit order_seen(const order &o)
    {
        last = look(&o.state->ended[(o.number + TOGETHER) % order_state::SLOTS]); /* o.number - 1, modulo SLOTS */
        oldest = look(&o.state->ended[(o.number + 1) % order_state::SLOTS]);
        known = look(&o.state->known);
    }
};

/* Whether the launch before this one has to be waited for before memory is touched that any launch writes. */
__device__ __forceinline__ bool must_wait(const order &o, order_seen seen)
{
    if (!o.beside) return true;
    if (seen.known != o.number) {
        if (seen.last >= o.last) return true;
        asm volatile("st.volatile.global.u64 [%0], %1;\n" ::"l"(&o.state->known), "l"(o.number) : "memory");
    }
    for (; seen.oldest < o.oldest; seen = order_seen(o)) __nanosleep(100);
    return false;
}

/* By one thread at the end of its block. */
__device__ __forceinline__ void end_in_order(const order &o)
{
    if (blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1 && blockIdx.z == gridDim.z - 1)
        await_previous();
    atomicAdd(&o.state->ended[o.number % order_state::SLOTS], 1ull);
}

} // namespace beamring::baseband::hopper

#endif
