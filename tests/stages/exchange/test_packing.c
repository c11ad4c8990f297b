/* The order in which the exchange between GPUs packs frames and sends them: a group waits for its own frame
 * to be packed, and not for the next one. Streams and events of a GPU are numbers here: of the copies that
 * are made when all that is enqueued there is done. */
#include "stages/exchange/nccl.c" // the functions of NCCL that it looks up are static there

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { SAMPLES = 8, ALLOCATIONS = 32 };

struct fake_stream {
    unsigned copies;
};
struct fake_event {
    unsigned copies;
};

static struct fake_stream stage_stream;
static unsigned behind[8], groups; /* copies that each group waits for */
static cudaStream_t group_stream;
static void *allocated[ALLOCATIONS];
static unsigned allocations;

/* --- the GPU --- */

static int cudaDeviceGetStreamPriorityRange(int *least, int *first)
{
    *least = *first = 0;
    return 0;
}

static int cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *stream = calloc(1, sizeof **stream);
    return 0;
}

static int cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return 0;
}

static int cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return 0;
}

static int cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    if (event->copies > stream->copies) stream->copies = event->copies;
    return 0;
}

static int cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return 0;
}

static int cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return 0;
}

static int cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->copies = stream->copies;
    return 0;
}

bool br_cuda_ok(struct br_cuda *cuda, int status, const char *call)
{
    (void)cuda, (void)call;
    return status == 0;
}

/* --- NCCL --- */

static ncclResult_t get_id(ncclUniqueId *id)
{
    (void)id;
    return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)ranks, (void)id, (void)rank, (void)config;
    *comm = (ncclComm_t)(void *)&groups;
    return ncclSuccess;
}

static ncclResult_t done(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

static ncclResult_t group_start(void)
{
    return ncclSuccess;
}

static ncclResult_t fake_send(const void *from, size_t count, int type, int peer, ncclComm_t comm,
                              cudaStream_t stream)
{
    (void)from, (void)count, (void)type, (void)peer, (void)comm;
    group_stream = stream;
    return ncclSuccess;
}

static ncclResult_t fake_recv(void *to, size_t count, int type, int peer, ncclComm_t comm,
                              cudaStream_t stream)
{
    return fake_send(to, count, type, peer, comm, stream);
}

static ncclResult_t group_end(void)
{
    behind[groups++] = group_stream->copies;
    return ncclSuccess;
}

static const char *error_string(ncclResult_t result)
{
    (void)result;
    return "";
}

/* --- the runtime --- */

void *br_stage_alloc(struct br_stage *stage, size_t bytes)
{
    (void)stage;
    assert_true(allocations < ALLOCATIONS);
    return allocated[allocations++] = calloc(1, bytes);
}

int br_stage_backend(struct br_stage *stage, size_t upload_bytes, enum br_backend *backend,
                     struct br_cuda **cuda)
{
    (void)stage, (void)upload_bytes;
    *backend = BR_CUDA;
    *cuda = NULL;
    return BR_OK;
}

void *br_stage_scratch(struct br_stage *stage, struct br_cuda *cuda, size_t bytes)
{
    (void)stage, (void)cuda;
    return calloc(1, bytes);
}

void br_stage_scratch_free(struct br_cuda *cuda, void *memory)
{
    (void)cuda;
    free(memory);
}

int br_stage_gpu_check(struct br_stage *stage, struct br_cuda *cuda)
{
    (void)stage, (void)cuda;
    return BR_OK;
}

int br_stage_gpu_holds(struct br_stage *stage, const struct br_cuda *cuda)
{
    (void)stage, (void)cuda;
    return BR_OK;
}

void br_stage_gpu_end(struct br_stage *stage, struct br_cuda *cuda)
{
    (void)stage, (void)cuda;
}

int br_stage_gather(struct br_stage *stage, const void *mine, size_t bytes, const void ***part,
                    const size_t **length)
{
    *part = br_stage_alloc(stage, sizeof **part);
    (*part)[0] = memcpy(br_stage_alloc(stage, bytes), mine, bytes);
    *length = NULL;
    return BR_OK;
}

bool br_stage_job_failed(const struct br_stage *stage)
{
    (void)stage;
    return false;
}

int br_stage_await(struct br_stage *stage, uint64_t seen, uint64_t ns)
{
    (void)stage, (void)seen, (void)ns;
    return BR_OK;
}

int br_stage_fail(struct br_stage *stage, int status, const char *format, ...)
{
    (void)stage, (void)format;
    return status;
}

int br_stage_device(const struct br_stage *stage)
{
    (void)stage;
    return 0;
}

void *br_stage_stream(const struct br_stage *stage)
{
    (void)stage;
    return &stage_stream;
}

int br_stage_copy_all(struct br_stage *stage, const struct br_rows *rows, unsigned n)
{
    (void)stage, (void)rows, (void)n;
    stage_stream.copies++;
    return BR_OK;
}

int br_stage_set_rows(struct br_stage *stage, void *to, size_t pitch, int byte, size_t width, size_t rows)
{
    (void)stage, (void)to, (void)pitch, (void)byte, (void)width, (void)rows;
    return BR_OK;
}

/* --- the test --- */

static struct br_stream stream_of(const char *axes, size_t a, size_t b, size_t c, size_t channels)
{
    struct br_stream s = {.frame_samples = SAMPLES, .nchannels = channels, .nzones = 1};
    s.zone[0] = (struct br_zone){.nchannels = channels, .factor = 1, .downsample = 1};
    assert_int_equal(br_array_init(&s.array, BR_UINT8, axes, (size_t[]){a, b, c}, NULL), BR_OK);
    return s;
}

/* Rank 0 of two: it gives the second two of four beams away, and gets the second channel of its own two. */
struct job {
    struct exchange x;
    struct br_stream from[2], to[2];
    struct crossing out[2], in[2];
    struct cover cover[2];
    struct br_frame frame;
    unsigned char data[4 * SAMPLES];
};

/* `whole`: what comes lies in one piece in the frame that goes on. */
static void begin_job(struct job *job, bool whole)
{
    *job = (struct job){.x = {.frames = 4}};
    struct plan *plan = &job->x.plan;
    if (whole) {
        job->from[0] = stream_of("freq,time,beam", 1, SAMPLES, 4, 1);
        job->to[0] = stream_of("freq,time,beam", 2, SAMPLES, 2, 2);
    } else {
        job->from[0] = stream_of("beam,freq,time", 4, 1, SAMPLES, 1);
        job->to[0] = stream_of("beam,freq,time", 2, 2, SAMPLES, 2);
    }
    job->out[1] = (struct crossing){.beam_from = 2, .nbeam = 2, .nstrips = 1, .strip = {{0, 0, 1, 1}}};
    job->in[1] = (struct crossing){.nbeam = 2, .nstrips = 1, .strip = {{0, 1, 1, 1}}};
    *plan = (struct plan){.ranks = 2, .all = job->to[0], .from = job->from, .to = job->to};
    plan->out = job->out;
    plan->in = job->in;
    job->frame.data = job->data;
    nccl.ncclGetUniqueId = get_id;
    nccl.ncclCommInitRankConfig = init;
    nccl.ncclCommAbort = nccl.ncclCommDestroy = done;
    nccl.ncclGroupStart = group_start;
    nccl.ncclGroupEnd = group_end;
    nccl.ncclSend = fake_send;
    nccl.ncclRecv = fake_recv;
    nccl.ncclGetErrorString = error_string;
    stage_stream.copies = 0;
    assert_int_equal(nccl_way.start(NULL, &job->x), BR_OK);
    groups = 0; /* the one that connects the ranks does not count */
}

static void end_job(struct job *job)
{
    nccl_way.stop(NULL, &job->x);
    while (allocations > 0) free(allocated[--allocations]);
}

static void pack(struct job *job, uint64_t first, uint64_t samples)
{
    struct br_frame in = {.data = job->data, .first = first, .samples = samples};
    assert_true(nccl_way.can_send(&job->x));
    assert_int_equal(nccl_way.send(NULL, &job->x, &in), BR_OK);
}

/* Block `block`, of which the other rank has a whole frame. */
static struct open block_of(struct job *job, uint64_t block)
{
    job->cover[1] = (struct cover){1, {{block * SAMPLES, (block + 1) * SAMPLES}}};
    return (struct open){.block = block, .frame = &job->frame, .held = true, .of = job->cover};
}

static void check_group(struct job *job, uint64_t block, unsigned copies)
{
    struct open open = block_of(job, block);
    unsigned before = groups;
    assert_int_equal(nccl_way.begin(NULL, &job->x, &open), 1);
    assert_int_equal(groups, before + 1);
    assert_int_equal(behind[before], copies);
}

static void test_own_frame_only(void **state)
{
    (void)state;
    struct job job;
    begin_job(&job, true);
    pack(&job, 0, SAMPLES);
    pack(&job, SAMPLES, SAMPLES);
    check_group(&job, 0, 1);
    pack(&job, 2 * SAMPLES, SAMPLES);
    check_group(&job, 1, 2);
    check_group(&job, 2, 3);
    end_job(&job);
}

static void test_all_pieces_of_it(void **state)
{
    (void)state;
    struct job job;
    begin_job(&job, true);
    pack(&job, 0, 3);
    pack(&job, 3, SAMPLES - 3);
    pack(&job, SAMPLES, SAMPLES);
    check_group(&job, 0, 2);
    end_job(&job);
}

/* Its frame's memory may still be in use by what was enqueued before. */
static void test_without_own_frame(void **state)
{
    (void)state;
    struct job job;
    begin_job(&job, true);
    pack(&job, SAMPLES, SAMPLES);
    check_group(&job, 0, 1);
    end_job(&job);
}

/* Data that do not go right to their place need the buffers, which the block before has to leave first. */
static void test_buffers(void **state)
{
    (void)state;
    struct job job;
    begin_job(&job, false);
    pack(&job, 0, SAMPLES);
    pack(&job, SAMPLES, SAMPLES);
    check_group(&job, 0, 2);
    struct open next = block_of(&job, 1);
    assert_int_equal(nccl_way.begin(NULL, &job.x, &next), 0);
    struct open first = block_of(&job, 0);
    assert_int_equal(nccl_way.settle(NULL, &job.x, &first), BR_OK);
    assert_int_equal(stage_stream.copies, 3);
    check_group(&job, 1, 3);
    end_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_frame_only), cmocka_unit_test(test_all_pieces_of_it),
        cmocka_unit_test(test_without_own_frame), cmocka_unit_test(test_buffers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
