/* libFuzzer: any bytes as a DADA file and, behind a line of dashes, its .gaps file. The reader may refuse,
 * never crash, and what it accepts must be consistent: every frame of the payload has its place in it. */
#include "formats/common/gaps.h"
#include "formats/dada/recording.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_PIECES = 64 };

struct memory {
    void *piece[MAX_PIECES];
    unsigned used;
};

static void *take(void *owner, size_t bytes)
{
    struct memory *memory = owner;
    if (memory->used == MAX_PIECES) abort();
    void *piece = calloc(1, bytes > 0 ? bytes : 1);
    if (piece == NULL) abort();
    return memory->piece[memory->used++] = piece;
}

static void check_payload(const struct recording *r, uint64_t bytes)
{
    uint64_t left, samples = recording_samples(r, bytes, &left);
    if (samples == 0) return;
    if (recording_payload_bytes(&r->stream, r->first, samples) + left > bytes) abort();
    uint64_t at = r->first, end = r->first + samples;
    for (int i = 0; i < 8 && at < end; i++) {
        uint64_t next = recording_frame_end(&r->stream, at);
        if (next > end) next = end;
        if (recording_offset(&r->stream, r->first, at) >= bytes) abort();
        at = next;
    }
}

static void check_gaps(const struct recording *r, const char *text, size_t length)
{
    struct gaps gaps;
    struct br_error error = {0};
    if (gaps_parse(&gaps, "fuzz.gaps", text, length, r->stream.nchannels, &error) != BR_OK) return;
    struct br_stream s = r->stream;
    struct br_frame frame = {
        .first = r->first, .samples = s.frame_samples - r->first % s.frame_samples, .complete = true};
    size_t cells = br_stream_max_validity(&s);
    if (cells <= 1 << 20) {
        frame.valid = malloc(cells);
        br_frame_open_validity(&s, &frame);
        gaps_apply(&gaps, &s, &frame, 0, frame.first, frame.first + frame.samples);
        br_frame_close_validity(&s, &frame);
        free(frame.valid);
    }
    gaps_free(&gaps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char rule[] = "\n----\n";
    const uint8_t *cut = size > 0 ? memmem(data, size, rule, sizeof rule - 1) : NULL;
    size_t length = cut != NULL ? (size_t)(cut - data) : size;
    struct dada_header header;
    struct br_error error = {0};
    dada_probe(data, length);
    if (dada_parse(&header, "fuzz.dada", data, length, &error) != 0) return 0;
    struct memory memory = {0};
    struct recording recording;
    struct recording_memory from = {take, &memory};
    if (recording_describe(&recording, &header, NULL, NULL, NULL, from, &error) == BR_OK) {
        check_payload(&recording, length - header.size);
        check_payload(&recording, UINT64_C(1) << 33);
        if (cut != NULL)
            check_gaps(&recording, (const char *)cut + sizeof rule - 1, size - length - (sizeof rule - 1));
    }
    for (unsigned i = 0; i < memory.used; i++) free(memory.piece[i]);
    dada_free(&header);
    return 0;
}
