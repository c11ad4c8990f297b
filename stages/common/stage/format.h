/* format.h - stages that speak several network formats, and parameters that only some of these know. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_FORMAT_H
#define BEAMRING_STAGES_COMMON_STAGE_FORMAT_H

#include "runtime/stage.h"

/* Fails, at the parameter, if the user gave one whose `formats` do not contain `format`. `params` ends
 * with a nameless one. */
int br_check_format(struct br_stage *stage, const struct br_param *params, const char *format);

#endif
