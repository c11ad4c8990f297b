/* yaml.c - libyaml's events as a tree of br_node. See parts.h.
 *
 * Mistakes that leave the structure readable (a key given twice, a tag, a variable that is not set) are
 * recorded and reading goes on, so that the user sees them all; mistakes of syntax and the limits end it.
 * Aliases share the node they name. */
#include "runtime/config/parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct anchor {
    struct anchor *older;
    const char *name;
    struct br_node *node; /* NULL while it is being read */
    size_t nodes;         /* in it, with itself */
    unsigned height;      /* lists and maps within each other */
};

struct reader {
    struct br_config *config;
    struct br_origin origin;
    yaml_parser_t parser;
    const char *text; /* what libyaml sees */
    size_t length;
    struct anchor *anchors;
    size_t nanchors;
    unsigned deepest; /* depth reached since the innermost anchor began */
};

/* Children while their number is not known. */
struct link {
    struct link *next;
    struct br_node *key, *item;
};

static unsigned line_of(const struct reader *reader, yaml_mark_t mark)
{
    return reader->origin.line > 0 ? reader->origin.line : (unsigned)mark.line + 1;
}

static unsigned column_of(const struct reader *reader, yaml_mark_t mark)
{
    return (unsigned)mark.column + 1 + (mark.line == 0 ? reader->origin.column : 0);
}

/* --- libyaml's own errors --------------------------------------------------------------------- */

/* Position of a byte: libyaml gives no mark for bytes that are no text at all. */
static yaml_mark_t mark_of(const char *text, size_t offset)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            mark.line++;
            mark.column = 0;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            mark.column++;
        }
    }
    return mark;
}

/* The character at a mark, 0 behind the end. */
static char character_at(const struct reader *reader, yaml_mark_t mark)
{
    const char *c = reader->text, *end = c + reader->length;
    for (size_t line = 0; line < mark.line && c < end; c++) line += *c == '\n';
    for (size_t column = 0; column < mark.column && c < end; column++) {
        c++;
        while (c < end && ((unsigned char)*c & 0xc0) == 0x80) c++;
    }
    return c < end ? *c : '\0';
}

static void report_syntax(struct reader *reader)
{
    const yaml_parser_t *p = &reader->parser;
    const char *problem = p->problem != NULL ? p->problem : "this is no YAML";
    yaml_mark_t at = p->problem_mark;
    yaml_mark_t end = mark_of(reader->text, reader->length);
    if (p->error == YAML_READER_ERROR)
        at = mark_of(reader->text, p->problem_offset < reader->length ? p->problem_offset : reader->length);
    else if (at.line > end.line) /* libyaml ends the last line for us */
        at = end;
    char context[160] = "";
    if (p->context != NULL && p->error != YAML_READER_ERROR) {
        int used = snprintf(context, sizeof context, " %s", p->context);
        if (reader->origin.line == 0 && p->context_mark.line < at.line && used > 0 &&
            used < (int)sizeof context)
            snprintf(context + used, sizeof context - (size_t)used, " that begins in line %zu",
                     p->context_mark.line + 1);
    }
    const char *hint = "expected well-formed YAML";
    if (p->error == YAML_READER_ERROR)
        hint = "expected text in UTF-8";
    else if (character_at(reader, at) == '\t')
        hint = "expected blanks: tabs do not indent YAML";
    else if (strstr(problem, "mapping values are not allowed") != NULL)
        hint = "expected one 'key: value' a line; quote a text that holds ': '";
    br_config_error_at(reader->config, reader->origin.file, line_of(reader, at), column_of(reader, at),
                       "%s%s; %s", problem, context, hint);
    size_t n = reader->config->nmistakes;
    if (n <= BR_CONFIG_MAX_ERRORS) reader->config->mistake[n - 1].of_syntax = true;
}

static bool next_event(struct reader *reader, yaml_event_t *event)
{
    if (yaml_parser_parse(&reader->parser, event)) return true;
    report_syntax(reader);
    return false;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static struct br_node *read_node(struct reader *reader, yaml_event_t *event, unsigned depth, bool is_key);

/* Counts nodes against the limit; false (with the mistake recorded) when there are too many. */
static bool count(struct reader *reader, size_t nodes, yaml_mark_t at)
{
    struct br_config *config = reader->config;
    if (nodes <= BR_CONFIG_MAX_NODES - config->nodes) {
        config->nodes += nodes;
        return true;
    }
    br_config_error_at(
        config, reader->origin.file, line_of(reader, at), column_of(reader, at),
        "the configuration holds more than %d values, counting what aliases repeat; expected a smaller one",
        BR_CONFIG_MAX_NODES);
    return false;
}

static bool deep(struct reader *reader, unsigned depth, yaml_mark_t at)
{
    if (depth <= BR_CONFIG_MAX_DEPTH) {
        if (depth > reader->deepest) reader->deepest = depth;
        return false;
    }
    br_config_error_at(
        reader->config, reader->origin.file, line_of(reader, at), column_of(reader, at),
        "more than %d lists and maps stand within each other; expected a flatter configuration",
        BR_CONFIG_MAX_DEPTH);
    return true;
}

static struct br_node *new_node(struct reader *reader, enum br_node_kind kind, yaml_mark_t at)
{
    if (!count(reader, 1, at)) return NULL;
    struct br_node *node = br_config_alloc(reader->config, sizeof *node);
    *node = (struct br_node){.kind = kind,
                             .file = reader->origin.file,
                             .line = line_of(reader, at),
                             .column = column_of(reader, at)};
    return node;
}

static struct br_node *read_alias(struct reader *reader, const yaml_event_t *event, unsigned depth)
{
    const char *name = (const char *)event->data.alias.anchor;
    struct anchor *anchor = reader->anchors;
    while (anchor != NULL && strcmp(anchor->name, name) != 0) anchor = anchor->older;
    unsigned line = line_of(reader, event->start_mark), column = column_of(reader, event->start_mark);
    if (anchor == NULL || anchor->node == NULL) {
        const char *names[BR_CONFIG_MAX_ANCHORS + 1];
        size_t n = 0;
        for (struct anchor *a = reader->anchors; a != NULL; a = a->older) names[n++] = a->name;
        names[n] = NULL;
        const char *similar = anchor == NULL ? br_suggest(name, names) : NULL;
        br_config_error_at(
            reader->config, reader->origin.file, line, column,
            anchor == NULL
                ? "'*%s' repeats a value, but nothing before it is marked '&%s'%s%s%s"
                : "'*%s' stands within the value '&%s' that it repeats; expected a value that ends "
                  "before it%s%s%s",
            name, name, similar != NULL ? "; did you mean '*" : "", similar != NULL ? similar : "",
            similar != NULL ? "'?" : "");
        struct br_node *nothing = new_node(reader, BR_NODE_SCALAR, event->start_mark);
        if (nothing != NULL) nothing->text = "";
        return nothing;
    }
    if (deep(reader, depth + anchor->height, event->start_mark) ||
        !count(reader, anchor->nodes, event->start_mark))
        return NULL;
    return anchor->node;
}

/* Tags give values types, which is what the schema does; `!!str 5` can be written "5". */
static void refuse_tag(struct reader *reader, const struct br_node *node, const yaml_char_t *tag)
{
    static const char standard[] = "tag:yaml.org,2002:"; /* what libyaml makes of !! */
    const char *text = (const char *)tag;
    if (text == NULL) return;
    bool is_standard = strncmp(text, standard, sizeof standard - 1) == 0;
    br_config_error(reader->config, node,
                    "the tag '%s%s' is not supported; expected a value without '!' (quote a text that "
                    "looks like a number)",
                    is_standard ? "!!" : "", is_standard ? text + sizeof standard - 1 : text);
}

static struct br_node *read_scalar(struct reader *reader, const yaml_event_t *event, bool is_key)
{
    struct br_node *node = new_node(reader, BR_NODE_SCALAR, event->start_mark);
    if (node == NULL) return NULL;
    char *text = (char *)event->data.scalar.value;
    bool literal = reader->config->literal, whole = false;
    size_t length = event->data.scalar.length;
    if (!literal) length = br_expand_show(text, length);
    refuse_tag(reader, node, event->data.scalar.tag);
    node->text = "";
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (memchr(text, '\0', length) != NULL) {
        br_config_error(reader->config, node, "the text holds a character 0; expected text without it");
    } else if (literal && memmem(text, length, "${", 2) != NULL) {
        br_config_error(reader->config, node, "there are no variables here; expected a value");
    } else if (is_key || literal) {
        node->text = br_config_text(reader->config, text, length);
    } else {
        node->text = br_expand(reader->config, node, text, length, &whole);
        /* "${N}" has its quotes from YAML's syntax; what it stands for may be a number. */
        if (whole && node->text[0] != '\0') node->quoted = false;
    }
    return node;
}

static int by_key(const void *left, const void *right)
{
    const struct br_node *a = *(struct br_node *const *)left, *b = *(struct br_node *const *)right;
    int order = strcmp(a->text, b->text);
    if (order != 0) return order;
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    return a->column < b->column ? -1 : a->column > b->column;
}

static void find_duplicates(struct reader *reader, const struct br_node *map)
{
    if (map->count < 2) return;
    struct br_node **sorted = malloc(map->count * sizeof *sorted);
    if (sorted == NULL) {
        br_config_error(reader->config, map, "no memory to compare %zu keys", map->count);
        return;
    }
    memcpy(sorted, map->key, map->count * sizeof *sorted);
    qsort(sorted, map->count, sizeof *sorted, by_key);
    for (size_t i = 1, first = 0; i < map->count; i++) {
        if (strcmp(sorted[i]->text, sorted[first]->text) != 0) {
            first = i;
            continue;
        }
        br_config_error(reader->config, sorted[i],
                        "the key '%s' is given twice (first in line %u, column %u); expected it "
                        "once",
                        sorted[i]->text, sorted[first]->line, sorted[first]->column);
    }
    free(sorted);
}

static void check_key(struct reader *reader, const struct br_node *key)
{
    if (key->kind != BR_NODE_SCALAR)
        br_config_error(reader->config, key, "a key is a %s; expected a word",
                        key->kind == BR_NODE_LIST ? "list" : "map");
    else if (!key->quoted && strcmp(key->text, "<<") == 0)
        br_config_error(reader->config, key,
                        "merge keys ('<<') are not supported; expected the keys themselves, or 'include:' "
                        "of a file with them");
}

/* Reads up to the end of a list or map and puts the children into arrays. */
static struct br_node *read_collection(struct reader *reader, const yaml_event_t *start, unsigned depth)
{
    bool is_map = start->type == YAML_MAPPING_START_EVENT;
    struct br_node *node = new_node(reader, is_map ? BR_NODE_MAP : BR_NODE_LIST, start->start_mark);
    if (node == NULL || deep(reader, depth, start->start_mark)) return NULL;
    refuse_tag(reader, node, is_map ? start->data.mapping_start.tag : start->data.sequence_start.tag);
    struct link *first = NULL, **end = &first;
    for (;;) {
        yaml_event_t event;
        if (!next_event(reader, &event)) return NULL;
        bool last = event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
        struct link *link = last ? NULL : br_config_alloc(reader->config, sizeof *link);
        if (link != NULL && is_map) {
            link->key = read_node(reader, &event, depth + 1, true);
            yaml_event_delete(&event);
            if (link->key == NULL || !next_event(reader, &event)) return NULL;
            check_key(reader, link->key);
            if (link->key->kind != BR_NODE_SCALAR) { /* already a mistake: anything that is a word will do */
                struct br_node *word = br_config_alloc(reader->config, sizeof *word);
                *word = (struct br_node){.kind = BR_NODE_SCALAR,
                                         .file = link->key->file,
                                         .line = link->key->line,
                                         .column = link->key->column,
                                         .text = "?"};
                link->key = word;
            }
        }
        if (link != NULL) link->item = read_node(reader, &event, depth + 1, false);
        yaml_event_delete(&event);
        if (last) break;
        if (link->item == NULL) return NULL;
        *end = link;
        end = &link->next;
        node->count++;
    }
    node->item = br_config_alloc(reader->config, node->count * sizeof *node->item);
    if (is_map) node->key = br_config_alloc(reader->config, node->count * sizeof *node->key);
    size_t i = 0;
    for (const struct link *link = first; link != NULL; link = link->next, i++) {
        node->item[i] = link->item;
        if (is_map) node->key[i] = link->key;
    }
    if (is_map) find_duplicates(reader, node);
    return node;
}

static const yaml_char_t *anchor_of(const yaml_event_t *event)
{
    if (event->type == YAML_SCALAR_EVENT) return event->data.scalar.anchor;
    return event->type == YAML_MAPPING_START_EVENT ? event->data.mapping_start.anchor
                                                   : event->data.sequence_start.anchor;
}

/* Makes the node that the event begins; the caller deletes the event. NULL: reading cannot go on. `depth` is
 * that of the node, from 1; recursion ends at BR_CONFIG_MAX_DEPTH. */
static struct br_node *read_node(struct reader *reader, yaml_event_t *event, unsigned depth, bool is_key)
{
    if (event->type == YAML_ALIAS_EVENT) return read_alias(reader, event, depth);
    const yaml_char_t *name = anchor_of(event);
    struct anchor *anchor = NULL;
    if (name != NULL) {
        if (reader->nanchors++ >= BR_CONFIG_MAX_ANCHORS) {
            br_config_error_at(reader->config, reader->origin.file, line_of(reader, event->start_mark),
                               column_of(reader, event->start_mark),
                               "more than %d values are marked with '&'; expected fewer",
                               BR_CONFIG_MAX_ANCHORS);
            return NULL;
        }
        anchor = br_config_alloc(reader->config, sizeof *anchor);
        anchor->name = br_config_text(reader->config, (const char *)name, strlen((const char *)name));
        anchor->older = reader->anchors;
        reader->anchors = anchor;
    }
    size_t before = reader->config->nodes;
    unsigned deepest = reader->deepest;
    if (anchor != NULL) reader->deepest = 0;
    struct br_node *node = event->type == YAML_SCALAR_EVENT ? read_scalar(reader, event, is_key)
                                                            : read_collection(reader, event, depth);
    if (anchor != NULL) {
        anchor->node = node;
        anchor->nodes = reader->config->nodes - before;
        anchor->height = reader->deepest >= depth ? reader->deepest - depth : 0;
        if (reader->deepest < deepest) reader->deepest = deepest;
    }
    return node;
}

/* --- documents -------------------------------------------------------------------------------- */

/* Stream start, document, document end, stream end. */
static struct br_node *read_document(struct reader *reader, bool *empty)
{
    struct br_node *root = NULL;
    yaml_event_t event;
    size_t mistakes = reader->config->nmistakes;
    for (;;) {
        if (!next_event(reader, &event)) return NULL;
        yaml_event_type_t type = event.type;
        yaml_mark_t at = event.start_mark;
        bool stop = type == YAML_STREAM_END_EVENT;
        if (type == YAML_DOCUMENT_START_EVENT && root != NULL) {
            br_config_error_at(reader->config, reader->origin.file, line_of(reader, at),
                               column_of(reader, at),
                               "a second document begins ('---'); expected one document");
            stop = true;
        } else if (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT ||
                   type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT) {
            root = read_node(reader, &event, 1, false);
            *empty = false;
            stop = root == NULL;
        }
        yaml_event_delete(&event);
        if (stop) break;
    }
    /* "---" alone, or only comments behind it, is a scalar without text to YAML. */
    if (root != NULL && root->kind == BR_NODE_SCALAR && root->text[0] == '\0' && !root->quoted &&
        reader->config->nmistakes == mistakes) {
        *empty = true;
        return NULL;
    }
    return root;
}

/* Also of bytes behind a 0, which a request may have. */
static char *copy_of(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

struct br_node *br_yaml_parse(struct br_config *config, struct br_origin origin, const char *text,
                              size_t length, bool *empty)
{
    struct reader reader = {.config = config, .origin = origin};
    bool nothing = true;
    size_t bad;
    if (empty == NULL) empty = &nothing;
    *empty = false;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3, length -= 3; /* a byte order mark, of no use */
    char *hidden =
        config->literal ? copy_of(text, length) : br_expand_hide(text, length, &reader.length, &bad);
    if (config->literal) reader.length = length, bad = SIZE_MAX;
    reader.text = hidden;
    if (hidden == NULL || !yaml_parser_initialize(&reader.parser)) {
        br_config_error_at(config, origin.file, 1, 1, "no memory to read %zu bytes of YAML", length);
        free(hidden);
        return NULL;
    }
    struct br_node *root = NULL;
    if (bad != SIZE_MAX) {
        yaml_mark_t at = mark_of(text, bad);
        br_config_error_at(
            config, origin.file, line_of(&reader, at), column_of(&reader, at),
            "this character of the private use area (U+E000 to U+E07F) is reserved; expected other text");
    } else {
        *empty = true;
        yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&reader.parser, (const unsigned char *)hidden, reader.length);
        root = read_document(&reader, empty);
        if (reader.parser.error != YAML_NO_ERROR) *empty = false;
    }
    yaml_parser_delete(&reader.parser);
    free(hidden);
    return root;
}
