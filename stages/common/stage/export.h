/* export.h - the descriptor of a stage whose parts have their usual names, and its parameters. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_EXPORT_H
#define BEAMRING_STAGES_COMMON_STAGE_EXPORT_H

#include "runtime/stage.h"

/* A parameter whose field has the name of its key: PARAM(INT, struct filter, taps, "length of the filter"),
 * then any other fields of br_param. */
#define PARAM(TYPE, STRUCT, KEY, ...) BR_PARAM(#KEY, BR_P_##TYPE, STRUCT, KEY, __VA_ARGS__)

/* Exports the stage `own_name`, whose struct is `own_struct`, with the file's description, params, configure,
 * start, process and stop. The other fields of br_stage_type follow, such as `.inputs = inputs`. */
#define STAGE_EXPORT(own_name, own_struct, own_summary, ...)                                                 \
    BR_STAGE_EXPORT = {.abi_version = BR_ABI_VERSION,                                                        \
                       .type_size = sizeof(struct br_stage_type),                                            \
                       .name = #own_name,                                                                    \
                       .summary = own_summary,                                                               \
                       .description = description,                                                           \
                       .params = params,                                                                     \
                       .size = sizeof(own_struct),                                                           \
                       .configure = configure,                                                               \
                       .start = start,                                                                       \
                       .process = process,                                                                   \
                       .stop = stop,                                                                         \
                       __VA_ARGS__}

#endif
