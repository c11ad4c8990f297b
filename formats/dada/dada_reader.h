/* dada_reader.h - the parts of the format `dada`, which has three readers. */
#ifndef BEAMRING_FORMATS_DADA_DADA_READER_H
#define BEAMRING_FORMATS_DADA_DADA_READER_H

#include "formats/common/gaps.h"
#include "formats/dada/recording.h"
#include "formats/format.h"

/* Files that follow each other, of any product: row after row, or frame after frame. bands_reader.c has the
 * third one, for files side by side. */
extern const struct reader dada_flat_reader, dada_framed_reader;

/* One file. */
struct dada_file {
    struct recording recording;
    uint64_t bytes, payload, left; /* of the file, of its data, and at their end those of no whole sample */
    uint64_t first, samples;       /* base samples */
    struct gaps *gaps;             /* or NULL */
};

/* Reads a header. Errors: those of dada_read and recording_describe. */
int dada_describe(struct caller *caller, const char *path, const struct br_stream_hints *hints,
                  const char *coding, struct recording *recording, uint64_t *file_bytes,
                  struct br_error *error);

/* The same, with the length and the gaps of the file, in the caller's memory; warns of what is cut off.
 * Errors are the caller's, at `files`. */
int dada_describe_file(struct caller *caller, const char *path, const struct br_stream_hints *hints,
                       const char *coding, struct dada_file *file);

/* Counts its samples from another epoch: they are `later` samples later. */
void dada_move(struct dada_file *file, int64_t later);

int dada_info(struct caller *caller, const char *path);

#endif
