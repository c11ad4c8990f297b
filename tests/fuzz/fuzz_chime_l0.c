/* libFuzzer: any packets to a receiver of CHIME's L0. Input: u16 length, then so many bytes, again and again.
 */
#include "formats/chime_l0/receive.h"
#include "tests/fuzz/pieces.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct l0_receiver r;
    static const uint16_t beams[] = {5, 6}, coarse[] = {3, 9, 4};
    struct br_stream stream = {0};
    r = (struct l0_receiver){.fd = -1,
                             .nupfreq = 2,
                             .nsteps = 4,
                             .counts_per_sample = 3,
                             .frame0_ns = 7,
                             .nbeams = 2,
                             .ncoarse = 3,
                             .beam_ids = beams,
                             .coarse_ids = coarse,
                             .base = {.window = 3}};
    if (l0_receiver_prepare(&r, NULL) != BR_OK || l0_receiver_stream(&r, &stream, keep, NULL, NULL) != BR_OK)
        abort();
    struct br_frame frame = {.data = malloc(br_stream_max_bytes(&stream)),
                             .valid = malloc(br_stream_max_validity(&stream)),
                             .side = malloc(br_array_bytes(&stream.side))};
    uint64_t pieces = 0, last = 0;
    while (size >= 2) {
        size_t length = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        if (length > size) length = size;
        uint8_t *packet = malloc(length + 1); /* of its own, so that reading beyond it is seen */
        if (packet == NULL) abort();
        memcpy(packet, data, length);
        bool taken = l0_receiver_take(&r, packet, length);
        while (assembly_take(&r.assembly, &stream, false, &frame)) {
            must(frame.first >= last);
            last = frame.first;
        }
        if (!taken && !l0_receiver_take(&r, packet, length)) abort();
        free(packet);
        pieces++;
        data += length;
        size -= length;
    }
    if (r.base.counts.received + r.base.counts.late + r.base.counts.duplicate + r.base.counts.malformed !=
        pieces)
        abort();
    l0_receiver_free(&r);
    free(frame.data);
    free(frame.valid);
    free(frame.side);
    free_pieces();
    return 0;
}
