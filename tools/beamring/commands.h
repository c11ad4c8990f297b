/* commands.h - the subcommands of `beamring`. Each gets its own arguments (argv[0] is its name) and
 * returns the exit status: 0 done, 1 runtime failure, 2 bad configuration or command line, 130 interrupted
 * after a clean drain. */
#ifndef BEAMRING_TOOLS_BEAMRING_COMMANDS_H
#define BEAMRING_TOOLS_BEAMRING_COMMANDS_H

#include "runtime/graph/graph.h"

int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_update(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_beams(int argc, char **argv);
int cmd_graph(int argc, char **argv);
int cmd_stages(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_capture_report(int argc, char **argv);
int cmd_receive(int argc, char **argv);
int cmd_recover(int argc, char **argv);
int cmd_help(int argc, char **argv);

/* A pipeline file loaded and checked: what check and graph begin with. */
struct loaded {
    struct br_log log;
    struct br_config *config;
    struct br_graph *graph;
};

/* Loads `path` with the `--set` texts, to show it. Returns 0, or the exit status after
 * all mistakes were printed to stderr. Give back with unload() in either case. */
int load_pipeline(struct loaded *loaded, const char *path, size_t nset, const char *const *set,
                  enum br_log_level level);
/* The same as one of the ranks of a job. */
int load_pipeline_ranked(struct loaded *loaded, const char *path, size_t nset, const char *const *set,
                         enum br_log_level level, struct br_ranks *ranks);
/* A pipeline's text that the subcommand `name` has made. Its mistakes, or the error, are printed to `to`, and
 * so are messages of `level` or above. Status. Give back in either case. */
int load_text(struct loaded *loaded, const char *name, const char *text, FILE *to, enum br_log_level level,
              struct br_error *error);
void unload_pipeline(struct loaded *loaded);

/* "12.3 MiB" into text; returns text. */
const char *format_bytes(double bytes, char *text, size_t size);

#endif
