/* plugin.c - see plugin.h. */
#include "runtime/graph/plugin.h"
#include "runtime/config/config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct plugin {
    struct plugin *next;
    char *path;
    void *handle;
    struct br_stage_type type; /* the plugin's descriptor, as far as it reaches; the rest is zero */
};

/* No descriptor will ever be as large: what says so was not filled in. */
enum { LARGEST_TYPE = 4096 };

/* A descriptor has at least the fields up to `stop`; later ones are optional. */
#define SMALLEST_TYPE (offsetof(struct br_stage_type, stop) + sizeof(int (*)(void)))

struct br_plugins {
    struct plugin *loaded;
    /* [ndirectories], in the order of search; those of the user before those of the installation */
    char **directory;
    size_t ndirectories, nuser;
    char **names; /* of br_plugins_names; NULL-terminated */
};

/* Inserts a directory: behind the user's, or at the end. */
static int add_directory(struct br_plugins *plugins, const char *path, bool user, struct br_error *error)
{
    char **grown = realloc(plugins->directory, (plugins->ndirectories + 1) * sizeof *grown);
    char *copy = strdup(path);
    if (grown != NULL) plugins->directory = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return br_fail(error, BR_E_NO_MEMORY, "no memory for the plugin path '%s'", path);
    }
    size_t at = user ? plugins->nuser++ : plugins->ndirectories;
    memmove(grown + at + 1, grown + at, (plugins->ndirectories - at) * sizeof *grown);
    grown[at] = copy;
    plugins->ndirectories++;
    return BR_OK;
}

/* Where the program or the library is that holds this code; "" where the system does not say. A program's own
 * name for itself, argv[0], may be anything. An upgrade replaces the file of a program that runs: then the
 * system adds " (deleted)" to the name, but the directory is the same. */
static void find_own_file(char path[PATH_MAX])
{
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1((void *)(uintptr_t)br_plugins_create, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 &&
        map != NULL && map->l_name[0] != '\0') { /* libbeamring, in another program */
        if (realpath(map->l_name, path) == NULL) path[0] = '\0';
        return;
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
}

/* The directories of stages in the tree that this code belongs to: an installation, wherever it was moved to,
 * or a build. No other installation is looked at: its stages may be of another version. */
static int add_own_directories(struct br_plugins *plugins, struct br_error *error)
{
    static const char *const beside[] = {"/../" BR_LIBDIR "/beamring/stages", "/../lib/beamring/stages",
                                         "/beamring/stages", "/../stages"};
    char path[PATH_MAX];
    find_own_file(path);
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash != NULL && i < sizeof beside / sizeof *beside; i++) {
        char directory[PATH_MAX + 128];
        snprintf(directory, PATH_MAX + 64, "%.*s%s", (int)(slash - path), path, beside[i]);
        int status = add_directory(plugins, directory, false, error);
        if (status != BR_OK) return status;
        /* Once it is loaded, plugins find the library by its name, wherever they are. */
        strcat(directory, "/../../" BR_LIBRARY);
        if (access(directory, R_OK) == 0) dlopen(directory, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    return BR_OK;
}

int br_plugins_create(struct br_plugins **result, struct br_error *error)
{
    struct br_plugins *plugins = *result = calloc(1, sizeof *plugins);
    if (plugins == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for the list of plugins");
    int status = BR_OK;
    const char *list = getenv("BEAMRING_PLUGIN_PATH");
    while (list != NULL && *list != '\0' && status == BR_OK) {
        size_t length = strcspn(list, ":");
        char directory[PATH_MAX];
        snprintf(directory, sizeof directory, "%.*s", (int)length, list);
        if (length > 0) status = add_directory(plugins, directory, false, error);
        list += length + (list[length] == ':');
    }
    if (status == BR_OK) status = add_own_directories(plugins, error);
    if (status != BR_OK) {
        br_plugins_destroy(plugins);
        *result = NULL;
    }
    return status;
}

static void free_names(struct br_plugins *plugins)
{
    for (char **name = plugins->names; name != NULL && *name != NULL; name++) free(*name);
    free(plugins->names);
    plugins->names = NULL;
}

void br_plugins_destroy(struct br_plugins *plugins)
{
    if (plugins == NULL) return;
    while (plugins->loaded != NULL) {
        struct plugin *plugin = plugins->loaded;
        plugins->loaded = plugin->next;
        dlclose(plugin->handle);
        free(plugin->path);
        free(plugin);
    }
    for (size_t i = 0; i < plugins->ndirectories; i++) free(plugins->directory[i]);
    free(plugins->directory);
    free_names(plugins);
    free(plugins);
}

/* Copies the descriptor of a plugin, which may be older (shorter) or newer (longer) than ours. Looks at the
 * version first: it says whether the rest can be trusted. */
static int copy_type(struct br_stage_type *type, const struct br_stage_type *found, const char *path,
                     struct br_error *error)
{
    if (found->abi_version != BR_ABI_VERSION)
        return br_fail(
            error, BR_E_FORMAT,
            "plugin %s was built for version %u of the plugin interface, this beamring has version %u; "
            "rebuild the plugin against the installed headers",
            path, found->abi_version, BR_ABI_VERSION);
    if (found->type_size < SMALLEST_TYPE)
        return br_fail(
            error, BR_E_FORMAT,
            "plugin %s: its stage descriptor has %u bytes, expected at least %zu; set type_size to "
            "sizeof(struct br_stage_type)",
            path, found->type_size, SMALLEST_TYPE);
    if (found->type_size > LARGEST_TYPE)
        return br_fail(error, BR_E_FORMAT,
                       "plugin %s: its stage descriptor has %u bytes, expected at most %d; set type_size to "
                       "sizeof(struct br_stage_type)",
                       path, found->type_size, LARGEST_TYPE);
    for (size_t i = sizeof *type; i < found->type_size; i++)
        if (((const uint8_t *)found)[i] != 0)
            return br_fail(
                error, BR_E_FORMAT,
                "plugin %s uses a feature that this beamring does not have (byte %zu of its stage "
                "descriptor, of which this beamring knows %zu); upgrade beamring, or rebuild the plugin "
                "against the installed headers",
                path, i, sizeof *type);
    *type = (struct br_stage_type){0};
    memcpy(type, found, found->type_size < sizeof *type ? found->type_size : sizeof *type);
    return BR_OK;
}

/* Opens a plugin file, once. */
static int load(struct br_plugins *plugins, const char *path, const struct br_stage_type **type,
                struct br_error *error)
{
    for (struct plugin *p = plugins->loaded; p != NULL; p = p->next)
        if (strcmp(p->path, path) == 0) {
            *type = &p->type;
            return BR_OK;
        }
    /* NODELETE: libraries that a plugin brings along (HDF5, BLAS) leave handlers behind that must outlive
     * it. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *reason = dlerror();
        if (reason == NULL) reason = "no reason given";
        /* Built for another version of the interface, which is in a descriptor that cannot be read now. */
        bool gone = strstr(reason, "undefined symbol: br_") != NULL;
        return br_fail(error, BR_E_FORMAT, "plugin %s cannot be loaded: %s%s", path, reason,
                       gone ? "; rebuild the plugin against the installed headers" : "");
    }
    const struct br_stage_type *found = dlsym(handle, "beamring_stage");
    struct plugin *plugin = calloc(1, sizeof *plugin);
    if (plugin != NULL) plugin->path = strdup(path);
    int status = BR_OK;
    if (plugin == NULL || plugin->path == NULL)
        status = br_fail(error, BR_E_NO_MEMORY, "no memory for plugin %s", path);
    else if (found == NULL)
        status = br_fail(
            error, BR_E_FORMAT,
            "%s is not a beamring plugin: it does not export the symbol beamring_stage (BR_STAGE_EXPORT)",
            path);
    if (status == BR_OK) status = copy_type(&plugin->type, found, path, error);
    if (status == BR_OK) status = br_plugin_check(&plugin->type, path, error);
    if (status != BR_OK) {
        if (plugin != NULL) free(plugin->path);
        free(plugin);
        dlclose(handle);
        return status;
    }
    plugin->handle = handle;
    *type = &plugin->type;
    plugin->next = plugins->loaded;
    plugins->loaded = plugin;
    return BR_OK;
}

int br_plugins_add(struct br_plugins *plugins, const char *path, struct br_error *error)
{
    struct stat info;
    char real[PATH_MAX];
    const struct br_stage_type *type;
    if (stat(path, &info) != 0 || realpath(path, real) == NULL)
        return br_fail(error, BR_E_IO, "plugin path '%s': %s", path, strerror(errno));
    return S_ISDIR(info.st_mode) ? add_directory(plugins, real, true, error)
                                 : load(plugins, real, &type, error);
}

int br_plugins_none(const struct br_plugins *plugins, struct br_error *error)
{
    char looked[PATH_MAX] = "";
    for (size_t i = 0, used = 0; i < plugins->ndirectories && used < sizeof looked; i++)
        used += (size_t)snprintf(looked + used, sizeof looked - used, "%s%s", i > 0 ? ", " : "",
                                 plugins->directory[i]);
    return br_fail(
        error, BR_E_IO,
        "there are no stages in %s; the program looks beside itself and in BEAMRING_PLUGIN_PATH: install it "
        "whole, or name their directory there",
        looked[0] != '\0' ? looked : "any directory");
}

int br_plugins_find(struct br_plugins *plugins, const char *name, const struct br_stage_type **type,
                    struct br_error *error)
{
    *type = NULL;
    for (struct plugin *p = plugins->loaded; p != NULL; p = p->next)
        if (strcmp(p->type.name, name) == 0) {
            *type = &p->type;
            return BR_OK;
        }
    for (size_t i = 0; i < plugins->ndirectories && strchr(name, '/') == NULL; i++) {
        char path[PATH_MAX];
        struct stat info;
        if ((size_t)snprintf(path, sizeof path, "%s/%s.so", plugins->directory[i], name) >= sizeof path)
            continue;
        if (stat(path, &info) != 0) continue;
        const struct br_stage_type *found;
        int status = load(plugins, path, &found, error);
        if (status == BR_OK && strcmp(found->name, name) != 0)
            return br_fail(error, BR_E_FORMAT, "plugin %s calls itself '%s'; expected '%s', as its file",
                           path, found->name, name);
        if (status == BR_OK) *type = found;
        return status;
    }
    const char *const *names = br_plugins_names(plugins);
    if (names != NULL && names[0] == NULL) return br_plugins_none(plugins, error);
    const char *near = br_suggest(name, names);
    return br_fail(error, BR_E_INVALID, "there is no stage '%s'%s%s%s (`beamring stages` lists them)", name,
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends a copy of `name`; false when memory ran out. */
static bool add_name(struct br_plugins *plugins, size_t *count, const char *name, size_t length)
{
    char **grown = realloc(plugins->names, (*count + 2) * sizeof *grown);
    if (grown == NULL) return false;
    plugins->names = grown;
    grown[*count] = strndup(name, length);
    grown[*count + 1] = NULL;
    return grown[(*count)++] != NULL;
}

const char *const *br_plugins_names(struct br_plugins *plugins)
{
    size_t count = 0;
    free_names(plugins);
    plugins->names = calloc(1, sizeof *plugins->names);
    bool ok = plugins->names != NULL;
    for (struct plugin *p = plugins->loaded; ok && p != NULL; p = p->next)
        ok = add_name(plugins, &count, p->type.name, strlen(p->type.name));
    for (size_t i = 0; ok && i < plugins->ndirectories; i++) {
        DIR *directory = opendir(plugins->directory[i]);
        struct dirent *entry;
        while (ok && directory != NULL && (entry = readdir(directory)) != NULL) {
            size_t length = strlen(entry->d_name);
            if (length > 3 && strcmp(entry->d_name + length - 3, ".so") == 0)
                ok = add_name(plugins, &count, entry->d_name, length - 3);
        }
        if (directory != NULL) closedir(directory);
    }
    if (!ok) {
        free_names(plugins);
        return NULL;
    }
    qsort(plugins->names, count, sizeof *plugins->names, by_text);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && strcmp(plugins->names[kept - 1], plugins->names[i]) == 0)
            free(plugins->names[i]);
        else
            plugins->names[kept++] = plugins->names[i];
    }
    plugins->names[kept] = NULL;
    return (const char *const *)plugins->names;
}
