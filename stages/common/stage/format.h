/* format.h - stages that speak several network formats, and parameters that only some of these know. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_FORMAT_H
#define BEAMRING_STAGES_COMMON_STAGE_FORMAT_H

#include "runtime/stage.h"

/* Fails, at the parameter, if the user gave one that says nothing in `format`. By convention the help of a
 * parameter that is not for all formats begins with the one that it is for ("frb-node: ...", "chime-l0:
 * ...", "kotekan: ..."), or with "TCP: ..." when it is for those over TCP: what the user reads is what is
 * checked. `params` ends with a nameless one. */
int br_check_format(struct br_stage *stage, const struct br_param *params, const char *format);

#endif
