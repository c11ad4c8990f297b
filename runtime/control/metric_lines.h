/* metric_lines.h - samples of metrics as lines of text: the name, labels, a value. */
#ifndef BEAMRING_RUNTIME_CONTROL_METRIC_LINES_H
#define BEAMRING_RUNTIME_CONTROL_METRIC_LINES_H

#include "runtime/control/facts.h"

#include <stdio.h>

struct process_numbers;

struct page {
    FILE *out;
    const struct node_facts *facts;
    const struct br_view *view; /* NULL: there is no pipeline */
    const struct process_numbers *process;
    const char *name; /* of the metric, as its samples have it */
};

/* One line with none, one or two labels. */
void line0(struct page *p, double value);
void line1(struct page *p, const char *key, const char *label, double value);
void line2(struct page *p, const char *key, const char *label, const char *key2, const char *label2,
           double value);

/* KEY="VALUE", with what comes before it; `first`: of the line's labels. */
void put_label(FILE *out, const char *key, const char *value, bool first);

#endif
