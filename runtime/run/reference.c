/* reference.c - a stage described from its descriptor and schema, so that the description cannot be wrong. */
#include "runtime/run/pipeline.h"

#include <string.h>

static const char *type_name(const struct br_param *param)
{
    switch (param->type) {
    case BR_P_BOOL:
        return "true or false";
    case BR_P_INT:
        return "integer";
    case BR_P_REAL:
        return "number";
    case BR_P_STRING:
        return "text";
    case BR_P_CHOICE:
        return "choice";
    case BR_P_PATH:
        return "path";
    case BR_P_RATIONAL:
        return "exact number";
    case BR_P_INTS:
        return "integers";
    case BR_P_REALS:
        return "numbers";
    case BR_P_STRINGS:
        return "texts";
    case BR_P_MAP:
        return "map";
    case BR_P_MAPS:
        return "list of maps";
    }
    return "?";
}

/* "1 to 128", "block or drop", "taps x factor values" ... */
static void limits(const struct br_param *param, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    if (param->type == BR_P_CHOICE)
        for (const char *const *c = param->choices; c != NULL && *c != NULL; c++)
            used += (size_t)snprintf(text + used, used < size ? size - used : 0, "%s%s",
                                     c != param->choices ? " or " : "", *c);
    else if (param->min < param->max || param->max > 0)
        snprintf(text, size, "%.10g to %.10g", param->min, param->max);
}

static void default_text(const struct br_param *param, char *text, size_t size)
{
    if (param->required)
        snprintf(text, size, "required");
    else
        snprintf(text, size, "%s", param->def != NULL ? param->def : "");
}

enum { WIDTH = 140 }; /* of a line of the page: that of stages/NAME/NAME.md, whose lines stay whole */

/* Text as paragraphs of lines of at most WIDTH characters, all but the first with `indent` spaces before
 * them. A line that ends in the text ends on the page, too. */
static void fill(FILE *out, const char *text, int indent)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " \n"), space = strspn(text + word, " ");
        const char *next = text + word + space;
        fwrite(text, 1, word, out);
        column += word;
        if (*next == '\n') {
            fputc('\n', out);
            column = 0;
            next++;
        } else if (*next != '\0' && column + space + strcspn(next, " \n") > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = (size_t)indent;
        } else if (*next != '\0') {
            fprintf(out, "%*s", (int)space, "");
            column += space;
        }
        text = next;
    }
    fputc('\n', out);
}

/* "; only frb-node, kotekan", or nothing. */
static void formats_text(const struct br_param *param, char *text, size_t size)
{
    text[0] = '\0';
    if (param->formats == NULL) return;
    size_t used = (size_t)snprintf(text, size, "; only ");
    for (const char *c = param->formats; *c != '\0' && used + 3 < size; c++) {
        if (*c == ' ') text[used++] = ',';
        text[used++] = *c;
    }
    text[used] = '\0';
}

static void markdown_params(const struct br_param *params, const char *prefix, FILE *out)
{
    for (const struct br_param *p = params; p != NULL && p->name != NULL; p++) {
        char name[128], range[128], def[64], formats[64], entry[2048];
        snprintf(name, sizeof name, "%s%s", prefix, p->name);
        limits(p, range, sizeof range);
        default_text(p, def, sizeof def);
        formats_text(p, formats, sizeof formats);
        snprintf(entry, sizeof entry, "- `%s` (%s%s%s%s%s%s%s%s): %s.", name, type_name(p),
                 p->unit != NULL ? ", " : "", p->unit != NULL ? p->unit : "", range[0] != '\0' ? ", " : "",
                 range,
                 def[0] == '\0' ? ""
                 : p->required  ? ", "
                                : ", default ",
                 def, formats, p->help != NULL ? p->help : "");
        fill(out, entry, 2);
        if (p->fields != NULL) {
            snprintf(name, sizeof name, "%s%s%s.", prefix, p->name, p->type == BR_P_MAPS ? "[]" : "");
            markdown_params(p->fields, name, out);
        }
    }
}

static void text_params(const struct br_param *params, int indent, FILE *out)
{
    for (const struct br_param *p = params; p != NULL && p->name != NULL; p++) {
        char range[128], def[64], formats[64];
        limits(p, range, sizeof range);
        default_text(p, def, sizeof def);
        formats_text(p, formats, sizeof formats);
        fprintf(out, "%*s%-*s %s", indent, "", 22 - indent, p->name, type_name(p));
        if (p->unit != NULL) fprintf(out, ", %s", p->unit);
        if (range[0] != '\0') fprintf(out, ", %s", range);
        if (def[0] != '\0') fprintf(out, p->required ? " (%s)" : " (default %s)", def);
        fprintf(out, "%s\n%*s%s\n", formats, 25, "", p->help != NULL ? p->help : "");
        if (p->fields != NULL) text_params(p->fields, indent + 2, out);
    }
}

static void ports(const char *what, const struct br_port *port, bool markdown, FILE *out)
{
    for (; port != NULL && port->name != NULL; port++)
        if (markdown) {
            char entry[2048];
            snprintf(entry, sizeof entry, "- **%s** `%s`: %s", what, port->name,
                     port->help != NULL ? port->help : "");
            fill(out, entry, 2);
        } else
            fprintf(out, "  %-6s %-14s %s\n", what, port->name, port->help != NULL ? port->help : "");
}

/* "Can be updated while it runs: `gain`, `shift`." */
static void updates(const struct br_stage_type *type, bool markdown, FILE *out)
{
    const char *quote = markdown ? "`" : "";
    if (type->updates == NULL || type->updates[0] == NULL) return;
    fputs("Can be updated while it runs: ", out);
    for (const char *const *u = type->updates; *u != NULL; u++)
        fprintf(out, "%s%s%s%s", u == type->updates ? "" : ", ", quote, *u, quote);
    fputs(".\n\n", out);
}

void br_reference_print(const struct br_stage_type *type, bool markdown, FILE *out)
{
    fprintf(out, markdown ? "## %s\n%s.\n\n" : "%s - %s\n\n", type->name, type->summary);
    ports("in", type->inputs, markdown, out);
    ports("out", type->outputs, markdown, out);
    fputc('\n', out);
    if (type->params != NULL && type->params[0].name != NULL) {
        if (markdown) {
            markdown_params(type->params, "", out);
            fputc('\n', out);
        } else {
            text_params(type->params, 2, out);
            fputc('\n', out);
        }
    }
    updates(type, markdown, out);
    if (type->description == NULL) return;
    if (markdown)
        fill(out, type->description, 0);
    else
        fputs(type->description, out);
}
