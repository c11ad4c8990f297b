/* format.c - which formats there are, and what all files have. */
#include "formats/common/gaps.h"
#include "stages/dump/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct dump_format *dump_format_of(const char *name)
{
    return strcmp(name, dump_chime.name) == 0  ? &dump_chime
           : strcmp(name, dump_dada.name) == 0 ? &dump_dada
                                               : NULL;
}

void dump_name(const struct dump_stage *s, const struct dump *d, const struct piece *p, char *text,
               size_t size)
{
    snprintf(text, size, "%s_%" PRIu64 "_%" PRId64 ".%s", s->prefix, d->id, s->number[p->index],
             d->format->suffix);
}
