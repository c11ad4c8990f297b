/* libFuzzer: any bytes on a link from kotekan's bufferSend, in any pieces. Input: u16 count, then so many
 * bytes, again and again; a count of 0 ends the connection, and another one begins. The format's callbacks
 * are driven as the stage drives them. */
#include "buffers/clock.h"
#include "runtime/graph/graph.h"
#include "stages/receive/kotekan_input.c"
#include "stages/receive/kotekan_stream.c"

#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the pipeline expects: the field, or intensities of beams. */
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

static int connect_link(struct kotekan_input *k)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
    k->link[0] = (struct link){.fd = pair[0], .heard_at = br_clock_ns()};
    expect(&k->link[0], LINK_SIZES, sizeof k->link[0].sizes);
    k->nopen++;
    return pair[1];
}

static void run_links(const uint8_t *data, size_t size, bool plain)
{
    static struct br_stage stage;
    static struct receive r;
    struct kotekan_input *k = calloc(1, sizeof *k);
    stage.nout = 1;
    if (k == NULL) abort();
    describe_stream(&stage.out[0].stream, plain);
    k->listener = -1;
    k->plain = plain;
    k->row = 2;
    r = (struct receive){.state = k, .max_frame_bytes = 1 << 16, .handshake_s = 1e6, .counts = &k->counts};
    struct br_frame frame = {.data = malloc(32), .valid = malloc(16)};
    int peer = connect_link(k), got;
    uint64_t next = 0;
    for (unsigned links = 0; size >= 2 && links < 4;) {
        size_t count = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        if (count > size) count = size;
        if (count > 0 && send(peer, data, count, MSG_NOSIGNAL) < 0)
            count = 0; /* refused before: a new connection */
        if (count == 0) close(peer);
        read_some(&stage, &r, &k->link[0]);
        do {
            got = fill(&stage, &r, &frame, false);
            if (got == 1 &&
                (frame.first < next || frame.samples == 0 || frame.first % 16 + frame.samples > 16))
                abort();
            if (got == 1) next = frame.first + frame.samples;
            if (k->link[0].state != LINK_FREE) read_some(&stage, &r, &k->link[0]);
        } while (got == 1);
        if (count == 0 || k->link[0].state == LINK_FREE) {
            if (count > 0) close(peer);
            if (k->link[0].state != LINK_FREE) close_link(k, &k->link[0]);
            peer = connect_link(k);
            links++;
        }
        data += count;
        size -= count;
    }
    fill(&stage, &r, &frame, true);
    close(peer);
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
