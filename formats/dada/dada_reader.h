/* dada_reader.h - the parts of the format `dada`, which has three readers. */
#ifndef BEAMRING_FORMATS_DADA_DADA_READER_H
#define BEAMRING_FORMATS_DADA_DADA_READER_H

#include "formats/common/gaps.h"
#include "formats/dada/recording.h"
#include "formats/format.h"

/* Readers of consecutive files of any product: row after row, or frame after frame. bands_reader.c has the
 * third reader, for files side by side. */
extern const struct reader dada_flat_reader, dada_framed_reader;

/* One file. */
struct dada_file {
    struct recording recording;
    uint64_t bytes, payload, left; /* bytes: file, its data, incomplete last sample */
    uint64_t first, samples;       /* base samples */
    struct gaps *gaps;             /* or NULL */
};

/* Reads a header. Errors: those of dada_read and recording_describe. */
int dada_describe(struct caller *caller, const char *path, const struct br_stream_hints *hints,
                  const char *coding, struct recording *recording, uint64_t *file_bytes,
                  struct br_error *error);

/* The same, and also reads the length and the gaps of the file, into the caller's memory. Warns if data at
 * the end are cut off. Reports errors to the caller, at `files`. */
int dada_describe_file(struct caller *caller, const char *path, const struct br_stream_hints *hints,
                       const char *coding, struct dada_file *file);

/* Changes the epoch from which samples are counted: their numbers grow by `later`. */
void dada_move(struct dada_file *file, int64_t later);

int dada_info(struct caller *caller, const char *path);

#endif
