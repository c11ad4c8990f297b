/* run.h - pipelines inside a test program. */
#ifndef BEAMRING_TESTS_RUNTIME_RUN_RUN_H
#define BEAMRING_TESTS_RUNTIME_RUN_RUN_H

#include "runtime/run/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct test_run {
    struct br_log log;
    FILE *log_file;
    struct br_config *config;
    struct br_graph *graph;
    struct br_error error;
    int status; /* of br_pipeline_build, then of what came last */
};

/* Loads and builds a pipeline from YAML text. */
static inline void build(struct test_run *run, const char *yaml)
{
    *run = (struct test_run){0};
    run->log_file = tmpfile();
    assert_non_null(run->log_file);
    br_log_init(&run->log, run->log_file, BR_LOG_NOTE);
    assert_int_equal(br_config_parse(&run->config, "test.yaml", yaml, strlen(yaml), 0, NULL, &run->error),
                     BR_OK);
    run->status = br_pipeline_build(&run->graph, run->config, &run->log, NULL, false, &run->error);
}

static inline void build_ok(struct test_run *run, const char *yaml)
{
    build(run, yaml);
    if (run->status != BR_OK) br_config_print_errors(run->config, stderr);
    assert_int_equal(run->status, BR_OK);
}

static inline void finish(struct test_run *run)
{
    run->status = br_pipeline_finish(run->graph, &run->error);
}

static inline void start_and_finish(struct test_run *run)
{
    run->status = br_pipeline_start(run->graph, &run->error);
    if (run->status == BR_OK) finish(run);
}

static inline void end(struct test_run *run)
{
    br_pipeline_destroy(run->graph);
    br_config_free(run->config);
    br_log_destroy(&run->log);
    fclose(run->log_file);
}

static inline struct br_stage *stage_called(struct test_run *run, const char *name)
{
    for (size_t s = 0; s < run->graph->nstages; s++)
        if (strcmp(run->graph->stage[s].name, name) == 0) return &run->graph->stage[s];
    fail_msg("no stage %s", name);
    return NULL;
}

static inline struct br_stage_totals totals(struct test_run *run, const char *name)
{
    struct br_stage_totals t;
    br_stage_get_totals(stage_called(run, name), &t);
    return t;
}

#endif
