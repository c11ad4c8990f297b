/* run.c - `beamring run`, and `beamring serve` for a node that outlives its pipelines. */
#include "runtime/control/node.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Statistics may replace earlier ones, and nothing else: `--stats pipeline.yaml` is a slip. */
static bool may_replace(const char *command, const char *path)
{
    static const char begins[] = "{\n  \"version\": ";
    char start[sizeof begins] = "";
    struct stat info;
    FILE *file = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? fopen(path, "r") : NULL;
    if (file == NULL) return true; /* nothing is there, or writing will say what is wrong */
    size_t length = fread(start, 1, sizeof begins - 1, file);
    fclose(file);
    if (length == 0 || strcmp(start, begins) == 0) return true;
    fprintf(stderr,
            "beamring %s: --stats: %s is there and holds something else than statistics; expected a new "
            "name, or that of an earlier statistics file\n",
            command, path);
    return false;
}

static int run_node(int argc, char **argv, bool outlives)
{
    struct arguments a;
    struct br_log log;
    char control[300];
    if (read_arguments(argc, argv, "sqpcl", &a) != 0) return 2;
    if (a.stats != NULL && !may_replace(argv[0], a.stats)) return 2;
    if (a.control != NULL) {
        if (strlen(a.control) > 200 || a.nset == MAX_SETS) {
            fprintf(stderr, "beamring %s: --control is too long, or there are too many --set\n", argv[0]);
            return 2;
        }
        snprintf(control, sizeof control, "control.listen=\"%.200s\"", a.control);
        a.set[a.nset++] = control;
    }
    br_log_init(&log, stderr, a.quiet ? BR_LOG_WARNING : BR_LOG_NOTE);
    log.json = a.json_log;
    struct br_node_options options = {
        .file = a.file,
        .nset = a.nset,
        .set = a.set,
        .outlives = outlives,
        .log = &log,
        .run = {.progress = a.progress || (isatty(STDERR_FILENO) && !a.quiet && !a.json_log),
                .report = !a.quiet,
                .stats_path = a.stats,
                .out = stdout}};
    int status = br_node_run(&options);
    br_log_destroy(&log);
    return status;
}

int cmd_run(int argc, char **argv)
{
    return run_node(argc, argv, false);
}

int cmd_serve(int argc, char **argv)
{
    return run_node(argc, argv, true);
}
