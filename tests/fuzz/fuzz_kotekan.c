/* libFuzzer: any bytes as the metadata and the first bytes of a frame of kotekan's. An accepted frame
 * describes exactly its frame, and comes back from what we write of it. */
#include "formats/kotekan/kotekan_array.h"
#include "formats/kotekan/kotekan_raw.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte chooses the layout; then the metadata, of which the input may be but the start: most of it
 * are tables. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[CHORD_METADATA_BYTES], again[CHORD_METADATA_BYTES];
    static struct chord_metadata m, back;
    if (size < 2) return 0;
    kotekan_raw_probe(data, size);
    size_t length = data[0] & 1 ? CHORD_METADATA_NEW_BYTES : CHORD_METADATA_BYTES,
           given = size - 1 < length ? size - 1 : length;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, data + 1, given);
    struct br_error error = {0};
    if (chord_metadata_decode(&m, bytes, data[0] & 2 ? size : length, 0, "fuzz.raw", &error) != BR_OK) {
        if (error.text[0] == '\0') abort();
        return 0;
    }
    uint64_t frame = chord_metadata_frame_bytes(&m), first, cells = 1;
    uint32_t downsample;
    struct kotekan_field field;
    if (frame == 0 || m.dims < 1 || m.dims > CHORD_MAX_DIMS || m.nfreq > CHORD_MAX_FREQ) abort();
    struct br_error ignored = {0};
    chord_metadata_first(&m, "fuzz.raw", &first, &downsample, &ignored);
    struct br_error why = {0};
    if (kotekan_raw_field(&m, "fuzz.raw", &field, &why) == BR_OK) {
        cells = field.samples * field.nfreq * field.npol * field.ndish;
        if (cells != frame) abort();
        if ((field.samples - 1) * field.stride_time + (field.nfreq - 1) * field.stride_freq +
                (field.npol - 1) * field.stride_pol + (field.ndish - 1) * field.stride_dish + 1 >
            frame)
            abort();
    }
    struct kotekan_array array;
    struct br_error refused = {0};
    if (kotekan_array_describe(&array, &m, "fuzz.raw", &refused) == BR_OK) {
        if (br_array_bytes(&array.array) != frame || array.first % array.downsample != 0) abort();
        struct br_stream stream = {0};
        kotekan_array_stream(&stream, &array, br_array_length(&array.array, "time"));
        if (frame < 1 << 20) { /* every byte of it, and no other */
            uint8_t *in = calloc(1, frame), *out = malloc(frame), *valid = malloc(frame);
            if (in == NULL || out == NULL || valid == NULL) abort();
            kotekan_array_decode(&array, br_array_length(&array.array, "time"), in, out, valid);
            free(in);
            free(out);
            free(valid);
        }
        if (stream.frame_samples == 0 || stream.nchannels == 0 || stream.nchannels % array.factor != 0)
            abort();
    } else if (refused.text[0] == '\0') {
        abort();
    }
    chord_metadata_encode(&m, again);
    if (chord_metadata_decode(&back, again, m.bytes, frame, "again", &error) != BR_OK) abort();
    if (memcmp(&m, &back, sizeof m) != 0) abort();
    return 0;
}
