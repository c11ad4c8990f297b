/* libFuzzer: any bytes as a chunk of a CHIME baseband file, bitshuffled with or without LZ4. */
#include "stages/common/bitshuffle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4) return 0;
    size_t bytes = 1 + ((size_t)data[1] << 8 | data[2]), block = data[0] & 1 ? 8 * (size_t)data[3] : 0;
    uint8_t *out = malloc(bytes),
            *scratch = malloc(bitshuffle_scratch(bytes)); /* exact, so that a byte too many is seen */
    struct br_error error = {0};
    if (out != NULL && scratch != NULL &&
        bitshuffle_decode(out, bytes, data + 4, size - 4, (data[0] & 2) != 0, block, scratch, &error) !=
            BR_OK &&
        error.text[0] == '\0')
        abort();
    free(out);
    free(scratch);
    return 0;
}
