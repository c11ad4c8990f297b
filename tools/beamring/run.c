/* run.c - `beamring run`. */
#include "runtime/run/pipeline.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <unistd.h>

int cmd_run(int argc, char **argv)
{
    struct arguments a;
    struct loaded loaded;
    if (read_arguments(argc, argv, "sqp", &a) != 0) return 2;
    int status = load_pipeline(&loaded, a.file, a.nset, a.set, a.quiet ? BR_LOG_WARNING : BR_LOG_NOTE);
    if (status == 0) {
        struct br_run_options options = {.progress = a.progress || (isatty(STDERR_FILENO) && !a.quiet),
                                         .report = !a.quiet,
                                         .stats_path = a.stats,
                                         .out = stdout};
        status = br_pipeline_run(loaded.graph, &options);
    }
    unload_pipeline(&loaded);
    return status;
}
