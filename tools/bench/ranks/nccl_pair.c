/* nccl_pair.c - bare ncclSend and ncclRecv of BYTES bytes between two GPUs of this machine, both ways at a
 * time, TIMES times: prints how long one takes. The exchange between GPUs is compared with it. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    int times = argc > 2 ? atoi(argv[2]) : 0;
    ncclComm_t comm[2];
    cudaStream_t stream[2];
    void *from[2], *to[2];
    if (bytes == 0 || times <= 0) {
        fprintf(stderr, "nccl_pair BYTES TIMES\n");
        return 2;
    }
    if (ncclCommInitAll(comm, 2, (int[]){0, 1}) != ncclSuccess) {
        fprintf(stderr, "nccl_pair: no two GPUs\n");
        return 1;
    }
    for (int d = 0; d < 2; d++) {
        cudaSetDevice(d);
        if (cudaStreamCreate(&stream[d]) != cudaSuccess || cudaMalloc(&from[d], bytes) != cudaSuccess ||
            cudaMalloc(&to[d], bytes) != cudaSuccess)
            return 1;
    }
    double begin = 0;
    for (int i = -10; i < times; i++) {
        if (i == 0) {
            for (int d = 0; d < 2; d++) {
                cudaSetDevice(d);
                cudaStreamSynchronize(stream[d]);
            }
            begin = now();
        }
        ncclGroupStart();
        for (int d = 0; d < 2; d++) {
            ncclSend(from[d], bytes, ncclUint8, 1 - d, comm[d], stream[d]);
            ncclRecv(to[d], bytes, ncclUint8, 1 - d, comm[d], stream[d]);
        }
        if (ncclGroupEnd() != ncclSuccess) return 1;
    }
    for (int d = 0; d < 2; d++) {
        cudaSetDevice(d);
        if (cudaStreamSynchronize(stream[d]) != cudaSuccess) return 1;
    }
    printf("%.3f us\n", (now() - begin) / times);
    return 0;
}
