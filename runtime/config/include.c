/* include.c - `include:` at the top of a file: finding the files, reading them, merging them under the
 * including one. */
#include "runtime/config/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file being loaded, and who includes it. */
struct chain {
    const struct chain *from;
    const char *file;
    bool is_file; /* device and inode are known */
    dev_t device;
    ino_t inode;
    unsigned depth;
};

static int load(struct br_config *config, const char *path, const struct br_node *at,
                const struct chain *from, struct br_node **root, struct br_error *error);

/* --- merging ---------------------------------------------------------------------------------- */

static size_t find(const struct br_node *map, const char *key)
{
    size_t i = 0;
    while (i < map->count && strcmp(map->key[i]->text, key) != 0) i++;
    return i;
}

/* A map with the keys of both; where both have a key, `over` wins, maps merging key by key. Nodes are shared,
 * not changed. Recursion ends at BR_CONFIG_MAX_DEPTH, the depth of any tree. */
static struct br_node *merge(struct br_config *config, const struct br_node *base, const struct br_node *over)
{
    struct br_node *map = br_config_alloc(config, sizeof *map);
    *map = *over;
    map->key = br_config_alloc(config, (base->count + over->count) * sizeof *map->key);
    map->item = br_config_alloc(config, (base->count + over->count) * sizeof *map->item);
    map->count = base->count;
    if (base->count > 0) {
        memcpy(map->key, base->key, base->count * sizeof *map->key);
        memcpy(map->item, base->item, base->count * sizeof *map->item);
    }
    for (size_t i = 0; i < over->count; i++) {
        size_t k = find(base, over->key[i]->text);
        bool both =
            k < base->count && base->item[k]->kind == BR_NODE_MAP && over->item[i]->kind == BR_NODE_MAP;
        if (k == base->count) k = map->count++;
        map->key[k] = over->key[i];
        map->item[k] = both ? merge(config, base->item[k], over->item[i]) : over->item[i];
    }
    return map;
}

static struct br_node *without(struct br_config *config, const struct br_node *map, const char *key)
{
    struct br_node *rest = br_config_alloc(config, sizeof *rest);
    *rest = *map;
    rest->count = 0;
    rest->key = br_config_alloc(config, map->count * sizeof *rest->key);
    rest->item = br_config_alloc(config, map->count * sizeof *rest->item);
    for (size_t i = 0; i < map->count; i++) {
        if (strcmp(map->key[i]->text, key) == 0) continue;
        rest->key[rest->count] = map->key[i];
        rest->item[rest->count++] = map->item[i];
    }
    return rest;
}

/* --- finding ---------------------------------------------------------------------------------- */

/* The directories searched, for messages and for the search itself: calls `visit` with each until it returns
 * true. */
struct search {
    const char *wanted;
    char found[PATH_MAX];
    char looked_in[1024];
};

static bool visit(struct search *search, const char *directory, size_t length, const char *below)
{
    struct stat status;
    bool here = length == 0 || (length == 1 && directory[0] == '.' && below[0] == '\0');
    int used = here ? snprintf(search->found, sizeof search->found, "%s", search->wanted)
                    : snprintf(search->found, sizeof search->found, "%.*s%s/%s", (int)length, directory,
                               below, search->wanted);
    if (used > 0 && used < (int)sizeof search->found && stat(search->found, &status) == 0 &&
        !S_ISDIR(status.st_mode))
        return true;
    size_t n = strlen(search->looked_in);
    snprintf(search->looked_in + n, sizeof search->looked_in - n, "%s%.*s%s", n > 0 ? ", " : "",
             here ? 1 : (int)length, here ? "." : directory, below);
    return false;
}

/* Beside the including file, where the user says, where this program was installed or built. */
static bool search_for(struct search *search, const char *including)
{
    const char *slash = strrchr(including, '/');
    if (visit(search, including, slash != NULL ? (size_t)(slash - including) + (slash == including) : 0, ""))
        return true;
    const char *list = getenv("BEAMRING_CONFIG_PATH");
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ":");
        if (length > 0 && visit(search, list, length, "")) return true;
        list += length + (list[length] == ':');
    }
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *end = strrchr(program, '/');
    size_t directory = end != NULL ? (size_t)(end - program) : 0;
    /* An installation that was moved, the installation, a build folder within the sources. */
    if (directory > 0 && visit(search, program, directory, "/../share/beamring/config")) return true;
    if (visit(search, BR_CONFIG_DIR, strlen(BR_CONFIG_DIR), "")) return true;
    return directory > 0 && (visit(search, program, directory, "/../config") ||
                             visit(search, program, directory, "/../../config"));
}

const char *br_config_find(struct br_config *config, const char *key, const struct br_node *at)
{
    struct search search = {.wanted = at->text};
    if (at->text[0] == '/') return at->text;
    if (search_for(&search, at->file)) return br_config_text(config, search.found, strlen(search.found));
    br_config_error(config, at, "%s: there is no file '%s'; looked in %s", key, at->text, search.looked_in);
    return NULL;
}

static int include(struct br_config *config, const struct br_node *at, const struct chain *from,
                   struct br_node **root, struct br_error *error)
{
    *root = NULL;
    if (at->kind != BR_NODE_SCALAR || at->text[0] == '\0') {
        br_config_error(config, at, "include: expected the name of a file, or a list of names");
        return BR_OK;
    }
    const char *path = br_config_find(config, "include", at);
    if (path == NULL) return BR_OK;
    int status = load(config, path, at, from, root, error);
    if (status == BR_OK && *root != NULL && (*root)->kind != BR_NODE_MAP) {
        br_config_error(config, *root, "an included file holds a %s; expected a map",
                        (*root)->kind == BR_NODE_LIST ? "list" : "text");
        *root = NULL;
    }
    return status;
}

/* The tree of a text with what it includes merged under it; later files of a list win over earlier ones. */
static int resolve(struct br_config *config, const struct chain *self, const char *text, size_t length,
                   struct br_node **root, struct br_error *error)
{
    bool empty;
    struct br_node *tree =
        br_yaml_parse(config, (struct br_origin){.file = self->file}, text, length, &empty);
    if (empty) br_config_error_at(config, self->file, 1, 1, "the file is empty; expected YAML");
    const struct br_node *list = br_node_get(tree, "include");
    *root = tree;
    if (list == NULL) return BR_OK;
    size_t n = list->kind == BR_NODE_LIST ? list->count : 1;
    struct br_node *base = NULL;
    for (size_t i = 0; i < n; i++) {
        struct br_node *included;
        int status =
            include(config, list->kind == BR_NODE_LIST ? list->item[i] : list, self, &included, error);
        if (status != BR_OK) return status;
        if (included != NULL) base = base != NULL ? merge(config, base, included) : included;
    }
    tree = without(config, tree, "include");
    *root = base != NULL ? merge(config, base, tree) : tree;
    return BR_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Reads up to BR_CONFIG_MAX_BYTES + 1. malloc'd; NULL with errno. */
static char *read_all(int fd, size_t *length)
{
    size_t capacity = 64 << 10, used = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        ssize_t n = read(fd, text + used, capacity - used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int reason = errno;
            free(text);
            errno = reason;
            return NULL;
        }
        used += (size_t)n;
        if (n == 0 || used > BR_CONFIG_MAX_BYTES) break;
        if (used < capacity) continue;
        capacity *= 2;
        char *grown = realloc(text, capacity);
        if (grown == NULL) free(text);
        text = grown;
    }
    if (text == NULL) errno = ENOMEM;
    *length = used;
    return text;
}

static bool in_chain(const struct chain *chain, const struct stat *status)
{
    for (; chain != NULL; chain = chain->from)
        if (chain->is_file && chain->device == status->st_dev && chain->inode == status->st_ino) return true;
    return false;
}

/* Whether the opened file may be loaded; a mistake if not. */
static bool acceptable(struct br_config *config, const char *path, const struct br_node *at,
                       const struct chain *from, const struct stat *status)
{
    if (S_ISDIR(status->st_mode))
        br_config_error(config, at, "'%s' is a directory; expected a YAML file", path);
    else if (at != NULL && !S_ISREG(status->st_mode))
        br_config_error(config, at, "include: '%s' is not a regular file; expected a YAML file", path);
    else if (in_chain(from, status))
        br_config_error(
            config, at,
            "include: a cycle: '%s' includes itself, directly or through this file; expected files that "
            "do not include each other in a circle",
            path);
    else if (from != NULL && from->depth >= BR_CONFIG_MAX_INCLUDES)
        br_config_error(config, at, "include: more than %d files include each other", BR_CONFIG_MAX_INCLUDES);
    else if (config->loads++ >= BR_CONFIG_MAX_FILES)
        br_config_error(config, at, "include: more than %d files are included", BR_CONFIG_MAX_FILES);
    else
        return true;
    return false;
}

/* `at` is where the file is included, NULL for the first one. */
static int load(struct br_config *config, const char *path, const struct br_node *at,
                const struct chain *from, struct br_node **root, struct br_error *error)
{
    /* Opening must not wait for the other end of a pipe that an include names by mistake; a first file may be
     * a pipe. */
    bool standard = at == NULL && strcmp(path, "-") == 0; /* what it includes is relative to here */
    int fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                      : open(path, O_RDONLY | O_CLOEXEC | (at != NULL ? O_NONBLOCK : 0));
    if (standard) path = "stdin";
    struct stat status;
    *root = NULL;
    if (fd < 0 || fstat(fd, &status) != 0) {
        br_config_error(config, at, "cannot read '%s': %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return BR_OK;
    }
    if (!acceptable(config, path, at, from, &status)) {
        close(fd);
        return BR_OK;
    }
    size_t length = 0;
    char *text = read_all(fd, &length);
    int reason = errno, result = BR_OK;
    close(fd);
    if (text == NULL && reason == ENOMEM)
        return br_fail(error, BR_E_NO_MEMORY, "no memory to read '%s'", path);
    struct chain self = {from,          br_config_file(config, path),      true, status.st_dev,
                         status.st_ino, from != NULL ? from->depth + 1 : 0};
    if (text == NULL)
        br_config_error(config, at, "cannot read '%s': %s", path, strerror(reason));
    else if (length > BR_CONFIG_MAX_BYTES)
        br_config_error(config, at, "'%s' has more than %d bytes; expected a smaller YAML file", path,
                        BR_CONFIG_MAX_BYTES);
    else
        br_config_digest_add(config, text, length);
    if (text != NULL && length <= BR_CONFIG_MAX_BYTES)
        result = resolve(config, &self, text, length, root, error);
    free(text);
    return result;
}

int br_include_file(struct br_config *config, const char *path, struct br_node **root, struct br_error *error)
{
    return load(config, path, NULL, NULL, root, error);
}

int br_include_text(struct br_config *config, const char *name, const char *text, size_t length,
                    struct br_node **root, struct br_error *error)
{
    struct chain self = {.file = br_config_file(config, name)};
    *root = NULL;
    if (length > BR_CONFIG_MAX_BYTES) {
        br_config_error(config, NULL, "'%s' has more than %d bytes; expected a smaller text", name,
                        BR_CONFIG_MAX_BYTES);
        return BR_OK;
    }
    return resolve(config, &self, text, length, root, error);
}
