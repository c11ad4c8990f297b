/* plugin_check.c - what a plugin's descriptor must have. */
#include "buffers/stream.h"
#include "runtime/graph/plugin.h"

#include <stdio.h>

enum { DEEPEST = 8 };

static unsigned count_ports(const struct br_port *port)
{
    unsigned n = 0;
    while (port != NULL && n <= BR_MAX_PORTS && port[n].name != NULL) n++;
    return n;
}

/* Bytes of the field that receives a parameter; 0: there is no such type. */
static size_t field_bytes(enum br_param_type type)
{
    switch (type) {
    case BR_P_BOOL:
        return sizeof(bool);
    case BR_P_INT:
        return sizeof(int64_t);
    case BR_P_REAL:
        return sizeof(double);
    case BR_P_STRING:
    case BR_P_CHOICE:
    case BR_P_PATH:
        return sizeof(const char *);
    case BR_P_RATIONAL:
        return sizeof(struct br_rational);
    case BR_P_INTS:
    case BR_P_REALS:
    case BR_P_STRINGS:
        return sizeof(struct br_ints);
    case BR_P_MAP:
        return sizeof(void *);
    case BR_P_MAPS:
        return sizeof(struct br_maps);
    }
    return 0;
}

/* A schema whose fields lie in a struct of `size` bytes. `wrong` gets the mistake. */
static bool check_schema(const struct br_param *schema, size_t size, unsigned depth, char *wrong, size_t room)
{
    for (const struct br_param *p = schema; p != NULL && p->name != NULL; p++) {
        size_t bytes = field_bytes(p->type);
        bool maps = p->type == BR_P_MAP || p->type == BR_P_MAPS;
        if (bytes == 0) {
            snprintf(wrong, room, "its parameter '%.60s' has the unknown type %d", p->name, (int)p->type);
        } else if (p->offset + bytes > size) {
            snprintf(wrong, room,
                     "the field of its parameter '%.60s' ends at byte %zu of a struct of %zu bytes; set %s "
                     "to sizeof(the struct)",
                     p->name, p->offset + bytes, size, depth > 0 ? "the map's .size" : ".size");
        } else if (p->type == BR_P_CHOICE && p->choices == NULL) {
            snprintf(wrong, room, "its parameter '%.60s' has no .choices", p->name);
        } else if (maps && p->fields == NULL) {
            snprintf(wrong, room, "its parameter '%.60s' is a map without .fields", p->name);
        } else if (!maps || depth >= DEEPEST || check_schema(p->fields, p->size, depth + 1, wrong, room)) {
            continue;
        }
        return false;
    }
    return true;
}

int br_plugin_check(const struct br_stage_type *type, const char *path, struct br_error *error)
{
    char schema[256];
    const uint32_t known = BR_STAGE_CUDA | BR_STAGE_OPTIONAL_OUTPUTS | BR_STAGE_HISTORY | BR_STAGE_COMMITS;
    const char *wrong = NULL;
    if (type->name == NULL || type->name[0] == '\0')
        wrong = "it has no name";
    else if (type->summary == NULL)
        wrong = "it has no summary";
    else if (type->configure == NULL || type->process == NULL)
        wrong = "it lacks configure or process";
    else if (count_ports(type->inputs) > BR_MAX_PORTS || count_ports(type->outputs) > BR_MAX_PORTS)
        wrong = "it has too many ports";
    else if (count_ports(type->inputs) + count_ports(type->outputs) == 0)
        wrong = "it has neither inputs nor outputs";
    else if ((type->flags & ~known) != 0)
        wrong = "it sets flags that this beamring does not know; rebuild it against the installed headers";
    else if (type->updates != NULL && type->commit == NULL)
        wrong = "it names parameters that can be updated, but has no commit";
    else if (type->updates != NULL && count_ports(type->inputs) == 0 && (type->flags & BR_STAGE_COMMITS) == 0)
        wrong = "it is a source and names parameters that can be updated: it must set BR_STAGE_COMMITS, ask "
                "br_stage_next_update and call br_stage_update";
    else if (!check_schema(type->params, type->size, 0, schema, sizeof schema))
        wrong = schema;
    if (wrong != NULL) return br_fail(error, BR_E_FORMAT, "plugin %s: %s", path, wrong);
    return BR_OK;
}
