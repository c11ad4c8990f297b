/* chime_l0.h - the UDP packets, versions 1 and 2, by which CHIME's L0 feeds its L1. Little-endian, packed:
 *
 *   u32 version; i16 data_nbytes; u16 fpga_counts_per_sample; [version 2: u64 fpga_frame0_ns;] u64
 * fpga_count; u16 nbeams, nfreq, nupfreq, ntsamp; u16 beam_ids[nbeams]; u16 coarse_freq_ids[nfreq]; f32
 * scale[nbeams][nfreq]; f32 offset[nbeams][nfreq]; u8 data[nbeams][nfreq][nupfreq][ntsamp]
 *
 * Intensity = scale * byte + offset; bytes 0 and 255 are masked. Coarse channel 0 is at 800 MHz, each next
 * one 0.390625 MHz lower; fine channels descend in frequency too. */
#ifndef BEAMRING_FORMATS_CHIME_L0_CHIME_L0_H
#define BEAMRING_FORMATS_CHIME_L0_CHIME_L0_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    L0_PACKET_MAX = 8910,
    L0_CHANNELS = 1024,
    L0_UPFREQ_MAX = 64,
    L0_STEPS_MAX = 1024,
    L0_DATA_MAX = 32767,
    L0_COUNT_NS = 2560 /* one count */
};
#define L0_TOP_MHZ   800.0
#define L0_WIDTH_MHZ 0.390625

struct l0_packet {
    unsigned version, counts_per_sample;
    uint64_t frame0_ns; /* 0 in version 1 */
    uint64_t count;     /* of the first sample */
    unsigned nbeams, nfreq, nupfreq, nsteps;
    const uint8_t *beam_ids, *freq_ids, *scales, *offsets, *data; /* into the packet, at any address */
};

static inline size_t l0_header_bytes(unsigned version, size_t nbeams, size_t nfreq)
{
    return (version == 1 ? 24 : 32) + 2 * nbeams + 2 * nfreq + 8 * nbeams * nfreq;
}

static inline unsigned l0_u16(const uint8_t *at, size_t i)
{
    uint16_t value;
    memcpy(&value, at + 2 * i, sizeof value);
    return value;
}

static inline float l0_f32(const uint8_t *at, size_t i)
{
    float value;
    memcpy(&value, at + 4 * i, sizeof value);
    return value;
}

/* Takes a packet apart and checks everything that it says about itself. NULL, or what is wrong with it. */
const char *l0_parse(struct l0_packet *packet, const uint8_t *bytes, size_t length);

/* Writes all up to the scales; returns where these begin. */
uint8_t *l0_put_header(uint8_t *bytes, const struct l0_packet *packet, const uint16_t *beam_ids,
                       const uint16_t *freq_ids);

/* Coarse channel and place in it (0: highest) of a channel; false when it is none of 800 - 0.390625 k MHz cut
 * into nupfreq. */
bool l0_channel(double mhz, double width_mhz, unsigned *coarse, unsigned *up, unsigned *nupfreq);
double l0_channel_mhz(unsigned coarse, unsigned up, unsigned nupfreq);

#endif
