/* joined.c - see joined.h. */
#include "runtime/control/joined.h"

#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 1024 };

struct joined {
    size_t count;
    char *text[MOST_TEXTS];
};

/* "name": value, in a text. */
struct member {
    const char *name, *value;
    size_t name_length, length, number;
};

struct joined *joined_begin(void)
{
    return calloc(1, sizeof(struct joined));
}

void joined_free(struct joined *joined)
{
    for (size_t i = 0; joined != NULL && i < joined->count; i++) free(joined->text[i]);
    free(joined);
}

bool joined_add(struct joined *joined, char *text)
{
    size_t length = strlen(text);
    bool good = length >= 2 &&
                ((text[0] == '[' && text[length - 1] == ']') || (text[0] == '{' && text[length - 1] == '}'));
    if (joined == NULL || !good || joined->count == MOST_TEXTS) return false;
    if (joined->count > 0 && joined->text[0][0] != text[0]) return false;
    joined->text[joined->count++] = text;
    return true;
}

size_t joined_count(const struct joined *joined)
{
    return joined != NULL ? joined->count : 0;
}

static const char *skip_space(const char *c)
{
    return c + strspn(c, " \t\r\n");
}

/* Where the string that begins here ends. */
static const char *behind_string(const char *c)
{
    for (c++; *c != '"' && *c != '\0'; c++)
        if (*c == '\\' && c[1] != '\0') c++;
    return *c == '"' ? c + 1 : c;
}

/* The comma behind the value, or the bracket that ends what it is in. */
static const char *behind_value(const char *c)
{
    int depth = 0;
    while (*c != '\0') {
        if (depth == 0 && (*c == ',' || *c == ']' || *c == '}')) return c;
        if (*c == '"') {
            c = behind_string(c);
            continue;
        }
        depth += (*c == '[' || *c == '{') - (*c == ']' || *c == '}');
        c++;
    }
    return c;
}

/* The members of an object's text come to those that are there. False: no memory, or it is no object. */
static bool read_members(const char *text, struct member **member, size_t *count, size_t *room)
{
    const char *c = skip_space(text + 1);
    while (*c == '"') {
        struct member m = {.name = c, .number = *count};
        c = behind_string(c);
        m.name_length = (size_t)(c - m.name);
        c = skip_space(c);
        if (*c != ':') return false;
        m.value = skip_space(c + 1);
        c = behind_value(m.value);
        m.length = (size_t)(c - m.value);
        while (m.length > 0 && strchr(" \t\r\n", m.value[m.length - 1]) != NULL) m.length--;
        if (*count == *room) {
            size_t more = 2 * *room + 64;
            struct member *longer = realloc(*member, more * sizeof *longer);
            if (longer == NULL) return false;
            *member = longer;
            *room = more;
        }
        (*member)[(*count)++] = m;
        if (*c == ',') c = skip_space(c + 1);
    }
    return *c == '}';
}

static int by_name(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    size_t least = a->name_length < b->name_length ? a->name_length : b->name_length;
    int order = memcmp(a->name, b->name, least);
    if (order != 0) return order;
    if (a->name_length != b->name_length) return a->name_length < b->name_length ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* The inside of "[...]", of which there may be none. True: there was some. */
static bool put_inside(const char *text, size_t length, bool first, FILE *out)
{
    const char *begin = skip_space(text + 1), *end = text + length - 1;
    if (begin >= end) return false;
    fprintf(out, "%s%.*s", first ? "" : ",\n", (int)(end - begin), begin);
    return true;
}

/* Members with one name, [count] of them. */
static void put_same(const struct member *member, size_t count, FILE *out)
{
    bool lists = true, first = true;
    for (size_t i = 0; i < count; i++) lists &= member[i].value[0] == '[';
    fprintf(out, "%.*s: ", (int)member->name_length, member->name);
    if (count == 1 || !lists) {
        fprintf(out, "%.*s", (int)member[count - 1].length, member[count - 1].value);
        return;
    }
    fputc('[', out);
    for (size_t i = 0; i < count; i++) first &= !put_inside(member[i].value, member[i].length, first, out);
    fputc(']', out);
}

static bool put_members(const struct joined *joined, FILE *out)
{
    struct member *member = NULL;
    size_t count = 0, room = 0;
    bool good = true;
    for (size_t i = 0; good && i < joined->count; i++)
        good = read_members(joined->text[i], &member, &count, &room);
    if (good && count > 0) qsort(member, count, sizeof *member, by_name);
    fputc('{', out);
    for (size_t i = 0, same; good && i < count; i += same) {
        for (same = 1; i + same < count && member[i + same].name_length == member[i].name_length &&
                       memcmp(member[i + same].name, member[i].name, member[i].name_length) == 0;)
            same++;
        fputs(i > 0 ? ",\n " : "\n ", out);
        put_same(&member[i], same, out);
    }
    fputc('}', out);
    free(member);
    return good;
}

char *joined_text(const struct joined *joined, const char *before, const char *behind)
{
    char *text = NULL;
    size_t length;
    bool good = true, first = true;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return NULL;
    (void)__fsetlocking(out, FSETLOCKING_BYCALLER); /* nobody else writes here */
    fputs(before, out);
    if (joined->count == 1) {
        fputs(joined->text[0], out);
    } else if (joined->text[0][0] == '{') {
        good = put_members(joined, out);
    } else {
        fputc('[', out);
        for (size_t i = 0; i < joined->count; i++)
            first &= !put_inside(joined->text[i], strlen(joined->text[i]), first, out);
        fputc(']', out);
    }
    fputs(behind, out);
    if (fclose(out) == 0 && good) return text;
    free(text);
    return NULL;
}
