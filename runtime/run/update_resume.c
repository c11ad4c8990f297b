/* update_resume.c - updates into the journal, and out of it after a restart. See updates.h and journal.h.
 *
 *   journal: 2
 *   taken: ["5f4dcc3b5aa765d6"]
 *   updates:
 *   - {"id": "later", "digest": "8c...", "stages": {"up": {"gain": 5}}, "time_ns": 1700000000000000000}
 *   - {"id": "noon", "digest": "1f...", "stages": {"up": {"gain": 4}}, "held_from": 8448}
 *
 * An update holds since a sample, or is scheduled for a time. `taken` are the entries of the pipeline file's
 * `updates:` that are not to be scheduled again. Nothing in the file stands for something else: it holds what
 * came over the network. */
#include "buffers/numbers.h"
#include "runtime/run/updates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- into it --- */

/* From json_pack(); NULL: no memory. */
static struct br_config *parse(json_t *json, char **text)
{
    struct br_config *config = NULL;
    struct br_error error = {0};
    *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (*text != NULL) br_config_parse_value(&config, "journal", *text, strlen(*text), &error);
    return config;
}

/* What the journal will say of an update, without its end. NULL: it could not be read again. */
static char *text_of(json_t *json)
{
    char *text;
    struct br_config *config = parse(json, &text);
    bool good = config != NULL && br_config_errors(config) == 0;
    br_config_free(config);
    if (good) text[strlen(text) - 1] = '\0';
    if (good) return text;
    free(text);
    return NULL;
}

static bool holds(const struct br_graph *graph, const struct br_update *update)
{
    bool found = false;
    pthread_mutex_lock(&graph->state->updates->mutex);
    for (size_t s = 0; s < graph->nfile; s++) {
        const struct br_held *held = graph->stage[s].state->updates.held;
        for (size_t i = 0; held != NULL && i < held->count; i++)
            found = found || held->source[i].number == update->number;
    }
    pthread_mutex_unlock(&graph->state->updates->mutex);
    return found;
}

bool br_update_is_kept(const struct br_graph *graph, const struct br_update *update)
{
    return update->kept != NULL && (update->state == BR_UPDATE_SCHEDULED ||
                                    update->state == BR_UPDATE_REJECTED || holds(graph, update));
}

/* A rejected one could not be resumed: it stays in the file as it was, since what is missing may come
 * back. */
static void print_one(const struct br_update *u, FILE *out)
{
    fprintf(out, "- %s", u->kept);
    if (u->state == BR_UPDATE_SCHEDULED)
        fprintf(out, ",\"time_ns\":%" PRId64, br_update_time_ns(u));
    else if (u->state != BR_UPDATE_REJECTED)
        fprintf(out, ",\"held_from\":%" PRIu64, u->state == BR_UPDATE_APPLIED ? u->held_from : u->sample);
    fputs("}\n", out);
}

static void print_all(struct br_graph *graph, FILE *out)
{
    struct br_updates *updates = graph->state->updates;
    size_t n = 0;
    fprintf(out,
            "# The updates of this pipeline that hold or are scheduled. beamring replaces this file.\n"
            "journal: 2\ntaken: [%s]\nupdates:",
            updates->taken != NULL ? updates->taken : "");
    pthread_mutex_lock(&updates->records);
    for (struct br_update *u = updates->newest; u != NULL; u = u->older) {
        u->concluded = u->state != BR_UPDATE_SCHEDULED;
        if (!br_update_is_kept(graph, u)) continue;
        if (n++ == 0) fputs("\n", out);
        print_one(u, out);
    }
    pthread_mutex_unlock(&updates->records);
    if (n == 0) fputs(" []\n", out);
}

static bool is_written(const struct br_graph *graph)
{
    enum br_journal_state state = graph->state->updates->journal.state;
    return state == BR_JOURNAL_KEPT || state == BR_JOURNAL_FAILED;
}

void br_updates_write(struct br_graph *graph)
{
    struct br_journal *journal = &graph->state->updates->journal;
    enum br_journal_state before = journal->state;
    char *text = NULL;
    size_t length = 0;
    if (!is_written(graph) || graph->state->updates->resuming) return;
    FILE *out = open_memstream(&text, &length);
    if (out != NULL) print_all(graph, out);
    bool good = out != NULL && fclose(out) == 0 && br_journal_write(journal, text, length);
    free(text);
    if (!good && before == BR_JOURNAL_KEPT) /* once for all that is lost from here on */
        br_log(graph->log, BR_LOG_ERROR, NULL,
               "journal %s: %s; updates from here on hold, but not after a restart", journal->path,
               journal->why);
    if (good && before == BR_JOURNAL_FAILED)
        br_log(graph->log, BR_LOG_NOTE, NULL, "journal %s: it is written again", journal->path);
}

void br_updates_note_scheduled(struct br_graph *graph, struct br_update *update, const struct br_node *root)
{
    if (!is_written(graph)) return;
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, update->digest);
    update->kept = text_of(json_pack("{ss ss so}", "id", update->id, "digest", digest, "stages",
                                     br_update_json(br_node_get(root, "stages"))));
    if (update->kept == NULL)
        br_log(graph->log, BR_LOG_ERROR, NULL,
               "journal %s: update '%s' cannot be written to it; it holds, but not after a restart",
               graph->journal, update->id);
}

void br_updates_note(struct br_graph *graph)
{
    struct br_updates *updates = graph->state->updates;
    bool news = false;
    pthread_mutex_lock(&updates->records);
    for (const struct br_update *u = updates->newest; u != NULL; u = u->older)
        news = news || (u->kept != NULL && !u->concluded && u->state != BR_UPDATE_SCHEDULED);
    pthread_mutex_unlock(&updates->records);
    if (news) br_updates_write(graph);
}

/* --- out of it --- */

struct head {
    int64_t version;
    struct br_strings taken;
};
static const struct br_param head_params[] = {
    BR_PARAM("journal", BR_P_INT, struct head, version, "the form of the file", .required = true),
    BR_PARAM("taken", BR_P_STRINGS, struct head, taken, "entries of the pipeline file"),
    {0},
};
static const char *const head_also[] = {"updates", NULL};

struct entry {
    const char *id, *digest;
    int64_t time_ns, held_from;
};
static const struct br_param entry_params[] = {
    BR_PARAM("id", BR_P_STRING, struct entry, id, "as asked for", .required = true),
    BR_PARAM("digest", BR_P_STRING, struct entry, digest, "of the values and files", .required = true),
    BR_PARAM("time_ns", BR_P_INT, struct entry, time_ns, "for which it is scheduled", .def = "0"),
    BR_PARAM("held_from", BR_P_INT, struct entry, held_from, "where it began to hold", .def = "-1"),
    {0},
};
static const char *const entry_also[] = {"stages", NULL};

/* An update to begin with: of the journal, or of the pipeline file. */
struct start {
    int64_t time_ns;
    size_t order;
    struct entry entry;       /* of the journal; no id: of the pipeline file */
    const struct br_node *at; /* where it stands */
};

struct starts {
    struct br_config *config; /* the journal's; NULL: there is none */
    struct br_strings taken;
    size_t count;
    struct start *start; /* [count] */
};

static bool has_its_stages(struct br_graph *graph, const struct br_node *at)
{
    struct br_journal *journal = &graph->state->updates->journal;
    const struct br_node *stages = br_node_get(at, "stages");
    if (stages == NULL || stages->kind != BR_NODE_MAP)
        return br_journal_refuse(journal, "line %u: expected the stages of an update", at->line);
    for (size_t i = 0; i < stages->count; i++) {
        const struct br_stage *stage = br_update_stage(graph, stages->key[i]->text);
        if (stage == NULL || stage->type->updates == NULL)
            return br_journal_refuse(journal,
                                     "line %u: it is of another pipeline, with a stage '%.60s', which is not "
                                     "here or takes no updates",
                                     at->line, stages->key[i]->text);
    }
    return true;
}

/* Room for what stands in the journal and `more`. */
static bool make_room(struct starts *all, size_t more)
{
    const struct br_node *list =
        all->config != NULL ? br_node_get(br_config_root(all->config), "updates") : NULL;
    size_t count = list != NULL && list->kind == BR_NODE_LIST ? list->count : 0;
    all->start = calloc(count + more + 1, sizeof *all->start);
    return all->start != NULL;
}

/* False: the journal is refused. Of a file that this program did not write only the place is told. */
static bool read_entries(struct br_graph *graph, struct starts *all)
{
    struct br_config *config = all->config;
    struct br_journal *journal = &graph->state->updates->journal;
    const struct br_node *root = br_config_root(config), *list = br_node_get(root, "updates");
    struct head head = {0};
    if (root != NULL && root->kind == BR_NODE_MAP)
        br_config_fill(config, root, head_params, head_also, &head);
    if (head.version != 2)
        return br_journal_refuse(journal, "this is no journal of updates, or one of an earlier version");
    if (br_config_errors(config) > 0 || list == NULL || list->kind != BR_NODE_LIST)
        return br_journal_refuse(journal, "it is damaged; expected a file as beamring writes it");
    all->taken = head.taken;
    for (size_t i = list->count; i-- > 0; all->count++) { /* the oldest first */
        struct start *s = &all->start[all->count];
        *s = (struct start){.order = all->count, .at = list->item[i]};
        if (br_config_fill(config, s->at, entry_params, entry_also, &s->entry) > 0)
            return br_journal_refuse(journal, "line %u: expected an update as beamring writes it",
                                     s->at->line);
        if (!has_its_stages(graph, s->at)) return false;
        s->time_ns = s->entry.held_from >= 0 ? INT64_MIN : s->entry.time_ns;
    }
    return true;
}

/* Opens the journal and reads what stands in it. False: no memory. */
static bool open_journal(struct br_graph *graph, struct starts *all, size_t more)
{
    struct br_journal *journal = &graph->state->updates->journal;
    struct br_error error = {0};
    char *text = NULL;
    size_t length = 0;
    if (graph->journal != NULL) br_journal_open(journal, graph->journal, &text, &length);
    bool good =
        text == NULL || br_config_parse_value(&all->config, journal->path, text, length, &error) == BR_OK;
    free(text);
    if (!good || !make_room(all, more)) return false;
    if (all->config != NULL && !read_entries(graph, all)) all->count = 0;
    if (journal->state == BR_JOURNAL_REFUSED)
        br_log(graph->log, BR_LOG_ERROR, NULL,
               "journal %s: %s; nothing is resumed: the pipeline file's values hold, and updates are not "
               "written to it until it is moved away",
               journal->path, journal->why);
    return true;
}

/* Adds an entry of the pipeline file, unless it was taken before. It will have been. */
static bool add_of_file(struct br_graph *graph, const struct br_node *item, struct starts *all)
{
    char name[24], *before = graph->state->updates->taken;
    struct br_update_request r;
    bool known = false;
    if (!br_update_read(graph, graph->config, item, &r)) return true; /* it was checked before */
    const uint64_t key[] = {br_update_digest(&r), r.at, r.sample, (uint64_t)r.time_ns};
    snprintf(name, sizeof name, "%016" PRIx64, br_fnv(BR_FNV_START, key, sizeof key));
    for (size_t i = 0; i < all->taken.count; i++) known = known || strcmp(all->taken.value[i], name) == 0;
    bool good = asprintf(&graph->state->updates->taken, "%s%s\"%s\"", before != NULL ? before : "",
                         before != NULL ? ", " : "", name) >= 0;
    if (good) free(before);
    if (!good) graph->state->updates->taken = before;
    int64_t time_ns = r.at == BR_AT_TIME     ? r.time_ns
                      : r.at == BR_AT_SAMPLE ? br_stream_time_ns(br_update_stream(r.stage[0]), r.sample)
                                             : INT64_MIN;
    if (!known) all->start[all->count] = (struct start){.time_ns = time_ns, .order = all->count, .at = item};
    all->count += !known;
    return good;
}

/* --- the start --- */

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

static int resume(struct br_graph *graph, const struct start *s)
{
    struct br_update_reply reply;
    json_t *body = br_update_json(s->at);
    char digest[24], *text;
    bool held = s->entry.held_from >= 0;
    json_object_del(body, "digest");
    json_object_del(body, "time_ns");
    json_object_del(body, "held_from");
    json_object_set_new(body, "at",
                        held ? json_pack("{si}", "sample", 0)
                             : json_pack("{sI}", "time_ns", (json_int_t)s->entry.time_ns));
    struct br_config *config = parse(body, &text);
    free(text);
    if (config == NULL || br_updates_submit(graph, config, br_config_root(config), true, &reply) != BR_OK)
        return BR_E_NO_MEMORY;
    struct br_update *update = graph->state->updates->newest; /* that has just come */
    update->resumed = update->concluded = true;
    if (reply.outcome != BR_UPDATE_OK) {
        update->kept = text_of(br_update_json(s->at));
        br_log(graph->log, BR_LOG_ERROR, NULL, "journal %s: update '%s' cannot be resumed: %s",
               graph->journal, s->entry.id, update->why != NULL ? update->why : "no memory");
        return BR_OK;
    }
    snprintf(digest, sizeof digest, "%016" PRIx64, update->digest);
    if (strcmp(digest, s->entry.digest) != 0)
        br_log(graph->log, BR_LOG_WARNING, NULL,
               "journal %s: update '%s': a file that it names holds something else than when it was applied, "
               "and is taken as it is now",
               graph->journal, update->id);
    update->concluded = held;
    if (held) commit_first(graph);
    graph->state->updates->journal.resumed++;
    return BR_OK;
}

static int schedule(struct br_graph *graph, const struct start *s, struct br_error *error)
{
    struct br_update_reply reply;
    int status = s->entry.id != NULL ? resume(graph, s)
                                     : br_updates_submit(graph, graph->config, s->at, false, &reply);
    if (status != BR_OK) return br_fail(error, status, "no memory for an update");
    if (s->entry.id != NULL || reply.outcome == BR_UPDATE_OK) return BR_OK;
    return br_fail(error, BR_E_INVALID, "updates: %s",
                   reply.update->why != NULL ? reply.update->why : "no memory");
}

static int by_time(const void *a, const void *b)
{
    const struct start *x = a, *y = b;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

int br_updates_start(struct br_graph *graph, struct br_error *error)
{
    struct br_updates *updates = graph->state->updates;
    const struct br_node *list = updates->of_file;
    struct starts all = {0};
    bool good = open_journal(graph, &all, list != NULL ? list->count : 0);
    for (size_t i = 0; list != NULL && i < list->count && good; i++)
        good = add_of_file(graph, list->item[i], &all);
    int status = good ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory for updates");
    if (all.count > 1) qsort(all.start, all.count, sizeof *all.start, by_time); /* as a stage takes them */
    updates->resuming = true;
    for (size_t i = 0; i < all.count && status == BR_OK; i++) status = schedule(graph, &all.start[i], error);
    updates->resuming = false;
    if (status == BR_OK) br_updates_write(graph);
    if (updates->journal.resumed > 0)
        br_log(graph->log, BR_LOG_NOTE, NULL, "journal %s: %zu updates are resumed", graph->journal,
               updates->journal.resumed);
    free(all.start);
    br_config_free(all.config);
    return status;
}
