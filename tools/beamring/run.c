/* run.c - `beamring run`, and `beamring serve` for a node that outlives its pipelines. */
#include "runtime/control/node.h"
#include "runtime/ranks/ranks.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <malloc.h>
#include <signal.h>
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
            "beamring %s: --stats: %s exists and does not hold statistics; expected a new name, or that of "
            "an earlier statistics file\n",
            command, path);
    return false;
}

/* Becomes a rank where the user says so. 0, or the exit status after a message. */
static int become_rank(const char *command, const struct arguments *a, struct br_log *log,
                       struct br_ranks **ranks)
{
    struct br_error error = {0};
    int status = BR_OK;
    if (a->mpi && a->join != NULL)
        status = br_fail(&error, BR_E_INVALID, "--mpi and --join; expected one of them");
    else if (a->mpi)
        status = br_ranks_start_mpi(ranks, log, &error);
    else if (a->join != NULL)
        status = br_ranks_start_join(ranks, a->join, log, &error);
    if (status != BR_OK) {
        fprintf(stderr, "beamring %s: %s\n", command, error.text);
        return 2;
    }
    if (br_ranks_count(*ranks) > 1) log->rank = (int)br_ranks_rank(*ranks);
    return 0;
}

static int run_node(int argc, char **argv, bool outlives)
{
    struct arguments a;
    struct br_log log;
    char control[300], stats[4096];
    struct br_ranks *ranks = NULL;
    if (read_arguments(argc, argv, outlives ? "sqpclg" : "sqpclm", &a) != 0) return 2;
    if (a.stats != NULL && !may_replace(argv[0], a.stats)) return 2;
    if (a.control != NULL) {
        if (strlen(a.control) > 200 || a.nset == MAX_SETS) {
            fprintf(stderr, "beamring %s: --control is too long, or there are too many --set\n", argv[0]);
            return 2;
        }
        snprintf(control, sizeof control, "control.listen=\"%.200s\"", a.control);
        a.set[a.nset++] = control;
    }
    signal(SIGUSR1, SIG_IGN); /* a rank may wait long for the others */
    br_log_init(&log, stderr, a.quiet ? BR_LOG_WARNING : BR_LOG_NOTE);
    log.json = a.json_log;
    if (become_rank(argv[0], &a, &log, &ranks) != 0) return 2;
    if (a.stats != NULL && br_ranks_count(ranks) > 1) {
        snprintf(stats, sizeof stats, "%s.%u", a.stats, br_ranks_rank(ranks));
        a.stats = stats;
    }
    /* The last lines of a rank must not mix with those of others. */
    if (br_ranks_count(ranks) > 1) setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    bool shows = isatty(STDERR_FILENO) && !a.quiet && !a.json_log && br_ranks_rank(ranks) == 0;
    struct br_node_options options = {
        .file = a.file,
        .nset = a.nset,
        .set = a.set,
        .outlives = outlives,
        .again_s = a.again_s,
        .log = &log,
        .ranks = ranks,
        .run = {.progress = a.progress || shows, .report = !a.quiet, .stats_path = a.stats, .out = stdout}};
    int status = br_node_run(&options);
    fflush(stdout);
    status = br_ranks_leave(ranks, status);
    br_log_destroy(&log);
    return status;
}

int cmd_run(int argc, char **argv)
{
    return run_node(argc, argv, false);
}

/* By default threads soon have an arena each, up to eight for each processor, and each arena keeps the most
 * that its threads, of one pipeline after the other, ever held. Stages allocate little once they run: two
 * arenas do. Blocks from 64 kB on are mapped, and unmapped when they are freed. Otherwise the limit would
 * rise to the size of the largest one that was freed, and the heap would keep room for the most of them. */
int cmd_serve(int argc, char **argv)
{
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    return run_node(argc, argv, true);
}
