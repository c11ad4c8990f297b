/* claim.c - which files the stages of a pipeline read and write, so that none of them destroys what
 * another one uses. */
#include "runtime/graph/graph.h"
#include "runtime/stage_updates.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct br_claim {
    struct br_claim *next;
    const struct br_stage *stage;
    const char *start; /* what the names begin with, as an absolute path; of a file that is read: all of it */
    const char *suffix; /* what follows the number; NULL: this file is read */
};

/* The path without symbolic links, as far as it exists; what does not exist yet follows as it is. */
static void resolve(const char *path, char *resolved)
{
    char part[PATH_MAX];
    size_t length = strlen(path), cut = length;
    if (length >= sizeof part) length = cut = 0;
    for (;;) {
        memcpy(part, path, cut);
        part[cut] = '\0';
        if (realpath(cut > 0 ? part : *path == '/' ? "/" : ".", resolved) != NULL || cut == 0) break;
        while (cut > 0 && path[cut - 1] != '/') cut--;
        while (cut > 0 && path[cut - 1] == '/') cut--;
    }
    size_t used = strlen(resolved);
    while (cut < length) { /* component by component, without those that say nothing */
        while (cut < length && path[cut] == '/') cut++;
        size_t n = strcspn(path + cut, "/");
        if (n > 0 && !(n == 1 && path[cut] == '.') && used + n + 2 < PATH_MAX) {
            if (used > 1) resolved[used++] = '/';
            memcpy(resolved + used, path + cut, n);
            used += n;
        }
        cut += n;
    }
    resolved[used] = '\0';
}

static bool writes(const struct br_claim *writer, const struct br_claim *other)
{
    if (writer->suffix == NULL) return false;
    if (other->suffix != NULL)
        return strcmp(writer->start, other->start) == 0 && strcmp(writer->suffix, other->suffix) == 0;
    size_t n = strlen(writer->start);
    if (strncmp(writer->start, other->start, n) != 0) return false;
    size_t digits = strspn(other->start + n, "0123456789");
    return digits > 0 && strcmp(other->start + n + digits, writer->suffix) == 0;
}

static int say_written(struct br_stage *stage, const char *param, const struct br_claim *by)
{
    return br_stage_fail_at(stage, param, "stage '%s' %s %s%s%s; expected another name or directory",
                            by->stage->name,
                            by->suffix != NULL ? "writes the same files," : "reads the same file,", by->start,
                            by->suffix != NULL ? "*" : "", by->suffix != NULL ? by->suffix : "");
}

static int claim(struct br_stage *stage, const char *param, const char *start, const char *suffix)
{
    struct br_graph *graph = stage->graph;
    if (br_stage_is_update(stage)) return BR_OK; /* it writes no other files than before */
    struct br_claim *mine = br_config_alloc(graph->config, sizeof *mine);
    struct br_claim **list = suffix != NULL ? &graph->claims : &graph->reads;
    char *copy = br_config_alloc(graph->config, strlen(start) + 1);
    *mine = (struct br_claim){.next = *list, .stage = stage, .start = strcpy(copy, start), .suffix = suffix};
    /* Files that are read may be many; only stages that write are looked at for each. */
    for (const struct br_claim *c = graph->claims; c != NULL; c = c->next) {
        if (writes(mine, c)) return say_written(stage, param, c);
        if (writes(c, mine))
            return br_stage_fail_at(
                stage, param, "stage '%s' would write over %s, which this stage reads; expected another file",
                c->stage->name, start);
    }
    for (const struct br_claim *c = suffix != NULL ? graph->reads : NULL; c != NULL; c = c->next)
        if (writes(mine, c)) return say_written(stage, param, c);
    *list = mine;
    return BR_OK;
}

int br_stage_reads_file(struct br_stage *stage, const char *param, const char *path)
{
    char resolved[PATH_MAX], entry[2 * PATH_MAX];
    resolve(path, resolved);
    int status = claim(stage, param, resolved, NULL);
    /* The name may be a link: the file behind it is safe from whoever removes the link, but not the
     * recording. */
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (status != BR_OK || strlen(path) >= PATH_MAX) return status;
    snprintf(entry, sizeof entry, "%.*s", (int)(slash != NULL ? slash - path + 1 : 1),
             slash != NULL ? path : ".");
    char directory[PATH_MAX];
    resolve(entry, directory);
    snprintf(entry, sizeof entry, "%s/%s", strcmp(directory, "/") != 0 ? directory : "", name);
    return strcmp(entry, resolved) != 0 ? claim(stage, param, entry, NULL) : BR_OK;
}

bool br_graph_written(const struct br_graph *graph, size_t i, char *names, size_t size)
{
    for (const struct br_claim *c = graph->claims; c != NULL; c = c->next) {
        if (c->suffix == NULL || i-- > 0) continue;
        snprintf(names, size, "%s*%s", c->start, c->suffix);
        return true;
    }
    return false;
}

/* The length of the part of a path that is there and is no directory; 0: nothing hinders. */
static size_t blocked(const char *path)
{
    char part[PATH_MAX];
    struct stat info;
    if (strlen(path) >= sizeof part) return 0;
    for (size_t n = 1; path[n - 1] != '\0'; n++) {
        if (path[n] != '/' && path[n] != '\0') continue;
        memcpy(part, path, n);
        part[n] = '\0';
        if (stat(part, &info) != 0) return 0;
        if (!S_ISDIR(info.st_mode)) return n;
    }
    return 0;
}

int br_stage_writes_files(struct br_stage *stage, const char *param, const char *directory,
                          const char *prefix, const char *suffix)
{
    char resolved[PATH_MAX], start[2 * PATH_MAX],
        *copy = br_config_alloc(stage->graph->config, strlen(suffix) + 1);
    size_t file = blocked(directory);
    if (file > 0)
        return br_stage_fail_at(stage, br_stage_given(stage, "directory") ? "directory" : param,
                                "%.*s is a file; expected a directory", (int)file, directory);
    resolve(directory, resolved);
    snprintf(start, sizeof start, "%s/%s", strcmp(resolved, "/") != 0 ? resolved : "", prefix);
    return claim(stage, param, start, strcpy(copy, suffix));
}
