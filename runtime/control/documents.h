/* documents.h - what a node says of itself, as JSON. Each returns a new reference, or NULL without memory. */
#ifndef BEAMRING_RUNTIME_CONTROL_DOCUMENTS_H
#define BEAMRING_RUNTIME_CONTROL_DOCUMENTS_H

#include "runtime/control/facts.h"

#include <jansson.h>

/* State, sentence, stages and queues with their rates: the document that the live page and `beamring status`
 * ask for again and again. */
json_t *document_status(const struct node_facts *facts);

/* What does not change: stages, where they run, and the queues between them with shapes. */
json_t *document_graph(const struct br_view *view);

/* All counters, in full. */
json_t *document_stages(const struct br_view *view);
json_t *document_queues(const struct br_view *view);

/* The boards that packets come from: packets per second, lost, last seen, state. */
json_t *document_boards(const struct br_view *view);

/* The pipeline file as it was understood: with includes, variables and --set. */
json_t *document_config(const struct br_node *root);

/* The lines that are kept, from number `since` on; "next" is the number to ask for later. */
json_t *document_log(const struct br_log *log, uint64_t since);

#endif
