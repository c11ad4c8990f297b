/* load.c - what check and graph begin with: a pipeline file, loaded and checked. */
#include "runtime/ranks/ranks.h"
#include "runtime/run/pipeline.h"
#include "tools/beamring/commands.h"

int load_pipeline(struct loaded *loaded, const char *path, size_t nset, const char *const *set,
                  enum br_log_level level)
{
    return load_pipeline_ranked(loaded, path, nset, set, level, NULL);
}

int load_pipeline_ranked(struct loaded *loaded, const char *path, size_t nset, const char *const *set,
                         enum br_log_level level, struct br_ranks *ranks)
{
    struct br_error error = {0};
    *loaded = (struct loaded){0};
    br_log_init(&loaded->log, stderr, level);
    if (ranks != NULL) loaded->log.rank = (int)br_ranks_rank(ranks);
    int status = br_config_load(&loaded->config, path, nset, set, &error);
    if (status == BR_OK)
        status = br_pipeline_build(&loaded->graph, loaded->config, &loaded->log, ranks, true, &error);
    if (status == BR_OK) status = br_ranks_check_files(ranks, loaded->graph, &error);
    if (loaded->config != NULL && br_config_errors(loaded->config) > 0) {
        br_config_print_errors(loaded->config, stderr);
        return 2;
    }
    if (status == BR_OK) return 0;
    fprintf(stderr, "beamring: %s\n", error.text);
    return status == BR_E_NO_MEMORY ? 1 : 2;
}

int load_text(struct loaded *loaded, const char *name, const char *text, FILE *to, enum br_log_level level,
              struct br_error *error)
{
    *loaded = (struct loaded){0};
    br_log_init(&loaded->log, to, level);
    int status = br_config_parse(&loaded->config, name, text, strlen(text), 0, NULL, error);
    if (status == BR_OK)
        status = br_pipeline_build(&loaded->graph, loaded->config, &loaded->log, NULL, false, error);
    if (loaded->config != NULL && br_config_errors(loaded->config) > 0) {
        br_config_print_errors(loaded->config, to);
        return BR_E_INVALID;
    }
    if (status != BR_OK) fprintf(to, "beamring %s: %s\n", name, error->text);
    return status;
}

void unload_pipeline(struct loaded *loaded)
{
    br_pipeline_destroy(loaded->graph);
    br_config_free(loaded->config);
    br_log_destroy(&loaded->log);
}

const char *format_bytes(double bytes, char *text, size_t size)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    while (bytes >= 1024 && u + 1 < sizeof unit / sizeof *unit) {
        bytes /= 1024;
        u++;
    }
    snprintf(text, size, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return text;
}
