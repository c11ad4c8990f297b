/* extents.c - reading the samples of extents into frames: which pieces there are. */
#include "formats/pieces/extents.h"
#include "formats/common/fileio.h"
#include "formats/dada/recording.h"
#include "formats/pieces/feed.h"
#include "formats/pieces/reading.h"

#include "formats/chime/chime_hdf5.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PART = 128 << 10,    /* bytes of some of a frame's channels that make a piece of work */
    FAR_PLANES = 8 << 20 /* frames of channels put side by side: their lines are strewn, and memory likes
                            those less than the caches do (reading_is_far) */
};

/* --- start and stop ------------------------------------------------------------------------------ */

/* Scratch memory of a thread. */
static size_t scratch_of(const struct extents *e, const struct extent *x)
{
    enum { PLANES = EXTENTS_PLANES * (EXTENTS_PLANE + EXTENTS_PLANE_PAD) };
    if (x->chunks != NULL) return chime_scratch(x->chunks) > PLANES ? chime_scratch(x->chunks) : PLANES;
    if (extent_is_contiguous(e, x)) return feed_scratch(e->direct);
    size_t row = x->nchannels * e->cell_bytes;
    if (x->stride_time > row) row = (size_t)x->stride_time;
    return row + EXTENTS_PAGE > PLANES ? row + EXTENTS_PAGE : PLANES;
}

int extents_start(struct caller *caller, void *self)
{
    struct extents *e = self;
    size_t scratch = 0, frame = br_stream_max_bytes(&e->stream);
    for (size_t i = 0; i < e->count; i++) {
        const struct extent *x = &e->extent[i];
        size_t bytes = scratch_of(e, x);
        if (bytes > scratch) scratch = bytes;
        e->has_chunks = e->has_chunks || x->chunks != NULL;
        e->has_gaps = e->has_gaps || x->gaps != NULL;
    }
    e->cursor = e->first;
    e->pass = 0;
    const struct extent *like = &e->extent[0];
    bool planes = like->chunks == NULL && !extent_is_contiguous(e, like) && !extent_is_row_wise(e, like);
    e->far = planes ? frame > (size_t)FAR_PLANES : reading_is_far(frame);
    e->fd = malloc(e->files.count * sizeof *e->fd);
    e->fd_direct = calloc(e->files.count, sizeof *e->fd_direct);
    e->open = malloc(e->files.count * sizeof *e->open);
    e->needed = calloc(e->files.count, sizeof *e->needed);
    /* at most one more piece for each extent that a frame meets, and for each group of channels */
    e->pieces_room = 64 + 2 * (frame / PART) + e->stream.nchannels;
    e->piece = malloc(e->pieces_room * sizeof *e->piece);
    e->stop = calloc(e->count, sizeof *e->stop);
    unsigned readers = e->direct ? UINT_MAX : caller->gpu ? FEED_READERS : 0;
    e->nthreads = pool_threads(caller, e->threads > 0 ? e->threads : readers);
    e->pool = pool_start(caller, e->nthreads, scratch);
    if (e->fd == NULL || e->fd_direct == NULL || e->open == NULL || e->needed == NULL || e->piece == NULL ||
        e->stop == NULL || e->pool == NULL)
        return caller_no_memory(caller, scratch * e->nthreads);
    for (size_t i = 0; i < e->files.count; i++) e->fd[i] = -1;
    for (size_t i = 0; i < e->count; i++)
        if (e->extent[i].end > e->needed[e->extent[i].file]) e->needed[e->extent[i].file] = e->extent[i].end;
    return BR_OK;
}

void extents_stop(struct caller *caller, void *self)
{
    struct extents *e = self;
    (void)caller;
    pool_stop(e->pool);
    for (size_t i = 0; i < e->nopen; i++) close(e->fd[e->open[i]]);
    free(e->fd);
    free(e->fd_direct);
    free(e->open);
    free(e->needed);
    free(e->piece);
    free(e->stop);
    e->stop = NULL;
    e->pool = NULL;
    e->fd = NULL;
    e->fd_direct = NULL;
    e->open = NULL;
    e->needed = NULL;
    e->piece = NULL;
    e->nopen = 0;
}

static int open_file(struct caller *caller, struct extents *e, size_t file)
{
    if (e->fd[file] >= 0) return BR_OK;
    struct br_error error = {0};
    e->fd_direct[file] = e->direct;
    e->fd[file] = fileio_open(e->files.path[file], &e->fd_direct[file], &error);
    if (e->fd[file] < 0) return caller_fail(caller, error.status, "%s", error.text);
    e->open[e->nopen++] = file;
    if (e->direct && !e->fd_direct[file] && !e->told) {
        caller_warn(caller, "direct: the file system of %s has no direct reads; it is read as without",
                    e->files.path[file]);
        e->told = true;
    }
    return BR_OK;
}

/* Closes the files of which nothing comes any more in this pass; all of them with at = UINT64_MAX. */
static void close_files(struct extents *e, uint64_t at)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->nopen; i++) {
        size_t file = e->open[i];
        if (e->needed[file] > at) {
            e->open[kept++] = file;
            continue;
        }
        close(e->fd[file]);
        e->fd[file] = -1;
    }
    e->nopen = kept;
}

/* --- frames -------------------------------------------------------------------------------------- */

/* Whole chunks first, then the larger parts of those that the frame cuts, so that all threads end at about
 * the same time. */
static void order_pieces(struct extents *e)
{
    size_t ordered = 0;
    for (uint64_t part = 1; part <= 2; part++)
        for (size_t i = ordered; i < e->npieces; i++) {
            struct piece p = e->piece[i];
            const struct chime_chunks *chunks = e->extent[p.extent].chunks;
            if (chunks == NULL || part * (p.to - p.from) < chunks->chunk_rows) continue;
            e->piece[i] = e->piece[ordered];
            e->piece[ordered++] = p;
        }
}

static void run_pieces(struct extents *e)
{
    order_pieces(e);
    pool_run(e->pool, e->npieces, extents_read_piece, e);
    e->npieces = 0;
}

static void mark(struct extents *e, const struct extent *x, uint64_t row, uint64_t rows, uint8_t validity)
{
    size_t n = e->stream.nchannels;
    if (x->nchannels == n) {
        memset(e->out->valid + row * n, validity, (size_t)rows * n);
        return;
    }
    for (uint64_t t = 0; t < rows; t++)
        memset(e->out->valid + (row + t) * n + x->channel, validity, x->nchannels);
}

static void add_piece(struct extents *e, struct piece piece)
{
    if (e->npieces == e->pieces_room) run_pieces(e);
    e->piece[e->npieces++] = piece;
}

static uint64_t step_of(const struct extents *e, uint64_t sample)
{
    return sample / e->stream.zone[0].downsample;
}

/* Samples [from, to) of an extent that lies in the file as in the frame: slices, or straight to a GPU. */
static int add_bytes(struct caller *caller, struct extents *e, size_t extent, uint64_t from, uint64_t to,
                     uint64_t row)
{
    const struct extent *x = &e->extent[extent];
    uint64_t begin = (step_of(e, from) - step_of(e, x->first)) * e->row_bytes, at = begin,
             end = begin + br_time_steps(from, to - from, e->stream.zone[0].downsample) * e->row_bytes;
    bool direct = e->fd_direct[x->file];
    struct feed_source source = {.fd = e->fd[x->file],
                                 .path = e->files.path[x->file],
                                 .direct = direct,
                                 .offset = x->offset + begin,
                                 .bytes = (size_t)(end - begin)};
    if (caller->gpu)
        return feed_frame(caller, e->pool, e->nthreads < 2, br_stream_max_bytes(&e->stream), &source,
                          (uint8_t *)e->out->data + row * e->row_bytes);
    /* where single cells can be missing, whole cells; direct reads begin with blocks of the file */
    uint64_t unit = e->coding == CODING_CHIME ? e->cell_bytes : 1,
             most = direct    ? FEED_DIRECT
                    : e->flat ? FEED_SLICE
                              : EXTENTS_PIECE,
             slice = most / unit > 0 ? most / unit * unit : unit,
             stop = at + slice - (direct && unit == 1 ? source.offset % FILEIO_BLOCK : 0);
    for (; at < end; at = stop, stop += slice)
        add_piece(e, (struct piece){.extent = extent,
                                    .from = at,
                                    .to = stop < end ? stop : end,
                                    .row = row * e->row_bytes + (at - begin)});
    return BR_OK;
}

/* Cuts samples [from, to) of another extent into pieces. */
static void add_pieces(struct extents *e, size_t extent, uint64_t from, uint64_t to, uint64_t row)
{
    const struct extent *x = &e->extent[extent];
    bool planes = x->chunks == NULL && !extent_is_row_wise(e, x);
    uint64_t bytes = e->cell_bytes * x->nchannels;
    uint32_t across = planes ? extents_across(e, x) : x->nchannels;
    uint64_t step = x->chunks != NULL && x->chunks->bitshuffle ? x->chunks->chunk_rows
                    : planes                                   ? EXTENTS_PLANE / e->cell_bytes
                                                               : PART / bytes;
    if (step == 0) step = 1;
    for (uint64_t at = from; at < to;) {
        uint64_t stop = planes ? at + step : (at - x->first) / step * step + step + x->first;
        if (stop > to) stop = to;
        for (uint32_t c = 0; c < x->nchannels; c += across) {
            add_piece(e,
                      (struct piece){extent, at, stop, row + (at - from), c,
                                     x->nchannels - c < across ? x->nchannels - c : across, e->stop[extent]});
        }
        at = stop;
    }
}

static void count_duplicates(struct caller *caller, struct extents *e, uint64_t channel_samples)
{
    e->duplicates += channel_samples;
    uint64_t whole = e->duplicates / e->stream.nchannels;
    if (whole > 0) caller_lost(caller, CALLER_DUPLICATE, whole);
    e->duplicates %= e->stream.nchannels;
}

/* Samples [a, b) of this pass, `shift` samples late, as far as a track has them. Adds the channel-samples
 * covered. Status. */
static int add_track(struct caller *caller, struct extents *e, struct track *track, uint64_t a, uint64_t b,
                     uint64_t shift, uint64_t *cells)
{
    for (; track->at < track->count; track->at++) {
        size_t i = track->extent + track->at;
        const struct extent *x = &e->extent[i];
        if (x->first >= b) break;
        uint64_t from = x->begin > a ? x->begin : a, to = x->end < b ? x->end : b;
        if (from < to) {
            int status = open_file(caller, e, x->file);
            if (status != BR_OK) return status;
            bool as_read =
                x->chunks != NULL && e->coding == CODING_CHIME; /* read_chunks says which are valid */
            uint64_t row = step_of(e, from + shift) - step_of(e, e->out->first);
            if (!e->all_there && !as_read)
                mark(e, x, row, br_time_steps(from, to - from, e->stream.zone[0].downsample), BR_VALID);
            if (extent_is_contiguous(e, x))
                status = add_bytes(caller, e, i, from, to, row);
            else
                add_pieces(e, i, from, to, row);
            if (status != BR_OK) return status;
            *cells += (to - from) * x->nchannels;
        }
        if (x->end > b) break; /* it goes on in the next frame */
        if (!x->overlap_meant && x->begin > x->first)
            count_duplicates(caller, e, (x->begin - x->first) * x->nchannels);
    }
    return BR_OK;
}

/* Clears the cells that no extent has; of one track, whole rows. Status. */
static int clear_missing(struct caller *caller, struct extents *e, uint64_t rows)
{
    uint8_t *data = e->out->data;
    size_t n = e->stream.nchannels;
    for (uint64_t t = 0; e->flat && t < rows; t++)
        if (e->out->valid[t * n] == BR_MISSING) {
            uint64_t first = t;
            while (t + 1 < rows && e->out->valid[(t + 1) * n] == BR_MISSING) t++;
            int status = caller->run->set_rows(caller->owner, data + first * e->row_bytes, e->row_bytes,
                                               e->missing_byte, e->row_bytes, (size_t)(t + 1 - first));
            if (status != BR_OK) return status;
        }
    uint64_t cells = e->flat ? 0 : rows * n;
    for (uint64_t i = 0; i < cells;) {
        if (e->out->valid[i] != BR_MISSING) {
            i++;
            continue;
        }
        uint64_t end = i + 1;
        while (end < cells && e->out->valid[end] == BR_MISSING) end++;
        memset(data + i * e->cell_bytes, 0, (size_t)(end - i) * e->cell_bytes);
        i = end;
    }
    return BR_OK;
}

/* True when extents alone cover every cell of [a, b). */
static bool covered(const struct extents *e, uint64_t a, uint64_t b)
{
    if (b > e->last) return false;
    uint32_t channel = 0;
    for (size_t i = 0; i < e->ntracks; i++) {
        const struct track *track = &e->track[i];
        const struct extent *x = &e->extent[track->extent];
        if (x->channel != channel) return false;
        channel += x->nchannels;
        uint64_t reach = a;
        for (size_t k = track->at; k < track->count && reach < b && x[k].begin <= reach; k++)
            if (x[k].end > reach) reach = x[k].end;
        if (reach < b) return false;
    }
    return channel == e->stream.nchannels;
}

/* Applies the files' own lists to the samples of the frame, up to `end`, the last of them in the pass that
 * is `shift` samples late. Passes before it that the frame meets are marked as well. */
static void mark_gaps(struct extents *e, uint64_t end, uint64_t shift)
{
    uint64_t length = e->period, begin = e->out->first;
    for (size_t i = 0; i < e->count; i++) {
        const struct extent *x = &e->extent[i];
        if (x->gaps == NULL) continue;
        for (uint64_t late = shift;; late -= length) {
            uint64_t from = x->begin + late > begin ? x->begin + late : begin,
                     to = x->end + late < end ? x->end + late : end;
            if (from < to && gaps_touch(x->gaps, from - late, to - from)) {
                br_frame_open_validity(&e->stream, e->out);
                gaps_apply(x->gaps, &e->stream, e->out, late, from, to);
            }
            if (late == 0 || e->last + late - length <= begin) break;
        }
    }
}

int extents_fill(struct caller *caller, void *self, struct br_frame *out)
{
    struct extents *e = self;
    uint64_t a = e->cursor, b = recording_frame_end(&e->stream, a);
    uint64_t nchannels = e->stream.nchannels, shift = e->pass * e->period;
    unsigned d = e->stream.zone[0].downsample;
    out->first = a;
    out->samples = b - a;
    out->missing = 0;
    e->out = out;
    e->npieces = 0;
    e->failed = 0;
    bool may_lack = e->coding == CODING_CHIME; /* its bytes can say that they were never written */
    e->all_there = !(may_lack && e->has_chunks) && a >= shift && covered(e, a - shift, b - shift);
    out->complete = e->all_there && !may_lack;
    if (!out->complete)
        memset(out->valid, e->all_there ? BR_VALID : BR_MISSING, br_time_steps(a, b - a, d) * nchannels);
    uint64_t at = a, cells = 0;
    while (at < b) {
        if (at == e->last + shift) {
            if (e->passes != 0 && e->pass + 1 >= e->passes) break;
            e->pass++;
            shift += e->period;
            for (size_t i = 0; i < e->ntracks; i++) e->track[i].at = 0;
            if (e->npieces > 0) run_pieces(e);
            close_files(e, UINT64_MAX);
        }
        uint64_t stop = e->last + shift < b ? e->last + shift : b;
        if (at < e->first + shift) at = e->first + shift < b ? e->first + shift : b;
        for (size_t i = 0; i < e->ntracks && at < stop; i++) {
            int status = add_track(caller, e, &e->track[i], at - shift, stop - shift, shift, &cells);
            if (status != BR_OK) return status;
        }
        at = stop;
    }
    if (at == a) return READER_FINISHED;
    out->samples = at - a;
    int status = BR_OK;
    if (!out->complete && cells < (at - a) * nchannels)
        status = clear_missing(caller, e, br_time_steps(a, at - a, d));
    if (status != BR_OK) return status;
    run_pieces(e);
    if (e->failed != 0) return caller_fail(caller, e->failed, "%s", e->error.text);
    if (e->has_gaps) mark_gaps(e, at, shift);
    close_files(e, at - shift);
    e->cursor = at;
    if (!out->complete) br_frame_close_validity(&e->stream, out);
    return READER_FRAME;
}
