/* axes.h - the names of an array's axes as one text. */
#ifndef BEAMRING_FORMATS_COMMON_AXES_H
#define BEAMRING_FORMATS_COMMON_AXES_H

#include "buffers/array.h"

#include <stdbool.h>
#include <string.h>

enum { AXES_TEXT = BR_MAX_AXES * (BR_AXIS_NAME + 1) };

/* Slowest first: "time,freq,pol,dish". Returns `text`. */
static inline const char *axes_of(const struct br_array *array, char text[AXES_TEXT])
{
    text[0] = '\0';
    for (unsigned i = 0; i < array->naxes; i++) strcat(strcat(text, i > 0 ? "," : ""), array->axis[i].name);
    return text;
}

static inline bool axes_are(const struct br_array *array, const char *axes)
{
    return strcmp(axes_of(array, (char[AXES_TEXT]){0}), axes) == 0;
}

#endif
