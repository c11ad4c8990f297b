/* t_gpu - for tests: a stage that hands bytes on, on a GPU: at once, when a gate opens, slowly, or not at
 * all because its kernel writes where it must not, or never ends. */
#include "runtime/stage.h"
#include "tests/gpu/t_gpu_kernels.h"

#include <string.h>

struct t_gpu {
    const char *mode;
    int64_t fault_at;
};

static const char *const modes[] = {"copy", "gate", "slow", "fault", "hang", NULL};
static const struct br_param params[] = {
    BR_PARAM("mode", BR_P_CHOICE, struct t_gpu, mode, "what its kernel does beside copying", .choices = modes,
             .def = "copy"),
    BR_PARAM("fault_at", BR_P_INT, struct t_gpu, fault_at, "first bad sample", .def = "0"),
    {0},
};
static const struct br_port inputs[] = {{"in", "bytes"}, {0}};
static const struct br_port outputs[] = {{"out", "the same"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    (void)self;
    if (br_stage_device(stage) < 0) return br_stage_fail(stage, BR_E_INVALID, "this test stage is for GPUs");
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    const struct t_gpu *t = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    void *stream = br_stage_stream(stage);
    if (strcmp(t->mode, "gate") == 0) t_gpu_enqueue_gate(stream);
    if (strcmp(t->mode, "slow") == 0) t_gpu_enqueue_delay(stream, 3000);
    if (strcmp(t->mode, "hang") == 0 && in->first >= (uint64_t)t->fault_at) t_gpu_enqueue_hang(stream);
    bool fault = strcmp(t->mode, "fault") == 0 && in->first >= (uint64_t)t->fault_at;
    t_gpu_enqueue_copy(stream, fault ? (void *)(uintptr_t)64 : out->data, in->data,
                       br_frame_bytes(br_stage_input(stage, 0), in));
    out->complete = in->complete;
    out->missing = in->missing;
    if (!in->complete) memcpy(out->valid, in->valid, br_frame_cells(br_stage_input(stage, 0), in));
    return BR_CONSUMED | BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_gpu",
    .summary = "hands on, on a GPU",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .flags = BR_STAGE_CUDA,
    .size = sizeof(struct t_gpu),
    .configure = configure,
    .process = process,
};
