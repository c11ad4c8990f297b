/* packet.h - packet descriptions and their streams for stages: formats/packets with the stage's memory and
 * errors. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_PACKET_H
#define BEAMRING_STAGES_COMMON_STAGE_PACKET_H

#include "formats/packets/stream.h"
#include "runtime/stage.h"

/* br_stage_alloc as memory for descriptions and layouts. */
struct packet_memory packet_stage_memory(struct br_stage *stage);

/* packet_load; NULL after an error at the parameter `packet`. */
struct packet_description *packet_stage_load(struct br_stage *stage, const char *name);

/* packet_stream with the pipeline's `stream:`. */
int packet_stage_stream(struct br_stage *stage, const struct packet_layout *layout,
                        const struct packet_description *packet, struct br_stream *out);

/* Where in [pol][dish] the inputs of packets go: `positions` says it, else the packets, else `order`. */
struct packet_places {
    struct br_ints positions; /* parameters; count 0: not given */
    const char *order;
    size_t npol, ndish;
};
extern const char *const packet_orders[]; /* "pol_dish", "dish_pol", NULL */

/* The position pol x ndish + dish of every input, [ninputs]; -1: it is not a dish. NULL after an error at
 * `order` or `positions`. */
const int64_t *packet_place_inputs(struct br_stage *stage, const struct packet_layout *layout,
                                   const struct packet_places *places);

#endif
