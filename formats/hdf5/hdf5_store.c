/* hdf5_store.c - see hdf5_store.h. */
#include "formats/hdf5/hdf5_store.h"

#include "buffers/output.h"
#include "formats/common/fileio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

enum { PAGE = 4096 };

/* Before the library is used: all is closed long before the process exits, and nothing may crash then. */
__attribute__((constructor)) static void load(void)
{
    H5dont_atexit();
}

/* Bytes of the file that wait for the commit, and what stands on the disk. */
struct hdf5_page {
    uint64_t at;
    uint8_t *now, *before;
};

static size_t least(uint64_t a, uint64_t b)
{
    return (size_t)(a < b ? a : b);
}

/* The first page that does not end before `at`. */
static size_t find_page(const struct hdf5_store *s, uint64_t at)
{
    size_t low = 0, high = s->npages;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->page[middle].at + PAGE <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void free_pages(struct hdf5_store *s)
{
    for (size_t i = 0; i < s->npages; i++) free(s->page[i].now);
    free(s->page);
    s->page = NULL;
    s->npages = s->room = 0;
}

/* The page that holds byte `at`, made if need be. NULL: no memory, or the disk cannot be read; kept in
 * `why`. */
static struct hdf5_page *page_of(struct hdf5_store *s, uint64_t at)
{
    size_t i = find_page(s, at);
    uint64_t first = at / PAGE * PAGE;
    if (i < s->npages && s->page[i].at == first) return &s->page[i];
    uint8_t *both = calloc(2, PAGE);
    if (s->npages == s->room && both != NULL) {
        size_t room = 2 * s->room + 64;
        struct hdf5_page *grown = realloc(s->page, room * sizeof *grown);
        if (grown != NULL) {
            s->page = grown;
            s->room = room;
        }
    }
    if (both == NULL || s->npages == s->room) {
        s->why = ENOMEM;
    } else if (s->fd >= 0 && fileio_read(s->fd, both, PAGE, first) < 0) {
        s->why = errno;
    } else {
        memcpy(both + PAGE, both, PAGE);
        memmove(s->page + i + 1, s->page + i, (s->npages - i) * sizeof *s->page);
        s->npages++;
        s->page[i] = (struct hdf5_page){first, both, both + PAGE};
        return &s->page[i];
    }
    free(both);
    return NULL;
}

/* Up to where changes wait in pages. */
static uint64_t paged(const struct hdf5_store *s)
{
    return s->fd < 0 ? UINT64_MAX : s->committed;
}

static void put(struct hdf5_store *s, uint64_t at, const uint8_t *from, size_t bytes)
{
    while (bytes > 0 && s->why == 0 && at < paged(s)) {
        size_t n = least(bytes, least(at / PAGE * PAGE + PAGE, paged(s)) - at);
        struct hdf5_page *page = page_of(s, at);
        if (page != NULL) memcpy(page->now + (at - page->at), from, n);
        at += n, from += n, bytes -= n;
    }
    if (bytes > 0 && s->why == 0) s->why = fileio_write(s->fd, from, bytes, at);
    if (at + bytes > s->size) s->size = at + bytes;
}

void hdf5_store_read(const struct hdf5_store *s, void *to, size_t bytes, uint64_t offset)
{
    uint64_t end = least(offset + bytes, paged(s));
    for (size_t i = find_page(s, offset); i < s->npages && s->page[i].at < end; i++) {
        uint64_t from = s->page[i].at > offset ? s->page[i].at : offset,
                 last = least(s->page[i].at + PAGE, end);
        memcpy((uint8_t *)to + (from - offset), s->page[i].now + (from - s->page[i].at),
               (size_t)(last - from));
    }
}

/* --- the library's driver
 * -------------------------------------------------------------------------------------- */

struct file {
    H5FD_t public;
    struct hdf5_store *store;
};

static struct hdf5_store *store_of(const H5FD_t *file)
{
    return ((const struct file *)(const void *)file)->store;
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t fapl, haddr_t most)
{
    (void)name, (void)flags, (void)most;
    struct hdf5_store *const *store = H5Pget_driver_info(fapl);
    struct file *file = calloc(1, sizeof *file);
    if (store == NULL || file == NULL) {
        free(file);
        return NULL;
    }
    file->store = *store;
    return &file->public;
}

static herr_t close_file(H5FD_t *file)
{
    free(file);
    return 0;
}

static herr_t query(const H5FD_t *file, unsigned long *flags)
{
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE;
    /* In memory the place of data must not depend on how many there are. NULL: asked of the driver. */
    if (file != NULL && store_of(file)->fd >= 0) *flags |= H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return store_of(file)->allocated;
}

static herr_t set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    store_of(file)->allocated = end;
    return 0;
}

static haddr_t get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return store_of(file)->size;
}

static herr_t read_file(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t bytes, void *to)
{
    struct hdf5_store *s = store_of(file);
    (void)type, (void)dxpl;
    ssize_t n = s->fd < 0 ? 0 : fileio_read(s->fd, to, bytes, at);
    if (n < 0) {
        if (s->why == 0) s->why = errno;
        return -1;
    }
    memset((uint8_t *)to + n, 0, bytes - (size_t)n);
    hdf5_store_read(s, to, bytes, at);
    return 0;
}

static herr_t write_file(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t bytes,
                         const void *from)
{
    (void)type, (void)dxpl;
    put(store_of(file), at, from, bytes);
    return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)(H5_VFD_RESERVED + 77),
#endif
    .name = "beamring",
    .maxaddr = (haddr_t)1 << 62,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct hdf5_store *),
    .open = open_file,
    .close = close_file,
    .query = query,
    .get_eoa = get_eoa,
    .set_eoa = set_eoa,
    .get_eof = get_eof,
    .read = read_file,
    .write = write_file,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* Bytes of a page that were committed, to the disk. */
static int write_page(const struct hdf5_store *s, const struct hdf5_page *page, const uint8_t *from)
{
    return fileio_write(s->fd, from, least(PAGE, s->committed - page->at), page->at);
}

/* All that waits goes to the disk, or nothing does, once for all. */
static void settle(struct hdf5_store *s)
{
    H5garbage_collect(); /* or the library keeps a buffer of each length that a text ever had, up to 16 MiB */
    if (s->fd < 0 || s->cut) return;
    if (s->why == 0 && ftruncate(s->fd, (off_t)s->allocated) != 0) s->why = errno;
    size_t i = 0;
    while (s->why == 0 && i < s->npages) {
        s->why = write_page(s, &s->page[i], s->page[i].now);
        i++;
    }
    if (s->why == 0) {
        s->committed = s->size = s->allocated;
    } else {
        while (i-- > 0) write_page(s, &s->page[i], s->page[i].before);
        s->cut = ftruncate(s->fd, (off_t)s->committed) == 0;
    }
    free_pages(s);
}

int hdf5_store_commit(struct hdf5_store *s, bool good)
{
    if ((!good || H5Fflush(s->file, H5F_SCOPE_LOCAL) < 0) && s->why == 0) s->why = EIO;
    settle(s);
    return s->why;
}

/* Releases the objects of the library and of the system that exist. */
static void end(struct hdf5_store *s)
{
    if (s->file >= 0 && H5Fclose(s->file) < 0 && s->why == 0) s->why = EIO;
    settle(s);
    if (s->driver >= 0) H5FDunregister(s->driver);
    if (s->fd >= 0 && close(s->fd) != 0 && s->why == 0) s->why = errno;
    s->file = s->driver = -1;
    s->fd = -1;
}

int hdf5_store_create(struct hdf5_store *s, const char *path, bool overwrite, struct br_error *error)
{
    *s = (struct hdf5_store){.file = -1, .driver = -1, .fd = -1};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* we say what went wrong */
    if (path != NULL && (s->fd = br_output_open(path, overwrite, error)) < 0) return BR_E_IO;
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    s->driver = H5FDregister(&driver);
    if (s->driver >= 0 && H5Pset_driver(fapl, s->driver, &s) >= 0)
        s->file = H5Fcreate(path != NULL ? path : "memory", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    if (s->file >= 0) return BR_OK;
    if (s->why == 0) s->why = ENOMEM;
    end(s);
    hdf5_store_free(s);
    if (path != NULL) unlink(path);
    return br_fail(error, s->why == ENOMEM ? BR_E_NO_MEMORY : BR_E_IO, "cannot create %s: %s",
                   path != NULL ? path : "an HDF5 file in memory", strerror(s->why));
}

int hdf5_store_close(struct hdf5_store *s, bool good)
{
    if (s->file < 0) return s->why;
    if (!good && s->why == 0) s->why = EIO;
    end(s);
    return s->why;
}

void hdf5_store_free(struct hdf5_store *s)
{
    free_pages(s);
}
