/* zones.cuh - one launch of pfb_u16.cuh's filterbank for all zones of a band with U up to 16.
 *
 * Rows are cut into columns of 64 samples, columns along time into pieces; a block has one piece
 * (br_pfb_cut_columns). Blocks begin in the order of blockIdx: neighbouring columns go along time together,
 * whatever zone they are of, so that whole lines and pages of the field are wanted at about the same time.
 * Long pieces begin first, and short ones fill the GPU at the end. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_ZONES_CUH
#define BEAMRING_KERNELS_UPCHANNELIZE_GPU_WGMMA_ZONES_CUH

#include "kernels/upchannelize/gpu/wgmma/pfb_u16.cuh"

namespace
{

struct zones_work {
    tensor_work zone[BR_PFB_ZONES];
    int columns[BR_PFB_ZONES + 1];    /* where a zone's begin; the last: all */
    unsigned from[BR_PFB_PIECES + 1]; /* where a column's pieces begin, in chunks from its first */
};

/* Grid: columns, pieces. MISSING: outputs of some zone are missing. */
template <bool MISSING>
__global__ void __launch_bounds__(128, u16_shape::BLOCKS)
    wgmma_pfb_u16(const __grid_constant__ zones_work all)
{
    __shared__ uint4 shared[u16_shape::SHARED / 16];
    let_next_begin();
    int zone = 0, column = static_cast<int>(blockIdx.x);
    while (column >= all.columns[zone + 1]) zone++;
    const tensor_work &w = all.zone[zone];
    const int base = (column - all.columns[zone]) * BR_PFB_SPAN, per_chunk = BR_PFB_CHUNK / w.U,
              first = (w.phase + w.first) / per_chunk, last = (w.phase + w.last + per_chunk - 1) / per_chunk,
              unit = first + static_cast<int>(all.from[blockIdx.y]),
              end = min(last, first + static_cast<int>(all.from[blockIdx.y + 1]));
    if (unit < end) {
        filter_u16<MISSING>(w, shared, base, unit, end);
        /* who comes to a column's end keeps its history: these rows have just been read */
        if (end == last) remember_wide(w, base, BR_PFB_SPAN);
    }
    end_after_previous();
}

} // namespace

#endif
