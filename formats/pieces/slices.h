/* slices.h - bytes of a file, read in slices by several threads, into memory or on to a GPU. */
#ifndef BEAMRING_FORMATS_PIECES_SLICES_H
#define BEAMRING_FORMATS_PIECES_SLICES_H

#include "formats/common/coding.h"
#include "formats/pieces/pool.h"

#include <stdatomic.h>

enum {
    SLICES_DIRECT = 1 << 20, /* bytes of a direct read: disks like long ones */
    SLICES_BUFFER = 8 << 20, /* bytes that are copied to a GPU at once; */
    SLICES_BUFFERS = 4       /* so many of these stay in the processor's caches */
};

struct slices {
    int fd;
    const char *path;
    uint8_t *data; /* memory of the host, or of the GPU that is fed */
    uint64_t offset;
    size_t bytes;
    size_t room; /* of a thread's scratch memory, where the file is open for direct reads; else 0 */
    enum coding coding;
    /* bytes of a channel's sample; with `valid`, cells in which nothing was written become missing */
    size_t cell;
    uint8_t *valid;

    /* within */
    size_t slice;
    size_t early; /* by which slices but the first begin before their multiples, for blocks of the file */
    atomic_int failed;
    struct br_error error; /* the first one */
};

/* Scratch memory of a thread for direct reads. */
size_t slices_scratch(bool direct);

/* Reads all of it. Status. */
int slices_read(struct caller *caller, struct pool *pool, struct slices *s);

/* Bytes of a buffer of the feed, for frames of so many. */
size_t slices_buffer(size_t frame_bytes);

/* Reads all of it into the feed's buffers, of `buffer` bytes, and enqueues their copies to s->data. `alone`:
 * the pool has one thread. Status. */
int slices_feed(struct caller *caller, struct pool *pool, bool alone, size_t buffer, struct slices *s);

#endif
