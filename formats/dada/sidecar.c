#include "formats/dada/sidecar.h"

#include "buffers/output.h"
#include "formats/common/fileio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sidecar_create(struct sidecar *sidecar, size_t nchannels)
{
    sidecar->fd = -1;
    sidecar->line = malloc(SIDECAR_LINES * sizeof *sidecar->line);
    sidecar->text = malloc((size_t)SIDECAR_LINES * GAPS_LINE);
    sidecar->scratch = malloc(2 * nchannels);
    if (sidecar->line == NULL || sidecar->text == NULL || sidecar->scratch == NULL)
        return br_fail(&sidecar->error, BR_E_NO_MEMORY, "no memory for the list of gaps");
    return BR_OK;
}

void sidecar_open_late(struct sidecar *sidecar, const char *recording)
{
    snprintf(sidecar->path, sizeof sidecar->path, "%s.gaps", recording);
    sidecar->settled = sidecar->written = 0;
    sidecar->nlines = 0;
    sidecar->late = true;
}

int sidecar_open(struct sidecar *sidecar, const char *recording, bool overwrite)
{
    sidecar_open_late(sidecar, recording);
    sidecar->late = false;
    sidecar->fd = br_output_open(sidecar->path, overwrite, &sidecar->error);
    return sidecar->fd >= 0 ? BR_OK : BR_E_IO;
}

/* Writes the lines from the settled part on. */
static int write_lines(struct sidecar *sidecar)
{
    size_t used = 0;
    if (sidecar->fd < 0) sidecar->fd = br_output_open(sidecar->path, true, &sidecar->error);
    if (sidecar->fd < 0) return BR_E_IO;
    for (size_t i = 0; i < sidecar->nlines; i++) used += gaps_format(sidecar->text + used, &sidecar->line[i]);
    int why = fileio_write(sidecar->fd, sidecar->text, used, sidecar->settled);
    if (why != 0)
        return br_fail(&sidecar->error, BR_E_IO, "cannot write %s: %s", sidecar->path, strerror(why));
    uint64_t end = sidecar->settled + used;
    if (end < sidecar->written && ftruncate(sidecar->fd, (off_t)end) != 0)
        return br_fail(&sidecar->error, BR_E_IO, "cannot shorten %s: %s", sidecar->path, strerror(errno));
    sidecar->written = end;
    return BR_OK;
}

/* Lets go of the first `count` lines, which stand in the file already. */
static void settle(struct sidecar *sidecar, size_t count)
{
    char line[GAPS_LINE];
    for (size_t i = 0; i < count; i++) sidecar->settled += gaps_format(line, &sidecar->line[i]);
    memmove(sidecar->line, sidecar->line + count, (sidecar->nlines - count) * sizeof *sidecar->line);
    sidecar->nlines -= count;
}

/* Takes in one line: as the continuation of an earlier one, or in its place. */
static int add(void *arg, const struct gap *gap)
{
    struct sidecar *sidecar = arg;
    sidecar->changed = true;
    for (size_t i = sidecar->nlines; i-- > 0;) {
        struct gap *line = &sidecar->line[i];
        if (line->first + line->count != gap->first || line->channel != gap->channel ||
            line->nchannels != gap->nchannels || line->weight != gap->weight)
            continue;
        line->count += gap->count;
        return 0;
    }
    if (sidecar->nlines == SIDECAR_LINES) {
        int status = write_lines(sidecar);
        if (status != BR_OK) return status;
        settle(sidecar, sidecar->nlines);
    }
    size_t at = sidecar->nlines++;
    for (; at > 0; at--) {
        const struct gap *before = &sidecar->line[at - 1];
        if (before->first < gap->first || (before->first == gap->first && before->channel <= gap->channel))
            break;
        sidecar->line[at] = *before;
    }
    sidecar->line[at] = *gap;
    return 0;
}

/* Lines that end before `end` cannot grow any more. */
static void settle_until(struct sidecar *sidecar, uint64_t end)
{
    size_t count = 0;
    while (count < sidecar->nlines && sidecar->line[count].first + sidecar->line[count].count < end) count++;
    if (count > 0) settle(sidecar, count);
}

int sidecar_frame(struct sidecar *sidecar, const struct br_stream *stream, const struct br_frame *frame)
{
    if (frame->complete) return BR_OK;
    sidecar->changed = false;
    int status = gaps_describe(stream, frame, sidecar->scratch, add, sidecar);
    if (status == BR_OK && sidecar->changed) status = write_lines(sidecar);
    if (status == BR_OK) settle_until(sidecar, frame->first + frame->samples);
    return status;
}

int sidecar_hole(struct sidecar *sidecar, uint64_t first, uint64_t count)
{
    struct gap gap = {.first = first, .count = count};
    int status = add(sidecar, &gap);
    return status == BR_OK ? write_lines(sidecar) : status;
}

int sidecar_close(struct sidecar *sidecar)
{
    bool late = sidecar->late;
    int fd = sidecar->fd, why = fd >= 0 && late && fsync(fd) != 0 ? errno : 0;
    sidecar->fd = -1;
    sidecar->late = false;
    if (fd >= 0 && close(fd) != 0 && why == 0) why = errno;
    if (late && (fd < 0 || why != 0) && br_output_check(sidecar->path, NULL) == BR_OK) unlink(sidecar->path);
    if (why == 0) return BR_OK;
    return br_fail(&sidecar->error, BR_E_IO, "cannot complete %s: %s", sidecar->path, strerror(why));
}

void sidecar_remove(struct sidecar *sidecar)
{
    if (sidecar->fd >= 0) {
        close(sidecar->fd);
        unlink(sidecar->path);
    }
    sidecar->fd = -1;
}

void sidecar_destroy(struct sidecar *sidecar)
{
    free(sidecar->line);
    free(sidecar->text);
    free(sidecar->scratch);
    sidecar->line = NULL;
    sidecar->text = NULL;
    sidecar->scratch = NULL;
}
