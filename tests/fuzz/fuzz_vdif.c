/* libFuzzer: any bytes as a VDIF file. The scan may refuse, never crash; the frames of what it accepts can be
 * unpacked. */
#include "formats/chime/planes.h"
#include "formats/vdif/vdif.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    const uint8_t *data;
    size_t size;
};

static int64_t read_bytes(void *source, uint64_t offset, void *buffer, size_t length)
{
    const struct bytes *bytes = source;
    if (offset > bytes->size) abort();
    if (length > bytes->size - offset) length = bytes->size - offset;
    memcpy(buffer, bytes->data + offset, length);
    return (int64_t)length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vdif_scan scan;
    struct bytes bytes = {data, size};
    struct br_error error = {0};
    if (vdif_scan(&scan, "fuzz.vdif", size, read_bytes, &bytes, &error) != BR_OK) return 0;
    if (scan.nthreads == 0 || scan.nthreads > VDIF_MAX_THREADS) abort();
    vdif_unix_seconds(&scan.earliest);
    size_t nchannels = (size_t)1 << scan.first.log2_channels, samples = vdif_samples(&scan.first);
    if (scan.first.frame_bytes > size || samples == 0) return 0;
    uint8_t *out = malloc(samples * nchannels * 2);
    if (out == NULL) return 0;
    const uint8_t *payload = data + scan.first.header_bytes, *in[2] = {payload, payload};
    planes_to_rows(in, 2, 1, samples * nchannels, 0x88, out, 2, 1, false);
    free(out);
    return 0;
}
