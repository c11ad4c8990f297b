/* gpu_rows.cu - copies of rows within a device by its multiprocessors. A copy engine would do, but slowly
 * for many short rows, and it is busy with whole frames on their way to and from the host. */
#include "buffers/gpu.h"

#include <cuda_runtime.h>

/* Rows of `width` units of T; blocks go over them together. */
template <typename T>
static __global__ __launch_bounds__(256) void move_rows(T *to, size_t to_pitch, const T *from,
                                                        size_t from_pitch, size_t width, size_t rows)
{
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y)
        for (size_t i = blockIdx.x * 256 + threadIdx.x; i < width; i += static_cast<size_t>(gridDim.x) * 256)
            to[row * to_pitch + i] = from[row * from_pitch + i];
}

template <typename T>
static void launch(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                   void *stream)
{
    const size_t units = width / sizeof(T), across = (units + 255) / 256, down = rows;
    const dim3 grid(static_cast<unsigned>(across < 64 ? across : 64),
                    static_cast<unsigned>(down < 4096 ? down : 4096));
    move_rows<T><<<grid, 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<T *>(to), to_pitch / sizeof(T), static_cast<const T *>(from), from_pitch / sizeof(T),
        units, rows);
}

extern "C" int br_gpu_move_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t rows, const struct br_gpu_stream *stream, struct br_error *error)
{
    if (width == 0 || rows == 0) return BR_OK;
    const uintptr_t all =
        reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | to_pitch | from_pitch | width;
    if (all % 16 == 0)
        launch<uint4>(to, to_pitch, from, from_pitch, width, rows, stream->handle);
    else if (all % 4 == 0)
        launch<unsigned>(to, to_pitch, from, from_pitch, width, rows, stream->handle);
    else
        launch<unsigned char>(to, to_pitch, from, from_pitch, width, rows, stream->handle);
    return br_gpu_last_error(error);
}
