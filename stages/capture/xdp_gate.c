/* xdp_gate.c - see xdp_gate.h. The kernel's own interface, bpf(2): the program is fixed and short, and
 * libxdp of the distributions that carry it (1.3) knows nothing of packets in fragments. */
#include "stages/capture/xdp_gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef BPF_F_XDP_HAS_FRAGS
#define BPF_F_XDP_HAS_FRAGS (1U << 5)
#endif

enum { MAX_ADDRESSES = 64, MAX_QUEUES = 1024 };

/* A destination, in network order. */
struct key {
    uint32_t address;
    uint32_t port;
};

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
    return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

static int fail(const char *interface, const char *what, const char *right, struct br_error *error)
{
    int why = errno;
    return br_fail(error, BR_E_IO, "cannot %s %s: %s%s%s", what, interface, strerror(why),
                   why == EPERM || why == EACCES ? "; it takes " : "",
                   why == EPERM || why == EACCES ? right : "");
}

/* --- the program ------------------------------------------------------------------------------- */

#define INSTRUCTION(CODE, TO, FROM, OFFSET, NUMBER)                                                          \
    {                                                                                                        \
        CODE, TO, FROM, OFFSET, NUMBER                                                                       \
    }
#define LOAD(SIZE, TO, FROM, OFFSET)     INSTRUCTION(BPF_LDX | BPF_MEM | (SIZE), TO, FROM, OFFSET, 0)
#define STORE(TO, OFFSET, FROM)          INSTRUCTION(BPF_STX | BPF_MEM | BPF_W, TO, FROM, OFFSET, 0)
#define STORE_NUMBER(TO, OFFSET, NUMBER) INSTRUCTION(BPF_ST | BPF_MEM | BPF_W, TO, 0, OFFSET, NUMBER)
#define COPY(TO, FROM)                   INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_X, TO, FROM, 0, 0)
#define NUMBER(TO, VALUE)                INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_K, TO, 0, 0, VALUE)
#define ADD_NUMBER(TO, VALUE)            INSTRUCTION(BPF_ALU64 | BPF_ADD | BPF_K, TO, 0, 0, VALUE)
#define AND(TO, MASK)                    INSTRUCTION(BPF_ALU64 | BPF_AND | BPF_K, TO, 0, 0, MASK)
#define IF_BEYOND(A, B, SKIP)            INSTRUCTION(BPF_JMP | BPF_JGT | BPF_X, A, B, SKIP, 0)
#define UNLESS(A, VALUE, SKIP)           INSTRUCTION(BPF_JMP | BPF_JNE | BPF_K, A, 0, SKIP, VALUE)
#define IF(A, VALUE, SKIP)               INSTRUCTION(BPF_JMP | BPF_JEQ | BPF_K, A, 0, SKIP, VALUE)
#define MAP(TO, FD)                                                                                          \
    INSTRUCTION(BPF_LD | BPF_DW | BPF_IMM, TO, BPF_PSEUDO_MAP_FD, 0, FD), INSTRUCTION(0, 0, 0, 0, 0)
#define CALL(FUNCTION) INSTRUCTION(BPF_JMP | BPF_CALL, 0, 0, 0, FUNCTION)
#define EXIT           INSTRUCTION(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
/* Four bytes more of the IP header, in r2, if it has so many words: a packet's pointer may only grow by
 * numbers that are known beforehand, where the right to measure (CAP_PERFMON) is not there. */
#define LONGER(WORDS) {BPF_JMP | BPF_JLT | BPF_K, R4, 0, 1, WORDS}, ADD_NUMBER(R2, 4)
enum { R0, R1, R2, R3, R4, R5, R6, R10 = 10 };
enum { KEY = -(int)sizeof(struct key), KEY_PORT = KEY + 4 };
/* Offsets: behind the Ethernet header stands the IP header. */
enum {
    ETHER_TYPE = 12,
    IP = 14,
    IP_FRAGMENT = IP + 6,
    IP_PROTOCOL = IP + 9,
    IP_TO = IP + 16,
    IP_END = IP + 20
};

/* Where jumps lead, until they are counted out. */
enum { PASS = 30000, TAKE };

static void count_out(struct bpf_insn *code, int n, int pass, int take)
{
    for (int i = 0; i < n; i++) {
        if (code[i].off == PASS) code[i].off = (int16_t)(pass - i - 1);
        if (code[i].off == TAKE) code[i].off = (int16_t)(take - i - 1);
    }
}

/* The first part of a fragmented packet goes to the socket, which reports it; no other part has a port. */
static int load_program(struct xdp_gate *g)
{
    /* r6: context; r2: packet; r3: its end; r4, r5: scratch. */
    struct bpf_insn code[] = {
        COPY(R6, R1),
        LOAD(BPF_W, R2, R6, offsetof(struct xdp_md, data)),
        LOAD(BPF_W, R3, R6, offsetof(struct xdp_md, data_end)),
        COPY(R4, R2),
        ADD_NUMBER(R4, IP_END),
        IF_BEYOND(R4, R3, PASS),
        LOAD(BPF_H, R4, R2, ETHER_TYPE),
        UNLESS(R4, htons(ETH_P_IP), PASS),
        LOAD(BPF_B, R4, R2, IP_PROTOCOL),
        UNLESS(R4, IPPROTO_UDP, PASS),
        LOAD(BPF_H, R4, R2, IP_FRAGMENT),
        AND(R4, htons(0x1fff)),
        UNLESS(R4, 0, PASS),
        LOAD(BPF_W, R5, R2, IP_TO),
        STORE(R10, KEY, R5),
        LOAD(BPF_B, R4, R2, IP), /* the IP header's length, in words of 4 bytes */
        AND(R4, 15),
        ADD_NUMBER(R2, IP_END),
        LONGER(6),
        LONGER(7),
        LONGER(8),
        LONGER(9),
        LONGER(10),
        LONGER(11),
        LONGER(12),
        LONGER(13),
        LONGER(14),
        LONGER(15),
        COPY(R4, R2),
        ADD_NUMBER(R4, 8),
        IF_BEYOND(R4, R3, PASS),
        LOAD(BPF_H, R5, R2, 2), /* the destination port */
        STORE(R10, KEY_PORT, R5),
        MAP(R1, g->addresses),
        COPY(R2, R10),
        ADD_NUMBER(R2, KEY),
        CALL(BPF_FUNC_map_lookup_elem),
        UNLESS(R0, 0, TAKE),
        STORE_NUMBER(R10, KEY, 0), /* to any address */
        MAP(R1, g->addresses),
        COPY(R2, R10),
        ADD_NUMBER(R2, KEY),
        CALL(BPF_FUNC_map_lookup_elem),
        IF(R0, 0, PASS),
        MAP(R1, g->sockets), /* take */
        LOAD(BPF_W, R2, R6, offsetof(struct xdp_md, rx_queue_index)),
        NUMBER(R3, XDP_PASS), /* where the queue has no socket */
        CALL(BPF_FUNC_redirect_map),
        EXIT,
        NUMBER(R0, XDP_PASS), /* pass */
        EXIT,
    };
    enum { N = sizeof code / sizeof *code, BEHIND_TAKE = 8, BEHIND_PASS = 2 };
    count_out(code, N, N - BEHIND_PASS, N - BEHIND_TAKE);
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_XDP,
                           .expected_attach_type = BPF_XDP,
                           .insns = (uintptr_t)code,
                           .insn_cnt = N,
                           .license = (uintptr_t) "BSD",
                           .prog_flags = BPF_F_XDP_HAS_FRAGS,
                           .prog_name = "beamring"};
    return bpf(BPF_PROG_LOAD, &attr);
}

/* --- the gate ---------------------------------------------------------------------------------- */

static int make_map(enum bpf_map_type type, size_t key, size_t value, unsigned entries)
{
    union bpf_attr attr = {
        .map_type = type, .key_size = (uint32_t)key, .value_size = (uint32_t)value, .max_entries = entries};
    return bpf(BPF_MAP_CREATE, &attr);
}

static int put(int map, const void *key, const void *value)
{
    union bpf_attr attr = {.map_fd = (uint32_t)map, .key = (uintptr_t)key, .value = (uintptr_t)value};
    return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

static int attach(const struct xdp_gate *g, uint32_t flags)
{
    union bpf_attr attr = {.link_create = {.prog_fd = (uint32_t)g->program,
                                           .target_ifindex = g->index,
                                           .attach_type = BPF_XDP,
                                           .flags = flags}};
    return bpf(BPF_LINK_CREATE, &attr);
}

int xdp_gate_open(struct xdp_gate **gate, const char *interface, struct br_error *error)
{
    struct xdp_gate *g = malloc(sizeof *g);
    *gate = g;
    if (g == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory to receive packets");
    *g = (struct xdp_gate){.addresses = -1, .sockets = -1, .program = -1, .link = -1, .users = 1};
    g->index = if_nametoindex(interface);
    if (g->index == 0) return fail(interface, "receive on", "", error);
    g->addresses = make_map(BPF_MAP_TYPE_HASH, sizeof(struct key), 1, MAX_ADDRESSES);
    g->sockets = make_map(BPF_MAP_TYPE_XSKMAP, sizeof(uint32_t), sizeof(uint32_t), MAX_QUEUES);
    if (g->addresses >= 0 && g->sockets >= 0) g->program = load_program(g);
    if (g->program < 0)
        return fail(interface, "load the XDP program for", "CAP_BPF and CAP_NET_ADMIN", error);
    g->link = attach(g, XDP_FLAGS_DRV_MODE);
    if (g->link < 0 && errno != EBUSY && errno != EPERM) {
        g->generic = true;
        g->link = attach(g, XDP_FLAGS_SKB_MODE);
    }
    if (g->link < 0 && (errno == EBUSY || errno == EEXIST))
        return br_fail(error, BR_E_IO, "%s has an XDP program already (`ip link show %s`)", interface,
                       interface);
    if (g->link < 0) return fail(interface, "attach the XDP program to", "CAP_NET_ADMIN", error);
    return BR_OK;
}

int xdp_gate_add_address(struct xdp_gate *g, const struct net_address *at, struct br_error *error)
{
    const struct sockaddr_in *to = (const void *)&at->address;
    struct key key = {to->sin_addr.s_addr, to->sin_port};
    uint8_t yes = 1;
    return put(g->addresses, &key, &yes) == 0 ? BR_OK : fail(at->text, "receive for", "", error);
}

int xdp_gate_add_socket(struct xdp_gate *g, unsigned queue, int fd, struct br_error *error)
{
    char text[IF_NAMESIZE] = "an interface";
    if (put(g->sockets, &(uint32_t){queue}, &(int){fd}) == 0) return BR_OK;
    if_indextoname(g->index, text);
    return fail(text, "receive on", "CAP_BPF", error);
}

void xdp_gate_leave(struct xdp_gate *g)
{
    if (g == NULL || --g->users > 0) return;
    const int fds[] = {g->link, g->program, g->sockets, g->addresses};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(g);
}
