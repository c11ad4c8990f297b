/* dada_reader.h - what the two readers of DADA files share. */
#ifndef BEAMRING_FORMATS_DADA_DADA_READER_H
#define BEAMRING_FORMATS_DADA_DADA_READER_H

#include "formats/dada/recording.h"
#include "formats/format.h"

/* Files that follow each other, of any product; bands_reader.c has the reader of files side by side. */
extern const struct reader dada_reader;

/* Bytes of the data of a file of `bytes` bytes: those behind FILE_SIZE are left out, with a warning. Errors
 * are the caller's, at `files`. */
int dada_payload(struct caller *caller, const struct recording *recording, const char *path, uint64_t bytes,
                 uint64_t *payload);

int dada_info(struct caller *caller, const char *path);

#endif
