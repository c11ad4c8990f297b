/* earlier.c - see earlier.h. */
#include "stages/common/stage/earlier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *earlier_rest(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] != '_') return NULL;
    size_t digits = strspn(name + n + 1, "0123456789");
    return digits >= 6 ? name + n + 1 + digits : NULL;
}

int earlier_files(const char *directory, const char *prefix, earlier_is_ours *is_ours, bool away, char *found,
                  size_t size)
{
    DIR *dir = opendir(directory);
    int status = 0;
    found[0] = '\0';
    if (dir == NULL) return 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_ours(entry->d_name, prefix)) continue;
        snprintf(found, size, "%s/%s", directory, entry->d_name);
        if (!away) break;
        if (unlinkat(dirfd(dir), entry->d_name, 0) != 0) status = errno;
    }
    closedir(dir);
    return status;
}
