/* What frb_beams_quantize.h promises, in a build without CUDA. */
#include "kernels/frb_beams_quantize/frb_beams_quantize.h"

bool br_frb_beams_quantize_can(int device, unsigned grid_m, unsigned grid_n, size_t beams_x, size_t beams_y,
                               size_t block, struct br_why *why)
{
    (void)device, (void)grid_m, (void)grid_n, (void)beams_x, (void)beams_y, (void)block;
    br_because(why, "this beamring was built without CUDA");
    return false;
}

int br_frb_beams_quantize_create(struct br_frb_beams_quantize **plan, struct br_frb_beams *beams,
                                 struct br_quantize *levels, struct br_why *why)
{
    (void)beams, (void)levels;
    *plan = NULL;
    return br_because(why, "this beamring was built without CUDA");
}

void br_frb_beams_quantize_destroy(struct br_frb_beams_quantize *plan)
{
    (void)plan;
}

void br_frb_beams_quantize_execute(struct br_frb_beams_quantize *plan, const uint16_t *in, size_t in_stride,
                                   const uint8_t *in_valid, uint8_t *out, float *side)
{
    (void)plan, (void)in, (void)in_stride, (void)in_valid, (void)out, (void)side;
}
