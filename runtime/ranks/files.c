/* files.c - ranks must not write over each other's files. */
#include "runtime/ranks/ranks.h"

#include "runtime/graph/graph.h"

#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Whether the files below `path` are those of this machine alone, as far as can be known. */
static bool is_local(const char *path)
{
    static const long local[] = {0xef53,     0x58465342, 0x9123683e, 0x01021994,
                                 0x794c7630, 0x2fc12fc1, 0xf2f52010};
    char part[2 * 4096];
    struct statfs info;
    snprintf(part, sizeof part, "%s", path);
    for (char *slash; statfs(part, &info) != 0; *slash = '\0') {
        slash = strrchr(part, '/');
        if (slash == NULL || slash == part) return true;
    }
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if ((long)info.f_type == local[i]) return true;
    return false;
}

/* One line for each kind of file that is written: the machine where that matters, a tab, the names. */
static int list(const struct br_graph *graph, char **text, size_t *length)
{
    char host[256] = "", name[2 * 4096];
    FILE *out = open_memstream(text, length);
    if (out == NULL) return BR_E_NO_MEMORY;
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; br_graph_written(graph, i, name, sizeof name); i++)
        fprintf(out, "%s\t%s\n", is_local(name) ? host : "", name);
    return fclose(out) == 0 ? BR_OK : BR_E_NO_MEMORY;
}

/* The line, which ends with a newline, is one of those of `text`, which begin behind one. */
static bool has_line(const struct br_ranks_part *text, const char *line, size_t length)
{
    const char *begin = (const char *)text->data, *end = begin + text->bytes;
    for (const char *at = begin; at < end && (at = memmem(at, (size_t)(end - at), line, length)) != NULL;
         at++)
        if (at == begin || at[-1] == '\n') return true;
    return false;
}

int br_ranks_check_files(struct br_ranks *ranks, const struct br_graph *graph, struct br_error *error)
{
    char *mine = NULL;
    size_t length = 0;
    struct br_ranks_part *part = NULL;
    if (ranks == NULL) return BR_OK;
    if (list(graph, &mine, &length) != BR_OK)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for file names");
    int status = br_ranks_gather(ranks, mine, length, &part, error);
    for (unsigned r = 0; status == BR_OK && r < br_ranks_count(ranks); r++)
        for (const char *line = mine, *end; r != br_ranks_rank(ranks) && line < mine + length; line = end) {
            end = strchr(line, '\n') + 1;
            if (!has_line(&part[r], line, (size_t)(end - line))) continue;
            const char *tab = memchr(line, '\t', (size_t)(end - line)), *name = tab != NULL ? tab + 1 : line;
            status = br_fail(error, BR_E_INVALID,
                             "ranks %u and %u would both write the files %.*s; expected names of their own: "
                             "put ${RANK} into `directory:` (or `prefix:`)",
                             br_ranks_rank(ranks), r, (int)(end - 1 - name), name);
        }
    free(mine);
    free(part);
    return status;
}
