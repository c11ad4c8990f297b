/* plugin.h - finding, loading and checking stage plugins.
 *
 * Plugins are looked for in this order: files and directories given with br_plugins_add (a pipeline's
 * `plugins:`), the directories of $BEAMRING_PLUGIN_PATH, and the tree that the program belongs to: an
 * installation, wherever it was moved to, or a build. A plugin is opened only when a stage asks for it. */
#ifndef BEAMRING_RUNTIME_GRAPH_PLUGIN_H
#define BEAMRING_RUNTIME_GRAPH_PLUGIN_H

#include "buffers/error.h"
#include "runtime/stage.h"

struct br_plugins;

/* Errors: BR_E_NO_MEMORY. */
int br_plugins_create(struct br_plugins **plugins, struct br_error *error);
void br_plugins_destroy(struct br_plugins *plugins);

/* Adds a directory, or opens a plugin file (which must be one). Errors: BR_E_IO, BR_E_FORMAT (no plugin,
 * another ABI). */
int br_plugins_add(struct br_plugins *plugins, const char *path, struct br_error *error);

/* The stage called `name`; *type is valid until br_plugins_destroy, NULL on errors: BR_E_INVALID with a
 * suggestion when no stage has the name, that of br_plugins_none when there are no stages at all, BR_E_FORMAT
 * when the file is not a plugin or was built for another ABI version. */
int br_plugins_find(struct br_plugins *plugins, const char *name, const struct br_stage_type **type,
                    struct br_error *error);

/* The error for a program without any stages: BR_E_IO, with the directories that were searched. */
int br_plugins_none(const struct br_plugins *plugins, struct br_error *error);

/* Checks that a descriptor is complete before it is used: callbacks, ports, and a schema whose fields lie
 * in the stage's own struct. One message for the first mistake. Errors: BR_E_FORMAT, naming `path` and the
 * field. */
int br_plugin_check(const struct br_stage_type *type, const char *path, struct br_error *error);

/* Names of all plugins that can be found, sorted, without repetition, NULL-terminated. Owned by `plugins`;
 * valid until the next call. NULL when memory ran out. */
const char *const *br_plugins_names(struct br_plugins *plugins);

#endif
