/* nccl.c - data from GPU to GPU: NCCL, on the stage's stream.
 *
 * What is sent and received in NCCL must come in the same order on both sides. So a block's data go in one
 * group, when all ranks' headers say who has what of it, and blocks follow each other in the order of
 * their numbers, which all ranks know alike. Packing, the group, and putting in place are enqueued and
 * nobody waits for them; a slot may be packed again as soon as its group is enqueued. */
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
    struct slot slot[MAX_FRAMES];
    uint64_t order;
    size_t *at;             /* [ranks] where each rank's part begins in a slot of a whole frame */
    unsigned char **buffer; /* [ranks] for what does not go right to its place; NULL: none */
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
        nanosleep(&(struct timespec){0, 20000}, NULL);
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

static int start(struct br_stage *stage, struct exchange *x)
{
    const struct plan *plan = &x->plan;
    struct carrier *c = x->carrier = br_stage_alloc(stage, sizeof *c);
    enum br_backend backend;
    size_t at = 0;
    c->stage = stage;
    pthread_mutex_init(&c->mutex, NULL);
    int status = br_stage_backend(stage, 0, &backend, &c->cuda);
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
    return BR_OK; /* when the whole block is known: settle */
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

/* Everything of the block from and to all ranks; with the mutex held. */
static ncclResult_t enqueue(struct br_stage *stage, struct exchange *x, const struct open *open)
{
    const struct plan *plan = &x->plan;
    struct carrier *c = x->carrier;
    cudaStream_t stream = br_stage_stream(stage);
    ncclResult_t result = nccl.ncclGroupStart(), one;
    for (unsigned r = 0; r < plan->ranks; r++) {
        if (r == plan->rank) continue;
        for (struct slot *s = next_slot(x, open->block, NULL); s != NULL; s = next_slot(x, open->block, s)) {
            size_t bytes =
                plan_message_bytes(plan, &plan->out[r], s->piece.first, s->piece.end - s->piece.first);
            one = nccl.ncclSend(s->memory + c->at[r], bytes, ncclUint8, (int)r, c->comm, stream);
            if (one != ncclSuccess && one != ncclInProgress) result = one;
        }
        size_t at = 0;
        for (unsigned i = 0; i < open->of[r].count; i++) {
            const struct piece *p = &open->of[r].piece[i];
            size_t bytes = plan_message_bytes(plan, &plan->in[r], p->first, p->end - p->first);
            one = nccl.ncclRecv(c->buffer[r] + at, bytes, ncclUint8, (int)r, c->comm, stream);
            if (one != ncclSuccess && one != ncclInProgress) result = one;
            at += bytes;
        }
    }
    one = nccl.ncclGroupEnd();
    return result != ncclSuccess && result != ncclInProgress ? result : one;
}

static int place(struct br_stage *stage, struct exchange *x, const struct open *open, unsigned from)
{
    const struct plan *plan = &x->plan;
    struct carrier *carrier = x->carrier;
    const struct crossing *c = &plan->in[from];
    uint64_t begin = block_begin(x, open->block);
    size_t at = 0;
    for (unsigned k = 0; k < open->of[from].count; k++) {
        const struct piece *p = &open->of[from].piece[k];
        for (unsigned i = 0; i < c->nstrips; i++) {
            const struct strip *s = &c->strip[i];
            size_t length[BR_MAX_AXES];
            size_t bytes =
                plan_lengths(plan, c, i, br_time_steps(p->first, p->end - p->first, s->downsample), length);
            struct view dense = plan_dense(plan, length);
            struct view to = plan_view(&plan->to[plan->rank], s->to, c->beam_to, begin,
                                       plan->all.frame_samples, block_step(begin, p, s->downsample));
            int status =
                plan_copy(stage, plan, length, open->frame->data, &to, carrier->buffer[from] + at, &dense);
            if (status != BR_OK) return status;
            at += bytes;
        }
    }
    return BR_OK;
}

static int settle(struct br_stage *stage, struct exchange *x, struct open *open)
{
    struct carrier *c = x->carrier;
    ncclResult_t result = ncclInternalError;
    if (x->plan.ranks == 1) return BR_OK;
    pthread_mutex_lock(&c->mutex);
    if (c->comm != NULL) result = enqueue(stage, x, open);
    bool gone = c->comm == NULL;
    pthread_mutex_unlock(&c->mutex);
    int status = gone ? br_stage_await(stage, UINT64_MAX, 0) : finish(stage, c, "ncclGroupEnd", result);
    if (status == BR_OK && gone) status = br_stage_fail(stage, BR_E_IO, "the communicator has ended");
    for (struct slot *s = next_slot(x, open->block, NULL); s != NULL; s = next_slot(x, open->block, NULL))
        s->busy = false;
    for (unsigned r = 0; r < x->plan.ranks && status == BR_OK; r++)
        if (r != x->plan.rank) status = place(stage, x, open, r);
    return status;
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
    for (unsigned i = 0; i < MAX_FRAMES; i++) br_stage_scratch_free(c->cuda, c->slot[i].memory);
    for (unsigned r = 0; c->buffer != NULL && r < x->plan.ranks; r++)
        br_stage_scratch_free(c->cuda, c->buffer[r]);
    br_stage_scratch_free(c->cuda, x->scratch);
    br_stage_gpu_end(stage, c->cuda);
    x->carrier = NULL;
}

const struct way nccl_way = {start,   memory,  can_send, can_receive, send,
                             receive, collect, settle,   idle,        stop};

#else

bool nccl_is_there(char *why, size_t size)
{
    snprintf(why, size, "this beamring was built without NCCL: install libnccl-dev and build it again");
    return false;
}

const struct way nccl_way = {0};

#endif
