#include "stages/common/stage/format.h"

#include <string.h>

int br_check_format(struct br_stage *stage, const struct br_param *params, const char *format)
{
    static const struct {
        const char *prefix, *formats;
    } owners[] = {{"TCP:", "frb-node kotekan"},
                  {"frb-node:", "frb-node"},
                  {"chime-l0:", "chime-l0"},
                  {"kotekan:", "kotekan"}};
    for (const struct br_param *param = params; param->name != NULL; param++)
        for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
            if (strncmp(param->help, owners[i].prefix, strlen(owners[i].prefix)) == 0 &&
                strstr(owners[i].formats, format) == NULL && br_stage_given(stage, param->name))
                return br_stage_fail_at(stage, param->name, "this is not for format %s", format);
    return BR_OK;
}
