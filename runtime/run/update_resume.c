/* update_resume.c - updates into the journal, and out of it after a restart. See updates.h and journal.h.
 *
 *   journal: 2
 *   taken: ["5f4dcc3b5aa765d6"]
 *   updates:
 *   - {"id": "noon", "digest": "1f...", "at": {"sample": 8400}, "sample": 8400, "time_ns": 17600000,
 *      "stages": {"up": {"gain": 4}}, "held_from": 8448}
 *
 * `taken` are the entries of the pipeline file's `updates:` that are not to be scheduled again. Nothing in
 * the file stands for something else: it holds what came over the network. */
#include "buffers/numbers.h"
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

/* What the journal will say of an update, from json_pack(), without its end. NULL: it could not be read
 * again. */
static char *text_of(json_t *line)
{
    struct br_config *config = NULL;
    struct br_error error = {0};
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(line);
    bool good = text != NULL &&
                br_config_parse_value(&config, "journal", text, strlen(text), &error) == BR_OK &&
                br_config_errors(config) == 0;
    br_config_free(config);
    if (good) text[strlen(text) - 1] = '\0';
    if (good) return text;
    free(text);
    return NULL;
}

static bool holds(const struct br_graph *graph, const struct br_update *update)
{
    bool found = false;
    pthread_mutex_lock(&graph->updates->mutex);
    for (size_t s = 0; s < graph->nfile; s++) {
        const struct br_held *held = graph->stage[s].updates.held;
        for (size_t i = 0; held != NULL && i < held->count; i++)
            found = found || held->source[i].number == update->number;
    }
    pthread_mutex_unlock(&graph->updates->mutex);
    return found;
}

bool br_update_is_kept(const struct br_graph *graph, const struct br_update *update)
{
    return update->kept != NULL && (update->state == BR_UPDATE_SCHEDULED || holds(graph, update));
}

static void print_all(struct br_graph *graph, FILE *out)
{
    struct br_updates *updates = graph->updates;
    size_t n = 0;
    fprintf(out,
            "# The updates of this pipeline that hold or are scheduled. beamring replaces this file.\n"
            "journal: 2\ntaken: [%s]\nupdates:",
            updates->taken != NULL ? updates->taken : "");
    pthread_mutex_lock(&updates->records);
    for (struct br_update *u = updates->newest; u != NULL; u = u->older) {
        u->concluded = u->state != BR_UPDATE_SCHEDULED;
        if (!br_update_is_kept(graph, u)) continue;
        fprintf(out, "%s- %s", n++ > 0 ? "" : "\n", u->kept);
        if (u->state != BR_UPDATE_SCHEDULED)
            fprintf(out, ",\"held_from\":%" PRIu64, u->state == BR_UPDATE_APPLIED ? u->held_from : u->sample);
        fputs("}\n", out);
    }
    pthread_mutex_unlock(&updates->records);
    if (n == 0) fputs(updates->left_out != NULL ? "\n" : " []\n", out);
    if (updates->left_out != NULL) fputs(updates->left_out, out);
}

/* In the thread that submits. */
static bool write_all(struct br_graph *graph)
{
    struct br_journal *journal = &graph->updates->journal;
    enum br_journal_state before = journal->state;
    char *text = NULL;
    size_t length = 0;
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
    return good;
}

static bool is_kept(const struct br_graph *graph)
{
    enum br_journal_state state = graph->updates->journal.state;
    return state == BR_JOURNAL_KEPT || state == BR_JOURNAL_FAILED;
}

void br_updates_note_scheduled(struct br_graph *graph, struct br_update *update, const struct br_node *root)
{
    if (!is_kept(graph)) return;
    char digest[24];
    const struct br_stream *stream = br_update_stream(update->change[0]->stage);
    snprintf(digest, sizeof digest, "%016" PRIx64, update->digest);
    update->kept = text_of(json_pack("{ss ss so sI sI so}", "id", update->id, "digest", digest, "at",
                                     moment_of(update->at, update->sample, update->time_ns), "sample",
                                     (json_int_t)update->sample, "time_ns",
                                     (json_int_t)br_stream_time_ns(stream, update->sample), "stages",
                                     br_update_json(br_node_get(root, "stages"))));
    if (update->kept == NULL)
        br_log(graph->log, BR_LOG_ERROR, NULL,
               "journal %s: update '%s' cannot be written to it; it holds, but not after a restart",
               graph->journal, update->id);
}

void br_updates_note(struct br_graph *graph)
{
    struct br_updates *updates = graph->updates;
    bool news = false;
    if (!is_kept(graph)) return;
    pthread_mutex_lock(&updates->records);
    for (const struct br_update *u = updates->newest; u != NULL; u = u->older)
        news = news || (u->kept != NULL && !u->concluded && u->state != BR_UPDATE_SCHEDULED);
    pthread_mutex_unlock(&updates->records);
    if (news) write_all(graph);
}

void br_updates_write(struct br_graph *graph)
{
    if (is_kept(graph) && !graph->updates->resuming) write_all(graph);
}

/* --- out of it --- */

struct head {
    int64_t version;
    struct br_strings taken;
};
static const struct br_param head_params[] = {
    BR_PARAM("journal", BR_P_INT, struct head, version, "the form of the file", .required = true, .min = 2,
             .max = 2),
    BR_PARAM("taken", BR_P_STRINGS, struct head, taken, "entries of the pipeline file"),
    {0},
};
static const char *const head_also[] = {"updates", NULL};

struct entry {
    const char *id, *digest;
    int64_t sample, time_ns, held_from;
    const struct br_node *node;
};
static const struct br_param entry_params[] = {
    BR_PARAM("id", BR_P_STRING, struct entry, id, "as asked for", .required = true),
    BR_PARAM("digest", BR_P_STRING, struct entry, digest, "of the values and files", .required = true),
    BR_PARAM("sample", BR_P_INT, struct entry, sample, "for which it was scheduled", .required = true,
             .max = (double)(1LL << 62)),
    BR_PARAM("time_ns", BR_P_INT, struct entry, time_ns, "of that sample", .required = true),
    BR_PARAM("held_from", BR_P_INT, struct entry, held_from, "where it began to hold", .def = "-1", .min = -1,
             .max = (double)(1LL << 62)),
    {0},
};
static const char *const entry_also[] = {"at", "stages", NULL};

/* The stage whose samples the entry counts, if all of its stages are there and take updates. */
static struct br_stage *stage_of(struct br_graph *graph, const struct entry *e)
{
    const struct br_node *stages = br_node_get(e->node, "stages");
    struct br_stage *first = NULL;
    if (stages == NULL || stages->kind != BR_NODE_MAP || stages->count == 0)
        br_journal_refuse(&graph->updates->journal, "line %u: expected the stages of an update",
                          e->node->line);
    for (size_t i = 0; stages != NULL && stages->kind == BR_NODE_MAP && i < stages->count; i++) {
        struct br_stage *stage = br_update_stage(graph, stages->key[i]->text);
        if (stage == NULL || stage->type->updates == NULL) {
            br_journal_refuse(
                &graph->updates->journal,
                "line %u: it is of another pipeline, with a stage '%.60s', which is not here or "
                "takes no updates",
                e->node->line, stages->key[i]->text);
            return NULL;
        }
        if (first == NULL) first = stage;
    }
    return first;
}

/* Reads what stands in the file; *entry receives [*count], the oldest first, in memory of the config. False:
 * the journal is refused. Of a file that this program did not write only the place is told. */
static bool read_entries(struct br_graph *graph, struct br_config *config, struct head *head,
                         struct entry **entry, size_t *count)
{
    struct br_journal *journal = &graph->updates->journal;
    const struct br_node *root = br_config_root(config), *list = br_node_get(root, "updates");
    if (root != NULL && root->kind == BR_NODE_MAP) br_config_fill(config, root, head_params, head_also, head);
    if (head->version != 2)
        return br_journal_refuse(journal, "this is no journal of updates, or one of an earlier version");
    *count = list != NULL && list->kind == BR_NODE_LIST ? list->count : 0;
    *entry = br_config_alloc(config, *count * sizeof **entry);
    for (size_t i = 0; i < *count; i++) {
        struct entry *e = &(*entry)[*count - 1 - i];
        size_t before = br_config_errors(config);
        br_config_fill(config, list->item[i], entry_params, entry_also, e);
        e->node = list->item[i];
        if (br_config_errors(config) > before)
            return br_journal_refuse(journal, "line %u: expected an update as beamring writes it",
                                     e->node->line);
        if (stage_of(graph, e) == NULL) return false;
    }
    if (br_config_errors(config) > 0 || list == NULL || list->kind != BR_NODE_LIST)
        return br_journal_refuse(journal, "it is damaged; expected a file as beamring writes it");
    return true;
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

/* Where it shall hold: what held does so at once; else at its sample if samples count from the same moment as
 * before, else at its time. */
static json_t *moment_now(struct br_graph *graph, const struct entry *e)
{
    const struct br_stream *stream = br_update_stream(stage_of(graph, e));
    bool same = br_stream_time_ns(stream, (uint64_t)e->sample) == e->time_ns;
    if (e->held_from >= 0) return moment_of(BR_AT_SAMPLE, 0, 0);
    return moment_of(same ? BR_AT_SAMPLE : BR_AT_TIME, (uint64_t)e->sample, e->time_ns);
}

/* The same request that comes again is known, by its id, moment and digest. */
static void remember(struct br_update *update, const struct entry *e)
{
    json_t *line = br_update_json(e->node), *at = json_object_get(line, "at");
    const json_t *time = json_object_get(at, "time_ns");
    update->at = !json_is_object(at) ? BR_AT_NOW : time != NULL ? BR_AT_TIME : BR_AT_SAMPLE;
    if (time != NULL) update->time_ns = json_integer_value(time);
    update->sample = (uint64_t)e->sample;
    update->concluded = e->held_from >= 0;
    json_object_del(line, "held_from");
    free(update->kept);
    update->kept = text_of(line);
}

/* One that cannot be resumed stays in the file as it is: what is missing may come back. */
static void leave_out(struct br_graph *graph, const struct entry *e, const char *why)
{
    struct br_updates *updates = graph->updates;
    char *before = updates->left_out, *text = text_of(br_update_json(e->node));
    br_log(graph->log, BR_LOG_ERROR, NULL, "journal %s: update '%s' cannot be resumed: %s", graph->journal,
           e->id, why);
    if (asprintf(&updates->left_out, "- %s}\n%s", text != NULL ? text : "{", before != NULL ? before : "") <
        0)
        updates->left_out = NULL;
    free(before);
    free(text);
}

static void resume(struct br_graph *graph, const struct entry *e)
{
    struct br_config *config;
    struct br_update_reply reply = {.outcome = BR_UPDATE_FAILED};
    struct br_error error = {0};
    char digest[24];
    json_t *body = json_pack("{ss so so}", "id", e->id, "at", moment_now(graph, e), "stages",
                             br_update_json(br_node_get(e->node, "stages")));
    char *text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(body);
    int status =
        text == NULL ? BR_E_NO_MEMORY : br_config_parse_value(&config, "journal", text, strlen(text), &error);
    free(text);
    if (status == BR_OK) status = br_updates_submit(graph, config, br_config_root(config), true, &reply);
    if (status != BR_OK || reply.outcome != BR_UPDATE_OK) {
        leave_out(graph, e, status != BR_OK || reply.update->why == NULL ? "no memory" : reply.update->why);
        return;
    }
    struct br_update *update = graph->updates->newest; /* that has just come */
    snprintf(digest, sizeof digest, "%016" PRIx64, update->digest);
    if (strcmp(digest, e->digest) != 0)
        br_log(graph->log, BR_LOG_WARNING, NULL,
               "journal %s: update '%s': a file that it names holds something else than when it was applied, "
               "and is taken as it is now",
               graph->journal, update->id);
    if (e->held_from >= 0) commit_first(graph);
    remember(update, e);
    graph->updates->journal.resumed++;
}

/* --- the start --------------------------------------------------------------------------------------- */

/* An update that waits for its moment: of the journal, or of the pipeline file. */
struct waiting {
    int64_t time_ns;
    size_t order;
    const struct entry *entry; /* NULL: of the pipeline file */
    const struct br_node *item;
};

static int by_time(const void *a, const void *b)
{
    const struct waiting *x = a, *y = b;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* An entry of the pipeline file, unless it was taken before. It will have been. */
static void add_of_file(struct br_graph *graph, const struct br_node *item, const struct br_strings *taken,
                        struct waiting *waiting, size_t *count)
{
    struct br_updates *updates = graph->updates;
    struct br_update_request r;
    char name[24], *before = updates->taken;
    bool known = false;
    if (!br_update_read(graph, graph->config, item, &r)) return;
    const uint64_t key[] = {br_update_digest(&r), r.at, r.sample, (uint64_t)r.time_ns};
    snprintf(name, sizeof name, "%016" PRIx64, br_fnv(BR_FNV_START, key, sizeof key));
    for (size_t i = 0; i < taken->count; i++) known = known || strcmp(taken->value[i], name) == 0;
    if (asprintf(&updates->taken, "%s%s\"%s\"", before != NULL ? before : "", before != NULL ? ", " : "",
                 name) < 0)
        updates->taken = NULL;
    free(before);
    if (known) return;
    int64_t time_ns = r.at == BR_AT_TIME     ? r.time_ns
                      : r.at == BR_AT_SAMPLE ? br_stream_time_ns(br_update_stream(r.stage[0]), r.sample)
                                             : INT64_MIN;
    waiting[*count] = (struct waiting){time_ns, *count, NULL, item};
    ++*count;
}

static int schedule_of_file(struct br_graph *graph, const struct br_node *item, struct br_error *error)
{
    struct br_update_reply reply;
    int status = br_updates_submit(graph, graph->config, item, false, &reply);
    if (status != BR_OK) return br_fail(error, status, "no memory for an update");
    if (reply.outcome == BR_UPDATE_OK) return BR_OK;
    return br_fail(error, BR_E_INVALID, "updates: %s",
                   reply.update->why != NULL ? reply.update->why : "no memory");
}

/* Opens and reads the journal. The config that holds what is there, or NULL. */
static struct br_config *open_journal(struct br_graph *graph, struct head *head, struct entry **entry,
                                      size_t *count)
{
    struct br_journal *journal = &graph->updates->journal;
    struct br_config *config = NULL;
    struct br_error error = {0};
    char *text;
    size_t length;
    br_journal_open(journal, graph->journal, &text, &length);
    if (text != NULL && br_config_parse_value(&config, journal->path, text, length, &error) != BR_OK)
        br_journal_refuse(journal, "no memory for it");
    else if (text != NULL && !read_entries(graph, config, head, entry, count))
        *count = 0;
    free(text);
    if (journal->state == BR_JOURNAL_REFUSED)
        br_log(graph->log, BR_LOG_ERROR, NULL,
               "journal %s: %s; nothing is resumed: the pipeline file's values hold, and updates are not "
               "written to it until it is moved away",
               journal->path, journal->why);
    return config;
}

int br_updates_start(struct br_graph *graph, struct br_error *error)
{
    struct br_updates *updates = graph->updates;
    const struct br_node *list = updates->of_file;
    struct br_config *config = NULL;
    struct head head = {0};
    struct entry *entry = NULL;
    size_t count = 0, n = 0;
    int status = BR_OK;
    if (graph->journal != NULL) config = open_journal(graph, &head, &entry, &count);
    struct waiting *waiting = calloc(count + (list != NULL ? list->count : 0) + 1, sizeof *waiting);
    if (waiting == NULL) status = br_fail(error, BR_E_NO_MEMORY, "no memory for updates");
    updates->resuming = true;
    for (size_t i = 0; i < count && status == BR_OK; i++) {
        if (entry[i].held_from >= 0)
            resume(graph, &entry[i]);
        else
            waiting[n] = (struct waiting){entry[i].time_ns, n, &entry[i], NULL}, n++;
    }
    for (size_t i = 0; list != NULL && i < list->count && status == BR_OK; i++)
        add_of_file(graph, list->item[i], &head.taken, waiting, &n);
    if (n > 1) qsort(waiting, n, sizeof *waiting, by_time); /* as a stage takes them */
    for (size_t i = 0; i < n && status == BR_OK; i++) {
        if (waiting[i].entry != NULL)
            resume(graph, waiting[i].entry);
        else
            status = schedule_of_file(graph, waiting[i].item, error);
    }
    updates->resuming = false;
    br_updates_write(graph);
    if (updates->journal.resumed > 0)
        br_log(graph->log, BR_LOG_NOTE, NULL, "journal %s: %zu updates are resumed", graph->journal,
               updates->journal.resumed);
    free(waiting);
    br_config_free(config);
    return status;
}
