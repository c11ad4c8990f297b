/* host_copies.c - for tools/bench/replays.py: what the host can move for N replays at once. Copies from
 * locked memory to N GPUs at a time, and T threads that read files in the page cache into 128 KiB each:
 * that much must be read of memory for a replay, and nothing else need be.
 *
 *   host_copies GPUS               the sum of the copies, in GB/s
 *   host_copies 0 THREADS FILE...  the sum of the reads */
#include "buffers/clock.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 256, BUFFERS = 2, SECONDS = 1 };
#define COPY  ((size_t)128 << 20)
#define PIECE ((size_t)128 << 10)

struct mover {
    pthread_t thread;
    int gpu;
    const char *path;
    size_t bytes, offset;
};

static pthread_barrier_t ready;
static atomic_int failed;

static double now(void)
{
    return (double)br_clock_ns() * 1e-9;
}

/* The same bytes again and again, for so long. */
static void *copy(void *arg)
{
    struct mover *m = arg;
    void *from[BUFFERS] = {0}, *to[BUFFERS] = {0};
    cudaStream_t stream = NULL;
    bool ok = cudaSetDevice(m->gpu) == cudaSuccess && cudaStreamCreate(&stream) == cudaSuccess;
    for (int i = 0; i < BUFFERS && ok; i++) {
        ok = cudaMallocHost(&from[i], COPY) == cudaSuccess && cudaMalloc(&to[i], COPY) == cudaSuccess;
        if (ok) memset(from[i], 1, COPY);
    }
    pthread_barrier_wait(&ready);
    for (double end = now() + SECONDS; ok && now() < end; m->bytes += BUFFERS * COPY) {
        for (int i = 0; i < BUFFERS; i++)
            cudaMemcpyAsync(to[i], from[i], COPY, cudaMemcpyHostToDevice, stream);
        ok = cudaStreamSynchronize(stream) == cudaSuccess;
    }
    if (!ok) atomic_store(&failed, 1);
    return NULL;
}

static void *read_on(void *arg)
{
    struct mover *m = arg;
    void *piece = aligned_alloc(4096, PIECE);
    int fd = open(m->path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) / (off_t)PIECE * (off_t)PIECE : 0;
    pthread_barrier_wait(&ready);
    off_t at = size > 0 ? (off_t)m->offset % size : 0;
    for (double end = now() + SECONDS; size > 0 && piece != NULL && now() < end;)
        for (int i = 0; i < 16; i++, at = (at + (off_t)PIECE) % size) {
            if (pread(fd, piece, PIECE, at) != (ssize_t)PIECE) atomic_store(&failed, 1);
            m->bytes += PIECE;
        }
    if (size == 0) atomic_store(&failed, 1);
    free(piece);
    if (fd >= 0) close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct mover mover[MOST];
    int gpus = argc > 1 ? atoi(argv[1]) : 0,
        n = gpus > 0   ? gpus
            : argc > 3 ? atoi(argv[2])
                       : 0,
        files = argc - 3;
    if (n <= 0 || n > MOST) {
        fprintf(stderr, "host_copies GPUS | host_copies 0 THREADS FILE...\n");
        return 2;
    }
    pthread_barrier_init(&ready, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        mover[i].gpu = i;
        mover[i].path = gpus > 0 ? NULL : argv[3 + i % files];
        mover[i].offset = (size_t)i * 37 * PIECE;
        if (pthread_create(&mover[i].thread, NULL, gpus > 0 ? copy : read_on, &mover[i]) != 0) return 1;
    }
    pthread_barrier_wait(&ready);
    double begin = now(), sum = 0;
    for (int i = 0; i < n; i++) {
        pthread_join(mover[i].thread, NULL);
        sum += (double)mover[i].bytes;
    }
    printf("%.2f GB/s\n", sum / (now() - begin) * 1e-9);
    return atomic_load(&failed);
}
