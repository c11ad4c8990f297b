#include "stages/common/stage/made_with.h"
#include "runtime/stage_updates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rest[] = ",...";

size_t made_with(const struct br_stage *stage, uint64_t first, uint64_t end, char *text, size_t size)
{
    size_t used = br_stage_updates_held(stage, first, text, size);
    if (used < size && end > first + 1) {
        bool comma = used > 0 && used + 1 < size;
        size_t more = br_stage_updates_begun(stage, first + 1, end, text + used + comma, size - used - comma);
        if (comma && more > 0) text[used] = ',';
        if (more > 0) used += comma + more;
    }
    if (used < size) return used;
    size_t cut = size - sizeof rest;
    while (cut > 0 && text[cut] != ',') cut--;
    memcpy(text + cut, cut > 0 ? rest : rest + 1, sizeof rest - (cut == 0));
    return strlen(text);
}

size_t made_with_room(const struct br_stage *stage)
{
    return br_stage_follows_updates(stage) ? MADE_WITH_ROOM : 0;
}

/* Up to the character; %XX is what it stands for. NULL: it does not come. */
static const char *take_name(const char *from, char end, char *to, size_t size)
{
    size_t used = 0;
    for (; *from != end && *from != '\0' && *from != ','; from++) {
        unsigned code = (unsigned char)*from;
        if (*from == '%' && sscanf(from + 1, "%2x", &code) == 1 && from[1] != '\0' && from[2] != '\0')
            from += 2;
        if (used + 1 < size) to[used++] = (char)code;
    }
    to[used] = '\0';
    return *from == end || end == ',' ? from : NULL;
}

const char *made_with_next(const char *text, struct made_with_one *one)
{
    char sample[24], *end;
    const char *at = take_name(text, ':', one->stage, sizeof one->stage);
    if (at != NULL) at = take_name(at + 1, ':', sample, sizeof sample);
    if (at != NULL) at = take_name(at + 1, ':', one->digest, sizeof one->digest);
    if (at != NULL) at = take_name(at + 1, ',', one->id, sizeof one->id);
    if (at == NULL) return NULL;
    one->sample = strtoull(sample, &end, 10);
    if (end == sample || *end != '\0' || one->id[0] == '\0') return NULL;
    return *at == ',' ? at + 1 : at;
}
