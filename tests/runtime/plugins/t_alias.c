/* t_alias - for tests: a plugin whose name is not its file's. */
#include <runtime/stage.h>

static const struct br_port inputs[] = {{"in", "anything"}, {0}};

static int nothing(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage, (void)self, (void)io;
    return BR_FINISHED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "somebody_else",
    .summary = "a name too many",
    .inputs = inputs,
    .configure = nothing,
    .process = process,
};
