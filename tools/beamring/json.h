/* json.h - what subcommands say with `--json`: one document on the standard output. */
#ifndef BEAMRING_TOOLS_BEAMRING_JSON_H
#define BEAMRING_TOOLS_BEAMRING_JSON_H

#include "runtime/graph/graph.h"

#include <jansson.h>

/* Prints a document and frees it. 0, or 1 without memory (NULL). */
int json_print(json_t *document);

/* A pipeline: {"stages": [...], "queues": [...]}. New reference. */
json_t *json_pipeline(const struct br_graph *graph);

/* Memory that a run reserves, in bytes: {"host", "locked", "gpus": [bytes of each]}. */
json_t *json_memory(const struct br_graph *graph);

/* The mistakes of a file: [{"file", "line", "column", "message"}, ...]; a mistake without a place has the
 * message only. */
json_t *json_mistakes(const struct br_config *config);

/* A stage's descriptor: ports, parameters with types, units, ranges and defaults. */
json_t *json_stage_type(const struct br_stage_type *type);

/* What `beamring info` prints, "FILE: KIND" and lines "  NAME  VALUE", as [{"file", "kind", "values"}, ...].
 * Numbers are numbers; a value of several lines is a list; other lines are "notes". */
json_t *json_of_info(const char *text);

#endif
