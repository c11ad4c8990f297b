/* inject.h - adds bursts to an electric field of 4 bits.
 *
 *   e      uint8 int4+4 [time][line][dish]   the field, in place; a line is a channel and polarisation
 *   field  float32 [time][2]                 of the burst in one line, in units of its amplitude
 *   input  float32 [dish][3]                 phase and gain of each input
 *
 * A level is the noise, rounded. So the noise before rounding is drawn anew, from those values of a normal
 * distribution that have this level; the burst is added to it, and the sum is rounded:
 *
 *   E[t][l][d] += round(n + A (u_d z[t])) for each component,  n in [-1/2, 1/2) about the level
 *
 * where z is the burst's field, u_d the input's phase and inverse gain, and A^2 = flux / 2 times the mean
 * noise of the inputs. The field then has the distribution that it would have if the burst had come from the
 * sky. A level that the burst does not change comes back bit for bit. The result is clamped to [-7, 7].
 *
 * The noise of each input is that of up to 512 samples before the burst, which are measured first. An input
 * that did not arrive has zeros: nothing is added within a run of at least 8 zeros, seen within one frame.
 *
 * Random bits are those of kernels/common/random.h for (seed, sample, line, RANDOM_DITHER | dish / 4). Sums
 * over samples are integers, and nothing is fused: CPU and GPU give the same bits. */
#ifndef BEAMRING_KERNELS_INJECT_INJECT_H
#define BEAMRING_KERNELS_INJECT_INJECT_H

#include "kernels/common/kernel.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_INJECT_NOISE = 512 };

struct br_cuda;
struct br_inject;

struct br_inject_params {
    size_t nlines, npol, ndishes; /* nlines: channels times npol */
    unsigned nworkers;            /* threads that call br_inject_add at a time */
    struct br_cuda *cuda;         /* for BR_CUDA, with uploads of br_inject_upload_bytes */
};

/* -1 with `why`: no memory, or no CUDA. BR_REFERENCE is not there. */
int br_inject_create(struct br_inject **plan, enum br_backend backend, const struct br_inject_params *params,
                     struct br_why *why);
void br_inject_destroy(struct br_inject *plan); /* NULL is allowed */

/* Memory that it takes: of the host, of the device, and uploads of one call. */
size_t br_inject_host_bytes(const struct br_inject_params *params);
size_t br_inject_device_bytes(const struct br_inject_params *params);
size_t br_inject_upload_bytes(const struct br_inject_params *params);

/* A burst's sums, zeroed before its first sample: host memory, on a GPU device memory. */
size_t br_inject_sums_bytes(const struct br_inject_params *params);
struct br_inject_sums {
    uint64_t *clipped; /* components that the burst took beyond the levels */
    uint64_t *lost;    /* [line][dish] of |z|^2, in units of 2^-24, while the input had not arrived */
    uint32_t *power;   /* [line][dish] of |E|^2 before the burst */
};
struct br_inject_sums br_inject_sums(const struct br_inject *plan, void *sums);

/* On a GPU: copies the sums to host memory when all is done that was enqueued for them. Any thread. -1 with
 * `why`. */
int br_inject_fetch(const struct br_inject *plan, void *host, const void *sums, struct br_why *why);

struct br_inject_frame {
    uint8_t *e; /* [samples][line][dish], host or device memory */
    size_t samples;
};

/* Samples of one channel before a burst. */
struct br_inject_noise {
    void *sums;
    uint32_t channel, first, count;      /* samples [first, first + count) of the frame */
    uint32_t used[BR_INJECT_NOISE / 32]; /* bit i: sample first + i is there */
};

/* The phase and inverse gain u of an input, and |gain|^2; 0: the input is not used. */
struct br_inject_input {
    float re, im, gain;
};

/* Samples of one line of a burst. */
struct br_inject_piece {
    void *sums;
    uint64_t seed, sample; /* sample: that of the stream where the piece begins */
    double flux;           /* |A|^2 over the mean noise */
    size_t at;             /* of `pack`, bytes, a multiple of 8: field [count][2], then input [dish] */
    uint32_t line, first, count;
    uint32_t measured;      /* samples over which `power` is summed */
    uint32_t continues;     /* on a GPU: an earlier call had the samples before it */
    uint32_t segment, ends; /* set by the call */
};

/* For BR_CPU: measures the noise; adds a piece, all of a line's samples in the frame. A field that is NAN
 * marks a missing sample, which is left alone. Jobs of different lines may run at a time. */
void br_inject_measure(const struct br_inject *plan, const struct br_inject_frame *frame,
                       const struct br_inject_noise *noise);
void br_inject_add(const struct br_inject *plan, unsigned worker, const struct br_inject_frame *frame,
                   const uint8_t *pack, const struct br_inject_piece *piece);

/* The same on a GPU, for several at a time: at most br_inject_most_noise; pieces of at most br_inject_room
 * bytes of `pack`. A line's pieces come in the order of their samples. Enqueued; see br_cuda_check. */
size_t br_inject_most_noise(const struct br_inject *plan);
size_t br_inject_most_pieces(const struct br_inject *plan);
size_t br_inject_room(const struct br_inject *plan);
void br_inject_cuda_measure(const struct br_inject *plan, const struct br_inject_frame *frame,
                            const struct br_inject_noise *noise, size_t count);
void br_inject_cuda_add(const struct br_inject *plan, const struct br_inject_frame *frame,
                        const uint8_t *pack, size_t bytes, struct br_inject_piece *pieces, size_t count);

#ifdef __cplusplus
}
#endif
#endif
