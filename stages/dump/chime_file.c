/* chime_file.c - a window as a CHIME baseband file, one for each frequency of an event.
 *
 * The library makes the file in memory, where it can wait for nobody, with its data unwritten; what it wrote
 * around them is copied, and the data go to the disk as plain bytes. */
#include "stages/common/formats/chime_attributes.h"
#include "stages/common/formats/coding.h"
#include "stages/common/stage/fileio.h"
#include "stages/common/stage/made_with.h"
#include "stages/dump/dump.h"

#include <errno.h>
#include <fcntl.h>
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

/* Makes the file in `memory`; *offset receives where its data begin. */
static bool make(const struct dump_file *f, const char *path, int64_t number, uint64_t *offset)
{
    hsize_t size[2] = {f->rows, f->row_bytes};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* what goes wrong is said elsewhere */
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) return false;
    bool good = chime_put_attributes(file, f->stream, f->piece->channel, number, f->piece->window.first) &&
                put_inputs(f, file) && chime_put(file, "event_id", H5T_NATIVE_UINT64, &f->dump->id) &&
                chime_put(file, "event_dm", H5T_NATIVE_DOUBLE, &f->dump->sweep.dm) &&
                chime_put(file, "event_dm_error", H5T_NATIVE_DOUBLE, &f->dump->sweep.dm_error) &&
                chime_put(file, "missing_samples", H5T_NATIVE_UINT64, &f->piece->missing) &&
                put_updates(f, file);
    hid_t space = H5Screate_simple(2, size, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    hid_t dataset = H5Dcreate2(file, "baseband", H5T_NATIVE_UINT8, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    haddr_t at = dataset >= 0 ? H5Dget_offset(dataset) : HADDR_UNDEF;
    *offset = at;
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
    good = H5Fclose(file) >= 0 && good;
    return good && at != HADDR_UNDEF;
}

/* A range of the file in memory. */
static uint8_t *copy(int fd, uint64_t offset, size_t bytes)
{
    uint8_t *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory != NULL && fileio_read(fd, memory, bytes, offset) == (ssize_t)bytes) return memory;
    free(memory);
    return NULL;
}

/* What stands before and behind the data. */
static int describe(struct dump_file *f)
{
    /* The library wants a name, else memfd_create would do. It writes some KiB; the data are a hole. */
    char path[] = "/dev/shm/beamring-XXXXXX", other[] = "/tmp/beamring-XXXXXX";
    uint64_t offset = 0, data = f->rows * f->row_bytes;
    struct stat info;
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        strcpy(path, other);
        fd = mkostemp(path, O_CLOEXEC);
    }
    if (fd < 0)
        return br_fail(&f->error, BR_E_IO, "cannot describe %s in memory, as %s: %s", f->path, path,
                       strerror(errno));
    bool good = make(f, path, f->of->number[f->piece->index], &offset) && fstat(fd, &info) == 0;
    unlink(path);
    free(f->header);
    free(f->tail);
    f->header = f->tail = NULL;
    if (good && f->offset != 0 && f->offset != offset) good = false; /* the data are elsewhere already */
    if (good) {
        f->offset = f->header_bytes = offset;
        uint64_t end = offset + data, size = (uint64_t)info.st_size;
        f->tail_bytes = size > end ? size - end : 0;
        f->header = copy(fd, 0, f->header_bytes);
        f->tail = copy(fd, end, f->tail_bytes);
        good = f->header != NULL && f->tail != NULL;
    }
    close(fd);
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
