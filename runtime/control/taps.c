/* taps.c - see taps.h. */
#include "runtime/control/taps.h"

#include "buffers/clock.h"
#include "runtime/control/picture.h"
#include "runtime/embed.h"
#include "runtime/run/state.h"
#include "runtime/run/tap.h"

#include <stdlib.h>
#include <string.h>

struct taps {
    struct br_graph *graph;
    size_t nedges;
    struct pair {
        struct br_tap *shown, *asked; /* one is handed out while the other is filled in */
        uint64_t next_ns;             /* when it may be asked again */
    } pair[];
};

struct taps *taps_make(struct br_graph *graph)
{
    size_t n = br_graph_nedges(graph);
    struct taps *taps = calloc(1, sizeof *taps + n * sizeof *taps->pair);
    if (taps != NULL) taps->graph = graph;
    if (taps != NULL) taps->nedges = n;
    return taps;
}

void taps_free(struct taps *taps)
{
    for (size_t i = 0; taps != NULL && i < taps->nedges; i++) {
        free(taps->pair[i].shown);
        free(taps->pair[i].asked);
    }
    free(taps);
}

static size_t room_of(const struct br_stream *s)
{
    return br_stream_max_bytes(s) + br_stream_max_validity(s) + br_array_bytes(&s->side);
}

/* Takes what has been filled in, and asks again when it is time. False: no memory. */
static bool look(struct pair *p, struct br_edge *edge)
{
    size_t room = room_of(&edge->stream);
    if (p->shown == NULL) p->shown = calloc(1, sizeof *p->shown + room);
    if (p->asked == NULL) p->asked = calloc(1, sizeof *p->asked + room);
    if (p->shown == NULL || p->asked == NULL) return false;
    if (atomic_load_explicit(&p->asked->state, memory_order_acquire) == PREVIEW_FILLED) {
        struct br_tap *filled = p->asked;
        p->asked = p->shown;
        p->shown = filled;
        atomic_store(&p->asked->state, PREVIEW_IDLE);
        p->next_ns = filled->at_ns + filled->took_ns * TAP_SHARE;
    }
    if (br_clock_ns() < p->next_ns || atomic_load(&p->asked->state) != PREVIEW_IDLE) return true;
    atomic_store(&p->asked->state, PREVIEW_ASKED);
    atomic_store_explicit(&edge->producer->state->tap[edge->port], p->asked, memory_order_release);
    return true;
}

static void answer_frame(const struct br_edge *edge, const struct br_tap *tap, struct control_answer *answer)
{
    char *stream = br_stream_json(&edge->stream);
    json_t *document = json_pack("{ss so sI sI sb sI sI sI}", "queue", edge->name, "stream",
                                 stream != NULL ? json_loads(stream, 0, NULL) : json_null(), "first",
                                 (json_int_t)tap->first, "samples", (json_int_t)tap->samples, "complete",
                                 (int)tap->complete, "data", (json_int_t)tap->bytes, "valid",
                                 (json_int_t)tap->valid_bytes, "side", (json_int_t)tap->side_bytes);
    char *text = json_dumps(document, JSON_COMPACT);
    uint64_t length = text != NULL ? strlen(text) : 0;
    size_t bytes = tap->bytes + tap->valid_bytes + tap->side_bytes;
    answer->type = "application/octet-stream";
    answer->length = sizeof length + length + bytes;
    answer->body = text != NULL ? malloc(answer->length) : NULL;
    for (unsigned i = 0; answer->body != NULL && i < sizeof length; i++)
        answer->body[i] = (char)(length >> 8 * i);
    if (answer->body != NULL) {
        memcpy(answer->body + sizeof length, text, length);
        memcpy(answer->body + sizeof length + length, tap->memory, bytes);
    }
    free(text);
    free(stream);
    json_decref(document);
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
    } else if (edge == NULL || at == taps->nedges || edge->place.space == BR_SPACE_CUDA) {
        answer_error(answer, 409,
                     "the frames of '%.80s' are in a GPU's memory only; expected a queue that a stage "
                     "of the host reads or fills",
                     name);
    } else if (room_of(&edge->stream) > TAP_MOST) {
        answer_error(answer, 413,
                     "frames of '%.80s' have up to %zu bytes; expected at most %d: /v1/preview shows "
                     "a part of them",
                     name, room_of(&edge->stream), TAP_MOST);
    } else if (!look(&taps->pair[at], edge)) {
        answer_error(answer, 503, "no memory for a frame");
    } else if (taps->pair[at].shown->samples == 0 || taps->pair[at].shown->first < from) {
        answer->code = 204;
        answer->body = strdup("");
        answer->type = "text/plain";
    } else {
        answer_frame(edge, taps->pair[at].shown, answer);
    }
}
