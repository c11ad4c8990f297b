/* config_text.h - loading a text and looking at the messages, for the tests of the configuration. */
#ifndef BEAMRING_TESTS_RUNTIME_CONFIG_CONFIG_TEXT_H
#define BEAMRING_TESTS_RUNTIME_CONFIG_CONFIG_TEXT_H

#include "runtime/config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The text as file "t.yaml", with --set texts up to NULL. */
static inline struct br_config *parse_set(const char *text, size_t length, size_t nset,
                                          const char *const *set)
{
    struct br_config *config = NULL;
    struct br_error error = {0};
    char *copy = malloc(length + 1); /* of its size, so that a sanitizer sees reading beyond it */
    assert_non_null(copy);
    memcpy(copy, text, length);
    assert_int_equal(br_config_parse(&config, "t.yaml", copy, length, nset, set, &error), BR_OK);
    free(copy);
    assert_non_null(config);
    return config;
}

static inline struct br_config *parse(const char *text)
{
    return parse_set(text, strlen(text), 0, NULL);
}

/* All messages, malloc'd. */
static inline char *messages(const struct br_config *config)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    br_config_print_errors(config, out);
    fclose(out);
    return text;
}

/* The messages are exactly these. Frees the config. */
static inline void assert_messages(struct br_config *config, const char *expected)
{
    char *text = messages(config);
    assert_string_equal(text, expected);
    free(text);
    br_config_free(config);
}

/* Every one of the NULL-terminated words stands in the messages. Frees the config. */
static inline void assert_says(struct br_config *config, const char *const *words)
{
    char *text = messages(config);
    assert_true(br_config_errors(config) > 0);
    for (; *words != NULL; words++)
        if (strstr(text, *words) == NULL) fail_msg("'%s' not in: %s", *words, text);
    free(text);
    br_config_free(config);
}

#define SAYS(config, ...) assert_says(config, (const char *const[]){__VA_ARGS__, NULL})

static inline struct br_config *good(struct br_config *config)
{
    char *text = messages(config);
    if (br_config_errors(config) != 0) fail_msg("unexpected: %s", text);
    free(text);
    return config;
}

/* The text of root.a.b; the path has at most four keys. */
static inline const char *text_at(const struct br_config *config, const char *path)
{
    const struct br_node *node = br_config_root(config);
    char copy[200], *rest = copy;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *key; node != NULL && (key = strsep(&rest, ".")) != NULL;) {
        size_t index = strtoul(key, NULL, 10);
        if (node->kind == BR_NODE_LIST)
            node = index < node->count ? node->item[index] : NULL;
        else
            node = br_node_get(node, key);
    }
    return node != NULL && node->kind == BR_NODE_SCALAR ? node->text : NULL;
}

#endif
