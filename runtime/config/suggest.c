/* suggest.c - "did you mean": the nearest of some names, by the number of slips that make one word of the
 * other. */
#include "runtime/config/config.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 40 };

/* A capital letter or - for _ does not count as a difference. */
static char folded(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Letters left out, put in, exchanged for another, or swapped with their neighbour. */
static unsigned slips(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= na; i++) d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= nb; j++) d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++)
        for (size_t j = 1; j <= nb; j++) {
            char x = folded(a[i - 1]), y = folded(b[j - 1]);
            d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (x != y));
            if (i > 1 && j > 1 && x != y && x == folded(b[j - 2]) && y == folded(a[i - 2]))
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[na][nb];
}

static bool begins_with(const char *name, const char *word)
{
    while (*word != '\0' && folded(*name) == folded(*word)) name++, word++;
    return *word == '\0';
}

const char *br_suggest(const char *word, const char *const *names)
{
    size_t length = strlen(word);
    if (names == NULL || length == 0 || length > LONGEST) return NULL;
    unsigned allowed = length <= 3 ? 1 : length <= 6 ? 2 : 3;
    const char *nearest = NULL;
    unsigned smallest =
        2 * allowed + 1; /* twice the slips; the beginning of a name counts as one and a half */
    for (; *names != NULL; names++) {
        size_t n = strlen(*names);
        if (n == 0 || n > LONGEST) continue;
        unsigned distance = 2 * slips(word, length, *names, n);
        if (length >= 3 && begins_with(*names, word)) distance = least(distance, 3);
        /* Words that differ in all letters are not similar. */
        if (distance >= 2 * least((unsigned)length, (unsigned)n)) continue;
        if (distance < smallest) {
            smallest = distance;
            nearest = *names;
        }
    }
    return nearest;
}
