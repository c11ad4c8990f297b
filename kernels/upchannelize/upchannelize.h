/* upchannelize.h - polyphase filterbank that splits each coarse channel into U fine ones.
 *
 *   Ebar[tbar][f][u][x] = Q( G[u] sum_{s=0}^{MU-1} W[s] e^{+i pi s (U-1)/U} e^{-2 i pi u s / U} E[(tbar-M+1)U
 * + s][f][x] )
 *
 * with x = (pol, dish) a spectator and Q = round half to even, then clamp to [-7, 7]. Fine channel u of
 * coarse channel c is centred at c + (u - (U-1)/2)/U coarse widths. Default window: y = (s -
 * (MU-1)/2)/(MU+1), W[s] = cos^2(pi y) sinc(M y)/U, sinc(z) = sin(pi z)/(pi z). U = 1 copies the input.
 *
 * A plan keeps the last M-1 blocks of input, so that the length of a call never changes a result by a bit. An
 * output whose window touches a missing input sample of its coarse channel, or input from before the stream
 * began, is missing: validity 0 and bytes 0x88 (-8, -8). For U = 1 nothing is lost: data and validity are
 * copied.
 *
 * With BR_CUDA e and out are device memory, validity is host memory, the history stays on the device, and
 * execute enqueues its work on the stream of params.cuda; an execute that makes outputs missing uploads
 * nsteps/U * F bytes (br_cuda_create is told). The number of clamped components is added to br_cuda_counter.
 * Where X is a multiple of 64, M at most 8 (4 for U of 32 and more) and the gain not so large that most
 * outputs are clamped, it computes in float16 on tensor cores: levels may differ by one where the unrounded
 * value is within a few thousandths of a half level; elsewhere in float32. Fastest where e, row
 * and out are multiples of 16. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_H
#define BEAMRING_KERNELS_UPCHANNELIZE_H

#include "kernels/common/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_cuda;

struct br_upchannelize_params {
    size_t nchannels;     /* coarse channels F */
    size_t nspectators;   /* pol x dish, X */
    unsigned factor;      /* U: 1, 2, 4, ... 128 */
    unsigned taps;        /* M: 1 to 32 */
    const double *window; /* [M U] or NULL for the default */
    const double *gain;   /* [U] or NULL for sqrt(U) */
    struct br_cuda
        *cuda;     /* BR_CUDA: where its work goes; must live longer than the plan. Not used otherwise */
    bool portable; /* BR_CUDA: the kernels for any GPU, also where there are others */
};

struct br_upchannelize;

/* `*plan` is freed with br_upchannelize_destroy. Copies window and gain. Returns -1 with `why` on a bad
 * parameter or no memory. */
int br_upchannelize_create(struct br_upchannelize **plan, enum br_backend backend,
                           const struct br_upchannelize_params *params, struct br_why *why);
void br_upchannelize_destroy(struct br_upchannelize *plan);

/* Forgets the history: the next input starts a stream (or follows a hole in it). */
void br_upchannelize_reset(struct br_upchannelize *plan);

/* The same where the next input is output step `at` of something that is cut into streams elsewhere at
 * another time: a GPU groups its sums by `at` modulo 16, and with it results do not depend on the cuts by a
 * bit. */
void br_upchannelize_reset_at(struct br_upchannelize *plan, uint64_t at);

/* Whether all outputs of the next execute are valid if all its input is. */
int br_upchannelize_whole(const struct br_upchannelize *plan);

/* e         [nsteps][row] bytes int4x2, of which this plan's channels are the first F*X bytes of each row
 * (row >= F*X) e_valid   [nsteps][valid_row] 0 or not, first F of each row; NULL: all valid nsteps    a
 * multiple of U out       [nsteps/U][F*U][X] int4x2 out_valid [nsteps/U][F*U], 0 or 255; NULL: not wanted
 * Returns the number of output components (re, im) that were clamped; 0 with BR_CUDA. */
uint64_t br_upchannelize_execute(struct br_upchannelize *plan, const uint8_t *e, size_t row,
                                 const uint8_t *e_valid, size_t valid_row, size_t nsteps, uint8_t *out,
                                 uint8_t *out_valid);

/* The same for each of several plans of one backend (zones of a band), of which no one reads what another
 * writes: on a GPU they run beside each other, many of them in one launch, and upload what they all need
 * together (br_cuda_create is told). */
struct br_upchannelize_call {
    struct br_upchannelize *plan;
    const uint8_t *e;
    size_t row;
    const uint8_t *e_valid;
    size_t valid_row, nsteps;
    uint8_t *out, *out_valid;
};
uint64_t br_upchannelize_execute_all(const struct br_upchannelize_call *calls, size_t count);

/* The default window, [M U]. */
void br_upchannelize_window(double *window, unsigned factor, unsigned taps);

#ifdef __cplusplus
}
#endif
#endif
