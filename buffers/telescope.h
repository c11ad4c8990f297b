/* telescope.h - the grid of dishes with which a stream was recorded. */
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
 * it. */
struct br_telescope {
    char name[64];
    unsigned grid_m, grid_n;         /* cells; no two dishes share one */
    double spacing_m_m, spacing_n_m; /* distance between cells along m and n, metres */
    unsigned ndishes;
    const struct br_dish *dishes;       /* [ndishes], in the order of the dish axis */
    double latitude_deg, longitude_deg; /* site; east positive; NAN when not given */
};

/* Metres per second; lambda [m] = BR_LIGHT_M_PER_S / (1e6 * freq_mhz). */
#define BR_LIGHT_M_PER_S 299792458.0

#ifdef __cplusplus
}
#endif
#endif
