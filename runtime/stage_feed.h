/* stage_feed.h - a source that reads into host memory and sends small pieces, not whole frames, to a GPU.
 *
 * Pieces that stay in the processor's caches reach the GPU faster. A source declares in configure that it
 * feeds (br_stage_feeds). If all readers of its output run on one GPU, the runtime puts the source there,
 * unless it has `device: cpu`; from start on, br_stage_device returns the result. On a GPU, process fills its
 * frames through a feed. All functions are for the stage's own thread, and for the threads that call start
 * and stop. */
#ifndef BEAMRING_RUNTIME_STAGE_FEED_H
#define BEAMRING_RUNTIME_STAGE_FEED_H

#include "runtime/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

struct br_feed; /* a ring of page-aligned buffers in host memory */

/* In configure: declares that frames of output 0 may also be memory of a GPU. */
BR_API void br_stage_feeds(struct br_stage *stage);

/* In start, on a GPU: makes a ring of `count` buffers of `bytes` bytes each. br_feed_close waits for the
 * copies and frees it; NULL is allowed. Returns a status; a failure is recorded as the stage's, and *feed is
 * NULL. */
BR_API int br_feed_open(struct br_stage *stage, size_t bytes, unsigned count, struct br_feed **feed);
BR_API void br_feed_close(struct br_feed *feed);

/* True if br_feed_buffer returns at once. */
BR_API bool br_feed_ready(struct br_feed *feed);

/* The next buffer, after the previous copy from it has ended. NULL: the GPU has failed; the failure is
 * recorded as the stage's. */
BR_API void *br_feed_buffer(struct br_feed *feed);

/* Takes the oldest buffer that was returned and not yet sent, and enqueues the copy of its bytes
 * [skip, skip + bytes) to `to`, memory of the GPU, in order with the stage's stream. Returns a status. */
BR_API int br_feed_send(struct br_feed *feed, void *to, size_t skip, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
