/* taps.c - see taps.h. */
#include "runtime/control/taps.h"

#include "buffers/clock.h"
#include "runtime/control/picture.h"
#include "runtime/embed.h"
#include "runtime/run/state.h"
#include "runtime/run/tap.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct taps {
    struct br_graph *graph;
    size_t nedges;
    struct pair {
        char *stream;                         /* as JSON; NULL until somebody asks */
        struct br_tap *shown, *asked, *spare; /* one is handed out while another one is filled in */
        uint64_t next_ns;                     /* when it may be asked again */
        uint64_t used_ns;                     /* when somebody wanted it */
    } pair[];
};

/* After so long without a request the memory may go to other queues. */
#define IDLE_NS ((uint64_t)10 * 1000000000)

/* Of all copies of this process, also of those that slow clients have yet to read. */
static _Atomic size_t bytes_held;

static void let_go(struct br_tap *tap)
{
    if (tap == NULL || --tap->users > 0) return;
    atomic_fetch_sub(&bytes_held, tap->room);
    free(tap);
}

/* An answer has been sent, or its client has gone. */
static void let_body_go(void *body)
{
    let_go((struct br_tap *)((char *)body - offsetof(struct br_tap, memory)));
}

static struct br_tap *make_tap(const struct br_stream *s, size_t head)
{
    unsigned every = br_tap_every(s, TAP_MOST);
    size_t room = head + br_tap_room(s, every);
    bool fits = atomic_fetch_add(&bytes_held, room) + room <= TAPS_MEMORY;
    struct br_tap *tap = fits ? malloc(sizeof *tap + room) : NULL; /* the producer touches it first */
    if (tap == NULL)
        atomic_fetch_sub(&bytes_held, room);
    else
        *tap = (struct br_tap){.room = room, .head = head, .every = every, .users = 1};
    return tap;
}

struct taps *taps_make(struct br_graph *graph)
{
    size_t n = br_graph_nedges(graph);
    struct taps *taps = calloc(1, sizeof *taps + n * sizeof *taps->pair);
    if (taps != NULL) taps->graph = graph;
    if (taps != NULL) taps->nedges = n;
    return taps;
}

/* While the stages run, a copy that is being filled in stays. */
static void drop(struct pair *p, struct br_edge *edge, bool stages_run)
{
    struct br_tap *asked = p->asked;
    bool mine = !stages_run || asked == NULL || atomic_load(&asked->state) == PREVIEW_FILLED;
    if (mine || atomic_compare_exchange_strong(&edge->producer->state->tap[edge->port], &asked, NULL)) {
        let_go(p->asked);
        p->asked = NULL;
    }
    let_go(p->shown);
    let_go(p->spare);
    free(p->stream);
    p->stream = NULL;
    p->shown = p->spare = NULL;
}

void taps_free(struct taps *taps)
{
    for (size_t i = 0; taps != NULL && i < taps->nedges; i++)
        drop(&taps->pair[i], br_graph_edge(taps->graph, i), false);
    free(taps);
}

static size_t head_bytes(const struct br_edge *edge, const char *stream)
{
    return (strlen(stream) + 6 * strlen(edge->name) + 512) / 64 * 64; /* all but the name is below 256 */
}

/* The document in front of a copy: spaces fill it up. */
static bool write_head(const struct br_edge *edge, const char *stream, struct br_tap *tap)
{
    json_t *document = json_pack(
        "{ss sI sI sb sI sI sI sI}", "queue", edge->name, "first", (json_int_t)tap->first, "samples",
        (json_int_t)tap->samples, "complete", (int)tap->complete, "every", (json_int_t)tap->every, "data",
        (json_int_t)tap->bytes, "valid", (json_int_t)tap->valid_bytes, "side", (json_int_t)tap->side_bytes);
    char *text = document != NULL ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    if (text == NULL) return false;
    uint64_t length = tap->head - sizeof length;
    for (unsigned i = 0; i < sizeof length; i++) tap->memory[i] = (uint8_t)(length >> 8 * i);
    char *to = (char *)tap->memory + sizeof length;
    int used = snprintf(to, length, "%.*s,\"stream\":%s}", (int)strlen(text) - 1, text, stream);
    memset(to + used, ' ', length - (size_t)used);
    free(text);
    return true;
}

/* Takes what has been filled in, and asks again when it is time. False: no memory. */
static bool look(struct taps *taps, struct pair *p, struct br_edge *edge)
{
    uint64_t now = p->used_ns = br_clock_ns();
    if (p->stream == NULL) p->stream = br_stream_json(&edge->stream);
    if (p->stream == NULL) return false;
    if (p->asked != NULL && atomic_load_explicit(&p->asked->state, memory_order_acquire) == PREVIEW_FILLED) {
        if (p->shown != NULL && p->shown->users == 1)
            p->spare = p->shown;
        else
            let_go(p->shown);
        p->shown = p->asked;
        p->asked = NULL;
        p->next_ns = p->shown->at_ns + p->shown->took_ns * TAP_SHARE;
        if (!write_head(edge, p->stream, p->shown)) {
            let_go(p->shown);
            p->shown = NULL;
            return false;
        }
    }
    if (now < p->next_ns || p->asked != NULL) return true;
    size_t head = head_bytes(edge, p->stream);
    p->asked = p->spare != NULL ? p->spare : make_tap(&edge->stream, head);
    p->spare = NULL;
    for (size_t i = 0; p->asked == NULL && i < taps->nedges; i++) {
        struct pair *other = &taps->pair[i];
        if (other == p || now - other->used_ns < IDLE_NS) continue;
        drop(other, br_graph_edge(taps->graph, i), true);
        p->asked = make_tap(&edge->stream, head);
    }
    if (p->asked == NULL) return false;
    atomic_store(&p->asked->state, PREVIEW_ASKED);
    atomic_store_explicit(&edge->producer->state->tap[edge->port], p->asked, memory_order_release);
    return true;
}

void taps_answer(struct taps *taps, const struct control_request *request, struct control_answer *answer)
{
    const char *name = request_query(request, "queue"), *text = request_query(request, "from");
    char *end = NULL;
    uint64_t from = text != NULL ? strtoull(text, &end, 10) : 0;
    if (name == NULL || (text != NULL && (strspn(text, "0123456789") == 0 || *end != '\0'))) {
        answer_error(answer, 400, "expected ?queue=NAME, and &from=SAMPLE");
        return;
    }
    struct br_edge *named = NULL;
    for (size_t i = 0; i < taps->nedges; i++)
        if (strcmp(br_graph_edge(taps->graph, i)->name, name) == 0) named = br_graph_edge(taps->graph, i);
    struct br_edge *edge = named != NULL ? (struct br_edge *)picture_host_side(named) : NULL;
    size_t at = 0;
    while (at < taps->nedges && br_graph_edge(taps->graph, at) != edge) at++;
    if (named == NULL) {
        answer_error(answer, 404, "there is no queue '%.80s' in this pipeline; /v1/graph lists them", name);
        return;
    }
    if (edge == NULL || at == taps->nedges || edge->place.space == BR_SPACE_CUDA) {
        answer_error(answer, 409,
                     "the frames of '%.80s' are in a GPU's memory only; expected a queue that a stage "
                     "of the host reads or fills",
                     name);
        return;
    }
    if (br_tap_every(&edge->stream, TAP_MOST) == 0) {
        answer_error(answer, 413,
                     "frames of '%.80s' have up to %zu bytes and cannot be thinned; expected at most %d: "
                     "/v1/preview shows a part of them",
                     name, br_tap_room(&edge->stream, 1), TAP_MOST);
        return;
    }
    struct pair *p = &taps->pair[at];
    bool memory = look(taps, p, edge);
    if (p->shown != NULL && p->shown->first >= from) {
        p->shown->users++;
        answer->type = "application/octet-stream";
        answer->body = (char *)p->shown->memory;
        answer->release = let_body_go;
        answer->length = p->shown->head + p->shown->bytes + p->shown->valid_bytes + p->shown->side_bytes;
    } else if (!memory) {
        answer_error(answer, 503,
                     "no memory for a frame: %zu MiB of at most %d are in use, which slow clients may hold; "
                     "ask again later",
                     atomic_load(&bytes_held) >> 20, TAPS_MEMORY >> 20);
    } else {
        answer->code = 204;
        answer->body = strdup("");
        answer->type = "text/plain";
    }
}
