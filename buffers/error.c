#include "buffers/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int br_fail(struct br_error *error, int status, const char *format, ...)
{
    if (error != NULL && error->status == BR_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
        error->status = status;
    }
    return status;
}

void br_error_context(struct br_error *error, const char *format, ...)
{
    if (error == NULL || error->status == BR_OK) return;
    char text[BR_ERROR_LENGTH];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used < 0) return;
    if ((size_t)used < sizeof text) snprintf(text + used, sizeof text - (size_t)used, ": %s", error->text);
    memcpy(error->text, text, sizeof text);
}
