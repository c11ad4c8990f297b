/* feed.c - see feed.h. Bytes for a GPU go through few small buffers: the threads write them, and the copy
 * reads them, in the processor's caches. */
#include "formats/pieces/feed.h"

#include "buffers/clock.h"
#include "formats/common/fileio.h"

#include <stdatomic.h>
#include <time.h>

enum { NAP_NS = 10000, PATIENCE_NS = 2000000 /* nobody helps: the caller's thread reads itself */ };

size_t feed_scratch(bool direct)
{
    return direct ? FEED_DIRECT + 2 * FILEIO_BLOCK : 0;
}

int feed_read(const struct feed_source *s, void *to, void *scratch, struct br_error *error)
{
    if (s->direct)
        return fileio_read_direct(s->fd, s->path, to, s->bytes, s->offset, scratch, feed_scratch(true),
                                  error);
    return fileio_read_all(s->fd, s->path, to, s->bytes, s->offset, error);
}

static size_t piece_bytes(size_t frame_bytes)
{
    size_t blocks = (frame_bytes + FILEIO_BLOCK - 1) / FILEIO_BLOCK * FILEIO_BLOCK;
    return blocks < FEED_BUFFER ? blocks : FEED_BUFFER;
}

size_t feed_buffer_bytes(size_t frame_bytes)
{
    return piece_bytes(frame_bytes) + FILEIO_BLOCK;
}

/* How bytes are divided among the threads. */
struct slices {
    const struct feed_source *source;
    size_t slice; /* bytes of one */
    size_t early; /* by which slices but the first begin before their multiples: at blocks of the file */
    atomic_int failed;
    struct br_error error; /* the first one */
};

static void divide(struct slices *s, const struct feed_source *source)
{
    s->source = source;
    s->slice = source->direct ? FEED_DIRECT : FEED_SLICE;
    s->early = source->direct ? (size_t)(source->offset % FILEIO_BLOCK) : 0;
}

static size_t count_slices(const struct slices *s, size_t bytes)
{
    return (bytes + s->early + s->slice - 1) / s->slice;
}

/* Slice number `job` of `bytes` bytes from byte `at` of the source on, whose first goes to `data`. */
static void read_slice(struct slices *s, size_t job, size_t at, size_t bytes, uint8_t *data, void *scratch)
{
    size_t from = job > 0 ? job * s->slice - s->early : 0, end = (job + 1) * s->slice - s->early;
    if (end > bytes) end = bytes;
    if (from >= end) return;
    struct feed_source source = *s->source;
    struct br_error error = {0};
    source.offset += at + from;
    source.bytes = end - from;
    int status = feed_read(&source, data + from, scratch, &error);
    if (status != BR_OK && atomic_exchange(&s->failed, 1) == 0) s->error = error;
}

static int outcome(struct caller *caller, struct slices *s)
{
    return atomic_load(&s->failed) == 0 ? BR_OK : caller_fail(caller, s->error.status, "%s", s->error.text);
}

/* --- to memory --------------------------------------------------------------------------------------- */

struct hosting {
    struct slices slices;
    uint8_t *to;
};

static void read_to_host(void *arg, size_t job, void *scratch)
{
    struct hosting *h = arg;
    read_slice(&h->slices, job, 0, h->slices.source->bytes, h->to, scratch);
}

int feed_host(struct caller *caller, struct pool *pool, const struct feed_source *source, void *to)
{
    struct hosting h = {.to = to};
    divide(&h.slices, source);
    pool_run(pool, count_slices(&h.slices, source->bytes), read_to_host, &h);
    return outcome(caller, &h.slices);
}

/* --- to a GPU ---------------------------------------------------------------------------------------- */

/* Pieces of the bytes go through the buffers in turn, and slices of a piece through the threads. A byte lies
 * in a page of a buffer where it lies in one of the file, which is how the system copies, and disks read,
 * best. */
struct feeding {
    struct slices slices;
    struct caller *caller;
    uint8_t *data;
    size_t piece, per;  /* bytes and slices of a piece */
    size_t begun;       /* piece of the round's first job */
    size_t given, sent; /* pieces that have a buffer; that are on their way */
    size_t skip;        /* of a piece's first byte in its buffer */
    uint8_t *memory[FEED_BUFFERS];
    atomic_size_t left[FEED_BUFFERS]; /* slices of the piece in a buffer */
};

static size_t piece_length(const struct feeding *f, size_t piece)
{
    size_t left = f->slices.source->bytes - piece * f->piece;
    return left < f->piece ? left : f->piece;
}

static void read_to_buffer(void *arg, size_t job, void *scratch)
{
    struct feeding *f = arg;
    size_t piece = f->begun + job / f->per;
    unsigned i = (unsigned)(piece % FEED_BUFFERS);
    read_slice(&f->slices, job % f->per, piece * f->piece, piece_length(f, piece), f->memory[i] + f->skip,
               scratch);
    atomic_fetch_sub(&f->left[i], 1);
}

/* Gives free buffers to the threads that read. Negative after a failure, 1: it could. */
static int give_buffers(struct feeding *f, struct pool *pool, size_t pieces)
{
    const struct caller *caller = f->caller;
    int moved = 0;
    while (f->given < pieces && f->given - f->sent < FEED_BUFFERS &&
           (f->given == f->sent || caller->run->feed_ready(caller->owner))) {
        uint8_t *memory = caller->run->feed_buffer(caller->owner);
        if (memory == NULL) return BR_E_DEVICE;
        f->memory[f->given % FEED_BUFFERS] = memory;
        atomic_store(&f->left[f->given++ % FEED_BUFFERS], f->per);
        pool_add(pool, f->per);
        moved = 1;
    }
    return moved;
}

/* Sends what has been read. Likewise. */
static int send_buffers(struct feeding *f)
{
    struct caller *caller = f->caller;
    int moved = 0;
    for (; f->sent < f->given && atomic_load(&f->left[f->sent % FEED_BUFFERS]) == 0; moved = 1) {
        size_t piece = f->sent++;
        int status = outcome(caller, &f->slices);
        if (status == BR_OK)
            status = caller->run->feed_send(caller->owner, f->data + piece * f->piece, f->skip,
                                            piece_length(f, piece));
        if (status != BR_OK) return status;
    }
    return moved;
}

static void begin_round(struct feeding *f, struct pool *pool)
{
    f->begun = f->given;
    pool_begin(pool, 0, read_to_buffer, f);
}

int feed_frame(struct caller *caller, struct pool *pool, bool alone, size_t frame_bytes,
               const struct feed_source *source, uint8_t *data)
{
    struct feeding f = {.caller = caller,
                        .data = data,
                        .piece = piece_bytes(frame_bytes),
                        .skip = (size_t)(source->offset % FILEIO_BLOCK)};
    size_t pieces = (source->bytes + f.piece - 1) / f.piece;
    int status = BR_OK;
    divide(&f.slices, source);
    f.per = count_slices(&f.slices, f.piece);
    begin_round(&f, pool);
    for (uint64_t since = br_clock_ns(); f.sent < pieces && status >= 0;) {
        int gave = give_buffers(&f, pool, pieces);
        int moved = gave < 0 ? gave : send_buffers(&f);
        status = moved < 0 ? moved : BR_OK;
        bool again = alone && status >= 0 && gave > 0; /* nobody else reads */
        if (gave > 0 || moved != 0) {
            since = br_clock_ns();
        } else if (br_clock_ns() - since > PATIENCE_NS) {
            again = true;
        } else if (!alone) {
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        }
        if (!again) continue;
        pool_end(pool);
        begin_round(&f, pool);
    }
    pool_end(pool);
    return status;
}
