/* nccl.c - data from GPU to GPU: NCCL, on a stream beside the stage's.
 *
 * Sends and receives in NCCL must have the same order on both sides. So a block's data go in one
 * group, when all ranks' headers say who has what of it, and blocks follow each other in the order of
 * their numbers, which all ranks know alike. No host waits for what is enqueued:
 *
 *   stage's stream: pack k     pack k+1       place k     pack k+2       place k+1
 *   own stream:             group k       group k+1                group k+2
 *
 * While a group is on the link the next frame is packed: a block is handed on in the call of process after
 * the one in which it began. A strip that lies in one piece in its frame is received there. */
#include "stages/exchange/nccl.h"

#include "stages/exchange/exchange.h"

#include <stdio.h>

#if BR_HAS_NCCL_HEADER
#include "stages/common/stage/gpu.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUNCTIONS(X)                                                                                         \
    X(ncclGetUniqueId)                                                                                       \
    X(ncclCommInitRankConfig)                                                                                \
    X(ncclCommAbort)                                                                                         \
    X(ncclCommDestroy)                                                                                       \
    X(ncclGroupStart)                                                                                        \
    X(ncclGroupEnd)                                                                                          \
    X(ncclSend)                                                                                              \
    X(ncclRecv)                                                                                              \
    X(ncclGetErrorString)

static struct {
#define FIELD(name) __typeof__(&name) name;
    FUNCTIONS(FIELD)
} nccl;
static const char *lacks;
static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
#define LOOK_UP(name)                                                                                        \
    if ((*(void **)(void *)&nccl.name = dlsym(library, #name)) == NULL) lacks = #name;
    FUNCTIONS(LOOK_UP)
}

bool nccl_is_there(char *why, size_t size)
{
    pthread_once(&once, load);
    if (library == NULL)
        snprintf(why, size,
                 "NCCL is not there: install libnccl2, or put libnccl.so.2 where the loader finds it "
                 "(LD_LIBRARY_PATH)");
    else if (lacks != NULL)
        snprintf(why, size, "NCCL lacks %s: it is too old", lacks);
    return library != NULL && lacks == NULL;
}

struct slot {
    unsigned char *memory;
    cudaEvent_t packed;
    bool busy;
    uint64_t block, order;
    struct piece piece;
};

struct carrier {
    struct br_cuda *cuda;
    pthread_mutex_t calls; /* while NCCL is called */
    ncclComm_t comm;
    _Atomic bool aborted;
    cudaStream_t stream; /* of groups */
    cudaEvent_t ordered, arrived[MAX_FRAMES];
    uint64_t begun, settled; /* blocks: the event of the n-th is arrived[n % MAX_FRAMES] */
    bool buffers_used;       /* by the block buffers_of, which has begun */
    uint64_t buffers_of;
    struct slot slot[MAX_FRAMES];
    uint64_t order;
    size_t *at;             /* [ranks] where each rank's part begins in a slot of a whole frame */
    unsigned char **buffer; /* [ranks] for what does not go right to its place; NULL: own */
    pthread_t watcher;
    bool watches;
    _Atomic bool quit;
    struct br_stage *stage;
};

/* Bytes of all pieces of a block together at most: each may touch one more step than its share. */
static size_t most_bytes(const struct plan *plan, const struct crossing *c)
{
    if (c->nstrips == 0) return 0;
    return plan_message_bytes(plan, c, 0, plan->all.frame_samples) +
           MAX_PIECES * plan_message_bytes(plan, c, 0, 1);
}

static size_t slot_bytes(const struct plan *plan)
{
    size_t bytes = 0;
    for (unsigned r = 0; r < plan->ranks; r++)
        if (r != plan->rank) bytes += most_bytes(plan, &plan->out[r]);
    return bytes;
}

static void memory(struct br_stage *stage, const struct exchange *x, struct br_memory *m)
{
    (void)stage;
    m->device += br_stream_max_bytes(&x->plan.to[x->plan.rank]);
    m->device += (size_t)x->frames * slot_bytes(&x->plan);
    for (unsigned r = 0; r < x->plan.ranks; r++)
        if (r != x->plan.rank) m->device += most_bytes(&x->plan, &x->plan.in[r]);
}

/* Ends the communicator when the job has failed: kernels that wait for a rank that is gone would never
 * end, nor would what waits behind them. A call of NCCL may wait for that rank too: it returns once the
 * communicator ends, and is given a second to return by itself. */
static void *watch(void *arg)
{
    struct carrier *c = arg;
    struct timespec until;
    while (!br_stage_job_failed(c->stage)) {
        if (atomic_load(&c->quit)) return NULL;
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    bool apart = pthread_mutex_clocklock(&c->calls, CLOCK_MONOTONIC, &until) == 0;
    if (c->comm != NULL && !atomic_exchange(&c->aborted, true)) nccl.ncclCommAbort(c->comm);
    if (apart) pthread_mutex_unlock(&c->calls);
    return NULL;
}

static int check(struct br_stage *stage, struct carrier *c, const char *call, ncclResult_t result)
{
    if (result == ncclSuccess && !atomic_load(&c->aborted)) return BR_OK;
    if (c->comm != NULL && !atomic_exchange(&c->aborted, true)) nccl.ncclCommAbort(c->comm);
    int status = br_stage_await(stage, UINT64_MAX, 0); /* has a rank failed? */
    if (status != BR_OK) return status;
    return br_stage_fail(stage, BR_E_DEVICE, "%s: %s", call, nccl.ncclGetErrorString(result));
}

/* A byte from each rank to each: they connect now, and not while frames wait. */
static ncclResult_t connect_all(struct exchange *x, struct carrier *c)
{
    ncclResult_t result = nccl.ncclGroupStart();
    for (int r = 0; result == ncclSuccess && r < (int)x->plan.ranks; r++) {
        if (r == (int)x->plan.rank) continue;
        result = nccl.ncclSend(c->slot[0].memory, 1, ncclUint8, r, c->comm, c->stream);
        if (result == ncclSuccess) result = nccl.ncclRecv(c->buffer[r], 1, ncclUint8, r, c->comm, c->stream);
    }
    ncclResult_t ended = nccl.ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

static int meet(struct br_stage *stage, struct exchange *x, struct carrier *c)
{
    ncclUniqueId id = {0};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const void **part;
    const size_t *length;
    config.blocking = 1;
    ncclResult_t result = x->plan.rank == 0 ? nccl.ncclGetUniqueId(&id) : ncclSuccess;
    if (result != ncclSuccess) return check(stage, c, "ncclGetUniqueId", result);
    int status = br_stage_gather(stage, &id, sizeof id, &part, &length);
    if (status != BR_OK) return status;
    memcpy(&id, part[0], sizeof id);
    c->watches = pthread_create(&c->watcher, NULL, watch, c) == 0;
    if (!c->watches) return br_stage_fail(stage, BR_E_NO_MEMORY, "no thread to watch NCCL");
    pthread_mutex_lock(&c->calls);
    result = nccl.ncclCommInitRankConfig(&c->comm, (int)x->plan.ranks, id, (int)x->plan.rank, &config);
    if (result == ncclSuccess) result = connect_all(x, c);
    pthread_mutex_unlock(&c->calls);
    return check(stage, c, "NCCL cannot connect the ranks", result);
}

static int make_stream(struct br_stage *stage, struct carrier *c)
{
    int least, first = 0; /* or the next frame's copies, which fill the GPU, would go before a group */
    bool ok = br_cuda_ok(c->cuda, cudaDeviceGetStreamPriorityRange(&least, &first),
                         "cudaDeviceGetStreamPriorityRange") &&
              br_cuda_ok(c->cuda, cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, first),
                         "cudaStreamCreateWithPriority") &&
              br_cuda_ok(c->cuda, cudaEventCreateWithFlags(&c->ordered, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags");
    for (unsigned i = 0; ok && i < MAX_FRAMES; i++)
        ok = br_cuda_ok(c->cuda, cudaEventCreateWithFlags(&c->arrived[i], cudaEventDisableTiming),
                        "cudaEventCreateWithFlags") &&
             br_cuda_ok(c->cuda, cudaEventCreateWithFlags(&c->slot[i].packed, cudaEventDisableTiming),
                        "cudaEventCreateWithFlags");
    return br_stage_gpu_check(stage, c->cuda);
}

static int start(struct br_stage *stage, struct exchange *x)
{
    const struct plan *plan = &x->plan;
    struct carrier *c = x->carrier = br_stage_alloc(stage, sizeof *c);
    enum br_backend backend;
    size_t at = 0;
    c->stage = stage;
    pthread_mutex_init(&c->calls, NULL);
    int status = br_stage_backend(stage, 0, &backend, &c->cuda);
    if (status == BR_OK) status = make_stream(stage, c);
    if (status != BR_OK) return status;
    c->at = br_stage_alloc(stage, plan->ranks * sizeof *c->at);
    c->buffer = br_stage_alloc(stage, plan->ranks * sizeof *c->buffer);
    x->scratch = br_stage_scratch(stage, c->cuda, br_stream_max_bytes(&plan->to[plan->rank]));
    if (x->scratch == NULL) return BR_E_NO_MEMORY;
    for (unsigned r = 0; r < plan->ranks; r++) {
        c->at[r] = at;
        if (r == plan->rank) continue;
        at += most_bytes(plan, &plan->out[r]);
        c->buffer[r] = br_stage_scratch(stage, c->cuda, most_bytes(plan, &plan->in[r]) + 1);
        if (c->buffer[r] == NULL) return BR_E_NO_MEMORY;
    }
    for (unsigned i = 0; i < (unsigned)x->frames && plan->ranks > 1; i++)
        if ((c->slot[i].memory = br_stage_scratch(stage, c->cuda, at + 1)) == NULL) return BR_E_NO_MEMORY;
    return plan->ranks > 1 ? meet(stage, x, c) : br_stage_gpu_holds(stage, c->cuda);
}

static struct slot *free_slot(struct exchange *x)
{
    struct carrier *c = x->carrier;
    for (unsigned i = 0; i < (unsigned)x->frames; i++)
        if (!c->slot[i].busy) return &c->slot[i];
    return NULL;
}

static bool can_send(struct exchange *x)
{
    return x->plan.ranks == 1 || free_slot(x) != NULL;
}

static bool can_receive(struct exchange *x, unsigned from, const struct piece *piece)
{
    (void)x, (void)from, (void)piece;
    return true;
}

static int send(struct br_stage *stage, struct exchange *x, const struct br_frame *in)
{
    const struct plan *plan = &x->plan;
    struct carrier *c = x->carrier;
    struct slot *slot = free_slot(x);
    if (plan->ranks == 1) return copies_make(stage, &x->copies);
    slot->busy = true;
    slot->block = in->first / plan->all.frame_samples;
    slot->order = c->order++;
    slot->piece = (struct piece){in->first, in->first + in->samples};
    for (unsigned r = 0; r < plan->ranks; r++) {
        size_t bytes;
        if (r == plan->rank) continue;
        int status = plan_pack(stage, &x->copies, plan, &plan->out[r], in, slot->memory + c->at[r], &bytes);
        if (status != BR_OK) return status;
    }
    int status = copies_make(stage, &x->copies);
    br_cuda_ok(c->cuda, cudaEventRecord(slot->packed, br_stage_stream(stage)), "cudaEventRecord");
    return status;
}

static int receive(struct br_stage *stage, struct exchange *x, unsigned from, struct open *open,
                   const struct piece *piece)
{
    (void)stage, (void)x, (void)from, (void)open, (void)piece;
    return BR_OK; /* when the whole block is known: begin */
}

static int collect(struct br_stage *stage, struct exchange *x)
{
    (void)stage, (void)x;
    return BR_OK;
}

/* The oldest slot of a block that comes after `after`; NULL: there is none. */
static struct slot *next_slot(struct exchange *x, uint64_t block, const struct slot *after)
{
    struct carrier *c = x->carrier;
    struct slot *next = NULL;
    for (unsigned i = 0; i < (unsigned)x->frames; i++) {
        struct slot *s = &c->slot[i];
        if (!s->busy || s->block != block || (after != NULL && s->order <= after->order)) continue;
        if (next == NULL || s->order < next->order) next = s;
    }
    return next;
}

/* The part of a piece of a block that belongs to a strip. */
struct part {
    size_t length[BR_MAX_AXES], bytes;
    struct view to; /* in this rank's frame of the block */
    bool in_place;  /* it lies in one piece there */
};

static struct part part_of(const struct exchange *x, const struct open *open, unsigned from, unsigned i,
                           const struct piece *p)
{
    const struct plan *plan = &x->plan;
    const struct crossing *c = &plan->in[from];
    const struct strip *s = &c->strip[i];
    uint64_t begin = block_begin(x, open->block);
    struct part part;
    part.bytes =
        plan_lengths(plan, c, i, br_time_steps(p->first, p->end - p->first, s->downsample), part.length);
    part.to = plan_view(&plan->to[plan->rank], s->to, c->beam_to, begin, plan->all.frame_samples,
                        block_step(begin, p, s->downsample));
    part.in_place = plan_is_dense(plan, part.length, &part.to);
    return part;
}

/* Receives the data of all ranks for this one, strip by strip, into the frame or into the buffers, or only
 * whether any of it needs these (`group` false). While `calls` is held if it is true. */
static ncclResult_t receive_parts(struct exchange *x, const struct open *open, bool group, bool *buffers)
{
    struct carrier *c = x->carrier;
    ncclResult_t result = ncclSuccess;
    *buffers = false;
    for (unsigned r = 0; r < x->plan.ranks; r++) {
        size_t at = 0;
        for (unsigned k = 0; r != x->plan.rank && k < open->of[r].count; k++)
            for (unsigned i = 0; i < x->plan.in[r].nstrips; i++) {
                struct part part = part_of(x, open, r, i, &open->of[r].piece[k]);
                unsigned char *to = c->buffer[r] + at;
                if (part.in_place) to = (unsigned char *)open->frame->data + part.to.offset;
                *buffers |= !part.in_place;
                at += part.bytes;
                if (!group || part.bytes == 0) continue;
                ncclResult_t one = nccl.ncclRecv(to, part.bytes, ncclUint8, (int)r, c->comm, c->stream);
                if (one != ncclSuccess) result = one;
            }
    }
    return result;
}

/* Sends this rank's data of the block to all others. While `calls` is held. */
static ncclResult_t send_parts(struct exchange *x, const struct open *open)
{
    const struct plan *plan = &x->plan;
    struct carrier *c = x->carrier;
    ncclResult_t result = ncclSuccess;
    for (struct slot *s = next_slot(x, open->block, NULL); s != NULL; s = next_slot(x, open->block, s))
        for (unsigned r = 0; r < plan->ranks; r++) {
            const unsigned char *from = s->memory + c->at[r];
            size_t length[BR_MAX_AXES];
            for (unsigned i = 0; r != plan->rank && i < plan->out[r].nstrips; i++) {
                size_t nsteps = br_time_steps(s->piece.first, s->piece.end - s->piece.first,
                                              plan->out[r].strip[i].downsample);
                size_t bytes = plan_lengths(plan, &plan->out[r], i, nsteps, length);
                if (bytes == 0) continue;
                ncclResult_t one = nccl.ncclSend(from, bytes, ncclUint8, (int)r, c->comm, c->stream);
                if (one != ncclSuccess) result = one;
                from += bytes;
            }
        }
    return result;
}

/* Makes the group wait until the block's own part is packed and its frame is free, and not for later frames,
 * which are packed while it is on the link. Without an own part, or with buffers, which the block before has
 * used, it waits for all that is enqueued. */
static void put_behind(struct br_stage *stage, struct exchange *x, const struct open *open, bool buffers)
{
    struct carrier *c = x->carrier;
    struct slot *s = next_slot(x, open->block, NULL);
    if (s == NULL || buffers) {
        br_cuda_ok(c->cuda, cudaEventRecord(c->ordered, br_stage_stream(stage)), "cudaEventRecord");
        br_cuda_ok(c->cuda, cudaStreamWaitEvent(c->stream, c->ordered, 0), "cudaStreamWaitEvent");
    }
    for (; s != NULL && !buffers; s = next_slot(x, open->block, s))
        br_cuda_ok(c->cuda, cudaStreamWaitEvent(c->stream, s->packed, 0), "cudaStreamWaitEvent");
}

/* While `calls` is held. */
static ncclResult_t enqueue(struct exchange *x, const struct open *open)
{
    bool buffers;
    nccl.ncclGroupStart();
    ncclResult_t sent = send_parts(x, open), received = receive_parts(x, open, true, &buffers),
                 ended = nccl.ncclGroupEnd();
    return sent != ncclSuccess ? sent : received != ncclSuccess ? received : ended;
}

static int begin(struct br_stage *stage, struct exchange *x, const struct open *open)
{
    struct carrier *c = x->carrier;
    ncclResult_t result = ncclInternalError;
    bool buffers;
    if (x->plan.ranks == 1) return 1;
    receive_parts(x, open, false, &buffers);
    if (buffers && c->buffers_used) return 0;
    put_behind(stage, x, open, buffers);
    pthread_mutex_lock(&c->calls);
    if (!atomic_load(&c->aborted)) result = enqueue(x, open);
    pthread_mutex_unlock(&c->calls);
    int status = check(stage, c, "ncclGroupEnd", result);
    br_cuda_ok(c->cuda, cudaEventRecord(c->arrived[c->begun++ % MAX_FRAMES], c->stream), "cudaEventRecord");
    if (buffers) c->buffers_of = open->block;
    c->buffers_used |= buffers;
    if (status == BR_OK) status = br_stage_gpu_check(stage, c->cuda);
    return status == BR_OK ? 1 : status;
}

static int place(struct br_stage *stage, struct exchange *x, const struct open *open, unsigned from)
{
    struct carrier *c = x->carrier;
    size_t at = 0;
    for (unsigned k = 0; k < open->of[from].count; k++)
        for (unsigned i = 0; i < x->plan.in[from].nstrips; i++) {
            struct part part = part_of(x, open, from, i, &open->of[from].piece[k]);
            struct view dense = plan_dense(&x->plan, part.length);
            int status = BR_OK;
            if (!part.in_place)
                status = plan_copy(stage, &x->copies, &x->plan, part.length, open->frame->data, &part.to,
                                   c->buffer[from] + at, &dense);
            if (status != BR_OK) return status;
            at += part.bytes;
        }
    return BR_OK;
}

static int settle(struct br_stage *stage, struct exchange *x, struct open *open)
{
    struct carrier *c = x->carrier;
    bool last = x->posted || x->told_end; /* no frame is packed before the next call */
    if (x->plan.ranks == 1) return BR_OK;
    open->pending = !open->held && !last;
    if (open->pending > 0) return BR_OK;
    int status = BR_OK;
    br_cuda_ok(c->cuda, cudaStreamWaitEvent(br_stage_stream(stage), c->arrived[c->settled++ % MAX_FRAMES], 0),
               "cudaStreamWaitEvent");
    for (struct slot *s = next_slot(x, open->block, NULL); s != NULL; s = next_slot(x, open->block, NULL))
        s->busy = false;
    for (unsigned r = 0; r < x->plan.ranks && status == BR_OK; r++)
        if (r != x->plan.rank) status = place(stage, x, open, r);
    if (status == BR_OK) status = copies_make(stage, &x->copies);
    if (c->buffers_of == open->block) c->buffers_used = false;
    return status == BR_OK ? br_stage_gpu_check(stage, c->cuda) : status;
}

static bool idle(struct exchange *x)
{
    (void)x;
    return true;
}

static void stop(struct br_stage *stage, struct exchange *x)
{
    struct carrier *c = x->carrier;
    if (c == NULL) return;
    atomic_store(&c->quit, true);
    if (c->watches) pthread_join(c->watcher, NULL);
    if (c->comm != NULL && !atomic_load(&c->aborted)) {
        /* Nothing that is left on the stream: then the end waits for nobody. */
        bool busy = true;
        for (int i = 0; i < 2000 && busy && !br_stage_job_failed(stage); i++)
            if ((busy = cudaStreamQuery(c->stream) == cudaErrorNotReady))
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        (void)(busy ? nccl.ncclCommAbort(c->comm) : nccl.ncclCommDestroy(c->comm));
    }
    for (unsigned i = 0; i < MAX_FRAMES; i++) {
        br_stage_scratch_free(c->cuda, c->slot[i].memory);
        if (c->arrived[i] != NULL) cudaEventDestroy(c->arrived[i]);
        if (c->slot[i].packed != NULL) cudaEventDestroy(c->slot[i].packed);
    }
    if (c->ordered != NULL) cudaEventDestroy(c->ordered);
    if (c->stream != NULL) cudaStreamDestroy(c->stream);
    for (unsigned r = 0; c->buffer != NULL && r < x->plan.ranks; r++)
        br_stage_scratch_free(c->cuda, c->buffer[r]);
    br_stage_scratch_free(c->cuda, x->scratch);
    br_stage_gpu_end(stage, c->cuda);
    x->carrier = NULL;
}

const struct way nccl_way = {start,   memory, can_send, can_receive, send, receive,
                             collect, begin,  settle,   idle,        stop};

#else

bool nccl_is_there(char *why, size_t size)
{
    snprintf(why, size, "this beamring was built without NCCL: install libnccl-dev and build it again");
    return false;
}

const struct way nccl_way = {0};

#endif
