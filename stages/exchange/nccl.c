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
    X(ncclCommGetAsyncError)                                                                                 \
    X(ncclCommAbort)                                                                                         \
    X(ncclCommFinalize)                                                                                      \
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
    bool busy;
    uint64_t block, order;
    struct piece piece;
};

struct carrier {
    struct br_cuda *cuda;
    pthread_mutex_t mutex; /* of the communicator */
    ncclComm_t comm;       /* NULL: none, or aborted */
    cudaStream_t stream;   /* of groups */
    cudaEvent_t packed, arrived[MAX_FRAMES];
    uint64_t begun, settled; /* blocks: the event of the n-th is arrived[n % MAX_FRAMES] */
    bool launching;          /* the last group is not on the stream yet */
    ncclResult_t result;     /* of that group */
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
 * end, nor would what waits behind them. */
static void *watch(void *arg)
{
    struct carrier *c = arg;
    while (!atomic_load(&c->quit)) {
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        if (!br_stage_job_failed(c->stage)) continue;
        pthread_mutex_lock(&c->mutex);
        if (c->comm != NULL) nccl.ncclCommAbort(c->comm);
        c->comm = NULL;
        pthread_mutex_unlock(&c->mutex);
        break;
    }
    return NULL;
}

/* Waits until the last call is done on the host's side: NCCL works in the background, so that a rank that
 * does not answer holds nobody for good. */
static int finish(struct br_stage *stage, struct carrier *c, const char *call, ncclResult_t result)
{
    enum { LOOKS = 200 };
    unsigned looks = 0;
    while (result == ncclSuccess || result == ncclInProgress) {
        ncclResult_t state = ncclSuccess;
        pthread_mutex_lock(&c->mutex);
        if (c->comm != NULL) result = nccl.ncclCommGetAsyncError(c->comm, &state);
        bool gone = c->comm == NULL;
        pthread_mutex_unlock(&c->mutex);
        if (result == ncclSuccess && state == ncclSuccess && !gone) return BR_OK;
        if (state != ncclInProgress && state != ncclSuccess) result = state;
        int status = br_stage_await(stage, UINT64_MAX, 0);
        if (status != BR_OK) return status;
        if (gone) return br_stage_fail(stage, BR_E_IO, "%s: the communicator has ended", call);
        if (++looks > LOOKS) nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    return br_stage_fail(stage, BR_E_DEVICE, "%s: %s", call, nccl.ncclGetErrorString(result));
}

static int meet(struct br_stage *stage, struct exchange *x, struct carrier *c)
{
    ncclUniqueId id = {0};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const void **part;
    const size_t *length;
    config.blocking = 0;
    ncclResult_t result = x->plan.rank == 0 ? nccl.ncclGetUniqueId(&id) : ncclSuccess;
    if (result != ncclSuccess)
        return br_stage_fail(stage, BR_E_DEVICE, "ncclGetUniqueId: %s", nccl.ncclGetErrorString(result));
    int status = br_stage_gather(stage, &id, sizeof id, &part, &length);
    if (status != BR_OK) return status;
    memcpy(&id, part[0], sizeof id);
    result = nccl.ncclCommInitRankConfig(&c->comm, (int)x->plan.ranks, id, (int)x->plan.rank, &config);
    c->watches = pthread_create(&c->watcher, NULL, watch, c) == 0;
    if (!c->watches) return br_stage_fail(stage, BR_E_NO_MEMORY, "no thread to watch NCCL");
    return finish(stage, c, "ncclCommInitRankConfig", result);
}

static int make_stream(struct br_stage *stage, struct carrier *c)
{
    bool ok = br_cuda_ok(c->cuda, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                         "cudaStreamCreateWithFlags") &&
              br_cuda_ok(c->cuda, cudaEventCreateWithFlags(&c->packed, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags");
    for (unsigned i = 0; ok && i < MAX_FRAMES; i++)
        ok = br_cuda_ok(c->cuda, cudaEventCreateWithFlags(&c->arrived[i], cudaEventDisableTiming),
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
    pthread_mutex_init(&c->mutex, NULL);
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
    if (plan->ranks == 1) return BR_OK;
    slot->busy = true;
    slot->block = in->first / plan->all.frame_samples;
    slot->order = c->order++;
    slot->piece = (struct piece){in->first, in->first + in->samples};
    for (unsigned r = 0; r < plan->ranks; r++) {
        size_t bytes;
        if (r == plan->rank) continue;
        int status = plan_pack(stage, plan, &plan->out[r], in, slot->memory + c->at[r], &bytes);
        if (status != BR_OK) return status;
    }
    return BR_OK;
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
 * whether any of it needs these (`group` false). With the mutex held if it is true. */
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
                if (one != ncclSuccess && one != ncclInProgress) result = one;
            }
    }
    return result;
}

/* Sends this rank's data of the block to all others. With the mutex held. */
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
                if (one != ncclSuccess && one != ncclInProgress) result = one;
                from += bytes;
            }
        }
    return result;
}

/* Behind what has been packed so far, and what has been put in place. With the mutex held. */
static ncclResult_t enqueue(struct br_stage *stage, struct exchange *x, const struct open *open)
{
    struct carrier *c = x->carrier;
    bool buffers;
    br_cuda_ok(c->cuda, cudaEventRecord(c->packed, br_stage_stream(stage)), "cudaEventRecord");
    br_cuda_ok(c->cuda, cudaStreamWaitEvent(c->stream, c->packed, 0), "cudaStreamWaitEvent");
    nccl.ncclGroupStart();
    ncclResult_t sent = send_parts(x, open), received = receive_parts(x, open, true, &buffers),
                 ended = nccl.ncclGroupEnd();
    return sent != ncclSuccess ? sent : received != ncclSuccess ? received : ended;
}

/* NCCL puts a group on the stream by a thread of its own, while this one goes on. */
static int end_launch(struct br_stage *stage, struct carrier *c)
{
    if (!c->launching) return BR_OK;
    int status = finish(stage, c, "ncclGroupEnd", c->result);
    c->launching = false;
    br_cuda_ok(c->cuda, cudaEventRecord(c->arrived[c->begun++ % MAX_FRAMES], c->stream), "cudaEventRecord");
    return status == BR_OK ? br_stage_gpu_check(stage, c->cuda) : status;
}

static int begin(struct br_stage *stage, struct exchange *x, const struct open *open)
{
    struct carrier *c = x->carrier;
    ncclResult_t result = ncclInternalError;
    bool buffers;
    if (x->plan.ranks == 1) return 1;
    receive_parts(x, open, false, &buffers);
    if (buffers && c->buffers_used) return 0;
    int status = end_launch(stage, c);
    if (status != BR_OK) return status;
    pthread_mutex_lock(&c->mutex);
    if (c->comm != NULL) result = enqueue(stage, x, open);
    bool gone = c->comm == NULL;
    pthread_mutex_unlock(&c->mutex);
    if (gone) status = br_stage_await(stage, UINT64_MAX, 0);
    if (status == BR_OK && gone) status = br_stage_fail(stage, BR_E_IO, "the communicator has ended");
    c->launching = !gone;
    c->result = result;
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
                status = plan_copy(stage, &x->plan, part.length, open->frame->data, &part.to,
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
    int status = end_launch(stage, c);
    if (status != BR_OK) return status;
    br_cuda_ok(c->cuda, cudaStreamWaitEvent(br_stage_stream(stage), c->arrived[c->settled++ % MAX_FRAMES], 0),
               "cudaStreamWaitEvent");
    for (struct slot *s = next_slot(x, open->block, NULL); s != NULL; s = next_slot(x, open->block, NULL))
        s->busy = false;
    for (unsigned r = 0; r < x->plan.ranks && status == BR_OK; r++)
        if (r != x->plan.rank) status = place(stage, x, open, r);
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
    if (c->comm != NULL && br_stage_job_failed(stage)) {
        nccl.ncclCommAbort(c->comm);
    } else if (c->comm != NULL) {
        ncclResult_t state = ncclInProgress;
        nccl.ncclCommFinalize(c->comm);
        for (int i = 0; i < 2000 && state == ncclInProgress; i++) {
            nccl.ncclCommGetAsyncError(c->comm, &state);
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        if (state == ncclInProgress)
            nccl.ncclCommAbort(c->comm);
        else
            nccl.ncclCommDestroy(c->comm);
    }
    for (unsigned i = 0; i < MAX_FRAMES; i++) {
        br_stage_scratch_free(c->cuda, c->slot[i].memory);
        if (c->arrived[i] != NULL) cudaEventDestroy(c->arrived[i]);
    }
    if (c->packed != NULL) cudaEventDestroy(c->packed);
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
