/* The channels of several files side by side in one stream, and the list of extents that are found. */
#include "formats/common/hints.h"
#include "formats/common/order.h"
#include "formats/pieces/extents.h"

#include <stdlib.h>
#include <string.h>

struct extent *extents_add(struct extents *e)
{
    if (e->count == e->room) {
        size_t room = e->room > 0 ? 2 * e->room : 64;
        struct extent *more = realloc(e->extent, room * sizeof *more);
        if (more == NULL) return NULL;
        e->extent = more;
        e->room = room;
    }
    struct extent *x = &e->extent[e->count++];
    memset(x, 0, sizeof *x);
    return x;
}

size_t channels_add(struct caller *caller, struct channel_groups *groups, size_t n, const int64_t *id,
                    const double *mhz)
{
    for (size_t i = groups->count; i-- > 0;) /* the last one is the likeliest */
        if (groups->group[i].n == n && memcmp(groups->group[i].id, id, n * sizeof *id) == 0) return i;
    if (groups->count == groups->room) {
        size_t room = groups->room > 0 ? 2 * groups->room : 16;
        struct channel_group *more = caller_alloc(caller, room * sizeof *more);
        if (groups->count > 0) memcpy(more, groups->group, groups->count * sizeof *more);
        groups->group = more;
        groups->room = room;
    }
    struct channel_group *g = &groups->group[groups->count];
    g->n = n;
    g->id = caller_alloc(caller, n * sizeof *g->id);
    g->mhz = caller_alloc(caller, n * sizeof *g->mhz);
    memcpy(g->id, id, n * sizeof *id);
    memcpy(g->mhz, mhz, n * sizeof *mhz);
    return groups->count++;
}

static int by_first_id(const void *a, const void *b)
{
    const struct channel_group *x = *(struct channel_group *const *)a, *y = *(struct channel_group *const *)b;
    return x->id[0] < y->id[0] ? -1 : x->id[0] > y->id[0];
}

int channels_join(struct caller *caller, struct extents *e, struct channel_groups *groups,
                  const struct channel_words *words)
{
    const struct br_stream_hints *hints = caller->hints;
    struct br_stream *s = &e->stream;
    struct channel_group **order = caller_alloc(caller, groups->count * sizeof *order);
    size_t n = 0;
    for (size_t i = 0; i < groups->count; i++) {
        order[i] = &groups->group[i];
        n += order[i]->n;
    }
    qsort(order, groups->count, sizeof *order, by_first_id);
    double *freq = caller_alloc(caller, n * sizeof *freq), *width = caller_alloc(caller, n * sizeof *width);
    int64_t *id = caller_alloc(caller, n * sizeof *id);
    size_t channel = 0;
    for (size_t i = 0; i < groups->count; i++) {
        order[i]->channel = (uint32_t)channel;
        for (size_t k = 0; k < order[i]->n; k++, channel++) {
            freq[channel] = order[i]->mhz[k];
            width[channel] = words->width_mhz;
            id[channel] = order[i]->id[k];
        }
    }
    struct br_error error = {0};
    const char *file = e->files.path[0];
    if (hints_frequencies(hints, file, words->freq_key, n, freq, words->freq_precision, &error) != BR_OK ||
        hints_widths(hints, file, words->width_key, n, width, words->width_precision, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    for (size_t i = 0; i < n; i++)
        if (!(freq[i] > 0))
            return caller_refuse(
                caller,
                "%s: channel %lld would have a frequency of %g MHz; expected more than 0 MHz: "
                "give `stream: {freq_mhz: ...}`",
                file, (long long)id[i], freq[i]);
    qsort(id, n, sizeof *id, order_int64);
    for (size_t i = 1; i < n; i++)
        if (id[i] == id[i - 1])
            return caller_refuse(
                caller,
                "%s and the files with it have channel %lld twice, beside different other channels; "
                "expected files of the same channels, or of quite different ones",
                e->files.path[0], (long long)id[i]);
    for (size_t i = 0; i < e->count; i++) {
        const struct channel_group *g = &groups->group[e->extent[i].channel];
        e->extent[i].nchannels = (uint32_t)g->n;
        e->extent[i].channel = g->channel;
    }
    s->nchannels = n;
    s->freq_mhz = freq;
    s->width_mhz = width;
    return BR_OK;
}
