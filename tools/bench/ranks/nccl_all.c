/* nccl_all.c - a bare all-to-all between GPUS GPUs of this machine, ncclSend and ncclRecv of BYTES bytes from
 * each to each, TIMES times: prints how long one takes. The exchange between GPUs is compared with it. */
#include "buffers/clock.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16 };

static double now(void)
{
    return (double)br_clock_ns() * 1e-3;
}

int main(int argc, char **argv)
{
    int n = argc > 3 ? atoi(argv[1]) : 0, times = argc > 3 ? atoi(argv[3]) : 0, device[MOST];
    size_t bytes = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
    ncclComm_t comm[MOST];
    cudaStream_t stream[MOST];
    char *from[MOST], *to[MOST];
    if (bytes == 0 || times <= 0 || n < 2 || n > MOST) {
        fprintf(stderr, "nccl_all GPUS BYTES TIMES\n");
        return 2;
    }
    for (int d = 0; d < n; d++) device[d] = d;
    if (ncclCommInitAll(comm, n, device) != ncclSuccess) {
        fprintf(stderr, "nccl_all: there are not %d GPUs\n", n);
        return 1;
    }
    for (int d = 0; d < n; d++) {
        cudaSetDevice(d);
        if (cudaStreamCreate(&stream[d]) != cudaSuccess ||
            cudaMalloc((void **)&from[d], bytes * (size_t)n) != cudaSuccess ||
            cudaMalloc((void **)&to[d], bytes * (size_t)n) != cudaSuccess)
            return 1;
    }
    double begin = 0;
    for (int i = -10; i <= times; i++) {
        for (int d = 0; (i == 0 || i == times) && d < n; d++) {
            cudaSetDevice(d);
            if (cudaStreamSynchronize(stream[d]) != cudaSuccess) return 1;
        }
        if (i == 0) begin = now();
        if (i == times) break;
        ncclGroupStart();
        for (int d = 0; d < n; d++)
            for (int r = 0; r < n; r++) {
                if (r == d) continue;
                ncclSend(from[d] + (size_t)r * bytes, bytes, ncclUint8, r, comm[d], stream[d]);
                ncclRecv(to[d] + (size_t)r * bytes, bytes, ncclUint8, r, comm[d], stream[d]);
            }
        if (ncclGroupEnd() != ncclSuccess) return 1;
    }
    printf("%.3f us\n", (now() - begin) / times);
    return 0;
}
