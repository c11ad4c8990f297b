/* xdp_queue.h - one AF_XDP socket: a receive queue of an interface, and memory that it shares with the
 * kernel.
 *
 * Memory is divided into chunks. The kernel takes free chunks from the fill ring, writes packets into them
 * (one that is longer than a chunk into several), and says so in the receive ring; we give chunks back. */
#ifndef BEAMRING_STAGES_CAPTURE_XDP_QUEUE_H
#define BEAMRING_STAGES_CAPTURE_XDP_QUEUE_H

#include "buffers/error.h"

#include <linux/if_xdp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xdp_ring {
    void *map;
    size_t bytes;
    uint32_t *producer, *consumer, *flags;
    void *entry;
    uint32_t mask, at; /* at: ours */
};

struct xdp_queue {
    int fd;
    unsigned number;
    const char *interface;
    uint8_t *memory;
    size_t bytes;
    uint32_t chunks;
    struct xdp_ring rx, fill;
    bool without_copy;           /* the NIC writes into our memory itself */
    struct xdp_statistics known; /* at the last xdp_queue_look */
};

/* How packets get into our memory: as the driver can; by a copy; without one, or it fails. */
enum xdp_copying { XDP_AS_IT_CAN, XDP_BY_COPY, XDP_NO_COPY };

/* Socket, memory (of about `bytes`) and rings, bound to a queue. Errors: BR_E_IO, saying what is missing;
 * BR_E_NO_MEMORY. xdp_queue_close in any case, also of a queue that is all zero but its fd of -1. */
int xdp_queue_open(struct xdp_queue *queue, const char *interface, unsigned number, size_t bytes,
                   enum xdp_copying copying, struct br_error *error);
void xdp_queue_close(struct xdp_queue *queue);

/* Chunks with packets that the kernel has written. */
static inline uint32_t xdp_queue_filled(const struct xdp_queue *q)
{
    return __atomic_load_n(q->rx.producer, __ATOMIC_ACQUIRE) - q->rx.at;
}

/* The k-th of them. */
static inline const struct xdp_desc *xdp_queue_chunk(const struct xdp_queue *q, uint32_t k)
{
    return (const struct xdp_desc *)q->rx.entry + ((q->rx.at + k) & q->rx.mask);
}

/* The first n of them are free again. After xdp_queue_hand_back the kernel knows. */
void xdp_queue_free(struct xdp_queue *queue, uint32_t n);
void xdp_queue_hand_back(struct xdp_queue *queue);

/* The first of a receiver's queues (receiver_xdp, open), for a measurement beside it. */
struct receiver;
struct xdp_queue *xdp_queue_of(const struct receiver *receiver);

/* The losses since the last call. */
struct xdp_statistics xdp_queue_look(struct xdp_queue *queue);

#endif
