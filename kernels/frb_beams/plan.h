/* plan.h - inside FRB stage 2. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_PLAN_H
#define BEAMRING_KERNELS_FRB_BEAMS_PLAN_H

#include "kernels/frb_beams/frb_beams.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One axis of the grid: n cells, 2n directions, and where the beams lie on it. */
struct axis {
    unsigned n;
    size_t nbeams;                 /* positions along this axis */
    size_t nbeams_even;            /* the same, rounded up to whole vectors; the rest have weight 0 */
    double *theta_mhz;             /* [nbeams]: theta at 1 MHz; theta grows with frequency */
    double *sine, *cosine, *twist; /* [nbeams_even]: scratch, see br_frb_beams_axis_weights */
};

struct br_frb_beams {
    enum br_backend backend;
    size_t nchannels, nbeams, beams_x, beams_y, max_steps; /* beams_x = 0: arbitrary directions */
    size_t cells;                                          /* 2M 2N */
    double *freq_mhz;
    struct axis m, n;

    /* cpu: see cpu.c */
    float *weights_m, *weights_n; /* of all channels, or of one when those would need too much memory */
    int weights_kept;
    int m_first;         /* factorizable: which axis is summed first */
    size_t tile;         /* time steps computed together */
    size_t block, depth; /* arbitrary: beams, and p's, whose weights are multiplied out together */
    float *field;        /* [tile][2M][2N]; this and the others with some zero rows at the end */
    float *middle;       /* factorizable: [tile][2M][n.nbeams_even] or [tile][beams_x][2N] */
    float *product;      /* arbitrary: [depth][2N][block] */
    float *beams;        /* [tile][beams_x][n.nbeams_even] or [tile][block] */
    size_t *step;        /* [tile]: the steps that are in it */
    void (*outer)(float *product, const float *u_m, const float *u_n, size_t np, size_t nq, size_t stride,
                  size_t block);

    /* cuda: see cuda.cu */
    struct br_cuda *cuda;
    struct br_frb_beams_gpu *gpu;
};

/* u[q][beam] in float32 from a closed form of Eq. (7), good to 1e-7. */
void br_frb_beams_axis_weights(float *u, const struct axis *axis, double freq_mhz);

int br_frb_beams_cpu_create(struct br_frb_beams *plan);
void br_frb_beams_cpu(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid, size_t nsteps,
                      uint16_t *out);
void br_frb_beams_cpu_destroy(struct br_frb_beams *plan);
void br_frb_beams_reference(const struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                            size_t nsteps, uint16_t *out);

int br_frb_beams_cuda_create(struct br_frb_beams *plan, struct br_why *why);
void br_frb_beams_cuda(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid, size_t nsteps,
                       uint16_t *out);
void br_frb_beams_cuda_destroy(struct br_frb_beams *plan);

#ifdef __cplusplus
}
#endif
#endif
