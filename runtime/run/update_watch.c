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

void br_watch_begin(struct br_graph *graph)
{
    for (const struct br_watch *file = graph->watch; file != NULL; file = file->next) {
        struct br_watched *w = br_config_alloc(graph->config, sizeof *w);
        *w = (struct br_watched){.next = graph->state->watched, .file = file};
        version_of(file->path, &w->taken);
        w->seen = w->taken;
        graph->state->watched = w;
    }
}

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
    pthread_mutex_lock(&graph->state->updates->records);
    w->state = state;
    memcpy(w->why, why, sizeof why);
    pthread_mutex_unlock(&graph->state->updates->records);
    if (!news || state == BR_WATCH_HOLDS) return;
    br_log(graph->log, state == BR_WATCH_WAITS ? BR_LOG_NOTE : BR_LOG_WARNING, NULL, "watch %s: %s",
           w->file->path, why);
}

/* NAME-DIGEST, and a number behind it where a version comes back that has held before. */
static void name_update(struct br_graph *graph, const struct br_watched *w, uint64_t digest,
                        char id[BR_UPDATE_ID])
{
    char name[50];
    const char *slash = strrchr(w->file->path, '/');
    snprintf(name, sizeof name, "%s", slash != NULL ? slash + 1 : w->file->path);
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
    char *list = strdup(w->file->params), *rest = list, *one;
    while (list != NULL && (one = strsep(&rest, ",")) != NULL) {
        one += *one == ' ';
        char *dot = strrchr(one, '.');
        *dot = '\0';
        json_t *values = json_object_get(stages, one);
        if (values == NULL) {
            values = json_object();
            json_object_set_new(stages, one, values);
        }
        json_object_set_new(values, dot + 1, json_pack("{ss}", "file", w->file->path));
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
        const char *name = graph->stage[s].name, *at = w->file->params;
        if (atomic_load(&graph->stage[s].state->updates.first) == NULL) continue;
        for (; (at = strstr(at, name)) != NULL; at++)
            if (at[strlen(name)] == '.' && (at == w->file->params || at[-1] == ' ')) return name;
    }
    return NULL;
}

static void take(struct br_graph *graph, struct br_watched *w)
{
    char id[BR_UPDATE_ID];
    struct br_config *config;
    struct br_error error = {0};
    struct br_update_reply reply = {.outcome = BR_UPDATE_FAILED};
    if (access(w->file->path, R_OK) != 0) {
        tell(graph, w, BR_WATCH_WAITS, "it cannot be read: %s; the values of before stay", strerror(errno));
        return;
    }
    uint64_t digest = br_update_file_digest(w->file->path);
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
    int status = text == NULL ? BR_E_NO_MEMORY
                              : br_config_parse_value(&config, w->file->path, text, strlen(text), &error);
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
    int why = version_of(w->file->path, &now);
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
    for (struct br_watched *w = graph->state->watched; w != NULL; w = w->next) look_at(graph, w);
}
