/* positions.h - `telescope: positions_m`, and the size of an array. Private to runtime/graph. */
#ifndef BEAMRING_RUNTIME_GRAPH_POSITIONS_H
#define BEAMRING_RUNTIME_GRAPH_POSITIONS_H

#include "runtime/graph/graph.h"

/* Fills ndishes and position [ndishes] of the telescope from a list of [east, north, up] or a file. The site
 * of a file is taken where `telescope:` does not give it (NAN). Mistakes are recorded. */
void br_positions_read(struct br_config *config, const struct br_node *node, struct br_telescope *telescope);

/* Warns about an array of a size that the stream's wavelengths do not explain: kilometres or degrees in the
 * place of metres, say. */
void br_positions_check_size(const struct br_stream *stream, struct br_log *log);

#endif
