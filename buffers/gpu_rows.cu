/* gpu_rows.cu - copies of rows within a device, by its multiprocessors. A copy engine copies many short rows
 * slowly, and it is busy with whole frames on their way to and from the host. One launch makes up to MOST
 * copies, because a launch costs the host about as much time as one copy costs the device.
 *
 * While a transfer between GPUs is under way, the copies get only BESIDE_BLOCKS blocks of threads. Copies
 * that fill the GPU would take all memory bandwidth, and the few blocks of the transfer would wait until they
 * end. */
#include "buffers/gpu.h"

#include <cuda_runtime.h>

enum { MOST = 32, THREADS = 256, AT_ONCE = 4, PIECE = 4096, MOST_BLOCKS = 4096, BESIDE_BLOCKS = 48 };

/* One of the copies of a launch. Lengths are in units of the type that is copied. */
struct part {
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, width, rows, all; /* all: of all rows together */
    unsigned across;                               /* 2^across threads share a row */
    unsigned blocks, end; /* how many blocks of threads copy it, and the first block behind them */
};

struct parts {
    struct part of[MOST];
};

template <typename T>
static __global__ __launch_bounds__(THREADS) void move_rows(const __grid_constant__ struct parts parts)
{
    unsigned k = 0;
    while (blockIdx.x >= parts.of[k].end) k++;
    const struct part &p = parts.of[k];
    T *to = static_cast<T *>(p.to);
    const T *from = static_cast<const T *>(p.from);
    const size_t step = static_cast<size_t>(p.blocks) * (THREADS >> p.across);
    for (size_t row = (blockIdx.x + p.blocks - p.end) * (THREADS >> p.across) + (threadIdx.x >> p.across);
         row < p.rows; row += AT_ONCE * step)
        for (size_t i = threadIdx.x & ((1u << p.across) - 1); i < p.width; i += size_t{1} << p.across) {
            T value[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (row + k * step < p.rows && (row + k * step) * p.width + i < p.all)
                    value[k] = from[(row + k * step) * p.from_pitch + i];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (row + k * step < p.rows && (row + k * step) * p.width + i < p.all)
                    to[(row + k * step) * p.to_pitch + i] = value[k];
        }
}

/* The part in units of `unit` bytes. If the bytes are contiguous at both ends, they are cut into new rows of
 * PIECE bytes, for more threads to share. */
static struct part part_of(const struct br_rows &r, size_t unit)
{
    struct part p = {r.to,           r.from, r.to_pitch / unit,      r.from_pitch / unit,
                     r.width / unit, r.rows, r.width / unit * r.rows};
    if (p.rows == 1 || (p.to_pitch == p.width && p.from_pitch == p.width)) {
        p.to_pitch = p.from_pitch = p.width = PIECE / unit;
        p.rows = (p.all + p.width - 1) / p.width;
    }
    while ((1u << p.across) < THREADS && (1u << p.across) < p.width) p.across++;
    return p;
}

template <typename T> static void launch(const struct br_rows *rows, unsigned n, size_t most, void *stream)
{
    struct parts parts = {};
    size_t all = 0;
    unsigned blocks = 0;
    for (unsigned k = 0; k < n; k++) all += (parts.of[k] = part_of(rows[k], sizeof(T))).all;
    for (unsigned k = 0; k < n; k++) {
        struct part &p = parts.of[k];
        const size_t wanted = (p.rows - 1) / (AT_ONCE * (THREADS >> p.across)) + 1;
        const size_t share = (most * p.all - 1) / all + 1;
        p.blocks = static_cast<unsigned>(wanted < share ? wanted : share);
        p.end = blocks += p.blocks;
    }
    move_rows<T><<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(parts);
}

extern "C" int br_gpu_move_rows(const struct br_rows *rows, unsigned n, bool beside,
                                const struct br_gpu_stream *stream, struct br_error *error)
{
    const size_t most = beside ? BESIDE_BLOCKS : MOST_BLOCKS;
    for (unsigned at = 0, count; at < n; at += count) {
        uintptr_t bits = 0; /* of all addresses and lengths: the lowest one tells their alignment */
        struct br_rows some[MOST];
        unsigned left = 0;
        for (count = 0; count < MOST && at + count < n; count++) {
            const struct br_rows &r = rows[at + count];
            if (r.width == 0 || r.rows == 0) continue;
            bits |= reinterpret_cast<uintptr_t>(r.to) | reinterpret_cast<uintptr_t>(r.from) | r.width;
            if (r.rows > 1) bits |= r.to_pitch | r.from_pitch;
            some[left++] = r;
        }
        if (left == 0) continue;
        if (bits % 16 == 0)
            launch<uint4>(some, left, most, stream->handle);
        else if (bits % 4 == 0)
            launch<unsigned>(some, left, most, stream->handle);
        else
            launch<unsigned char>(some, left, most, stream->handle);
    }
    return br_gpu_last_error(error);
}
