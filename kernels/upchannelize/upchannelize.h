/* upchannelize.h - polyphase filterbank that splits each coarse channel into U fine ones.
 *
 *   Ebar[T][f][u][x] = Q( G[u] sum_s W[s] e^{i pi s (U-1)/U} e^{-2 i pi u s/U} E[(T-M+1)U + s][f][x] )
 *
 * summed over s = 0 to MU-1, with x = (pol, dish) a spectator and Q = round half to even, then clamp to [-7,
 * 7]. Fine channel u of coarse channel c is centred at c + (u - (U-1)/2)/U coarse widths. Default window:
 *
 *   W[s] = cos^2(pi y) sinc(M y)/U,   y = (s - (MU-1)/2)/(MU+1),   sinc(z) = sin(pi z)/(pi z)
 *
 * U = 1 copies the input.
 *
 * A plan keeps the last M-1 blocks of input, so that the length of a call never changes a result by a bit. An
 * output whose window touches a missing input sample of its coarse channel, or input from before the stream
 * began, is missing: validity 0 and bytes 0x88 (-8, -8). The validity of any other output is the mean of its
 * coarse channel's over the window, weighted by the window's square (in parts of 16 samples or U), 255 only
 * where all is: the share of the noise's power that is there when inputs are not. For U = 1 every output is
 * as valid as its input.
 *
 * With BR_CUDA e and out are device memory, validity is host memory, the history stays on the device, and
 * execute enqueues its work on the stream of params.cuda; an execute that makes outputs missing uploads
 * nsteps/U * F bytes (br_cuda_create is told). The number of clamped components is added to br_cuda_counter.
 *
 * Which file computes it. A row applies where no row above it does; X is the number of spectators, the files
 * are in kernels/upchannelize/:
 *
 *   backend       shape, taps and gain                   architecture       file
 *   any           U = 1                                  any                a copy: plan.c
 *   BR_REFERENCE  all                                    host               reference.c (float64)
 *   BR_CPU        all                                    AVX2 and FMA       cpu/avx2.c (float32)
 *   BR_CPU        all                                    any host           cpu/cpu.c (float32)
 *   BR_CUDA       X no multiple of 64                    any GPU            gpu/fp32/ (float32)
 *   BR_CUDA       M > 8 (U <= 16), M > 4 (U >= 32)       any GPU            gpu/fp32/
 *   BR_CUDA       8 sqrt(2) max|G| sum|W| >= 1400        any GPU            gpu/fp32/
 *   BR_CUDA       1 + ceil((M-1) U/16) <= 4, U <= 16     Hopper             gpu/wgmma/pfb_u16.cuh, zones.cuh
 *   BR_CUDA       U = 32, 64                             Hopper             gpu/wgmma/pfb_u32_64.cuh
 *   BR_CUDA       U = 128                                Hopper             gpu/wgmma/pfb_u128.cuh
 *   BR_CUDA       U <= 16                                any GPU            gpu/mma/pfb_u16.cuh
 *   BR_CUDA       U = 32, 64, 128                        any GPU with room  gpu/mma/pfb_u32up.cuh
 *   BR_CUDA       the rest                               any GPU            gpu/fp32/
 *
 * Any GPU is one of compute capability 8.0 or newer, Hopper is 9.0; params.portable leaves out the rows
 * for Hopper. "With room": a block may have the shared memory that it needs (U = 32: 33 KiB, 64: 70 KiB,
 * 128: 147 KiB). A block of 8.6, Ada (8.9) and Blackwell's 12.0 may have 99 KiB, so that they take
 * gpu/fp32/ for U = 128; 8.0 and 10.0 have room for all. gpu/launch.cu and gpu/select.cuh choose;
 * docs/kernels.md says how each works. All but float32 is float16 on tensor cores: levels may differ by
 * one where the unrounded value is within 0.03 of a half level. Fastest where e, row and out are multiples
 * of 16; elsewhere the same kernels take narrow loads and stores. */
#ifndef BEAMRING_KERNELS_UPCHANNELIZE_UPCHANNELIZE_H
#define BEAMRING_KERNELS_UPCHANNELIZE_UPCHANNELIZE_H

#include "kernels/common/kernel.h"
#include "kernels/common/parallel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct br_cuda;

struct br_upchannelize_params {
    size_t nchannels;            /* coarse channels F */
    size_t nspectators;          /* pol x dish, X */
    unsigned factor;             /* U: 1, 2, 4, ... 128 */
    unsigned taps;               /* M: 1 to 32 */
    const double *window;        /* [M U] or NULL for the default */
    const double *gain;          /* [U] or NULL for sqrt(U) */
    struct br_cuda *cuda;        /* BR_CUDA: where its work goes; must live longer than the plan */
    bool portable;               /* BR_CUDA: the kernels for any GPU, also on Hopper */
    struct br_parallel parallel; /* BR_CPU: shares the work, by time and spectators; may be zeroed */
};

struct br_upchannelize;

/* `*plan` is freed with br_upchannelize_destroy. Copies window and gain. Returns -1 with `why` on a bad
 * parameter or no memory. */
int br_upchannelize_create(struct br_upchannelize **plan, enum br_backend backend,
                           const struct br_upchannelize_params *params, struct br_why *why);
void br_upchannelize_destroy(struct br_upchannelize *plan);

/* Gives `plan` the window and gain of `with`, and the other way round: from the next execute on. The two
 * have the same shape and backend; histories stay where they are. With BR_CUDA the two may have a br_cuda
 * each; what is enqueued already goes on with the tables that it had. br_upchannelize_may_exchange says
 * beforehand whether it can be: -1 with `why` where shapes differ, or a GPU needs another kernel for the
 * other gain. */
int br_upchannelize_may_exchange(const struct br_upchannelize *plan, const struct br_upchannelize *with,
                                 struct br_why *why);
void br_upchannelize_exchange(struct br_upchannelize *plan, struct br_upchannelize *with);

/* Forgets the history: the next input starts a stream, or follows a hole in it, at output step `at`. A GPU
 * groups its sums by `at` modulo 16, and with it results do not depend on where the stream was cut by a
 * bit. */
void br_upchannelize_reset_at(struct br_upchannelize *plan, uint64_t at);

/* Whether all outputs of the next execute are valid if all its input is. */
int br_upchannelize_whole(const struct br_upchannelize *plan);

/* e          [nsteps][row]        int4x2; this plan's channels are the first F X bytes of a row, row >= F X
 * e_valid    [nsteps][valid_row]  0: missing, 255: complete, between: the share of the inputs; the first F of
 *                                each row; NULL: all complete
 * nsteps     a multiple of U
 * out        [nsteps/U][F U][X]   int4x2
 * out_valid  [nsteps/U][F U]      likewise; NULL: not wanted
 *
 * Returns the number of output components (re, im) that were clamped; 0 with BR_CUDA. */
uint64_t br_upchannelize_execute(struct br_upchannelize *plan, const uint8_t *e, size_t row,
                                 const uint8_t *e_valid, size_t valid_row, size_t nsteps, uint8_t *out,
                                 uint8_t *out_valid);

/* The same for each of several plans of one backend (zones of a band), none of which reads what another one
 * writes: on a GPU they run concurrently, many of them in one launch, and upload what they all need together
 * (br_cuda_create is told). */
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
