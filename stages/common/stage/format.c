#include "stages/common/stage/format.h"

#include <string.h>

/* Whether `format` is one of the words of `formats`. */
static bool knows(const char *formats, const char *format)
{
    size_t length = strlen(format);
    for (const char *word = formats; *word != '\0'; word += strcspn(word, " "), word += strspn(word, " "))
        if (strcspn(word, " ") == length && strncmp(word, format, length) == 0) return true;
    return false;
}

int br_check_format(struct br_stage *stage, const struct br_param *params, const char *format)
{
    for (const struct br_param *param = params; param->name != NULL; param++)
        if (param->formats != NULL && !knows(param->formats, format) && br_stage_given(stage, param->name))
            return br_stage_fail_at(stage, param->name, "this is not for format %s", format);
    return BR_OK;
}
