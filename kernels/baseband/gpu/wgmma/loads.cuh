/* loads.cuh - the beamformer on Hopper: which tiles a block of threads processes, the places of its data in
 * shared memory, and the producer, the threads that load them. */
#ifndef BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_LOADS_CUH
#define BEAMRING_KERNELS_BASEBAND_GPU_WGMMA_LOADS_CUH

#include "kernels/baseband/gpu/wgmma/launch_order.cuh"
#include "kernels/baseband/gpu/wgmma/layout.h"

#include <stddef.h>
#include <stdint.h>

namespace beamring::baseband::hopper
{

constexpr int TIMES = 128;                      /* of a tile; variants with THREE have tiles of 64 */
constexpr int DISHES = 128;                     /* of a chunk */
constexpr int MOST_CHUNKS = 8, MOST_STAGES = 8; /* D up to 1024 */
constexpr int MOST_BEAMS = 1024;
constexpr unsigned AHEAD =
    2; /* chunks that are prefetched into the L2 before the wait for earlier launches */

/* A kernel for tiles of BEAMS beams. PAIR: a chunk holds 64 dishes of two polarisations. */
template <int BEAMS_, bool PAIR_, bool THREE_ = false> struct variant {
    static constexpr int BEAMS = BEAMS_;
    static constexpr bool PAIR = PAIR_;
    static constexpr int FPS = PAIR ? 2 : 1; /* channels and polarisations in a chunk */
    /* HALVES: two warpgroups share each tile, and each forms half of its times. Otherwise each warpgroup has
     * tiles of its own. THREE: three warpgroups, so that the rounding of one is hidden behind the products of
     * the others if it takes as long; they have no output buffers in shared memory (not for ending::NIBBLES).
     */
    static constexpr bool THREE = THREE_;
    static constexpr bool HALVES = BEAMS > 32 && !THREE;
    static constexpr int MT = BEAMS > 32 ? 1 : 2;             /* concurrent products of 64 times */
    static constexpr int PIECE = 64 * MT;                     /* times of a tile that a warpgroup forms */
    static constexpr int TILE = HALVES ? 2 * PIECE : PIECE;   /* times */
    static constexpr int CONSUMERS = PAIR || THREE ? 3 : 2;   /* warpgroups that multiply */
    static constexpr unsigned EVERY = HALVES ? 1 : CONSUMERS; /* a warpgroup has every EVERY-th tile */
    static constexpr int THREADS = 128 * (CONSUMERS + 1);
    static constexpr int REGISTERS = CONSUMERS == 2 ? 232 : 152; /* of a thread that multiplies */
    static constexpr int STAGE = PIECE * DISHES;                 /* bytes */
    static constexpr int WEIGHTS = 3 * BEAMS * DISHES;           /* of a chunk */
    static constexpr int OUT = FPS * BEAMS * TIMES;              /* of a tile */
    static constexpr int OUTS = THREE ? 0 : HALVES ? 2 : 2 * CONSUMERS;
    static constexpr int SCALES = FPS * BEAMS * static_cast<int>(sizeof(float));
    static constexpr int COUNTERS = BEAMS / 4; /* of clamped values: one for each beam of a thread */
};

/* Pairs of barriers of the rings: `full` when the data have arrived, `empty` when the consumers are done. */
struct barriers {
    barrier full[3][MOST_STAGES], empty[3][MOST_STAGES];
    barrier weights_full[2][MOST_CHUNKS], weights_empty[2][MOST_CHUNKS];
};

/* The arguments of a launch. Those that a block needs first come first, in one line of the constant cache. */
struct work {
    unsigned share, more; /* each block has `share` tiles (or halves), the first `more` blocks one more */
    unsigned time_tiles;
    unsigned D;
    uint8_t chunks, stages, buffers; /* stages of each warpgroup; buffers of weights: 1 or 2 */
    bool store_tensor;               /* TMA stores: `out` and T are multiples of 16 */
    bool keep_weights;               /* keep weights in the L2 from frame to frame */
    unsigned beam_tiles;
    unsigned weight_rows;   /* groups of FPS channels and polarisations that have weights of their own */
    unsigned groups;        /* ((F P) / FPS) beam_tiles */
    const uint8_t *weights; /* [weight channel, P / FPS][beam tile][chunk][WEIGHTS], as in shared memory */
    const float *scales;    /* [weight channel, P / FPS][beam tile][FPS][BEAMS]: 2^-(s + 8) */
    const int *offsets;     /* like scales: 16 sum_d A_im; for small_frames.cuh */
    const uint8_t *valid;   /* [T][F] or NULL */
    uint8_t *out;           /* [B][F][P][T] */
    unsigned long long *clamped, *total; /* [B], [1] */
    unsigned T, F, P, B;
};

/* Offsets in the block's shared memory, and its size, in bytes. */
struct places {
    unsigned weights, stages, out, scales, counts, barriers, bytes;
};

template <class V>
__host__ __device__ inline places places_of(unsigned chunks, unsigned buffers, unsigned stages,
                                            unsigned beam_tiles)
{
    places p;
    p.weights = 0;
    p.stages = p.weights + buffers * chunks * V::WEIGHTS;
    p.out = p.stages + V::CONSUMERS * stages * V::STAGE;
    p.scales = p.out + V::OUTS * V::OUT;
    p.counts = p.scales + V::CONSUMERS * V::SCALES;
    p.barriers = p.counts + beam_tiles * V::BEAMS * static_cast<unsigned>(sizeof(unsigned));
    p.bytes = p.barriers + static_cast<unsigned>(sizeof(barriers));
    return p;
}

/* The tiles of a block of threads, divided into segments: a segment has the tiles of one group (a channel,
 * polarisation and beam tile), so it has the same weights. Blocks have equal shares of all tiles. With HALVES
 * they have equal shares of all halves of tiles: a block may lack the first half of its first tile (warpgroup
 * 0's) and the second half of its last one (warpgroup 1's). */
template <class V> struct segments {
    unsigned now, end;           /* tiles */
    unsigned group, tile, count; /* of the segment */
    bool late, early; /* the segment's first tile lacks its first half; its last tile lacks its second half */
    bool early_at_end; /* the block's last tile lacks its second half */

    __device__ __forceinline__ void find(const work &w)
    {
        group = now / w.time_tiles;
        tile = now % w.time_tiles;
        count = min(end - now, w.time_tiles - tile);
        early = early_at_end && now + count == end;
    }
    __device__ __forceinline__ void start(const work &w)
    {
        constexpr unsigned PARTS = V::HALVES ? 2 : 1;
        unsigned first = blockIdx.x * w.share + min(blockIdx.x, w.more),
                 last = first + w.share + (blockIdx.x < w.more ? 1 : 0);
        now = first / PARTS;
        end = (last + PARTS - 1) / PARTS;
        late = first % PARTS != 0;
        early_at_end = last % PARTS != 0;
        find(w);
    }
    __device__ __forceinline__ bool more() const { return now < end; }
    __device__ __forceinline__ void next(const work &w)
    {
        now += count;
        late = false;
        if (more()) find(w);
    }
    /* The tiles of the segment that belong to a warpgroup are first(), first() + EVERY, ... below limit().
     * `before` is the number of the block's tiles before this segment. */
    __device__ __forceinline__ unsigned first(unsigned before, unsigned consumer) const
    {
        if (V::HALVES) return late && consumer == 0 ? 1 : 0;
        return (consumer + V::EVERY - before % V::EVERY) % V::EVERY;
    }
    __device__ __forceinline__ unsigned limit(unsigned consumer) const
    {
        return V::HALVES && early && consumer == 1 ? count - 1 : count;
    }
    /* Row of weights and scales. */
    __device__ __forceinline__ size_t row(const work &w) const
    {
        return static_cast<size_t>(group / w.beam_tiles % w.weight_rows) * w.beam_tiles +
               group % w.beam_tiles;
    }
};

/* The position in a ring of stages or buffers, and the parity of its barriers there. */
struct ring {
    unsigned at = 0, phase = 0;
    __device__ __forceinline__ void advance(unsigned length)
    {
        if (++at == length) {
            at = 0;
            phase ^= 1;
        }
    }
};

/* ---- loads: one thread each ---- */

/* Prefetches a box into the L2. If it is written later, the L2 has the new data: no stale bytes are read. */
__device__ __forceinline__ void tensor_prefetch_l2(const CUtensorMap *map, int x, int y)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];\n" ::"l"(map), "r"(x),
                 "r"(y)
                 : "memory");
}

/* As bulk_load(), but the L2 evicts these bytes last, because the next frame needs them again. */
__device__ __forceinline__ void bulk_load_kept(void *to, const void *from, unsigned bytes, barrier *full)
{
    asm volatile("{\n.reg .b64 policy;\ncreatepolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], policy;\n}\n" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(full))
                 : "memory");
}

/* The loads of the field for one consumer warpgroup. */
template <class V> struct field_loads {
    const work &w;
    const CUtensorMap *field;
    unsigned consumer;

    /* The column and the row of tile k's first box in the field, shape (T, F P D). */
    __device__ __forceinline__ int x(const segments<V> &s) const
    {
        return static_cast<int>(s.group / w.beam_tiles * (V::PAIR ? DISHES : w.D));
    }
    __device__ __forceinline__ int y(const segments<V> &s, unsigned k) const
    {
        return static_cast<int>((s.tile + k) * V::TILE + (V::HALVES ? consumer * V::PIECE : 0));
    }

    __device__ __forceinline__ void run(uint8_t *stages, barriers &b, const order &o,
                                        const order_seen &seen) const
    {
        ring at;
        unsigned before = 0;
        segments<V> s;
        s.start(w);
        unsigned first = s.first(0, consumer);
        for (unsigned chunk = 0; first < s.limit(consumer) && chunk < min(AHEAD, w.chunks + 0u); chunk++)
            tensor_prefetch_l2(field, x(s) + static_cast<int>(chunk * DISHES), y(s, first));
        if (must_wait(o, seen)) await_previous();
        for (; s.more(); before += s.count, s.next(w)) {
            const int left = x(s);
            for (unsigned k = s.first(before, consumer); k < s.limit(consumer); k += V::EVERY) {
                const int top = y(s, k);
                for (unsigned chunk = 0; chunk < w.chunks; chunk++, at.advance(w.stages)) {
                    barrier_wait(&b.empty[consumer][at.at], at.phase ^ 1);
                    barrier_expect(&b.full[consumer][at.at], V::STAGE);
                    tensor_load(stages + at.at * V::STAGE, field, &b.full[consumer][at.at],
                                left + static_cast<int>(chunk * DISHES), top);
                }
            }
        }
    }
};

/* The loads of the weights. The first chunk is loaded before the wait for earlier launches, which do not
 * write weights. */
template <class V>
__device__ __forceinline__ void load_weights(const work &w, uint8_t *weights, barriers &b, const order &o,
                                             const order_seen &seen)
{
    ring at;
    segments<V> s;
    bool waited = false;
    for (s.start(w); s.more(); s.next(w), at.advance(w.buffers)) {
        /* shape (weight_rows, beam_tiles, chunks, WEIGHTS), contiguous */
        const uint8_t *from = w.weights + s.row(w) * w.chunks * V::WEIGHTS;
        for (unsigned chunk = 0; chunk < w.chunks; chunk++) {
            barrier *full = &b.weights_full[at.at][chunk];
            uint8_t *to = weights + (at.at * w.chunks + chunk) * V::WEIGHTS;
            barrier_wait(&b.weights_empty[at.at][chunk], at.phase ^ 1);
            barrier_expect(full, V::WEIGHTS);
            if (w.keep_weights)
                bulk_load_kept(to, from + chunk * V::WEIGHTS, V::WEIGHTS, full);
            else
                bulk_load(to, from + chunk * V::WEIGHTS, V::WEIGHTS, full);
            if (!waited) {
                const bool wait = must_wait(o, seen);
                if (wait) await_previous();
                if (blockIdx.x == 0) tell_host(o, seen, !wait);
                let_next_begin();
            }
            waited = true;
        }
    }
}

} // namespace beamring::baseband::hopper

#endif
