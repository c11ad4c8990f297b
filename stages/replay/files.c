/* Names and bytes of the files that are replayed. */
#include "stages/replay/replay.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

static const char *keep(struct br_stage *stage, const char *text)
{
    char *copy = br_stage_alloc(stage, strlen(text) + 1);
    return strcpy(copy, text);
}

static bool ends_with(const char *path, const char *tail)
{
    size_t n = strlen(path), m = strlen(tail);
    return n > m && strcmp(path + n - m, tail) == 0;
}

/* What `record` writes beside its data. */
static bool is_sidecar(const char *path)
{
    return ends_with(path, ".gaps") || ends_with(path, ".dada.updates") || ends_with(path, "_beams.csv");
}

/* By name, and as they were found. */
static int by_name(const void *left, const void *right)
{
    char **a = *(char **const *)left, **b = *(char **const *)right;
    int names = strcmp(*a, *b);
    return names != 0 ? names : (a > b) - (a < b);
}

int files_expand(struct br_stage *stage, const struct br_strings *patterns, struct file_list *list)
{
    glob_t found = {0};
    for (size_t i = 0; i < patterns->count; i++) {
        size_t before = found.gl_pathc;
        int status = glob(patterns->value[i], i > 0 ? GLOB_APPEND : 0, NULL, &found);
        if (status != 0 && status != GLOB_NOMATCH) {
            globfree(&found);
            return br_stage_fail_at(stage, "files", "cannot look for '%s': %s", patterns->value[i],
                                    status == GLOB_NOSPACE ? "no memory" : strerror(errno));
        }
        if (found.gl_pathc == before) {
            if (i > 0) globfree(&found);
            bool pattern = strpbrk(patterns->value[i], "*?[") != NULL;
            return br_stage_fail_at(stage, "files",
                                    pattern ? "no file matches '%s'" : "there is no file '%s'",
                                    patterns->value[i]);
        }
    }
    list->path = br_stage_alloc(stage, (found.gl_pathc + 1) * sizeof *list->path);
    list->count = 0;
    char ***sorted = br_stage_alloc(stage, (found.gl_pathc + 1) * sizeof *sorted);
    for (size_t i = 0; i < found.gl_pathc; i++) sorted[i] = &found.gl_pathv[i];
    qsort(sorted, found.gl_pathc, sizeof *sorted, by_name);
    for (size_t i = 1, first = 0; i < found.gl_pathc; i++) { /* what several patterns match counts once */
        if (strcmp(*sorted[i], *sorted[first]) == 0)
            (*sorted[i])[0] = '\0';
        else
            first = i;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        if (path[0] == '\0' || is_sidecar(path)) continue; /* a generous pattern matches those as well */
        list->path[list->count++] = keep(stage, path);
    }
    globfree(&found);
    if (list->count == 0)
        return br_stage_fail_at(stage, "files", "only .gaps files match '%s'", patterns->value[0]);
    return BR_OK;
}
