/* schema_words.c - see schema_words.h. */
#include "runtime/config/schema_words.h"

#include <string.h>

void br_words_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static bool is_list(enum br_param_type type)
{
    return type == BR_P_INTS || type == BR_P_REALS || type == BR_P_STRINGS || type == BR_P_MAPS;
}

bool br_words_has_range(const struct br_param *param)
{
    return param->min != 0 || param->max != 0;
}

bool br_words_has_counts(const struct br_param *param)
{
    return param->min_count != 0 || param->max_count != 0;
}

static void append_range(char *text, size_t size, const struct br_param *param)
{
    if (br_words_has_range(param))
        br_words_append(text, size, " from %.15g to %.15g", param->min, param->max);
    if (param->unit != NULL) br_words_append(text, size, " %s", param->unit);
}

void br_words_keys(char *text, size_t size, const struct br_param *fields)
{
    for (const struct br_param *p = fields; p != NULL && p->name != NULL; p++)
        br_words_append(text, size, "%s%s", p != fields ? ", " : "", p->name);
}

void br_words_expect_one(char *text, size_t size, const struct br_param *param)
{
    switch (param->type) {
    case BR_P_BOOL:
        br_words_append(text, size, "true or false");
        break;
    case BR_P_INT:
    case BR_P_INTS:
        br_words_append(text, size, "a whole number");
        append_range(text, size, param);
        break;
    case BR_P_REAL:
    case BR_P_REALS:
        br_words_append(text, size, "a number");
        append_range(text, size, param);
        break;
    case BR_P_STRING:
    case BR_P_STRINGS:
        br_words_append(text, size, "a text");
        break;
    case BR_P_PATH:
        br_words_append(text, size, "a path");
        break;
    case BR_P_RATIONAL:
        br_words_append(text, size, "a positive number or fraction such as 2560 or 5120/3");
        append_range(text, size, param);
        break;
    case BR_P_CHOICE:
        for (size_t i = 0; param->choices != NULL && param->choices[i] != NULL; i++)
            br_words_append(text, size, "%s%s", i == 0 ? "one of " : ", ", param->choices[i]);
        break;
    case BR_P_MAP:
    case BR_P_MAPS:
        br_words_append(text, size, "a map with ");
        br_words_keys(text, size, param->fields);
        break;
    }
}

static void append_counts(char *text, size_t size, const struct br_param *param)
{
    if (!br_words_has_counts(param)) return;
    if (param->max_count == 0)
        br_words_append(text, size, "at least %zu ", param->min_count);
    else if (param->max_count <= param->min_count)
        br_words_append(text, size, "%zu ", param->min_count);
    else
        br_words_append(text, size, "%zu to %zu ", param->min_count, param->max_count);
}

void br_words_expect(char *text, size_t size, const struct br_param *param)
{
    if (is_list(param->type)) {
        br_words_append(text, size, "a list of ");
        append_counts(text, size, param);
        br_words_append(text, size, "items, each ");
        if (param->group > 0) br_words_append(text, size, "a list of %zu: each ", param->group);
    }
    br_words_expect_one(text, size, param);
}

void br_words_show(char *text, size_t size, const struct br_node *value)
{
    text[0] = '\0';
    if (value->kind == BR_NODE_LIST)
        br_words_append(text, size, "a list of %zu", value->count);
    else if (value->kind == BR_NODE_MAP)
        br_words_append(text, size, "a map");
    else if (strlen(value->text) <= BR_WORDS_VALUE)
        br_words_append(text, size, "'%s'", value->text);
    else
        br_words_append(text, size, "'%.*s...'", BR_WORDS_VALUE, value->text);
}

bool br_words_wrong(const struct br_place *place, const struct br_node *value, const char *what,
                    const char *words)
{
    char expected[BR_WORDS_LENGTH] = "", shown[BR_WORDS_SHOWN];
    if (words != NULL)
        br_words_append(expected, sizeof expected, "%s", words);
    else if (value->kind == BR_NODE_SCALAR || !is_list(place->param->type))
        br_words_expect_one(expected, sizeof expected, place->param);
    else
        br_words_expect(expected, sizeof expected, place->param);
    br_words_show(shown, sizeof shown, value);
    br_config_error(place->config, value, "%s: %s%s %s; expected %s", place->name,
                    place->is_default ? "the default " : "", shown, what, expected);
    return false;
}
