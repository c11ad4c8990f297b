/* nccl.h - as much of NCCL and CUDA as stages/exchange/nccl.c needs. test_packing.c has the functions, so
 * that none is taken from the real ones. */
#ifndef BEAMRING_TESTS_FAKE_NCCL_H
#define BEAMRING_TESTS_FAKE_NCCL_H

#include <stddef.h>

typedef struct fake_stream *cudaStream_t;
typedef struct fake_event *cudaEvent_t;
enum { cudaStreamNonBlocking, cudaEventDisableTiming, cudaErrorNotReady = 600 };
static int cudaDeviceGetStreamPriorityRange(int *least, int *first);
static int cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
static int cudaStreamDestroy(cudaStream_t stream);
static int cudaStreamQuery(cudaStream_t stream);
static int cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
static int cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
static int cudaEventDestroy(cudaEvent_t event);
static int cudaEventRecord(cudaEvent_t event, cudaStream_t stream);

typedef struct fake_comm *ncclComm_t;
typedef enum { ncclSuccess, ncclInternalError } ncclResult_t;
typedef struct {
    char bytes[128];
} ncclUniqueId;
typedef struct {
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                              \
    {                                                                                                        \
        0                                                                                                    \
    }
enum { ncclUint8 };
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *from, size_t count, int type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream);
const char *ncclGetErrorString(ncclResult_t result);

#endif
