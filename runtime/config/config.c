/* config.c - the config as an object: loading, and the list of mistakes. See config.h. */
#include "buffers/numbers.h"
#include "runtime/config/parts.h"

#include "runtime/base/plain.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MISTAKE_LENGTH = 1500 };

void *br_config_alloc(struct br_config *config, size_t bytes)
{
    void *memory = br_arena_alloc(&config->arena, bytes);
    if (memory != NULL) return memory;
    fprintf(stderr, "beamring: no memory for %zu bytes of configuration\n", bytes);
    exit(1);
}

const char *br_config_text(struct br_config *config, const char *text, size_t length)
{
    char *copy = br_config_alloc(config, length + 1);
    if (length > 0) memcpy(copy, text, length);
    return copy;
}

const char *br_config_file(struct br_config *config, const char *name)
{
    for (size_t i = 0; i < config->nfiles; i++)
        if (strcmp(config->file[i], name) == 0) return config->file[i];
    const char *copy = br_config_text(config, name, strlen(name));
    if (config->nfiles < sizeof config->file / sizeof *config->file) config->file[config->nfiles++] = copy;
    return copy;
}

/* --- loading ---------------------------------------------------------------------------------- */

static int begin(struct br_config **result, struct br_error *error)
{
    *result = calloc(1, sizeof **result);
    return *result != NULL ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory for the configuration");
}

static int finish(struct br_config **result, int status, size_t nset, const char *const *set)
{
    struct br_config *config = *result;
    if (status != BR_OK) {
        br_config_free(config);
        *result = NULL;
        return status;
    }
    for (size_t i = 0; i < nset; i++) br_config_digest_add(config, set[i], strlen(set[i]) + 1);
    for (size_t i = 0; i < nset; i++) br_config_set(config, set[i], (unsigned)i + 1);
    return BR_OK;
}

int br_config_load(struct br_config **config, const char *path, size_t nset, const char *const *set,
                   struct br_error *error)
{
    int status = begin(config, error);
    if (status != BR_OK) return status;
    status = br_include_file(*config, path, &(*config)->root, error);
    return finish(config, status, nset, set);
}

int br_config_parse(struct br_config **config, const char *name, const char *text, size_t length, size_t nset,
                    const char *const *set, struct br_error *error)
{
    int status = begin(config, error);
    if (status != BR_OK) return status;
    status = br_include_text(*config, name, text, length, &(*config)->root, error);
    return finish(config, status, nset, set);
}

/* Blanks in the place of tabs, which JSON allows between values and YAML does not; columns stay. */
static char *without_tabs(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    bool quoted = false;
    if (copy == NULL) return NULL;
    for (size_t i = 0; i < length; i++) {
        copy[i] = text[i] == '\t' && !quoted ? ' ' : text[i];
        if (quoted && text[i] == '\\' && i + 1 < length) {
            i++;
            copy[i] = text[i];
        } else if (text[i] == '"') {
            quoted = !quoted;
        }
    }
    copy[length] = '\0';
    return copy;
}

int br_config_parse_value(struct br_config **result, const char *name, const char *text, size_t length,
                          struct br_error *error)
{
    int status = begin(result, error);
    if (status != BR_OK) return status;
    struct br_config *config = *result;
    struct br_origin origin = {br_config_file(config, name), 0, 0};
    config->literal = true;
    const char *variable = memmem(text, length, "${", 2);
    char *copy = without_tabs(text, length);
    if (copy == NULL)
        return finish(result, br_fail(error, BR_E_NO_MEMORY, "no memory for a request"), 0, NULL);
    if (length > BR_CONFIG_MAX_BYTES) {
        br_config_error_at(config, origin.file, 1, 1, "%zu bytes are too many; expected at most %d", length,
                           BR_CONFIG_MAX_BYTES);
    } else if (variable != NULL) {
        unsigned line = 1, column = 1;
        for (const char *c = text; c < variable; c++) {
            line += *c == '\n';
            column = *c == '\n' ? 1 : column + 1;
        }
        br_config_error_at(config, origin.file, line, column,
                           "there are no variables here; expected a value");
    } else {
        bool empty;
        config->root = br_yaml_parse(config, origin, copy, length, &empty);
        if (empty) br_config_error_at(config, origin.file, 1, 1, "there is nothing; expected a map");
    }
    free(copy);
    return BR_OK;
}

void br_config_append(struct br_config *config, const char *key, const char *name, const char *text)
{
    struct br_origin origin = {br_config_file(config, name), 0, 0};
    const struct br_node *more = br_yaml_parse(config, origin, text, strlen(text), NULL);
    struct br_node *list = (struct br_node *)br_node_get(config->root, key);
    if (more == NULL || more->kind != BR_NODE_LIST || list == NULL || list->kind != BR_NODE_LIST) return;
    struct br_node **item = br_config_alloc(config, (list->count + more->count + 1) * sizeof *item);
    memcpy(item, list->item, list->count * sizeof *item);
    memcpy(item + list->count, more->item, more->count * sizeof *item);
    list->item = item;
    list->count += more->count;
}

void br_config_free(struct br_config *config)
{
    if (config == NULL) return;
    br_arena_free(&config->arena);
    free(config);
}

void br_config_digest_add(struct br_config *config, const char *text, size_t length)
{
    config->digest = br_fnv(config->digest != 0 ? config->digest : BR_FNV_START, text, length);
}

uint64_t br_config_digest(const struct br_config *config)
{
    return config->digest;
}

const struct br_node *br_config_root(const struct br_config *config)
{
    return config->root;
}

const struct br_node *br_node_get(const struct br_node *map, const char *key)
{
    if (map == NULL || map->kind != BR_NODE_MAP) return NULL;
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->key[i]->text, key) == 0) return map->item[i];
    return NULL;
}

/* --- mistakes --------------------------------------------------------------------------------- */

/* One mistake is one line on the terminal, whatever the user's text contains. */
static void make_printable(char *text)
{
    br_text_plain(text);
    for (char *c = text; (c = strpbrk(c, "\n\t")) != NULL;) *c = ' ';
}

static void record(struct br_config *config, const char *file, unsigned line, unsigned column,
                   const char *format, va_list args)
{
    size_t n = config->nmistakes++;
    if (n >= BR_CONFIG_MAX_ERRORS) return;
    char text[MISTAKE_LENGTH];
    int length = vsnprintf(text, sizeof text, format, args);
    if (length < 0) text[0] = '\0';
    if (length >= (int)sizeof text) {
        size_t cut = sizeof text - 4; /* not inside a UTF-8 character */
        while (cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) cut--;
        memcpy(text + cut, "...", 4);
    }
    make_printable(text);
    size_t rank = file == NULL ? SIZE_MAX : config->nfiles;
    for (size_t i = 0; file != NULL && i < config->nfiles; i++)
        if (strcmp(config->file[i], file) == 0) rank = i;
    config->mistake[n] =
        (struct br_config_mistake){file != NULL ? br_config_text(config, file, strlen(file)) : NULL,
                                   line,
                                   column,
                                   rank,
                                   n,
                                   false,
                                   br_config_text(config, text, strlen(text))};
}

void br_config_verror(struct br_config *config, const struct br_node *at, const char *format, va_list args)
{
    if (at == NULL || at->file == NULL)
        record(config, NULL, 0, 0, format, args);
    else
        record(config, at->file, at->line, at->column, format, args);
}

void br_config_error(struct br_config *config, const struct br_node *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    br_config_verror(config, at, format, args);
    va_end(args);
}

void br_config_error_at(struct br_config *config, const char *file, unsigned line, unsigned column,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(config, file, line, column, format, args);
    va_end(args);
}

size_t br_config_errors(const struct br_config *config)
{
    return config->nmistakes;
}

static int by_position(const void *left, const void *right)
{
    const struct br_config_mistake *a = *(const struct br_config_mistake *const *)left;
    const struct br_config_mistake *b = *(const struct br_config_mistake *const *)right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    int names = a->file != NULL && b->file != NULL ? strcmp(a->file, b->file) : 0;
    if (names != 0) return names;
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    if (a->column != b->column) return a->column < b->column ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

/* A node that aliases use twice makes its mistakes twice. */
static bool same(const struct br_config_mistake *a, const struct br_config_mistake *b)
{
    return a->rank == b->rank && a->line == b->line && a->column == b->column &&
           strcmp(a->text, b->text) == 0;
}

void br_config_print_places(const struct br_config *config, const char *known, const char *expected,
                            FILE *out)
{
    const struct br_config_mistake *sorted[BR_CONFIG_MAX_ERRORS];
    size_t n = config->nmistakes < BR_CONFIG_MAX_ERRORS ? config->nmistakes : BR_CONFIG_MAX_ERRORS;
    for (size_t i = 0; i < n; i++) sorted[i] = &config->mistake[i];
    qsort(sorted, n, sizeof *sorted, by_position);
    for (size_t i = 0; i < n; i++) {
        const struct br_config_mistake *mistake = sorted[i];
        if (i > 0 && same(mistake, sorted[i - 1])) continue;
        if (mistake->file != NULL) fprintf(out, "%s:", mistake->file);
        if (mistake->file != NULL && mistake->line > 0)
            fprintf(out, "%u:%u:", mistake->line, mistake->column);
        bool may_quote = expected == NULL || mistake->file == NULL || mistake->of_syntax ||
                         (known != NULL && strcmp(mistake->file, known) == 0);
        fprintf(out, "%s%s%s\n", mistake->file != NULL ? " " : "", may_quote ? "" : "expected ",
                may_quote ? mistake->text : expected);
    }
    if (config->nmistakes > n) fprintf(out, "... and %zu more\n", config->nmistakes - n);
}

void br_config_print_errors(const struct br_config *config, FILE *out)
{
    br_config_print_places(config, NULL, NULL, out);
}
