/* metrics.h - the numbers of a node for Prometheus, by its conventions; and the table of their names. */
#ifndef BEAMRING_RUNTIME_CONTROL_METRICS_H
#define BEAMRING_RUNTIME_CONTROL_METRICS_H

#include "runtime/control/facts.h"

/* Content types of the two formats. */
#define METRICS_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_OPEN "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Writes all metrics, in the text format or as OpenMetrics. */
void metrics_write(const struct node_facts *facts, bool open_metrics, FILE *out);

/* The page docs/metrics.md, from the same table. */
void metrics_reference(FILE *out);

#endif
