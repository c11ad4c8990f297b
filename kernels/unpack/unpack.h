/* unpack.h - an F-engine's packets, as they came, to the electric field; on the way the sums of powers.
 *
 *   which file runs       when
 *   reference.c           BR_REFERENCE: one sample after the other
 *   cpu/cpu.c             BR_CPU; inner loops in cpu/avx2.c where the processor has AVX2
 *   gpu/tile/tile.cuh     BR_CUDA: <8> or <4> where inputs stand in groups of 8 or 4 in packets and in E,
 *                         aligned and of one source (chord-crs, lwa-snap2, chime-ice, casm-snap);
 *                         <2> where packets end in [time][2 inputs] (ata-snap); <1> for all other orders
 *
 * The frame of packets is data [block][source][stream][payload] and a receipt, one bit a packet; a block
 * has one packet of every source and stream. A packet's payload has no gaps; its axes come in any order.
 * The byte of sample t of a block, channel f and input i stands at
 *   channel_offset[f] + input_offset[i] + t x time_stride   of the block,
 * and its packet came when bit  input_source[i] x nstreams + channel_stream[f]  of the block's receipt is
 * set (bit k is bit k % 8 of byte k / 8). Packets that did not come are undefined and count as zero.
 *
 *   E[t][f][position[i]] = the sample as int4x2, two's complement, real part low;
 *                          0 where the packet did not come
 *   S0 = number of samples that came, S1 = sum of |E|^2, S2 = sum of |E|^4 over those,
 *        per block of sum_samples, channel and position; exact, because |E|^2 <= 128 and a block has at
 *        most BR_UNPACK_MAX_SUM samples */
#ifndef BEAMRING_KERNELS_UNPACK_UNPACK_H
#define BEAMRING_KERNELS_UNPACK_UNPACK_H

#include "kernels/common/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BR_UNPACK_MAX_SUM = 32768, BR_UNPACK_SUMS = 3 };

struct br_unpack_params {
    size_t nsources, nstreams;
    size_t packet_samples; /* time samples of a packet, and so of a block */
    size_t packet_bytes;   /* of the payload; a block has nsources x nstreams x packet_bytes */
    size_t receipt_bytes;  /* of one block */
    size_t time_stride;    /* bytes from one sample of a packet to the next */

    size_t packet_channels, channel_stride; /* channels of a packet, bytes from one to the next */
    size_t nchannels;                       /* F = nstreams x packet_channels */
    const size_t *channel_offset; /* [F]: stream x packet_bytes + (channel in the packet) x channel_stride */
    const uint32_t *channel_stream; /* [F] */

    size_t ninputs;
    const size_t *input_offset;   /* [ninputs]: source x nstreams x packet_bytes + (bytes in the packet) */
    const uint32_t *input_source; /* [ninputs] */
    const uint32_t *position;     /* [ninputs]: where in [pol][dish] it goes, each at most once */
    size_t npositions;            /* N = pol x dish; positions that no input has are zero */

    bool offset_binary;   /* a nibble is value + 8; else two's complement */
    bool real_high;       /* the real part is the high nibble */
    size_t sum_samples;   /* a multiple of packet_samples; 0: no sums are wanted */
    struct br_cuda *cuda; /* BR_CUDA: where its work goes; must live longer than the plan */
};

struct br_unpack;

/* Checks the parameters and copies their tables. -1 with `why`. A plan is used by one thread at a time, and
 * keeps nothing from call to call: several plans may work on different blocks of one frame. */
int br_unpack_create(struct br_unpack **plan, enum br_backend backend, const struct br_unpack_params *params,
                     struct br_why *why);
void br_unpack_destroy(struct br_unpack *plan); /* NULL is allowed */

/* in       bytes  [nblocks][source][stream][packet_bytes]
 * receipt  bytes  [nblocks][receipt_bytes]; NULL: everything came
 * out      int4x2 [nblocks x packet_samples][F][N]
 * sums     uint32 [time block][F][S0, S1, S2][N], the last time block shorter where nblocks ends in it;
 *          NULL without sum_samples
 * With BR_CUDA all four are device memory, multiples of 16 bytes; the work is enqueued. */
void br_unpack_execute(struct br_unpack *plan, size_t nblocks, const uint8_t *in, const uint8_t *receipt,
                       uint8_t *out, uint32_t *sums);

#ifdef __cplusplus
}
#endif
#endif
