/* later.h - FILE.updates beside a recording: updates that begin to hold behind the file's first sample, whose
 * own stand in its header. A line for each, as in the header: STAGE:SAMPLE:DIGEST:ID. No update: no file. */
#ifndef BEAMRING_STAGES_RECORD_LATER_H
#define BEAMRING_STAGES_RECORD_LATER_H

#include "runtime/stage.h"

struct later {
    int fd; /* -1: not open */
    uint64_t bytes;
    struct br_error error;
};

/* Appends those that begin in base samples [first, end) of the stage's input, before the data are written.
 * `path` is the recording's. Status, with the error. */
int later_write(struct later *later, const struct br_stage *stage, const char *path, uint64_t first,
                uint64_t end);
int later_close(struct later *later);

#endif
