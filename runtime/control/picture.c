/* picture.c - see picture.h. */
#include "runtime/control/picture.h"

#include "buffers/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two for each queue: one is shown while the other is filled in. */
struct looking {
    struct br_preview *shown, *asked;
    uint64_t next_ns; /* when it may be asked again */
};

struct pictures {
    struct br_graph *graph;
    size_t nedges;
    struct looking *looking; /* [nedges]; its previews are made when they are first asked for */
};

struct pictures *pictures_make(struct br_graph *graph)
{
    struct pictures *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->graph = graph;
    p->nedges = br_graph_nedges(graph);
    p->looking = calloc(p->nedges + 1, sizeof *p->looking);
    if (p->looking != NULL) return p;
    free(p);
    return NULL;
}

void pictures_free(struct pictures *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->nedges; i++) {
        free(p->looking[i].shown);
        free(p->looking[i].asked);
    }
    free(p->looking);
    free(p);
}

/* Takes what has been filled in, and asks again when it is time. */
static bool look(struct looking *l, struct br_edge *edge, size_t item)
{
    if (l->shown == NULL) l->shown = calloc(1, sizeof *l->shown);
    if (l->asked == NULL) l->asked = calloc(1, sizeof *l->asked);
    if (l->shown == NULL || l->asked == NULL) return false;
    if (atomic_load_explicit(&l->asked->state, memory_order_acquire) == PREVIEW_FILLED) {
        struct br_preview *filled = l->asked;
        l->asked = l->shown;
        l->shown = filled;
        atomic_store(&l->asked->state, PREVIEW_IDLE);
        uint64_t pause = filled->took_ns * PICTURE_SHARE;
        l->next_ns = filled->at_ns + (pause > PICTURE_EVERY_NS ? pause : PICTURE_EVERY_NS);
    }
    bool other = l->shown->nitems > 0 && l->shown->item != item;
    uint64_t now = br_clock_ns();
    if (atomic_load(&l->asked->state) != PREVIEW_IDLE) return true;
    /* Another item is shown soon, if looking is cheap. */
    if (now < l->next_ns && !(other && l->shown->took_ns * PICTURE_SHARE < now - l->shown->at_ns))
        return true;
    l->asked->item = item;
    atomic_store(&l->asked->state, PREVIEW_ASKED);
    atomic_store_explicit(&edge->preview, l->asked, memory_order_release);
    return true;
}

/* --- as JSON --- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *axes_of(const struct br_array *array)
{
    json_t *axes = json_array();
    for (unsigned i = 0; i < array->naxes; i++)
        if (strcmp(array->axis[i].name, "time") != 0 && strcmp(array->axis[i].name, "freq") != 0)
            json_array_append_new(
                axes, json_pack("[s, I]", array->axis[i].name, (json_int_t)array->axis[i].length));
    return axes;
}

/* Where beams point, or dishes stand, in the order of the items: [x, y] with y up. NULL: not known. */
static json_t *positions_of(const struct br_stream *stream, const struct br_preview *preview)
{
    size_t items = br_preview_items(stream);
    json_t *list = json_array();
    if (stream->beams != NULL && items == stream->nbeams) {
        for (size_t k = 0; k < preview->nitems; k++) {
            const struct br_beam *beam = &stream->beams[k * preview->item_step];
            json_array_append_new(list,
                                  json_pack("[f, f]", beam->y, beam->x)); /* east to the right, north up */
        }
        return list;
    }
    const struct br_telescope *t = stream->telescope;
    size_t dishes = br_array_length(&stream->array, "dish");
    if (t != NULL && preview->item_step == 1 && br_array_axis(&stream->array, "dish") >= 0 &&
        dishes == t->ndishes && strcmp(stream->array.axis[stream->array.naxes - 1].name, "dish") == 0) {
        for (size_t d = 0; d < dishes; d++)
            json_array_append_new(
                list, json_pack("[f, f]", t->dishes[d].n * t->spacing_n_m, t->dishes[d].m * t->spacing_m_m));
        return list;
    }
    json_decref(list);
    return json_null();
}

static json_t *picture(const struct br_edge *edge, const struct br_preview *p)
{
    const struct br_stream *stream = &edge->stream;
    json_t *means = json_array(), *rows = json_array(), *freq = json_array();
    for (size_t k = 0; k < p->nitems; k++) json_array_append_new(means, number(p->mean[k]));
    for (unsigned c = 0; c < p->nchannels; c++) {
        json_t *row = json_array();
        for (unsigned t = 0; t < p->ntimes; t++) json_array_append_new(row, number(p->waterfall[c][t]));
        json_array_append_new(rows, row);
        json_array_append_new(freq, json_real(p->freq_mhz[c]));
    }
    return json_pack("{ss ss so sI sI so so sI so so sI sf sf sf}", "queue", edge->name, "dtype",
                     br_dtype_name(stream->array.dtype), "axes", axes_of(&stream->array), "items",
                     (json_int_t)br_preview_items(stream), "item_step", (json_int_t)p->item_step, "mean",
                     means, "positions", positions_of(stream, p), "item", (json_int_t)p->item, "waterfall",
                     rows, "freq_mhz", freq, "unix_ns", (json_int_t)br_stream_time_ns(stream, p->first),
                     "seconds", (double)p->samples * br_stream_sample_s(stream), "age_s",
                     (double)(br_clock_ns() - p->at_ns) * 1e-9, "took_ms", (double)p->took_ns * 1e-6);
}

static bool is_transfer(const struct br_stage *stage)
{
    return strcmp(stage->type->name, "transfer") == 0;
}

const struct br_edge *picture_host_side(const struct br_edge *edge)
{
    if (edge->place.space != BR_SPACE_CUDA) return edge;
    if (is_transfer(edge->producer)) return edge->producer->in[0].edge;
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        if (is_transfer(link->stage) && link->stage->out[0].place.space != BR_SPACE_CUDA)
            return &link->stage->out[0];
    return NULL;
}

static size_t index_of(const struct pictures *p, const struct br_edge *edge)
{
    size_t i = 0;
    while (i < p->nedges && br_graph_edge(p->graph, i) != edge) i++;
    return i;
}

json_t *pictures_get(struct pictures *p, const char *name, size_t item, char *why, size_t size)
{
    size_t i = 0;
    while (i < p->nedges && strcmp(br_graph_edge(p->graph, i)->name, name) != 0) i++;
    if (i == p->nedges) {
        snprintf(why, size, "there is no queue '%.80s' in this pipeline; /v1/graph lists them", name);
        return NULL;
    }
    const struct br_edge *same = picture_host_side(br_graph_edge(p->graph, i));
    if (same != NULL) i = index_of(p, same);
    struct br_edge *edge = br_graph_edge(p->graph, i);
    const char *refused = br_preview_refuses(&edge->stream);
    if (same == NULL || edge->place.space == BR_SPACE_CUDA)
        refused =
            "its frames are in a GPU's memory only; look at a queue that a stage of the host reads or fills";
    if (refused == NULL && item >= br_preview_items(&edge->stream)) refused = "it has no such item";
    if (refused != NULL) {
        snprintf(why, size, "there is no preview of queue '%.80s': %s", name, refused);
        return NULL;
    }
    struct looking *l = &p->looking[i];
    if (!look(l, edge, item)) {
        snprintf(why, size, "no memory");
        return NULL;
    }
    if (l->shown->nitems == 0) return json_pack("{ss sb}", "queue", edge->name, "pending", 1);
    return picture(edge, l->shown);
}
