/* xdp_queue.c - see xdp_queue.h. */
#include "stages/capture/xdp_queue.h"

#include "buffers/clock.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef XDP_USE_SG /* Linux 6.6: packets in several chunks */
#define XDP_USE_SG (1 << 4)
#endif

/* 4096 bytes are the most that ordinary memory allows. */
enum { CHUNK = 4096, LEAST_CHUNKS = 512, UNUSED_CHUNKS = 2 };
#define RELEASE_NS ((uint64_t)1000000000)

static int fail(const struct xdp_queue *q, const char *what, struct br_error *error)
{
    const char *advice = "";
    if (errno == EPERM || errno == EACCES) advice = "; it takes CAP_NET_RAW";
    if (errno == ENOBUFS) advice = "; it takes CAP_IPC_LOCK, or more locked memory (`ulimit -l`)";
    if (errno == EAFNOSUPPORT) advice = "; this kernel has no AF_XDP";
    return br_fail(error, BR_E_IO, "cannot %s for queue %u of %s: %s%s", what, q->number, q->interface,
                   strerror(errno), advice);
}

static int map_ring(struct xdp_queue *q, struct xdp_ring *ring, const struct xdp_ring_offset *offset,
                    size_t entry, off_t at)
{
    ring->bytes = offset->desc + q->chunks * entry;
    uint8_t *map = mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, q->fd, at);
    if (map == MAP_FAILED) return -1;
    ring->map = map;
    ring->producer = (uint32_t *)(void *)(map + offset->producer);
    ring->consumer = (uint32_t *)(void *)(map + offset->consumer);
    ring->flags = (uint32_t *)(void *)(map + offset->flags);
    ring->entry = map + offset->desc;
    ring->mask = q->chunks - 1;
    return 0;
}

/* A queue that nobody sends from must have a completion ring even so. */
static int set_rings(struct xdp_queue *q)
{
    struct xdp_mmap_offsets offsets;
    socklen_t size = sizeof offsets;
    int unused = UNUSED_CHUNKS, n = (int)q->chunks;
    if (setsockopt(q->fd, SOL_XDP, XDP_UMEM_FILL_RING, &n, sizeof n) != 0 ||
        setsockopt(q->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &unused, sizeof unused) != 0 ||
        setsockopt(q->fd, SOL_XDP, XDP_RX_RING, &n, sizeof n) != 0 ||
        getsockopt(q->fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &size) != 0)
        return -1;
    if (map_ring(q, &q->rx, &offsets.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING) != 0) return -1;
    return map_ring(q, &q->fill, &offsets.fr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_FILL_RING);
}

static int bind_queue(struct xdp_queue *q, enum xdp_copying copying, struct br_error *error)
{
    static const unsigned mode[] = {0, XDP_COPY, XDP_ZEROCOPY};
    struct xdp_options options = {0};
    socklen_t size = sizeof options;
    struct sockaddr_xdp to = {.sxdp_family = AF_XDP,
                              .sxdp_flags = (uint16_t)(mode[copying] | XDP_USE_SG | XDP_USE_NEED_WAKEUP),
                              .sxdp_ifindex = if_nametoindex(q->interface),
                              .sxdp_queue_id = q->number};
    /* The kernel releases a queue a little after its receiver has ended, as before a restart. */
    const uint64_t until = br_clock_ns() + RELEASE_NS;
    while (bind(q->fd, (const struct sockaddr *)(const void *)&to, sizeof to) != 0) {
        if (errno == EBUSY && br_clock_ns() < until) {
            usleep(5000);
            continue;
        }
        if (copying == XDP_NO_COPY && errno == EOPNOTSUPP)
            return br_fail(error, BR_E_IO,
                           "the driver of %s hands packets over by a copy: `packet` costs less",
                           q->interface);
        if (errno == EINVAL)
            return br_fail(error, BR_E_IO, "packets in fragments on %s take Linux 6.6", q->interface);
        if (errno == EBUSY)
            return br_fail(error, BR_E_IO, "queue %u of %s has a receiver already", q->number, q->interface);
        return fail(q, "receive", error);
    }
    q->without_copy = getsockopt(q->fd, SOL_XDP, XDP_OPTIONS, &options, &size) == 0 &&
                      (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
    return BR_OK;
}

int xdp_queue_open(struct xdp_queue *q, const char *interface, unsigned number, size_t bytes,
                   enum xdp_copying copying, struct br_error *error)
{
    *q = (struct xdp_queue){.interface = interface, .number = number, .chunks = LEAST_CHUNKS};
    while ((size_t)q->chunks * 2 * CHUNK <= bytes) q->chunks *= 2;
    q->bytes = (size_t)q->chunks * CHUNK;
    q->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (q->fd < 0) return fail(q, "open an AF_XDP socket", error);
    void *memory = mmap(NULL, q->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return br_fail(error, BR_E_NO_MEMORY, "no memory to receive packets: %zu bytes", q->bytes);
    q->memory = memory;
    madvise(memory, q->bytes, MADV_HUGEPAGE);
    struct xdp_umem_reg umem = {.addr = (uintptr_t)memory, .len = q->bytes, .chunk_size = CHUNK};
    if (setsockopt(q->fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem) != 0)
        return fail(q, "share memory", error);
    if (set_rings(q) != 0) return fail(q, "make rings", error);
    for (uint32_t i = 0; i < q->chunks; i++) ((uint64_t *)q->fill.entry)[i] = (uint64_t)i * CHUNK;
    q->fill.at = q->chunks;
    xdp_queue_hand_back(q);
    return bind_queue(q, copying, error);
}

void xdp_queue_close(struct xdp_queue *q)
{
    if (q->rx.map != NULL) munmap(q->rx.map, q->rx.bytes);
    if (q->fill.map != NULL) munmap(q->fill.map, q->fill.bytes);
    if (q->fd >= 0) close(q->fd);
    if (q->memory != NULL) munmap(q->memory, q->bytes);
    *q = (struct xdp_queue){.fd = -1};
}

void xdp_queue_free(struct xdp_queue *q, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        ((uint64_t *)q->fill.entry)[q->fill.at++ & q->fill.mask] =
            xdp_queue_chunk(q, k)->addr / CHUNK * CHUNK;
    q->rx.at += n;
}

void xdp_queue_hand_back(struct xdp_queue *q)
{
    __atomic_store_n(q->rx.consumer, q->rx.at, __ATOMIC_RELEASE);
    __atomic_store_n(q->fill.producer, q->fill.at, __ATOMIC_RELEASE);
    if ((__atomic_load_n(q->fill.flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP) != 0)
        recvfrom(q->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

struct xdp_statistics xdp_queue_look(struct xdp_queue *q)
{
    struct xdp_statistics now = q->known, lost = {0};
    socklen_t size = sizeof now;
    if (getsockopt(q->fd, SOL_XDP, XDP_STATISTICS, &now, &size) != 0) return lost;
    lost.rx_dropped = now.rx_dropped - q->known.rx_dropped;
    lost.rx_ring_full = now.rx_ring_full - q->known.rx_ring_full;
    lost.rx_fill_ring_empty_descs = now.rx_fill_ring_empty_descs - q->known.rx_fill_ring_empty_descs;
    q->known = now;
    return lost;
}
