/* hints.h - the values of the pipeline's `stream:`, with which sources complete a recording's description. */
#ifndef BEAMRING_BUFFERS_HINTS_H
#define BEAMRING_BUFFERS_HINTS_H

#include "buffers/sky.h"
#include "buffers/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The keys of `stream:` that can take precedence over a recording: bits of br_stream_hints.override. */
enum br_hint {
    BR_HINT_EPOCH = 1,
    BR_HINT_SAMPLE = 2,
    BR_HINT_FREQ = 4,
    BR_HINT_WIDTH = 8,
    BR_HINT_CODING = 16,
    BR_HINT_ORDER = 32,
    BR_HINT_SIDEBAND = 64
};

/* The values of the pipeline's `stream:`; absent ones are 0, NULL, {0, 0} or have_x = false. Only sources use
 * them. Values in the recording take precedence, except for keys listed in `override`. */
struct br_stream_hints {
    bool have_epoch;
    int64_t epoch_ns;
    struct br_rational sample_ns;
    size_t nfreq;
    const double *freq_mhz;
    double width_mhz; /* 0: not given */
    bool have_sample0;
    uint64_t sample0;
    unsigned npol;             /* 0: not given */
    const char *coding;        /* "int4x2", "chime", "vdif" or NULL */
    const char *order;         /* axis order (ORDER) of a DADA file that another program wrote, or NULL */
    unsigned override;         /* bits of enum br_hint */
    enum br_sideband sideband; /* unknown: not given */
};

#ifdef __cplusplus
}
#endif
#endif
