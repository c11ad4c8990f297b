/* receive.h - inside the stage: its parameters, and what they say will come. */
#ifndef BEAMRING_STAGES_RECEIVE_RECEIVE_H
#define BEAMRING_STAGES_RECEIVE_RECEIVE_H

#include "formats/links/receiver.h"
#include "runtime/stage.h"
#include "stages/common/stage/finite.h"

struct range_param {
    int64_t first, count;
};

struct receive {
    /* parameters */
    const char *format, *address, *document, *multicast_interface, *coding, *array;
    int64_t nbeams, downsample, factor;
    int64_t window, receive_buffer, nupfreq, steps, counts_per_sample, frame_samples, max_frame_bytes;
    double handshake_s, hold_s, idle_s;
    bool until_closed;
    const struct range_param *beams, *channels;

    const struct receive_wire *wire;
    struct receiver *state;
    struct wire_counts told; /* what was reported as lost already */
    bool started;
    struct finite finite;
};

/* Checks the parameters of a format, describes the output by them, and sets what r->state expects. Status. */
int expect_frb_node(struct br_stage *stage, struct receive *r);
int expect_chime_l0(struct br_stage *stage, struct receive *r);
int expect_kotekan(struct br_stage *stage, struct receive *r);

/* Memory for what will come. Status. */
int prepare_frb_node(struct br_stage *stage, struct receive *r);
int prepare_chime_l0(struct br_stage *stage, struct receive *r);

#endif
