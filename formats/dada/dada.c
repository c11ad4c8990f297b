#include "formats/dada/dada.h"
#include "buffers/regular_file.h"

#include "formats/common/fileio.h"
#include "formats/common/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIN_HEADER = 64, VALUES_PER_LINE = 64 };

bool dada_probe(const void *start, size_t length)
{
    const char *text = start;
    if (length >= 8 && memcmp(text, "HEADER ", 7) == 0) return true;
    if (length > DADA_BLOCK) length = DADA_BLOCK;
    /* HDR_SIZE as the first word of a line, behind nothing but text */
    for (size_t i = 0; i + 9 <= length; i++) {
        if (text[i] == '\0') return false;
        if ((i == 0 || text[i - 1] == '\n') && memcmp(text + i, "HDR_SIZE", 8) == 0 &&
            isspace((unsigned char)text[i + 8]))
            return true;
    }
    return false;
}

bool dada_begins_at(const char *path, uint64_t at)
{
    char start[DADA_BLOCK];
    int fd = br_open_regular(path, 0, NULL, NULL);
    ssize_t got = fd >= 0 ? fileio_read(fd, start, sizeof start, at) : -1;
    if (fd >= 0) close(fd);
    return got > 0 && dada_probe(start, (size_t)got);
}

static bool is_key(const char *key)
{
    if (!isalpha((unsigned char)key[0]) && key[0] != '_') return false;
    for (; *key != '\0'; key++)
        if (!isalnum((unsigned char)*key) && strchr("_-.", *key) == NULL) return false;
    return true;
}

/* Cuts one line into key and value, in place. 0: nothing on it; 1: an entry; -1: no key. */
static int cut_line(char *line, struct dada_entry *entry)
{
    char *comment = strchr(line, '#');
    if (comment != NULL) *comment = '\0';
    while (isspace((unsigned char)*line)) line++;
    char *end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1])) *--end = '\0';
    if (*line == '\0') return 0;
    char *value = line;
    while (*value != '\0' && !isspace((unsigned char)*value)) value++;
    if (*value != '\0') *value++ = '\0';
    while (isspace((unsigned char)*value)) value++;
    entry->key = line;
    entry->value = value;
    return is_key(line) ? 1 : -1;
}

static int parse_lines(struct dada_header *header, struct br_error *error)
{
    size_t lines = 1;
    for (const char *p = header->text; *p != '\0'; p++) lines += *p == '\n';
    header->entry = calloc(lines, sizeof *header->entry);
    if (header->entry == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for its header", header->file);
    unsigned number = 0;
    for (char *line = header->text; line != NULL;) {
        char *next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        number++;
        for (const char *p = line; *p != '\0'; p++)
            if ((unsigned char)*p < 0x20 && *p != '\t' && *p != '\r')
                return br_fail(
                    error, BR_E_FORMAT,
                    "%s: line %u of the header holds the byte 0x%02x; expected text: the header is corrupt",
                    header->file, number, (unsigned char)*p);
        struct dada_entry entry = {.line = number};
        int found = cut_line(line, &entry);
        if (found < 0)
            return br_fail(error, BR_E_FORMAT,
                           "%s: line %u of the header starts with '%.40s'; expected KEY value", header->file,
                           number, entry.key);
        if (found > 0) header->entry[header->count++] = entry;
        line = next;
    }
    return BR_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct dada_entry *x = *(const struct dada_entry *const *)a,
                            *y = *(const struct dada_entry *const *)b;
    int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* A key with two values: some readers take the first, others the last one. */
static int check_twice(const struct dada_header *header, struct br_error *error)
{
    const struct dada_entry **sorted = calloc(header->count + 1, sizeof *sorted);
    if (sorted == NULL) return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for its header", header->file);
    for (size_t i = 0; i < header->count; i++) sorted[i] = &header->entry[i];
    qsort(sorted, header->count, sizeof *sorted, by_key);
    int status = BR_OK;
    for (size_t i = 1; status == BR_OK && i < header->count; i++) {
        const struct dada_entry *one = sorted[i - 1], *other = sorted[i];
        if (strcmp(one->key, other->key) == 0 && strcmp(one->value, other->value) != 0)
            status = br_fail(error, BR_E_FORMAT,
                             "%s: %.40s is '%.40s' in line %u of the header and '%.40s' in line %u; expected "
                             "one value",
                             header->file, one->key, one->value, one->line, other->value, other->line);
    }
    free(sorted);
    return status;
}

int dada_parse(struct dada_header *header, const char *file, const void *start, size_t length,
               struct br_error *error)
{
    memset(header, 0, sizeof *header);
    size_t used = length < DADA_MAX_HEADER ? length : DADA_MAX_HEADER;
    header->file = strdup(file);
    header->text = malloc(used + 1);
    if (header->file == NULL || header->text == NULL) {
        dada_free(header);
        return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for its header", file);
    }
    /* HDR_SIZE first, from a scratch parse: it says how many of these bytes are header at all. The text ends
     * at the first zero byte, so that payload behind a short header is never read as text. */
    memcpy(header->text, start, used);
    header->text[used] = '\0';
    uint64_t size = DADA_BLOCK;
    for (const char *p = header->text; p != NULL; p = strchr(p, '\n')) {
        if (*p == '\n') p++;
        if (strncmp(p, "HDR_SIZE", 8) != 0 || !isspace((unsigned char)p[8])) continue;
        char value[32];
        const char *v = p + 8 + strspn(p + 8, " \t");
        size_t n = strcspn(v, " \t\r\n#");
        snprintf(value, sizeof value, "%.*s", n < 31 ? (int)n : 31, v);
        if (text_u64(value, &size) != 0 || size < MIN_HEADER || size > DADA_MAX_HEADER) {
            dada_free(header);
            return br_fail(error, BR_E_FORMAT,
                           "%s: HDR_SIZE is '%s'; expected a number of bytes from %d to %d", file, value,
                           MIN_HEADER, DADA_MAX_HEADER);
        }
        break;
    }
    if (size > length) {
        dada_free(header);
        header->size = size;
        return 1;
    }
    header->size = size;
    header->text[size < used ? size : used] = '\0';
    int status = parse_lines(header, error);
    if (status == BR_OK && header->count == 0)
        status = br_fail(error, BR_E_FORMAT, "%s: the header is empty; expected KEY value lines", file);
    if (status == BR_OK) status = check_twice(header, error);
    if (status != BR_OK) dada_free(header);
    return status;
}

/* A header whose text goes on behind HDR_SIZE: what stands there would be played as samples. `last` is its
 * last byte. */
static int check_end(const struct dada_header *header, int fd, char last, struct br_error *error)
{
    char behind[64];
    bool words = false;
    ssize_t got = last != '\0' ? fileio_read(fd, behind, sizeof behind, header->size) : 0, text = 0;
    while (text < got && (isprint((unsigned char)behind[text]) || isspace((unsigned char)behind[text])))
        words = isspace((unsigned char)behind[text++]) || words;
    bool ends = text == got ? got == (ssize_t)sizeof behind : behind[text] == '\0' && text >= 8;
    if (!words || !ends) return BR_OK;
    return br_fail(error, BR_E_FORMAT,
                   "%s: HDR_SIZE is %zu, but the text of the header continues behind it; expected HDR_SIZE "
                   "to be at least the length of the header",
                   header->file, header->size);
}

static int read_header(struct dada_header *header, const char *path, int fd, uint64_t file_bytes,
                       struct br_error *error)
{
    if (file_bytes == 0)
        return br_fail(error, BR_E_FORMAT, "%s is empty (0 bytes); expected a DADA header", path);
    size_t want = DADA_BLOCK;
    for (;;) {
        char *buffer = malloc(want);
        if (buffer == NULL) return br_fail(error, BR_E_NO_MEMORY, "%s: no memory for its header", path);
        ssize_t read = fileio_read(fd, buffer, want, 0);
        size_t got = read < 0 ? 0 : (size_t)read;
        int status = read < 0 ? br_fail(error, BR_E_IO, "cannot read %s: %s", path, strerror(errno))
                              : dada_parse(header, path, buffer, got, error);
        if (status == BR_OK) status = check_end(header, fd, buffer[header->size - 1], error);
        free(buffer);
        if (status < 0) dada_free(header);
        if (status <= 0) return status;
        if (got < want)
            return br_fail(error, BR_E_FORMAT,
                           "%s: HDR_SIZE is %zu, but the file has only %llu bytes: its header is truncated",
                           path, header->size, (unsigned long long)file_bytes);
        want = header->size;
    }
}

int dada_read(struct dada_header *header, const char *path, uint64_t *file_bytes, struct br_error *error)
{
    memset(header, 0, sizeof *header);
    int fd = br_open_regular(path, 0, file_bytes, error);
    if (fd < 0) return BR_E_IO;
    int status = read_header(header, path, fd, *file_bytes, error);
    close(fd);
    return status;
}

void dada_free(struct dada_header *header)
{
    free(header->file);
    free(header->text);
    free(header->entry);
    memset(header, 0, sizeof *header);
}

const char *dada_get(const struct dada_header *header, const char *key)
{
    for (size_t i = 0; i < header->count; i++)
        if (strcmp(header->entry[i].key, key) == 0) return header->entry[i].value;
    return NULL;
}

int dada_bad(const struct dada_header *header, const char *key, struct br_error *error, const char *expected,
             ...)
{
    char text[256];
    va_list args;
    va_start(args, expected);
    vsnprintf(text, sizeof text, expected, args);
    va_end(args);
    const char *value = dada_get(header, key);
    if (value == NULL)
        return br_fail(error, BR_E_FORMAT, "%s: %s is missing; expected %s", header->file, key, text);
    return br_fail(error, BR_E_FORMAT, "%s: %s is '%.60s%s'; expected %s", header->file, key, value,
                   strlen(value) > 60 ? "..." : "", text);
}

int dada_get_u64(const struct dada_header *header, const char *key, uint64_t min, uint64_t max,
                 uint64_t *value, struct br_error *error)
{
    const char *text = dada_get(header, key);
    if (text == NULL) return 0;
    uint64_t v;
    if (text_u64(text, &v) != 0 || v < min || v > max)
        return dada_bad(header, key, error, "a whole number from %llu to %llu", (unsigned long long)min,
                        (unsigned long long)max);
    *value = v;
    return 1;
}

int dada_get_i64(const struct dada_header *header, const char *key, int64_t *value, struct br_error *error)
{
    const char *text = dada_get(header, key);
    if (text == NULL) return 0;
    return text_i64(text, value) == 0 ? 1 : dada_bad(header, key, error, "a whole number");
}

int dada_get_real(const struct dada_header *header, const char *key, double *value, struct br_error *error)
{
    const char *text = dada_get(header, key);
    if (text == NULL) return 0;
    return text_real(text, value) == 0 ? 1 : dada_bad(header, key, error, "a number");
}

/* KEY, KEY_2, KEY_3, ... */
static const char *numbered(char *buffer, size_t size, const char *key, unsigned part)
{
    if (part == 1) return key;
    snprintf(buffer, size, "%s_%u", key, part);
    return buffer;
}

size_t dada_count_reals(const struct dada_header *header, const char *key, size_t max)
{
    size_t total = 0, n;
    char name[64];
    for (unsigned part = 1;; part++) {
        const char *text = dada_get(header, numbered(name, sizeof name, key, part));
        if (text == NULL) return total;
        if (text_reals(text, NULL, max - total, &n) != 0) return 0;
        total += n;
    }
}

int dada_get_reals(const struct dada_header *header, const char *key, size_t count, double *out,
                   struct br_error *error)
{
    size_t total = 0, n;
    char name[64];
    for (unsigned part = 1;; part++) {
        const char *part_key = numbered(name, sizeof name, key, part);
        const char *text = dada_get(header, part_key);
        if (text == NULL && part == 1) return 0;
        if (text == NULL) break;
        if (text_reals(text, out + total, count - total, &n) != 0)
            return dada_bad(header, part_key, error,
                            "numbers with commas between them, or first:step:count, %zu in all", count);
        total += n;
    }
    return total == count ? 1 : dada_bad(header, key, error, "%zu numbers (it has %zu)", count, total);
}

static void append(struct dada_writer *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct dada_writer *writer, const char *format, ...)
{
    size_t room = writer->used < writer->capacity ? writer->capacity - writer->used : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(room > 0 ? writer->text + writer->used : NULL, room, format, args);
    va_end(args);
    if (n > 0) writer->used += (size_t)n;
}

void dada_put(struct dada_writer *writer, const char *key, const char *format, ...)
{
    char value[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    for (char *p = value; *p != '\0'; p++)
        if (*p == '\n' || *p == '#') *p = ' ';
    append(writer, "%-15s %s\n", key, value);
}

/* Item i of a list, which goes on in a line of its own after every VALUES_PER_LINE items. */
static void put_item(struct dada_writer *writer, const char *key, size_t i, size_t count, const char *text)
{
    char name[64];
    bool ends = i + 1 == count || (i + 1) % VALUES_PER_LINE == 0;
    if (i % VALUES_PER_LINE == 0)
        append(writer, "%-15s ", numbered(name, sizeof name, key, (unsigned)(i / VALUES_PER_LINE) + 1));
    append(writer, "%s%s", text, ends ? "\n" : ",");
}

void dada_put_reals(struct dada_writer *writer, const char *key, const double *values, size_t count)
{
    char a[TEXT_REAL], b[TEXT_REAL];
    double step;
    if (text_is_progression(values, count, &step)) {
        dada_put(writer, key, "%s:%s:%zu", text_real_format(a, values[0]), text_real_format(b, step), count);
        return;
    }
    for (size_t i = 0; i < count; i++) put_item(writer, key, i, count, text_real_format(a, values[i]));
}

void dada_put_u16(struct dada_writer *writer, const char *key, const uint16_t *values, size_t count)
{
    char text[8];
    for (size_t i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%u", values[i]);
        put_item(writer, key, i, count, text);
    }
}

bool dada_finish(struct dada_writer *writer, size_t size)
{
    if (writer->used > size || size > writer->capacity) return false;
    memset(writer->text + writer->used, 0, size - writer->used);
    writer->used = size;
    return true;
}
