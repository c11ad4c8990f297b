/* Names and bytes of the files that are replayed. */
#include "formats/common/fileio.h"
#include "formats/common/hints.h"
#include "stages/replay/replay.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAR = 1 << 20 };

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

int files_read(struct br_stage *stage, int fd, const char *path, void *buffer, size_t length, uint64_t offset)
{
    struct br_error error = {0};
    int status = fileio_read_all(fd, path, buffer, length, offset, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

uint64_t files_frame_samples(size_t row_bytes)
{
    uint64_t samples = 256;
    while (samples < 65536 && 2 * samples * row_bytes <= 1 << 20) samples *= 2;
    return samples;
}

bool files_are_far(size_t frame_bytes)
{
    return frame_bytes > (size_t)FAR;
}

int replay_check_first(struct br_stage *stage, const char *path, uint64_t first)
{
    struct br_error error = {0};
    if (hints_first(br_stage_hints(stage), path, first, &error) == BR_OK) return BR_OK;
    return br_stage_fail_at(stage, "files", "%s", error.text);
}

int replay_coding(struct br_stage *stage, const char *path, const char *key, const char *own,
                  const char *option, enum coding *coding)
{
    struct br_stream_hints hints = *br_stage_hints(stage);
    struct br_error error = {0};
    if (option != NULL) hints.coding = option;
    if (hints_coding(&hints, path, key, &own, &error) != BR_OK)
        return br_stage_fail_at(stage, "files", "%s", error.text);
    *coding = coding_from_name(own);
    return BR_OK;
}

int replay_payload(struct br_stage *stage, const struct recording *recording, const char *path,
                   uint64_t bytes, uint64_t *payload)
{
    struct br_error error = {0};
    uint64_t behind;
    if (recording_payload(recording, path, bytes, payload, &behind, &error) != BR_OK)
        return br_stage_fail_at(stage, "files", "%s", error.text);
    if (behind > 0)
        br_stage_warn(stage,
                      "%s has %llu bytes behind the %llu of data that its FILE_SIZE announces; they are "
                      "left out",
                      path, (unsigned long long)behind, (unsigned long long)*payload);
    return BR_OK;
}
