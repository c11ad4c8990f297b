/* update_request.c - what an update asks for: its id, its moment, its stages; and a digest of its values. See
 * updates.h. */
#include "buffers/numbers.h"
#include "buffers/regular_file.h"
#include "runtime/run/updates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct moment {
    int64_t sample, time_ns;
};
static const struct br_param moment_params[] = {
    BR_PARAM("sample", BR_P_INT, struct moment, sample, "base sample of the stages' inputs", .def = "-1",
             .min = -1, .max = (double)(1LL << 62)),
    BR_PARAM("time_ns", BR_P_INT, struct moment, time_ns, "Unix time", .def = "-1", .min = -1,
             .max = (double)(1LL << 62), .unit = "ns"),
    {0},
};

struct top {
    const char *id;
};
static const struct br_param top_params[] = {
    BR_PARAM("id", BR_P_STRING, struct top, id, "name of the update, at most 79 characters"),
    {0},
};
static const char *const top_also[] = {"at", "stages", NULL};

static void read_moment(struct br_config *config, const struct br_node *at, struct br_update_request *request)
{
    struct moment m = {-1, -1};
    size_t before = br_config_errors(config);
    request->at = BR_AT_NOW;
    if (at == NULL || (at->kind == BR_NODE_SCALAR && strcmp(at->text, "now") == 0)) return;
    if (at->kind == BR_NODE_MAP) br_config_fill(config, at, moment_params, NULL, &m);
    if (br_config_errors(config) > before) return;
    if (at->kind != BR_NODE_MAP || (m.sample < 0) == (m.time_ns < 0)) {
        br_config_error(config, at, "at: expected now, {sample: NUMBER} or {time_ns: NUMBER}");
        return;
    }
    request->at = m.sample >= 0 ? BR_AT_SAMPLE : BR_AT_TIME;
    request->sample = m.sample >= 0 ? (uint64_t)m.sample : 0;
    request->time_ns = m.time_ns;
}

struct br_stage *br_update_stage(struct br_graph *graph, const char *name)
{
    for (size_t s = 0; s < graph->nfile; s++)
        if (strcmp(graph->stage[s].name, name) == 0) return &graph->stage[s];
    return NULL;
}

static void report_unknown(struct br_graph *graph, struct br_config *config, const struct br_node *key)
{
    const char **names = br_config_alloc(config, (graph->nfile + 1) * sizeof *names);
    char expected[400] = "";
    for (size_t s = 0, n = 0; s < graph->nfile; s++) {
        if (graph->stage[s].type->updates == NULL) continue;
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", used > 0 ? ", " : "", graph->stage[s].name);
        names[n++] = graph->stage[s].name;
    }
    const char *similar = br_suggest(key->text, names);
    br_config_error(config, key, "there is no stage '%.80s'; expected %s%s%s%s%s", key->text,
                    expected[0] != '\0' ? "one of " : "no update: no stage of this pipeline takes one",
                    expected, similar != NULL ? "; did you mean '" : "", similar != NULL ? similar : "",
                    similar != NULL ? "'?" : "");
}

static void read_stages(struct br_graph *graph, struct br_config *config, const struct br_node *at,
                        const struct br_node *map, struct br_update_request *request)
{
    if (map == NULL || map->kind != BR_NODE_MAP || map->count == 0) {
        br_config_error(
            config, map != NULL ? map : at,
            "stages: expected a map of stages with new values, such as {upchannelize: {gain: 4}}");
        return;
    }
    request->stage = br_config_alloc(config, map->count * sizeof(struct br_stage *));
    request->values = br_config_alloc(config, map->count * sizeof(struct br_node *));
    for (size_t i = 0; i < map->count; i++) {
        struct br_stage *stage = br_update_stage(graph, map->key[i]->text);
        if (stage == NULL) {
            report_unknown(graph, config, map->key[i]);
        } else if (stage->type->updates == NULL) {
            br_config_error(config, map->key[i],
                            "stage '%s' takes no updates while it runs; restart the pipeline", stage->name);
        } else if (map->item[i]->kind != BR_NODE_MAP || map->item[i]->count == 0) {
            br_config_error(config, map->item[i], "stage '%s': expected a map of parameters with new values",
                            stage->name);
        } else {
            request->stage[request->nstages] = stage;
            request->values[request->nstages++] = map->item[i];
        }
    }
}

/* One number names a sample in all stages only if they count alike. */
static void check_clocks(struct br_config *config, const struct br_node *at,
                         const struct br_update_request *request)
{
    for (size_t i = 1; i < request->nstages && request->at != BR_AT_TIME; i++) {
        const struct br_stage *first = request->stage[0], *other = request->stage[i];
        const struct br_stream *a = br_update_stream(first), *b = br_update_stream(other);
        if (a->epoch_ns == b->epoch_ns && a->sample_ns.num == b->sample_ns.num &&
            a->sample_ns.den == b->sample_ns.den)
            continue;
        br_config_error(
            config, at,
            "stages '%s' and '%s' count samples of different clocks; expected at: {time_ns: NUMBER}, "
            "or an update for each",
            first->name, other->name);
        return;
    }
}

/* A file is read by libraries that hold up others while they wait for it: a pipe or a device is none. */
static void check_files(struct br_config *config, const struct br_update_request *request)
{
    struct stat info;
    for (size_t i = 0; i < request->nstages; i++)
        for (size_t k = 0; k < request->values[i]->count; k++) {
            const char *name = request->values[i]->key[k]->text;
            const struct br_node *file = br_update_file(br_stage_type_param(request->stage[i]->type, name),
                                                        request->values[i]->item[k]);
            if (file == NULL || stat(file->text, &info) != 0 || S_ISREG(info.st_mode)) continue;
            br_config_error(config, file, "stage '%s': %s: '%.200s' is %s; expected a file",
                            request->stage[i]->name, name, file->text,
                            S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
        }
}

bool br_update_read(struct br_graph *graph, struct br_config *config, const struct br_node *root,
                    struct br_update_request *request)
{
    struct top top = {NULL};
    size_t before = br_config_errors(config);
    *request = (struct br_update_request){.at = BR_AT_NOW};
    if (root == NULL || root->kind != BR_NODE_MAP) {
        br_config_error(config, root,
                        "expected a map such as {id: gains-1, at: {sample: 1000000}, stages: "
                        "{upchannelize: {gain: 4}}}");
        return false;
    }
    br_config_fill(config, root, top_params, top_also, &top);
    if (top.id != NULL && (top.id[0] == '\0' || strlen(top.id) >= BR_UPDATE_ID))
        br_config_error(config, br_node_get(root, "id"), "id: expected 1 to %d characters", BR_UPDATE_ID - 1);
    for (const char *c = top.id; c != NULL && *c != '\0'; c++)
        if (*c < '!' || *c > '~') {
            br_config_error(config, br_node_get(root, "id"),
                            "id: expected characters of ASCII, without blanks");
            break;
        }
    request->id = top.id;
    read_moment(config, br_node_get(root, "at"), request);
    read_stages(graph, config, root, br_node_get(root, "stages"), request);
    if (br_config_errors(config) == before) check_clocks(config, root, request);
    if (br_config_errors(config) == before) check_files(config, request);
    return br_config_errors(config) == before;
}

/* --- the digest -------------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
    return br_fnv(BR_FNV_START, text, strlen(text) + 1);
}

/* Tables are smaller; of a longer file the beginning and its length count. */
enum { MOST_HASHED = 1 << 28 };

static uint64_t add_file(uint64_t hash, const char *path)
{
    char block[65536];
    uint64_t bytes = 0, read = 0;
    FILE *file = br_fopen_regular(path, &bytes, NULL);
    size_t n;
    while (file != NULL && read < MOST_HASHED && (n = fread(block, 1, sizeof block, file)) > 0) {
        hash = br_fnv(hash, block, n);
        read += n;
    }
    if (file != NULL) fclose(file);
    if (bytes > read) hash = br_fnv(hash, &bytes, sizeof bytes);
    return hash;
}

uint64_t br_update_file_digest(const char *path)
{
    return add_file(hash_of(""), path);
}

/* Keys add up, so that their order does not matter. */
static uint64_t hash_node(const struct br_node *node)
{
    uint64_t hash = 0;
    if (node->kind == BR_NODE_SCALAR) {
        char number[BR_UPDATE_NUMBER];
        size_t length = strlen(node->text);
        hash = hash_of(br_update_number(node, number) ? number : node->text);
        bool names_file = length > 3 && (strcmp(node->text + length - 3, ".h5") == 0 ||
                                         (length > 5 && strcmp(node->text + length - 5, ".hdf5") == 0));
        return names_file ? add_file(hash, node->text) : hash;
    }
    if (node->kind == BR_NODE_LIST) {
        hash = hash_of("[");
        for (size_t i = 0; i < node->count; i++) {
            uint64_t item = hash_node(node->item[i]);
            hash = br_fnv(hash, &item, sizeof item);
        }
        return hash;
    }
    for (size_t i = 0; i < node->count; i++) {
        uint64_t item = hash_node(node->item[i]);
        hash += br_fnv(hash_of(node->key[i]->text), &item, sizeof item);
    }
    return hash;
}

/* One value of a parameter, as hash_node has it; a file by its bytes too, whatever its name ends in. */
static uint64_t hash_value(const struct br_param *param, const struct br_node *value)
{
    const struct br_node *file = br_update_file(param, value);
    return file != NULL ? add_file(hash_of(file->text), file->text) : hash_node(value);
}

static uint64_t hash_values(const struct br_stage_type *type, const struct br_node *values)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < values->count; i++) {
        const char *name = values->key[i]->text;
        uint64_t item = hash_value(br_stage_type_param(type, name), values->item[i]);
        hash += br_fnv(hash_of(name), &item, sizeof item);
    }
    return hash;
}

uint64_t br_update_digest(const struct br_update_request *request)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < request->nstages; i++) {
        uint64_t values = hash_values(request->stage[i]->type, request->values[i]);
        digest += br_fnv(hash_of(request->stage[i]->name), &values, sizeof values);
    }
    return digest;
}
