/* chime_file.c - a window as a CHIME baseband file, one for each frequency of an event. The data go to the
 * disk as plain bytes; HDF5 describes them in memory. */
#include "formats/chime/chime_attributes.h"
#include "formats/common/coding.h"
#include "formats/common/fileio.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/made_with.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *refuses(const struct br_stream *s)
{
    static const char *const axes[] = {"time", "freq", "pol", "dish"};
    bool field = s->array.naxes == 4 && s->array.dtype == BR_INT4X2;
    for (unsigned i = 0; field && i < 4; i++) field = strcmp(s->array.axis[i].name, axes[i]) == 0;
    if (!field) return "CHIME's files hold E[time][freq][pol][dish] in int4x2";
    if (s->zone[0].downsample != 1 || s->zone[0].factor != 1 || s->nzones > 1)
        return "CHIME's files hold the electric field as the F-engine gives it, not upchannelized";
    return NULL;
}

/* Which of the stream's inputs stand in the file. */
static bool put_inputs(const struct dump_file *f, hid_t file)
{
    uint32_t *number = malloc(f->row_bytes * sizeof *number);
    for (size_t i = 0; number != NULL && i < f->row_bytes; i++) {
        size_t pol = i / f->ndish, dish = i % f->ndish;
        if (f->dump->ndishes > 0) dish = f->dump->dish[dish];
        number[i] = (uint32_t)(pol * f->of->ndish + dish);
    }
    bool good = number != NULL && chime_put_inputs(file, f->row_bytes, number);
    free(number);
    return good;
}

/* The updates that it was made with, in as many bytes whatever they are: the data must not move. */
static bool put_updates(const struct dump_file *f, hid_t file)
{
    char text[MADE_WITH_ROOM] = "";
    const struct br_stage *stage = f->of->writer->stage;
    if (!br_stage_follows_updates(stage)) return true;
    made_with(stage, f->piece->window.first, f->piece->window.end, text, sizeof text);
    hid_t type = H5Tcopy(H5T_C_S1);
    bool good = H5Tset_size(type, sizeof text) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
                chime_put(file, "updates", type, text);
    H5Tclose(type);
    return good;
}

static bool put(hid_t file, const void *arg)
{
    const struct dump_file *f = arg;
    return chime_put_attributes(file, f->stream, f->piece->channel, f->of->number[f->piece->index],
                                f->piece->window.first) &&
           put_inputs(f, file) && chime_put(file, "event_id", H5T_NATIVE_UINT64, &f->dump->id) &&
           chime_put(file, "event_dm", H5T_NATIVE_DOUBLE, &f->dump->sweep.dm) &&
           chime_put(file, "event_dm_error", H5T_NATIVE_DOUBLE, &f->dump->sweep.dm_error) &&
           chime_put(file, "missing_samples", H5T_NATIVE_UINT64, &f->piece->missing) && put_updates(f, file);
}

/* What stands before and behind the data. */
static int describe(struct dump_file *f)
{
    struct chime_around around;
    bool good = chime_describe(&around, f->rows, f->row_bytes, put, f);
    free(f->header);
    free(f->tail);
    f->header = around.head;
    f->tail = around.tail;
    f->tail_bytes = around.tail_bytes;
    if (good && f->offset != 0 && f->offset != around.head_bytes)
        good = false; /* the data are elsewhere already */
    if (good) f->offset = f->header_bytes = around.head_bytes;
    return good ? BR_OK : br_fail(&f->error, BR_E_IO, "HDF5 cannot describe %s", f->path);
}

/* What is missing is 0 in these files; -8 - 8i, whose code that is, becomes -7 - 8i. */
static int rows(struct dump_file *f, uint64_t row, uint64_t count, uint8_t *data, const uint8_t *valid)
{
    (void)row;
    size_t cell = f->row_bytes;
    coding_encode(CODING_CHIME, data, data, count * cell);
    uint8_t *end = data + count * cell;
    for (uint8_t *at = data; (at = memchr(at, 0, (size_t)(end - at))) != NULL; f->changed++) *at++ = 0x10;
    for (uint64_t r = 0; valid != NULL && r < count; r++)
        if (valid[r] == BR_MISSING) memset(data + r * cell, 0, cell);
    return BR_OK;
}

static int lacks(struct dump_file *f, uint64_t first, uint64_t end)
{
    (void)f, (void)first, (void)end; /* where nothing is written there are zeros */
    return BR_OK;
}

static int finish(struct dump_file *f)
{
    uint64_t end = f->offset + f->rows * f->row_bytes;
    int why = fileio_write(f->fd, f->header, f->header_bytes, 0);
    if (why == 0) why = fileio_write(f->fd, f->tail, f->tail_bytes, end);
    if (why == 0) return BR_OK;
    return br_fail(&f->error, BR_E_IO, "cannot write %s: %s", f->part, strerror(why));
}

static void free_file(struct dump_file *f)
{
    free(f->header);
    free(f->tail);
}

const struct dump_format dump_chime = {"chime", "h5", refuses, describe, rows, lacks, finish, free_file};
