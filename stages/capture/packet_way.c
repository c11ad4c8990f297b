/* packet_way.c - packets from a ring that the kernel shares with us (AF_PACKET, TPACKET_V3): one copy
 * by the kernel, no system call while packets come. Needs CAP_NET_RAW. Several threads share an
 * interface by FANOUT. */
#include "stages/capture/receiver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A block is ours when it is full or after RETIRE_MS: so long each of them lasts at low rates, whatever it
 * holds. The 256 of a buffer of 64 MiB last for 4 s in which this machine stands still. */
enum { BLOCK = 1 << 18, RETIRE_MS = 16 };

struct ring {
    uint8_t *memory;
    size_t blocks, next;
};

/* UDP over IPv4 to one port, whole (or in fragments, of which only the first says the port: counted as
 * such). */
static int set_filter(const struct receiver *r, int fd)
{
    unsigned port = ntohs(((const struct sockaddr_in *)(const void *)&r->at.address)->sin_port);
    uint32_t to = ntohl(((const struct sockaddr_in *)(const void *)&r->at.address)->sin_addr.s_addr);
    /* Offsets count from the IP header: the socket is SOCK_DGRAM. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 6),
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, to, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0x40000),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    if (to == INADDR_ANY) code[6] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0);
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static int fail(struct receiver *r, const char *what, struct br_error *error)
{
    return br_fail(
        error, BR_E_IO, "cannot %s for %s%s%s: %s%s", what, r->at.text, r->interface != NULL ? " on " : "",
        r->interface != NULL ? r->interface : "", strerror(errno),
        errno == EPERM ? "; it takes CAP_NET_RAW (setcap cap_net_raw+ep, or AmbientCapabilities= in a unit)"
                       : "");
}

static int open_ring(struct receiver *r, struct br_error *error)
{
    int version = TPACKET_V3, yes = 1;
    struct ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory to receive packets");
    r->state = ring;
    if (r->at.address.ss_family != AF_INET)
        return br_fail(error, BR_E_INVALID, "%s: the packet way takes IPv4 only; choose `backend: socket`",
                       r->at.text);
    r->fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (r->fd < 0) return fail(r, "open a packet socket", error);
    ring->blocks = (r->buffer_bytes + BLOCK - 1) / BLOCK;
    if (ring->blocks < 4) ring->blocks = 4;
    struct tpacket_req3 request = {.tp_block_size = BLOCK,
                                   .tp_block_nr = (unsigned)ring->blocks,
                                   .tp_frame_size = 16384,
                                   .tp_frame_nr = (unsigned)(ring->blocks * (BLOCK / 16384)),
                                   .tp_retire_blk_tov = RETIRE_MS};
    if (set_filter(r, r->fd) != 0) return fail(r, "filter packets", error);
    if (setsockopt(r->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0 ||
        setsockopt(r->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        return fail(r, "reserve a ring of packets", error);
    setsockopt(r->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
    ring->memory = mmap(NULL, ring->blocks * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (ring->memory == MAP_FAILED) {
        ring->memory = NULL;
        return fail(r, "map a ring of packets", error);
    }
    r->guard = receiver_open_guard(r, error);
    if (r->guard < 0) return BR_E_IO;
    struct sockaddr_ll to = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_IP),
                             .sll_ifindex = r->interface != NULL ? (int)if_nametoindex(r->interface) : 0};
    if (bind(r->fd, (struct sockaddr *)&to, sizeof to) != 0) return fail(r, "receive", error);
    if (r->members > 1) {
        unsigned port = ntohs(((const struct sockaddr_in *)(const void *)&r->at.address)->sin_port);
        unsigned group = ((unsigned)getpid() * 31 + port) & 0xffff;
        int fanout = (int)(group | (unsigned)PACKET_FANOUT_LB << 16);
        if (setsockopt(r->fd, SOL_PACKET, PACKET_FANOUT, &fanout, sizeof fanout) != 0)
            return fail(r, "share packets among threads", error);
    }
    return BR_OK;
}

static int step(struct receiver *r)
{
    struct ring *ring = r->state;
    struct tpacket_block_desc *block =
        (struct tpacket_block_desc *)(void *)(ring->memory + ring->next * BLOCK);
    uint32_t status = __atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE);
    if ((status & TP_STATUS_USER) == 0) {
        struct pollfd wait = {.fd = r->fd, .events = POLLIN | POLLERR};
        poll(&wait, 1, RECEIVER_WAIT_MS);
        int why = 0;
        socklen_t size = sizeof why;
        if ((wait.revents & POLLERR) != 0 && getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &why, &size) == 0)
            return why;
        return 0;
    }
    window_enter(r->window, r->thread);
    const uint8_t *at = (const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
    for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
        const struct tpacket3_hdr *h = (const void *)at;
        bool checked = (h->tp_status & (TP_STATUS_CSUM_VALID | TP_STATUS_CSUMNOTREADY)) != 0;
        receiver_take_ip(r, at + h->tp_net, h->tp_snaplen, checked);
        at += h->tp_next_offset;
    }
    window_leave(r->thread);
    __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    ring->next = (ring->next + 1) % ring->blocks;
    struct tpacket_stats_v3 stats;
    socklen_t size = sizeof stats;
    if (ring->next % 8 == 0 && getsockopt(r->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
        atomic_fetch_add_explicit(&r->kernel_lost, stats.tp_drops, memory_order_relaxed);
    return 0;
}

static void close_ring(struct receiver *r)
{
    struct ring *ring = r->state;
    struct tpacket_stats_v3 stats;
    socklen_t size = sizeof stats;
    if (r->fd >= 0 && getsockopt(r->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
        atomic_fetch_add_explicit(&r->kernel_lost, stats.tp_drops, memory_order_relaxed);
    if (ring != NULL && ring->memory != NULL) munmap(ring->memory, ring->blocks * BLOCK);
    if (r->fd >= 0) close(r->fd);
    if (r->guard >= 0) close(r->guard);
    free(ring);
    r->fd = r->guard = -1;
    r->state = NULL;
}

const struct receiver_way receiver_packet = {"packet", open_ring, step, close_ring};
