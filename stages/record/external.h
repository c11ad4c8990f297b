/* external.h - `record` in other systems' formats: the electric field as kotekan's raw frames, CHIME baseband
 * files, GUPPI RAW, VDIF.
 *
 * None of them can say all that a stream says. What would be lost is named and refused, unless the user wants
 * it (`lossy`): when the pipeline is configured where the stream's description shows it, else at the first
 * sample that shows it. */
#ifndef BEAMRING_STAGES_RECORD_EXTERNAL_H
#define BEAMRING_STAGES_RECORD_EXTERNAL_H

#include "runtime/stage.h"

#include <stdio.h>

struct external;

struct external_format {
    const char *name, *suffix; /* of `format:`, and of the files: PREFIX_NNNNNNN.suffix */
    bool wide;                 /* takes int8x2 as well */
    bool arrays;               /* takes other arrays than the electric field; configure says which */
    bool says_missing;         /* a sample that is missing in all inputs of a channel */
    bool says_missing_rows;    /* a sample that is missing in all inputs of all channels */
    bool says_sideband;        /* which one the channels hold */
    bool only_receipts;        /* writes no samples: which packets came */
    /* Finds what of the description would be lost: external_loses for each; and says what a reader must be
     * told: notes. */
    int (*configure)(struct br_stage *stage, struct external *f);
    int (*start)(struct br_stage *stage, struct external *f);
    int (*write)(struct br_stage *stage, struct external *f, const struct br_frame *frame);
    int (*stop)(struct br_stage *stage, struct external *f);
};

extern const struct external_format external_kotekan, external_guppi, external_chime, external_vdif,
    external_sources;

struct external {
    const struct external_format *format;
    const char *directory, *prefix;
    bool lossy, overwrite;
    bool chime;                          /* kotekan: the field in int4p4chime */
    uint64_t vdif_samples;               /* in a VDIF frame; 0: as few as can be */
    char losses[768];                    /* of the description, "; " between them */
    size_t ndish, npol, nchannels, cell; /* cell: bytes of a channel's sample */
    int32_t *id;                         /* [nchannels] channel numbers */
    struct kotekan_encoder *encoder;     /* kotekan */
    uint8_t *bytes;                      /* of a frame, in the format's order */
    size_t bytes_room;
    uint64_t unmarked; /* channel-samples whose validity the format cannot say */
    uint64_t changed;  /* bytes of samples whose value it cannot say */
    uint64_t files, frames, samples;
    uint64_t first; /* base sample of the first frame */
    char path[2048];
    bool started;
    FILE *file;               /* guppi, vdif */
    uint64_t block;           /* guppi: samples of the open file's blocks */
    int *fd;                  /* chime: [nchannels] files; -1: not begun */
    uint64_t before;          /* bytes before their data */
    uint64_t rows, described; /* that all of them have; that their descriptions spoke of */
    struct vdif_out *vdif;
    struct sources_out *sources;
};

/* The callbacks of the stage, once its parameters are in `f`. */
int external_configure(struct br_stage *stage, struct external *f);
int external_start(struct br_stage *stage, struct external *f);
int external_process(struct br_stage *stage, struct external *f, const struct br_frame *frame);
int external_stop(struct br_stage *stage, struct external *f);

/* Whether no channel of a frame's time step has anything. */
bool external_row_is_missing(const struct external *f, const struct br_frame *frame, size_t row);

/* Adds to what would be lost. */
void external_loses(struct external *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* PREFIX_NNNNNNN.suffix, in f->path. */
const char *external_path(struct external *f, uint64_t number);

/* The same. Refuses to replace a file unless the user wants it. */
int external_name(struct br_stage *stage, struct external *f, uint64_t number);

/* The user's channel numbers by frequency: (mhz - zero) / step, when all are whole and distinct; false
 * otherwise. */
bool external_numbers(const struct br_stream *stream, double zero_mhz, double step_mhz, int32_t *id);

int external_failed(struct br_stage *stage, const struct external *f, const char *what);

#endif
