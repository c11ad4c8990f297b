/* stages.c - `beamring stages`: what stages there are, and what they take. */
#include "runtime/run/pipeline.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"

#include <string.h>

static void preamble(void)
{
    puts("# Stages\n\nThis page is made from the stages' schemas by `beamring stages --markdown`; `beamring "
         "stages NAME` shows one of "
         "them in a\nterminal. Every stage also takes `stage`, `name`, `in`, `out`, `affinity` and `device` "
         "([pipeline-file.md](pipeline-file.md)).\n");
}

int cmd_stages(int argc, char **argv)
{
    const char *wanted = NULL;
    bool markdown = false, json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--markdown") == 0) {
            markdown = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (argv[i][0] == '-' || wanted != NULL) {
            fprintf(
                stderr,
                "beamring stages: unexpected '%s'; expected at most one stage, and --markdown or --json\n",
                argv[i]);
            return 2;
        } else {
            wanted = argv[i];
        }
    }
    struct br_plugins *plugins;
    struct br_error error = {0};
    const struct br_stage_type *type;
    int status = 0;
    if (br_plugins_create(&plugins, &error) != BR_OK) {
        fprintf(stderr, "beamring: %s\n", error.text);
        return 1;
    }
    if (wanted != NULL) {
        if (br_plugins_find(plugins, wanted, &type, &error) == BR_OK) {
            if (json)
                status = json_print(json_stage_type(type));
            else
                br_reference_print(type, markdown, stdout);
        } else {
            fprintf(stderr, "beamring: %s\n", error.text);
            status = 2;
        }
    } else {
        json_t *list = json_array();
        if (markdown) preamble();
        const char *const *names = br_plugins_names(plugins);
        if (names != NULL && *names == NULL) {
            br_plugins_none(plugins, &error);
            fprintf(stderr, "beamring: %s\n", error.text);
            status = 1;
        }
        for (; names != NULL && *names != NULL; names++) {
            struct br_error bad = {0};
            if (br_plugins_find(plugins, *names, &type, &bad) != BR_OK)
                fprintf(stderr, "beamring: %s\n", bad.text);
            else if (json)
                json_array_append_new(list, json_stage_type(type));
            else if (markdown)
                br_reference_print(type, true, stdout);
            else
                printf("%-20s %s\n", type->name, type->summary);
        }
        if (json && status == 0)
            status = json_print(list);
        else
            json_decref(list);
    }
    br_plugins_destroy(plugins);
    return status;
}
