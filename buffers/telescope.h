/* telescope.h - the dishes with which a stream was recorded, and where they stand. */
#ifndef BEAMRING_BUFFERS_TELESCOPE_H
#define BEAMRING_BUFFERS_TELESCOPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_dish {
    uint16_t m, n; /* cell of the grid: m runs north-south, n east-west */
};

/* Plain data. Its creator owns it (in a pipeline, the runtime) and must not change it while streams point to
 * it. Dishes on a grid have a cell and a position, those of any other array only a position. */
struct br_telescope {
    char name[64];
    unsigned grid_m, grid_n;         /* cells; no two dishes share one; 0 without a grid */
    double spacing_m_m, spacing_n_m; /* distance between cells along m and n, metres; NAN without a grid */
    unsigned ndishes;
    const struct br_dish *dishes; /* [ndishes], in the order of the dish axis; NULL without a grid */
    const double (*position)[3];  /* [ndishes] east, north, up, metres; of a grid: from its cell (0, 0) */
    double latitude_deg, longitude_deg; /* site; east positive; NAN when not given */
    double height_m;                    /* of the site above the WGS84 ellipsoid; NAN when not given */
    const char *eop; /* path of the IERS's file of the Earth's orientation; NULL when not given */
};

/* Metres per second; lambda [m] = BR_LIGHT_M_PER_S / (1e6 * freq_mhz). */
#define BR_LIGHT_M_PER_S 299792458.0

#ifdef __cplusplus
}
#endif
#endif
