/* available.c - see available.h. */
#include "buffers/available.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static size_t clip(unsigned long long bytes)
{
    return bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
}

static size_t machine_has(const char *root)
{
    char path[PATH_MAX], text[128];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    if (file == NULL) return SIZE_MAX;
    unsigned long long kib = 0, total = 0;
    bool found = false;
    while (fgets(text, sizeof text, file) != NULL) {
        if (sscanf(text, "MemAvailable: %llu kB", &kib) == 1) {
            total += kib;
            found = true;
        } else if (sscanf(text, "SwapFree: %llu kB", &kib) == 1) {
            total += kib;
        }
    }
    fclose(file);
    return found ? clip(total * 1024) : SIZE_MAX;
}

/* The number in DIRECTORY/NAME; false if the file does not exist or says "max". */
static bool read_number(const char *directory, const char *name, unsigned long long *number)
{
    char path[2 * PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool found = fscanf(file, "%llu", number) == 1;
    fclose(file);
    return found;
}

/* Bytes of pages that the kernel reclaims before it kills a program: the line KEY of
 * DIRECTORY/memory.stat. */
static unsigned long long reclaimable(const char *directory, const char *key)
{
    char path[2 * PATH_MAX + 64], word[64];
    unsigned long long bytes = 0;
    bool found = false;
    snprintf(path, sizeof path, "%s/memory.stat", directory);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    while (!found && fscanf(file, "%63s %llu", word, &bytes) == 2) found = strcmp(word, key) == 0;
    fclose(file);
    return found ? bytes : 0;
}

/* One version of control groups: where its folders are, and the files that state a group's limits and use. */
struct version {
    const char *mount, *limit, *usage, *cache, *swap_limit, *swap_usage;
};
static const struct version v2 = {"/sys/fs/cgroup", "memory.max",      "memory.current",
                                  "inactive_file",  "memory.swap.max", "memory.swap.current"};
static const struct version v1 = {"/sys/fs/cgroup/memory",
                                  "memory.limit_in_bytes",
                                  "memory.usage_in_bytes",
                                  "total_inactive_file",
                                  NULL,
                                  NULL};

/* The least of `least` and the memory that the group `path` and each of its parents can still use; `who`
 * names the group that limits. Shortens `path` from parent to parent. */
static size_t groups_allow(const char *root, const struct version *v, char *path, size_t least, char *who,
                           size_t size)
{
    for (;;) {
        char directory[2 * PATH_MAX];
        unsigned long long limit, used, swap = 0, swapped = 0;
        snprintf(directory, sizeof directory, "%s%s%s", root, v->mount, path);
        if (read_number(directory, v->limit, &limit) && read_number(directory, v->usage, &used)) {
            unsigned long long cached = reclaimable(directory, v->cache);
            used -= cached < used ? cached : used;
            if (v->swap_limit != NULL && read_number(directory, v->swap_limit, &swap))
                (void)read_number(directory, v->swap_usage, &swapped);
            unsigned long long room =
                (limit > used ? limit - used : 0) + (swap > swapped ? swap - swapped : 0);
            if (room < least) {
                least = clip(room);
                snprintf(who, size, "the control group %.80s allows", *path != '\0' ? path : "/");
            }
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL) return least;
        *slash = '\0';
    }
}

/* Whether the controllers of a line of /proc/self/cgroup ("memory", "cpu,memory") include memory. */
static bool has_memory(const char *controllers)
{
    for (const char *c = controllers; *c != '\0'; c += strcspn(c, ","), c += *c == ',')
        if (strcspn(c, ",") == 6 && strncmp(c, "memory", 6) == 0) return true;
    return false;
}

size_t br_memory_available(const char *root, char *who, size_t size)
{
    char path[PATH_MAX], line[PATH_MAX + 256];
    size_t least = machine_has(root);
    snprintf(who, size, "the machine has");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) { /* NUMBER:CONTROLLERS:PATH */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (strcmp(group, "/") == 0) *group = '\0'; /* paths have no slash at the end */
        if (*controllers == '\0')
            least = groups_allow(root, &v2, group, least, who, size);
        else if (has_memory(controllers))
            least = groups_allow(root, &v1, group, least, who, size);
    }
    if (file != NULL) fclose(file);
    return least;
}
