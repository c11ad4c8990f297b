/* Register assignments in words, compared with the functions that the kernels use. */
#include "tools/layouts/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 24, VARIABLES = 8, WORD = 32 };

struct bit {
    char name[WORD];
    int number;
};

struct assignment {
    struct bit physical[BITS], logical[BITS];
    unsigned count;
};

struct names {
    char name[VARIABLES][WORD];
    unsigned count;
};

/* ---- words ---- */

static bool is_noise(char c)
{
    return isspace((unsigned char)c) || strchr(",;*{}", c);
}

/* The next word of the text, or false at its end. A word that is too long to be a bit's name is cut. */
static bool next_word(const char **text, char word[WORD])
{
    const char *c = *text;
    while (*c && is_noise(*c)) c++;
    size_t length = 0;
    while (*c && !is_noise(*c)) {
        if (length < WORD - 1) word[length++] = *c;
        c++;
    }
    if (length > 1 && word[length - 1] == '.') length--; /* the end of a sentence */
    word[length] = 0;
    *text = c;
    return length > 0;
}

/* "k3" is bit 3 of k, "ReIm" bit 0 of ReIm. False if it is not a bit. */
static bool read_bit(const char *word, struct bit *bit)
{
    size_t length = strlen(word), digits = length;
    while (digits > 0 && isdigit((unsigned char)word[digits - 1])) digits--;
    if (digits == 0) return false;
    for (size_t i = 0; i < digits; i++)
        if (!isalpha((unsigned char)word[i]) && word[i] != '_') return false;
    *bit = (struct bit){.number = digits < length ? atoi(word + digits) : 0};
    memcpy(bit->name, word, digits);
    return bit->number < BITS;
}

static bool is_number(const char *word)
{
    for (const char *c = word; *c; c++)
        if (!isdigit((unsigned char)*c)) return false;
    return *word != 0;
}

/* Bits that a word stands for: one, or a range "t4..t0". 0: it is none. */
static unsigned read_bits(const char *word, struct bit *bits, unsigned room)
{
    const char *dots = strstr(word, "..");
    if (!dots) return room > 0 && read_bit(word, bits) ? 1 : 0;
    char from_word[WORD];
    struct bit from, to;
    snprintf(from_word, sizeof from_word, "%.*s", (int)(dots - word), word);
    if (!read_bit(from_word, &from) || !read_bit(dots + 2, &to) || strcmp(from.name, to.name) != 0) return 0;
    unsigned count = 0;
    for (int step = from.number > to.number ? -1 : 1;; from.number += step) {
        if (count == room) return 0;
        bits[count++] = from;
        if (from.number == to.number) return count;
    }
}

/* Reads bits up to a word that is none (which is left to be read) or up to `most`; labels are passed over. */
static unsigned read_side(const char **text, struct bit *bits, unsigned room, unsigned most)
{
    unsigned count = 0;
    while (count < most) {
        const char *after = *text;
        char word[WORD], following[WORD];
        if (!next_word(&after, word)) break;
        if (word[strlen(word) - 1] == ':') {
            /* A label opens a group; on the right side it would be one too early. */
            if (count > 0) break;
            *text = after;
            continue;
        }
        const char *peek = after;
        if (isalpha((unsigned char)word[0]) && !isdigit((unsigned char)word[strlen(word) - 1]) &&
            next_word(&peek, following) && is_number(following) && strlen(word) + strlen(following) < WORD) {
            strcat(word, following); /* "lane 0" */
            after = peek;
        }
        unsigned read = read_bits(word, bits + count, room - count);
        if (read == 0) break;
        count += read;
        *text = after;
    }
    return count;
}

/* Whether another group begins here. */
static bool arrow(const char **text)
{
    char word[WORD];
    const char *after = *text;
    if (!next_word(&after, word) || strcmp(word, "<->") != 0) return false;
    *text = after;
    return true;
}

static bool read_assignment(const char *text, struct assignment *to, char *wrong, size_t wrong_size)
{
    *to = (struct assignment){0};
    for (;;) {
        unsigned room = BITS - to->count;
        unsigned left = read_side(&text, to->physical + to->count, room, room);
        if (left == 0 || !arrow(&text)) break;
        unsigned right = read_side(&text, to->logical + to->count, room, left);
        if (right != left) {
            snprintf(wrong, wrong_size, "%u physical bits from %s%d on stand for %u logical ones", left,
                     to->physical[to->count].name, to->physical[to->count].number, right);
            return false;
        }
        to->count += left;
    }
    if (to->count == 0) snprintf(wrong, wrong_size, "there is no group `physical bits <-> logical bits`");
    return to->count > 0;
}

/* ---- meaning ---- */

static bool read_names(const char *list, struct names *names)
{
    names->count = 0;
    while (names->count < VARIABLES && next_word(&list, names->name[names->count])) names->count++;
    return names->count > 0 && !*list;
}

static int find_name(const struct names *names, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0) return (int)i;
    return -1;
}

/* Each bit belongs to one of the variables, and none stands twice. Fills which variable. */
static bool resolve(const struct bit *bits, unsigned count, const struct names *names, int *variable,
                    char *wrong, size_t wrong_size)
{
    for (unsigned i = 0; i < count; i++) {
        variable[i] = find_name(names, bits[i].name);
        if (variable[i] < 0) {
            snprintf(wrong, wrong_size, "%s%d belongs to none of the variables", bits[i].name,
                     bits[i].number);
            return false;
        }
        for (unsigned j = 0; j < i; j++)
            if (variable[j] == variable[i] && bits[j].number == bits[i].number) {
                snprintf(wrong, wrong_size, "%s%d stands twice", bits[i].name, bits[i].number);
                return false;
            }
    }
    return true;
}

/* The physical variables must run from 0 to a power of two: no bit between is left out. */
static bool complete(const struct assignment *a, const int *variable, const struct names *names, char *wrong,
                     size_t wrong_size)
{
    for (unsigned v = 0; v < names->count; v++) {
        int highest = -1, count = 0;
        for (unsigned i = 0; i < a->count; i++)
            if (variable[i] == (int)v) {
                count++;
                if (a->physical[i].number > highest) highest = a->physical[i].number;
            }
        if (count != highest + 1 || count == 0) {
            snprintf(wrong, wrong_size, "%d bits of %s are given, the highest is %d", count, names->name[v],
                     highest);
            return false;
        }
    }
    return true;
}

static bool compare(const struct assignment *a, const int *physical_of, const int *logical_of,
                    const struct names *physical, const struct names *logical, layouts_function *function,
                    const void *context, char *wrong, size_t wrong_size)
{
    for (unsigned value = 0; value < 1u << a->count; value++) {
        unsigned in[VARIABLES] = {0}, said[VARIABLES] = {0}, is[VARIABLES] = {0};
        for (unsigned i = 0; i < a->count; i++) {
            in[physical_of[i]] |= (value >> i & 1) << a->physical[i].number;
            said[logical_of[i]] |= (value >> i & 1) << a->logical[i].number;
        }
        function(context, in, is);
        for (unsigned v = 0; v < logical->count; v++) {
            if (is[v] == said[v]) continue;
            int used = snprintf(wrong, wrong_size, "%s is %u, the text says %u, at", logical->name[v], is[v],
                                said[v]);
            for (unsigned p = 0; p < physical->count && used >= 0 && (size_t)used < wrong_size; p++)
                used += snprintf(wrong + used, wrong_size - (size_t)used, " %s=%u", physical->name[p], in[p]);
            return false;
        }
    }
    return true;
}

bool layouts_assignment(struct layouts *report, const char *what, const char *text, const char *physical,
                        const char *logical, layouts_function *function, const void *context)
{
    struct assignment a;
    struct names physical_names, logical_names;
    int physical_of[BITS], logical_of[BITS];
    char wrong[256] = "too many names of variables";
    bool good = read_names(physical, &physical_names) && read_names(logical, &logical_names) &&
                read_assignment(text, &a, wrong, sizeof wrong) &&
                resolve(a.physical, a.count, &physical_names, physical_of, wrong, sizeof wrong) &&
                resolve(a.logical, a.count, &logical_names, logical_of, wrong, sizeof wrong) &&
                complete(&a, physical_of, &physical_names, wrong, sizeof wrong) &&
                compare(&a, physical_of, logical_of, &physical_names, &logical_names, function, context,
                        wrong, sizeof wrong);
    report->passes++;
    if (report->out && report->verbose && good)
        fprintf(report->out, "  %s: the register assignment is as said\n", what);
    return layouts_expect(report, good, "register assignment of %s: %s", what, wrong);
}

/* ---- comments in sources ---- */

static char *read_source(const char *path)
{
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", LAYOUTS_TOP, path);
    FILE *file = fopen(full, "r");
    if (!file) return NULL;
    size_t room = 1 << 20;
    char *text = malloc(room);
    size_t length = text ? fread(text, 1, room - 1, file) : 0;
    fclose(file);
    if (text) text[length] = 0;
    return text;
}

bool layouts_comment(struct layouts *report, const char *path, const char *tag, const char *physical,
                     const char *logical, layouts_function *function, const void *context)
{
    char *source = read_source(path), what[256];
    snprintf(what, sizeof what, "`%s` in %s", tag, path);
    if (!layouts_expect(report, source != NULL, "the source of %s cannot be read", what)) return false;
    char *found = strstr(source, tag);
    bool good = layouts_expect(report, found != NULL, "there is no comment %s", what);
    if (good) {
        char *text = found + strlen(tag), *end = strstr(text, "*/");
        if (end) *end = 0;
        good = layouts_assignment(report, what, text, physical, logical, function, context);
    }
    free(source);
    return good;
}
