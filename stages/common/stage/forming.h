/* forming.h - what the struct of frb_beams begins with, for a stage that does its work too: it puts its own
 * plan there in `start` (br_stage_absorbed), and updates of the beams exchange with that one. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_FORMING_H
#define BEAMRING_STAGES_COMMON_STAGE_FORMING_H

#include "kernels/common/cuda.h"
#include "kernels/frb_beams/frb_beams.h"

struct forming {
    struct br_frb_beams *plan;
    struct br_cuda *cuda; /* of the plan; NULL on the CPU */
};

#endif
