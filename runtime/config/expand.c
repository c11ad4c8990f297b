/* expand.c - ${VAR} and ${VAR:-default} in values; $${ stands for a literal ${.
 *
 * YAML gives braces, brackets and commas a meaning of their own, so a reference would break {a: ${A:-1}}.
 * Before the YAML parser sees the text, the ASCII characters of every reference are therefore hidden as
 * U+E000 + c (private use), and shown again in the scalars. It is not replaced by the value there and then: a
 * value must not be able to change the document's structure, and columns must stay those of the file. */
#include "runtime/base/variables.h"
#include "runtime/config/parts.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool name_begins(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

/* Length of the reference at the start of text[0..length), 0 if there is none. *name is the length of VAR. */
static size_t reference(const char *text, size_t length, size_t *name)
{
    size_t i = 2;
    if (length < 4 || text[0] != '$' || text[1] != '{' || !name_begins(text[2])) return 0;
    while (i < length && (name_begins(text[i]) || isdigit((unsigned char)text[i]))) i++;
    *name = i - 2;
    if (i < length && text[i] == '}') return i + 1;
    if (i + 1 >= length || text[i] != ':' || text[i + 1] != '-') return 0;
    for (i += 2; i < length && text[i] != '\n' && text[i] != '\r' && text[i] != '\0'; i++)
        if (text[i] == '}') return i + 1;
    return 0;
}

static bool is_hidden(const unsigned char *c, size_t length)
{
    return length >= 3 && c[0] == 0xee && (c[1] == 0x80 || c[1] == 0x81) && (c[2] & 0xc0) == 0x80;
}

char *br_expand_hide(const char *text, size_t length, size_t *hidden_length, size_t *bad)
{
    char *out = malloc(3 * length + 1);
    size_t n = 0, name;
    if (out == NULL) return NULL;
    *bad = SIZE_MAX;
    for (size_t i = 0; i < length;) {
        if (is_hidden((const unsigned char *)text + i, length - i) && *bad == SIZE_MAX) *bad = i;
        size_t escape = text[i] == '$' && i + 1 < length && text[i + 1] == '$';
        size_t run = text[i] == '$' ? reference(text + i + escape, length - i - escape, &name) : 0;
        if (run == 0) {
            out[n++] = text[i++];
            continue;
        }
        for (run += escape; run > 0; run--, i++) {
            unsigned char c = (unsigned char)text[i];
            if (c >= 0x80) {
                out[n++] = (char)c;
                continue;
            }
            out[n++] = (char)0xee;
            out[n++] = (char)(0x80 | c >> 6);
            out[n++] = (char)(0x80 | (c & 0x3f));
        }
    }
    out[n] = '\0';
    *hidden_length = n;
    return out;
}

size_t br_expand_show(char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; n++) {
        const unsigned char *c = (const unsigned char *)text + i;
        if (is_hidden(c, length - i)) {
            text[n] = (char)((c[1] & 1) << 6 | (c[2] & 0x3f));
            i += 3;
        } else {
            text[n] = text[i++];
        }
    }
    return n;
}

/* The text behind one reference; NULL after a mistake. */
static const char *lookup(struct br_config *config, const struct br_node *at, const char *text, size_t run,
                          size_t name, size_t *length)
{
    char variable[256];
    if (name >= sizeof variable) {
        br_config_error(config, at,
                        "the name of a variable in ${} has %zu characters; expected fewer than %zu", name,
                        sizeof variable);
        return NULL;
    }
    memcpy(variable, text + 2, name);
    variable[name] = '\0';
    const char *value = br_ranks_variable(variable);
    bool has_default = text[2 + name] == ':';
    if (has_default && (value == NULL || *value == '\0')) {
        value = text + 2 + name + 2;
        *length = run - (2 + name + 2) - 1;
        for (size_t i = 0; i + 1 < *length; i++)
            if (value[i] == '$' && value[i + 1] == '{') {
                br_config_error(
                    config, at,
                    "the default of ${%s} holds another ${}; expected plain text: references do not "
                    "nest",
                    variable);
                return NULL;
            }
        return value;
    }
    if (value == NULL) {
        br_config_error(config, at,
                        "the environment variable '%s' is not set; expected a value for it, or a default: "
                        "${%s:-value}",
                        variable, variable);
        return NULL;
    }
    *length = strlen(value);
    return value;
}

/* Writes the text with its references replaced to `out` (NULL: only count). SIZE_MAX after a mistake. */
static size_t replace(struct br_config *config, const struct br_node *at, const char *text, size_t length,
                      char *out)
{
    size_t total = 0;
    for (size_t i = 0; i < length;) {
        const char *piece = text + i;
        size_t n = 1, run = 1, name = 0;
        if (length - i >= 3 && memcmp(piece, "$${", 3) == 0) {
            piece = "${";
            n = 2;
            run = 3;
        } else if (length - i >= 2 && memcmp(piece, "${", 2) == 0) {
            run = reference(piece, length - i, &name);
            if (run == 0) {
                br_config_error(
                    config, at,
                    "'${' begins no reference; expected ${NAME} or ${NAME:-default}, or $${ for a "
                    "literal ${");
                return SIZE_MAX;
            }
            piece = lookup(config, at, piece, run, name, &n);
            if (piece == NULL) return SIZE_MAX;
        }
        if (out != NULL) memcpy(out + total, piece, n);
        total += n;
        i += run;
    }
    return total;
}

const char *br_expand(struct br_config *config, const struct br_node *at, const char *text, size_t length,
                      bool *whole)
{
    size_t name;
    *whole = length > 0 && reference(text, length, &name) == length;
    size_t total = replace(config, at, text, length, NULL);
    if (total == SIZE_MAX) return "";
    if (total > BR_CONFIG_MAX_TEXT - config->text_bytes) {
        br_config_error(config, at,
                        "the values hold more than %d bytes once ${} is replaced; expected a smaller "
                        "configuration",
                        BR_CONFIG_MAX_TEXT);
        return "";
    }
    config->text_bytes += total;
    char *out = br_config_alloc(config, total + 1);
    replace(config, at, text, length, out);
    return out;
}
