/* A module with a copy of the kernels of its own, as every plugin has. */
#include "kernels/frb_grid/frb_grid.h"

__attribute__((visibility("default"))) int plan_and_destroy(void);

/* Makes a plan of the FRB grid on the CPU, which plans two transforms, and destroys it. */
int plan_and_destroy(void)
{
    const uint16_t cells[] = {0, 0, 1, 2, 3, 1};
    const struct br_frb_grid_params params = {.nchannels = 1,
                                              .npol = 1,
                                              .ndishes = 3,
                                              .grid_m = 4,
                                              .grid_n = 4,
                                              .dish_cell = cells,
                                              .downsample = 1};
    struct br_frb_grid *plan;
    struct br_why why;
    if (br_frb_grid_create(&plan, BR_CPU, &params, &why) != 0) return -1;
    br_frb_grid_destroy(plan);
    return 0;
}
