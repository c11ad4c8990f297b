/* schema_words.h - the words of messages about a schema: which values a parameter may have, and which one was
 * found. The functions append to a text of `size` bytes and cut it off at that size. */
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

/* True if the schema limits the values of the parameter, or the length of its list. */
bool br_words_has_range(const struct br_param *param);
bool br_words_has_counts(const struct br_param *param);

void br_words_append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Appends the keys of a map: "x, y". */
void br_words_keys(char *text, size_t size, const struct br_param *fields);

/* Append which values one item of the parameter, or the whole parameter, may have. */
void br_words_expect_one(char *text, size_t size, const struct br_param *param);
void br_words_expect(char *text, size_t size, const struct br_param *param);

/* Replaces the text by the value as the user wrote it, or by its first BR_WORDS_VALUE bytes. */
void br_words_show(char *text, size_t size, const struct br_node *value);

/* Records the mistake "NAME: VALUE WHAT; expected ..." and returns false, for the caller to return. `words`
 * replaces the text behind "expected"; NULL: it follows from the schema. */
bool br_words_wrong(const struct br_place *place, const struct br_node *value, const char *what,
                    const char *words);

#endif
