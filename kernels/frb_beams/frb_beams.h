/* frb_beams.h - FRB stage 2, Eqs. (6), (7) of the FRB note (limits as corrected in its errata): beams
 * anywhere on the map of stage 1.
 *
 *   J[f][t][b] = sum_{0<=p<2M} sum_{0<=q<2N} U_p^M(theta_fb) U_q^N(theta'_fb) I[f][t][p][q]
 *   U_q^N(theta) = 1/N sum_{s=0}^{N} A_s cos(pi (2 theta - q) s / N),   A_s = 1/2 for s = 0 and N, else 1
 *
 * On request the incoherent sum is one beam more, or is subtracted from all beams: the mean over the map,
 *
 *   J_inc[f][t] = 1/4MN sum_{pq} I[f][t][p][q] = sum over dishes, polarisations and time of |W E|^2
 *
 * by Parseval, since stage 1 pads with as many zeros as there are cells.
 *
 * theta = M x spacing_m / lambda_f and theta' = N y spacing_n / lambda_f for a beam with direction cosines
 * (x, y). A negative spacing gives theta the other sign, as an upper sideband needs (docs/conventions.md).
 *
 * Which file computes it. A row applies where no row above it does; "grid" means beams_x x beams_y beams, and
 * the files are in kernels/frb_beams/:
 *
 *   backend       beams      shape and call                   architecture   file
 *   BR_REFERENCE  any        all                              host           reference.c (float64)
 *   BR_CPU        any        all                              AVX2 and FMA   cpu/cpu.c, rows.c (vectors)
 *   BR_CPU        any        all                              any host       cpu/cpu.c, rows.c (loops)
 *   BR_CUDA       any        params.float32                   any with room  gpu/fp32/arbitrary.cuh
 *   BR_CUDA       grid       2N = 24, 32, 40, 48, 2M <= 1024  any with room  gpu/mma/grid_whole.cuh
 *                            `in` a multiple of 16 bytes
 *   BR_CUDA       grid       all                              any GPU        gpu/mma/grid.cuh
 *   BR_CUDA       arbitrary  2N = 24, 32, 48, B a multiple    Hopper with    gpu/wgmma/arbitrary.cuh
 *                            of 8                             room
 *   BR_CUDA       arbitrary  all                              any GPU        gpu/mma/arbitrary.cuh
 *
 * Any GPU is one of compute capability 8.0 or newer, Hopper is 9.0; params.portable leaves out the rows of
 * grid_whole.cuh and of Hopper. "With room": a block may have the shared memory that the grid needs. That is
 * for float32 32 KiB and 520 bytes for each of 2M + 2N directions (where a block may not, create fails), and
 * for grid_whole.cuh three time steps of the field, U_p and one time step of beams. Ada (8.9) and Blackwell
 * (10.0, 12.0) take the rows for any GPU; a block of 8.6, 8.9 and 12.0 may have 99 KiB. gpu/launch.cu and
 * gpu/wgmma/launch.cu choose; docs/kernels.md says how each works. */
#ifndef BEAMRING_KERNELS_FRB_BEAMS_FRB_BEAMS_H
#define BEAMRING_KERNELS_FRB_BEAMS_FRB_BEAMS_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum br_frb_beams_incoherent { BR_INCOHERENT_NONE, BR_INCOHERENT_APPEND, BR_INCOHERENT_SUBTRACT };

struct br_frb_beams_params {
    size_t nchannels;                /* F */
    const double *freq_mhz;          /* [F] */
    unsigned grid_m, grid_n;         /* M, N */
    double spacing_m_m, spacing_n_m; /* metres, not 0; negative: see above */
    size_t nbeams;                   /* B */
    const double *beam;              /* [B][2] = x, y */
    /* B = beams_x * beams_y and beam (i, j) = i * beams_y + j has x from i, y from j only: use the
     * two-step product; 0, 0: arbitrary */
    size_t beams_x, beams_y;
    size_t max_steps;     /* the largest T of an execute, for scratch memory */
    bool steered;         /* br_frb_beams_steer may be called: room for the weights of two sets of beams */
    struct br_cuda *cuda; /* BR_CUDA: where its work goes; must live longer than the plan */
    bool portable;        /* BR_CUDA: the kernels for any GPU, also where there are others */
    bool float32;         /* BR_CUDA: weights and products in float32, any beams: 15 to 20 times slower */
    struct br_parallel parallel; /* BR_CPU: shares the work, by channels and time; may be zeroed */
    enum br_frb_beams_incoherent incoherent;
};

struct br_frb_beams;

/* U_q^N(theta) for 0 <= q < 2N, in double precision. */
void br_frb_beams_weights(double *u, unsigned n, double theta);

/* `*plan` is freed with br_frb_beams_destroy. Copies frequencies and beams. Returns -1 with `why` on a bad
 * parameter or no memory. */
int br_frb_beams_create(struct br_frb_beams **plan, enum br_backend backend,
                        const struct br_frb_beams_params *params, struct br_why *why);
void br_frb_beams_destroy(struct br_frb_beams *plan);

/* Points the beams somewhere else from step `first_step` on, counted from the first step of the next execute;
 * 0: all of it. `beam` as in the parameters: as many beams, on a grid if they were. Work that was enqueued or
 * computed before is not touched, and nothing waits: with BR_CUDA the new weights are made on the device, in
 * order with the rest, from one upload of at most 16 B bytes. Called again before it is due, it replaces what
 * was said. -1 with `why`: beams that are not so, or a plan not created `steered`. */
int br_frb_beams_steer(struct br_frb_beams *plan, const double *beam, size_t first_step, struct br_why *why);

/* T = nsteps <= max_steps:
 *
 * in        [F][T][2M][2N]  float16 bits
 * in_valid  [F][T]          0: not computed, its output is 0; NULL: all valid
 * out       [F][T][B]       float16 bits, clamped to +-65504; [F][T][B + 1] where the incoherent sum is
 *                           appended. Where it is subtracted, from the beam as float16 has it (the reference:
 *                           before it is rounded)
 *
 * Sums are float32 (float64 in the reference). With BR_CUDA in and out are device memory (multiples of 16
 * bytes; of 4 if `portable`); in_valid stays host memory and is read before this returns, with one upload of
 * F T bytes; the work is enqueued. Weights and intermediate values are float16 (unless float32 is asked for):
 * within 2e-3 relative rms of the reference. */
void br_frb_beams_execute(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                          size_t nsteps, uint16_t *out);

/* The same for steps first to first + count - 1 alone of the `nsteps` that in, in_valid and out hold. */
void br_frb_beams_execute_steps(struct br_frb_beams *plan, const uint16_t *in, const uint8_t *in_valid,
                                size_t nsteps, size_t first, size_t count, uint16_t *out);

/* From here on `plan` points its beams as `with` did, steered or not, and the other way round, without a
 * copy; what is enqueued already goes on with the weights that it had. Only where br_frb_beams_may_exchange
 * returns 0: plans of one shape, backend and precision; -1 with `why`. */
int br_frb_beams_may_exchange(const struct br_frb_beams *plan, const struct br_frb_beams *with,
                              struct br_why *why);
void br_frb_beams_exchange(struct br_frb_beams *plan, struct br_frb_beams *with);

#ifdef __cplusplus
}
#endif
#endif
