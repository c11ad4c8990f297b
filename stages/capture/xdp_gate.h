/* xdp_gate.h - what picks packets out of an interface before the kernel's network stack sees them: an XDP
 * program that hands UDP packets of known addresses to AF_XDP sockets, by receive queue, and lets
 * everything else pass.
 *
 * An interface has one program, so the receivers of a stage that share an interface share a gate. All
 * functions are for one thread at a time. */
#ifndef BEAMRING_STAGES_CAPTURE_XDP_GATE_H
#define BEAMRING_STAGES_CAPTURE_XDP_GATE_H

#include "formats/links/net.h"

struct xdp_gate {
    unsigned index; /* of the interface */
    bool generic;   /* the driver cannot run the program: the kernel does, on its own copy of each packet */
    int addresses, sockets, program, link;
    unsigned users;
};

/* Attaches to an interface. Errors: BR_E_IO, naming the right, the kernel or the program that is in the
 * way. */
int xdp_gate_open(struct xdp_gate **gate, const char *interface, struct br_error *error);

/* Packets to this address (0.0.0.0: to any) and port go to the sockets from now on; packets of a queue
 * without a socket pass. BR_OK, or BR_E_IO with errors. */
int xdp_gate_add_address(struct xdp_gate *gate, const struct net_address *at, struct br_error *error);
int xdp_gate_add_socket(struct xdp_gate *gate, unsigned queue, int fd, struct br_error *error);

/* The last one detaches the program. */
void xdp_gate_leave(struct xdp_gate *gate);

#endif
