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
    size_t nbeams;          /* positions along this axis */
    size_t nbeams_even;     /* the same, rounded up to whole vectors; the rest have weight 0 */
    double *theta_mhz;      /* [nbeams]: theta at 1 MHz; theta grows with frequency */
    double *next_theta_mhz; /* [nbeams]: of the beams to come */
};

/* The memory of one worker on the CPU; all with some zero rows at the end. */
struct frb_beams_scratch {
    float *weights_m, *weights_n; /* of one channel, where those of all would need too much memory */
    float *field;                 /* [tile][2M][2N] */
    float *middle;                /* factorizable: [tile][2M][n.nbeams_even] or [tile][beams_x][2N] */
    float *product;               /* arbitrary: [depth][2N][block] */
    float *rows_m;                /* factorizable: [beams_x][2M] weights */
    float *beams;                 /* [tile][beams_x][n.nbeams_even] or [tile][block] */
    size_t *step;                 /* [tile]: the steps that are in it */
    double *angles;               /* [3][nbeams_even of either axis]: see br_frb_beams_axis_weights */
};

struct br_frb_beams {
    enum br_backend backend;
    size_t nchannels, nbeams, beams_x, beams_y, max_steps; /* beams_x = 0: arbitrary directions */
    size_t cells;                                          /* 2M 2N */
    double *freq_mhz;
    struct axis m, n;
    double spacing_m_m, spacing_n_m;
    bool steered, portable, float32; /* as in the parameters */
    bool steering;                   /* next_theta_mhz is valid from step steer_at of the next execute on */
    size_t steer_at;

    /* cpu: see cpu.c */
    float *weights_m, *weights_n; /* of all channels, if they are kept */
    int weights_kept;
    int m_first;         /* factorizable: which axis is summed first */
    size_t tile;         /* time steps computed together */
    size_t block, depth; /* arbitrary: beams, and p's, whose weights are multiplied out together */
    enum br_frb_beams_incoherent incoherent;
    size_t pitch; /* from a step to the next one in what the kernels write: B, or B + 1 */
    struct br_parallel parallel;
    unsigned nscratch;
    struct frb_beams_scratch *scratch; /* [nscratch]: of a worker */
    void (*outer)(float *product, const float *u_m, const float *u_n, size_t np, size_t nq, size_t stride,
                  size_t block);

    /* cuda: see gpu/launch.cu */
    struct br_cuda *cuda;
    struct br_frb_beams_gpu *gpu;
    uint16_t *apart; /* [F][max_steps][B]: beams of a kernel that cannot write rows of B + 1; or NULL */
};

/* u[q][beam] in float32 from a closed form of Eq. (7), good to 1e-7. `angles` is scratch, [3][nbeams]. */
void br_frb_beams_axis_weights(float *u, const struct axis *axis, double freq_mhz, double *angles);

/* The steps that an execute forms with one set of beams: `count` of them, `stride` in memory from a channel
 * to the next. */
struct span {
    const uint16_t *in;
    const uint8_t *valid; /* or NULL; with BR_CUDA on the device */
    uint16_t *out;
    size_t count, stride;
};

int br_frb_beams_cpu_create(struct br_frb_beams *plan);
void br_frb_beams_cpu(struct br_frb_beams *plan, const struct span *span);
void br_frb_beams_cpu_steer(struct br_frb_beams *plan); /* theta_mhz has changed; the threads share it */
void br_frb_beams_cpu_destroy(struct br_frb_beams *plan);
void br_frb_beams_reference(const struct br_frb_beams *plan, const struct span *span);

/* The incoherent sum beside or off what was formed of all steps; for BR_CPU. */
void br_frb_beams_cpu_incoherent(const struct br_frb_beams *plan, const struct span *span);

int br_frb_beams_cuda_create(struct br_frb_beams *plan, struct br_why *why);
/* Starts an execute: brings the validity of all its steps (or NULL) to the device. False after a failure,
 * which is kept. */
bool br_frb_beams_cuda_begin(struct br_frb_beams *plan, const uint8_t *in_valid, size_t nsteps,
                             const uint8_t **valid);
void br_frb_beams_cuda(struct br_frb_beams *plan, const struct span *span);
/* The same on a GPU. Where the sum is appended, most kernels form beams in memory of the plan's own, for
 * which the first function makes room; the second one copies them to `out`. */
int br_frb_beams_cuda_make_room(struct br_frb_beams *plan, struct br_why *why);
void br_frb_beams_cuda_incoherent(struct br_frb_beams *plan, const struct span *span, uint16_t *out);
void br_frb_beams_cuda_steer(
    struct br_frb_beams *plan); /* enqueues the making of the weights of next_theta_mhz */
void br_frb_beams_cuda_switch(struct br_frb_beams *plan); /* to these weights */
/* Whether both have weights of one form; and the exchange of these. */
bool br_frb_beams_cuda_alike(const struct br_frb_beams *a, const struct br_frb_beams *b);
void br_frb_beams_cuda_exchange(struct br_frb_beams *a, struct br_frb_beams *b);
void br_frb_beams_cuda_destroy(struct br_frb_beams *plan);

#ifdef __cplusplus
}
#endif
#endif
