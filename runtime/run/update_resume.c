/* update_resume.c - updates into the journal, and out of it after a restart. See updates.h and journal.h. */
#include "runtime/run/updates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- into it --- */

static json_t *moment_of(enum br_update_at at, uint64_t sample, int64_t time_ns)
{
    if (at == BR_AT_NOW) return json_string("now");
    return at == BR_AT_TIME ? json_pack("{sI}", "time_ns", (json_int_t)time_ns)
                            : json_pack("{sI}", "sample", (json_int_t)sample);
}

static bool is_kept(struct br_graph *graph)
{
    return graph->state->updates->journal.state == BR_JOURNAL_KEPT && !graph->state->updates->resuming;
}

/* Once for all that is lost from here on. */
static void tell_failure(struct br_graph *graph)
{
    struct br_journal *journal = &graph->state->updates->journal;
    br_log(graph->log, BR_LOG_ERROR, NULL,
           "journal %s: %s; updates from here on hold, but not after a restart", journal->path, journal->why);
}

bool br_updates_note_scheduled(struct br_graph *graph, struct br_update *update, const struct br_node *root)
{
    if (!is_kept(graph)) return false;
    char digest[24];
    const struct br_stream *stream = br_update_stream(update->change[0]->stage);
    snprintf(digest, sizeof digest, "%016" PRIx64, update->digest);
    json_t *line = json_pack("{ss ss so sI sI sI s[II] ss sb so}", "id", update->id, "state", "scheduled",
                             "at", moment_of(update->at, update->sample, update->time_ns), "sample",
                             (json_int_t)update->sample, "time_ns",
                             (json_int_t)br_stream_time_ns(stream, update->sample), "epoch_ns",
                             (json_int_t)stream->epoch_ns, "sample_ns", (json_int_t)stream->sample_ns.num,
                             (json_int_t)stream->sample_ns.den, "digest", digest, "of_file",
                             !update->owns_config, "stages", br_update_json(br_node_get(root, "stages")));
    update->noted = br_journal_append(&graph->state->updates->journal, line);
    if (!update->noted) tell_failure(graph);
    return update->noted;
}

struct ended {
    struct br_update *update;
    json_t *line;
};

static int by_sample(const void *a, const void *b)
{
    const struct br_update *x = ((const struct ended *)a)->update, *y = ((const struct ended *)b)->update;
    if (x->sample != y->sample) return x->sample < y->sample ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

void br_updates_note(struct br_graph *graph)
{
    struct br_updates *updates = graph->state->updates;
    size_t count = 0;
    if (!is_kept(graph)) return;
    pthread_mutex_lock(&updates->records);
    for (const struct br_update *u = updates->newest; u != NULL; u = u->older)
        count += u->noted && !u->concluded && u->state != BR_UPDATE_SCHEDULED;
    struct ended *ended = count > 0 ? calloc(count, sizeof *ended) : NULL;
    size_t n = 0;
    for (struct br_update *u = updates->newest; ended != NULL && u != NULL; u = u->older) {
        if (!u->noted || u->concluded || u->state == BR_UPDATE_SCHEDULED) continue;
        uint64_t sample = u->state == BR_UPDATE_APPLIED ? u->held_from : u->sample;
        u->concluded = true;
        ended[n++] =
            (struct ended){u, json_pack("{ss ss sI}", "id", u->id, "state", br_update_state_name[u->state],
                                        "sample", (json_int_t)sample)};
    }
    pthread_mutex_unlock(&updates->records);
    if (n > 1) qsort(ended, n, sizeof *ended, by_sample);
    bool good = true;
    for (size_t i = 0; i < n; i++) good = br_journal_append(&updates->journal, ended[i].line) && good;
    if (!good) tell_failure(graph);
    free(ended);
}

/* --- out of it --- */

/* What the lines say of one update. */
struct entry {
    const json_t *line;  /* of its schedule */
    const json_t *ended; /* NULL: it is pending */
    bool needed;         /* pending, or a value of it holds */
};

struct entries {
    struct entry *entry; /* [count], in the order in which they ended, then those that are pending */
    size_t count;
};

static const char *text_of(const json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

static int64_t number_of(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

/* Marks what still holds: of each parameter the last one that set it. */
static void mark_needed(struct entries *all)
{
    json_t *set = json_object(), *values;
    const char *stage, *param;
    json_t *value;
    for (size_t i = all->count; i-- > 0;) {
        struct entry *e = &all->entry[i];
        e->needed = e->ended == NULL;
        json_object_foreach(json_object_get(e->line, "stages"), stage, values)
        {
            json_object_foreach(values, param, value)
            {
                char key[400];
                snprintf(key, sizeof key, "%s\n%s", stage, param);
                if (e->ended == NULL || json_object_get(set, key) != NULL) continue;
                e->needed = true;
                json_object_set_new_nocheck(set, key, json_true());
            }
        }
    }
    json_decref(set);
}

/* False: no memory. */
static bool find_entries(const json_t *lines, struct entries *all)
{
    size_t n = json_array_size(lines), i;
    json_t *open = json_object(), *line; /* id -> its number in the lines */
    const char *id;
    *all = (struct entries){calloc(n + 1, sizeof *all->entry), 0};
    if (all->entry == NULL || open == NULL) {
        json_decref(open);
        return false;
    }
    json_array_foreach(lines, i, line)
    {
        id = text_of(line, "id");
        const json_t *begun = json_object_get(open, id);
        if (strcmp(text_of(line, "state"), "scheduled") == 0) {
            json_object_set_new_nocheck(open, id, json_integer((json_int_t)i));
        } else if (begun != NULL) {
            size_t at = (size_t)json_integer_value(begun);
            if (strcmp(text_of(line, "state"), "cancelled") != 0)
                all->entry[all->count++] = (struct entry){.line = json_array_get(lines, at), .ended = line};
            json_object_del(open, id);
        }
    }
    json_array_foreach(lines, i, line)
    {
        const json_t *begun = json_object_get(open, text_of(line, "id"));
        if (begun != NULL && (size_t)json_integer_value(begun) == i)
            all->entry[all->count++] = (struct entry){.line = line};
    }
    json_decref(open);
    mark_needed(all);
    return true;
}

/* Where a pending update shall hold: its sample if samples count from the same moment as before, else its
 * time. */
static json_t *pending_moment(const struct br_graph *graph, const json_t *line)
{
    const json_t *rate = json_object_get(line, "sample_ns");
    const char *name = json_object_iter_key(json_object_iter(json_object_get(line, "stages")));
    const struct br_stream *stream = NULL;
    for (size_t s = 0; s < graph->nfile; s++)
        if (name != NULL && strcmp(graph->stage[s].name, name) == 0)
            stream = br_update_stream(&graph->stage[s]);
    bool same = stream != NULL && stream->epoch_ns == number_of(line, "epoch_ns") &&
                stream->sample_ns.num == json_integer_value(json_array_get(rate, 0)) &&
                stream->sample_ns.den == json_integer_value(json_array_get(rate, 1));
    return moment_of(same ? BR_AT_SAMPLE : BR_AT_TIME, (uint64_t)number_of(line, "sample"),
                     number_of(line, "time_ns"));
}

/* Before the stages' threads: what is due at sample 0 holds. */
static void commit_first(struct br_graph *graph)
{
    for (size_t s = 0; s < graph->nfile; s++) {
        struct br_stage *stage = &graph->stage[s];
        if (br_update_due(stage, 1) > 0) continue;
        if (stage->device >= 0) br_gpu_use(stage->device, NULL);
        br_stage_update(stage, 0);
    }
}

/* The same request that comes again is known, by its id, moment and digest. */
static void remember_moment(struct br_update *update, const json_t *line)
{
    const json_t *at = json_object_get(line, "at");
    bool of_time = json_object_get(at, "time_ns") != NULL;
    update->at = !json_is_object(at) ? BR_AT_NOW : of_time ? BR_AT_TIME : BR_AT_SAMPLE;
    if (of_time) update->time_ns = number_of(at, "time_ns");
    update->sample = (uint64_t)number_of(line, "sample");
    update->noted = true;
}

static bool resume_one(struct br_graph *graph, const struct entry *e)
{
    char name[48], digest[24];
    struct br_config *config;
    struct br_update_reply reply = {.outcome = BR_UPDATE_FAILED};
    struct br_error error = {0};
    json_t *at = e->ended != NULL ? moment_of(BR_AT_SAMPLE, 0, 0) : pending_moment(graph, e->line);
    json_t *body = json_pack("{ss so sO}", "id", text_of(e->line, "id"), "at", at, "stages",
                             json_object_get(e->line, "stages"));
    char *text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(body);
    snprintf(name, sizeof name, "journal line %lld", (long long)number_of(e->line, "line"));
    int status =
        text == NULL ? BR_E_NO_MEMORY : br_config_parse_value(&config, name, text, strlen(text), &error);
    free(text);
    if (status == BR_OK) status = br_updates_submit(graph, config, br_config_root(config), true, &reply);
    if (status != BR_OK || reply.outcome != BR_UPDATE_OK) {
        br_log(graph->log, BR_LOG_ERROR, NULL, "journal %s: update '%s' cannot be resumed: %s",
               graph->journal, text_of(e->line, "id"),
               status != BR_OK || reply.update->why == NULL ? "no memory" : reply.update->why);
        return false;
    }
    struct br_update *update = graph->state->updates->newest; /* that has just come */
    snprintf(digest, sizeof digest, "%016" PRIx64, update->digest);
    if (strcmp(digest, text_of(e->line, "digest")) != 0)
        br_log(graph->log, BR_LOG_WARNING, NULL,
               "journal %s: update '%s': a file that it names holds something else than when it was applied, "
               "and is "
               "taken as it is now",
               graph->journal, update->id);
    if (e->ended != NULL) commit_first(graph);
    update->concluded = e->ended != NULL;
    remember_moment(update, e->line);
    return true;
}

/* Lines that nobody needs any more go when they are the most. */
static void shorten(struct br_graph *graph, json_t *stages, const struct entries *all, size_t nlines)
{
    json_t *kept = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const struct entry *e = &all->entry[i];
        if (!e->needed && !json_is_true(json_object_get(e->line, "of_file"))) continue;
        json_array_append_new(kept, json_deep_copy(e->line));
        if (e->ended != NULL) json_array_append_new(kept, json_deep_copy(e->ended));
    }
    size_t n = json_array_size(kept);
    for (size_t i = 0; i < n; i++) json_object_del(json_array_get(kept, i), "line");
    if (nlines > 2 * n + 100) br_journal_replace(&graph->state->updates->journal, stages, kept);
    json_decref(kept);
}

static json_t *stages_of(const struct br_graph *graph)
{
    json_t *stages = json_object();
    for (size_t s = 0; s < graph->nfile; s++)
        if (graph->stage[s].type->updates != NULL)
            json_object_set_new_nocheck(stages, graph->stage[s].name,
                                        json_string_nocheck(graph->stage[s].type->name));
    return stages;
}

void br_updates_resume(struct br_graph *graph)
{
    struct br_updates *updates = graph->state->updates;
    struct br_journal *journal = &updates->journal;
    struct entries all = {0};
    if (graph->journal == NULL) return;
    json_t *stages = stages_of(graph);
    br_journal_open(journal, graph->journal, stages, &updates->past);
    if (updates->past == NULL) {
        br_log(graph->log, BR_LOG_ERROR, NULL,
               "journal %s: %s; nothing is resumed: the pipeline file's values hold, and updates are not "
               "written "
               "to it until it is moved away",
               journal->path, journal->why);
    } else if (journal->dropped > 0) {
        br_log(graph->log, BR_LOG_NOTE, NULL, "journal %s: its last line was not complete, and is dropped",
               journal->path);
    }
    updates->resuming = true;
    if (updates->past != NULL && find_entries(updates->past, &all)) {
        for (size_t i = 0; i < all.count; i++)
            if (all.entry[i].needed) journal->resumed += resume_one(graph, &all.entry[i]);
        shorten(graph, stages, &all, json_array_size(updates->past));
    }
    updates->resuming = false;
    if (journal->resumed > 0)
        br_log(graph->log, BR_LOG_NOTE, NULL, "journal %s: %zu updates are resumed", journal->path,
               journal->resumed);
    free(all.entry);
    json_decref(stages);
}

bool br_updates_resumed(const struct br_graph *graph, const struct br_update_request *request,
                        uint64_t digest)
{
    char text[24];
    size_t i;
    json_t *line;
    bool found = false;
    json_t *at = moment_of(request->at, request->sample, request->time_ns);
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    json_array_foreach(graph->state->updates->past, i, line)
    {
        const char *of = text_of(line, "digest");
        found =
            found || (of != NULL && strcmp(of, text) == 0 && json_is_true(json_object_get(line, "of_file")) &&
                      json_equal(json_object_get(line, "at"), at));
    }
    json_decref(at);
    return found;
}
