/* rows.h - a copy of rows of bytes. */
#ifndef BEAMRING_BUFFERS_ROWS_H
#define BEAMRING_BUFFERS_ROWS_H

#include <stddef.h>

/* `rows` rows of `width` bytes, which are a pitch (in bytes) apart at either end, and do not overlap. */
struct br_rows {
    void *to;
    size_t to_pitch;
    const void *from;
    size_t from_pitch, width, rows;
};

#endif
