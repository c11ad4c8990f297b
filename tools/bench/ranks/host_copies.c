/* host_copies.c - for tools/bench/replays.py: what the host can move for N replays at once. Copies from
 * locked memory to N GPUs at a time, and T threads that read files in the page cache into 128 KiB each. A
 * replay does both with each byte, and the buffers of its copies stay in caches.
 *
 *   host_copies GPUS                  the sum of the copies, in GB/s
 *   host_copies 0 THREADS FILE...     the sum of the reads
 *   host_copies GPUS THREADS FILE...  both at once, the lesser sum; copies from buffers in caches */
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

enum { MOST = 256, BUFFERS = 4, SECONDS = 1 };
#define COPY  ((size_t)64 << 20)
#define FED   ((size_t)8 << 20) /* of a copy beside reads */
#define PIECE ((size_t)128 << 10)

struct mover {
    pthread_t thread;
    int gpu;
    const char *path;
    size_t bytes, offset, copy;
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
        ok = cudaMallocHost(&from[i], m->copy) == cudaSuccess && cudaMalloc(&to[i], m->copy) == cudaSuccess;
        if (ok) memset(from[i], 1, m->copy);
    }
    pthread_barrier_wait(&ready);
    for (double end = now() + SECONDS; ok && now() < end; m->bytes += BUFFERS * m->copy) {
        for (int i = 0; i < BUFFERS; i++)
            cudaMemcpyAsync(to[i], from[i], m->copy, cudaMemcpyHostToDevice, stream);
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
    int gpus = argc > 1 ? atoi(argv[1]) : 0, threads = argc > 3 ? atoi(argv[2]) : 0, n = gpus + threads;
    if (gpus < 0 || threads < 0 || n <= 0 || n > MOST) {
        fprintf(stderr, "host_copies GPUS | host_copies GPUS THREADS FILE...\n");
        return 2;
    }
    pthread_barrier_init(&ready, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        bool copies = i < gpus;
        mover[i].gpu = i;
        mover[i].copy = threads > 0 ? FED : COPY;
        mover[i].path = copies ? NULL : argv[3 + (i - gpus) % (argc - 3)];
        mover[i].offset = (size_t)(i - gpus) * 37 * PIECE;
        if (pthread_create(&mover[i].thread, NULL, copies ? copy : read_on, &mover[i]) != 0) return 1;
    }
    pthread_barrier_wait(&ready);
    double begin = now(), sum[2] = {0, 0}; /* copies, reads */
    for (int i = 0; i < n; i++) {
        pthread_join(mover[i].thread, NULL);
        sum[i >= gpus] += (double)mover[i].bytes;
    }
    double lesser = gpus == 0 || (threads > 0 && sum[1] < sum[0]) ? sum[1] : sum[0];
    printf("%.2f GB/s\n", lesser / (now() - begin) * 1e-9);
    return atomic_load(&failed);
}
