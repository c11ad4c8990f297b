#include "formats/chime/bitshuffle.h"

#include "formats/chime/bitplanes.h"

#include <lz4.h>
#include <string.h>

enum {
    DEFAULT_BLOCK = 8192,
    MOST_BLOCK = 1 << 30,
    WINDOW = 256 << 10, /* read at a time: long enough for the kernel to copy at its full rate */
    LEAST = 4 << 10,    /* but not less than this */
    LINE = 64,
    PAGE = 4096,     /* the kernel copies fastest between equal places in a page */
    FRONT = 8 << 10, /* before a window: a block's head is put there (unpack_head) */
    MOST_SEQUENCES = 16
};

/* The stored bytes that are in memory: those from `offset` of the chunk on. */
struct window {
    const struct bitshuffle_chunk *chunk;
    uint8_t *memory; /* FRONT bytes, then a page, then what is stored */
    uint8_t *bytes;  /* in it, the first of them */
    size_t offset, used;
    size_t likely; /* stored bytes that will be wanted, by the chunk's mean: reading stops there */
};

/* A block that is unpacked, one that is joined, and a window with what is left of the one before. */
static size_t most_stored(size_t bytes, size_t length)
{
    size_t most = bytes > length ? bytes : length;
    return FRONT + PAGE + (most + WINDOW + LINE - 1) / LINE * LINE;
}

size_t bitshuffle_scratch(size_t bytes, size_t length)
{
    return most_stored(bytes, length) + 2 * ((bytes + LINE - 1) / LINE * LINE);
}

/* Brings bytes [offset, offset + n) of the chunk, which has them, into memory: *in. Bytes before `offset` are
 * not needed any more. */
static int need(struct window *w, size_t offset, size_t n, uint8_t **in, struct br_error *error)
{
    size_t end = w->offset + w->used;
    if (offset + n > end) {
        size_t kept = end > offset ? end - offset : 0, from = offset + kept, left = w->chunk->length - from,
               more = w->likely > from + LEAST ? w->likely - from : LEAST;
        if (more > WINDOW) more = WINDOW;
        if (more < n - kept) more = n - kept;
        if (more > left) more = left;
        uint8_t *bytes = w->memory + FRONT + (w->chunk->place + offset) % PAGE;
        memmove(bytes, w->bytes + (offset - w->offset) * (kept > 0), kept);
        w->bytes = bytes;
        w->offset = offset;
        w->used = 0;
        int status = w->chunk->read(w->chunk->arg, bytes + kept, more, from, error);
        if (status != BR_OK) return status;
        w->used = kept + more;
    }
    *in = w->bytes + (offset - w->offset);
    return BR_OK;
}

static uint64_t big_endian(const uint8_t *b, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value = value << 8 | b[i];
    return value;
}

struct job {
    struct bitshuffle_chunk *chunk;
    struct window window;
    uint8_t *unpacked, *joined; /* a block each */
    size_t from, to;            /* wanted */
};

static bool wanted(const struct job *j, size_t at, size_t n)
{
    return at < j->to && at + n > j->from;
}

/* The block [at, at + n) is done, of `stored` bytes from `offset` on. The next one wants it again if it is
 * cut. */
static void done(struct job *j, size_t at, size_t n, size_t offset, size_t stored)
{
    bool cut = at + n > j->to;
    j->chunk->at = cut ? at : at + n;
    j->chunk->offset = cut ? offset : offset + stored;
}

/* Ready bytes from shuffled ones: n from `at` on. */
static void join(const struct job *j, size_t at, const uint8_t *shuffled, size_t n)
{
    if (j->chunk->take != NULL && j->chunk->take(j->chunk->arg, at, shuffled, n)) return;
    bitplanes_join(j->joined, shuffled, n);
    j->chunk->put(j->chunk->arg, at, j->joined, n);
}

/* Up to 7 bytes after all blocks, which stand as they are. */
static int copy_rest(struct job *j, size_t at, size_t offset, struct br_error *error)
{
    uint8_t *in;
    size_t n = j->chunk->bytes - at;
    if (n == 0 || !wanted(j, at, n)) return BR_OK;
    int status = need(&j->window, offset, n, &in, error);
    if (status == BR_OK) j->chunk->put(j->chunk->arg, at, in, n);
    return status;
}

static int decode_plain(struct job *j, struct br_error *error)
{
    size_t bytes = j->chunk->bytes, block = j->chunk->block, at = j->chunk->at;
    uint8_t *in;
    if (j->chunk->length != bytes)
        return br_fail(error, BR_E_FORMAT, "a bitshuffled chunk has %zu bytes; expected %zu",
                       j->chunk->length, bytes);
    if (block == 0) block = DEFAULT_BLOCK;
    if (block % 8 != 0 || block > MOST_BLOCK)
        return br_fail(error, BR_E_FORMAT, "the filter's block size is %zu; expected a multiple of 8", block);
    while (bytes - at >= 8 && at < j->to) {
        size_t n = bytes - at < block ? (bytes - at) / 8 * 8 : block;
        if (wanted(j, at, n)) {
            int status = need(&j->window, at, n, &in, error);
            if (status != BR_OK) return status;
            join(j, at, in, n);
        }
        done(j, at, n, at, n);
        at += n;
    }
    return at < j->to ? copy_rest(j, at, at, error) : BR_OK;
}

/* Adds the part of a sequence's length above 15: bytes of 255, and one that is less. */
static bool add_length(const uint8_t *in, size_t length, size_t *at, size_t *count)
{
    uint64_t eight;
    for (; length - *at >= 8; *at += 8, *count += 8 * 255) {
        memcpy(&eight, in + *at, 8);
        if (eight != UINT64_MAX) break;
    }
    for (uint8_t more = 255; more == 255; *count += more) {
        if (*at == length) return false;
        more = in[(*at)++];
    }
    return true;
}

/* Copies n bytes from `back` bytes before `to`; where the two overlap, the bytes repeat. */
static void copy_match(uint8_t *to, size_t back, size_t n)
{
    if (back == 1) {
        memset(to, to[-1], n);
        return;
    }
    for (size_t some; n > 0; to += some, n -= some, back += some) {
        some = n < back ? n : back;
        memcpy(to, to - back, some);
    }
}

/* The literals at the end of a block. */
struct tail {
    size_t begin, n; /* where they stand in the block; how many */
    size_t head;     /* bytes before them, when unpacked */
};

/* Noise does not compress, and the planes of a few high bits stand before it: LZ4 then stores most of a block
 * as one run of literals at its end, which are the bytes themselves. Unpacks what is before them: some
 * sequences of literals and matches (lz4's block format). False: this block of n bytes is not one of those,
 * or it is damaged. */
static bool unpack_head(const uint8_t *in, size_t length, size_t n, uint8_t *out, struct tail *tail)
{
    size_t at = 0, made = 0, most = n / 2 < FRONT ? n / 2 : FRONT;
    for (unsigned i = 0; i < MOST_SEQUENCES && at < length; i++) {
        uint8_t token = in[at++];
        size_t literals = token >> 4, match = token & 15;
        if (literals == 15 && !add_length(in, length, &at, &literals)) return false;
        if (literals > length - at || literals > n - made) return false;
        if (at + literals == length) {
            *tail = (struct tail){at, literals, made};
            return made + literals == n;
        }
        if (literals > most - made || length - at - literals < 2) return false;
        memcpy(out + made, in + at, literals);
        at += literals;
        made += literals;
        size_t back = in[at] | (size_t)in[at + 1] << 8;
        at += 2;
        if (match == 15 && !add_length(in, length, &at, &match)) return false;
        if (back == 0 || back > made || match + 4 > most - made) return false;
        copy_match(out + made, back, match + 4);
        made += match + 4;
    }
    return false;
}

/* One compressed block of `packed` bytes, n when it is decoded. Literals at its end are used where they
 * stand: what is before them is put before them, over bytes that are not needed any more. */
static int decode_block(struct job *j, size_t offset, size_t packed, size_t at, size_t n,
                        struct br_error *error)
{
    uint8_t *in;
    struct tail tail;
    int status = need(&j->window, offset, packed, &in, error);
    if (status != BR_OK) return status;
    if (unpack_head(in, packed, n, j->unpacked, &tail)) {
        memcpy(in + tail.begin - tail.head, j->unpacked, tail.head);
        join(j, at, in + tail.begin - tail.head, n);
        return BR_OK;
    }
    if (LZ4_decompress_safe((const char *)in, (char *)j->unpacked, (int)packed, (int)n) != (int)n)
        return br_fail(error, BR_E_FORMAT, "the compressed block at byte %zu of a chunk is damaged", offset);
    join(j, at, j->unpacked, n);
    return BR_OK;
}

static int decode_lz4(struct job *j, struct br_error *error)
{
    size_t bytes = j->chunk->bytes, length = j->chunk->length, at = j->chunk->at,
           offset = at > 0 ? j->chunk->offset : 12;
    uint8_t *in;
    if (length < 12)
        return br_fail(error, BR_E_FORMAT, "a compressed chunk has %zu bytes; expected a header of 12",
                       length);
    uint8_t head[12]; /* alone, where what follows it is not wanted any more */
    int status =
        at > 0 ? j->chunk->read(j->chunk->arg, head, 12, 0, error) : need(&j->window, 0, 12, &in, error);
    if (status != BR_OK) return status;
    if (at == 0) memcpy(head, in, 12);
    uint64_t announced = big_endian(head, 8);
    size_t block = (size_t)big_endian(head + 8, 4);
    if (announced != bytes)
        return br_fail(error, BR_E_FORMAT, "a compressed chunk announces %llu bytes; expected %zu",
                       (unsigned long long)announced, bytes);
    if (block == 0 || block % 8 != 0 || block > MOST_BLOCK)
        return br_fail(error, BR_E_FORMAT,
                       "a compressed chunk has blocks of %zu bytes; expected a multiple of 8", block);
    while (bytes - at >= 8 && at < j->to) {
        size_t n = bytes - at < block ? (bytes - at) / 8 * 8 : block;
        uint64_t packed = UINT64_MAX;
        if (length - offset >= 4) {
            status = need(&j->window, offset, 4, &in, error);
            if (status != BR_OK) return status;
            packed = big_endian(in, 4);
        }
        if (packed > length - offset - 4 || packed > INT32_MAX)
            return br_fail(error, BR_E_FORMAT, "a compressed chunk ends in the block at byte %zu", offset);
        if (wanted(j, at, n)) status = decode_block(j, offset + 4, (size_t)packed, at, n, error);
        if (status != BR_OK) return status;
        done(j, at, n, offset, 4 + (size_t)packed);
        offset += 4 + (size_t)packed;
        at += n;
    }
    if (at >= j->to) return BR_OK;
    if (length - offset != bytes - at)
        return br_fail(error, BR_E_FORMAT, "a compressed chunk has %zu bytes after its blocks; expected %zu",
                       length - offset, bytes - at);
    return copy_rest(j, at, offset, error);
}

int bitshuffle_decode(struct bitshuffle_chunk *chunk, size_t from, size_t to, void *scratch,
                      struct br_error *error)
{
    size_t stored = most_stored(chunk->bytes, chunk->length);
    uint8_t *memory = scratch;
    if (to > chunk->bytes) to = chunk->bytes;
    double stored_per_byte = chunk->bytes > 0 ? (double)chunk->length / (double)chunk->bytes : 1;
    size_t likely = to == chunk->bytes ? chunk->length
                                       : (chunk->at > 0 ? chunk->offset : 12) +
                                             (size_t)((double)(to - chunk->at) * stored_per_byte * 1.01);
    struct job job = {.chunk = chunk,
                      .window = {.chunk = chunk, .memory = memory, .bytes = memory, .likely = likely},
                      .unpacked = memory + stored,
                      .joined = memory + stored + (chunk->bytes + LINE - 1) / LINE * LINE,
                      .from = from,
                      .to = to};
    return chunk->lz4 ? decode_lz4(&job, error) : decode_plain(&job, error);
}
