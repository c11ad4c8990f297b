/* receive.h - inside the stage: its parameters, and one set of callbacks per format. */
#ifndef BEAMRING_STAGES_RECEIVE_RECEIVE_H
#define BEAMRING_STAGES_RECEIVE_RECEIVE_H

#include "formats/links/assembly.h"
#include "formats/links/net.h"
#include "runtime/stage.h"
#include "stages/common/stage/finite.h"

struct range_param {
    int64_t first, count;
};

struct receive;

struct receive_format {
    const char *name;
    size_t bytes; /* of its state and buffers, whatever the stream */
    int (*configure)(struct br_stage *stage, struct receive *r);
    int (*start)(struct br_stage *stage, struct receive *r);
    /* Waits up to `ms`. Status. */
    int (*step)(struct br_stage *stage, struct receive *r, int ms);
    /* Fills the frame if there is one to hand on: 1, else 0, or a status. `flush`: what is there, complete or
     * not. */
    int (*fill)(struct br_stage *stage, struct receive *r, struct br_frame *out, bool flush);
    bool (*connected)(const struct receive *r);
    void (*stop)(struct receive *r);
};
extern const struct receive_format frb_node_input, chime_l0_input, kotekan_input;

struct receive {
    /* parameters */
    const char *format, *address, *document, *multicast_interface, *coding, *array;
    int64_t nbeams, downsample, factor;
    int64_t window, receive_buffer, nupfreq, steps, counts_per_sample, frame_samples, max_frame_bytes;
    double handshake_s, hold_s, idle_s;
    bool until_closed;
    const struct range_param *beams, *channels;

    const struct receive_format *wire;
    const struct wire_counts *counts;
    struct wire_counts told; /* what was reported as lost already */
    struct net_address at;
    uint64_t heard_ns; /* when the last frame's worth of data came, or the stage began */
    uint64_t changed;  /* pieces counted by then */
    bool started;
    struct finite finite;
    char complaint[WIRE_COMPLAINT];
    void *state;
};

#endif
