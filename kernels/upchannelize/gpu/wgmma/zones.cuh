/* zones.cuh - one launch of pfb_u16.cuh's filterbank for all zones of a band with U up to 16.
 *
 * Rows are cut into columns of 64 samples, columns along time into pieces, of which a block has one
 * (br_walk_cut). Blocks begin in the order of blockIdx: columns beside each other walk side by side, whatever
 * zone they are of, and whole lines and pages of the field are wanted at about the same time; of pieces the
 * long ones begin first, and short ones fill the GPU at the end. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_ZONES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_ZONES_CUH

#include "kernels/upchannelize/gpu/wgmma/pfb_u16.cuh"

namespace
{

struct walk_work {
    tensor_work zone[BR_WALK_ZONES];
    int columns[BR_WALK_ZONES + 1];    /* where a zone's begin; the last: all */
    unsigned from[BR_WALK_PIECES + 1]; /* where a column's pieces begin, in chunks from its first */
};

/* Grid: columns, pieces. LOST: outputs of some zone are missing. */
template <bool LOST>
__global__ void __launch_bounds__(128, walk::BLOCKS) walking(const __grid_constant__ walk_work all)
{
    __shared__ uint4 shared[walk::SHARED / 16];
    let_next_begin();
    int zone = 0, column = static_cast<int>(blockIdx.x);
    while (column >= all.columns[zone + 1]) zone++;
    const tensor_work &w = all.zone[zone];
    const int base = (column - all.columns[zone]) * BR_TURNED_SPAN, per_chunk = BR_BAND / w.U,
              first = (w.phase + w.first) / per_chunk, last = (w.phase + w.last + per_chunk - 1) / per_chunk,
              unit = first + static_cast<int>(all.from[blockIdx.y]),
              end = min(last, first + static_cast<int>(all.from[blockIdx.y + 1]));
    if (unit < end) {
        walk_along<LOST>(w, shared, base, unit, end);
        /* who comes to a column's end keeps its history: these rows have just been read */
        if (end == last) remember_wide(w, base, BR_TURNED_SPAN);
    }
    end_after_previous();
}

} // namespace

#endif
