/* picture.h - previews of the queues of a running pipeline, as documents. */
#ifndef BEAMRING_RUNTIME_CONTROL_PICTURE_H
#define BEAMRING_RUNTIME_CONTROL_PICTURE_H

#include "runtime/run/state.h"

#include <jansson.h>

/* The previews of one pipeline. */
struct pictures;

/* NULL without memory. The graph must live until pictures_free. */
struct pictures *pictures_make(struct br_graph *graph);

/* After the stages' threads have ended. */
void pictures_free(struct pictures *pictures);

/* Returns what has been seen of the queue called `name`, or a document with "pending", and asks for more:
 * means over some seconds of each item, and the waterfall of `item` from column number `since` on. NULL:
 * there is none, and `why` says why. */
json_t *pictures_get(struct pictures *pictures, const char *name, size_t item, uint64_t since, char *why,
                     size_t size);

/* Why there is no preview of this queue, as the end of a sentence; NULL: there is one. */
const char *pictures_refuse(const struct br_edge *edge);

/* Where a queue's frames are in host memory too: before the transfer that fills it, or behind one that reads
 * it. NULL: nowhere. */
const struct br_edge *picture_host_side(const struct br_edge *edge);

#endif
