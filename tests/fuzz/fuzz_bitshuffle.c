/* libFuzzer: any bytes as a chunk of a CHIME baseband file, bitshuffled with or without LZ4. */
#include "formats/chime/bitshuffle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct stored {
    const uint8_t *data;
    size_t size, from, to, got; /* what is wanted, and how much of it came */
};

static int read_stored(void *arg, void *buffer, size_t length, size_t offset, struct br_error *error)
{
    const struct stored *s = arg;
    (void)error;
    if (offset > s->size || length > s->size - offset) abort();
    memcpy(buffer, s->data + offset, length);
    return BR_OK;
}

static void put(void *arg, size_t at, const uint8_t *data, size_t n)
{
    struct stored *s = arg;
    static volatile uint8_t sum;
    for (size_t i = 0; i < n; i++) sum = (uint8_t)(sum + data[i]);
    size_t first = at > s->from ? at : s->from, end = at + n < s->to ? at + n : s->to;
    if (first >= end) abort(); /* not wanted */
    s->got += end - first;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 6) return 0;
    size_t bytes = 1 + ((size_t)data[1] << 8 | data[2]), block = data[0] & 1 ? 8 * (size_t)data[3] : 0;
    struct stored stored = {.data = data + 6, .size = size - 6};
    stored.from = bytes * data[4] / 256;
    stored.to = stored.from + 1 + (bytes - stored.from - 1) * data[5] / 255;
    struct bitshuffle_chunk chunk = {.bytes = bytes,
                                     .length = stored.size,
                                     .lz4 = (data[0] & 2) != 0,
                                     .block = block,
                                     .read = read_stored,
                                     .put = put,
                                     .arg = &stored};
    uint8_t *scratch =
        malloc(bitshuffle_scratch(bytes, stored.size)); /* exact, so that a byte too many is seen */
    struct br_error error = {0};
    if (scratch == NULL) return 0;
    int status = bitshuffle_decode(&chunk, stored.from, stored.to, scratch, &error);
    size_t at = chunk.at;
    if (status == BR_OK && at > stored.to) abort();
    if (status == BR_OK ? stored.got != stored.to - stored.from : error.text[0] == '\0') abort();
    if (status == BR_OK && stored.to < bytes) { /* the rest, from there on */
        stored.from = stored.to;
        stored.to = bytes;
        stored.got = 0;
        status = bitshuffle_decode(&chunk, stored.from, bytes, scratch, &error);
        if (status == BR_OK ? stored.got != bytes - stored.from : error.text[0] == '\0') abort();
    }
    free(scratch);
    return 0;
}
