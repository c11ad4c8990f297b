/* flips FILE: packets with flipped header bits through capture's window; FILE is from
 * tests/oracle/packet_flips.py and says where each must arrive. Every packet is in one counter; what the
 * window holds at a place is the first packet that belongs there, whole; and a place where no packet
 * belongs is marked as empty. */
#include "formats/packets/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, ROOM = 20000, OPEN = 2, PIECES = 64 };

struct __attribute__((packed)) row {
    int32_t slot;
    bool must;
    uint8_t head[];
};

struct flips {
    char name[32];
    size_t samples, head, count;
    int64_t source[MOST], stream[MOST];
    size_t nsources, nstreams;
    struct packet_description *packet;
    struct packet_layout layout;
    struct br_stream stream_of_frames;
    struct window window;
    struct br_frame frame[OPEN];
    uint8_t *rows;
    int64_t *first; /* [slots] the packet that belongs there; -1: none */
    bool *must;     /* [slots] it may not be refused */
};

static void *piece[PIECES];
static unsigned npieces;

static void fail(const char *what, long long at)
{
    printf("FAILED: %s (%lld)\n", what, at);
    exit(1);
}

static void *keep(void *owner, size_t bytes)
{
    (void)owner;
    if (npieces == PIECES) fail("too many pieces", 0);
    return piece[npieces++] = calloc(1, bytes + 1);
}

static void read_file(struct flips *f, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL ||
        fscanf(file, "%31s %zu %zu %zu %zu %zu", f->name, &f->samples, &f->head, &f->count, &f->nsources,
               &f->nstreams) != 6 ||
        f->nsources > MOST || f->nstreams > MOST)
        fail("the file's first line", 0);
    for (size_t i = 0; i < f->nsources; i++)
        if (fscanf(file, "%ld", &f->source[i]) != 1) fail("a source", (long long)i);
    for (size_t i = 0; i < f->nstreams; i++)
        if (fscanf(file, "%ld", &f->stream[i]) != 1) fail("a stream", (long long)i);
    size_t bytes = f->count * (5 + f->head);
    f->rows = malloc(bytes);
    if (fgetc(file) != '\n' || f->rows == NULL || fread(f->rows, 1, bytes, file) != bytes)
        fail("the file's rows", 0);
    fclose(file);
}

static void make_window(struct flips *f)
{
    static const double width = 1;
    struct br_error error = {0};
    struct packet_memory memory = {keep, NULL};
    struct packet_node node = {.sources = {f->nsources, f->source},
                               .streams = {f->nstreams, f->stream},
                               .frame_samples = f->samples / OPEN,
                               .values = "offset_binary",
                               .real = "high"};
    if (packet_description_load(&f->packet, f->name, &error) != BR_OK ||
        packet_layout_make(&f->layout, f->packet, &node, memory, &error) != BR_OK)
        fail(error.text, 0);
    double *mhz = keep(NULL, 2 * f->layout.nchannels * sizeof *mhz);
    for (size_t i = 0; i < 2 * f->layout.nchannels; i++) mhz[i] = width;
    f->stream_of_frames = (struct br_stream){.sample_ns = {1, 1},
                                             .freq_mhz = mhz,
                                             .width_mhz = mhz + f->layout.nchannels,
                                             .nchannels = f->layout.nchannels};
    if (packet_layout_describe(&f->layout, f->packet, &f->stream_of_frames, memory, &error) != BR_OK ||
        window_make(&f->window, f->packet, &f->layout, OPEN, 1, &error) != BR_OK)
        fail(error.text, 0);
    f->window.hold = (int64_t)f->samples;
    f->window.far = (int64_t)f->samples * 64;
    for (int i = 0; i < OPEN; i++) {
        f->frame[i].data = aligned_alloc(64, (br_array_bytes(&f->stream_of_frames.array) + 63) / 64 * 64);
        f->frame[i].side = malloc(br_array_bytes(&f->stream_of_frames.side));
        f->frame[i].valid = malloc(br_stream_max_validity(&f->stream_of_frames));
    }
    size_t slots = OPEN * f->layout.nblocks * f->nsources * f->nstreams;
    f->first = malloc(slots * sizeof *f->first);
    f->must = calloc(slots, sizeof *f->must);
}

static const struct row *row(const struct flips *f, size_t k)
{
    return (const struct row *)(const void *)(f->rows + k * (5 + f->head));
}

/* A packet's bytes: the header, a payload that says its number, and what stands behind. */
static size_t write_packet(const struct flips *f, size_t k, uint8_t *bytes)
{
    const struct packet_description *p = f->packet;
    size_t before = p->spead ? f->head : p->payload_offset,
           length = p->spead ? f->head + p->payload_bytes : p->bytes, behind = f->head - before;
    const struct row *r = row(f, k);
    uint64_t number = k;
    memset(bytes, 0, length);
    memcpy(bytes, r->head, before);
    for (size_t at = 0; at + sizeof number <= p->payload_bytes; at += sizeof number)
        memcpy(bytes + before + at, &number, sizeof number);
    memcpy(bytes + length - behind, r->head + before, behind);
    return length;
}

/* Compares the frames with their expected contents. */
static void look(struct flips *f)
{
    size_t each = f->nsources * f->nstreams, n = OPEN * f->layout.nblocks * each;
    for (size_t slot = 0; slot < n; slot++) {
        size_t block = slot / each, place = slot % each, here = block % f->layout.nblocks;
        const struct br_frame *frame = &f->frame[block / f->layout.nblocks];
        bool there =
            ((const uint8_t *)frame->side)[here * f->layout.receipt_bytes + place / 8] >> place % 8 & 1;
        if (!there && f->first[slot] >= 0 && f->must[slot]) fail("did not arrive: packet", f->first[slot]);
        if (!there) continue;
        if (f->first[slot] < 0) fail("nothing belongs at place", (long long)slot);
        const uint8_t *data =
            (const uint8_t *)frame->data + here * f->layout.block_bytes + place * f->layout.packet_bytes;
        uint64_t number, found;
        memcpy(&number, data, sizeof number);
        for (size_t at = 0; at + sizeof found <= f->packet->payload_bytes; at += sizeof found) {
            memcpy(&found, data + at, sizeof found);
            if (found != number) fail("no whole packet at place", (long long)slot);
        }
        /* One that may be refused may have come before. */
        if (number >= f->count || row(f, number)->slot != (int32_t)slot || number > (uint64_t)f->first[slot])
            fail("another packet is at place", (long long)slot);
    }
}

/* From `from` on, as many as to `to`, into empty frames. */
static void run(struct flips *f, size_t from, size_t to)
{
    size_t n = OPEN * f->layout.nblocks * f->nsources * f->nstreams;
    for (size_t i = 0; i < n; i++) f->first[i] = -1, f->must[i] = false;
    for (int i = 0; i < OPEN; i++) window_give(&f->window, i, &f->frame[i]);
    window_begin(&f->window, 0);
    window_enter(&f->window, f->window.thread);
    for (size_t k = from; k < to; k++) {
        const struct row *r = row(f, k);
        uint8_t *bytes = malloc(ROOM), *packet;
        size_t length = write_packet(f, k, bytes);
        packet = malloc(length); /* of its own size: reading beyond is seen */
        memcpy(packet, bytes, length);
        window_packet(&f->window, f->window.thread, packet, length);
        free(packet);
        free(bytes);
        if (r->slot < 0) continue;
        /* The first that must arrive holds the place, unless one that may was before it. */
        if (f->first[r->slot] < 0 || !f->must[r->slot]) {
            f->first[r->slot] = (int64_t)k;
            f->must[r->slot] = r->must;
        }
    }
    window_leave(f->window.thread);
    for (int i = 0; i < OPEN; i++)
        if (window_close(&f->window, &f->stream_of_frames) != &f->frame[i]) fail("not its frame", i);
    look(f);
}

int main(int argc, char **argv)
{
    static struct flips f;
    if (argc != 2) return 2;
    read_file(&f, argv[1]);
    make_window(&f);
    size_t each = 4 * OPEN * f.layout.nblocks * f.nsources * f.nstreams, counted = 0;
    for (size_t from = 0; from < f.count; from += each)
        run(&f, from, f.count - from < each ? f.count : from + each);
    printf("  of %zu packets:", f.count);
    for (int reason = 0; reason < WINDOW_NREASONS; reason++) {
        size_t n = 0;
        for (size_t s = 0; s <= f.nsources; s++) n += window_count(&f.window, s, (enum window_reason)reason);
        counted += n;
        if (n > 0) printf(" %zu %s", n, window_reason_name[reason]);
    }
    printf("\n");
    if (counted != f.count) fail("packets in counters", (long long)counted);
    window_free(&f.window);
    packet_description_free(f.packet);
    for (int i = 0; i < OPEN; i++) free(f.frame[i].data), free(f.frame[i].side), free(f.frame[i].valid);
    free(f.first);
    free(f.must);
    free(f.rows);
    while (npieces > 0) free(piece[--npieces]);
    return 0;
}
