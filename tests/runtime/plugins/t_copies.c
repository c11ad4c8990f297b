/* t_copies - for tests: hands its input on once, or twice where somebody wants the second output. */
#include <runtime/stage.h>

#include <string.h>

static const struct br_port inputs[] = {{"in", "bytes"}, {0}};
static const struct br_port outputs[] = {
    {"out", "the bytes"}, {"copy", "the bytes again, may be left out"}, {0}};

static int nothing(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    if (io->in[0] == NULL) return BR_FINISHED;
    if ((io->out[1] != NULL) != (br_stage_output(stage, 1) != NULL))
        return br_stage_fail(stage, BR_E_INTERNAL, "an output is there in part");
    for (unsigned i = 0; i < 2 && io->out[i] != NULL; i++)
        memcpy(io->out[i]->data, io->in[0]->data, br_frame_bytes(br_stage_input(stage, 0), io->in[0]));
    return BR_CONSUMED | BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_copies",
    .summary = "copies its input once or twice",
    .inputs = inputs,
    .outputs = outputs,
    .flags = BR_STAGE_OPTIONAL_OUTPUTS,
    .configure = nothing,
    .process = process,
};
