/* parts.h - what the files that implement config.h share: the config itself, reading YAML, includes
 * and --set. */
#ifndef BEAMRING_RUNTIME_CONFIG_PARTS_H
#define BEAMRING_RUNTIME_CONFIG_PARTS_H

#include "runtime/config/arena.h"
#include "runtime/config/config.h"

/* Far beyond any honest pipeline, and small enough that hostile text costs neither memory nor time. A node
 * that is used again by an alias counts again, with all below it, so walking the tree is bounded too. */
enum {
    BR_CONFIG_MAX_BYTES = 16 << 20, /* of one file */
    BR_CONFIG_MAX_TEXT = 64 << 20,  /* of all values after ${} */
    BR_CONFIG_MAX_NODES = 1 << 20,  /* of all files */
    BR_CONFIG_MAX_DEPTH = 64,       /* lists and maps within each other */
    BR_CONFIG_MAX_ANCHORS = 1000,   /* of one file */
    BR_CONFIG_MAX_FILES = 256,      /* loads, counting a file each time */
    BR_CONFIG_MAX_INCLUDES = 16,    /* files including each other */
    BR_CONFIG_MAX_ERRORS = 200      /* kept; all are counted */
};

struct br_config_mistake {
    const char *file; /* NULL: without a position */
    unsigned line, column;
    size_t rank; /* of the file: the order in which files were met */
    size_t sequence;
    bool of_syntax; /* the text quotes nothing of the file */
    const char *text;
};

struct br_config {
    struct br_arena arena;
    struct br_node *root;
    uint64_t digest;  /* of what was read, see br_config_digest */
    size_t nmistakes; /* all; the first BR_CONFIG_MAX_ERRORS are kept */
    struct br_config_mistake mistake[BR_CONFIG_MAX_ERRORS];
    size_t nfiles;
    const char *file[BR_CONFIG_MAX_FILES + 1]; /* one more for "--set" */
    size_t nodes, text_bytes;
    bool literal; /* its texts come from others: nothing in them stands for something else */
    unsigned loads;
};

/* --- config.c */

/* Text in the config's arena. */
const char *br_config_text(struct br_config *config, const char *text, size_t length);

/* An error at a place that has no node. */
void br_config_error_at(struct br_config *config, const char *file, unsigned line, unsigned column,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A file name to put into nodes: one pointer for equal names, in the order in which files are met. */
const char *br_config_file(struct br_config *config, const char *name);

/* --- yaml.c */

/* Where a text stands. A --set value is one line (`line` > 0) that begins behind `column` other characters; a
 * file has 0, 0. */
struct br_origin {
    const char *file; /* from br_config_file */
    unsigned line, column;
};

/* Parses one YAML document into the config's arena; mistakes are recorded. In a `literal` config ${ is a
 * mistake, however it is written (YAML's escapes are undone first), and nothing is looked up. Returns the
 * root, or NULL when there is no document or it cannot be read to its end; *empty says which (may be NULL).
 * */
struct br_node *br_yaml_parse(struct br_config *config, struct br_origin origin, const char *text,
                              size_t length, bool *empty);

/* --- expand.c: ${VAR} in the text of values */

/* Source text -> text for the YAML parser, in which references are opaque characters, one for one, so that
 * they may stand anywhere a plain character may ("{seed: ${SEED:-1}}") and columns stay. Returns malloc'd
 * memory or NULL when there is no memory. *bad is the offset of a character that is reserved for this, or
 * SIZE_MAX. */
char *br_expand_hide(const char *text, size_t length, size_t *hidden_length, size_t *bad);

/* Undoes the hiding, in place; returns the new length. */
size_t br_expand_show(char *text, size_t length);

/* Replaces the references in a scalar's text (shown again); mistakes are recorded at the node. *whole: the
 * text was nothing but one reference. */
const char *br_expand(struct br_config *config, const struct br_node *at, const char *text, size_t length,
                      bool *whole);

/* --- include.c */

/* Loads a file or a text and all that it includes: the merged tree, or NULL. Errors: only BR_E_NO_MEMORY. */
int br_include_file(struct br_config *config, const char *path, struct br_node **root,
                    struct br_error *error);
int br_include_text(struct br_config *config, const char *name, const char *text, size_t length,
                    struct br_node **root, struct br_error *error);

/* --- set.c */

/* Applies "a.b=value", the `number`-th (from 1) of the command line, to the tree. */
void br_config_set(struct br_config *config, const char *set, unsigned number);

/* Takes a text into the digest. */
void br_config_digest_add(struct br_config *config, const char *text, size_t length);

#endif
