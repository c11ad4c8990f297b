/* capture_port.h - for the benchmark of capture: one port of CRS packets, sent and received on this
 * machine, with frames that follow each other in memory larger than any cache. */
#ifndef BEAMRING_TOOLS_BENCH_CPU_CAPTURE_PORT_H
#define BEAMRING_TOOLS_BENCH_CPU_CAPTURE_PORT_H

#include "formats/packets/layout.h"
#include "stages/capture/receiver.h"

enum { PORT_FRAMES = 4, PORT_OPEN = 2, PORT_PIECES = 64 };

struct capture_port {
    struct packet_description *packet;
    struct packet_layout layout;
    struct br_stream stream;
    struct window window;
    struct receiver receiver;
    struct br_frame frame[PORT_FRAMES];
    int64_t given;  /* the next frame that gets memory */
    int sender;     /* a connected socket, or -1 */
    bool bundled;   /* several packets go out as one message, and may be received so */
    uint8_t *block; /* the packets of a block, [source][stream][bytes] */
    uint64_t sequence;
    void *piece[PORT_PIECES]; /* what descriptions are made of */
    unsigned npieces;
};

/* Everything that sends and receives; false with a message when the machine cannot. Close in any case. */
bool capture_port_open(struct capture_port *port, const struct receiver_way *way, bool bundled);
void capture_port_close(struct capture_port *port);

/* Sends the next blocks: a packet of every source and stream each. False when that fails. */
bool capture_port_send(struct capture_port *port, unsigned blocks);

/* The stage thread's work: closes frames that are done, and gives their memory to new ones. */
void capture_port_frames(struct capture_port *port);

/* Packets that were written into frames. */
uint64_t capture_port_accepted(const struct capture_port *port);

#endif
