/* socket_way.c - packets from UDP sockets: recvmmsg, in bundles where the kernel can (UDP_GRO). Needs
 * no rights. */
#include "stages/capture/receiver.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { BATCH = 32, ROOM = 65536 };

struct bundle {
    struct mmsghdr message[BATCH];
    struct iovec piece[BATCH];
    struct {
        _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint32_t))];
    } control[BATCH];
    uint32_t lost; /* by the kernel, as of the latest packet */
    uint8_t *memory;
};

/* Before packets can come: a bundle that comes before UDP_GRO is set is queued packet by packet, and so
 * counted by the kernel. A larger buffer than net.core.rmem_max needs CAP_NET_ADMIN. */
static void prepare(const struct receiver *r, int fd)
{
    int yes = 1, size = r->buffer_bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)r->buffer_bytes;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_UDP, UDP_GRO, &yes, sizeof yes);
}

static int open_socket(struct receiver *r, struct br_error *error)
{
    r->fd = receiver_bind(r, prepare, error);
    if (r->fd < 0) return BR_E_IO;
    struct bundle *b = calloc(1, sizeof *b);
    if (b != NULL) b->memory = malloc((size_t)BATCH * ROOM);
    r->state = b;
    if (b == NULL || b->memory == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory to receive packets");
    for (unsigned i = 0; i < BATCH; i++) {
        b->piece[i] = (struct iovec){b->memory + (size_t)i * ROOM, ROOM};
        b->message[i].msg_hdr = (struct msghdr){.msg_iov = &b->piece[i], .msg_iovlen = 1};
    }
    return BR_OK;
}

static void look_at_control(struct receiver *r, struct msghdr *header, size_t *segment)
{
    struct bundle *b = r->state;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            uint32_t lost;
            memcpy(&lost, CMSG_DATA(c), sizeof lost);
            atomic_fetch_add_explicit(&r->kernel_lost, lost - b->lost, memory_order_relaxed);
            b->lost = lost;
        } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            *segment = size > 0 ? (size_t)size : 0;
        }
    }
}

static int step(struct receiver *r)
{
    struct bundle *b = r->state;
    for (unsigned i = 0; i < BATCH; i++) {
        b->message[i].msg_hdr.msg_control = b->control[i].bytes;
        b->message[i].msg_hdr.msg_controllen = sizeof b->control[i].bytes;
    }
    int n = recvmmsg(r->fd, b->message, BATCH, MSG_DONTWAIT, NULL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        struct pollfd wait = {.fd = r->fd, .events = POLLIN};
        poll(&wait, 1, RECEIVER_WAIT_MS);
        return 0;
    }
    if (n < 0) return errno;
    window_enter(r->window, r->thread);
    for (int i = 0; i < n; i++) {
        size_t segment = 0;
        look_at_control(r, &b->message[i].msg_hdr, &segment);
        receiver_take(r, b->piece[i].iov_base, b->message[i].msg_len, segment);
    }
    window_leave(r->thread);
    return 0;
}

static void close_socket(struct receiver *r)
{
    struct bundle *b = r->state;
    if (r->fd >= 0) close(r->fd);
    if (b != NULL) free(b->memory);
    free(b);
    r->fd = -1;
    r->state = NULL;
}

const struct receiver_way receiver_socket = {"socket", open_socket, step, close_socket};
