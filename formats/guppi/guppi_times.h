/* guppi_times.h - where GUPPI RAW's blocks stand in time, where the headers leave that open: how many
 * packets a block has, and of which packet STT_IMJD, STT_SMJD and STT_OFFS are the time. */
#ifndef BEAMRING_FORMATS_GUPPI_GUPPI_TIMES_H
#define BEAMRING_FORMATS_GUPPI_GUPPI_TIMES_H

#include "formats/guppi/guppi.h"

/* Packet numbers from block to block, of headers with PKTIDX but without PIPERBLK and a PKTSIZE that fits. */
struct guppi_steps {
    uint64_t blocks, last, least, common; /* the smallest step, and the greatest common divisor of all */
};

void guppi_steps_add(struct guppi_steps *steps, uint64_t pktidx);

/* Packets of a block, which is the smallest step when it divides all others; 0 when the blocks do not say
 * it. */
uint64_t guppi_steps_packets(const struct guppi_steps *steps);

/* Settles h->epoch_ns, the time of PKTIDX 0, for a recording whose first block has the packet number
 * `first` and whose packets hold `samples` / `packets` samples. Recorders that count packets from SYNCTIME
 * write the time of the packet PKTSTART, where the recording began, into STT_*; others that of PKTIDX 0.
 * `said`: the user's epoch, or NULL; it decides where it is one of the two. *from: what the time is by.
 * Errors: BR_E_FORMAT with both times where nothing decides. */
int guppi_settle_epoch(struct guppi_header *header, const char *file, uint64_t first, uint64_t samples,
                       uint64_t packets, const int64_t *said, const char **from, struct br_error *error);

#endif
