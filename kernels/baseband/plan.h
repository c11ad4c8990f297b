/* plan.h - inside the baseband beamformer.
 *
 * The fast path computes eight beams (an octet) at a time for a block of times. The electric field is
 * unpacked to unsigned bytes e + 8 in [0, 15], two bytes (re, im) per dish, dishes padded to whole chunks
 * of 16. Weights are kept ready for products of bytes with these: for the real part (A_re, -A_im), for the
 * imaginary part (A_im, A_re),
 *
 *   weights[wf][p][octet][dish pair][re, im][beam of octet][dish of pair][2]
 *
 * with weight 0 for padding dishes and beams. The +8 is taken out, and rounding is done, by
 *
 *   offset[wf][p][octet][re, im][beam] = 2^(s-1) - 8 sum(weights) */
#ifndef BEAMRING_KERNELS_BASEBAND_PLAN_H
#define BEAMRING_KERNELS_BASEBAND_PLAN_H

#include "kernels/baseband/baseband.h"

#include <stdbool.h>

/* Beams of an octet, dishes of a chunk: 8 pair products of at most 2 * 15 * 127 can be added in 16 bits. */
enum { OCTET = 8, CHUNK = 16 };

#ifdef __cplusplus
extern "C" {
#endif

struct octet_job {
    const int8_t *weights; /* of this octet */
    const int32_t *offset; /* [2][OCTET] */
    const int32_t *shift;  /* [OCTET] */
    const uint8_t *field;  /* [times rounded up to 3][chunks * CHUNK * 2] */
    size_t chunks;
    const uint8_t *valid; /* [times] or NULL */
    size_t times;
    uint8_t *out;      /* first beam's row, at the first time */
    size_t out_stride; /* from one beam's row to the next */
    size_t beams;      /* 1 to OCTET rows are wanted */
    uint8_t *bytes;    /* scratch [times rounded up to 8][OCTET] */
    uint64_t *clamped; /* [OCTET], added to */
};

/* The memory of one worker. */
struct baseband_scratch {
    uint8_t *field;    /* [block][chunks * CHUNK * 2] */
    uint8_t *bytes;    /* [block][OCTET] */
    uint8_t *valid;    /* [block] */
    uint64_t *clamped; /* [octets * OCTET], of one execute */
};

struct br_baseband {
    enum br_backend backend;
    size_t nchannels, npol, nbeams, ndishes, weight_channels;

    /* reference */
    int8_t *given_weights; /* [wf][P][B][D][2] */
    int32_t *given_shift;  /* [wf][P][B] */

    /* cpu */
    size_t octets, chunks, block; /* block: times unpacked at once, a multiple of 24 */
    int8_t *weights;
    int32_t *offset, *shift; /* [wf][P][octets][2][OCTET], [wf][P][octets][OCTET] */
    struct br_parallel parallel;
    unsigned nscratch;
    struct baseband_scratch *scratch; /* [nscratch]: of a worker */
    void (*unpack)(uint8_t *field, const uint8_t *e, size_t ndishes);
    void (*octet)(const struct octet_job *job);

    /* both */
    uint64_t *recent, *clamped; /* [B], of one execute; of all so far */

    /* cuda */
    struct br_cuda *cuda;
    struct br_baseband_device *device; /* tables and counters on the device */
};

int br_baseband_cpu_create(struct br_baseband *plan, const struct br_baseband_params *params);
void br_baseband_cpu_destroy(struct br_baseband *plan);
uint64_t br_baseband_cpu(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                         uint8_t *out, uint64_t *saturated);
uint64_t br_baseband_reference(const struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid,
                               size_t nsteps, uint8_t *out, uint64_t *saturated);

/* Created in part after a failure: destroy frees what there is. `clamped` waits for the stream and fills [B];
 * -1 after a failure. */
int br_baseband_cuda_create(struct br_baseband *plan, const struct br_baseband_params *params,
                            struct br_why *why);
void br_baseband_cuda_destroy(struct br_baseband *plan);
void br_baseband_cuda(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                      uint8_t *out);
bool br_baseband_cuda_alike(const struct br_baseband *a, const struct br_baseband *b);
void br_baseband_cuda_exchange(struct br_baseband *a, struct br_baseband *b);
int br_baseband_cuda_clamped(const struct br_baseband *plan, uint64_t *per_beam);

void br_baseband_unpack_avx2(uint8_t *field, const uint8_t *e, size_t ndishes);
void br_baseband_octet_avx2(const struct octet_job *job);

#ifdef __cplusplus
}
#endif
#endif
