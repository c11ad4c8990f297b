/* t_two - for tests: a sink that reads two queues side by side. */
#include <runtime/stage.h>

static const struct br_port inputs[] = {{"a", "anything"}, {"b", "as long"}, {0}};

static int nothing(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    if (io->in[0] == NULL && io->in[1] == NULL) return BR_FINISHED;
    if (io->in[0] == NULL || io->in[1] == NULL || io->in[0]->first != io->in[1]->first)
        return br_stage_fail(stage, BR_E_INTERNAL, "the inputs are out of step");
    return BR_CONSUMED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_two",
    .summary = "reads two queues",
    .inputs = inputs,
    .configure = nothing,
    .process = process,
};
