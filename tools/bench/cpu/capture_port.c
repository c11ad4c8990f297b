/* capture_port.c - see capture_port.h. */
#include "tools/bench/cpu/capture_port.h"
#include "formats/packets/header.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { FRAME_SAMPLES = 1024, BUNDLE = 10, BATCH = 64, BUFFER = 64 << 20 };

static void *keep(void *owner, size_t bytes)
{
    struct capture_port *p = owner;
    if (p->npieces == PORT_PIECES) abort();
    void *piece = calloc(1, bytes > 0 ? bytes : 1);
    if (piece == NULL) abort();
    return p->piece[p->npieces++] = piece;
}

static bool describe(struct capture_port *p, struct br_error *error)
{
    struct packet_memory memory = {keep, p};
    struct packet_node node = {.frame_samples = FRAME_SAMPLES};
    return packet_description_load(&p->packet, "chord-crs", error) == BR_OK &&
           packet_layout_make(&p->layout, p->packet, &node, memory, error) == BR_OK &&
           packet_layout_describe(&p->layout, p->packet, &p->stream, memory, error) == BR_OK &&
           window_make(&p->window, p->packet, &p->layout, PORT_OPEN, 1, error) == BR_OK;
}

/* As the runtime's frames: large pages where the kernel has them (buffers/slots.c). */
static void *large_pages(size_t bytes)
{
    enum { LARGE = 2 << 20 };
    void *memory = aligned_alloc(LARGE, (bytes + LARGE - 1) / LARGE * LARGE);
    if (memory != NULL) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* Frames whose memory is there: no page is touched for the first time in a measurement. */
static bool make_frames(struct capture_port *p)
{
    size_t data = p->layout.nblocks * p->layout.block_bytes,
           side = p->layout.nblocks * p->layout.receipt_bytes, valid = FRAME_SAMPLES * p->layout.nchannels;
    for (unsigned i = 0; i < PORT_FRAMES; i++) {
        struct br_frame *f = &p->frame[i];
        *f = (struct br_frame){.data = large_pages(data), .side = malloc(side), .valid = malloc(valid)};
        if (f->data == NULL || f->side == NULL || f->valid == NULL) return false;
        memset(f->data, 0x88, data);
        memset(f->valid, 0, valid);
    }
    return true;
}

static bool open_sender(struct capture_port *p)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)net_port(p->receiver.guard >= 0 ? p->receiver.guard : p->receiver.fd))};
    int segment = (int)p->packet->bytes, buffer = 1 << 24;
    size_t packets = p->layout.nsources * p->layout.nstreams;
    p->sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    p->block = malloc(packets * p->packet->bytes);
    if (p->sender < 0 || p->block == NULL) return false;
    memset(p->block, 0x5a, packets * p->packet->bytes);
    setsockopt(p->sender, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (p->bundled && setsockopt(p->sender, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0)
        return false;
    return connect(p->sender, (const struct sockaddr *)&to, sizeof to) == 0;
}

bool capture_port_open(struct capture_port *p, const struct receiver_way *way, bool bundled)
{
    struct br_error error = {0};
    *p = (struct capture_port){.sender = -1, .bundled = bundled, .window.wake = -1};
    p->receiver = (struct receiver){
        .window = &p->window, .interface = "lo", .members = 1, .buffer_bytes = BUFFER, .fd = -1, .guard = -1};
    bool good =
        describe(p, &error) && net_resolve(&p->receiver.at, "127.0.0.1:0", SOCK_DGRAM, &error) == BR_OK;
    int port = 0;
    if (good) { /* a port that is free: the filter of the packet way must know it */
        int fd = receiver_open_guard(&p->receiver, &error);
        good = fd >= 0;
        port = good ? (int)net_port(fd) : 0;
        if (good) close(fd);
        ((struct sockaddr_in *)(void *)&p->receiver.at.address)->sin_port = htons((uint16_t)port);
    }
    p->receiver.thread = p->window.thread;
    p->receiver.way = way;
    good = good && way->open(&p->receiver, &error) == BR_OK && make_frames(p) && open_sender(p);
    if (!good) {
        fprintf(stderr, "bench capture: %s: %s\n", way->name,
                error.text[0] != '\0' ? error.text : strerror(errno));
        return false;
    }
    p->window.hold = FRAME_SAMPLES / 4;
    p->window.far = 1 << 24;
    capture_port_frames(p);
    window_begin(&p->window, 0);
    return true;
}

void capture_port_close(struct capture_port *p)
{
    if (p->receiver.way != NULL) p->receiver.way->close(&p->receiver);
    if (p->sender >= 0) close(p->sender);
    window_free(&p->window);
    packet_description_free(p->packet);
    for (unsigned i = 0; i < PORT_FRAMES; i++) {
        free(p->frame[i].data);
        free(p->frame[i].side);
        free(p->frame[i].valid);
    }
    free(p->block);
    while (p->npieces > 0) free(p->piece[--p->npieces]);
}

/* Sends what stands in the block, in messages of one packet or of a bundle. */
static bool send_block(struct capture_port *p, size_t packets)
{
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    size_t each = p->bundled ? BUNDLE : 1, bytes = p->packet->bytes;
    for (size_t at = 0; at < packets;) {
        unsigned n = 0;
        for (size_t k = at; n < BATCH && k < packets; k += each, n++) {
            size_t count = packets - k < each ? packets - k : each;
            piece[n] = (struct iovec){p->block + k * bytes, count * bytes};
            message[n] = (struct mmsghdr){.msg_hdr = {.msg_iov = &piece[n], .msg_iovlen = 1}};
        }
        int sent = sendmmsg(p->sender, message, n, 0);
        if (sent < 0 && errno != EINTR && errno != ENOBUFS) {
            fprintf(stderr, "bench capture: cannot send: %s\n", strerror(errno));
            return false;
        }
        if (sent > 0) at += (size_t)sent * each;
    }
    return true;
}

bool capture_port_send(struct capture_port *p, unsigned blocks)
{
    struct br_error error = {0};
    size_t packets = p->layout.nsources * p->layout.nstreams;
    for (unsigned b = 0; b < blocks; b++, p->sequence += p->layout.packet_samples) {
        for (size_t k = 0; k < packets; k++) {
            uint8_t *payload;
            struct packet_header header = {.counter = p->sequence,
                                           .source = p->layout.source_id[k / p->layout.nstreams],
                                           .stream = p->layout.stream_id[k % p->layout.nstreams]};
            if (packet_header_write(p->packet, &header, p->block + k * p->packet->bytes, &payload, &error) !=
                BR_OK)
                return false;
        }
        if (!send_block(p, packets)) return false;
    }
    return true;
}

void capture_port_frames(struct capture_port *p)
{
    window_mark_all_live(&p->window);
    while (atomic_load(&p->window.base) >= 0 && window_is_due(&p->window))
        window_close(&p->window, &p->stream);
    int64_t base = atomic_load(&p->window.base);
    for (base = base < 0 ? 0 : base; p->given < base + PORT_OPEN; p->given++)
        if (p->given >= base) window_give(&p->window, p->given, &p->frame[p->given % PORT_FRAMES]);
}

uint64_t capture_port_accepted(const struct capture_port *p)
{
    uint64_t n = 0;
    for (size_t s = 0; s < p->layout.nsources; s++) n += window_count(&p->window, s, WINDOW_ACCEPTED);
    return n;
}
