#include "stages/record/later.h"

#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "runtime/stage_updates.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(struct later *later, const char *what, const char *path, int why)
{
    return br_fail(&later->error, BR_E_IO, "cannot %s %s.updates: %s", what, path, strerror(why));
}

int later_write(struct later *later, const struct br_stage *stage, const char *path, uint64_t first,
                uint64_t end)
{
    size_t length = br_stage_updates_begun(stage, first, end, NULL, 0); /* nearly always none */
    if (length == 0) return BR_OK;
    char *text = malloc(length + 1), name[2100];
    if (text == NULL) return br_fail(&later->error, BR_E_NO_MEMORY, "no memory for %s.updates", path);
    if (br_stage_updates_begun(stage, first, end, text, length + 1) < length) length = strlen(text);
    for (char *c = text; (c = strchr(c, ',')) != NULL;) *c = '\n';
    text[length] = '\n';
    if (later->fd < 0) {
        snprintf(name, sizeof name, "%s.updates", path);
        later->fd = br_output_open(name, true, &later->error);
        later->bytes = 0;
    }
    int why = later->fd < 0 ? EIO : fileio_write(later->fd, text, length + 1, later->bytes);
    later->bytes += length + 1;
    free(text);
    return why == 0 ? BR_OK : failed(later, "write", path, why);
}

int later_close(struct later *later)
{
    int fd = later->fd;
    later->fd = -1;
    if (fd >= 0 && close(fd) != 0) return failed(later, "complete", "the file", errno);
    return BR_OK;
}
