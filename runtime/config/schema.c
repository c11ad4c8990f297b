/* schema.c - fills a struct from a map by its schema, and says all that is wrong with the map. See config.h
 * and param.h. */
#include "runtime/config/parts.h"
#include "runtime/config/schema_words.h"

#include "buffers/stream.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LENGTH = 200 };

static size_t fill(struct br_config *config, const struct br_node *map, const struct br_param *schema,
                   const char *const *also, const char *prefix, void *self);

/* --- one value -------------------------------------------------------------------------------- */

/* Nothing, or YAML's words for it. */
static bool is_null(const struct br_node *value)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (value->kind != BR_NODE_SCALAR || value->quoted) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(value->text, words[i]) == 0) return true;
    return false;
}

/* A scalar that is not nothing. */
static bool is_word(const struct br_place *place, const struct br_node *value)
{
    if (value->kind != BR_NODE_SCALAR) return br_words_wrong(place, value, "is not a single value", NULL);
    if (is_null(value))
        return br_words_wrong(place, value, "is not a value (leave the key out for its default)", NULL);
    return true;
}

static bool in_range(const struct br_place *place, const struct br_node *value, double number)
{
    const struct br_param *param = place->param;
    if (!br_words_has_range(param) || (number >= param->min && number <= param->max)) return true;
    return br_words_wrong(place, value, "is out of range", NULL);
}

/* Decimal numbers only: strtod would take words and blanks as well. */
static bool parse_real(const char *text, double *number)
{
    size_t length = strlen(text);
    char *end;
    if (length == 0 || strspn(text, "+-.0123456789eE") != length) return false;
    *number = strtod(text, &end);
    return *end == '\0';
}

static bool read_bool(const struct br_place *place, const struct br_node *value, bool *out)
{
    if (!is_word(place, value)) return false;
    bool is_true = strcmp(value->text, "true") == 0;
    if (value->quoted || (!is_true && strcmp(value->text, "false") != 0)) {
        static const char *const yes[] = {"yes", "Yes", "on", "On", "True", "TRUE", "1", NULL};
        static const char *const no[] = {"no", "No", "off", "Off", "False", "FALSE", "0", NULL};
        const char *words = NULL;
        for (size_t i = 0; yes[i] != NULL; i++) {
            if (strcmp(value->text, yes[i]) == 0) words = "true or false; did you mean 'true'?";
            if (strcmp(value->text, no[i]) == 0) words = "true or false; did you mean 'false'?";
        }
        return br_words_wrong(place, value, value->quoted ? "is in quotes, so it is a text" : "is neither",
                              words);
    }
    *out = is_true;
    return true;
}

static bool read_real(const struct br_place *place, const struct br_node *value, double *out)
{
    double number;
    if (!is_word(place, value)) return false;
    if (value->quoted) return br_words_wrong(place, value, "is in quotes, so it is a text", NULL);
    if (!parse_real(value->text, &number)) return br_words_wrong(place, value, "is not a number", NULL);
    if (!isfinite(number)) return br_words_wrong(place, value, "is too large", NULL);
    if (!in_range(place, value, number)) return false;
    *out = number;
    return true;
}

bool br_parse_whole(const char *text, int64_t *number)
{
    char digits[64];
    size_t n = 0;
    long power = 0;
    bool minus = *text == '-', point = false, fits = true;
    for (text += minus || *text == '+'; *text == '.' || (*text >= '0' && *text <= '9'); text++) {
        if (n == sizeof digits || (*text == '.' && point)) return false;
        point = point || *text == '.';
        if (*text != '.') digits[n++] = *text;
        power -= *text != '.' && point;
    }
    char *end = (char *)(uintptr_t)text;
    if (n > 0 && (*text == 'e' || *text == 'E')) power += strtol(text + 1, &end, 10);
    if (n == 0 || *end != '\0') return false;
    for (; n > 0 && digits[n - 1] == '0'; n--) power++;
    *number = 0;
    if (n == 0) return true;
    if (power < 0 || power > 18) return false;
    for (size_t i = 0; i < n + (size_t)power; i++)
        fits =
            fits && !__builtin_mul_overflow(*number, 10, number) &&
            !__builtin_add_overflow(*number, i < n ? (minus ? '0' - digits[i] : digits[i] - '0') : 0, number);
    return fits;
}

/* Also 1e6, which is how people write a million, and 0xff. */
static bool read_int(const struct br_place *place, const struct br_node *value, int64_t *out)
{
    if (!is_word(place, value)) return false;
    if (value->quoted) return br_words_wrong(place, value, "is in quotes, so it is a text", NULL);
    const char *digits = value->text + (value->text[0] == '-' || value->text[0] == '+');
    bool plain = digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits);
    bool hexadecimal = digits[0] == '0' && digits[1] == 'x' && digits[2] != '\0' &&
                       strspn(digits + 2, "0123456789abcdefABCDEF") == strlen(digits + 2);
    if (plain && digits[0] == '0' && digits[1] != '\0')
        return br_words_wrong(place, value, "begins with 0, which some read as octal", NULL);
    int64_t number = 0;
    double real;
    if (plain || hexadecimal) {
        errno = 0;
        number = strtoll(value->text, NULL, hexadecimal ? 16 : 10);
        if (errno != 0) return br_words_wrong(place, value, "does not fit into 64 bits", NULL);
    } else {
        if (!parse_real(value->text, &real))
            return br_words_wrong(place, value, "is not a whole number", NULL);
        if (!br_parse_whole(value->text, &number))
            return br_words_wrong(place, value,
                                  fabs(real) < 0x1p63 ? "is not a whole number" : "does not fit into 64 bits",
                                  NULL);
    }
    if (!in_range(place, value, (double)number)) return false;
    *out = number;
    return true;
}

static bool read_text(const struct br_place *place, const struct br_node *value, const char **out)
{
    if (!is_word(place, value)) return false;
    if (place->param->type == BR_P_PATH && value->text[0] == '\0')
        return br_words_wrong(place, value, "is empty", NULL);
    *out = value->text;
    return true;
}

static bool read_choice(const struct br_place *place, const struct br_node *value, const char **out)
{
    const char *const *choices = place->param->choices;
    if (!is_word(place, value)) return false;
    for (size_t i = 0; choices != NULL && choices[i] != NULL; i++)
        if (strcmp(choices[i], value->text) == 0) {
            *out = choices[i];
            return true;
        }
    char expected[BR_WORDS_LENGTH] = "";
    const char *similar = br_suggest(value->text, choices);
    br_words_expect_one(expected, sizeof expected, place->param);
    if (similar != NULL) br_words_append(expected, sizeof expected, "; did you mean '%s'?", similar);
    return br_words_wrong(place, value, "is not a choice", expected);
}

static bool read_rational(const struct br_place *place, const struct br_node *value, struct br_rational *out)
{
    struct br_rational number;
    if (!is_word(place, value)) return false;
    if (value->quoted) return br_words_wrong(place, value, "is in quotes, so it is a text", NULL);
    if (br_rational_parse(value->text, &number, NULL) != BR_OK)
        return br_words_wrong(place, value, "is not a positive fraction", NULL);
    if (!in_range(place, value, (double)number.num / (double)number.den)) return false;
    *out = number;
    return true;
}

/* --- lists and maps --------------------------------------------------------------------------- */

static bool read_map(const struct br_place *place, const struct br_node *value, void *self)
{
    if (value->kind != BR_NODE_MAP) return br_words_wrong(place, value, "is not a map", NULL);
    return fill(place->config, value, place->param->fields, NULL, place->name, self) == 0;
}

static size_t item_size(const struct br_param *param)
{
    switch (param->type) {
    case BR_P_INTS:
        return sizeof(int64_t);
    case BR_P_REALS:
        return sizeof(double);
    case BR_P_STRINGS:
        return sizeof(const char *);
    default:
        return param->size;
    }
}

static bool read_number(const struct br_place *place, const struct br_node *value, void *out)
{
    return place->param->type == BR_P_INTS ? read_int(place, value, out) : read_real(place, value, out);
}

/* An item that is a list of numbers itself. */
static bool read_group(const struct br_place *place, const struct br_node *value, char *out)
{
    size_t bad = 0;
    if (value->kind != BR_NODE_LIST || value->count != place->param->group) {
        char expected[BR_WORDS_LENGTH] = "";
        br_words_append(expected, sizeof expected, "a list of %zu numbers", place->param->group);
        return br_words_wrong(place, value, "does not fit", expected);
    }
    for (size_t i = 0; i < value->count; i++)
        bad += !read_number(place, value->item[i], out + i * item_size(place->param));
    return bad == 0;
}

static bool read_item(const struct br_place *place, const struct br_node *value, void *out)
{
    switch (place->param->type) {
    case BR_P_INTS:
    case BR_P_REALS:
        return place->param->group > 0 ? read_group(place, value, out) : read_number(place, value, out);
    case BR_P_STRINGS:
        return read_text(place, value, out);
    default:
        return read_map(place, value, out);
    }
}

static bool count_fits(const struct br_place *place, const struct br_node *value, size_t count)
{
    const struct br_param *param = place->param;
    if (!br_words_has_counts(param)) return true;
    if (count >= param->min_count && (param->max_count == 0 || count <= param->max_count)) return true;
    char what[64], expected[BR_WORDS_LENGTH] = "";
    snprintf(what, sizeof what, "has %zu item%s", count, count == 1 ? "" : "s");
    br_words_expect(expected, sizeof expected, param);
    return br_words_wrong(place, value, what, expected);
}

/* Numbers in an item. */
static size_t group_size(const struct br_param *param)
{
    bool numbers = param->type == BR_P_INTS || param->type == BR_P_REALS;
    return numbers && param->group > 0 ? param->group : 1;
}

/* An array of the items in the config's arena; a single value is a list of one, but for maps. */
static bool read_list(const struct br_place *place, const struct br_node *value, size_t *count,
                      const void **array)
{
    const struct br_param *param = place->param;
    bool single = value->kind == BR_NODE_SCALAR && param->type != BR_P_MAPS;
    if (!single && value->kind != BR_NODE_LIST) return br_words_wrong(place, value, "is not a list", NULL);
    if (single && is_null(value)) return is_word(place, value);
    size_t n = single ? 1 : value->count, each = group_size(param);
    size_t size = each * item_size(param), bad = 0;
    if (!count_fits(place, value, n)) return false;
    char *items = br_config_alloc(place->config, n * size);
    for (size_t i = 0; i < n; i++) {
        char name[NAME_LENGTH];
        struct br_place item = *place;
        snprintf(name, sizeof name, "%s[%zu]", place->name, i);
        if (!single) item.name = name;
        if (!read_item(&item, single ? value : value->item[i], items + i * size)) bad++;
    }
    if (bad > 0) return false;
    *count = n * each;
    *array = items;
    return true;
}

/* The value of an absent parameter; zero is right for all others. */
static void set_absent(const struct br_param *param, void *field)
{
    if (param->type == BR_P_REAL) *(double *)field = NAN;
}

static bool read_param(const struct br_place *place, const struct br_node *value, void *field)
{
    const struct br_param *param = place->param;
    switch (param->type) {
    case BR_P_BOOL:
        return read_bool(place, value, field);
    case BR_P_INT:
        return read_int(place, value, field);
    case BR_P_REAL:
        return read_real(place, value, field);
    case BR_P_STRING:
    case BR_P_PATH:
        return read_text(place, value, field);
    case BR_P_CHOICE:
        return read_choice(place, value, field);
    case BR_P_RATIONAL:
        return read_rational(place, value, field);
    case BR_P_INTS: {
        struct br_ints *list = field;
        const void *array;
        if (!read_list(place, value, &list->count, &array)) return false;
        list->value = array;
        return true;
    }
    case BR_P_REALS: {
        struct br_reals *list = field;
        const void *array;
        if (!read_list(place, value, &list->count, &array)) return false;
        list->value = array;
        return true;
    }
    case BR_P_STRINGS: {
        struct br_strings *list = field;
        const void *array;
        if (!read_list(place, value, &list->count, &array)) return false;
        list->value = array;
        return true;
    }
    case BR_P_MAPS: {
        struct br_maps *list = field;
        return read_list(place, value, &list->count, &list->value);
    }
    case BR_P_MAP: {
        void *self = br_config_alloc(place->config, param->size);
        if (!read_map(place, value, self)) return false;
        memcpy(field, &self, sizeof self);
        return true;
    }
    }
    br_config_error(place->config, value, "%s: the schema gives it an unknown type (%d)", place->name,
                    (int)param->type);
    return false;
}

/* `def` as a node at the place of the map, as if the user had written it there. */
static struct br_node *parse_default(struct br_config *config, const struct br_node *map, const char *def)
{
    struct br_node *node;
    if (strpbrk(def, "[]{}\"'&*!|>%@`#:,?~$ \n") == NULL &&
        def[0] != '\0') { /* surely a plain word: the usual case */
        node = br_config_alloc(config, sizeof *node);
        *node = (struct br_node){.kind = BR_NODE_SCALAR, .text = def};
    } else {
        size_t nodes = config->nodes; /* the limit is on what the user wrote */
        struct br_origin origin = {map != NULL && map->file != NULL ? map->file : "default",
                                   map != NULL ? map->line : 1, map != NULL ? map->column : 0};
        node = br_yaml_parse(config, origin, def, strlen(def), NULL);
        config->nodes = nodes;
        if (node == NULL) return NULL;
    }
    node->file = map != NULL ? map->file : NULL;
    node->line = map != NULL ? map->line : 0;
    node->column = map != NULL ? map->column : 0;
    return node;
}

static void fill_param(struct br_config *config, const struct br_node *map, const struct br_param *param,
                       const char *name, bool misspelt, void *field)
{
    struct br_place place = {config, name, param, false};
    const struct br_node *value = br_node_get(map, param->name);
    set_absent(param, field);
    if (value == NULL && misspelt) return;
    if (value == NULL && param->required) {
        char expected[BR_WORDS_LENGTH] = "";
        br_words_expect(expected, sizeof expected, param);
        br_config_error(config, map, "'%s' is missing; expected %s%s%s%s", name, expected,
                        param->help != NULL ? " (" : "", param->help != NULL ? param->help : "",
                        param->help != NULL ? ")" : "");
        return;
    }
    if (value == NULL && param->def != NULL) {
        place.is_default = true;
        value = parse_default(config, map, param->def);
        if (value == NULL)
            br_config_error(config, map, "%s: the schema's default '%s' is not YAML", name, param->def);
    }
    if (value != NULL) read_param(&place, value, field);
}

static bool is_known(const char *key, const struct br_param *schema, const char *const *also)
{
    for (; schema != NULL && schema->name != NULL; schema++)
        if (strcmp(schema->name, key) == 0) return true;
    for (; also != NULL && *also != NULL; also++)
        if (strcmp(*also, key) == 0) return true;
    return false;
}

/* All keys that may stand there, ended by NULL. */
static const char **all_keys(struct br_config *config, const struct br_param *schema, const char *const *also)
{
    size_t nschema = 0, nalso = 0, n = 0;
    while (schema != NULL && schema[nschema].name != NULL) nschema++;
    while (also != NULL && also[nalso] != NULL) nalso++;
    const char **names = br_config_alloc(config, (nschema + nalso + 1) * sizeof *names);
    for (size_t i = 0; i < nschema; i++) names[n++] = schema[i].name;
    for (size_t i = 0; i < nalso; i++) names[n++] = also[i];
    return names;
}

/* Whether a required parameter that is missing seems to be there by another name: that is reported then. */
static bool is_misspelt(struct br_config *config, const struct br_node *map, const struct br_param *schema,
                        const char *const *also, const struct br_param *param)
{
    if (map == NULL || !param->required || br_node_get(map, param->name) != NULL) return false;
    const char *const *names = all_keys(config, schema, also);
    for (size_t i = 0; i < map->count && i < 64; i++) {
        const char *similar =
            is_known(map->key[i]->text, schema, also) ? NULL : br_suggest(map->key[i]->text, names);
        if (similar != NULL && strcmp(similar, param->name) == 0) return true;
    }
    return false;
}

static void report_unknown(struct br_config *config, const struct br_node *key, const struct br_param *schema,
                           const char *const *also, const char *prefix)
{
    if (config->nmistakes >= BR_CONFIG_MAX_ERRORS) { /* nobody will read it, and there may be a million */
        config->nmistakes++;
        return;
    }
    const char **names = all_keys(config, schema, also);
    const char *similar = br_suggest(key->text, names);
    char expected[BR_WORDS_LENGTH] = "";
    for (size_t i = 0; names[i] != NULL; i++)
        br_words_append(expected, sizeof expected, "%s%s", i > 0 ? ", " : "", names[i]);
    br_config_error(config, key, "unknown key '%.*s'%s%s%s; expected %s%s%s%s%s", BR_WORDS_VALUE, key->text,
                    prefix[0] != '\0' ? " in '" : "", prefix, prefix[0] != '\0' ? "'" : "",
                    names[0] != NULL ? "one of " : "no keys", expected,
                    similar != NULL ? "; did you mean '" : "", similar != NULL ? similar : "",
                    similar != NULL ? "'?" : "");
}

static size_t fill(struct br_config *config, const struct br_node *map, const struct br_param *schema,
                   const char *const *also, const char *prefix, void *self)
{
    size_t before = config->nmistakes;
    for (const struct br_param *param = schema; param != NULL && param->name != NULL; param++) {
        char name[NAME_LENGTH];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", param->name);
        fill_param(config, map, param, name, is_misspelt(config, map, schema, also, param),
                   (char *)self + param->offset);
    }
    for (size_t i = 0; map != NULL && i < map->count; i++)
        if (!is_known(map->key[i]->text, schema, also))
            report_unknown(config, map->key[i], schema, also, prefix);
    return config->nmistakes - before;
}

size_t br_config_fill(struct br_config *config, const struct br_node *map, const struct br_param *schema,
                      const char *const *also, void *self)
{
    if (map != NULL && map->kind != BR_NODE_MAP) {
        char expected[BR_WORDS_LENGTH] = "", shown[BR_WORDS_SHOWN];
        br_words_show(shown, sizeof shown, map);
        br_words_keys(expected, sizeof expected, schema);
        br_config_error(config, map, "%s is not a map; expected a map with %s", shown, expected);
        return 1;
    }
    return fill(config, map, schema, also, "", self);
}

bool br_config_fill_one(struct br_config *config, const struct br_node *value, const struct br_param *schema,
                        void *into)
{
    struct br_node key = {.kind = BR_NODE_SCALAR,
                          .file = value->file,
                          .line = value->line,
                          .column = value->column,
                          .text = schema[0].name};
    struct br_node *keys[] = {&key}, *values[] = {(struct br_node *)(uintptr_t)value};
    struct br_node map = {.kind = BR_NODE_MAP,
                          .file = value->file,
                          .line = value->line,
                          .column = value->column,
                          .count = 1,
                          .key = keys,
                          .item = values};
    return br_config_fill(config, &map, schema, NULL, into) == 0;
}
