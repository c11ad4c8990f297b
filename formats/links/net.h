/* net.h - sockets that never block: addresses, listening, connecting, UDP.
 *
 * Every socket made here is non-blocking and closed on exec; whoever uses one waits with poll and looks
 * between whether the pipeline stops. Errors name the address as the user wrote it. */
#ifndef BEAMRING_FORMATS_LINKS_NET_H
#define BEAMRING_FORMATS_LINKS_NET_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { NET_TEXT = 128 };

struct net_address {
    struct sockaddr_storage address;
    socklen_t length;
    char text[NET_TEXT];     /* as the user wrote it */
    char resolved[NET_TEXT]; /* "127.0.0.1:5000": the same for all ways of writing it */
};

/* "host:port", "[v6 address]:port", and ":port" or "*:port" for all addresses of this machine. `type` is
 * SOCK_STREAM or SOCK_DGRAM. Errors: BR_E_INVALID for any other text, BR_E_IO for a host that cannot be
 * resolved. */
int net_resolve(struct net_address *address, const char *text, int type, struct br_error *error);

/* True when the text has the form that net_resolve takes; asks nobody. */
bool net_is_address(const char *text);

/* A listening TCP socket; -1 on failure. Port 0 lets the system choose: net_port says which it was. Errors:
 * BR_E_IO (address in use, no right to it). */
int net_listen(const struct net_address *address, struct br_error *error);
unsigned net_port(int fd);

/* Begins to connect; the socket becomes writable when that ended, and net_connected says how. -1 on failure,
 * with errno. */
int net_connect(const struct net_address *address);

/* 0, or the errno of a connection attempt that failed. */
int net_connected(int fd);

/* A UDP socket for sending; `multicast_hops` and `multicast_interface` (an address of this machine, or NULL)
 * matter for multicast destinations only. -1 on failure. Errors: BR_E_IO. */
int net_udp_sender(const struct net_address *destination, int buffer_bytes, int multicast_hops,
                   const char *multicast_interface, struct br_error *error);

/* A UDP socket that receives what is sent to `address`, which may be a multicast group (joined on
 * `multicast_interface`, or where the system likes). -1 on failure. Errors: BR_E_IO. */
int net_udp_receiver(const struct net_address *address, int buffer_bytes, const char *multicast_interface,
                     struct br_error *error);

#endif
