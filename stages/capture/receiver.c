/* receiver.c - what all ways in share. See receiver.h. */
#include "stages/capture/receiver.h"
#include "buffers/threads.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

enum { IP_HEADER = 20, UDP_HEADER = 8, IN_FRAGMENTS = 0x3fff, NOT_FIRST = 0x1fff };

static bool is_group(const struct net_address *at)
{
    return at->address.ss_family == AF_INET &&
           IN_MULTICAST(ntohl(((const struct sockaddr_in *)(const void *)&at->address)->sin_addr.s_addr));
}

static int refuse(int fd, const struct receiver *r, const char *what, struct br_error *error)
{
    br_fail(error, BR_E_IO, "cannot %s %s%s%s: %s%s", what, r->at.text, r->interface != NULL ? " on " : "",
            r->interface != NULL ? r->interface : "", strerror(errno),
            errno == EADDRINUSE ? "; another program (or another stage) listens there" : "");
    if (fd >= 0) close(fd);
    return -1;
}

int receiver_bind(const struct receiver *r, void (*prepare)(const struct receiver *r, int fd),
                  struct br_error *error)
{
    int yes = 1, fd = socket(r->at.address.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return refuse(fd, r, "open a socket for", error);
    if (is_group(&r->at)) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (r->members > 1) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    if (r->interface != NULL && if_nametoindex(r->interface) == 0) return refuse(fd, r, "receive", error);
    if (r->interface != NULL &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, r->interface, (socklen_t)strlen(r->interface) + 1) != 0)
        return refuse(fd, r, "receive", error);
    prepare(r, fd);
    if (bind(fd, (const struct sockaddr *)&r->at.address, r->at.length) != 0)
        return refuse(fd, r, "receive", error);
    if (is_group(&r->at)) {
        struct ip_mreqn request = {
            .imr_multiaddr = ((const struct sockaddr_in *)(const void *)&r->at.address)->sin_addr,
            .imr_ifindex = r->interface != NULL ? (int)if_nametoindex(r->interface) : 0};
        if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) != 0)
            return refuse(fd, r, "join the group", error);
    }
    return fd;
}

static void take_nothing(const struct receiver *r, int fd)
{
    struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sock_fprog program = {1, nothing};
    (void)r;
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

int receiver_open_guard(const struct receiver *r, struct br_error *error)
{
    return receiver_bind(r, take_nothing, error);
}

/* Ones' complement sum of 16-bit words, as they stand in memory; not folded. */
static uint64_t sum_of(const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0;
    uint32_t word;
    size_t i = 0;
    for (; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    if (i < n) {
        word = 0;
        memcpy(&word, bytes + i, n - i);
        sum += word;
    }
    return sum;
}

static uint16_t fold(uint64_t sum)
{
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* UDP's checksum: 0 is none. Senders on this machine leave it to a NIC that there is not: then only the
 * sum of the addresses, protocol and length stands there. */
static bool checksum_is_right(const uint8_t *ip, const uint8_t *udp, size_t length)
{
    uint16_t stored;
    memcpy(&stored, udp + 6, sizeof stored);
    if (stored == 0) return true;
    uint64_t head = sum_of(ip + 12, 8) + htons(IPPROTO_UDP) + htons((uint16_t)length);
    return fold(head) == stored || fold(head + sum_of(udp, length)) == 0xffff;
}

static void count_packets(struct receiver *r, uint64_t n)
{
    atomic_store_explicit(&r->packets, atomic_load_explicit(&r->packets, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

void receiver_take_ip(struct receiver *r, const uint8_t *ip, size_t length, bool checked)
{
    if (length < IP_HEADER) return;
    size_t header = (size_t)(ip[0] & 15) * 4;
    if (length < header + UDP_HEADER || header < IP_HEADER) return;
    if (((ip[6] << 8 | ip[7]) & IN_FRAGMENTS) != 0) {
        atomic_fetch_add_explicit(&r->fragments, 1, memory_order_relaxed);
        if (((ip[6] << 8 | ip[7]) & NOT_FIRST) != 0) return; /* no UDP header in it */
        checked = true;
    }
    size_t udp = (size_t)(ip[header + 4] << 8 | ip[header + 5]), there = length - header;
    bool whole = udp >= UDP_HEADER && udp <= there;
    if (whole) there = udp; /* Ethernet fills up short packets */
    if (whole && !checked && !checksum_is_right(ip, ip + header, there)) {
        window_damaged(r->window, r->thread);
        count_packets(r, 1);
        return;
    }
    receiver_take(r, ip + header + UDP_HEADER, there - UDP_HEADER, 0);
}

void receiver_take(struct receiver *r, const uint8_t *bytes, size_t length, size_t segment)
{
    const struct packet_description *packet = r->window->packet;
    uint64_t n = 0;
    if (segment == 0 && !packet->spead && length > packet->bytes && length % packet->bytes == 0)
        segment = packet->bytes;
    if (segment == 0) segment = length > 0 ? length : 1;
    for (size_t at = 0; at < length || n == 0; at += segment, n++)
        window_packet(r->window, r->thread, bytes + at, length - at < segment ? length - at : segment);
    count_packets(r, n);
}

static void *run(void *arg)
{
    struct receiver *r = arg;
    uint64_t packets = 0; /* when it broke */
    while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        int why = r->way->step(r);
        uint64_t now = atomic_load_explicit(&r->packets, memory_order_relaxed);
        if (why == 0) { /* a socket says its error once: it is over when packets come again */
            if (now != packets) atomic_store_explicit(&r->broke, 0, memory_order_relaxed);
            continue;
        }
        /* An interface that is down may come back. */
        atomic_store_explicit(&r->broke, why, memory_order_relaxed);
        packets = now;
        usleep(RECEIVER_WAIT_MS * 1000);
    }
    return NULL;
}

int receiver_start(struct receiver *r, struct br_error *error)
{
    int status = br_thread_start(&r->id, run, r);
    r->running = status == 0;
    return r->running ? BR_OK
                      : br_fail(error, BR_E_NO_MEMORY, "no thread to receive with: %s", strerror(status));
}

void receiver_stop(struct receiver *r)
{
    atomic_store(&r->stop, true);
    if (r->running) pthread_join(r->id, NULL);
    r->running = false;
    if (r->way != NULL) r->way->close(r);
}
