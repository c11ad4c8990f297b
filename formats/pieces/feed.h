/* feed.h - bytes of a file, read by several threads, into memory or through the caller's feed to a GPU. */
#ifndef BEAMRING_FORMATS_PIECES_FEED_H
#define BEAMRING_FORMATS_PIECES_FEED_H

#include "formats/pieces/pool.h"

enum {
    FEED_DIRECT = 1 << 20,  /* bytes of a direct read: disks like long ones */
    FEED_SLICE = 128 << 10, /* of another one: they stay in a core's cache while they are converted */
    FEED_BUFFER = 8 << 20,  /* bytes that are copied to a GPU at once; */
    FEED_BUFFERS = 4,       /* so many of these stay in the processor's caches */
    FEED_READERS = 16       /* threads that read as fast as a link takes; more hinder other replays */
};

/* Bytes of an open file for one place in memory. */
struct feed_source {
    int fd;
    const char *path;
    bool direct; /* it is open for direct reads: scratch memory is feed_scratch bytes */
    uint64_t offset;
    size_t bytes;
};

/* Scratch memory of a thread for direct reads. */
size_t feed_scratch(bool direct);

/* Reads them all. Status. For any thread. */
int feed_read(const struct feed_source *source, void *to, void *scratch, struct br_error *error);

/* The same by several threads. Status; errors are the caller's. */
int feed_host(struct caller *caller, struct pool *pool, const struct feed_source *source, void *to);

/* Bytes of a buffer of the feed, for frames of so many. */
size_t feed_buffer_bytes(size_t frame_bytes);

/* Reads them into the feed's buffers, made for frames of `frame_bytes`, and enqueues their copies to `data`.
 * `alone`: the pool has one thread. Status; errors are the caller's. */
int feed_frame(struct caller *caller, struct pool *pool, bool alone, size_t frame_bytes,
               const struct feed_source *source, uint8_t *data);

#endif
