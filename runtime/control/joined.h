/* joined.h - lists, or objects, of JSON of several stages as one. Texts are joined, not values:
 * a node of many channels answers with megabytes, in the loop. */
#ifndef BEAMRING_RUNTIME_CONTROL_JOINED_H
#define BEAMRING_RUNTIME_CONTROL_JOINED_H

#include <stdbool.h>
#include <stddef.h>

struct joined;

struct joined *joined_begin(void); /* NULL without memory, which the others may be given */
void joined_free(struct joined *joined);

/* Takes the text, from malloc, of a list or an object. False: it is neither, or there is no memory; the text
 * is still the caller's then. */
bool joined_add(struct joined *joined, char *text);
size_t joined_count(const struct joined *joined);

/* `before`, all elements or members, `behind`, from malloc; NULL without memory. One text stays as it is. Of
 * members with the same name lists are joined, and of other values the last one counts. */
char *joined_text(const struct joined *joined, const char *before, const char *behind);

#endif
