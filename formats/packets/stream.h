/* stream.h - the stream of packet-order frames, from their layout and what the pipeline's `stream:` says. */
#ifndef BEAMRING_FORMATS_PACKETS_STREAM_H
#define BEAMRING_FORMATS_PACKETS_STREAM_H

#include "buffers/hints.h"
#include "formats/packets/layout.h"

/* Reads the description `name` (packet_description_load) into `memory`. NULL: `error` says why. */
struct packet_description *packet_load(const char *name, struct packet_memory memory, struct br_error *error);

/* Fills in `out` except for the epoch. The sideband is the description's, which `hints` must not contradict
 * (hints.h). Errors: those of hints_sideband and packet_layout_describe. */
int packet_stream(const struct packet_layout *layout, const struct packet_description *packet,
                  const struct br_stream_hints *hints, struct packet_memory memory, struct br_stream *out,
                  struct br_error *error);

#endif
