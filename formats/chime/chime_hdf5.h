/* chime_hdf5.h - CHIME baseband files: HDF5, one event and one frequency each.
 *
 * Dataset /baseband: u8 (ntime, ninput), a byte per sample in the coding `chime`, 0 where nothing was
 * written; contiguous, or in chunks that may be compressed by bitshuffle (with or without LZ4). The library
 * is asked where the bytes lie, when the file is opened; reading them is plain I/O that any thread may do. */
#ifndef BEAMRING_FORMATS_CHIME_CHIME_HDF5_H
#define BEAMRING_FORMATS_CHIME_CHIME_HDF5_H

#include "buffers/error.h"
#include "buffers/sky.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the samples are. A contiguous dataset is one chunk of all rows and columns. */
struct chime_chunks {
    uint64_t rows, columns; /* of the dataset: ntime, ninput */
    uint64_t chunk_rows, chunk_columns;
    uint64_t down, across; /* number of chunks along time and inputs */
    bool bitshuffle, lz4;
    size_t block; /* of bitshuffle; see bitshuffle_decode */
    struct chime_chunk {
        uint64_t offset; /* UINT64_MAX: never written, so all zeros */
        uint32_t bytes;
        bool plain; /* stored without its filter */
    } * chunk;      /* [down][across] */
};

struct chime_file {
    int64_t freq_id;
    double freq_mhz;   /* NAN when the file does not say */
    double delta_time; /* seconds */
    uint64_t time0_fpga_count;
    /* Unix seconds of the first sample, and what a double cannot hold of it; NAN, 0 */
    double time0_ctime, time0_ctime_offset;
    int64_t event_id;          /* -1 when absent */
    enum br_sideband sideband; /* its attribute of `record` and `dump`, else lower, as all of CHIME's */
    char updates[2048];        /* that it was made with, as `dump` writes it; "" */
    struct chime_chunks chunks;
};

/* True when the start of a file is HDF5's. */
bool chime_probe(const void *start, size_t length);

/* Opens `count` files, reads all that is described above, and closes them. Free each with chime_free; on
 * failure none is to be freed. Not while another thread uses HDF5. Errors: BR_E_IO, BR_E_FORMAT naming the
 * file and the attribute or dataset, BR_E_NO_MEMORY. */
int chime_open(struct chime_file *files, const char *const *path, size_t count, struct br_error *error);
void chime_free(struct chime_file *file);

/* Memory that chime_read needs. */
size_t chime_scratch(const struct chime_chunks *chunks);

/* Takes n samples of one row: of `row`, counted from the first one asked for, from `column` on. */
typedef void chime_put_row(void *arg, uint64_t row, size_t column, const uint8_t *data, size_t n);

/* Takes n samples likewise, a multiple of 256, whose bits stand in planes `plane` bytes apart (bitplanes.h);
 * false: it rather has them as bytes. */
typedef bool chime_take(void *arg, uint64_t row, size_t column, const uint8_t *planes, size_t plane,
                        size_t n);

struct chime_sink {
    chime_put_row *put;
    chime_take *take; /* asked first where it is possible; or NULL */
    void *arg;
};

/* Where decoding of a file's chunk stopped, so that the rows after it can be had without looking at what is
 * before them. All zeros: nowhere. */
struct chime_stop {
    uint64_t chunk; /* its number + 1 */
    size_t at, offset;
};

/* Reads rows [row, row + rows) of all columns from the open file `fd` and hands them to `sink`, as they are
 * stored (coding chime), every sample once, while they are in the processor's cache. `stop`: where an earlier
 * call for the same file stopped, or NULL; then, where this one did. Thread-safe. Errors: BR_E_IO,
 * BR_E_FORMAT for a chunk that cannot be decompressed. */
int chime_read(const struct chime_chunks *chunks, int fd, const char *path, uint64_t row, uint64_t rows,
               struct chime_stop *stop, void *scratch, const struct chime_sink *sink, struct br_error *error);

#endif
