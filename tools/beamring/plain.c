#include "tools/beamring/plain.h"

#include "runtime/base/plain.h"

#include <stdlib.h>
#include <string.h>

static ssize_t take(void *cookie, const char *data, size_t size)
{
    char *text = malloc(size + 1);
    size_t done = 0;
    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    br_text_plain(text);
    done = fwrite(text, 1, size, cookie);
    free(text);
    return (ssize_t)done;
}

static int end(void *cookie)
{
    return fflush(cookie);
}

FILE *plain_open(FILE *to)
{
    FILE *stream = fopencookie(to, "w", (cookie_io_functions_t){.write = take, .close = end});
    if (stream != NULL) setvbuf(stream, NULL, _IOLBF, 0); /* by lines, so that no character is torn apart */
    return stream;
}
