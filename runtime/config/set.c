/* set.c - `--set stage.key=value` and `--set key=value`.
 *
 * Nodes may be shared by aliases, so nothing is changed in place: the lists and maps on the way to the value
 * are copied. */
#include "runtime/config/parts.h"

#include <stdlib.h>
#include <string.h>

/* One command-line text; positions are columns of it, the line is its number on the command line. */
struct setting {
    struct br_config *config;
    const char *file, *text;
    unsigned number;
    struct br_node *value;
};

/* The keys that a pipeline file may lack but `--set` may begin. */
static const char *const known[] = {"telescope", "stream",  "device",     "plugins", "affinity",
                                    "pipeline",  "control", "watchdog_s", "journal", NULL};

static struct br_node *node_at(struct setting *s, enum br_node_kind kind, const char *where)
{
    struct br_node *node = br_config_alloc(s->config, sizeof *node);
    *node = (struct br_node){
        .kind = kind, .file = s->file, .line = s->number, .column = (unsigned)(where - s->text) + 1};
    return node;
}

static struct br_node *copy(struct br_config *config, const struct br_node *node, size_t extra)
{
    struct br_node *twin = br_config_alloc(config, sizeof *twin);
    *twin = *node;
    twin->item = br_config_alloc(config, (node->count + extra) * sizeof *twin->item);
    if (node->count > 0) memcpy(twin->item, node->item, node->count * sizeof *twin->item);
    if (node->kind != BR_NODE_MAP) return twin;
    twin->key = br_config_alloc(config, (node->count + extra) * sizeof *twin->key);
    if (node->count > 0) memcpy(twin->key, node->key, node->count * sizeof *twin->key);
    return twin;
}

/* `path` is what is left of "a.b.c", up to the '='. Returns the new map, or NULL after a mistake. */
static struct br_node *set_below(struct setting *s, const struct br_node *map, const char *path)
{
    size_t length = strcspn(path, ".=");
    struct br_node *key = node_at(s, BR_NODE_SCALAR, path);
    key->text = br_config_text(s->config, path, length);
    if (map->kind != BR_NODE_MAP) {
        br_config_error(s->config, key, "'%.*s' has no keys; expected a path of keys that ends at a value",
                        (int)(path > s->text ? path - s->text - 1 : 0), s->text);
        return NULL;
    }
    size_t at = 0;
    while (at < map->count && strcmp(map->key[at]->text, key->text) != 0) at++;
    struct br_node *item = s->value;
    if (path[length] == '.') {
        item =
            set_below(s, at < map->count ? map->item[at] : node_at(s, BR_NODE_MAP, path), path + length + 1);
        if (item == NULL) return NULL;
    }
    struct br_node *twin = copy(s->config, map, 1);
    if (at == twin->count) twin->count++;
    twin->key[at] = key;
    twin->item[at] = item;
    return twin;
}

/* The name of a pipeline's stage: `name:`, or the plugin's. */
static const char *stage_name(const struct br_node *stage)
{
    const struct br_node *name = br_node_get(stage, "name");
    if (name == NULL) name = br_node_get(stage, "stage");
    return name != NULL && name->kind == BR_NODE_SCALAR ? name->text : NULL;
}

/* "name" of "name.key=value" is neither a stage nor a key. */
static void report_unknown(struct setting *s, const char *name, const struct br_node *stages)
{
    struct br_config *config = s->config;
    size_t nstages = stages != NULL && stages->kind == BR_NODE_LIST ? stages->count : 0, n = 0;
    const char **names =
        br_config_alloc(config, (nstages + sizeof known / sizeof *known + 1) * sizeof *names);
    char list[400] = "";
    for (size_t i = 0; i < nstages; i++) {
        const char *stage = stage_name(stages->item[i]);
        if (stage == NULL) continue;
        names[n++] = stage;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", stage);
    }
    for (size_t i = 0; known[i] != NULL; i++) names[n++] = known[i];
    const char *similar = br_suggest(name, names);
    br_config_error(
        config, node_at(s, BR_NODE_SCALAR, s->text),
        "there is no stage '%s'; expected one of the pipeline (%s) or a key of the file's top%s%s%s", name,
        list, similar != NULL ? "; did you mean '" : "", similar != NULL ? similar : "",
        similar != NULL ? "'?" : "");
}

static bool contains(const char *const *names, const char *name)
{
    while (*names != NULL && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

static void apply(struct setting *s, const char *equals)
{
    struct br_config *config = s->config;
    struct br_node *root = config->root;
    size_t length = strcspn(s->text, ".=");
    const char *first = br_config_text(config, s->text, length);
    const struct br_node *stages = br_node_get(root, "pipeline");
    size_t stage = 0, nstages = stages != NULL && stages->kind == BR_NODE_LIST ? stages->count : 0;
    for (; stage < nstages; stage++) {
        const char *name = stage_name(stages->item[stage]);
        if (name != NULL && strcmp(name, first) == 0) break;
    }
    bool is_top = br_node_get(root, first) != NULL || contains(known, first);
    if (stage < nstages && s->text + length < equals) {
        struct br_node *changed = set_below(s, stages->item[stage], s->text + length + 1);
        if (changed == NULL) return;
        struct br_node *list = copy(config, stages, 0);
        list->item[stage] = changed;
        struct br_node *twin = copy(config, root, 0);
        for (size_t i = 0; i < twin->count; i++)
            if (twin->item[i] == stages) twin->item[i] = list;
        config->root = twin;
    } else if (stage < nstages && !is_top) {
        br_config_error(config, node_at(s, BR_NODE_SCALAR, s->text), "'%s' is a stage; expected %s.KEY=VALUE",
                        first, first);
    } else if (strcmp(first, "include") == 0) {
        br_config_error(config, node_at(s, BR_NODE_SCALAR, s->text),
                        "files cannot be included by --set; expected 'include:' in "
                        "the file");
    } else if (s->text + length < equals && !is_top) {
        report_unknown(s, first, stages);
    } else {
        struct br_node *changed = set_below(s, root, s->text);
        if (changed != NULL) config->root = changed;
    }
}

void br_config_set(struct br_config *config, const char *set, unsigned number)
{
    struct setting s = {
        .config = config, .file = br_config_file(config, "--set"), .text = set, .number = number};
    const char *equals = strchr(set, '=');
    if (equals == NULL || equals == set || set[0] == '.' || equals[-1] == '.' ||
        (strstr(set, "..") != NULL && strstr(set, "..") < equals)) {
        br_config_error(config, node_at(&s, BR_NODE_SCALAR, set),
                        "'%s' sets nothing; expected STAGE.KEY=VALUE or KEY=VALUE, such "
                        "as upchannelize.factor=32",
                        set);
        return;
    }
    size_t mistakes = config->nmistakes, length = strlen(equals + 1);
    bool empty = false;
    struct br_origin origin = {s.file, number, (unsigned)(equals + 1 - set)};
    if (length > BR_CONFIG_MAX_BYTES) length = BR_CONFIG_MAX_BYTES;
    s.value = br_yaml_parse(config, origin, equals + 1, length, &empty);
    if (empty) {
        s.value = node_at(&s, BR_NODE_SCALAR, equals + 1);
        s.value->text = "";
    }
    if (config->nmistakes > mistakes || s.value == NULL) return;
    /* Without a map there is nothing to set in; that it is none is reported by whoever reads it. */
    if (config->root == NULL || config->root->kind != BR_NODE_MAP) return;
    unsigned depth = 0;
    for (const char *c = set; c < equals; c++) depth += *c == '.';
    if (depth >= BR_CONFIG_MAX_DEPTH) {
        br_config_error(config, node_at(&s, BR_NODE_SCALAR, set), "the path has %u keys; expected at most %d",
                        depth + 1, BR_CONFIG_MAX_DEPTH);
        return;
    }
    apply(&s, equals);
}
