/* files.c - ranks must not write over each other's files. */
#include "runtime/ranks/files.h"

#include "runtime/graph/graph.h"
#include "runtime/ranks/ranks.h"

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

static bool has_line(const char *text, size_t length, const char *line, size_t line_length)
{
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t n = end != NULL ? (size_t)(end - text) - at : length - at;
        if (n == line_length && memcmp(text + at, line, n) == 0) return true;
        at += n + 1;
    }
    return false;
}

int br_ranks_check_files(struct br_ranks *ranks, const struct br_graph *graph, struct br_error *error)
{
    char *mine = NULL;
    size_t length = 0, all_length = 0, at = 0;
    unsigned char *all = NULL;
    if (ranks == NULL) return BR_OK;
    if (list(graph, &mine, &length) != BR_OK)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for file names");
    int status = br_ranks_gather(ranks, mine, length, &all, &all_length, error);
    for (unsigned r = 0; status == BR_OK && r < br_ranks_count(ranks); r++) {
        const unsigned char *part = NULL;
        size_t bytes = 0;
        status = br_ranks_part(all, all_length, &at, &part, &bytes, error);
        if (status != BR_OK || r == br_ranks_rank(ranks)) continue;
        const char *theirs = (const char *)part;
        for (size_t i = 0; i < length && status == BR_OK;) {
            size_t n = strcspn(mine + i, "\n");
            if (has_line(theirs, bytes, mine + i, n)) {
                const char *name = memchr(mine + i, '\t', n);
                status =
                    br_fail(error, BR_E_INVALID,
                            "ranks %u and %u would both write the files %.*s; expected names of their own: "
                            "put ${RANK} into `directory:` (or `prefix:`)",
                            br_ranks_rank(ranks), r, (int)(mine + i + n - name - 1), name + 1);
            }
            i += n + 1;
        }
    }
    free(mine);
    free(all);
    return status;
}
