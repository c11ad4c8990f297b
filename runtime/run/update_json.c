/* update_json.c - values of updates as JSON, and numbers in one form, however they were written. See
 * updates.h. */
#include "runtime/run/updates.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool br_update_number(const struct br_node *node, char text[BR_UPDATE_NUMBER])
{
    const char *from = node->text;
    size_t length = strlen(from);
    char *end;
    if (node->quoted || length == 0 || length > 40) return false;
    int64_t whole;
    if (br_parse_whole(from, &whole)) {
        snprintf(text, BR_UPDATE_NUMBER, "%" PRId64, whole);
        return true;
    }
    if (strspn(from, "+-.0123456789eE") != length) {
        if (strncmp(from, "0x", 2) != 0 || length > 17) return false;
        unsigned long long number = strtoull(from, &end, 16);
        snprintf(text, BR_UPDATE_NUMBER, "%llu", number);
        return *end == '\0' && number <= INT64_MAX;
    }
    double number = strtod(from, &end);
    if (*end != '\0' || !isfinite(number)) return false;
    snprintf(text, BR_UPDATE_NUMBER, "%.17g", number);
    return true;
}

static json_t *scalar(const struct br_node *node)
{
    char number[BR_UPDATE_NUMBER];
    if (!node->quoted && strcmp(node->text, "true") == 0) return json_true();
    if (!node->quoted && strcmp(node->text, "false") == 0) return json_false();
    if (!br_update_number(node, number)) return json_string_nocheck(node->text);
    int64_t whole;
    if (br_parse_whole(number, &whole)) return json_integer(whole);
    return json_real(strtod(number, NULL));
}

json_t *br_update_json(const struct br_node *node)
{
    if (node->kind == BR_NODE_SCALAR) return scalar(node);
    json_t *all = node->kind == BR_NODE_LIST ? json_array() : json_object();
    for (size_t i = 0; i < node->count; i++) {
        json_t *item = br_update_json(node->item[i]);
        if (node->kind == BR_NODE_LIST)
            json_array_append_new(all, item);
        else
            json_object_set_new_nocheck(all, node->key[i]->text, item);
    }
    return all;
}
