/* picture.c - see picture.h. */
#include "runtime/control/picture.h"

#include "runtime/run/preview.h"

#include "buffers/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A preview is filled in for this long before it is handed back. */
#define BATCH_NS ((uint64_t)800 * 1000000)
/* Means forget by 1/e in this time; an item that nobody asks for is let go after it. */
#define MEMORY_NS ((uint64_t)10 * 1000000000)

enum { COLUMNS = 256 }; /* of a waterfall: 10 s at least */

struct column {
    int64_t at_ms; /* CLOCK_MONOTONIC */
    uint64_t first, samples;
    float power[PREVIEW_CHANNELS];
};

/* One item's waterfall. */
struct look {
    size_t item;
    uint64_t asked_ns; /* 0: free */
    uint64_t next;     /* number of the next column; the last COLUMNS of them are kept */
    struct column column[COLUMNS];
};

/* The state of a queue's preview. */
struct seen {
    struct br_preview preview; /* lent to the producer while it is asked for */
    size_t nitems, item_step;
    double sum[PREVIEW_ITEMS], cells;
    unsigned nchannels;
    double freq_mhz[PREVIEW_CHANNELS];
    uint64_t first, samples; /* of the last column */
    uint64_t at_ns, took_ns;
    struct look look[PREVIEW_LOOKS];
};

struct pictures {
    struct br_graph *graph;
    size_t nedges;
    struct seen **seen; /* [nedges]; NULL: nobody has asked yet */
};

struct pictures *pictures_make(struct br_graph *graph)
{
    struct pictures *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->graph = graph;
    p->nedges = br_graph_nedges(graph);
    p->seen = calloc(p->nedges + 1, sizeof *p->seen);
    if (p->seen != NULL) return p;
    free(p);
    return NULL;
}

void pictures_free(struct pictures *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->nedges; i++) free(p->seen[i]);
    free(p->seen);
    free(p);
}

static void keep_column(struct look *look, const struct preview_column *from, unsigned at, unsigned nchannels)
{
    struct column *to = &look->column[look->next++ % COLUMNS];
    *to = (struct column){(int64_t)(from->at_ns / 1000000), from->first, from->samples, {0}};
    memcpy(to->power, from->power[at], nchannels * sizeof *to->power);
}

/* Takes over what the producer has filled in. */
static void take(struct seen *seen)
{
    struct br_preview *p = &seen->preview;
    const struct preview_column *last = &p->column[p->ncolumns - 1];
    double kept = seen->at_ns != 0 ? exp(-(double)(last->at_ns - seen->at_ns) / (double)MEMORY_NS) : 0;
    seen->nitems = p->nitems;
    seen->item_step = p->item_step;
    for (size_t k = 0; k < p->nitems; k++) seen->sum[k] = kept * seen->sum[k] + p->sum[k];
    seen->cells = kept * seen->cells + (double)p->cells;
    seen->nchannels = p->nchannels;
    memcpy(seen->freq_mhz, p->freq_mhz, sizeof seen->freq_mhz);
    for (unsigned l = 0; l < p->nlooks; l++)
        for (struct look *look = seen->look; look < seen->look + PREVIEW_LOOKS; look++)
            for (unsigned c = 0; look->asked_ns != 0 && look->item == p->item[l] && c < p->ncolumns; c++)
                keep_column(look, &p->column[c], l, p->nchannels);
    seen->first = last->first;
    seen->samples = last->samples;
    seen->at_ns = last->at_ns;
    seen->took_ns = p->took_ns;
    br_preview_clear(p);
    atomic_store(&p->state, PREVIEW_IDLE);
}

/* The look at this item: one that there is, or the one that was asked for longest ago. */
static struct look *look_at(struct seen *seen, size_t item, uint64_t now)
{
    struct look *oldest = seen->look;
    for (struct look *l = seen->look; l < seen->look + PREVIEW_LOOKS; l++) {
        if (l->asked_ns != 0 && l->item == item) {
            l->asked_ns = now;
            return l;
        }
        if (l->asked_ns < oldest->asked_ns) oldest = l;
    }
    /* Numbers go on: a `since` of the item before must not hide columns of this one. */
    oldest->next += COLUMNS - oldest->next % COLUMNS;
    memset(oldest->column, 0, sizeof oldest->column);
    oldest->item = item;
    oldest->asked_ns = now;
    return oldest;
}

/* Leaves the preview at the edge, for the items that somebody still asks for. */
static void ask(struct seen *seen, struct br_edge *edge, uint64_t now)
{
    struct br_preview *p = &seen->preview;
    p->nlooks = 0;
    for (struct look *l = seen->look; l < seen->look + PREVIEW_LOOKS; l++)
        if (l->asked_ns != 0 && now - l->asked_ns < MEMORY_NS) p->item[p->nlooks++] = l->item;
    p->until_ns = seen->nitems > 0 ? now + BATCH_NS : now; /* the first comes at once */
    atomic_store(&p->state, PREVIEW_ASKED);
    atomic_store_explicit(&edge->producer->state->preview[edge->port], p, memory_order_release);
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

/* Where beams point, in degrees, or dishes stand, in metres, in the order of the items: [east, north]. NULL:
 * not known. */
static json_t *positions_of(const struct br_stream *stream, const struct seen *seen, const char **unit)
{
    static const double degrees = 180 / 3.14159265358979323846;
    const struct br_telescope *t = stream->telescope;
    size_t items = br_preview_items(stream), dishes = br_array_length(&stream->array, "dish");
    json_t *list = json_array();
    *unit = "deg";
    if (stream->beams != NULL && items == stream->nbeams) {
        for (size_t k = 0; k < seen->nitems; k++) {
            const struct br_beam *beam = &stream->beams[k * seen->item_step];
            json_t *place = json_pack("[f, f]", beam->y * degrees, beam->x * degrees);
            if (json_array_append_new(list, place) == 0) continue;
            json_decref(list); /* it follows the sky */
            return json_null();
        }
        return list;
    }
    *unit = "m";
    if (t != NULL && seen->item_step == 1 && br_array_axis(&stream->array, "dish") >= 0 &&
        dishes == t->ndishes && strcmp(stream->array.axis[stream->array.naxes - 1].name, "dish") == 0) {
        for (size_t d = 0; d < dishes; d++)
            json_array_append_new(list, json_pack("[f, f]", t->position[d][0], t->position[d][1]));
        return list;
    }
    json_decref(list);
    return json_null();
}

/* The columns from number `since` on, as [time][channel], and when each passed. */
static json_t *waterfall_of(const struct seen *seen, const struct look *look, uint64_t since)
{
    json_t *rows = json_array(), *times = json_array(), *samples = json_array();
    uint64_t first = look->next > COLUMNS ? look->next - COLUMNS : 0;
    for (uint64_t i = since > first && since <= look->next ? since : first; i < look->next; i++) {
        const struct column *column = &look->column[i % COLUMNS];
        if (column->samples == 0) continue;
        json_t *row = json_array();
        for (unsigned c = 0; c < seen->nchannels; c++) json_array_append_new(row, number(column->power[c]));
        json_array_append_new(rows, row);
        json_array_append_new(times, json_integer(column->at_ms));
        json_array_append_new(samples, json_integer((json_int_t)column->first));
    }
    return json_pack("{so so so sI}", "power", rows, "at_ms", times, "sample", samples, "next",
                     (json_int_t)look->next);
}

static json_t *picture(const struct br_edge *edge, const struct seen *seen, const struct look *look,
                       uint64_t since)
{
    const struct br_stream *stream = &edge->stream;
    const char *unit;
    json_t *means = json_array(), *freq = json_array(), *positions = positions_of(stream, seen, &unit);
    uint64_t now = br_clock_ns();
    for (size_t k = 0; k < seen->nitems; k++)
        json_array_append_new(means, number(seen->sum[k] / seen->cells));
    for (unsigned c = 0; c < seen->nchannels; c++) json_array_append_new(freq, json_real(seen->freq_mhz[c]));
    return json_pack(
        "{ss ss so sI sI so sf so ss sI so so sI sI sf sI sf sf}", "queue", edge->name, "dtype",
        br_dtype_name(stream->array.dtype), "axes", axes_of(&stream->array), "items",
        (json_int_t)br_preview_items(stream), "item_step", (json_int_t)seen->item_step, "mean", means,
        "cells", seen->cells, "positions", positions, "unit", unit, "item", (json_int_t)look->item,
        "waterfall", waterfall_of(seen, look, since), "freq_mhz", freq, "sample", (json_int_t)seen->first,
        "unix_ns", (json_int_t)br_stream_time_ns(stream, seen->first), "seconds",
        (double)seen->samples * br_stream_sample_s(stream), "now_ms", (json_int_t)(now / 1000000), "age_s",
        (double)(now - seen->at_ns) * 1e-9, "took_ms", (double)seen->took_ns * 1e-6);
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

const char *pictures_refuse(const struct br_edge *edge)
{
    const struct br_edge *same = picture_host_side(edge);
    if (same == NULL || same->place.space == BR_SPACE_CUDA)
        return "its frames are in a GPU's memory only; look at a queue that a stage of the host reads or "
               "fills";
    return br_preview_refuses(&same->stream);
}

json_t *pictures_get(struct pictures *p, const char *name, size_t item, uint64_t since, char *why,
                     size_t size)
{
    size_t i = 0;
    while (i < p->nedges && strcmp(br_graph_edge(p->graph, i)->name, name) != 0) i++;
    if (i == p->nedges) {
        snprintf(why, size, "there is no queue '%.80s' in this pipeline; /v1/graph lists them", name);
        return NULL;
    }
    const char *refused = pictures_refuse(br_graph_edge(p->graph, i));
    if (refused == NULL) {
        i = index_of(p, picture_host_side(br_graph_edge(p->graph, i)));
        if (item >= br_preview_items(&br_graph_edge(p->graph, i)->stream)) refused = "it has no such item";
    }
    if (refused != NULL) {
        snprintf(why, size, "there is no preview of queue '%.80s': %s", name, refused);
        return NULL;
    }
    struct br_edge *edge = br_graph_edge(p->graph, i);
    if (p->seen[i] == NULL) p->seen[i] = calloc(1, sizeof *p->seen[i]);
    struct seen *seen = p->seen[i];
    if (seen == NULL) {
        snprintf(why, size, "no memory");
        return NULL;
    }
    uint64_t now = br_clock_ns();
    if (atomic_load_explicit(&seen->preview.state, memory_order_acquire) == PREVIEW_FILLED) take(seen);
    const struct look *look = look_at(seen, item, now);
    if (atomic_load(&seen->preview.state) == PREVIEW_IDLE) ask(seen, edge, now);
    if (seen->nitems == 0) return json_pack("{ss sb}", "queue", edge->name, "pending", 1);
    return picture(edge, seen, look, since);
}
