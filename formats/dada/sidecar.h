/* sidecar.h - writes the .gaps file of a recording while it grows.
 *
 * Lines that go on from frame to frame are joined, so that the file does not depend on where frames were cut.
 * Lines that may still grow stand at the end of the file, which is rewritten with every frame that changes
 * them: whenever the program dies, the file tells of every frame that is in the recording. */
#ifndef BEAMRING_FORMATS_DADA_SIDECAR_H
#define BEAMRING_FORMATS_DADA_SIDECAR_H

#include "formats/common/gaps.h"

#include <stdbool.h>

enum { SIDECAR_LINES = 1024 };

struct sidecar {
    int fd;
    char path[4096];
    uint64_t settled, written; /* bytes that stay, and all bytes of the file */
    struct gap *line;          /* [nlines], sorted by first, channel */
    size_t nlines;
    bool changed, late; /* late: the file is made with its first line */
    char *text;
    uint8_t *scratch; /* 2 bytes a channel */
    struct br_error error;
};

/* Reserves memory. BR_E_NO_MEMORY. */
int sidecar_create(struct sidecar *sidecar, size_t nchannels);

/* Starts the file RECORDING.gaps, in the place of one that is there with `overwrite`. Errors: BR_E_IO, in
 * sidecar->error. */
int sidecar_open(struct sidecar *sidecar, const char *recording, bool overwrite);

/* The same for a recording that usually lacks nothing: the file is made with its first line, and an earlier
 * one goes. */
void sidecar_open_late(struct sidecar *sidecar, const char *recording);

/* Takes in one frame's validity, and writes. */
int sidecar_frame(struct sidecar *sidecar, const struct br_stream *stream, const struct br_frame *frame);

/* Base samples that no frame came for. */
int sidecar_hole(struct sidecar *sidecar, uint64_t first, uint64_t count);

/* Closes the file, if one is open; one that was opened late is then on the disk, before its recording gets
 * its name. sidecar_remove removes it as well. */
int sidecar_close(struct sidecar *sidecar);
void sidecar_remove(struct sidecar *sidecar);
void sidecar_destroy(struct sidecar *sidecar);

#endif
