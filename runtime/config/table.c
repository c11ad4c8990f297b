/* table.c - a table in a text file, its columns named in the first line, as nodes that know their place. */
#include "runtime/config/parts.h"

#include "buffers/regular_file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 64 };

static struct br_node *new_node(struct br_config *config, enum br_node_kind kind, const struct br_node *at)
{
    struct br_node *node = br_config_alloc(config, sizeof *node);
    *node = (struct br_node){.kind = kind, .file = at->file, .line = at->line, .column = at->column};
    return node;
}

/* The cells of a line, [count]; one more than MAX_COLUMNS where there are more. */
static size_t split(struct br_config *config, char *line, const struct br_node *at,
                    struct br_node *cell[MAX_COLUMNS + 1])
{
    size_t count = 0;
    for (char *next = line; next != NULL && count <= MAX_COLUMNS; count++) {
        char *text = next, *end = strchr(text, ',');
        next = end != NULL ? end + 1 : NULL;
        if (end == NULL) end = text + strlen(text);
        while (text < end && (*text == ' ' || *text == '\t')) text++;
        while (end > text && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
        cell[count] = new_node(config, BR_NODE_SCALAR, at);
        cell[count]->column = (unsigned)(text - line) + 1;
        cell[count]->text = br_config_text(config, text, (size_t)(end - text));
    }
    return count;
}

/* The names of the columns, or NULL after a mistake. */
static struct br_node **read_names(struct br_config *config, const struct br_node *at,
                                   struct br_node *const *cell, size_t count)
{
    if (count > MAX_COLUMNS) {
        br_config_error(config, at, "more than %d columns", MAX_COLUMNS);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(cell[i]->text, cell[k]->text) == 0) {
                br_config_error(config, cell[i], "'%.40s' names two columns; expected different names",
                                cell[i]->text);
                return NULL;
            }
    struct br_node **names = br_config_alloc(config, count * sizeof *names);
    memcpy(names, cell, count * sizeof *names);
    return names;
}

static struct br_node *parse(struct br_config *config, const char *file, char *text)
{
    struct br_node at = {.file = file, .line = 0, .column = 1}, **names = NULL, *cell[MAX_COLUMNS + 1];
    struct br_node *table = new_node(config, BR_NODE_LIST, &at);
    size_t columns = 0, capacity = 0, before = br_config_errors(config);
    for (char *next = text; next != NULL && br_config_errors(config) == before;) {
        char *line = next;
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        at.line++;
        size_t blanks = strspn(line, " \t\r");
        if (line[blanks] == '\0' || line[blanks] == '#') continue;
        size_t count = split(config, line, &at, cell);
        if (names == NULL) {
            names = read_names(config, &at, cell, columns = count);
            continue;
        }
        if (count != columns) {
            br_config_error(config, &at, "%s%zu columns; expected %zu, as the first line names",
                            count > MAX_COLUMNS ? "at least " : "", count, columns);
            break;
        }
        struct br_node *row = new_node(config, BR_NODE_MAP, &at);
        row->count = columns;
        row->key = names;
        row->item = br_config_alloc(config, columns * sizeof *row->item);
        memcpy(row->item, cell, columns * sizeof *row->item);
        if (table->count == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 64;
            struct br_node **grown = br_config_alloc(config, capacity * sizeof *grown);
            if (table->count > 0) memcpy(grown, table->item, table->count * sizeof *grown);
            table->item = grown;
        }
        table->item[table->count++] = row;
    }
    if (br_config_errors(config) > before) return NULL;
    if (table->count > 0) return table;
    at.line = 1;
    br_config_error(config, &at,
                    "the table has no rows; expected a line with the names of the columns, and "
                    "a line for each row");
    return NULL;
}

const struct br_node *br_config_read_table(struct br_config *config, const struct br_node *at,
                                           const char *path)
{
    struct br_error error = {0};
    uint64_t bytes = 0;
    FILE *file = br_fopen_regular(path, &bytes, &error);
    if (file == NULL) {
        br_config_error(config, at, "%s", error.text);
        return NULL;
    }
    char *text = bytes <= BR_CONFIG_MAX_BYTES ? malloc(bytes + 1) : NULL;
    size_t length = text != NULL ? fread(text, 1, bytes, file) : 0;
    fclose(file);
    const struct br_node *table = NULL;
    if (text == NULL) {
        br_config_error(config, at, "'%s' has %llu bytes; expected a table of at most %d", path,
                        (unsigned long long)bytes, BR_CONFIG_MAX_BYTES);
    } else if (memchr(text, '\0', length) != NULL) {
        br_config_error(config, at, "'%s' is not a text file; expected a table with commas between columns",
                        path);
    } else {
        text[length] = '\0';
        br_config_digest_add(config, text, length);
        /* spreadsheets write a byte order mark in front of UTF-8 */
        size_t mark = strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        table = parse(config, br_config_file(config, path), text + mark);
    }
    free(text);
    return table;
}
