/* watch.c - parameters that are files: {file: NAME, watch: BOOL}. */
#include "runtime/graph/graph.h"

#include <stdio.h>
#include <string.h>

const struct br_param *br_stage_type_param(const struct br_stage_type *type, const char *name)
{
    const struct br_param *p = type->params;
    while (p != NULL && p->name != NULL && strcmp(p->name, name) != 0) p++;
    return p != NULL && p->name != NULL ? p : NULL;
}

bool br_stage_type_updates(const struct br_stage_type *type, const char *param)
{
    const char *const *u = type->updates;
    while (u != NULL && *u != NULL && strcmp(*u, param) != 0) u++;
    return u != NULL && *u != NULL;
}

static void add_watch(struct br_graph *graph, const char *path, const char *stage, const char *param)
{
    struct br_watch *w = graph->watch;
    while (w != NULL && strcmp(w->path, path) != 0) w = w->next;
    if (w == NULL) {
        w = br_config_alloc(graph->config, sizeof *w);
        *w = (struct br_watch){.next = graph->watch, .path = path, .params = ""};
        graph->watch = w;
    }
    size_t room = strlen(w->params) + strlen(stage) + strlen(param) + 4;
    char *params = br_config_alloc(graph->config, room);
    snprintf(params, room, "%s%s%s.%s", w->params, *w->params != '\0' ? ", " : "", stage, param);
    w->params = params;
}

struct form {
    const char *file;
    bool watch;
};
static const struct br_param form_params[] = {
    BR_PARAM("file", BR_P_PATH, struct form, file, "name of the file", .required = true),
    BR_PARAM("watch", BR_P_BOOL, struct form, watch, "new values when it changes", .def = "false"),
    {0},
};

const struct br_node *br_graph_read_watches(struct br_graph *graph, const struct br_stage *stage,
                                            const struct br_node *node)
{
    struct br_config *config = graph->config;
    struct br_node *plain = NULL;
    for (size_t i = 0; i < node->count; i++) {
        const struct br_param *param = br_stage_type_param(stage->type, node->key[i]->text);
        struct form form = {0};
        if (param == NULL || param->type != BR_P_PATH || node->item[i]->kind != BR_NODE_MAP) continue;
        if (br_config_fill(config, node->item[i], form_params, NULL, &form) > 0) return NULL;
        if (form.watch && !br_stage_type_updates(stage->type, param->name)) {
            br_config_error(
                config, br_node_get(node->item[i], "watch"),
                "stage '%s': '%s' cannot be changed while it runs, so that there is nothing to watch "
                "for",
                stage->name, param->name);
            return NULL;
        }
        if (plain == NULL) {
            plain = br_config_alloc(config, sizeof *plain);
            *plain = *node;
            plain->item = br_config_alloc(config, node->count * sizeof *plain->item);
            memcpy(plain->item, node->item, node->count * sizeof *plain->item);
        }
        for (size_t k = 0; k < node->item[i]->count; k++)
            if (strcmp(node->item[i]->key[k]->text, "file") == 0) plain->item[i] = node->item[i]->item[k];
        if (form.watch) add_watch(graph, form.file, stage->name, param->name);
    }
    return plain != NULL ? plain : node;
}
