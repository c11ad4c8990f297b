/* config.h - a YAML file as a checked tree: every node knows its file, line and column, and all errors are
 * collected.
 *
 * Loading resolves `include:` (a path or list of paths, relative to the including file, then to the
 * installed config directory; keys of the including file win over included ones, mappings merging key by
 * key), ${VAR} and ${VAR:-default} inside scalars, and `--set stage.key=value` (also `--set key=value` at
 * the top; the value is YAML). Duplicate keys, anchors that recurse, and documents beyond stated limits
 * (size, depth, nodes) are errors with their position. */
#ifndef BEAMRING_RUNTIME_CONFIG_CONFIG_H
#define BEAMRING_RUNTIME_CONFIG_CONFIG_H

#include "buffers/error.h"
#include "runtime/param.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum br_node_kind { BR_NODE_SCALAR, BR_NODE_LIST, BR_NODE_MAP };

/* Part of a br_config, constant after loading. */
struct br_node {
    enum br_node_kind kind;
    const char *file;      /* as the user would recognise it; "--set" for the command line */
    unsigned line, column; /* from 1 */
    const char *text;      /* scalar: its text after ${} */
    bool quoted;           /* scalar: was quoted, so it is a string whatever it looks like */
    size_t count;          /* list: items; map: pairs */
    struct br_node **item; /* list: [count]; map: [count] values */
    struct br_node **key;  /* map: [count] scalars */
};

struct br_config; /* owns the tree, an arena, and the list of errors */

/* Loads a file, or the standard input for "-". `set` is [nset] texts "a.b=value". *config is made even when
 * the file has errors (then br_config_errors() > 0 and the root may be NULL); only no memory returns
 * non-zero. */
int br_config_load(struct br_config **config, const char *path, size_t nset, const char *const *set,
                   struct br_error *error);

/* The same for a text in memory (`name` takes the place of the file name); used by tests and the fuzzer. */
int br_config_parse(struct br_config **config, const char *name, const char *text, size_t length, size_t nset,
                    const char *const *set, struct br_error *error);

/* A value of its own, in YAML or JSON, without includes and variables: what a request carries. */
int br_config_parse_value(struct br_config **config, const char *name, const char *text, size_t length,
                          struct br_error *error);

/* Appends the items of a list in YAML or JSON to the list `key` at the top; nothing where there is no such
 * list. `name` stands before messages. Before anything is made of the tree. */
void br_config_append(struct br_config *config, const char *key, const char *name, const char *text);
void br_config_free(struct br_config *config);

/* A number of all that was read: of the files' bytes before anything is replaced, and of the `--set`
 * texts. */
uint64_t br_config_digest(const struct br_config *config);

const struct br_node *br_config_root(const struct br_config *config);

/* Records an error at a node (NULL: no position). Errors are kept in order of position when printed. */
void br_config_error(struct br_config *config, const struct br_node *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void br_config_verror(struct br_config *config, const struct br_node *at, const char *format, va_list args);
size_t br_config_errors(const struct br_config *config);

/* Prints all errors, one "file:line:column: message" a line, sorted by file and position. */
void br_config_print_errors(const struct br_config *config, FILE *out);

/* The same for whoever may not read all files: of mistakes in files other than `known` (NULL: in any) only
 * the place is printed, and what was expected there; what is wrong with the YAML itself is always said. */
void br_config_print_places(const struct br_config *config, const char *known, const char *expected,
                            FILE *out);

/* Zeroed memory that lives as long as the config; ends the program with a message if there is none. */
void *br_config_alloc(struct br_config *config, size_t bytes);

/* Value of a key of a map, or NULL (also when `map` is NULL or no map). */
const struct br_node *br_node_get(const struct br_node *map, const char *key);

/* The file that the value `at` of `key` names: relative to the file that holds the value, else where
 * `include:` looks. In the config's memory. NULL: there is none, and the mistake is recorded. */
const char *br_config_find(struct br_config *config, const char *key, const struct br_node *at);

/* Reads a table from a text file: a line with the names of the columns, then a line for each row; commas
 * between cells, blanks around them do not count, empty lines and lines that begin with # are left out.
 * Returns a list of maps, one for each row, column -> cell; nodes know their place in the file. NULL after a
 * mistake, which is recorded: at `at` when the file cannot be read, else at its place in the file. */
const struct br_node *br_config_read_table(struct br_config *config, const struct br_node *at,
                                           const char *path);

/* Fills the struct at `self` from the map by the schema (runtime/param.h): types, ranges, choices,
 * required keys, defaults. Keys not in the schema and not in `also` (NULL-terminated, may be NULL) are
 * errors that suggest the nearest known key. `map` may be NULL: all defaults. Returns the number of errors
 * recorded. */
size_t br_config_fill(struct br_config *config, const struct br_node *map, const struct br_param *schema,
                      const char *const *also, void *self);

/* The same for one value and a schema of one parameter, which gives messages its name. True if it is good. */
bool br_config_fill_one(struct br_config *config, const struct br_node *value, const struct br_param *schema,
                        void *into);

/* A whole number of decimal digits, perhaps with a point or an exponent (1.5e3), exactly. False: it is none,
 * or does not fit into 64 bits. */
bool br_parse_whole(const char *text, int64_t *number);

/* The entry of the NULL-terminated `names` most like `word`, or NULL when none is near enough to suggest. */
const char *br_suggest(const char *word, const char *const *names);

#endif
