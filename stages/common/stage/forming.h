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

/* The beams of a stream [freq][time][beam] of at most `max_steps` steps a frame, as a plan takes them; the
 * caller adds how they are made. Stage 1 transforms with exp(+2 pi i m theta / M), so that the field
 * exp(2 pi i s m x spacing / lambda) of a sideband of sign s peaks at theta = -s M x spacing / lambda. */
static inline struct br_frb_beams_params forming_params(const struct br_stream *beams, size_t max_steps)
{
    const struct br_telescope *t = beams->telescope;
    int sign = br_sideband_sign(beams->sideband);
    return (struct br_frb_beams_params){.nchannels = beams->nchannels,
                                        .freq_mhz = beams->freq_mhz,
                                        .grid_m = t->grid_m,
                                        .grid_n = t->grid_n,
                                        .spacing_m_m = -sign * t->spacing_m_m,
                                        .spacing_n_m = -sign * t->spacing_n_m,
                                        .nbeams = beams->nbeams,
                                        .beams_x = beams->beams_x,
                                        .beams_y = beams->beams_y,
                                        .max_steps = max_steps};
}

#endif
