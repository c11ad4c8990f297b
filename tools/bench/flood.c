/* flood.c - packets of a description as fast as wanted, for measurements: noise, always the same, under
 * headers that count. Several threads send, each for its share of the sources and in step with the others.
 *
 *   packet_flood PACKET HOST:PORT PORTS SOURCES STREAMS RATE SECONDS RAMP THREADS
 *
 * Thread i sends to port PORT + i % PORTS. SOURCES and STREAMS are numbers separated by commas; RATE is in
 * packets a second of all sources, reached after RAMP seconds; 0: as fast as it goes. The counter begins
 * at 0. It says how many packets were sent, and in what time. */
#include "buffers/clock.h"
#include "formats/links/net.h"
#include "formats/packets/header.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { MOST = 1024, THREADS = 32, BUNDLE_BYTES = 62000, BATCH = 64, IN_STEP = 8, ROOM = 64 };

struct flood {
    struct packet_description *packet;
    int64_t source[MOST], stream[MOST];
    size_t nsources, nstreams, bytes; /* bytes: of a packet */
    uint64_t step;                    /* counter from packet to packet of a source */
    struct net_address to;
    unsigned ports, threads;
    double rate, seconds, ramp;
    uint64_t begin_ns;
    pthread_barrier_t barrier;
    bool over;
};

struct sender {
    struct flood *flood;
    unsigned number;
    pthread_t id;
    uint64_t sent;
    uint8_t *bytes; /* packets of one block: [its sources][streams] */
    int fd;
};

static size_t numbers(const char *text, int64_t *value)
{
    size_t n = 0;
    for (char *end; n < MOST && *text != '\0'; text = *end == ',' ? end + 1 : end) {
        value[n++] = strtoll(text, &end, 10);
        if (end == text) return 0;
    }
    return n;
}

/* Packets that are due after so many seconds. */
static double due(const struct flood *f, double s)
{
    return s < f->ramp ? f->rate * s * s / (2 * f->ramp) : f->rate * (s - f->ramp / 2);
}

static int open_socket(struct flood *f, unsigned number)
{
    struct sockaddr_in to;
    int segment = (int)f->bytes, buffer = 1 << 24;
    memcpy(&to, &f->to.address, sizeof to);
    to.sin_port = htons((uint16_t)(ntohs(to.sin_port) + number % f->ports));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
    return connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 ? fd : -1;
}

/* Bundles of packets that stand one behind the other. */
static bool send_all(const struct sender *s, size_t packets)
{
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    size_t bytes = s->flood->bytes, each = BUNDLE_BYTES / bytes;
    if (each > ROOM) each = ROOM;
    for (size_t at = 0; at < packets;) {
        unsigned n = 0;
        for (size_t k = at; n < BATCH && k < packets; k += each, n++) {
            size_t count = packets - k < each ? packets - k : each;
            piece[n] = (struct iovec){s->bytes + k * bytes, count * bytes};
            message[n] = (struct mmsghdr){.msg_hdr = {.msg_iov = &piece[n], .msg_iovlen = 1}};
        }
        int sent = sendmmsg(s->fd, message, n, 0);
        if (sent < 0 && errno != EINTR && errno != ENOBUFS && errno != ECONNREFUSED) return false;
        if (sent > 0) at += (size_t)sent * each;
    }
    return true;
}

static bool send_block(struct sender *s, size_t first, size_t count, uint64_t counter)
{
    const struct flood *f = s->flood;
    struct br_error error = {0};
    for (size_t k = 0; k < count * f->nstreams; k++) {
        uint8_t *payload;
        struct packet_header header = {.counter = counter,
                                       .source = f->source[first + k / f->nstreams],
                                       .stream = f->stream[k % f->nstreams]};
        if (packet_header_write(f->packet, &header, s->bytes + k * f->bytes, &payload, &error) != BR_OK) {
            fprintf(stderr, "packet_flood: %s\n", error.text);
            return false;
        }
    }
    s->sent += count * f->nstreams;
    return send_all(s, count * f->nstreams);
}

static void *run(void *arg)
{
    struct sender *s = arg;
    struct flood *f = s->flood;
    size_t first = s->number * f->nsources / f->threads,
           count = (s->number + 1) * f->nsources / f->threads - first, each = f->nsources * f->nstreams;
    /* All threads end with the same block. */
    double packets = f->rate > 0 ? due(f, f->seconds) : 1e18;
    bool good = true;
    for (uint64_t block = 0; (double)(block * each) < packets; block++) {
        if (block % IN_STEP == 0) {
            pthread_barrier_wait(&f->barrier);
            if (s->number == 0)
                f->over = f->rate <= 0 && (double)(br_clock_ns() - f->begin_ns) * 1e-9 > f->seconds;
            pthread_barrier_wait(&f->barrier);
            if (f->over) break;
        }
        while (f->rate > 0 && due(f, (double)(br_clock_ns() - f->begin_ns) * 1e-9) < (double)(block * each))
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        good = good && send_block(s, first, count, block * f->step);
    }
    if (!good) fprintf(stderr, "packet_flood: cannot send: %s\n", strerror(errno));
    return NULL;
}

static bool read_arguments(struct flood *f, char **argv, struct br_error *error)
{
    if (packet_description_load(&f->packet, argv[1], error) != BR_OK ||
        net_resolve(&f->to, argv[2], SOCK_DGRAM, error) != BR_OK)
        return false;
    f->bytes = packet_header_length(f->packet);
    f->ports = (unsigned)strtoul(argv[3], NULL, 10);
    f->nsources = numbers(argv[4], f->source);
    f->nstreams = numbers(argv[5], f->stream);
    f->rate = strtod(argv[6], NULL);
    f->seconds = strtod(argv[7], NULL);
    f->ramp = strtod(argv[8], NULL);
    f->threads = (unsigned)strtoul(argv[9], NULL, 10);
    if (f->ports > 0 && f->nsources > 0 && f->nstreams > 0 && f->threads > 0 && f->threads <= THREADS &&
        f->threads <= f->nsources && f->to.address.ss_family == AF_INET && f->seconds > 0)
        return true;
    br_fail(error, BR_E_INVALID, "an argument is wrong, or there are more threads than sources");
    return false;
}

int main(int argc, char **argv)
{
    static struct flood f;
    static struct sender sender[THREADS];
    struct br_error error = {0};
    if (argc != 10 || !read_arguments(&f, argv, &error)) {
        fprintf(stderr, "packet_flood: %s\n",
                argc == 10 ? error.text : "9 arguments, see tools/bench/flood.c");
        return 2;
    }
    f.step = (uint64_t)f.packet->nsamples / (uint64_t)f.packet->sequence_samples;
    pthread_barrier_init(&f.barrier, NULL, f.threads);
    size_t most = (f.nsources / f.threads + 1) * f.nstreams * f.bytes;
    for (unsigned i = 0; i < f.threads; i++) {
        sender[i] =
            (struct sender){.flood = &f, .number = i, .bytes = malloc(most), .fd = open_socket(&f, i)};
        if (sender[i].bytes == NULL || sender[i].fd < 0) return perror("packet_flood"), 1;
        for (size_t k = 0; k < most; k++) sender[i].bytes[k] = (uint8_t)(rand() >> 8);
    }
    f.begin_ns = br_clock_ns();
    for (unsigned i = 0; i < f.threads; i++) pthread_create(&sender[i].id, NULL, run, &sender[i]);
    uint64_t sent = 0;
    for (unsigned i = 0; i < f.threads; i++) {
        pthread_join(sender[i].id, NULL);
        sent += sender[i].sent;
    }
    printf("%llu packets in %.3f s\n", (unsigned long long)sent, (double)(br_clock_ns() - f.begin_ns) * 1e-9);
    return 0;
}
