/* stream.h - the stream of packet-order frames, from their layout and what the pipeline's `stream:` says. */
#ifndef BEAMRING_STAGES_COMMON_PACKETS_STREAM_H
#define BEAMRING_STAGES_COMMON_PACKETS_STREAM_H

#include "formats/packets/layout.h"
#include "runtime/stage.h"

/* br_stage_alloc as memory for descriptions and layouts. */
struct packet_memory packet_stage_memory(struct br_stage *stage);

/* Reads a description into the stage's memory; NULL after saying at the parameter `packet` what is wrong. */
struct packet_description *packet_stage_load(struct br_stage *stage, const char *name);

/* Fills in output 0 but for the epoch. The sideband is the description's, which `stream:` must not contradict
 * (hints.h). Status; the failure is the stage's. */
int packet_stage_stream(struct br_stage *stage, const struct packet_layout *layout,
                        const struct packet_description *packet, struct br_stream *out);

#endif
