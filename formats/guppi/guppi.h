/* guppi.h - GUPPI RAW: blocks of a header, 80-character cards "KEY     = value" up to END, and BLOCSIZE
 * bytes of samples [antenna][channel][time][pol], complex int8; with PKTFMT = SIMPLE [time][channel][pol].
 *
 * PKTIDX counts packets, since the start of the observation (STT_IMJD, STT_SMJD, STT_OFFS) or since
 * SYNCTIME, so it places a block in time; PIPERBLK says how many a block has, or PKTSIZE how many bytes,
 * else the step from block to block (guppi_times.h). The last OVERLAP samples of a block come again at the
 * start of the next one. */
#ifndef BEAMRING_FORMATS_GUPPI_GUPPI_H
#define BEAMRING_FORMATS_GUPPI_GUPPI_H

#include "buffers/error.h"
#include "buffers/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GUPPI_CARD = 80, GUPPI_ALIGN = 512, GUPPI_MAX_CARDS = 4096, GUPPI_VALUE = 72 };

struct guppi_header {
    size_t header_bytes; /* with the padding of DIRECTIO: the samples start here */
    uint64_t blocsize;
    size_t nants, nchan, npol; /* channels of an antenna; npol 1 or 2 */
    bool npol_open;            /* NPOL is 2, see guppi_one_pol; until then npol is 2 */
    uint64_t samples, overlap; /* time samples of the block, and how many of them the next block repeats */
    bool have_pktidx;
    uint64_t pktidx, piperblk, pktsize; /* 0: absent */
    double obsfreq_mhz, obsbw_mhz;      /* centre and signed width of the band */
    struct br_rational sample_ns;
    int64_t epoch_ns; /* STT_*, Unix time: of PKTIDX 0, or of PKTSTART, see guppi_times.h */
    bool have_epoch;
    bool have_pktstart, have_synctime;
    uint64_t pktstart;                              /* the packet with which the recording began */
    int64_t synctime_ns;                            /* Unix time from which packets are counted */
    double sample_precision_ns, freq_precision_mhz; /* of the digits that TBIN, OBSFREQ and OBSBW have */
    int64_t epoch_precision_ns;                     /* of those of STT_OFFS */
    bool time_first;                                /* SIMPLE */
    char source[GUPPI_VALUE], telescope[GUPPI_VALUE], backend[GUPPI_VALUE]; /* empty when absent */
};

/* True when the bytes look like the start of such a header. */
bool guppi_probe(const void *start, size_t length);

/* Parses the header at byte `offset` of the file from `length` bytes that stand there. Returns 1 when END
 * does not stand in them and more may help. Errors: BR_E_FORMAT naming the file, the byte and the key. */
int guppi_parse(struct guppi_header *header, const char *file, uint64_t offset, const char *text,
                size_t length, struct br_error *error);

/* Packet numbers in a block, by PIPERBLK or PKTSIZE; 0 when the header does not say. */
uint64_t guppi_packets(const struct guppi_header *header);

/* NPOL = 2 is two polarisations for some writers, and for others the two parts of one. Takes it for one:
 * the block has twice as many samples. */
void guppi_one_pol(struct guppi_header *header);

/* Base sample at which a block starts; `number` is the block's, for headers without packet numbers: then
 * blocks follow each other. -1 if PKTIDX is not a whole number of samples. */
int guppi_first(const struct guppi_header *header, uint64_t number, uint64_t *first);

/* A header being written: cards appended to `text` of `capacity` bytes; writing beyond it only counts. */
struct guppi_writer {
    char *text;
    size_t capacity, used;
};

void guppi_put_text(struct guppi_writer *writer, const char *key, const char *value);
void guppi_put_int(struct guppi_writer *writer, const char *key, int64_t value);
void guppi_put_real(struct guppi_writer *writer, const char *key, double value);

/* The END card and, with `align`, blanks up to a multiple of 512 bytes. False when it does not fit. */
bool guppi_finish(struct guppi_writer *writer, bool align);

#endif
