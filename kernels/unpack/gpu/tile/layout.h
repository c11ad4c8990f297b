/* layout.h - a tile in shared memory: some channels of one stream, all sources, one block of packets.
 *
 * A packet holds adjacent channels as `outer` runs of bytes (outer: product of the axes slower than
 * freq), so that a tile is rows [source][outer] of (channels x channel_stride) bytes. Rows stand `pitch`
 * bytes apart: 16 more than they need, or all sources would be read from the same banks. With 16 sources of
 * 8 inputs (chord-crs) half a warp then reads 8 bytes each at a distance of 4 banks, two addresses a bank:
 * two passes for 256 bytes, where a quarter of what the shared memory can deliver suffices. (Rows that end
 * at odd multiples of 8 bytes would need copies of 8 bytes instead of 16.) */
#ifndef BEAMRING_KERNELS_UNPACK_GPU_TILE_LAYOUT_H
#define BEAMRING_KERNELS_UNPACK_GPU_TILE_LAYOUT_H

#include "kernels/common/layout.h"

/* Bytes from one row to the next. */
static inline BR_HD unsigned unpack_pitch(unsigned run_bytes)
{
    return (run_bytes + 15) / 16 * 16 + 16;
}

/* Bytes to the first row of a source. Sources 4, 8, 12, ... further are in banks 4, 8, 12, ... further than
 * multiples of `pitch` alone would be: threads that gather byte by byte read sources 4 apart at once. */
static inline BR_HD unsigned unpack_source(unsigned source, unsigned outer, unsigned pitch)
{
    return source * outer * pitch + source / 4 * 16;
}

/* Where byte `at` of a packet stands, counted from channel 0 of the tile: at / outer_bytes is the row in
 * the packet. */
static inline BR_HD unsigned unpack_place(unsigned source, unsigned outer, unsigned outer_bytes,
                                          unsigned pitch, unsigned at)
{
    return unpack_source(source, outer, pitch) + at / outer_bytes * pitch + at % outer_bytes;
}

#endif
