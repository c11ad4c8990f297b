/* extents_join.c - extents in the order of their channels and times, and the stream that they make. */
#include "formats/pieces/extents.h"
#include "formats/pieces/reading.h"

#include <stdlib.h>

enum {
    MOST_FRAME = 8 << 20,  /* bytes of a frame of several chunks */
    SHORT_PLANE = 16 << 10 /* bytes of a channel that are read at once: fewer take much longer each */
};

int extents_elements(struct caller *caller, const char *file, size_t elements, size_t npol_found,
                     size_t *npol, size_t *ndish)
{
    const struct br_stream_hints *hints = caller->hints;
    const struct br_telescope *telescope = caller->telescope;
    size_t p = npol_found > 0                                            ? npol_found
               : hints->npol > 0                                         ? hints->npol
               : telescope != NULL && elements % telescope->ndishes == 0 ? elements / telescope->ndishes
               : elements % 2 == 0                                       ? 2
                                                                         : 1;
    if (elements % p != 0 || (hints->npol > 0 && hints->npol != p) ||
        (telescope != NULL && elements / p != telescope->ndishes))
        return caller_refuse(
            caller,
            "%s has %zu inputs, %zu polarisations of %zu dishes; the pipeline has %u of %u: the "
            "recording's shape contradicts it (see `stream: npol` and `telescope: dishes`)",
            file, elements, p, elements / p, hints->npol > 0 ? hints->npol : (unsigned)p,
            telescope != NULL ? telescope->ndishes : (unsigned)(elements / p));
    *npol = p;
    *ndish = elements / p;
    return BR_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    if (x->nchannels != y->nchannels) return x->nchannels < y->nchannels ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1; /* the longer one counts */
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static bool same_track(const struct extent *a, const struct extent *b)
{
    return a->channel == b->channel && a->nchannels == b->nchannels;
}

/* Cuts off what an earlier extent of the track has, and refuses holes that are more likely a wrong time than
 * a pause. */
static int join_track(struct caller *caller, struct extents *e, struct track *track, double max_gap)
{
    struct extent *x = &e->extent[track->extent];
    uint64_t reach = x->first;
    bool told = false;
    for (size_t i = 0; i < track->count; i++) {
        x[i].begin = x[i].first < reach ? reach : x[i].first;
        if (x[i].begin > x[i].end) x[i].begin = x[i].end;
        if (x[i].first < reach && !x[i].overlap_meant && !told) {
            told = true;
            caller_warn(caller, "%s: samples from %llu on are repeated: the overlap is replayed once",
                        e->files.path[x[i].file], (unsigned long long)x[i].first);
        }
        if (x[i].first > reach && (double)(x[i].first - reach) * br_stream_sample_s(&e->stream) > max_gap)
            return caller_refuse(
                caller,
                "%s ends at sample %llu and %s continues at %llu, %.6g s later; expected a gap of at most "
                "max_gap_s = %g s: replay them separately, or raise max_gap_s",
                e->files.path[x[i - 1].file], (unsigned long long)reach, e->files.path[x[i].file],
                (unsigned long long)x[i].first, (double)(x[i].first - reach) * br_stream_sample_s(&e->stream),
                max_gap);
        if (x[i].end > reach) reach = x[i].end;
    }
    if (x->first < e->first) e->first = x->first;
    if (reach > e->last) e->last = reach;
    return BR_OK;
}

int extents_join(struct caller *caller, struct extents *e, double max_gap)
{
    qsort(e->extent, e->count, sizeof *e->extent, by_place);
    for (size_t i = 0; i < e->count; i++)
        e->ntracks += i == 0 || !same_track(&e->extent[i - 1], &e->extent[i]);
    e->track = caller_alloc(caller, e->ntracks * sizeof *e->track);
    struct track *track = e->track - 1;
    for (size_t i = 0; i < e->count; i++) {
        const struct extent *x = &e->extent[i];
        if (i == 0 || !same_track(x - 1, x)) {
            (++track)->extent = i;
            if (i > 0 && x[-1].channel + x[-1].nchannels > x->channel)
                return caller_refuse(
                    caller,
                    "%s and %s have some of their channels in common, not all; expected files of "
                    "the same channels, or of different ones",
                    e->files.path[x[-1].file], e->files.path[x->file]);
        }
        track->count++;
    }
    e->first = UINT64_MAX;
    for (size_t i = 0; i < e->ntracks; i++) {
        int status = join_track(caller, e, &e->track[i], max_gap);
        if (status != BR_OK) return status;
    }
    for (size_t i = 0; i < e->ntracks; i++) {
        const struct extent *x = &e->extent[e->track[i].extent];
        double late = (double)(x->first - e->first) * br_stream_sample_s(&e->stream);
        if (late > max_gap)
            return caller_refuse(
                caller,
                "%s starts %.6g s after the first of the files; expected a gap of at most max_gap_s = "
                "%g s: replay them separately, or raise max_gap_s",
                e->files.path[x->file], late, max_gap);
    }
    e->period = e->last - e->first;
    if (e->last <= e->first)
        return caller_refuse(caller, "%s has a header but not one whole sample", e->files.path[0]);
    return BR_OK;
}

bool extent_is_contiguous(const struct extents *e, const struct extent *x)
{
    return e->flat || (x->chunks == NULL && x->nchannels == e->stream.nchannels &&
                       x->stride_time == e->row_bytes && extent_is_row_wise(e, x));
}

/* Where the bytes of an extent lie relative to each other. */
bool extent_cell_is_whole(const struct extents *e, const struct extent *x)
{
    return (e->ndish == 1 || x->stride_dish == e->element_bytes) &&
           (e->npol == 1 || x->stride_pol == e->ndish * e->element_bytes);
}

bool extent_is_row_wise(const struct extents *e, const struct extent *x)
{
    return extent_cell_is_whole(e, x) && (x->nchannels == 1 || x->stride_freq == e->cell_bytes) &&
           x->stride_time >= e->cell_bytes * x->nchannels;
}

int extents_configure(struct caller *caller, struct extents *e, const struct read_options *options,
                      uint64_t row_samples)
{
    struct br_stream *s = &e->stream;
    uint64_t frame_samples = options->frame_samples;
    for (size_t i = 0; i < e->count; i++) e->has_gaps = e->has_gaps || e->extent[i].gaps != NULL;
    e->cell_bytes = e->npol * e->ndish * e->element_bytes;
    e->row_bytes = e->cell_bytes * part_most_channels(&options->part, s->nchannels); /* alike in all parts */
    int status = extents_join(caller, e, options->max_gap_s);
    if (status != BR_OK) return status;
    if (frame_samples == 0) {
        bool planes = !extent_is_row_wise(e, &e->extent[0]) && e->extent[0].chunks == NULL;
        /* planes: longer reads of each channel, but two or three frames shall fit the last cache */
        frame_samples = reading_frame_samples(planes ? e->row_bytes / 2 : e->row_bytes);
        if (planes && frame_samples * e->cell_bytes < SHORT_PLANE) frame_samples *= 2;
        if (row_samples > 0) { /* chunks that frames cut are read for both: let there be few */
            uint64_t chunks = (frame_samples + row_samples - 1) / row_samples;
            while (chunks < 8 && 2 * chunks * row_samples * e->row_bytes <= MOST_FRAME) chunks *= 2;
            frame_samples = chunks * row_samples;
        }
    }
    status = extents_take_part(caller, e, &options->part);
    if (status != BR_OK) return status;
    e->row_bytes = e->cell_bytes * s->nchannels;
    s->frame_samples = frame_samples;
    s->nzones = 1;
    s->zone[0] = (struct br_zone){0, s->nchannels, 1, 1, 0};
    s->scale = 1;
    s->telescope = caller->telescope;
    size_t lengths[4] = {(size_t)frame_samples, s->nchannels, e->npol, e->ndish};
    struct br_error error = {0};
    if (br_array_init(&s->array, e->element_bytes == 2 ? BR_INT8X2 : BR_INT4X2, "time,freq,pol,dish", lengths,
                      &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    return BR_OK;
}
