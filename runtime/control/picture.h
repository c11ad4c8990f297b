/* picture.h - previews of the queues of a running pipeline, as documents. */
#ifndef BEAMRING_RUNTIME_CONTROL_PICTURE_H
#define BEAMRING_RUNTIME_CONTROL_PICTURE_H

#include "runtime/graph/graph.h"

#include <jansson.h>

/* How often one queue is looked at, and which part of the time the looking may take. */
#define PICTURE_EVERY_NS ((uint64_t)1000000000)
enum { PICTURE_SHARE = 200 };

/* Of one pipeline. */
struct pictures;

/* NULL without memory. The graph must live until pictures_free. */
struct pictures *pictures_make(struct br_graph *graph);

/* After the stages' threads have ended. */
void pictures_free(struct pictures *pictures);

/* Asks for a new preview of the queue called `name`, where it is time for one, and returns the last one, or a
 * document with "pending". NULL: there is none, and `why` says why. */
json_t *pictures_get(struct pictures *pictures, const char *name, size_t item, char *why, size_t size);

/* Where a queue's frames are in host memory too: before the transfer that fills it, or behind one that reads
 * it. NULL: nowhere. */
const struct br_edge *picture_host_side(const struct br_edge *edge);

#endif
