/* extents_pieces.c - one piece of an extent, from its file into the frame: what threads do. */
#include "formats/pieces/extents.h"

#include "formats/chime/bitplanes.h"
#include "formats/chime/chime_hdf5.h"
#include "formats/common/fileio.h"
#include "formats/pieces/feed.h"

#include <pthread.h>
#include <string.h>

enum {
    SLAB = 64 << 10,    /* read at once and then converted, while it is in the nearest caches */
    LONG_ROW = 16 << 10 /* a read for each row costs less than reading the other channels as well */
};

static void piece_failed(struct extents *e, const struct br_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (e->failed == 0) e->error = *error;
    e->failed = error->status;
    pthread_mutex_unlock(&lock);
}

void extents_put_cells(const struct extents *e, const uint8_t *in, size_t in_pitch, uint8_t *out,
                       size_t out_pitch, size_t bytes, size_t n, uint8_t *valid, size_t valid_pitch)
{
    for (size_t i = 0; i < n; i++, in += in_pitch, out += out_pitch) {
        if (e->coding == CODING_CHIME)
            for (size_t c = 0; c < bytes / e->cell_bytes; c++)
                if (coding_all_missing(CODING_CHIME, in + c * e->cell_bytes, e->cell_bytes))
                    valid[i * valid_pitch + c] = BR_MISSING;
        if (in != out && e->far)
            coding_convert_past_caches(e->coding, in, out, bytes);
        else if (in != out || e->coding != CODING_INT4X2)
            coding_convert(e->coding, in, out, bytes);
    }
}

/* Rows that lie in the file as in the frame: bytes, which need not be whole rows. */
static int read_bytes(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error)
{
    const struct extent *x = &e->extent[p->extent];
    uint8_t *to = (uint8_t *)e->out->data + p->row;
    struct feed_source source = {.fd = e->fd[x->file],
                                 .path = e->files.path[x->file],
                                 .direct = e->fd_direct[x->file],
                                 .offset = x->offset + p->from,
                                 .bytes = (size_t)(p->to - p->from)};
    int status = feed_read(&source, to, scratch, error);
    if (status != BR_OK || e->coding == CODING_INT4X2) return status;
    extents_put_cells(e, to, 0, to, 0, source.bytes, 1,
                      e->coding == CODING_CHIME ? e->out->valid + p->row / e->cell_bytes : NULL, 0);
    return BR_OK;
}

/* Samples as they stand in the frame, or a part of its rows. */
static int read_rows(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error)
{
    const struct extent *x = &e->extent[p->extent];
    size_t row = x->nchannels * e->cell_bytes, pitch = (size_t)x->stride_time, n = (size_t)(p->to - p->from),
           nchannels = e->stream.nchannels;
    uint8_t *out = (uint8_t *)e->out->data + p->row * e->row_bytes + x->channel * e->cell_bytes;
    uint8_t *valid = e->out->valid + p->row * nchannels + x->channel;
    uint64_t at = x->offset + (p->from - x->first) * pitch;
    bool whole = row == e->row_bytes && row >= LONG_ROW;
    size_t most = (size_t)SLAB / pitch > 0 ? (size_t)SLAB / pitch : 1;
    if (pitch > row && row >= LONG_ROW) most = 1; /* what lies between the rows is not read */
    for (size_t i = 0; i < n; i += most) {
        size_t rows = n - i < most ? n - i : most;
        uint8_t *to = out + i * e->row_bytes, *from = whole ? to : scratch + (at + i * pitch) % EXTENTS_PAGE;
        int status = fileio_read_all(e->fd[x->file], e->files.path[x->file], from, (rows - 1) * pitch + row,
                                     at + i * pitch, error);
        if (status != BR_OK) return status;
        if (!whole || e->coding != CODING_INT4X2)
            extents_put_cells(e, from, pitch, to, e->row_bytes, row, rows, valid + i * nchannels, nchannels);
    }
    return BR_OK;
}

/* Where the samples of a chunk go. Threads that read neighbouring channels at the same time must not write to
 * the same cache line with every row: validities are put down many rows at a time. */
struct chunk_out {
    enum coding coding;
    uint8_t *data, *valid; /* of the piece's first row, and of its channel */
    size_t data_pitch, valid_pitch;
    bool far;
    uint64_t noted; /* first of the rows noted below: a multiple of their number */
    bool written[512];
};

static void put_validities(struct chunk_out *out)
{
    for (size_t i = 0; i < sizeof out->written; i++)
        if (out->written[i]) out->valid[(out->noted + i) * out->valid_pitch] = BR_VALID;
    memset(out->written, 0, sizeof out->written);
}

/* A sample is missing unless some part of it was written. */
static void note_written(struct chunk_out *out, uint64_t row)
{
    if (row - out->noted >= sizeof out->written) {
        put_validities(out);
        out->noted = row / sizeof out->written * sizeof out->written;
    }
    out->written[row - out->noted] = true;
}

static void put_chunk_row(void *arg, uint64_t row, size_t column, const uint8_t *in, size_t n)
{
    struct chunk_out *out = arg;
    if (!coding_all_missing(CODING_CHIME, in, n)) note_written(out, row);
    uint8_t *to = out->data + row * out->data_pitch + column;
    if (out->far)
        coding_convert_past_caches(out->coding, in, to, n);
    else
        coding_convert(out->coding, in, to, n);
}

static bool take_chunk_row(void *arg, uint64_t row, size_t column, const uint8_t *planes, size_t plane,
                           size_t n)
{
    struct chunk_out *out = arg;
    uint8_t *to = out->data + row * out->data_pitch + column;
    bool written = false;
    if (out->coding != CODING_CHIME || (uintptr_t)to % 32 != 0 ||
        !bitplanes_join_chime(to, planes, plane, n / 8, out->far, &written))
        return false;
    if (written) note_written(out, row);
    return true;
}

static int read_chunks(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error)
{
    const struct extent *x = &e->extent[p->extent];
    size_t n = (size_t)(p->to - p->from), nchannels = e->stream.nchannels;
    struct chunk_out out = {.coding = e->coding,
                            .data =
                                (uint8_t *)e->out->data + p->row * e->row_bytes + x->channel * e->cell_bytes,
                            .valid = e->out->valid + p->row * nchannels + x->channel,
                            .data_pitch = e->row_bytes,
                            .valid_pitch = nchannels,
                            .far = e->far};
    /* a frame may end in the middle of a chunk: the next one goes on there. One piece of an extent can, so
     * that no other thread has to do with its stop. */
    struct chime_stop stop = p->stop;
    uint64_t row = p->from - x->first;
    struct chime_sink sink = {.put = put_chunk_row, .take = take_chunk_row, .arg = &out};
    int status =
        chime_read(x->chunks, e->fd[x->file], e->files.path[x->file], row, n, &stop, scratch, &sink, error);
    put_validities(&out);
    if (status == BR_OK && (row + n) % x->chunks->chunk_rows != 0) e->stop[p->extent] = stop;
    return status;
}

void extents_read_piece(void *arg, size_t job, void *scratch)
{
    struct extents *e = arg;
    const struct piece *p = &e->piece[job];
    const struct extent *x = &e->extent[p->extent];
    struct br_error error = {0};
    int status = x->chunks != NULL            ? read_chunks(e, p, scratch, &error)
                 : extent_is_contiguous(e, x) ? read_bytes(e, p, scratch, &error)
                 : extent_is_row_wise(e, x)   ? read_rows(e, p, scratch, &error)
                                              : extents_read_planes(e, p, scratch, &error);
    if (status != BR_OK) piece_failed(e, &error);
    coding_settle();
}
