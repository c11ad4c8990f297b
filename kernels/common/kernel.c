#include "kernels/common/kernel.h"

#include <stdarg.h>
#include <stdio.h>

int br_because(struct br_why *why, const char *format, ...)
{
    if (why != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(why->text, sizeof why->text, format, args);
        va_end(args);
    }
    return -1;
}
