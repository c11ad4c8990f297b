#include "formats/chime/chime_hdf5.h"

#include "formats/chime/bitshuffle.h"
#include "formats/chime/chime_attributes.h"
#include "formats/common/fileio.h"
#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_types.h"

#include <errno.h>
#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SIZE ((uint64_t)1 << 40)
enum {
    FILTER_BITSHUFFLE = 32008,
    COMPRESS_LZ4 = 2,
    MOST_CHUNKS = 1 << 24,
    MOST_COLUMNS = 1 << 20,
    SLAB = 256 << 10
};
#define MOST_CHUNK_BYTES ((uint64_t)1 << 30)

bool chime_probe(const void *start, size_t length)
{
    static const uint8_t magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    return length >= sizeof magic && memcmp(start, magic, sizeof magic) == 0;
}

/* --- attributes ---------------------------------------------------------------------------------- */

/* Reads one number of any HDF5 type as `type`. Returns 1 if read, 0 if absent, -1 if it is not one number. */
static int get(hid_t file, const char *name, hid_t type, void *value)
{
    if (H5Aexists(file, name) <= 0) return 0;
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    hid_t own = attribute >= 0 ? H5Aget_type(attribute) : -1;
    H5T_class_t class = own >= 0 ? H5Tget_class(own) : H5T_NO_CLASS;
    int result = -1;
    if (space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
        (class == H5T_INTEGER || class == H5T_FLOAT) && H5Aread(attribute, type, value) >= 0)
        result = 1;
    if (own >= 0) H5Tclose(own);
    if (space >= 0) H5Sclose(space);
    if (attribute >= 0) H5Aclose(attribute);
    return result;
}

/* Ours; CHIME itself has no such attribute: 400 to 800 MHz at 800 MS/s are the second Nyquist zone. */
static int get_sideband(struct chime_file *f, hid_t file, const char *path, struct br_error *error)
{
    char text[32];
    f->sideband = BR_SIDEBAND_LOWER;
    if (H5Aexists(file, "sideband") <= 0) return BR_OK;
    f->sideband =
        chime_get_text(file, "sideband", text, sizeof text) ? br_sideband_named(text) : BR_SIDEBAND_UNKNOWN;
    if (f->sideband != BR_SIDEBAND_UNKNOWN) return BR_OK;
    return br_fail(error, BR_E_FORMAT, "%s: the attribute sideband is '%s'; expected upper or lower", path,
                   text);
}

static int attributes(struct chime_file *f, hid_t file, const char *path, struct br_error *error)
{
    f->freq_mhz = f->time0_ctime = f->delta_time = (double)NAN;
    f->time0_ctime_offset = 0;
    f->event_id = f->freq_id = -1;
    chime_get_text(file, "updates", f->updates, sizeof f->updates);
    int status = get_sideband(f, file, path, error);
    if (status != BR_OK) return status;
    double count = (double)NAN;
    const struct {
        const char *name;
        hid_t type;
        void *value;
        bool needed;
    } wanted[] = {
        {"freq_id", H5T_NATIVE_INT64, &f->freq_id, true},
        {"freq", H5T_NATIVE_DOUBLE, &f->freq_mhz, false},
        {"delta_time", H5T_NATIVE_DOUBLE, &f->delta_time, true},
        {"time0_fpga_count", H5T_NATIVE_UINT64, &f->time0_fpga_count, true},
        {"time0_fpga_count", H5T_NATIVE_DOUBLE, &count,
         true}, /* detects values that the conversion to u64 would clip */
        {"time0_ctime", H5T_NATIVE_DOUBLE, &f->time0_ctime, false},
        {"time0_ctime_offset", H5T_NATIVE_DOUBLE, &f->time0_ctime_offset, false},
        {"event_id", H5T_NATIVE_INT64, &f->event_id, false},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int found = get(file, wanted[i].name, wanted[i].type, wanted[i].value);
        if (found < 0)
            return br_fail(error, BR_E_FORMAT, "%s: the attribute %s is not one number", path,
                           wanted[i].name);
        if (found == 0 && wanted[i].needed)
            return br_fail(error, BR_E_FORMAT, "%s: no attribute %s; expected a CHIME baseband file", path,
                           wanted[i].name);
    }
    if (f->freq_id < 0 || f->freq_id > 1 << 20)
        return br_fail(error, BR_E_FORMAT, "%s: freq_id is %lld; expected a channel number from 0 on", path,
                       (long long)f->freq_id);
    if (!isnan(f->freq_mhz) && !(f->freq_mhz > 0 && f->freq_mhz < 1e6))
        return br_fail(error, BR_E_FORMAT, "%s: freq is %g; expected MHz", path, f->freq_mhz);
    if (!(f->delta_time >= 1e-9 && f->delta_time <= 1))
        return br_fail(error, BR_E_FORMAT, "%s: delta_time is %g; expected the seconds of a sample", path,
                       f->delta_time);
    if (!(count >= 0 && count <= 4e18))
        return br_fail(error, BR_E_FORMAT, "%s: time0_fpga_count is %g; expected a count from 0 to 2^61",
                       path, count);
    if (!isnan(f->time0_ctime) && !(fabs(f->time0_ctime) < 9e9))
        return br_fail(error, BR_E_FORMAT, "%s: time0_ctime is %g; expected Unix seconds", path,
                       f->time0_ctime);
    if (!(fabs(f->time0_ctime_offset) < 1))
        return br_fail(error, BR_E_FORMAT, "%s: time0_ctime_offset is %g; expected less than a second", path,
                       f->time0_ctime_offset);
    return BR_OK;
}

/* --- the dataset --------------------------------------------------------------------------------- */

/* Reads the filter: none or bitshuffle. */
static int filters(struct chime_chunks *c, hid_t plist, const char *path, struct br_error *error)
{
    int n = H5Pget_nfilters(plist);
    if (n <= 0) return BR_OK;
    unsigned flags, values[8] = {0}, config;
    size_t nvalues = 8;
    char name[64] = "";
    H5Z_filter_t id = H5Pget_filter2(plist, 0, &flags, &nvalues, values, sizeof name, name, &config);
    if (n != 1 || id != FILTER_BITSHUFFLE)
        return br_fail(error, BR_E_FORMAT,
                       "%s: /baseband is stored with %d filters, the first one is %d (%s); expected none, or "
                       "bitshuffle (%d)",
                       path, n, (int)id, name, FILTER_BITSHUFFLE);
    unsigned compression = nvalues > 4 ? values[4] : 0;
    if (compression != 0 && compression != COMPRESS_LZ4)
        return br_fail(error, BR_E_FORMAT,
                       "%s: /baseband is bitshuffled with compression %u; expected none (0) or LZ4 (2)", path,
                       compression);
    if (nvalues > 2 && values[2] != 1)
        return br_fail(error, BR_E_FORMAT, "%s: /baseband is bitshuffled as elements of %u bytes; expected 1",
                       path, values[2]);
    c->bitshuffle = true;
    c->lz4 = compression == COMPRESS_LZ4;
    c->block = nvalues > 3 ? values[3] : 0;
    return BR_OK;
}

static int find_chunks(struct chime_chunks *c, hid_t dataset, hid_t plist, uint64_t file_bytes,
                       const char *path, struct br_error *error)
{
    hsize_t dims[2] = {c->rows, c->columns};
    bool chunked = H5Pget_layout(plist) == H5D_CHUNKED;
    if (chunked && H5Pget_chunk(plist, 2, dims) != 2)
        return br_fail(error, BR_E_FORMAT, "%s: /baseband has no chunk size", path);
    c->chunk_rows = dims[0] > 0 ? dims[0] : 1;
    c->chunk_columns = dims[1] > 0 ? dims[1] : 1;
    c->down = (c->rows + c->chunk_rows - 1) / c->chunk_rows;
    c->across = (c->columns + c->chunk_columns - 1) / c->chunk_columns;
    if (c->down > MOST_CHUNKS || c->down * c->across > MOST_CHUNKS)
        return br_fail(error, BR_E_FORMAT, "%s: /baseband has %llu x %llu chunks, which is too many", path,
                       (unsigned long long)c->down, (unsigned long long)c->across);
    if (chunked && c->chunk_rows * c->chunk_columns > MOST_CHUNK_BYTES)
        return br_fail(error, BR_E_FORMAT, "%s: a chunk of /baseband has %llu bytes; expected at most 2^30",
                       path, (unsigned long long)(c->chunk_rows * c->chunk_columns));
    c->chunk = calloc(c->down * c->across + 1, sizeof *c->chunk);
    if (c->chunk == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "%s: not enough memory for its list of chunks", path);
    for (uint64_t i = 0; i < c->down * c->across; i++) {
        hsize_t at[2] = {i / c->across * c->chunk_rows, i % c->across * c->chunk_columns}, size = 0;
        unsigned mask = 0;
        haddr_t address = HADDR_UNDEF;
        if (!chunked) {
            address = H5Dget_offset(dataset);
            size = c->rows * c->columns;
        } else if (H5Dget_chunk_info_by_coord(dataset, at, &mask, &address, &size) < 0) {
            return br_fail(error, BR_E_FORMAT, "%s: HDF5 does not find chunk %llu of /baseband", path,
                           (unsigned long long)i);
        }
        struct chime_chunk *chunk = &c->chunk[i];
        chunk->plain = !c->bitshuffle || (mask & 1) != 0;
        chunk->offset = address == HADDR_UNDEF ? UINT64_MAX : address;
        if (chunk->offset == UINT64_MAX) continue;
        chunk->bytes = chunked ? (uint32_t)size : 0;
        uint64_t full = chunked ? c->chunk_rows * c->chunk_columns : size;
        if (address > file_bytes || size > file_bytes - address || (chunk->plain && size != full) ||
            (chunked && size > 2 * full + 4096))
            return br_fail(error, BR_E_FORMAT,
                           "%s: chunk %llu of /baseband has %llu bytes at %llu, in a file of %llu: the file "
                           "is truncated "
                           "or damaged",
                           path, (unsigned long long)i, (unsigned long long)size, (unsigned long long)address,
                           (unsigned long long)file_bytes);
    }
    return BR_OK;
}

static int describe_dataset(struct chime_chunks *c, hid_t dataset, uint64_t file_bytes, const char *path,
                            struct br_error *error)
{
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset), plist = H5Dget_create_plist(dataset);
    hsize_t dims[2] = {0, 0};
    bool good = space >= 0 && type >= 0 && plist >= 0;
    bool bytes = good && H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 1;
    bool flat =
        good && H5Sget_simple_extent_ndims(space) == 2 && H5Sget_simple_extent_dims(space, dims, NULL) == 2;
    H5D_layout_t layout = good ? H5Pget_layout(plist) : H5D_LAYOUT_ERROR;
    int status = BR_OK;
    c->rows = dims[0];
    c->columns = dims[1];
    if (!bytes || !flat)
        status = br_fail(error, BR_E_FORMAT, "%s: /baseband is not an array of bytes (ntime, ninput)", path);
    else if (c->rows == 0 || c->columns == 0 || c->columns > MOST_COLUMNS || c->rows > MOST_SIZE / c->columns)
        status = br_fail(
            error, BR_E_FORMAT,
            "%s: /baseband has the shape (%llu, %llu); expected (ntime, ninput) with at least one of each",
            path, (unsigned long long)c->rows, (unsigned long long)c->columns);
    else if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED)
        status = br_fail(error, BR_E_FORMAT, "%s: /baseband is neither contiguous nor chunked", path);
    if (status == BR_OK) status = filters(c, plist, path, error);
    if (status == BR_OK) status = find_chunks(c, dataset, plist, file_bytes, path, error);
    if (plist >= 0) H5Pclose(plist);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return status;
}

/* Reads the description of a file; free it with chime_free, also after a failure. */
static int describe(struct chime_file *f, const char *path, struct br_error *error)
{
    struct stat info;
    hid_t file, dataset = -1;
    int status = hdf5_open(path, &file, error);
    if (status != BR_OK) return status;
    if (stat(path, &info) != 0) /* HDF5 believes what the file says */
        status = br_fail(error, BR_E_IO, "cannot open %s: %s", path, strerror(errno));
    if (status == BR_OK) status = attributes(f, file, path, error);
    if (status == BR_OK) {
        bool outside;
        dataset = hdf5_dataset(file, "baseband", &outside);
        if (outside)
            status = br_fail(error, BR_E_FORMAT, "%s: /baseband " HDF5_OUTSIDE, path);
        else if (dataset < 0)
            status =
                br_fail(error, BR_E_FORMAT, "%s: no dataset /baseband; expected a CHIME baseband file", path);
    }
    if (status == BR_OK) status = describe_dataset(&f->chunks, dataset, (uint64_t)info.st_size, path, error);
    if (dataset >= 0) H5Dclose(dataset);
    H5Fclose(file);
    return status;
}

static size_t chunk_bytes(const struct chime_chunks *c)
{
    return (size_t)(c->down * c->across) * sizeof *c->chunk;
}

/* Paths for the child: their number, then one after the other. */
struct paths {
    size_t count;
    char text[];
};

/* In the child process: sends descriptions and lists of chunks. */
static int send_descriptions(const void *arg, struct hdf5_sink *to, struct br_error *error)
{
    const struct paths *paths = arg;
    const char *path = paths->text;
    int status = BR_OK;
    for (size_t i = 0; i < paths->count && status == BR_OK; i++, path += strlen(path) + 1) {
        struct chime_file f = {0};
        status = describe(&f, path, error);
        if (status == BR_OK &&
            !(hdf5_send(to, &f, sizeof f) && hdf5_send(to, f.chunks.chunk, chunk_bytes(&f.chunks))))
            status = br_fail(error, BR_E_IO, "%s: what is read of it does not arrive", path);
        chime_free(&f);
    }
    return status;
}

/* Takes the next description from the front of the received data. */
static int take_description(struct chime_file *f, const char **from, size_t *left, const char *path,
                            struct br_error *error)
{
    struct chime_file sent;
    if (*left >= sizeof sent) memcpy(&sent, *from, sizeof sent);
    if (*left < sizeof sent || *left - sizeof sent < chunk_bytes(&sent.chunks))
        return br_fail(error, BR_E_INTERNAL, "%s: what is read of it is not whole", path);
    const size_t bytes = chunk_bytes(&sent.chunks);
    sent.chunks.chunk = malloc(bytes);
    if (sent.chunks.chunk == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "%s: not enough memory for its list of chunks", path);
    memcpy(sent.chunks.chunk, *from + sizeof sent, bytes);
    *from += sizeof sent + bytes;
    *left -= sizeof sent + bytes;
    *f = sent;
    return BR_OK;
}

/* As chime_open. If several files are opened together and one fails, the error does not name it. */
static int open_together(struct chime_file *files, const char *const *path, size_t count,
                         struct br_error *error)
{
    size_t text = 0, left;
    for (size_t i = 0; i < count; i++) text += strlen(path[i]) + 1;
    struct paths *paths = malloc(sizeof *paths + text);
    if (paths == NULL) return br_fail(error, BR_E_NO_MEMORY, "%s: not enough memory", path[0]);
    paths->count = count;
    for (size_t i = 0, at = 0; i < count; i++) {
        size_t n = strlen(path[i]) + 1;
        memcpy(paths->text + at, path[i], n);
        at += n;
    }
    void *all;
    int status = hdf5_apart(send_descriptions, paths, sizeof *paths + text, path[0], &all, &left, error);
    const char *from = all;
    for (size_t i = 0; i < count && status == BR_OK; i++)
        status = take_description(&files[i], &from, &left, path[i], error);
    free(all);
    free(paths);
    for (size_t i = 0; i < count && status != BR_OK; i++) chime_free(&files[i]);
    return status;
}

int chime_open(struct chime_file *files, const char *const *path, size_t count, struct br_error *error)
{
    memset(files, 0, count * sizeof *files);
    struct br_error together = {0};
    if (count == 1) return open_together(files, path, 1, error);
    if (open_together(files, path, count, &together) == BR_OK) return BR_OK;
    /* One by one, to find the file that fails. */
    for (size_t i = 0; i < count; i++) {
        int status = open_together(&files[i], &path[i], 1, error);
        if (status == BR_OK) continue;
        while (i > 0) chime_free(&files[--i]);
        return status;
    }
    return BR_OK;
}

void chime_free(struct chime_file *f)
{
    free(f->chunks.chunk);
    f->chunks.chunk = NULL;
}

/* --- samples ------------------------------------------------------------------------------------- */

/* The decoder's memory, or the buffer for some rows of a chunk without a filter. */
size_t chime_scratch(const struct chime_chunks *c)
{
    size_t bytes = (size_t)(c->chunk_rows * c->chunk_columns), width = (size_t)c->chunk_columns,
           slab = width > SLAB ? width : SLAB;
    size_t decoder = c->bitshuffle ? bitshuffle_scratch(bytes, 2 * bytes + 4096) : 0;
    return decoder > slab ? decoder : slab;
}

/* A copy of a part of a chunk to its destination. */
struct part {
    size_t width, columns; /* of a row of the chunk, and how many of them the dataset has there */
    uint64_t row, rows;    /* the requested part of the chunk */
    uint64_t to_row;       /* destination of the first one */
    size_t to_column;
    const struct chime_sink *sink;
    int fd; /* the source */
    const char *path;
    uint64_t offset;
};

static int read_part(void *arg, void *buffer, size_t length, size_t offset, struct br_error *error)
{
    const struct part *p = arg;
    return fileio_read_all(p->fd, p->path, buffer, length, p->offset + offset, error);
}

/* Copies the requested bytes of a chunk from `at` on, row by row. */
static void put_part(void *arg, size_t at, const uint8_t *data, size_t n)
{
    const struct part *p = arg;
    uint64_t row = at / p->width;
    size_t column = at % p->width;
    while (n > 0) {
        size_t have = p->width - column < n ? p->width - column : n;
        if (row >= p->row && row < p->row + p->rows && column < p->columns)
            p->sink->put(p->sink->arg, p->to_row + (row - p->row), p->to_column + column, data,
                         have < p->columns - column ? have : p->columns - column);
        data += have;
        n -= have;
        column = 0;
        row++;
    }
}

/* The same for shuffled bytes. */
static bool take_part(void *arg, size_t at, const uint8_t *shuffled, size_t n)
{
    const struct part *p = arg;
    size_t plane = n / 8;
    if (at % 256 != 0 || n % 256 != 0 || p->width % 256 != 0 || p->columns % 256 != 0) return false;
    while (n > 0) {
        uint64_t row = at / p->width;
        size_t column = at % p->width, have = p->width - column < n ? p->width - column : n;
        if (row >= p->row && row < p->row + p->rows && column < p->columns &&
            !p->sink->take(p->sink->arg, p->to_row + (row - p->row), p->to_column + column, shuffled, plane,
                           have < p->columns - column ? have : p->columns - column))
            return false;
        shuffled += have / 8;
        at += have;
        n -= have;
    }
    return true;
}

/* Without a filter; never written: zeros. */
static int read_plain(const struct chime_chunk *chunk, struct part *part, uint8_t *scratch,
                      struct br_error *error)
{
    bool written = chunk->offset != UINT64_MAX;
    size_t width = part->width;
    uint64_t most = width > SLAB ? 1 : SLAB / width;
    if (!written) memset(scratch, 0, (size_t)most * width);
    for (uint64_t i = 0; i < part->rows; i += most) {
        uint64_t n = part->rows - i < most ? part->rows - i : most;
        size_t at = (size_t)(part->row + i) * width, bytes = (size_t)n * width;
        int status = written ? read_part(part, scratch, bytes, at, error) : BR_OK;
        if (status != BR_OK) return status;
        put_part(part, at, scratch, bytes);
    }
    return BR_OK;
}

static int read_chunk(const struct chime_chunks *c, uint64_t number, struct part *part,
                      struct chime_stop *stop, uint8_t *scratch, struct br_error *error)
{
    const struct chime_chunk *chunk = &c->chunk[number];
    part->offset = chunk->offset;
    if (chunk->offset == UINT64_MAX || chunk->plain) return read_plain(chunk, part, scratch, error);
    struct bitshuffle_chunk shuffled = {.bytes = (size_t)c->chunk_rows * part->width,
                                        .length = chunk->bytes,
                                        .lz4 = c->lz4,
                                        .block = c->block,
                                        .place = (size_t)(chunk->offset % 4096),
                                        .read = read_part,
                                        .put = put_part,
                                        .take = part->sink->take != NULL ? take_part : NULL,
                                        .arg = part};
    size_t first = (size_t)part->row * part->width;
    if (stop != NULL && stop->chunk == number + 1 && stop->at <= first) {
        shuffled.at = stop->at;
        shuffled.offset = stop->offset;
    }
    int status =
        bitshuffle_decode(&shuffled, first, (size_t)(part->row + part->rows) * part->width, scratch, error);
    if (status == BR_E_FORMAT)
        br_error_context(error, "%s: /baseband at byte %llu", part->path, (unsigned long long)chunk->offset);
    if (stop != NULL) *stop = (struct chime_stop){number + 1, shuffled.at, shuffled.offset};
    return status;
}

int chime_read(const struct chime_chunks *c, int fd, const char *path, uint64_t row, uint64_t rows,
               struct chime_stop *stop, void *scratch, const struct chime_sink *sink, struct br_error *error)
{
    for (uint64_t at = row; at < row + rows;) {
        uint64_t j = at / c->chunk_rows, end = row + rows,
                 until = (j + 1) * c->chunk_rows < end ? (j + 1) * c->chunk_rows : end;
        for (uint64_t k = 0; k < c->across; k++) {
            uint64_t first = k * c->chunk_columns, left = c->columns - first;
            struct part part = {.width = (size_t)c->chunk_columns,
                                .columns = (size_t)(left < c->chunk_columns ? left : c->chunk_columns),
                                .row = at - j * c->chunk_rows,
                                .rows = until - at,
                                .to_row = at - row,
                                .to_column = (size_t)first,
                                .sink = sink,
                                .fd = fd,
                                .path = path};
            int status = read_chunk(c, j * c->across + k, &part, stop, scratch, error);
            if (status != BR_OK) return status;
        }
        at = until;
    }
    return BR_OK;
}
