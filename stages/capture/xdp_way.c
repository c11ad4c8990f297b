/* xdp_way.c - packets from AF_XDP sockets, past the kernel's network stack: without a copy by the kernel
 * where the driver can, else with one. Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 6.6. The
 * receivers of one interface divide its queues among them. */
#include "stages/capture/receiver.h"
#include "stages/capture/xdp_gate.h"
#include "stages/capture/xdp_queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef XDP_PKT_CONTD /* the packet goes on in the next chunk */
#define XDP_PKT_CONTD (1 << 0)
#endif

enum { ETHERNET = 14, BATCH = 64, JOINED = 80 << 10, LOOK_EVERY = 256 };

struct xdp {
    char interface[IF_NAMESIZE];
    struct xdp_gate *gate;
    struct xdp_queue *queue; /* [nqueues]; a receiver may have none */
    struct pollfd *wait;     /* [nqueues] */
    unsigned nqueues;
    uint64_t steps;
    uint8_t *joined; /* a packet that came in several chunks */
};

/* --- which queues ------------------------------------------------------------------------------ */

/* The interface that the user names, or that has the address. */
static bool find_interface(const struct receiver *r, char name[IF_NAMESIZE])
{
    name[0] = '\0';
    if (r->interface != NULL) {
        snprintf(name, IF_NAMESIZE, "%s", r->interface);
        return true;
    }
    struct ifaddrs *all = NULL;
    uint32_t to = ((const struct sockaddr_in *)(const void *)&r->at.address)->sin_addr.s_addr;
    if (getifaddrs(&all) != 0) return false;
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
            ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr == to)
            snprintf(name, IF_NAMESIZE, "%s", a->ifa_name);
    freeifaddrs(all);
    return name[0] != '\0';
}

/* Receive queues of an interface. */
static unsigned count_queues(const char *interface)
{
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq request = {.ifr_data = (void *)&channels};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0;
    if (fd >= 0) close(fd);
    unsigned n = channels.rx_count + channels.combined_count;
    return known && n > 0 ? n : 1;
}

/* Which of how many receivers of this interface it is, and the gate that those before it have opened. */
static void find_peers(const struct receiver *r, const char *interface, unsigned *rank, unsigned *of,
                       struct xdp_gate **gate)
{
    char name[IF_NAMESIZE];
    *rank = 0;
    *of = r->npeers == 0;
    for (const struct receiver *p = r->peers; p < r->peers + r->npeers; p++) {
        if (!find_interface(p, name) || strcmp(name, interface) != 0) continue;
        (*of)++;
        if (p >= r) continue;
        (*rank)++;
        if (p->state != NULL) *gate = ((const struct xdp *)p->state)->gate;
    }
}

/* --- open and close ---------------------------------------------------------------------------- */

static int open_queues(struct receiver *r, struct xdp *x, unsigned rank, unsigned of, unsigned all,
                       struct br_error *error)
{
    unsigned mine = rank < all ? (all - rank + of - 1) / of : 0;
    x->queue = calloc(mine + 1, sizeof *x->queue);
    x->wait = calloc(mine + 1, sizeof *x->wait);
    x->joined = aligned_alloc(64, JOINED);
    if (x->queue == NULL || x->wait == NULL || x->joined == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory to receive packets");
    int status = BR_OK;
    for (unsigned i = 0; i < mine && status == BR_OK; i++) {
        enum xdp_copying copying = r->no_copy ? XDP_NO_COPY : XDP_AS_IT_CAN;
        if (x->gate != NULL && x->gate->generic) copying = XDP_BY_COPY;
        struct xdp_queue *q = &x->queue[x->nqueues++];
        status = xdp_queue_open(q, x->interface, rank + i * of, r->buffer_bytes / mine, copying, error);
        /* Only now that the driver is known to be able to is the program attached: that may reset a NIC. */
        if (status == BR_OK && x->gate == NULL) status = xdp_gate_open(&x->gate, x->interface, error);
        if (status == BR_OK && x->gate->generic && q->without_copy)
            return br_fail(error, BR_E_IO, "the driver of %s runs no XDP program", x->interface);
        if (status == BR_OK) status = xdp_gate_add_socket(x->gate, q->number, q->fd, error);
        x->wait[i] = (struct pollfd){.fd = q->fd, .events = POLLIN};
    }
    return status;
}

static int open_xdp(struct receiver *r, struct br_error *error)
{
    struct xdp *x = calloc(1, sizeof *x);
    unsigned rank, of, all;
    if (x == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory to receive packets");
    r->state = x;
    if (r->at.address.ss_family != AF_INET)
        return br_fail(error, BR_E_INVALID, "%s: the xdp way takes IPv4 only; choose `backend: socket`",
                       r->at.text);
    if (!find_interface(r, x->interface))
        return br_fail(error, BR_E_INVALID,
                       "%s: the xdp way takes packets from one interface; name it in "
                       "`interfaces`",
                       r->at.text);
    find_peers(r, x->interface, &rank, &of, &x->gate);
    all = count_queues(x->interface);
    if (x->gate != NULL) x->gate->users++;
    if (r->members > all)
        return br_fail(error, BR_E_INVALID, "%u threads cannot share the %u queue%s of %s (`ethtool -L`)",
                       r->members, all, all == 1 ? "" : "s", x->interface);
    int status = open_queues(r, x, rank, of, all, error);
    if (status != BR_OK) return status;
    r->guard = receiver_open_guard(r, error);
    if (r->guard < 0) return BR_E_IO;
    r->without_copy = x->nqueues > 0 && x->queue[0].without_copy;
    return xdp_gate_add_address(x->gate, &r->at, error);
}

static void look_for_losses(struct receiver *r, struct xdp *x)
{
    for (unsigned i = 0; i < x->nqueues; i++) {
        struct xdp_statistics lost = xdp_queue_look(&x->queue[i]);
        atomic_fetch_add_explicit(&r->kernel_lost, lost.rx_dropped + lost.rx_ring_full, memory_order_relaxed);
        atomic_fetch_add_explicit(&r->xdp.dropped, lost.rx_dropped, memory_order_relaxed);
        atomic_fetch_add_explicit(&r->xdp.ring_full, lost.rx_ring_full, memory_order_relaxed);
        atomic_fetch_add_explicit(&r->xdp.fill_empty, lost.rx_fill_ring_empty_descs, memory_order_relaxed);
    }
}

static void close_xdp(struct receiver *r)
{
    struct xdp *x = r->state;
    r->state = NULL;
    if (r->guard >= 0) close(r->guard);
    r->guard = -1;
    if (x == NULL) return;
    look_for_losses(r, x);
    for (unsigned i = 0; i < x->nqueues; i++) xdp_queue_close(&x->queue[i]);
    xdp_gate_leave(x->gate);
    free(x->queue);
    free(x->wait);
    free(x->joined);
    free(x);
}

struct xdp_queue *xdp_queue_of(const struct receiver *r)
{
    return ((const struct xdp *)r->state)->queue;
}

/* --- packets ----------------------------------------------------------------------------------- */

/* The next packet; chunks that it took, 0 when it is not there as a whole. */
static uint32_t take(struct receiver *r, struct xdp *x, struct xdp_queue *q, uint32_t filled)
{
    uint32_t n = 0;
    size_t length = 0;
    const struct xdp_desc *chunk;
    do {
        if (n == filled) return 0;
        chunk = xdp_queue_chunk(q, n++);
    } while ((chunk->options & XDP_PKT_CONTD) != 0);
    const uint8_t *packet = q->memory + xdp_queue_chunk(q, 0)->addr;
    if (n == 1) {
        length = chunk->len;
    } else {
        for (uint32_t k = 0; k < n; k++) {
            chunk = xdp_queue_chunk(q, k);
            size_t here = chunk->len < JOINED - length ? chunk->len : JOINED - length;
            memcpy(x->joined + length, q->memory + chunk->addr, here);
            length += here;
        }
        packet = x->joined;
    }
    if (length > ETHERNET) receiver_take_ip(r, packet + ETHERNET, length - ETHERNET, false);
    return n;
}

/* Until packets come; an errno when none can. */
static int wait_for_packets(struct receiver *r, struct xdp *x)
{
    look_for_losses(r, x);
    if (poll(x->wait, x->nqueues, RECEIVER_WAIT_MS) > 0) {
        for (unsigned i = 0; i < x->nqueues; i++) {
            int why = 0;
            socklen_t size = sizeof why;
            if ((x->wait[i].revents & POLLERR) != 0 &&
                getsockopt(x->wait[i].fd, SOL_SOCKET, SO_ERROR, &why, &size) == 0 && why != 0)
                return why;
        }
        return 0;
    }
    struct ifreq request = {0}; /* an AF_XDP socket says nothing of an interface that is down */
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", x->interface);
    if (ioctl(r->guard, SIOCGIFFLAGS, &request) != 0) return errno;
    return (request.ifr_flags & IFF_UP) != 0 ? 0 : ENETDOWN;
}

static int step(struct receiver *r)
{
    struct xdp *x = r->state;
    bool any = false;
    for (unsigned i = 0; i < x->nqueues; i++) {
        struct xdp_queue *q = &x->queue[i];
        uint32_t filled = xdp_queue_filled(q);
        if (filled == 0) continue;
        window_enter(r->window, r->thread);
        for (unsigned k = 0; k < BATCH && filled > 0; k++) {
            uint32_t n = take(r, x, q, filled);
            if (n == 0) break;
            xdp_queue_free(q, n);
            filled -= n;
            any = true;
        }
        window_leave(r->thread);
        xdp_queue_hand_back(q);
    }
    if (++x->steps % LOOK_EVERY == 0) look_for_losses(r, x);
    return any ? 0 : wait_for_packets(r, x);
}

const struct receiver_way receiver_xdp = {"xdp", open_xdp, step, close_xdp};
