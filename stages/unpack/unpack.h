/* unpack.h - inside the stage: its parameters, and which position each input gets. */
#ifndef BEAMRING_STAGES_UNPACK_UNPACK_H
#define BEAMRING_STAGES_UNPACK_UNPACK_H

#include "formats/packets/layout.h"
#include "kernels/unpack/unpack.h"
#include "runtime/stage.h"

enum { UNPACK_PLANS = 64 };

struct unpack {
    /* parameters */
    const char *order;
    struct br_ints positions;
    int64_t pols, sums, threads;

    const struct packet_layout *layout;
    size_t npol, ndish;

    /* the inputs that have a position, in the packets' order */
    size_t ninputs;
    size_t *input_offset;   /* [ninputs] */
    uint32_t *input_source; /* [ninputs] */
    uint32_t *position;     /* [ninputs]: pol x ndish + dish */

    struct br_cuda *cuda; /* NULL on the CPU */
    struct br_unpack *plan[UNPACK_PLANS];
    unsigned nplans;
};

/* Fills in npol, ndish and the inputs' tables. Status; a failure is the stage's and names the parameter. */
int unpack_place_inputs(struct br_stage *stage, struct unpack *u);

#endif
