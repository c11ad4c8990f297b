/* frb_grid_autocorr_1d.h - the variants of the kernel of FRB stage 1 for grids of 12 to 24 cells each way,
 * for the two files that check them: frb_grid_autocorr_1d.c its accesses, frb_grid_autocorr_1d_sums.c what
 * comes out. */
#ifndef BEAMRING_TOOLS_LAYOUTS_FRB_GRID_AUTOCORR_1D_H
#define BEAMRING_TOOLS_LAYOUTS_FRB_GRID_AUTOCORR_1D_H

#include "kernels/common/fragments.h"
#include "kernels/frb_grid/gpu/autocorr_1d/layout.h"
#include "tools/layouts/check.h"

enum { K = 8, QW = 4 };

/* A variant of the kernel: rows of cells of a warp, warps that multiply. */
struct grid {
    unsigned M, N, MT, NT, rows, warps;
};

/* Calls `check` for all variants of all grids. */
static inline void for_grids(struct layouts *report, void (*check)(struct layouts *, const struct grid *))
{
    static const unsigned variants[][4] = {{2, 2, 4, 8}, {2, 3, 2, 10}, {2, 3, 2, 12}, {3, 3, 3, 12}};
    for (unsigned M = 12; M <= 24; M += 4)
        for (unsigned N = 12; N <= 24; N += 4)
            for (unsigned i = 0; i < 4; i++) {
                const unsigned *v = variants[i];
                const struct grid g = {M, N, v[0], v[1], v[2], v[3]};
                if ((M + 7) / 8 != g.MT || (N + 7) / 8 != g.NT || g.warps * QW < 2 * N) continue;
                layouts_variant(report, "%u x %u cells, %u rows a warp, %u warps of %d directions", M, N,
                                g.rows, g.warps, QW);
                check(report, &g);
            }
}

/* The cell m of eight and the sample of a row of wgmma's factors. */
static inline unsigned row_m(unsigned row)
{
    return row % 8;
}

static inline unsigned row_sample(unsigned row)
{
    return row / 16 + row / 8 % 2 * 4;
}

#endif
