/* t_pass - for tests: hands frames on; loses or fails where it is told to. Built
 * once more as t_either, which says that it can run on a GPU: for tests that build a graph and do not run
 * it. */
#include <runtime/stage.h>

#include <string.h>

#ifndef PASS_NAME
#define PASS_NAME  "t_pass"
#define PASS_FLAGS 0
#endif

struct pass {
    int64_t fail_at, lose_at, lose_as, longer, back, stopped;
    bool nothing, nested, twice;
};

static const struct br_param params[] = {
    BR_PARAM("fail_at", BR_P_INT, struct pass, fail_at, "fails at this sample", .def = "-1"),
    BR_PARAM("lose_at", BR_P_INT, struct pass, lose_at,
             "reports the frame at this sample as lost although it is passed on", .def = "-1"),
    BR_PARAM("lose_as", BR_P_INT, struct pass, lose_as, "the reason that it gives, an enum br_loss",
             .def = "0"),
    BR_PARAM("longer", BR_P_INT, struct pass, longer, "samples that it claims besides those it has",
             .def = "0"),
    BR_PARAM("back", BR_P_INT, struct pass, back, "frames from the second on begin so much earlier",
             .def = "0"),
    BR_PARAM("stopped", BR_P_INT, struct pass, stopped, "returns this status instead", .def = "0"),
    BR_PARAM("nothing", BR_P_BOOL, struct pass, nothing, "returns 0", .def = "false"),
    BR_PARAM("nested", BR_P_BOOL, struct pass, nested, "begins jobs within a job", .def = "false"),
    BR_PARAM("twice", BR_P_BOOL, struct pass, twice, "begins jobs before others are ended", .def = "false"),
    {0},
};
static const struct br_port inputs[] = {{"in", "bytes"}, {0}};
static const struct br_port outputs[] = {{"out", "the same"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static void nothing_to_do(void *arg, size_t job, unsigned worker)
{
    (void)arg, (void)job, (void)worker;
}

static void begin_within(void *arg, size_t job, unsigned worker)
{
    (void)job, (void)worker;
    br_stage_parallel(arg, 2, nothing_to_do, NULL);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct pass *p = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    if (p->nothing) return 0;
    if (p->stopped != 0) return (int)p->stopped;
    if (p->fail_at >= 0 && in->first >= (uint64_t)p->fail_at)
        return br_stage_fail(stage, BR_E_FORMAT, "told to fail");
    if (p->lose_at >= 0 && in->first == (uint64_t)p->lose_at)
        br_stage_count_lost(stage, (enum br_loss)p->lose_as, in->samples);
    if (p->nested) br_stage_parallel(stage, 3, begin_within, stage);
    if (p->twice) {
        br_stage_parallel_begin(stage, 0, 3, nothing_to_do, NULL);
        br_stage_parallel(stage, 3, nothing_to_do, NULL);
        br_stage_parallel_end(stage);
    }
    memcpy(out->data, in->data, br_frame_bytes(br_stage_input(stage, 0), in));
    out->complete = in->complete;
    out->samples += (uint32_t)p->longer;
    if (in->first > 0) out->first -= (uint64_t)p->back;
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
