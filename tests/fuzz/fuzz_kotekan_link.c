/* libFuzzer: any bytes on a link from kotekan's bufferSend, in any pieces. Input: u16 count, then so many
 * bytes, again and again; a count of 0 ends the connection, and another one begins. The format's callbacks
 * are driven as the stage drives them. */
#include "buffers/clock.h"
#include "runtime/graph/graph.h"
#include "stages/receive/kotekan_input.c"
#include "stages/receive/kotekan_stream.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The stream that the pipeline expects: the field, or intensities of beams. */
static void describe_stream(struct br_stream *stream, bool plain)
{
    static const double mhz = 400, width = 1;
    *stream = (struct br_stream){.frame_samples = 16,
                                 .sample_ns = {5120, 1},
                                 .nchannels = 1,
                                 .freq_mhz = &mhz,
                                 .width_mhz = &width,
                                 .nzones = 1,
                                 .zone = {{0, 1, 1, plain ? 1 : 4, 0}},
                                 .scale = 1};
    int status =
        plain ? br_array_init(&stream->array, BR_INT4X2, "time,freq,pol,dish", (size_t[]){16, 1, 1, 2}, NULL)
              : br_array_init(&stream->array, BR_F16, "freq,time,beam", (size_t[]){1, 4, 1}, NULL);
    if (status != BR_OK) abort();
}

/* Samples that the stage hands on must go forwards and lie in frames. Returns the last status of `fill`. */
static void hand_on(struct br_stage *stage, struct receive *r, struct br_frame *frame, uint64_t *next,
                    bool flush)
{
    for (unsigned i = 0; i < 1000 && fill(stage, r, frame, flush) == 1; i++) {
        if (frame->first < *next || frame->samples == 0 || frame->first % 16 + frame->samples > 16) abort();
        *next = frame->first + frame->samples;
    }
}

static void run_links(const uint8_t *data, size_t size, bool plain)
{
    static struct br_stage stage;
    static struct receive r;
    struct kotekan_input *k = calloc(1, sizeof *k);
    stage.nout = 1;
    if (k == NULL) abort();
    describe_stream(&stage.out[0].stream, plain);
    k->stage = &stage;
    k->receive = &r;
    k->plain = plain;
    k->row = 2;
    r = (struct receive){
        .state = k, .max_frame_bytes = 1 << 16, .handshake_s = 1e6, .window = 4, .counts = &k->counts};
    struct br_frame frame = {.data = malloc(32), .valid = malloc(16)};
    uint64_t next = 0;
    begin(k, 0);
    for (unsigned links = 0; size >= 2 && links < 4;) {
        size_t count = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        if (count > size) count = size;
        bool open = count > 0;
        for (size_t done = 0, there; open && done < count; done += there) {
            uint8_t *to = room(k, 0, &there);
            if (there == 0) { /* a frame is held: the stage takes it first */
                hand_on(&stage, &r, &frame, &next, true);
                to = room(k, 0, &there);
            }
            if (there == 0) break;
            if (there > count - done) there = count - done;
            memcpy(to, data + done, there);
            open = got(k, 0, there) != TCP_CLOSE;
            hand_on(&stage, &r, &frame, &next, false);
        }
        if (!open) {
            end(k, 0);
            begin(k, 0);
            links++;
        }
        data += count;
        size -= count;
    }
    hand_on(&stage, &r, &frame, &next, true);
    end(k, 0);
    stop(&r);
    free(frame.data);
    free(frame.valid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run_links(data, size, true);
    run_links(data, size, false);
    return 0;
}
