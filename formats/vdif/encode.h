/* encode.h - an electric field or beams of it as VDIF frames, for files and for the wire.
 *
 * A VDIF frame holds a fixed number of samples of one thread, all channels of a sample side by side. It
 * begins a whole number of frames after a whole second, and is valid as a whole or not. The frames of a
 * pipeline are cut anew accordingly: an encoder collects one VDIF frame of each of its threads.
 *
 * Threads are polarisations: of each dish of E[time][freq][pol][dish] (thread pol x dishes + dish), or of
 * consecutive beams of J[beam][freq][pol][time] (thread beam x polarisations + pol, counted from the first of
 * them). Samples are int4x2 or int8x2, which become 4 + 4 or 8 + 8 bits in offset binary. */
#ifndef BEAMRING_FORMATS_VDIF_ENCODE_H
#define BEAMRING_FORMATS_VDIF_ENCODE_H

#include "buffers/frame.h"
#include "formats/vdif/vdif.h"

struct vdif_encoder;

/* Takes the finished frames of all threads, [threads][frame_bytes]. Status. */
typedef int vdif_sink(void *owner, struct vdif_encoder *encoder);

struct vdif_encoder {
    /* by vdif_encoder_init */
    bool beams;               /* the input is J, not E */
    size_t nchannels, unit;   /* unit: bytes of a channel's sample, 1 or 2 */
    size_t npol, rows, pitch; /* rows: dishes of E or beams of J; pitch: polarisations of all of these */
    unsigned log2_channels;
    size_t spread, frame_bytes; /* samples in a VDIF frame; its bytes */
    uint64_t rate;              /* samples in a second */
    int64_t since_1970;         /* samples from then to base sample 0, rounded; by this many ns: */
    double rounded_ns;
    uint32_t rate_word; /* word 4: the sample rate, where it can be said */

    /* the caller's choice, before vdif_encoder_start */
    uint16_t station;
    size_t first, threads; /* of [pol][dish] or [beam][pol]; vdif_encoder_init takes all */
    vdif_sink *sink;
    void *owner;

    /* while running */
    unsigned epoch;          /* half years since 2000 */
    int64_t seconds0, unix0; /* of the reference epoch: the count of a second, and its Unix time */
    bool begun, open;
    int64_t at;     /* the VDIF frame being filled, counted from 1970 */
    uint64_t from;  /* first base sample given for it */
    size_t *there;  /* [threads] samples in it that are not missing */
    size_t lacking; /* samples in it that are missing, of the threads that have others; zeros in the frames */
    uint64_t zeros; /* missing samples of a channel and thread that became zeros, so far */
    uint8_t *bytes; /* [threads][frame_bytes] */
    struct br_error error;
};

/* The sizes of frames. `samples` is the user's number of samples in a frame; 0: as few as can be with
 * `most_bytes` 0, so that a frame is missing exactly where its samples are, else as many as make a frame of
 * at most so many bytes. Errors: BR_E_INVALID if VDIF cannot hold the stream; *of_samples is true if
 * `samples` is to blame. */
int vdif_encoder_init(struct vdif_encoder *encoder, const struct br_stream *stream, uint64_t samples,
                      size_t most_bytes, bool *of_samples, struct br_error *error);

/* A station's id in headers: two characters, or a number below 65536. False: `text` is neither. */
bool vdif_station(const char *text, uint16_t *station);

/* Memory for the frames; vdif_encoder_free follows in either case. Errors: BR_E_NO_MEMORY. */
int vdif_encoder_start(struct vdif_encoder *encoder);
void vdif_encoder_free(struct vdif_encoder *encoder);

/* Takes a frame of the stream, which begins at or after the end of the last one. Calls the sink for all VDIF
 * frames that are complete. Errors: the sink's; BR_E_INVALID for a time that VDIF cannot say. In both cases
 * encoder->error has the message. */
int vdif_encoder_put(struct vdif_encoder *encoder, const struct br_frame *frame);

/* The last VDIF frame, of which the rest is missing. */
int vdif_encoder_flush(struct vdif_encoder *encoder);

#endif
