/* Capture beside a bare loop of the same technique, which reads each payload once: the kernel's buffer is
 * filled while nobody reads, then emptied, so that the sender costs neither anything. Then threads and
 * frames as in a pipeline, at 0.8 of the rate that the machine reaches. */
#include "buffers/clock.h"
#include "formats/common/coding.h"
#include "stages/capture/xdp_queue.h"
#include "tools/bench/bench.h"
#include "tools/bench/cpu/capture_port.h"

#include <linux/if_packet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 32, RING_BLOCK = 1 << 20, ROUNDS = 15, CRS_RATE = 1562500 };

/* --- bare loops -------------------------------------------------------------------------------- */

/* A bare loop's work on a payload. */
struct touch {
    uint8_t *to; /* memory larger than any cache; NULL: payloads are read */
    size_t at, size;
    uint64_t sum;
};

static void touch(struct touch *t, const uint8_t *bytes, size_t length)
{
    uint64_t word;
    if (t->to != NULL) {
        t->at = t->at + length > t->size ? 0 : (t->at + 63) / 64 * 64;
        coding_convert_past_caches(CODING_INT4X2, bytes, t->to + t->at, length);
        t->at += length;
        return;
    }
    for (size_t i = 0; i + sizeof word <= length; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        t->sum ^= word;
    }
}

/* recvmmsg into the same memory again and again. */
static size_t bare_socket(struct touch *t, int fd, size_t packets, size_t bytes)
{
    enum { BATCH = 32, ROOM = 65536 };
    static uint8_t memory[BATCH][ROOM];
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    size_t n = 0;
    for (int i = 0; i < BATCH; i++) {
        piece[i] = (struct iovec){memory[i], ROOM};
        message[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &piece[i], .msg_iovlen = 1}};
    }
    while (n < packets) {
        int got = recvmmsg(fd, message, BATCH, MSG_DONTWAIT, NULL);
        if (got <= 0) break;
        for (int i = 0; i < got; i++) {
            touch(t, memory[i], message[i].msg_len);
            n += message[i].msg_len / bytes;
        }
    }
    return n;
}

/* The blocks of a ring, one after the other. */
struct bare_ring {
    uint8_t *memory;
    size_t blocks, next;
};

static size_t bare_packet(struct touch *t, struct bare_ring *ring, int fd, size_t packets, size_t bytes)
{
    size_t n = 0;
    while (n < packets) {
        struct tpacket_block_desc *block = (void *)(ring->memory + ring->next * RING_BLOCK);
        if ((__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0) {
            struct pollfd wait = {.fd = fd, .events = POLLIN};
            if (poll(&wait, 1, 20) <= 0) break;
            continue;
        }
        const uint8_t *at = (const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
        for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
            const struct tpacket3_hdr *h = (const void *)at;
            size_t length = h->tp_snaplen - 28; /* behind the headers of IP and UDP */
            touch(t, at + h->tp_net + 28, length);
            n += length / bytes;
            at += h->tp_next_offset;
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        ring->next = (ring->next + 1) % ring->blocks;
    }
    return n;
}

/* The chunks of a queue; a packet is a chain of them. */
static size_t bare_xdp(struct touch *t, struct xdp_queue *q, size_t packets)
{
    enum { HEADERS = 42, MORE = 1 }; /* of Ethernet, IP and UDP; the packet goes on in the next chunk */
    size_t n = 0;
    bool first = true;
    while (n < packets) {
        uint32_t filled = xdp_queue_filled(q);
        struct pollfd wait = {.fd = q->fd, .events = POLLIN};
        if (filled == 0 && poll(&wait, 1, 20) <= 0) break;
        if (filled > 64) filled = 64;
        for (uint32_t k = 0; k < filled; k++) {
            const struct xdp_desc *chunk = xdp_queue_chunk(q, k);
            size_t skip = first ? HEADERS : 0;
            touch(t, q->memory + chunk->addr + skip, chunk->len - skip);
            first = (chunk->options & MORE) == 0;
            n += first;
        }
        xdp_queue_free(q, filled);
        xdp_queue_hand_back(q);
    }
    return n;
}

/* --- what a packet costs ----------------------------------------------------------------------- */

static volatile uint64_t sink; /* so that nobody leaves the reading out */

static size_t drain_bare(struct capture_port *p, bool copy, unsigned round, size_t packets)
{
    struct receiver *r = &p->receiver;
    struct touch t = {.size = p->layout.nblocks * p->layout.block_bytes - p->packet->bytes * 64};
    if (copy) t.to = p->frame[round % PORT_FRAMES].data;
    size_t n;
    if (r->way == &receiver_socket)
        n = bare_socket(&t, r->fd, packets, p->packet->bytes);
    else if (r->way == &receiver_packet)
        n = bare_packet(&t, r->state, r->fd, packets, p->packet->bytes);
    else
        n = bare_xdp(&t, xdp_queue_of(r), packets);
    sink = t.sum;
    return n;
}

/* The stage's own receiving, without a thread. */
static size_t drain_ours(struct capture_port *p, size_t packets)
{
    uint64_t before = atomic_load(&p->receiver.packets);
    size_t n = 0;
    for (unsigned idle = 0; n < packets && idle < 3;) {
        if (p->receiver.way->step(&p->receiver) != 0) break;
        size_t now = (size_t)(atomic_load(&p->receiver.packets) - before);
        idle = now == n ? idle + 1 : 0;
        n = now;
    }
    return n;
}

enum { OURS, READING, COPYING, DRAINS };

/* This thread's processor time: others may want the processor too. */
static uint64_t cpu_ns(void)
{
    return br_clock_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Processor seconds a packet, medians. False when the machine cannot. */
static bool measure_drain(struct capture_port *p, double median[DRAINS])
{
    double seconds[DRAINS][ROUNDS];
    size_t packets = BLOCKS * p->layout.nsources * p->layout.nstreams;
    for (unsigned round = 0; round < ROUNDS + 1; round++)
        for (int which = 0; which < DRAINS; which++) {
            uint64_t sequence = p->sequence;
            if (!capture_port_send(p, BLOCKS)) return false;
            uint64_t begin = cpu_ns();
            size_t n =
                which == OURS ? drain_ours(p, packets) : drain_bare(p, which == COPYING, round, packets);
            uint64_t end = cpu_ns();
            if (n < packets / 2) {
                fprintf(stderr, "bench capture: of %zu packets %zu came\n", packets, n);
                return false;
            }
            if (round > 0) seconds[which][round - 1] = (double)(end - begin) * 1e-9 / (double)n;
            if (which == OURS)
                capture_port_frames(p);
            else
                p->sequence = sequence; /* nobody has seen these */
        }
    for (int which = 0; which < DRAINS; which++) {
        qsort(seconds[which], ROUNDS, sizeof(double), bench_by_value);
        median[which] = seconds[which][ROUNDS / 2];
    }
    return true;
}

static int bench_cost(const struct receiver_way *way, bool bundled)
{
    struct capture_port p;
    char what[80];
    double cost[DRAINS];
    int shorts = 1;
    if (capture_port_open(&p, way, bundled) && measure_drain(&p, cost)) {
        double rate = 1e-3 / cost[OURS], port = CRS_RATE * cost[OURS];
        snprintf(what, sizeof what, "capture chord-crs, %s%s", way->name, bundled ? ", packets bundled" : "");
        shorts = bench_report(what, rate, "k pkts/s", "a bare loop that reads payloads",
                              cost[READING] / cost[OURS], 0.85, 1);
        bench_report("", rate, "k pkts/s", "a bare loop that copies them", cost[COPYING] / cost[OURS], 0, 1);
        shorts += bench_report("  threads for a CRS port, by cost per packet", port, "threads", "one", port,
                               way == &receiver_packet ? 3 : 0, 0);
    }
    capture_port_close(&p);
    return shorts;
}

/* --- in time ----------------------------------------------------------------------------------- */

/* Sends blocks for `seconds` at a rate, or as fast as it goes (0), while a thread receives and this one hands
 * frames on. Packets sent and lost. */
struct flood {
    struct capture_port *port;
    double rate, seconds;
    uint64_t sent, took_ns;
    _Atomic bool done;
};

static void *send_flood(void *arg)
{
    struct flood *f = arg;
    size_t each = f->port->layout.nsources * f->port->layout.nstreams;
    uint64_t begin = br_clock_ns(), end = begin + (uint64_t)(f->seconds * 1e9);
    while (br_clock_ns() < end && capture_port_send(f->port, 1)) {
        f->sent += each;
        double due = f->rate > 0 ? (double)f->sent / f->rate * 1e9 : 0;
        int64_t ahead = (int64_t)(begin + (uint64_t)due - br_clock_ns());
        if (f->rate > 0 && ahead > 0) usleep((useconds_t)(ahead / 1000));
    }
    f->took_ns = br_clock_ns() - begin;
    atomic_store(&f->done, true);
    return NULL;
}

static bool flood(struct capture_port *p, double rate, double seconds, struct flood *f, uint64_t *lost)
{
    pthread_t sender;
    struct br_error error = {0};
    uint64_t before = capture_port_accepted(p);
    *f = (struct flood){.port = p, .rate = rate, .seconds = seconds};
    p->receiver.stop = false;
    if (receiver_start(&p->receiver, &error) != BR_OK) return false;
    bool good = pthread_create(&sender, NULL, send_flood, f) == 0;
    uint64_t quiet = br_clock_ns(), seen = before;
    while (good && (!atomic_load(&f->done) || br_clock_ns() - quiet < 200000000)) {
        window_wait(&p->window, 2);
        capture_port_frames(p);
        uint64_t now = capture_port_accepted(p);
        if (now != seen || !atomic_load(&f->done)) quiet = br_clock_ns();
        seen = now;
    }
    if (good) pthread_join(sender, NULL);
    atomic_store(&p->receiver.stop, true);
    pthread_join(p->receiver.id, NULL);
    p->receiver.running = false;
    *lost = f->sent - (capture_port_accepted(p) - before);
    return good;
}

/* On a machine with other users a thread may not get its processor for as long as the kernel's buffer
 * lasts: a try in which nothing is lost shows what capture can do, and the number of tries is said. */
static int bench_rate(const struct receiver_way *way)
{
    enum { TRIES = 5 };
    struct capture_port p;
    struct flood f;
    uint64_t lost = 1;
    double highest = 0;
    unsigned tries = 0;
    bool good = capture_port_open(&p, way, false), limited = false;
    while (good && lost > 0 && tries++ < TRIES) {
        good = flood(&p, 0, 1, &f, &lost);
        if (!good) break;
        highest = (double)(f.sent - lost) * 1e9 / (double)f.took_ns;
        limited = lost == 0;
        good = flood(&p, 0.8 * highest, 2, &f, &lost);
    }
    int shorts = 1;
    if (good) {
        char what[80], against[80];
        snprintf(what, sizeof what, "  %s, 2 s at 0.8 of the highest rate: %llu lost", way->name,
                 (unsigned long long)lost);
        snprintf(against, sizeof against, "sent (try %u; highest %.0f k/s%s)", tries, highest * 1e-3,
                 limited ? ", the sender's" : "");
        shorts = bench_report(what, 1e6 * (double)f.sent / (double)f.took_ns, "k pkts/s", against,
                              (double)(f.sent - lost) / (double)f.sent, 1, 1);
    }
    capture_port_close(&p);
    return shorts;
}

int bench_capture(void)
{
    int shorts = bench_cost(&receiver_packet, false);
    shorts += bench_cost(&receiver_socket, false);
    shorts += bench_cost(&receiver_socket, true);
    shorts += bench_cost(&receiver_xdp, false);
    shorts += bench_rate(&receiver_packet);
    shorts += bench_rate(&receiver_socket);
    return shorts + bench_rate(&receiver_xdp);
}
