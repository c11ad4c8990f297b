/* The senders of packetize beside the least that anything could do: the same bytes, ready made, from one
 * thread through the same loopback. The stage is driven by hand, frame after frame, so that nothing but
 * itself is measured; another thread reads. */
#include "runtime/run/pipeline.h"
#include "tools/beamring/commands.h"
#include "tools/bench/bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MINICHUNKS = 24, BLOCKS = 16, BATCH = 64, PACKET = 4272, STAMPS = 1 << 17 };

/* Who reads what is sent. */
struct reader {
    int fd, listener; /* UDP: fd; TCP: the connection, once there is one */
    unsigned port;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic uint64_t bytes, packets;
    uint64_t *stamp; /* [STAMPS] of packets, ns, by the kernel; NULL: not wanted */
};

static void *read_tcp(void *arg)
{
    struct reader *r = arg;
    size_t size = 1 << 20;
    char *buffer = malloc(size);
    while (buffer != NULL && !atomic_load(&r->stop)) {
        struct pollfd wait[2] = {{.fd = r->listener, .events = POLLIN}, {.fd = r->fd, .events = POLLIN}};
        if (poll(wait, 2, 50) <= 0) continue;
        if (wait[0].revents != 0) {
            int fd = accept(r->listener, NULL, NULL);
            if (r->fd >= 0) close(r->fd);
            r->fd = fd;
            continue;
        }
        ssize_t n = recv(r->fd, buffer, size, 0);
        if (n > 0) atomic_fetch_add(&r->bytes, (uint64_t)n);
        if (n <= 0) {
            close(r->fd);
            r->fd = -1;
        }
    }
    free(buffer);
    return NULL;
}

static void *read_udp(void *arg)
{
    struct reader *r = arg;
    static char data[BATCH][9000], control[BATCH][64];
    struct iovec piece[BATCH];
    struct mmsghdr message[BATCH];
    while (!atomic_load(&r->stop)) {
        for (int i = 0; i < BATCH; i++) {
            piece[i] = (struct iovec){data[i], sizeof data[i]};
            message[i].msg_hdr = (struct msghdr){.msg_iov = &piece[i],
                                                 .msg_iovlen = 1,
                                                 .msg_control = control[i],
                                                 .msg_controllen = r->stamp != NULL ? sizeof control[i] : 0};
        }
        struct pollfd wait = {.fd = r->fd, .events = POLLIN};
        if (poll(&wait, 1, 50) <= 0) continue;
        int n = recvmmsg(r->fd, message, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < n; i++) {
            uint64_t k = atomic_fetch_add(&r->packets, 1);
            atomic_fetch_add(&r->bytes, message[i].msg_len);
            struct cmsghdr *c = r->stamp != NULL ? CMSG_FIRSTHDR(&message[i].msg_hdr) : NULL;
            if (c == NULL || c->cmsg_type != SCM_TIMESTAMPNS || k >= STAMPS) continue;
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            r->stamp[k] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        }
    }
    return NULL;
}

static bool start_reader(struct reader *r, bool udp, bool stamps)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int yes = 1, buffer = 1 << 25, fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
    *r = (struct reader){.fd = udp ? fd : -1, .listener = udp ? -1 : fd};
    if (stamps) r->stamp = calloc(STAMPS, sizeof *r->stamp);
    if (udp) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (stamps) setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &length) != 0 || (!udp && listen(fd, 4) != 0)) {
        fprintf(stderr, "bench wires: no socket: %s\n", strerror(errno));
        return false;
    }
    r->port = ntohs(a.sin_port);
    return pthread_create(&r->thread, NULL, udp ? read_udp : read_tcp, r) == 0;
}

static void stop_reader(struct reader *r)
{
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    if (r->fd >= 0) close(r->fd);
    if (r->listener >= 0) close(r->listener);
    free(r->stamp);
}

/* A pipeline of which only the last stage, packetize, is driven. */
struct driven {
    struct loaded l;
    struct br_stage *stage;
    const struct br_stream *stream;
    struct br_frame frame;
    uint64_t sent_bytes;
};

static bool make_driven(struct driven *d, const char *text)
{
    struct br_error error = {0};
    *d = (struct driven){0};
    if (load_text(&d->l, "bench", text, stderr, BR_LOG_WARNING, &error) != BR_OK) return false;
    struct br_graph *graph = d->l.graph;
    d->stage = &graph->stage[graph->nfile - 1];
    d->stage->phase = BR_PHASE_RUN;
    graph->state->pool = br_pool_create(graph->threads, NULL, 0);
    if (graph->state->pool == NULL) return false;
    d->stream = br_stage_input(d->stage, 0);
    d->frame = (struct br_frame){.samples = d->stream->frame_samples,
                                 .complete = true,
                                 .data = bench_alloc(br_stream_max_bytes(d->stream))};
    if (d->stream->side.naxes > 0) d->frame.side = bench_alloc(br_array_bytes(&d->stream->side));
    if (d->stage->type->start(d->stage, d->stage->self) == BR_OK) return true;
    fprintf(stderr, "bench wires: %s\n", d->stage->state->error.text);
    return false;
}

static void drop_driven(struct driven *d)
{
    if (d->stage != NULL) d->stage->type->stop(d->stage, d->stage->self);
    if (d->l.graph != NULL && d->l.graph->state != NULL) br_pool_destroy(d->l.graph->state->pool);
    unload_pipeline(&d->l);
}

static void send_frame(struct driven *d)
{
    struct br_io io = {.in = {&d->frame}};
    if (d->stage->type->process(d->stage, d->stage->self, &io) != BR_CONSUMED)
        fprintf(stderr, "bench wires: %s\n", d->stage->state->error.text);
    d->frame.first += d->frame.samples;
}

/* --- frb-node
 * -------------------------------------------------------------------------------------------- */

struct tcp_bench {
    struct driven stage;
    struct reader at_stage, at_bare;
    int bare;
    char *message; /* a minichunk */
    size_t bytes;
};

static void wait_for_bytes(struct reader *r, uint64_t bytes)
{
    while (atomic_load(&r->bytes) < bytes) sched_yield();
}

static void send_minichunks(void *arg)
{
    struct tcp_bench *b = arg;
    uint64_t before = atomic_load(&b->at_stage.bytes);
    for (int i = 0; i < MINICHUNKS; i++) send_frame(&b->stage);
    wait_for_bytes(&b->at_stage, before + MINICHUNKS * b->bytes);
}

static void send_bare(void *arg)
{
    struct tcp_bench *b = arg;
    uint64_t before = atomic_load(&b->at_bare.bytes);
    for (int i = 0; i < MINICHUNKS; i++)
        for (size_t at = 0; at < b->bytes;) {
            ssize_t n = send(b->bare, b->message + at, b->bytes - at, MSG_NOSIGNAL);
            if (n <= 0) return;
            at += (size_t)n;
        }
    wait_for_bytes(&b->at_bare, before + MINICHUNKS * b->bytes);
}

static const char telescope[] = "telescope: {name: bench, grid: {m: 8, n: 8}, spacing_m: {m: 8.5, n: 6.3}, "
                                "latitude_deg: 49, longitude_deg: -119,\n"
                                "  dishes: [[0, 0], [0, 1], [1, 0]]}\n";

static int bench_frb_node(void)
{
    enum { BEAMS = 60, CHANNELS = 220 };
    struct tcp_bench b = {.bytes = 12 + (size_t)132 * BEAMS * CHANNELS};
    char text[2048];
    if (!start_reader(&b.at_stage, false, false) || !start_reader(&b.at_bare, false, false)) return 1;
    snprintf(text, sizeof text,
             "%sdevice: cpu\nstream: {sample_ns: 5120, epoch_ns: 1700000000000000000, freq_mhz: {first: 400, "
             "step: 0.1953125, count: %d}}\n"
             "pipeline:\n"
             "  - {stage: simulate, out: e, frame_samples: 49152, samples: 1}\n"
             "  - {stage: frb_grid, in: e, out: i, integrate: 192}\n"
             "  - {stage: frb_beams, in: i, out: j, beams: {grid: [6, 10], spacing_deg: 0.1}}\n"
             "  - {stage: quantize, in: j, out: q, bits: 4, block: 256}\n"
             "  - {stage: packetize, in: q, format: frb-node, idle_s: 0, destinations: [{address: "
             "\"127.0.0.1:%u\"}]}\n",
             telescope, CHANNELS, b.at_stage.port);
    int shorts = 1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)b.at_bare.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    b.bare = socket(AF_INET, SOCK_STREAM, 0);
    b.message = bench_alloc(b.bytes);
    if (make_driven(&b.stage, text) && connect(b.bare, (struct sockaddr *)&to, sizeof to) == 0) {
        uint32_t *levels = b.stage.frame.data;
        float *side = b.stage.frame.side;
        for (size_t i = 0; i < (size_t)BEAMS * CHANNELS * 32; i++) levels[i] = bench_random();
        for (size_t i = 0; i < (size_t)BEAMS * CHANNELS * 2; i++)
            side[i] = 1 + (float)(bench_random() >> 8) * 0x1p-24f;
        for (size_t i = 0; i < b.bytes; i++) b.message[i] = (char)(bench_random() >> 24);
        send_frame(&b.stage); /* connects, and says hello */
        while (atomic_load(&b.at_stage.bytes) < b.bytes) sched_yield();
        usleep(50000);
        double ours, theirs;
        bench_pair(send_minichunks, &b, send_bare, &b, 33, &ours, &theirs);
        char what[96];
        snprintf(what, sizeof what, "frb-node, minichunks of %.2f MB", (double)b.bytes * 1e-6);
        shorts = bench_report(what, MINICHUNKS * (double)b.bytes / ours * 1e-6, "MB/s",
                              "a blocking TCP sender, same bytes", theirs / ours, 0.6, 1);
    } else {
        fprintf(stderr, "bench wires: cannot begin: %s\n", strerror(errno));
    }
    drop_driven(&b.stage);
    close(b.bare);
    stop_reader(&b.at_stage);
    stop_reader(&b.at_bare);
    return shorts;
}

/* --- chime-l0
 * -------------------------------------------------------------------------------------------- */

struct udp_bench {
    struct driven stage;
    struct reader reader;
    int bare;
    char *packets; /* [packets of a frame][PACKET] */
    size_t count;  /* packets of a frame */
};

static void send_blocks(void *arg)
{
    struct udp_bench *b = arg;
    send_frame(&b->stage);
}

static void send_packets(void *arg)
{
    struct udp_bench *b = arg;
    struct iovec piece[BATCH];
    struct mmsghdr message[BATCH];
    for (size_t done = 0; done < b->count;) {
        unsigned n = b->count - done < BATCH ? (unsigned)(b->count - done) : BATCH;
        for (unsigned k = 0; k < n; k++) {
            piece[k] = (struct iovec){b->packets + (done + k) % 1024 * PACKET, PACKET};
            message[k].msg_hdr = (struct msghdr){.msg_iov = &piece[k], .msg_iovlen = 1};
        }
        int sent = sendmmsg(b->bare, message, n, 0);
        if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return;
        if (sent > 0) done += (size_t)sent;
    }
}

static bool make_udp(struct udp_bench *b, unsigned beams, unsigned coarse, bool stamps, const char *more)
{
    char text[2048];
    if (!start_reader(&b->reader, true, stamps)) return false;
    snprintf(
        text, sizeof text,
        "%sdevice: cpu\nstream: {sample_ns: 2560, epoch_ns: 1700000000000000000, freq_mhz: {first: 600, "
        "step: 0.390625, count: %u}}\n"
        "pipeline:\n"
        "  - {stage: simulate, out: e, frame_samples: %d, samples: 1}\n"
        "  - {stage: upchannelize, in: e, out: u, factor: 16}\n"
        "  - {stage: frb_grid, in: u, out: i, integrate: 384}\n"
        "  - {stage: frb_beams, in: i, out: j, beams: {grid: [%u, 4], spacing_deg: 0.1}}\n"
        "  - {stage: packetize, in: j, format: chime-l0%s, destinations: [{address: \"127.0.0.1:%u\"}]}\n",
        telescope, coarse, BLOCKS * 16 * 384, beams / 4, more, b->reader.port);
    if (!make_driven(&b->stage, text)) return false;
    uint16_t *data = b->stage.frame.data;
    size_t values = br_stream_max_bytes(b->stage.stream) / 2;
    for (size_t i = 0; i < values; i++) data[i] = (uint16_t)(0x5000 + (bench_random() >> 22));
    b->count = (size_t)BLOCKS * (beams / 4) * (coarse / 4);
    return true;
}

static int bench_packets(void)
{
    struct udp_bench b = {.bare = socket(AF_INET, SOCK_DGRAM, 0),
                          .packets = bench_alloc((size_t)1024 * PACKET)};
    int shorts = 1;
    if (b.bare >= 0 && make_udp(&b, 128, 16, false, "")) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)b.reader.port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        for (size_t i = 0; i < (size_t)1024 * PACKET; i++) b.packets[i] = (char)(bench_random() >> 24);
        if (connect(b.bare, (struct sockaddr *)&to, sizeof to) == 0) {
            double ours, theirs;
            bench_pair(send_blocks, &b, send_packets, &b, 99, &ours, &theirs); /* calls of 11 ms */
            double rate = (double)b.count / ours;
            bool fast = rate >= 3e5; /* either is enough */
            shorts = bench_report("chime-l0, packets of 4272 bytes, quantized (>= 300 or 0.8)", rate * 1e-3,
                                  "k/s", "a bare sendmmsg loop", theirs / ours, fast ? 0 : 0.8, 1);
        }
    }
    drop_driven(&b.stage);
    if (b.bare >= 0) close(b.bare);
    stop_reader(&b.reader);
    return shorts;
}

/* The received data, by the kernel's clock: the mean rate, and the most that any span of time held above the
 * rate.
 */
static int bench_pacing(void)
{
    const double rate = 20e6, burst = 200e3;
    struct udp_bench b = {0};
    int shorts = 1;
    if (make_udp(&b, 64, 16, true, ", rate: 20e6, burst: 200e3")) {
        for (int i = 0; i < 8; i++) send_frame(&b.stage);
        usleep(100000);
        uint64_t n = atomic_load(&b.reader.packets), *t = b.reader.stamp, sent = 8 * b.count;
        double least = 0, worst = 0; /* of bytes before packet i, less rate x time */
        for (uint64_t i = 0; i < n && i < STAMPS; i++) {
            double line = (double)i * PACKET - rate * (double)(t[i] - t[0]) * 1e-9;
            if (line < least) least = line;
            if (line + PACKET - least > worst) worst = line + PACKET - least;
        }
        double seconds = (double)(t[n - 1] - t[0]) * 1e-9, mean = ((double)n * PACKET - burst) / seconds;
        shorts = bench_report("chime-l0 paced: error of the rate", mean * 1e-6, "MB/s",
                              "the rate asked for (1 + |error|)",
                              1 + (mean > rate ? mean / rate - 1 : 1 - mean / rate), 1.02, 0);
        shorts += bench_report("chime-l0 paced: largest burst", worst * 1e-3, "kB", "the burst asked for",
                               worst / burst, 1, 0);
        if (n != sent)
            fprintf(stderr, "bench wires: %llu of %llu paced packets arrived\n", (unsigned long long)n,
                    (unsigned long long)sent);
    }
    drop_driven(&b.stage);
    stop_reader(&b.reader);
    return shorts;
}

int bench_wires(void)
{
    return bench_frb_node() + bench_packets() + bench_pacing();
}
