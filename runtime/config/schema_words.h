/* schema_words.h - a schema in words: what a parameter expects, what was found instead. Texts grow by
 * appending and are cut at their size. */
#ifndef BEAMRING_RUNTIME_CONFIG_SCHEMA_WORDS_H
#define BEAMRING_RUNTIME_CONFIG_SCHEMA_WORDS_H

#include "runtime/config/config.h"

enum { BR_WORDS_LENGTH = 400, BR_WORDS_VALUE = 60, BR_WORDS_SHOWN = BR_WORDS_VALUE + 40 };

/* The place of a value, for messages. */
struct br_place {
    struct br_config *config;
    const char *name; /* "beams.grid[1]" */
    const struct br_param *param;
    bool is_default;
};

bool br_words_has_range(const struct br_param *param);
bool br_words_has_counts(const struct br_param *param);

void br_words_append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "x, y": the keys of a map. */
void br_words_keys(char *text, size_t size, const struct br_param *fields);

/* Say in words which values one item of the parameter, or all of it, may have. */
void br_words_expect_one(char *text, size_t size, const struct br_param *param);
void br_words_expect(char *text, size_t size, const struct br_param *param);

/* The value as the user wrote it, not too much of it; replaces the text. */
void br_words_show(char *text, size_t size, const struct br_node *value);

/* Records "NAME: VALUE WHAT; expected ..."; false, for the caller to return. `words` replaces the
 * expectation. */
bool br_words_wrong(const struct br_place *place, const struct br_node *value, const char *what,
                    const char *words);

#endif
