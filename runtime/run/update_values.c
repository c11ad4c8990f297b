/* update_values.c - a second stage with new values: filled in, configured and compared with the one that
 * runs, by the same code as for the pipeline file. See updates.h. */
#include "runtime/run/updates.h"

#include "runtime/config/parts.h"

#include <stdlib.h>
#include <string.h>

static struct br_node *copy_node(struct br_config *config, const struct br_node *node)
{
    struct br_node *copy = br_config_alloc(config, sizeof *copy);
    *copy = *node;
    if (node->file != NULL) copy->file = br_config_file(config, node->file);
    if (node->kind == BR_NODE_SCALAR) {
        copy->text = br_config_text(config, node->text, strlen(node->text));
        return copy;
    }
    copy->item = br_config_alloc(config, node->count * sizeof *copy->item);
    copy->key = node->key != NULL ? br_config_alloc(config, node->count * sizeof *copy->key) : NULL;
    for (size_t i = 0; i < node->count; i++) {
        copy->item[i] = copy_node(config, node->item[i]);
        if (copy->key != NULL) copy->key[i] = copy_node(config, node->key[i]);
    }
    return copy;
}

const struct br_node *br_update_file(const struct br_param *param, const struct br_node *value)
{
    if (param == NULL || param->type != BR_P_PATH) return NULL;
    if (value->kind == BR_NODE_SCALAR) return value;
    const struct br_node *file =
        value->kind == BR_NODE_MAP && value->count == 1 ? br_node_get(value, "file") : NULL;
    return file != NULL && file->kind == BR_NODE_SCALAR ? file : NULL;
}

/* A parameter that is a file may be written {file: PATH}. */
static struct br_node *value_of(struct br_config *config, const struct br_stage_type *type, const char *name,
                                struct br_node *value)
{
    const struct br_param *param = br_stage_type_param(type, name);
    if (param == NULL || param->type != BR_P_PATH || value->kind != BR_NODE_MAP) return value;
    if (value->count == 1 && strcmp(value->key[0]->text, "file") == 0) return value->item[0];
    br_config_error(config, value, "%s: expected the name of a file, or {file: NAME}", name);
    return value;
}

static bool check_keys(struct br_config *config, const struct br_stage *stage, const struct br_node *given)
{
    size_t before = br_config_errors(config);
    for (size_t i = 0; i < given->count; i++) {
        const struct br_node *key = given->key[i];
        const char *similar = br_suggest(key->text, stage->type->updates);
        char expected[300] = "";
        if (br_stage_type_updates(stage->type, key->text)) continue;
        for (const char *const *u = stage->type->updates; *u != NULL; u++) {
            size_t used = strlen(expected);
            snprintf(expected + used, sizeof expected - used, "%s%s", used > 0 ? ", " : "", *u);
        }
        br_config_error(
            config, key, "stage '%s': '%.80s' %s; expected one of %s%s%s%s", stage->name, key->text,
            br_stage_type_param(stage->type, key->text) != NULL ? "cannot be changed while it runs"
                                                                : "is no parameter of it",
            expected, similar != NULL ? "; did you mean '" : "", similar != NULL ? similar : "",
            similar != NULL ? "'?" : "");
    }
    return br_config_errors(config) == before;
}

/* `base` with what is given in its place. */
static struct br_node *merge(struct br_config *config, const struct br_stage_type *type,
                             const struct br_node *base, const struct br_node *given)
{
    struct br_node *all = br_config_alloc(config, sizeof *all);
    size_t room = base->count + given->count;
    *all = (struct br_node){.kind = BR_NODE_MAP,
                            .file = given->file,
                            .line = given->line,
                            .column = given->column,
                            .item = br_config_alloc(config, room * sizeof *all->item),
                            .key = br_config_alloc(config, room * sizeof *all->key)};
    for (size_t i = 0; i < base->count; i++) {
        if (br_node_get(given, base->key[i]->text) != NULL) continue;
        all->key[all->count] = copy_node(config, base->key[i]);
        all->item[all->count++] = copy_node(config, base->item[i]);
    }
    for (size_t i = 0; i < given->count; i++) {
        all->key[all->count] = given->key[i];
        all->item[all->count++] = value_of(config, type, given->key[i]->text, given->item[i]);
    }
    return all;
}

static void free_second(struct br_stage *fresh)
{
    if (fresh != NULL) free(fresh->state);
    if (fresh != NULL) free(fresh->self);
    free(fresh);
}

/* A stage like the one that runs, with a struct of its own. NULL: no memory. */
static struct br_stage *make_second(struct br_stage *stage, const struct br_node *node,
                                    struct br_config *config)
{
    struct br_stage *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return NULL;
    fresh->self = calloc(1, stage->type->size > 0 ? stage->type->size : 1);
    fresh->state = calloc(1, sizeof *fresh->state);
    if (fresh->self == NULL || fresh->state == NULL) {
        free_second(fresh);
        return NULL;
    }
    fresh->graph = stage->graph;
    fresh->type = stage->type;
    fresh->node = node;
    fresh->name = stage->name;
    fresh->nin = stage->nin;
    fresh->nout = stage->nout;
    memcpy(fresh->in, stage->in, sizeof fresh->in);
    fresh->device = stage->device;
    fresh->device_given = true; /* it cannot move to the CPU any more */
    fresh->state->gpu = stage->state->gpu;
    fresh->phase = BR_PHASE_CONFIGURE;
    fresh->second = config;
    for (unsigned i = 0; i < stage->nout; i++) {
        fresh->out[i].name = stage->out[i].name;
        fresh->out[i].at = stage->out[i].at;
        fresh->out[i].depth = stage->out[i].depth;
        fresh->out[i].depth_given = true;
        fresh->out[i].stream = stage->nin > 0
                                   ? stage->in[0].edge->stream
                                   : (struct br_stream){.scale = 1, .telescope = stage->graph->telescope};
    }
    return fresh;
}

/* The readers of the stage's outputs were told what comes: only where beams point may differ. */
static bool keeps_outputs(struct br_stage *stage, struct br_stage *fresh, struct br_config *config,
                          const struct br_node *at)
{
    for (unsigned i = 0; i < stage->nout; i++) {
        struct br_error why = {0};
        struct br_stream *now = &stage->out[i].stream, *then = &fresh->out[i].stream;
        if (then->nbeams == now->nbeams) then->beams = now->beams;
        if (then->beams_x == now->beams_x && then->beams_y == now->beams_y &&
            br_stream_compatible(now, then, &why))
            continue;
        br_config_error(config, at,
                        "stage '%s': its output '%s' would change, which a pipeline that runs cannot do: %s; "
                        "expected values that leave its shape, or a restart",
                        stage->name, stage->out[i].name,
                        why.text[0] != '\0' ? why.text : "another grid of beams");
        return false;
    }
    return true;
}

struct br_change *br_change_make(struct br_update *update, struct br_stage *stage, const struct br_node *base,
                                 const struct br_node *given, struct br_config *config)
{
    static const struct br_param none[] = {{0}};
    if (!check_keys(config, stage, given)) return NULL;
    size_t before = br_config_errors(config);
    struct br_node *node = merge(config, stage->type, base, given);
    struct br_change *change = calloc(1, sizeof *change);
    struct br_stage *fresh = change != NULL ? make_second(stage, node, config) : NULL;
    if (fresh == NULL) {
        br_config_error(config, given, "stage '%s': no memory for another set of values", stage->name);
        free(change);
        return NULL;
    }
    const struct br_param *schema = stage->type->params != NULL ? stage->type->params : none;
    br_config_fill(config, node, schema, br_graph_common_keys, fresh->self);
    if (br_config_errors(config) == before && stage->type->configure(fresh, fresh->self) != BR_OK &&
        br_config_errors(config) == before)
        br_config_error(config, given, "stage '%s' refused these values without saying why", stage->name);
    if (br_config_errors(config) == before) keeps_outputs(stage, fresh, config, given);
    if (br_config_errors(config) > before) {
        free_second(fresh);
        free(change);
        return NULL;
    }
    *change = (struct br_change){.update = update,
                                 .stage = stage,
                                 .fresh = fresh,
                                 .given = given,
                                 .node = node,
                                 .held_from = UINT64_MAX};
    return change;
}

static int prepare(struct br_change *change)
{
    struct br_stage *fresh = change->fresh;
    struct br_config *config = fresh->second;
    struct br_error error = {0};
    size_t before = br_config_errors(config);
    int status = BR_OK;
    if (fresh->device >= 0) {
        status = br_gpu_use(fresh->device, &error);
        if (status == BR_OK) status = br_gpu_event_create(&change->old_unused, fresh->device, false, &error);
    }
    change->prepared = status == BR_OK;
    if (status == BR_OK && fresh->type->prepare != NULL)
        status = fresh->type->prepare(fresh, fresh->self, change->stage->self);
    if (status != BR_OK && br_config_errors(config) == before)
        br_config_error(config, change->given, "stage '%s': %s", fresh->name,
                        error.text[0] != '\0' ? error.text
                                              : "it could not prepare these values, and gave no reason");
    return status;
}

int br_change_prepare(struct br_change *change)
{
    struct br_updates *updates = change->stage->graph->state->updates;
    pthread_mutex_lock(&updates->gate);
    int status = updates->closed ? BR_E_STOPPED : prepare(change);
    pthread_mutex_unlock(&updates->gate);
    return status;
}

void br_change_discard(struct br_change *change)
{
    struct br_stage *fresh = change->fresh;
    if (fresh == NULL) return;
    if (!change->committed) {
        br_held_free(change->held);
        change->held = NULL;
    }
    if (fresh->device >= 0) br_gpu_use(fresh->device, NULL);
    if (change->prepared && fresh->type->discard != NULL) fresh->type->discard(fresh, fresh->self);
    if (change->old_unused != NULL) br_gpu_event_destroy(change->old_unused);
    change->old_unused = NULL;
    free_second(fresh);
    change->fresh = NULL;
}
