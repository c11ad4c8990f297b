/* libFuzzer: any text as a packet description. One that is accepted has fields and a payload within
 * its packet, a layout whose tables stay within a frame, and reads what it writes. */
#include "formats/packets/header.h"
#include "formats/packets/layout.h"
#include "tests/formats/packets/places.h"
#include "tests/fuzz/pieces.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_layout(const struct packet_description *p)
{
    static const int64_t few[] = {0, 7};
    struct packet_ids two = {2, few}, none = {0};
    struct packet_node node = {.frame_samples = p->nsamples,
                               .sources = p->sources.count > 0 && p->sources.count <= 64 ? none : two,
                               .streams = p->streams.count > 0 && p->streams.count <= 64 ? none : two,
                               .values = "twos_complement",
                               .real = "low"};
    struct packet_layout l;
    if (packet_layout_make(&l, p, &node, (struct packet_memory){keep, NULL}, NULL) == BR_OK) {
        for (size_t f = 0; f < l.nchannels; f++)
            for (size_t i = 0; i < l.ninputs; i += 1 + l.ninputs / 8) {
                must(packet_layout_byte(&l, p->nsamples - 1, f, i) < l.block_bytes);
                must(packet_layout_receipt(&l, 0, f, i) < l.nsources * l.nstreams);
                must(l.position[i] < l.ninputs);
            }
    }
    free_pieces();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packet_description *p;
    struct br_error error = {0};
    if (packet_description_parse(&p, "fuzz.yaml", (const char *)data, size, &error) != BR_OK) {
        must(p == NULL && error.text[0] != '\0');
        return 0;
    }
    check_layout(p);
    size_t length = packet_header_length(p);
    uint8_t *bytes = malloc(length), *payload; /* of its size, so that a sanitizer sees reading beyond it */
    struct packet_header header, wrote = {.counter = 12, .source = 3, .stream = 5};
    must(bytes != NULL && length >= p->payload_bytes);
    for (size_t n = 0; n <= length; n += 1 + length / 16) {
        uint8_t *cut = calloc(1, n + (n == 0));
        must(cut != NULL);
        packet_header_read(p, cut, n, &header);
        free(cut);
    }
    if (packet_header_write(p, &wrote, bytes, &payload, NULL) == BR_OK) {
        must(payload >= bytes && payload + p->payload_bytes <= bytes + length);
        packet_header_read(p, bytes, length, &header);
        must(header.payload == NULL || header.payload == payload);
    }
    free(bytes);
    packet_description_free(p);
    return 0;
}
