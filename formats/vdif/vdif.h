/* vdif.h - the headers of VDIF frames, and what the start of a file says about the whole.
 *
 * A frame holds some time samples of one thread (here: one polarisation of one dish), all channels of a
 * sample together. */
#ifndef BEAMRING_FORMATS_VDIF_VDIF_H
#define BEAMRING_FORMATS_VDIF_VDIF_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VDIF_HEADER = 32, VDIF_MAX_THREADS = 1024, VDIF_SCAN_FRAMES = 4096 };

struct vdif_header {
    bool invalid; /* the data is marked as not valid */
    bool legacy;  /* a header of 16 bytes */
    bool complex_data;
    uint32_t seconds, number; /* since the reference epoch; of the frame in its second */
    unsigned epoch;           /* half years since 2000 */
    unsigned version, log2_channels, bits, thread, station;
    unsigned edv; /* 0 when legacy */
    size_t frame_bytes, header_bytes;
    uint64_t rate_hz; /* complete samples per second, where the extended header (EDV 1, 3) says so, else 0 */
};

/* Word `index` of a header. */
static inline uint32_t vdif_word(const uint8_t *bytes, unsigned index)
{
    const uint8_t *b = bytes + 4 * index;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Decodes the header in VDIF_HEADER bytes. Any bits are a header; vdif_check says whether it makes sense. */
void vdif_decode(struct vdif_header *header, const void *bytes);

/* True when two frames can be of one stream: equal sizes, channels, bits and kind. Thread and station may
 * differ. */
bool vdif_alike(const struct vdif_header *a, const struct vdif_header *b);

/* Checks that a frame can be replayed: complex, 4 or 8 bits, whole samples in a frame that fits into
 * `room` bytes. Errors: BR_E_FORMAT, "file: frame at byte N: ...". */
int vdif_check(const struct vdif_header *header, const char *file, uint64_t offset, uint64_t room,
               struct br_error *error);

/* Unix seconds of the second that the header names. */
int64_t vdif_unix_seconds(const struct vdif_header *header);

/* Bytes of all channels of a time sample, 4 + 4 or 8 + 8 bits each. */
size_t vdif_row_bytes(const struct vdif_header *header);

/* Time samples in a frame. */
size_t vdif_samples(const struct vdif_header *header);

/* The contents of a file's first frames. */
struct vdif_scan {
    struct vdif_header first; /* the first frame */
    /* of those looked at, but for a few whose times are far before all others: these are corrupt */
    struct vdif_header earliest;
    size_t nthreads;
    uint16_t thread[VDIF_MAX_THREADS]; /* ascending; without those of hardly a frame, which are corrupt */
    uint64_t frames;                   /* in the whole file, counting a truncated one */
    uint64_t truncated_bytes;          /* of a last frame that is not whole; 0 if it is */
    uint32_t max_number;               /* largest frame number seen */
    uint64_t time[VDIF_SCAN_FRAMES];   /* of the frames looked at: seconds << 24 | number */
    uint16_t count[VDIF_MAX_THREADS];  /* of their frames, by thread id */
};

/* Reads `length` bytes at `offset` of a file: returns how many it got (fewer only at the end), or -1. */
typedef int64_t vdif_read(void *source, uint64_t offset, void *buffer, size_t length);

/* Looks at up to VDIF_SCAN_FRAMES frames of a file of `file_bytes`. A frame that is unlike the first one ends
 * the look, and is an error (the file is not VDIF) if it is the second. Errors: BR_E_FORMAT, BR_E_IO, naming
 * `file`. */
int vdif_scan(struct vdif_scan *scan, const char *file, uint64_t file_bytes, vdif_read *read, void *source,
              struct br_error *error);

/* The same for a file. */
int vdif_scan_file(struct vdif_scan *scan, const char *path, struct br_error *error);

/* Whether the first two frames of a file make sense. Errors as above. */
int vdif_probe_file(const char *path, struct br_error *error);

#endif
