/* datagrams.h - packets of a stream to several destinations by UDP, at a steady rate. */
#ifndef BEAMRING_FORMATS_LINKS_DATAGRAMS_H
#define BEAMRING_FORMATS_LINKS_DATAGRAMS_H

#include "formats/links/host.h"
#include "formats/links/net.h"
#include "formats/links/token_bucket.h"

#include <sys/uio.h>

struct datagrams {
    /* the caller's */
    struct link_host host;
    struct token_bucket bucket; /* of all destinations: rate and burst in bytes of UDP payload */
    int buffer_bytes, multicast_hops;
    const char *multicast_interface;

    uint64_t given_up; /* packets that were not sent: the pipeline stopped, or there was no way */
    uint64_t stop_seen;
    struct datagram_batch *batch;
};

struct datagram_destination {
    const char *address; /* the caller's */
    struct net_address to;
    int fd;     /* -1: not open */
    bool whole; /* the system cannot cut messages into packets on the way there: each is a message */
    uint64_t sent, refused;
};

/* Memory for messages. Errors: BR_E_NO_MEMORY; datagrams_free follows in either case. */
int datagrams_create(struct datagrams *datagrams, struct br_error *error);
void datagrams_free(struct datagrams *datagrams);

/* Resolves the address and opens the socket. Errors: BR_E_INVALID, BR_E_IO; datagrams_close follows in either
 * case. */
int datagrams_open(const struct datagrams *datagrams, struct datagram_destination *destination,
                   struct br_error *error);
void datagrams_close(struct datagram_destination *destination);

/* Sends packets to one destination, and waits for the socket and the rate. Packets that cannot go are counted
 * in given_up. Errors: BR_E_IO. */
int datagrams_send(struct datagrams *datagrams, struct datagram_destination *destination,
                   const struct iovec *packet, size_t count, struct br_error *error);

#endif
