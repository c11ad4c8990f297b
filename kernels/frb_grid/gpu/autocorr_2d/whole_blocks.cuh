/* whole_blocks.cuh - FRB stage 1 by the 2-d autocorrelation (autocorr.cuh), the short way: 8 x 8 dishes in
 * order, blocks that are not long, nothing missing, calls that begin and end between the steps of a block (a
 * step is the eight samples that are multiplied at once).
 *
 * One warp makes the images of one channel and a few blocks. A lane reads the bytes of its cells itself, a
 * step ahead of their use, and writes its intensities itself. The bytes of a block that goes on in the next
 * call are kept, and that call reads them first. The bits are those of work.cuh.
 *
 * It is a kernel of its own because registers are few here, and because the compiler then knows that a warp
 * never diverges. */
#ifndef BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_WHOLE_BLOCKS_CUH
#define BEAMRING_KERNELS_FRB_GRID_GPU_AUTOCORR_2D_WHOLE_BLOCKS_CUH

#include "kernels/frb_grid/gpu/autocorr_2d/work.cuh"

namespace beamring
{

/* Bytes that nobody reads again: the first cache is for tables. */
__device__ __forceinline__ uint2 read_bytes(const uint8_t *from)
{
    uint2 bytes;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];\n"
                 : "=r"(bytes.x), "=r"(bytes.y)
                 : "l"(from));
    return bytes;
}

/* A lane's bytes of one step after the other: 8 of its first time of a step, and 8 of the time after that. */
struct autocorr_2d_bytes {
    const uint8_t *from, *later;
    unsigned at, further, last; /* of this step, from one to the next, of the last one; in units of 8 bytes */
    uint2 first, second;

    /* time: shape (steps * times, row) bytes, this lane's ones; begins with `step`, or with the last one.
     * The compiler does not know that `zero` is the same for all lanes, so it keeps `at`
     * in a register. */
    __device__ __forceinline__ void begin(const uint8_t *time, unsigned row, unsigned times, unsigned step,
                                          unsigned steps, unsigned zero)
    {
        from = time, later = time + row;
        further = times * row / 8, last = (steps - 1) * further, at = min(step * further, last) + zero;
        asm volatile("" : "+l"(from), "+l"(later)); /* sums, to be kept */
        read();
    }

    __device__ __forceinline__ void read()
    {
        first = read_bytes(from + static_cast<size_t>(at) * 8);
        second = read_bytes(later + static_cast<size_t>(at) * 8);
    }

    /* Behind the last one comes the last one again. */
    __device__ __forceinline__ void advance()
    {
        at = min(at + further, last);
        read();
    }
};

/* Adds the eight samples of a step. FIRST: of a block. */
template <bool FIRST>
__device__ __forceinline__ void add_samples(autocorrelation<8> &sums, autocorr_2d_bytes &bytes,
                                            const autocorr_2d_weights (&weights)[2],
                                            const autocorr_2d_constants &constants)
{
    const unsigned a[2] = {bytes.first.x, bytes.first.y}, b[2] = {bytes.second.x, bytes.second.y};
    autocorr_2d_field<8> x;
    x.fill(
        a, b, [&](int i) { return weights[i / 4]; }, constants);
    bytes.advance();
    sums.add<FIRST>(x, constants.zero);
}

/* Where this lane's first bytes of a step are in rows that begin at `rows`. */
__device__ __forceinline__ const uint8_t *place(const uint8_t *rows, unsigned row, const autocorr_2d_job &w,
                                                const autocorr_2d_grid &grid, unsigned lane)
{
    const unsigned sample = frb_autocorr_2d_sample(lane, 0);
    return rows + (static_cast<size_t>(frb_autocorr_2d_time(grid.P, sample)) * row +
                   frb_autocorr_2d_pol(grid.P, sample) * grid.D + (w.dish[frb_autocorr_2d_cell(lane)] & 255));
}

/* Blocks [block, stop) of channel f, which end in this call; none, if stop is block. memory:
 * frb_autocorr_2d_product(8, 2, 0, 0) bytes of shared memory */
__device__ __forceinline__ void make_whole(unsigned memory, const autocorr_2d_job &w,
                                           const autocorr_2d_grid &grid, unsigned f, unsigned block,
                                           unsigned stop)
{
    constexpr unsigned L = 8, IMAGE = L * 32;
    const unsigned lane = threadIdx.x, times = frb_autocorr_2d_times(grid.P), ROW = frb_autocorr_2d_row(L),
                   row = static_cast<unsigned>(w.row), zero = grid.constants.zero & lane;
    const unsigned steps = w.T / times, before = w.pending / times, all = stop * steps - before;
    const autocorr_2d_constants constants = {grid.constants.eights + zero, grid.constants.zero};
    const uint4 *weights_at = weights_of<L>(w, grid, f, lane);
    autocorr_2d_weights weights[2] = {load_weights(weights_at),
                                      load_weights(weights_at + frb_autocorr_2d_weight(L, 0, 4, 0) / 4)};
    /* e: shape (steps, row), of which rows are (F, P, D); kept: shape (PIECE, ROW), contiguous */
    const uint8_t *e = w.e + static_cast<size_t>(f) * grid.P * grid.D,
                  *kept = reinterpret_cast<const uint8_t *>(w.before) + static_cast<size_t>(f) * PIECE * ROW;
    bool from_kept = block == 0 && before > 0;
    autocorr_2d_bytes bytes;
    if (from_kept)
        bytes.begin(place(kept, ROW, w, grid, lane), ROW, times, 0, before, zero);
    else
        bytes.begin(place(e, row, w, grid, lane), row, times, block * steps - before, all, zero);
    /* out: shape (F, out_stride, 16, 16), contiguous; four intensities of directions q and -q across each */
    const unsigned plus = frb_autocorr_2d_direction(L, false, frb_autocorr_2d_image_across(lane, 0),
                                                    frb_autocorr_2d_image_along(0, lane, 0)),
                   minus = frb_autocorr_2d_direction(L, false, frb_autocorr_2d_image_across(lane, 2),
                                                     frb_autocorr_2d_image_along(0, lane, 0));
    uint16_t *out = w.out + ((static_cast<size_t>(f) * w.out_stride + block) * IMAGE + plus);
    int back = static_cast<int>(minus - plus);
    const float level = w.scaled[w.shared_weights ? 0 : f];
    unsigned store = memory + frb_autocorr_2d_store_row(L, lane),
             load[1] = {memory + frb_autocorr_2d_load_row(L, lane, 0)};
    const uint4 *waves = grid.waves + lane;
    /* in registers, not made again for each block: */
    asm volatile("" : "+r"(store), "+r"(load[0]), "+r"(back), "+l"(waves));
    unsigned left = from_kept ? before : steps;
#pragma unroll 1
    for (; block < stop; block++, out += IMAGE) {
        float image[L / 4][4]; /* see frb_autocorr_2d_image_across */
        {
            autocorrelation<L> sums;
            add_samples<true>(sums, bytes, weights, constants);
            left--;
#pragma unroll 1
            for (;;) {
#pragma unroll 1
                for (; left > 0; left--) add_samples<false>(sums, bytes, weights, constants);
                left = steps;
                if (!from_kept) break;
                from_kept = false;
                left -= before;
                bytes.begin(place(e, row, w, grid, lane_again()), row, times, 0, all, zero);
            }
            sums.store(store);
        }
        __syncwarp();
        autocorrelation<L>::transform(image, load, waves, lane);
        __syncwarp();
        for (unsigned i = 0; i < 2; i++)
            weights[i] = load_weights(weights_at + frb_autocorr_2d_weight(L, 0, 4 * i, 0) / 4);
#pragma unroll
        for (int r = 0; r < 4; r += 2)
            asm volatile("st.global.v2.u32 [%0], {%1, %2};\n" ::"l"(out + (r ? back : 0)),
                         "r"(intensities(image[0][r], image[0][r + 1], level)),
                         "r"(intensities(image[1][r], image[1][r + 1], level))
                         : "memory");
    }
}

/* Keeps the bytes of the block that goes on in the next call. */
__device__ __forceinline__ void keep_bytes(const autocorr_2d_job &w, const autocorr_2d_grid &grid, unsigned f)
{
    const unsigned ROW = frb_autocorr_2d_row(8), inputs = grid.P * grid.D, row = static_cast<unsigned>(w.row);
    /* e: shape (steps, row); after: shape (F, PIECE, ROW), contiguous. A lane copies the same 16 bytes of
     * each time that is its own, two times at once. */
    const unsigned t0 = threadIdx.x * w.inverse >> 20, at = threadIdx.x * 16 - t0 * inputs;
    const uint8_t *from =
        w.e + (static_cast<size_t>((w.blocks - 1) * w.T - w.pending) * row + f * inputs + at);
    uint8_t *to = w.after + (static_cast<size_t>(f) * PIECE * ROW + at);
#pragma unroll 1
    for (unsigned t = t0; t < w.last; t += 2 * w.times) {
        const bool two = t + w.times < w.last;
        const unsigned next = two ? t + w.times : t;
        const uint4 a = *reinterpret_cast<const uint4 *>(from + static_cast<size_t>(t) * row),
                    b = *reinterpret_cast<const uint4 *>(from + static_cast<size_t>(next) * row);
        *reinterpret_cast<uint4 *>(to + t * ROW) = a;
        if (two) *reinterpret_cast<uint4 *>(to + next * ROW) = b;
    }
}

/* Each task is a run of blocks of one channel. */
__global__ void __launch_bounds__(32, resident(8))
    autocorr_2d_whole_blocks(const __grid_constant__ autocorr_2d_work all)
{
    extern __shared__ __align__(128) uint4 memory[];
    unsigned number = 0;
    while (number + 1 < all.njobs && blockIdx.x >= all.job[number + 1].first_task) number++;
    const autocorr_2d_job &w = all.job[number];
    const unsigned task = blockIdx.x - w.first_task, part = task / w.F, f = task - part * w.F;
    const unsigned stop = min((part + 1) * w.run, w.blocks), ending = w.blocks - (w.complete ? 0 : 1);
    if (stop > ending) keep_bytes(w, all.grid, f);
    make_whole(shared_address(memory), w, all.grid, f, part * w.run, min(stop, ending));
}

} // namespace beamring

#endif
