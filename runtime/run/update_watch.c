/* update_watch.c - see update_watch.h. */
#include "runtime/run/update_watch.h"

#include "buffers/clock.h"
#include "runtime/run/updates.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const br_watch_state_name[] = {"holds", "waits", "missing", "refused"};

/* --- in the pipeline file --- */

/* 0, or errno; EISDIR: it is no file. */
static int version_of(const char *path, struct br_file_version *version)
{
    struct stat info;
    *version = (struct br_file_version){0};
    if (stat(path, &info) != 0) return errno;
    if (!S_ISREG(info.st_mode)) return EISDIR;
    *version = (struct br_file_version){.device = info.st_dev,
                                        .number = info.st_ino,
                                        .bytes = info.st_size,
                                        .written = info.st_mtim,
                                        .changed = info.st_ctim,
                                        .there = true};
    return 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* A rename changes the inode's time, but not what is in the file. */
static bool same_version(const struct br_file_version *a, const struct br_file_version *b)
{
    return a->there == b->there && a->device == b->device && a->number == b->number && a->bytes == b->bytes &&
           same_time(a->written, b->written);
}

static void add_watch(struct br_graph *graph, const char *path, const char *stage, const char *param)
{
    struct br_watched *w = graph->watched;
    while (w != NULL && strcmp(w->path, path) != 0) w = w->next;
    if (w == NULL) {
        w = br_config_alloc(graph->config, sizeof *w);
        w->path = path;
        w->params = "";
        version_of(path, &w->taken); /* before the stage reads it: what comes later is seen */
        w->seen = w->taken;
        w->next = graph->watched;
        graph->watched = w;
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

static bool may_be_watched(const struct br_stage_type *type, const char *param)
{
    const char *const *u = type->updates;
    while (u != NULL && *u != NULL && strcmp(*u, param) != 0) u++;
    return u != NULL && *u != NULL;
}

const struct br_node *br_watch_read(struct br_graph *graph, const struct br_stage *stage,
                                    const struct br_node *node)
{
    struct br_config *config = graph->config;
    struct br_node *plain = NULL;
    for (size_t i = 0; i < node->count; i++) {
        const struct br_param *param = br_update_param(stage->type, node->key[i]->text);
        struct form form = {0};
        if (param == NULL || param->type != BR_P_PATH || node->item[i]->kind != BR_NODE_MAP) continue;
        if (br_config_fill(config, node->item[i], form_params, NULL, &form) > 0) return NULL;
        if (form.watch && !may_be_watched(stage->type, param->name)) {
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

/* --- while it runs --- */

static void tell(struct br_graph *graph, struct br_watched *w, enum br_watch_state state, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
static void tell(struct br_graph *graph, struct br_watched *w, enum br_watch_state state, const char *format,
                 ...)
{
    char why[sizeof w->why];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    bool news = state != w->state || strcmp(why, w->why) != 0;
    pthread_mutex_lock(&graph->updates->records);
    w->state = state;
    memcpy(w->why, why, sizeof why);
    pthread_mutex_unlock(&graph->updates->records);
    if (!news || state == BR_WATCH_HOLDS) return;
    br_log(graph->log, state == BR_WATCH_WAITS ? BR_LOG_NOTE : BR_LOG_WARNING, NULL, "watch %s: %s", w->path,
           why);
}

/* NAME-DIGEST, and a number behind it where a version comes back that has held before. */
static void name_update(struct br_graph *graph, const struct br_watched *w, uint64_t digest,
                        char id[BR_UPDATE_ID])
{
    char name[50];
    const char *slash = strrchr(w->path, '/');
    snprintf(name, sizeof name, "%s", slash != NULL ? slash + 1 : w->path);
    for (char *c = name; *c != '\0'; c++)
        if (*c < '!' || *c > '~') *c = '_';
    snprintf(id, BR_UPDATE_ID, "%s-%016" PRIx64, name, digest);
    for (unsigned n = 2; br_updates_knows(graph, id); n++)
        snprintf(id, BR_UPDATE_ID, "%s-%016" PRIx64 "-%u", name, digest, n);
}

/* {"id": ..., "at": "now", "stages": {STAGE: {PARAM: {"file": PATH}}}}, or NULL: no memory. */
static char *request_for(const struct br_watched *w, const char *id)
{
    json_t *stages = json_object(), *body = json_pack("{ss ss so}", "id", id, "at", "now", "stages", stages);
    char *list = strdup(w->params), *rest = list, *one;
    while (list != NULL && (one = strsep(&rest, ",")) != NULL) {
        one += *one == ' ';
        char *dot = strrchr(one, '.');
        *dot = '\0';
        json_t *values = json_object_get(stages, one);
        if (values == NULL) {
            values = json_object();
            json_object_set_new(stages, one, values);
        }
        json_object_set_new(values, dot + 1, json_pack("{ss}", "file", w->path));
    }
    char *text = list != NULL && body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    free(list);
    json_decref(body);
    return text;
}

/* A stage of the watch with an update that is scheduled, behind which an update of now would be refused. */
static const char *busy_stage(const struct br_graph *graph, const struct br_watched *w)
{
    for (size_t s = 0; s < graph->nfile; s++) {
        const char *name = graph->stage[s].name, *at = w->params;
        if (atomic_load(&graph->stage[s].updates.first) == NULL) continue;
        for (; (at = strstr(at, name)) != NULL; at++)
            if (at[strlen(name)] == '.' && (at == w->params || at[-1] == ' ')) return name;
    }
    return NULL;
}

static void take(struct br_graph *graph, struct br_watched *w)
{
    char id[BR_UPDATE_ID];
    struct br_config *config;
    struct br_error error = {0};
    struct br_update_reply reply = {.outcome = BR_UPDATE_FAILED};
    if (access(w->path, R_OK) != 0) {
        tell(graph, w, BR_WATCH_WAITS, "it cannot be read: %s; the values of before stay", strerror(errno));
        return;
    }
    uint64_t digest = br_update_file_digest(w->path);
    if (w->digest == digest) { /* touched, or written again with the same values */
        w->taken = w->seen;
        tell(graph, w, BR_WATCH_HOLDS, "%s", "");
        return;
    }
    const char *busy = busy_stage(graph, w);
    if (busy != NULL) {
        tell(graph, w, BR_WATCH_WAITS,
             "stage '%s' has another update scheduled; it is taken when that one holds", busy);
        return;
    }
    name_update(graph, w, digest, id);
    char *text = request_for(w, id);
    int status =
        text == NULL ? BR_E_NO_MEMORY : br_config_parse_value(&config, w->path, text, strlen(text), &error);
    free(text);
    if (status == BR_OK) status = br_updates_submit(graph, config, br_config_root(config), true, &reply);
    w->seen_ns = br_clock_ns(); /* where it may go better next time, that is after a while */
    if (status == BR_OK && reply.outcome == BR_UPDATE_OK) {
        w->taken = w->seen;
        w->digest = digest;
        w->taken_count++;
        tell(graph, w, BR_WATCH_HOLDS, "%s", "");
        return;
    }
    bool wrong = status == BR_OK && reply.outcome == BR_UPDATE_WRONG;
    if (wrong) w->taken = w->seen;
    tell(graph, w, wrong ? BR_WATCH_REFUSED : BR_WATCH_WAITS, "%s; the values of before stay",
         status != BR_OK || reply.update->why == NULL ? "no memory" : reply.update->why);
}

static void look_at(struct br_graph *graph, struct br_watched *w)
{
    struct br_file_version now;
    int why = version_of(w->path, &now);
    if (why != 0) {
        w->seen = (struct br_file_version){0};
        tell(graph, w, BR_WATCH_MISSING, "%s; the values of before stay until it is back",
             why == EISDIR ? "something else than a file is in its place" : strerror(why));
    } else if (same_version(&now, &w->taken)) {
        w->seen = now;
        if (w->state != BR_WATCH_REFUSED) tell(graph, w, BR_WATCH_HOLDS, "%s", "");
    } else if (!same_version(&now, &w->seen)) {
        w->seen = now;
        w->seen_ns = br_clock_ns();
        tell(graph, w, BR_WATCH_WAITS, "it changes, and is taken when it has stayed the same for %g s",
             (double)BR_WATCH_SETTLES_NS * 1e-9);
    } else if (br_clock_ns() - w->seen_ns >= BR_WATCH_SETTLES_NS) {
        take(graph, w);
    }
}

void br_watch_look(struct br_graph *graph)
{
    for (struct br_watched *w = graph->watched; w != NULL; w = w->next) look_at(graph, w);
}
