#include "kernels/frb_beams_quantize/frb_beams_quantize.h"

bool br_frb_beams_quantize_pays(unsigned grid_m, unsigned grid_n, size_t beams_x, size_t beams_y)
{
    size_t covered = (beams_x + 95) / 96 * 96 * ((beams_y + 31) / 32 * 32);
    return 2 * covered <= (grid_m == 24 && grid_n == 24 ? 4 : 3) * beams_x * beams_y;
}
