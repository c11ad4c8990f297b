/* t_pass - for tests: hands frames on, in place where it can; loses or fails where it is told to. Built
 * once more as t_either, which says that it can run on a GPU: for tests that build a graph and do not run
 * it. */
#include <runtime/stage.h>

#include <string.h>

#ifndef PASS_NAME
#define PASS_NAME  "t_pass"
#define PASS_FLAGS BR_STAGE_IN_PLACE
#endif

struct pass {
    int64_t fail_at, lose_at, lose_as;
    bool nothing, offer, absorb;
};

static const struct br_param params[] = {
    {.name = "fail_at",
     .type = BR_P_INT,
     .offset = offsetof(struct pass, fail_at),
     .def = "-1",
     .help = "fails at this sample"},
    {.name = "lose_at",
     .type = BR_P_INT,
     .offset = offsetof(struct pass, lose_at),
     .def = "-1",
     .help = "reports the frame at this sample as lost although it is passed on"},
    {.name = "lose_as",
     .type = BR_P_INT,
     .offset = offsetof(struct pass, lose_as),
     .def = "0",
     .help = "the reason that it gives, an enum br_loss"},
    {.name = "nothing",
     .type = BR_P_BOOL,
     .offset = offsetof(struct pass, nothing),
     .def = "false",
     .help = "returns 0"},
    {.name = "offer",
     .type = BR_P_BOOL,
     .offset = offsetof(struct pass, offer),
     .def = "false",
     .help = "lets its work be taken over"},
    {.name = "absorb",
     .type = BR_P_BOOL,
     .offset = offsetof(struct pass, absorb),
     .def = "false",
     .help = "takes over the work of a t_pass before it"},
    {0},
};
static const struct br_port inputs[] = {{"in", "bytes"}, {0}};
static const struct br_port outputs[] = {{"out", "the same"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    const struct pass *p = self;
    if (p->offer) br_stage_offer(stage);
    if (p->absorb) br_stage_absorb(stage, "t_pass");
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct pass *p = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    if (p->nothing) return 0;
    if (p->fail_at >= 0 && in->first >= (uint64_t)p->fail_at)
        return br_stage_fail(stage, BR_E_FORMAT, "told to fail");
    if (p->lose_at >= 0 && in->first == (uint64_t)p->lose_at) br_stage_count_lost(stage, (enum br_loss)p->lose_as, in->samples);
    if (out->data != in->data) {
        memcpy(out->data, in->data, br_frame_bytes(br_stage_input(stage, 0), in));
        out->complete = in->complete;
    }
    return BR_CONSUMED | BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = PASS_NAME,
    .summary = "hands on",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .flags = PASS_FLAGS,
    .size = sizeof(struct pass),
    .configure = configure,
    .process = process,
};
