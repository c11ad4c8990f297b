/* libFuzzer: any bytes as a CHIME baseband file. An accepted file makes sense, and its first and last rows
 * can be read or are refused. */
#include "formats/chime/chime_hdf5.h"
#include "tests/fuzz/input_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 22 };

struct output {
    uint8_t *bytes; /* [rows][columns] */
    uint64_t columns, rows, got;
};

static void put(void *arg, uint64_t row, size_t column, const uint8_t *data, size_t n)
{
    struct output *out = arg;
    if (row >= out->rows || column + n > out->columns) abort();
    memcpy(out->bytes + row * out->columns + column, data, n);
    out->got += n;
}

static void read_rows(const struct chime_file *f, int fd, const char *path, uint64_t row, uint64_t rows)
{
    const struct chime_chunks *c = &f->chunks;
    if (c->columns > MOST / rows || c->chunk_rows * c->chunk_columns > MOST) return;
    size_t room = chime_scratch(c);
    struct output out = {malloc(rows * c->columns), c->columns, rows,
                         0}; /* exact, so that a byte too many is seen */
    uint8_t *scratch = malloc(room);
    struct br_error error = {0};
    if (out.bytes != NULL && scratch != NULL) {
        struct chime_sink sink = {.put = put, .arg = &out};
        int status = chime_read(c, fd, path, row, rows, NULL, scratch, &sink, &error);
        if (status == BR_OK ? out.got != rows * c->columns : error.text[0] == '\0') abort();
    }
    free(out.bytes);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    chime_probe(data, size);
    if (!write_input(data, size)) return 0;
    struct chime_file f;
    struct br_error error = {0};
    const char *const path = input_path;
    if (chime_open(&f, &path, 1, &error) != BR_OK) {
        if (error.text[0] == '\0') abort();
        return 0;
    }
    const struct chime_chunks *c = &f.chunks;
    if (c->rows == 0 || c->columns == 0 || c->down == 0 || c->across == 0 || !(f.delta_time > 0) ||
        f.freq_id < 0)
        abort();
    uint64_t most = c->rows < 8 ? c->rows : 8;
    read_rows(&f, input_fd, input_path, 0, most);
    read_rows(&f, input_fd, input_path, c->rows - most, most);
    chime_free(&f);
    return 0;
}
