/* updates.c - updates as a list, and how they are linked into the stages' lists. See updates.h. */
#include "runtime/run/updates.h"
#include "buffers/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const br_update_state_name[] = {"scheduled", "applied", "superseded", "rejected", "cancelled"};

struct br_updates *br_updates_make(void)
{
    struct br_updates *updates = calloc(1, sizeof *updates);
    if (updates == NULL) return NULL;
    pthread_mutex_init(&updates->records, NULL);
    pthread_mutex_init(&updates->mutex, NULL);
    pthread_mutex_init(&updates->gate, NULL);
    pthread_mutex_init(&updates->journal.mutex, NULL);
    pthread_mutex_init(&updates->journal.told, NULL);
    updates->journal.fd = -1;
    return updates;
}

static void free_update(struct br_update *update)
{
    for (size_t i = 0; i < update->nchanges; i++) {
        br_change_discard(update->change[i]);
        free(update->change[i]);
    }
    if (update->owns_config) br_config_free(update->config);
    free(update->change);
    free(update->why);
    free(update->kept);
    free(update->stages);
    free(update);
}

void br_updates_free(struct br_graph *graph)
{
    struct br_updates *updates = graph->state->updates;
    if (updates == NULL) return;
    while (updates->newest != NULL) {
        struct br_update *update = updates->newest;
        updates->newest = update->older;
        free_update(update);
    }
    for (size_t s = 0; graph->state->stage != NULL && s < graph->nfile; s++)
        br_held_free(graph->stage[s].state->updates.held);
    br_journal_close(&updates->journal, 0);
    free(updates->taken);
    pthread_mutex_destroy(&updates->journal.told);
    pthread_mutex_destroy(&updates->journal.mutex);
    pthread_mutex_destroy(&updates->gate);
    pthread_mutex_destroy(&updates->mutex);
    pthread_mutex_destroy(&updates->records);
    free(updates);
    graph->state->updates = NULL;
}

/* --- the list ---------------------------------------------------------------------------------------- */

/* Under `records`. */
static void set_state(struct br_updates *updates, struct br_update *update, enum br_update_state state)
{
    updates->total[update->state]--;
    update->state = state;
    updates->total[state]++;
}

static char *names_of(const struct br_update_request *request)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; out != NULL && i < request->nstages; i++)
        fprintf(out, "%s%s", i > 0 ? ", " : "", request->stage[i]->name);
    if (out != NULL) fclose(out);
    return text;
}

/* A record of what came, for the list. NULL: no memory. */
static struct br_update *make_record(const struct br_updates *updates, struct br_config *config, bool owned)
{
    struct br_update *update = calloc(1, sizeof *update);
    if (update == NULL) return NULL;
    update->came_ns = br_unix_ns();
    update->number = updates->count + 1;
    update->config = config;
    update->owns_config = owned;
    update->state = BR_UPDATE_SCHEDULED;
    update->held_from = UINT64_MAX;
    snprintf(update->id, sizeof update->id, "update-%llu", (unsigned long long)update->number);
    return update;
}

/* Puts it at the head of the list, once all is known of it: from here on others look at it. */
static void add_record(struct br_updates *updates, struct br_update *update)
{
    pthread_mutex_lock(&updates->records);
    updates->count = update->number;
    update->older = updates->newest;
    updates->newest = update;
    updates->total[update->state]++;
    pthread_mutex_unlock(&updates->records);
}

static struct br_update *same_id(struct br_updates *updates, const char *id, uint64_t *scheduled)
{
    pthread_mutex_lock(&updates->records);
    *scheduled = updates->total[BR_UPDATE_SCHEDULED];
    struct br_update *u = updates->newest;
    while (u != NULL && (u->state >= BR_UPDATE_REJECTED || strcmp(u->id, id) != 0)) u = u->older;
    pthread_mutex_unlock(&updates->records);
    return u;
}

bool br_updates_knows(struct br_graph *graph, const char *id)
{
    uint64_t scheduled;
    return same_id(graph->state->updates, id, &scheduled) != NULL;
}

static void keep_mistakes(struct br_update *update, size_t before)
{
    size_t length;
    FILE *out = br_config_errors(update->config) > before ? open_memstream(&update->why, &length) : NULL;
    if (out == NULL) return;
    br_config_print_errors(update->config, out);
    fclose(out);
    if (length > 0 && update->why[length - 1] == '\n') update->why[length - 1] = '\0';
}

static enum br_update_outcome reject(struct br_update *update, enum br_update_outcome outcome, size_t before,
                                     const char *format, ...) __attribute__((format(printf, 4, 5)));
static enum br_update_outcome reject(struct br_update *update, enum br_update_outcome outcome, size_t before,
                                     const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep_mistakes(update, before);
    if (update->why == NULL && vasprintf(&update->why, format, args) < 0) update->why = NULL;
    va_end(args);
    update->state = BR_UPDATE_REJECTED;
    return outcome;
}

/* --- the whole --------------------------------------------------------------------------------------- */

static enum br_update_outcome submit(struct br_graph *graph, struct br_update *update,
                                     const struct br_node *root, struct br_update_reply *reply)
{
    struct br_updates *updates = graph->state->updates;
    struct br_update_request request;
    size_t before = br_config_errors(update->config);
    bool good = br_update_read(graph, update->config, root, &request);
    if (request.id != NULL && strlen(request.id) < BR_UPDATE_ID)
        snprintf(update->id, sizeof update->id, "%s", request.id);
    if (!good) return reject(update, BR_UPDATE_WRONG, before, "it is wrong");
    update->at = request.at;
    update->sample = request.sample;
    update->time_ns = request.time_ns;
    update->digest = br_update_digest(&request);
    update->stages = names_of(&request);
    update->change = calloc(request.nstages, sizeof(struct br_change *));
    if (update->change == NULL) return reject(update, BR_UPDATE_FAILED, before, "no memory");
    uint64_t scheduled;
    struct br_update *same = same_id(updates, update->id, &scheduled);
    if (same == NULL && scheduled >= BR_UPDATES_PENDING)
        return reject(
            update, BR_UPDATE_TOO_MANY, before,
            "%d updates are scheduled already; expected to be asked again when some of them hold, or "
            "are cancelled (DELETE /v1/updates/ID)",
            BR_UPDATES_PENDING);
    if (same == NULL && scheduled >= BR_UPDATES_PENDING - BR_UPDATES_SOON && !updates->resuming &&
        br_update_is_far(update, &request))
        return reject(
            update, BR_UPDATE_TOO_MANY, before,
            "%llu updates are scheduled already, and the last %d places are for what holds within %d s; "
            "expected to be asked again later, or when some are cancelled (DELETE /v1/updates/ID)",
            (unsigned long long)scheduled, BR_UPDATES_SOON, BR_UPDATES_SOON_S);
    if (same == NULL) {
        struct br_error error = {0};
        enum br_update_outcome outcome = br_update_schedule(graph, update, &request, &error);
        reply->earliest = br_update_earliest(graph, &request);
        return outcome == BR_UPDATE_OK ? outcome : reject(update, outcome, before, "%s", error.text);
    }
    reply->earliest = br_update_earliest(graph, &request);
    bool repeated = same->digest == update->digest &&
                    (same->resumed || (same->at == update->at &&
                                       (update->at != BR_AT_TIME || same->time_ns == update->time_ns) &&
                                       (update->at != BR_AT_SAMPLE || same->sample == update->sample)));
    if (!repeated)
        return reject(update, BR_UPDATE_CONFLICT, before,
                      "the id '%s' was used for other values, or another moment; expected one of its own",
                      update->id);
    reply->repeated = true;
    reply->update = same;
    return BR_UPDATE_OK;
}

int br_updates_submit(struct br_graph *graph, struct br_config *config, const struct br_node *root,
                      bool owned, struct br_update_reply *reply)
{
    *reply = (struct br_update_reply){.outcome = BR_UPDATE_FAILED};
    struct br_update *update = make_record(graph->state->updates, config, owned);
    if (update == NULL) {
        if (owned) br_config_free(config);
        return BR_E_NO_MEMORY;
    }
    reply->update = update;
    reply->outcome = submit(graph, update, root, reply);
    bool scheduled = reply->outcome == BR_UPDATE_OK && reply->update == update;
    if (scheduled) br_updates_note_scheduled(graph, update, root);
    if (reply->update == update)
        add_record(graph->state->updates, update);
    else
        free_update(update);
    if (scheduled) br_updates_write(graph);
    return BR_OK;
}

void br_updates_cancel(struct br_graph *graph, const char *id, struct br_update_reply *reply,
                       struct br_error *error)
{
    struct br_updates *updates = graph->state->updates;
    uint64_t scheduled;
    br_updates_look(graph);
    struct br_update *update = same_id(updates, id, &scheduled);
    *reply = (struct br_update_reply){.outcome = BR_UPDATE_UNKNOWN, .update = update};
    if (update == NULL) {
        br_fail(error, BR_E_INVALID, "there is no update '%.80s' that could be cancelled", id);
        return;
    }
    reply->outcome = BR_UPDATE_CONFLICT;
    if (update->state != BR_UPDATE_SCHEDULED)
        br_fail(error, BR_E_INVALID, "it is %s already", br_update_state_name[update->state]);
    else
        reply->outcome = br_update_withdraw(graph, update, error);
    if (reply->outcome != BR_UPDATE_OK) return;
    pthread_mutex_lock(&updates->records);
    set_state(updates, update, BR_UPDATE_CANCELLED);
    pthread_mutex_unlock(&updates->records);
    br_updates_note(graph);
}

/* --- afterwards -------------------------------------------------------------------------------------- */

/* Old values that nothing uses any more: all of a stage's that were committed or passed over. */
static void discard_used(struct br_updates *updates, struct br_stage *stage)
{
    pthread_mutex_lock(&updates->mutex);
    struct br_change *c = stage->state->updates.used, *waiting = NULL;
    stage->state->updates.used = NULL;
    pthread_mutex_unlock(&updates->mutex);
    while (c != NULL) {
        struct br_change *next = c->next;
        if (c->committed && c->old_unused != NULL && !br_gpu_event_done(c->old_unused)) {
            c->next = waiting;
            waiting = c;
        } else {
            br_change_discard(c);
        }
        c = next;
    }
    while (waiting != NULL) {
        struct br_change *next = waiting->next;
        pthread_mutex_lock(&updates->mutex);
        waiting->next = stage->state->updates.used;
        stage->state->updates.used = waiting;
        pthread_mutex_unlock(&updates->mutex);
        waiting = next;
    }
}

/* Brings the state of a scheduled update up to date. Under `records`. */
static void look_at(struct br_graph *graph, struct br_update *update)
{
    size_t committed = 0, passed = 0;
    uint64_t from = 0;
    pthread_mutex_lock(&graph->state->updates->mutex);
    for (size_t i = 0; i < update->nchanges; i++) {
        const struct br_change *c = update->change[i];
        committed += c->committed;
        passed += c->passed;
        if (c->committed && c->held_from > from) from = c->held_from;
    }
    pthread_mutex_unlock(&graph->state->updates->mutex);
    if (committed + passed < update->nchanges) return;
    update->held_from = committed > 0 ? from : UINT64_MAX;
    set_state(graph->state->updates, update, committed > 0 ? BR_UPDATE_APPLIED : BR_UPDATE_SUPERSEDED);
    if (committed > 0)
        br_log(graph->log, BR_LOG_NOTE, NULL, "update '%s' (%s) holds from sample %llu on", update->id,
               update->stages != NULL ? update->stages : "", (unsigned long long)from);
}

/* Its values are gone when other ones hold in all of its stages. */
static bool is_done(struct br_updates *updates, const struct br_update *update)
{
    bool done = update->state != BR_UPDATE_SCHEDULED;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < update->nchanges; i++) {
        const struct br_change *c = update->change[i];
        done = done && c->fresh == NULL && c->stage->state->updates.last != c;
    }
    pthread_mutex_unlock(&updates->mutex);
    return done;
}

void br_updates_look(struct br_graph *graph)
{
    pthread_mutex_lock(&graph->state->updates->records);
    for (struct br_update *u = graph->state->updates->newest; u != NULL; u = u->older)
        if (u->state == BR_UPDATE_SCHEDULED) look_at(graph, u);
    pthread_mutex_unlock(&graph->state->updates->records);
}

void br_updates_close(struct br_graph *graph)
{
    pthread_mutex_lock(&graph->state->updates->gate);
    graph->state->updates->closed = true;
    pthread_mutex_unlock(&graph->state->updates->gate);
}

void br_updates_tidy(struct br_graph *graph)
{
    struct br_updates *updates = graph->state->updates;
    size_t kept = 0;
    for (size_t s = 0; s < graph->nfile; s++) {
        discard_used(updates, &graph->stage[s]);
        br_held_tidy(&graph->stage[s]);
    }
    pthread_mutex_lock(&updates->records);
    for (struct br_update **at = &updates->newest; *at != NULL;) {
        struct br_update *update = *at;
        if (update->state == BR_UPDATE_SCHEDULED) look_at(graph, update);
        if (update->config != NULL && is_done(updates, update)) {
            for (size_t i = 0; i < update->nchanges; i++) free(update->change[i]);
            update->nchanges = 0;
            if (update->owns_config) br_config_free(update->config);
            update->config = NULL;
        }
        if (update->config == NULL && ++kept > BR_UPDATES_KEPT && !br_update_is_kept(graph, update)) {
            *at = update->older;
            updates->total[update->state]--;
            free_update(update);
        } else {
            at = &update->older;
        }
    }
    pthread_mutex_unlock(&updates->records);
}
