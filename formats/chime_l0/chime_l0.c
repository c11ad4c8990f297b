#include "formats/chime_l0/chime_l0.h"

#include <math.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packets are little-endian and copied as they are");

static uint64_t u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

const char *l0_parse(struct l0_packet *p, const uint8_t *bytes, size_t length)
{
    uint32_t version;
    int16_t data_bytes;
    *p = (struct l0_packet){0};
    if (length < 24) return "it is shorter than a header";
    memcpy(&version, bytes, sizeof version);
    if (version != 1 && version != 2) return "its version is neither 1 nor 2";
    if (version == 2 && length < 32) return "it is shorter than a header";
    memcpy(&data_bytes, bytes + 4, sizeof data_bytes);
    p->version = version;
    p->counts_per_sample = l0_u16(bytes + 6, 0);
    p->frame0_ns = version == 2 ? u64(bytes + 8) : 0;
    const uint8_t *at = bytes + (version == 2 ? 16 : 8);
    p->count = u64(at);
    p->nbeams = l0_u16(at + 8, 0);
    p->nfreq = l0_u16(at + 8, 1);
    p->nupfreq = l0_u16(at + 8, 2);
    p->nsteps = l0_u16(at + 8, 3);
    if (p->counts_per_sample == 0) return "fpga_counts_per_sample is 0";
    if (p->nbeams == 0 || p->nfreq == 0 || p->nfreq > L0_CHANNELS)
        return "it has no beams or channels, or too many";
    if (p->nupfreq == 0 || p->nupfreq > L0_UPFREQ_MAX) return "nupfreq is not 1 to 64";
    if (p->nsteps == 0 || p->nsteps > L0_STEPS_MAX || (p->nsteps & (p->nsteps - 1)) != 0)
        return "ntsamp is not a power of two up to 1024";
    size_t data = (size_t)p->nbeams * p->nfreq * p->nupfreq * p->nsteps,
           header = l0_header_bytes(version, p->nbeams, p->nfreq);
    if (data_bytes < 0 || data != (size_t)data_bytes) return "data_nbytes is not nbeams nfreq nupfreq ntsamp";
    if (length != header + data) return "its length is not that of its header and data";
    if (p->count % ((uint64_t)p->counts_per_sample * p->nsteps) != 0)
        return "fpga_count is not a multiple of a packet's counts";
    p->beam_ids = at + 16;
    p->freq_ids = p->beam_ids + 2 * (size_t)p->nbeams;
    p->scales = p->freq_ids + 2 * (size_t)p->nfreq;
    p->offsets = p->scales + 4 * (size_t)p->nbeams * p->nfreq;
    p->data = p->offsets + 4 * (size_t)p->nbeams * p->nfreq;
    for (size_t f = 0; f < p->nfreq; f++)
        if (l0_u16(p->freq_ids, f) >= L0_CHANNELS) return "a coarse channel is beyond 1023";
    return NULL;
}

uint8_t *l0_put_header(uint8_t *bytes, const struct l0_packet *p, const uint16_t *beam_ids,
                       const uint16_t *freq_ids)
{
    uint32_t version = p->version;
    uint16_t words[] = {(uint16_t)(p->nbeams * p->nfreq * p->nupfreq * p->nsteps),
                        (uint16_t)p->counts_per_sample};
    uint16_t shape[] = {(uint16_t)p->nbeams, (uint16_t)p->nfreq, (uint16_t)p->nupfreq, (uint16_t)p->nsteps};
    memcpy(bytes, &version, 4);
    memcpy(bytes + 4, words, 4);
    bytes += 8;
    if (version == 2) {
        memcpy(bytes, &p->frame0_ns, 8);
        bytes += 8;
    }
    memcpy(bytes, &p->count, 8);
    memcpy(bytes + 8, shape, 8);
    memcpy(bytes + 16, beam_ids, 2 * (size_t)p->nbeams);
    memcpy(bytes + 16 + 2 * (size_t)p->nbeams, freq_ids, 2 * (size_t)p->nfreq);
    return bytes + 16 + 2 * (size_t)p->nbeams + 2 * (size_t)p->nfreq;
}

double l0_channel_mhz(unsigned coarse, unsigned up, unsigned nupfreq)
{
    return L0_TOP_MHZ - L0_WIDTH_MHZ * (coarse - 0.5 + (up + 0.5) / nupfreq);
}

bool l0_channel(double mhz, double width_mhz, unsigned *coarse, unsigned *up, unsigned *nupfreq)
{
    double factor = L0_WIDTH_MHZ / width_mhz,
           place = (L0_TOP_MHZ - mhz) / L0_WIDTH_MHZ + 0.5; /* from the upper edge of channel 0 */
    if (!(factor >= 0.999 && factor < L0_UPFREQ_MAX + 0.001 && fabs(factor - round(factor)) < 1e-3))
        return false;
    if (!(place > 0 && place < L0_CHANNELS)) return false;
    *nupfreq = (unsigned)round(factor);
    *coarse = (unsigned)place;
    double fine = (place - *coarse) * *nupfreq - 0.5;
    *up = (unsigned)round(fine);
    return fabs(fine - round(fine)) < 1e-2 && fine > -0.5;
}
