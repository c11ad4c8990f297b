/* settings.h - `control:` of a pipeline file. */
#ifndef BEAMRING_RUNTIME_GRAPH_SETTINGS_H
#define BEAMRING_RUNTIME_GRAPH_SETTINGS_H

#include "runtime/config/config.h"

/* Lives as long as its config. */
struct br_control_settings {
    const char *listen;     /* "127.0.0.1:8081"; NULL: there is no control interface */
    const char *token_file; /* NULL: none */
    int64_t log_lines;      /* kept for /v1/log */
    double late_s;          /* a source or product that is silent for longer makes the node not ready */
};

/* Reads the map (NULL: there is none); mistakes go to the config. */
void br_control_read(struct br_config *config, const struct br_node *node,
                     struct br_control_settings *settings);

#endif
