/* libFuzzer: any bytes as a GUPPI RAW file. An accepted file makes sense, and our copy of it is read
 * back alike. */
#include "formats/guppi/guppi.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guppi_header h;
    uint64_t at = 0;
    guppi_probe(data, size);
    while (at < size) {
        struct br_error error = {0};
        int status = guppi_parse(&h, "fuzz.raw", at, (const char *)data + at, size - at, &error);
        if (status < 0 && error.text[0] == '\0') abort();
        if (status != 0) return 0;
        if (h.samples == 0 || h.overlap >= h.samples || h.nants == 0 || h.nchan == 0 ||
            (h.npol != 1 && h.npol != 2))
            abort();
        if (h.blocsize != 2 * h.samples * h.nants * h.nchan * h.npol) abort();
        if (h.header_bytes % GUPPI_CARD != 0 && h.header_bytes % GUPPI_ALIGN != 0) abort();
        if (h.sample_ns.num <= 0 || h.sample_ns.den <= 0 || !(h.obsfreq_mhz > 0)) abort();
        guppi_packets(&h);
        at += h.header_bytes + h.blocsize;
    }
    return 0;
}
