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
    char context[BR_ERROR_LENGTH];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(context, sizeof context - 2, format, args);
    va_end(args);
    if (used < 0) return;
    size_t head = strlen(context);
    memcpy(context + head, ": ", 2);
    head += 2;
    size_t tail = strnlen(error->text, sizeof error->text - 1 - head);
    memmove(error->text + head, error->text, tail);
    memcpy(error->text, context, head);
    error->text[head + tail] = '\0';
}
