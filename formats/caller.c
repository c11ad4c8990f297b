/* caller.c - see caller.h. */
#include "formats/caller.h"

#include "formats/common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = BR_ERROR_LENGTH };

int caller_report(struct caller *caller, int status, const char *param, const char *format, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return caller->fail(caller->owner, status, param, text);
}

int caller_no_memory(struct caller *caller, size_t bytes)
{
    return caller_fail(caller, BR_E_NO_MEMORY, "not enough memory: %.1f MiB needed", (double)bytes / 1048576);
}

void caller_say(struct caller *caller, bool warning, const char *format, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    caller->say(caller->owner, warning, text);
}

void caller_fact(struct caller *caller, const char *name, const char *format, ...)
{
    char text[4 * TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    caller->fact(caller->owner, name, text);
}

void caller_sideband(struct caller *caller, enum br_sideband sideband)
{
    caller_fact(caller, "sideband", "%s",
                sideband == BR_SIDEBAND_UNKNOWN
                    ? "not in the file: give `stream: {sideband: upper}` or `lower`"
                    : br_sideband_name(sideband));
}

void caller_time(struct caller *caller, const char *name, int64_t ns)
{
    char utc[TEXT_TIME], mjd[TEXT_TIME];
    text_mjd_format(mjd, ns);
    caller_fact(caller, name, "%s UTC (MJD %.*s)", text_utc_format(utc, ns), 15, mjd);
}

const char *caller_beside(struct caller *caller, const char *path, const char *tail)
{
    char *name = caller_alloc(caller, strlen(path) + strlen(tail) + 1);
    return strcat(strcpy(name, path), tail);
}

void *caller_alloc(struct caller *caller, size_t bytes)
{
    return caller->alloc(caller->owner, bytes);
}

void *caller_keep(struct caller *caller, void *memory, size_t bytes)
{
    if (memory == NULL) return NULL;
    void *kept = caller_alloc(caller, bytes > 0 ? bytes : 1);
    memcpy(kept, memory, bytes);
    free(memory);
    return kept;
}
