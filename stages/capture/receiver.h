/* receiver.h - the threads that take packets from the network and put them into the window. */
#ifndef BEAMRING_STAGES_CAPTURE_RECEIVER_H
#define BEAMRING_STAGES_CAPTURE_RECEIVER_H

#include "formats/links/net.h"
#include "formats/packets/window.h"

#include <pthread.h>

enum { RECEIVER_WAIT_MS = 20 };

struct receiver {
    struct window *window;
    struct window_thread *thread;
    const struct receiver_way *way;
    struct net_address at;
    const char *interface;        /* NULL: any */
    unsigned member, members;     /* of the threads that share this address and interface */
    const struct receiver *peers; /* [npeers] all receivers of the stage, with their addresses; may be NULL */
    unsigned npeers;
    bool no_copy; /* open fails when the kernel would copy packets (for a way that is chosen for this only) */
    size_t buffer_bytes;
    int fd, guard;     /* guard: joins groups and keeps the kernel from refusing packets; -1: none */
    void *state;       /* of the way */
    bool without_copy; /* the kernel copies nothing */
    unsigned index;    /* of the interface, when it was opened; 0: any */
    pthread_t id;
    bool running;
    _Atomic bool stop;
    _Atomic uint64_t packets, kernel_lost, fragments; /* kernel_lost: a bundle counts as one */
    struct {
        _Atomic uint64_t dropped, ring_full, fill_empty;
    } xdp;             /* what XDP_STATISTICS says of kernel_lost, and how often no free chunk was there */
    _Atomic int broke; /* errno for which nothing comes; 0: none */
};

/* One way in. */
struct receiver_way {
    const char *name;
    /* Opens everything. Errors: BR_E_IO, naming the right that is missing. */
    int (*open)(struct receiver *receiver, struct br_error *error);
    /* Waits up to RECEIVER_WAIT_MS for packets and puts what came into the window. 0, or an errno. */
    int (*step)(struct receiver *receiver);
    void (*close)(struct receiver *receiver);
};
extern const struct receiver_way receiver_socket, receiver_packet, receiver_xdp;

/* A UDP socket that is bound (and joined to the group, if the address is one) like the socket way's.
 * `prepare` sets its options before that: packets come from then on. -1 with errors: BR_E_IO. */
int receiver_bind(const struct receiver *receiver, void (*prepare)(const struct receiver *receiver, int fd),
                  struct br_error *error);

/* For ways beside the kernel's UDP: a socket like the above that takes nothing, so that the kernel does
 * not answer "port unreachable" and the group is joined. -1 with errors: BR_E_IO. */
int receiver_open_guard(const struct receiver *receiver, struct br_error *error);

/* Starts and ends the thread. Errors: BR_E_NO_MEMORY. */
int receiver_start(struct receiver *receiver, struct br_error *error);
void receiver_stop(struct receiver *receiver);

/* An IPv4 packet with UDP in it. A fragment is counted as such; its payload goes on if it is the first.
 * Unless the kernel or the NIC has looked at the checksum (`checked`) this does; a packet with a wrong one
 * is malformed. */
void receiver_take_ip(struct receiver *receiver, const uint8_t *ip, size_t length, bool checked);

/* A UDP payload, or several of the description's length in one, as offloads hand them on. */
void receiver_take(struct receiver *receiver, const uint8_t *bytes, size_t length, size_t segment);

#endif
