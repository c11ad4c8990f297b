/* capture_report.c - `beamring capture-report`: listens for a while and says what comes: who sends,
 * packets of which length, and, by a description, which sources, streams and channels at which rate,
 * and what it does not explain. */
#include "buffers/clock.h"
#include "formats/links/net.h"
#include "formats/packets/header.h"
#include "formats/packets/layout.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_ADDRESSES = 64,
    MOST_KINDS = 32,
    MOST_EXAMPLES = 3,
    MOST_DESCRIPTIONS = 16,
    EXAMPLE_BYTES = 32,
    ROOM = 65536,
    BUFFER = 1 << 26
};

/* How often each of some numbers came; what is beyond the room is counted together. */
struct tally {
    struct {
        int64_t value;
        uint64_t packets;
    } of[MOST_KINDS];
    size_t count;
    uint64_t others;
};

struct explained {
    struct packet_description *packet;
    uint64_t verdict[PACKET_FLAGGED + 1];
    struct tally sources, streams;
    bool any;
    uint64_t least, most; /* counters */
    size_t nexamples;
    struct {
        enum packet_verdict verdict;
        size_t length;
        uint8_t bytes[EXAMPLE_BYTES];
    } example[MOST_EXAMPLES];
};

struct report {
    double seconds;
    const char *packet, *interface;
    size_t naddresses;
    const char *address[MOST_ADDRESSES];
    int fd[MOST_ADDRESSES];
    uint64_t packets[MOST_ADDRESSES], bytes;
    struct tally lengths, senders;
    size_t ndescriptions;
    struct explained by[MOST_DESCRIPTIONS];
};

static void count(struct tally *tally, int64_t value)
{
    size_t i = 0;
    while (i < tally->count && tally->of[i].value != value) i++;
    if (i == MOST_KINDS) {
        tally->others++;
        return;
    }
    if (i == tally->count) tally->of[tally->count++].value = value;
    tally->of[i].packets++;
}

static int by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* --- taking packets in ------------------------------------------------------------------------- */

static void explain(struct explained *e, const uint8_t *bytes, size_t length)
{
    struct packet_header header;
    enum packet_verdict verdict = packet_header_read(e->packet, bytes, length, &header);
    e->verdict[verdict]++;
    if (verdict == PACKET_GOOD || verdict == PACKET_FLAGGED) {
        count(&e->sources, header.source);
        count(&e->streams, header.stream);
        if (!e->any || header.counter < e->least) e->least = header.counter;
        if (!e->any || header.counter > e->most) e->most = header.counter;
        e->any = true;
    } else if (e->nexamples < MOST_EXAMPLES) {
        size_t i = e->nexamples++;
        e->example[i].verdict = verdict;
        e->example[i].length = length;
        memcpy(e->example[i].bytes, bytes, length < EXAMPLE_BYTES ? length : EXAMPLE_BYTES);
    }
}

static void take(struct report *r, size_t at, uint8_t *bytes)
{
    struct sockaddr_storage from;
    for (int burst = 0; burst < 256; burst++) {
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(r->fd[at], bytes, ROOM, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
        if (n < 0) return;
        r->packets[at]++;
        r->bytes += (uint64_t)n;
        count(&r->lengths, n);
        if (from.ss_family == AF_INET)
            count(&r->senders, ntohl(((const struct sockaddr_in *)(const void *)&from)->sin_addr.s_addr));
        for (size_t i = 0; i < r->ndescriptions; i++) explain(&r->by[i], bytes, (size_t)n);
    }
}

static int listen_all(struct report *r)
{
    for (size_t i = 0; i < r->naddresses; i++) {
        struct net_address at;
        struct br_error error = {0};
        if (net_resolve(&at, r->address[i], SOCK_DGRAM, &error) == BR_OK)
            r->fd[i] = net_udp_receiver(&at, BUFFER, r->interface, &error);
        if (error.status == BR_OK) continue;
        fprintf(stderr, "beamring capture-report: %s\n", error.text);
        return 1;
    }
    uint8_t *bytes = malloc(ROOM);
    if (bytes == NULL) return 1;
    printf("listening for %g s on", r->seconds);
    for (size_t i = 0; i < r->naddresses; i++) printf(" %s", r->address[i]);
    printf("\n");
    fflush(stdout);
    uint64_t end = br_clock_ns() + (uint64_t)(r->seconds * 1e9), now;
    while ((now = br_clock_ns()) < end) {
        struct pollfd wait[MOST_ADDRESSES];
        for (size_t i = 0; i < r->naddresses; i++)
            wait[i] = (struct pollfd){.fd = r->fd[i], .events = POLLIN};
        if (poll(wait, r->naddresses, (int)((end - now) / 1000000) + 1) < 0 && errno != EINTR) break;
        for (size_t i = 0; i < r->naddresses; i++)
            if ((wait[i].revents & POLLIN) != 0) take(r, i, bytes);
    }
    free(bytes);
    return 0;
}

/* --- what is said ------------------------------------------------------------------------------ */

static void print_tally(const char *what, struct tally *tally, double seconds, bool address)
{
    qsort(tally->of, tally->count, sizeof *tally->of, by_value);
    printf("  %s:\n", what);
    for (size_t i = 0; i < tally->count; i++) {
        struct in_addr in = {.s_addr = htonl((uint32_t)tally->of[i].value)};
        char text[INET_ADDRSTRLEN + 24];
        if (address)
            inet_ntop(AF_INET, &in, text, sizeof text);
        else
            snprintf(text, sizeof text, "%" PRId64, tally->of[i].value);
        printf("    %-16s %10" PRIu64 " packets, %.6g/s\n", text, tally->of[i].packets,
               (double)tally->of[i].packets / seconds);
    }
    if (tally->others > 0) printf("    others           %10" PRIu64 " packets\n", tally->others);
}

/* `judged`: with what the description says of each. */
static void print_examples(const struct explained *e, bool judged)
{
    for (size_t i = 0; i < e->nexamples; i++) {
        size_t n = e->example[i].length < EXAMPLE_BYTES ? e->example[i].length : EXAMPLE_BYTES;
        printf("    %s%zu bytes:",
               !judged                                   ? ""
               : e->example[i].verdict == PACKET_FOREIGN ? "another protocol, "
                                                         : "malformed, ",
               e->example[i].length);
        for (size_t k = 0; k < n; k++) printf(" %02x", e->example[i].bytes[k]);
        printf("%s\n", e->example[i].length > n ? " ..." : "");
    }
}

static void print_explained(struct explained *e, double seconds)
{
    const struct packet_description *p = e->packet;
    printf("by '%s': %" PRIu64 " explained, %" PRIu64 " flagged as no good, %" PRIu64 " malformed, %" PRIu64
           " of another protocol\n",
           p->name, e->verdict[PACKET_GOOD], e->verdict[PACKET_FLAGGED], e->verdict[PACKET_MALFORMED],
           e->verdict[PACKET_FOREIGN]);
    if (e->any) {
        print_tally("sources", &e->sources, seconds, false);
        print_tally("streams", &e->streams, seconds, false);
        printf("  channels:\n");
        for (size_t i = 0; i < e->streams.count; i++) {
            int64_t first = p->channel_base + e->streams.of[i].value,
                    last = first + p->channel_step * ((int64_t)p->nchannels - 1);
            printf("    stream %-9" PRId64 " %" PRId64 " to %" PRId64 " in steps of %" PRId64,
                   e->streams.of[i].value, first, last, p->channel_step);
            if (p->has_freq)
                printf(", %.8g to %.8g MHz", p->freq_first_mhz + p->freq_step_mhz * (double)first,
                       p->freq_first_mhz + p->freq_step_mhz * (double)last);
            printf("\n");
        }
        printf("  counters: %" PRIu64 " to %" PRIu64 "\n", e->least, e->most);
    }
    if (e->nexamples > 0) printf("  not explained, for example:\n");
    print_examples(e, true);
}

static uint64_t good(const struct explained *e)
{
    return e->verdict[PACKET_GOOD] + e->verdict[PACKET_FLAGGED];
}

static int print_report(struct report *r)
{
    uint64_t all = 0;
    for (size_t i = 0; i < r->naddresses; i++) {
        all += r->packets[i];
        printf("%s: %" PRIu64 " packets, %.6g/s\n", r->address[i], r->packets[i],
               (double)r->packets[i] / r->seconds);
    }
    if (all == 0) {
        printf("nothing arrived: is the address right, the cable plugged in, the multicast group joined on "
               "the right interface, a firewall in between?\n");
        return 1;
    }
    printf("%.4g Gb/s of UDP payload\n", 8e-9 * (double)r->bytes / r->seconds);
    print_tally("lengths", &r->lengths, r->seconds, false);
    print_tally("senders", &r->senders, r->seconds, true);
    struct explained *best = &r->by[0];
    for (size_t i = 1; i < r->ndescriptions; i++)
        if (good(&r->by[i]) > good(best)) best = &r->by[i];
    if (r->packet == NULL && good(best) == 0) {
        printf("no description that is known explains any of it; docs/packets.md says how to write one\n"
               "  the first bytes of some packets:\n");
        print_examples(best, false);
    } else {
        print_explained(best, r->seconds);
    }
    return good(best) > 0 ? 0 : 1;
}

/* --- the command line -------------------------------------------------------------------------- */

static int read_options(struct report *r, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--packet") == 0 && more)
            r->packet = argv[++i];
        else if (strcmp(argv[i], "--interface") == 0 && more)
            r->interface = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && more)
            r->seconds = strtod(argv[++i], NULL);
        else if (argv[i][0] == '-' && strcmp(argv[i], "--packet") != 0 &&
                 strcmp(argv[i], "--interface") != 0 && strcmp(argv[i], "--seconds") != 0)
            return unknown_option("capture-report", argv[i]);
        else if (net_is_address(argv[i]) && r->naddresses < MOST_ADDRESSES)
            r->address[r->naddresses++] = argv[i];
        else
            return 2;
    }
    return r->naddresses > 0 && r->seconds > 0 && r->seconds <= 3600 ? 0 : 2;
}

static int load_descriptions(struct report *r)
{
    struct br_error error = {0};
    for (size_t i = 0; packet_presets[i] != NULL && i < MOST_DESCRIPTIONS; i++) {
        if (r->packet != NULL && i > 0) break;
        struct br_error here = {0};
        const char *name = r->packet != NULL ? r->packet : packet_presets[i];
        if (packet_description_load(&r->by[r->ndescriptions].packet, name, &here) == BR_OK)
            r->ndescriptions++;
        else if (error.status == BR_OK)
            error = here;
    }
    if (r->ndescriptions > 0) return 0;
    fprintf(stderr, "beamring capture-report: %s\n", error.text);
    return 2;
}

int cmd_capture_report(int argc, char **argv)
{
    struct report *r = calloc(1, sizeof *r);
    if (r == NULL) return 1;
    r->seconds = 5;
    for (size_t i = 0; i < MOST_ADDRESSES; i++) r->fd[i] = -1;
    int status = read_options(r, argc, argv);
    if (status != 0)
        fputs("usage: beamring capture-report [--packet NAME|FILE] [--seconds S] [--interface ADDRESS] "
              "HOST:PORT...\nListens and reports what arrives. Without --packet it tries all descriptions "
              "that it knows.\n",
              stderr);
    if (status == 0) status = load_descriptions(r);
    if (status == 0) status = listen_all(r);
    if (status == 0) status = print_report(r);
    for (size_t i = 0; i < r->naddresses; i++)
        if (r->fd[i] >= 0) close(r->fd[i]);
    for (size_t i = 0; i < r->ndescriptions; i++) packet_description_free(r->by[i].packet);
    free(r);
    return status;
}
