/* json_text.h - texts on their way into JSON. */
#ifndef BEAMRING_RUNTIME_BASE_JSON_TEXT_H
#define BEAMRING_RUNTIME_BASE_JSON_TEXT_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A new string, or null for NULL. Names in a pipeline file and bytes of packets may not be UTF-8: then each
 * byte that is not ASCII becomes '?'. Returns NULL if there is no memory. */
static inline json_t *br_json_text(const char *bytes)
{
    json_t *value = bytes != NULL ? json_string(bytes) : json_null();
    if (value != NULL) return value;
    char *plain = strdup(bytes);
    for (char *c = plain; c != NULL && *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    value = plain != NULL ? json_string(plain) : NULL;
    free(plain);
    return value;
}

#endif
