/* dada.h - the ASCII header of a DADA file: "KEY value" lines, comments after #, padded with zeros to
 * HDR_SIZE bytes. */
#ifndef BEAMRING_FORMATS_DADA_DADA_H
#define BEAMRING_FORMATS_DADA_DADA_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DADA_BLOCK = 4096, DADA_MAX_HEADER = 1 << 20 };

struct dada_entry {
    const char *key, *value; /* value without the comment and without blanks around it; may be empty */
    unsigned line;           /* from 1 */
};

/* Owns its text; free with dada_free (a zeroed struct is free already). */
struct dada_header {
    char *file; /* as messages name it */
    char *text;
    struct dada_entry *entry;
    size_t count;
    size_t size; /* HDR_SIZE: where the payload starts */
};

/* True when the start of a file looks like a DADA header, whether or not it is a good one. */
bool dada_probe(const void *start, size_t length);

/* True when another DADA header begins at byte `at` of a file: files of several headers, each with its
 * data. */
bool dada_begins_at(const char *path, uint64_t at);

/* Parses a header from the first `length` bytes of a file. HDR_SIZE is honoured: when it is more than
 * `length`, returns 1 and sets header->size, so that the caller can come back with more; nothing is owned
 * then. 0 when done. Errors: BR_E_FORMAT naming file and field, for a key with two values too,
 * BR_E_NO_MEMORY. */
int dada_parse(struct dada_header *header, const char *file, const void *start, size_t length,
               struct br_error *error);

/* Opens the file at `path` and reads its header. `file_bytes` receives the file's size. Errors: BR_E_IO,
 * BR_E_FORMAT. */
int dada_read(struct dada_header *header, const char *path, uint64_t *file_bytes, struct br_error *error);

void dada_free(struct dada_header *header);

/* The value of a key, or NULL. */
const char *dada_get(const struct dada_header *header, const char *key);

/* Typed access: 1 when present and good, 0 when absent (the value stays), else BR_E_FORMAT with a message. */
int dada_get_u64(const struct dada_header *header, const char *key, uint64_t min, uint64_t max,
                 uint64_t *value, struct br_error *error);
int dada_get_i64(const struct dada_header *header, const char *key, int64_t *value, struct br_error *error);
int dada_get_real(const struct dada_header *header, const char *key, double *value, struct br_error *error);

/* A list (see text_reals) that may go on under KEY_2, KEY_3, ...: exactly `count` values into out. Presence
 * as above. */
int dada_get_reals(const struct dada_header *header, const char *key, size_t count, double *out,
                   struct br_error *error);

/* Number of values in such a list: 0 when absent or malformed (dada_get_reals then says how). */
size_t dada_count_reals(const struct dada_header *header, const char *key, size_t max);

/* Records "FILE: KEY is 'VALUE'; expected ..." and returns BR_E_FORMAT. */
int dada_bad(const struct dada_header *header, const char *key, struct br_error *error, const char *expected,
             ...) __attribute__((format(printf, 4, 5)));

/* A header being written into memory that the caller owns. Writing beyond `capacity` only counts. */
struct dada_writer {
    char *text;
    size_t capacity, used;
};

void dada_put(struct dada_writer *writer, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A list in the form that dada_get_reals reads back to the last bit. */
void dada_put_reals(struct dada_writer *writer, const char *key, const double *values, size_t count);

/* The same for small whole numbers. */
void dada_put_u16(struct dada_writer *writer, const char *key, const uint16_t *values, size_t count);

/* Pads with zeros to `size` bytes. False when it does not fit. */
bool dada_finish(struct dada_writer *writer, size_t size);

#endif
