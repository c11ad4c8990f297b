/* t_gone - for tests: a plugin that calls a function which this beamring does not have, as those that were
 * built for an older version of the interface may. */
#include <runtime/stage.h>

BR_API int br_stage_gone(struct br_stage *stage);

static int configure(struct br_stage *stage, void *self)
{
    (void)self;
    return br_stage_gone(stage);
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION - 1,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_gone",
    .configure = configure,
};
