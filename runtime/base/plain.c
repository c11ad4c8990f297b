/* plain.c - see plain.h. */
#include "runtime/base/plain.h"

/* Bytes of the UTF-8 character at c, 0 where there is none, or one that only commands (C1). */
static unsigned character(const unsigned char *c)
{
    unsigned more = c[0] >= 0xc2 && c[0] < 0xe0 ? 1 : c[0] >= 0xe0 && c[0] < 0xf0 ? 2 : c[0] < 0xf5 ? 3 : 0;
    if (c[0] < 0xc2 || more == 0 || (c[0] == 0xc2 && c[1] < 0xa0)) return 0;
    for (unsigned i = 1; i <= more; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    return 1 + more;
}

void br_text_plain(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0';) {
        unsigned length = *c >= 0x80 ? character(c) : 1;
        if (length == 0 || *c == 0x7f || (*c < 0x20 && *c != '\n' && *c != '\t')) *c = '?';
        c += length > 0 ? length : 1;
    }
}
