/* slices.c - see slices.h. What goes to a GPU goes through few small buffers: the threads write them, and the
 * copy reads them, in the processor's caches. */
#include "stages/replay/slices.h"
#include "buffers/clock.h"
#include "formats/common/fileio.h"
#include "runtime/stage_feed.h"

#include <time.h>

enum {
    SLICE = 128 << 10, /* stays in a core's cache while it is converted */
    NAP_NS = 10000,
    PATIENCE_NS = 2000000 /* nobody helps: the stage's thread reads itself */
};

size_t slices_scratch(bool direct)
{
    return direct ? SLICES_DIRECT + 2 * FILEIO_BLOCK : 0;
}

/* Slice number `job` of `bytes` at `offset`, whose first is at `data`. */
static void read_slice(struct slices *s, size_t job, uint8_t *data, size_t bytes, uint64_t offset,
                       void *scratch)
{
    size_t from = job > 0 ? job * s->slice - s->early : 0, end = (job + 1) * s->slice - s->early;
    if (end > bytes) end = bytes;
    if (from >= end) return;
    uint8_t *to = data + from;
    struct br_error error = {0};
    int status = s->room > 0 ? fileio_read_direct(s->fd, s->path, to, end - from, offset + from, scratch,
                                                  s->room, &error)
                             : fileio_read_all(s->fd, s->path, to, end - from, offset + from, &error);
    if (status != BR_OK) {
        if (atomic_exchange(&s->failed, 1) == 0) s->error = error;
        return;
    }
    for (size_t i = 0; s->valid != NULL && i < end - from; i += s->cell)
        if (coding_all_missing(s->coding, to + i, s->cell)) s->valid[(from + i) / s->cell] = BR_MISSING;
    if (s->coding != CODING_INT4X2) coding_convert(s->coding, to, to, end - from);
}

/* Slices that so many bytes make. */
static size_t cut(struct slices *s, size_t bytes)
{
    size_t unit = s->cell > 0 ? s->cell : 1, most = s->room > 0 ? SLICES_DIRECT : SLICE;
    s->slice = most / unit > 0 ? most / unit * unit : unit;
    s->early = s->room > 0 && unit == 1 ? (size_t)(s->offset % FILEIO_BLOCK) : 0;
    return (bytes + s->early + s->slice - 1) / s->slice;
}

static int outcome(struct br_stage *stage, struct slices *s)
{
    return atomic_load(&s->failed) == 0 ? BR_OK : br_stage_fail(stage, s->error.status, "%s", s->error.text);
}

static void read_one(void *arg, size_t job, void *scratch)
{
    struct slices *s = arg;
    read_slice(s, job, s->data, s->bytes, s->offset, scratch);
}

int slices_read(struct br_stage *stage, struct pool *pool, struct slices *s)
{
    pool_run(pool, cut(s, s->bytes), read_one, s);
    return outcome(stage, s);
}

/* --- to a GPU ------------------------------------------------------------------------------------- */

size_t slices_buffer(size_t frame_bytes)
{
    size_t blocks = (frame_bytes + FILEIO_BLOCK - 1) / FILEIO_BLOCK * FILEIO_BLOCK;
    return blocks < SLICES_BUFFER ? blocks : SLICES_BUFFER;
}

/* Pieces of the bytes go through the buffers in turn. A byte lies in a page of a buffer where it lies in one
 * of the file, which is how the system copies, and disks read, best. */
struct feeding {
    struct slices *s;
    size_t buffer, per; /* bytes and slices of a piece */
    size_t begun;       /* piece of the round's first job */
    size_t given, sent; /* pieces that have a buffer; that are on their way */
    size_t skip;        /* of a piece's first byte in its buffer */
    uint8_t *memory[SLICES_BUFFERS];
    atomic_size_t left[SLICES_BUFFERS]; /* slices of the piece in a buffer */
};

static void read_piece(void *arg, size_t job, void *scratch)
{
    struct feeding *f = arg;
    size_t piece = f->begun + job / f->per, at = piece * f->buffer, left = f->s->bytes - at;
    unsigned i = (unsigned)(piece % SLICES_BUFFERS);
    read_slice(f->s, job % f->per, f->memory[i] + f->skip, left < f->buffer ? left : f->buffer,
               f->s->offset + at, scratch);
    atomic_fetch_sub(&f->left[i], 1);
}

/* Gives free buffers to the threads that read. Negative after a failure, 1: it could. */
static int give_buffers(struct feeding *f, struct pool *pool, struct br_feed *feed, size_t pieces)
{
    int moved = 0;
    while (f->given < pieces && f->given - f->sent < SLICES_BUFFERS &&
           (f->given == f->sent || br_feed_ready(feed))) {
        uint8_t *memory = br_feed_buffer(feed);
        if (memory == NULL) return BR_E_DEVICE;
        f->memory[f->given % SLICES_BUFFERS] = memory;
        atomic_store(&f->left[f->given++ % SLICES_BUFFERS], f->per);
        pool_add(pool, f->per);
        moved = 1;
    }
    return moved;
}

/* Sends what has been read. Likewise. */
static int send_buffers(struct br_stage *stage, struct feeding *f, struct br_feed *feed)
{
    int moved = 0;
    for (; f->sent < f->given && atomic_load(&f->left[f->sent % SLICES_BUFFERS]) == 0; moved = 1) {
        size_t at = f->sent++ * f->buffer, left = f->s->bytes - at;
        int status = outcome(stage, f->s);
        if (status == BR_OK)
            status = br_feed_send(feed, f->s->data + at, f->skip, left < f->buffer ? left : f->buffer);
        if (status != BR_OK) return status;
    }
    return moved;
}

int slices_feed(struct br_stage *stage, struct pool *pool, bool alone, struct br_feed *feed, size_t buffer,
                struct slices *s)
{
    struct feeding f = {.s = s, .buffer = buffer, .skip = (size_t)(s->offset % FILEIO_BLOCK)};
    size_t pieces = (s->bytes + buffer - 1) / buffer;
    int status = BR_OK;
    f.per = cut(s, buffer);
    pool_begin(pool, 0, read_piece, &f);
    for (uint64_t since = br_clock_ns(); f.sent < pieces && status >= 0;) {
        int gave = give_buffers(&f, pool, feed, pieces);
        int moved = gave < 0 ? gave : send_buffers(stage, &f, feed);
        status = moved < 0 ? moved : BR_OK;
        if (gave > 0 || moved != 0) {
            since = br_clock_ns();
        } else if (br_clock_ns() - since > PATIENCE_NS) {
            pool_end(pool);
            f.begun = f.given;
            pool_begin(pool, 0, read_piece, &f);
        } else if (!alone) {
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        }
        if (!alone || status < 0 || gave <= 0) continue;
        pool_end(pool);
        f.begun = f.given;
        pool_begin(pool, 0, read_piece, &f);
    }
    pool_end(pool);
    return status;
}
