/* libFuzzer: any bytes as a recording, replayed by the stage as it is: found out what it is, described, read,
 * cut into frames. The first byte chooses what the pipeline says beside it. Nothing may crash or hang; frames
 * go on in time; what is refused is explained. */
#include "tests/fuzz/input_file.h"
#include "tests/stages/stage_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct br_stage_type replay_stage;

enum { MOST_BYTES = 1 << 18, MOST_FRAMES = 40, CHANNELS = 8 };

/* Runs what was configured. */
static void play(struct br_stage *r)
{
    const struct br_stream *s = &r->out[0];
    struct br_error error = {0};
    if (br_stream_check(s, &error) != BR_OK) return; /* the runtime refuses it */
    if (br_stream_max_bytes(s) > MOST_BYTES || br_stream_max_validity(s) > MOST_BYTES) return;
    struct br_frame *out = driver_frame(s);
    uint64_t next = 0;
    int status = driver_start(r);
    for (int i = 0; status == BR_OK && i < MOST_FRAMES; i++) {
        int result = driver_process(r, NULL, out);
        if (result < 0 && r->error[0] == '\0') abort();
        if (result != BR_PRODUCED) break;
        if (out->samples == 0 || out->samples > s->frame_samples || out->first < next) abort();
        if (out->first / s->frame_samples != (out->first + out->samples - 1) / s->frame_samples) abort();
        next = out->first + out->samples;
    }
    driver_stop(r);
    driver_frame_free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const double mhz[CHANNELS] = {400, 401, 402, 403, 404, 405, 406, 407};
    const char *const paths[1] = {input_path};
    if (size < 1 || !write_input(data + 1, size - 1)) return 0;
    struct br_stage *r = driver_new(&replay_stage);
    unsigned how = data[0];
    driver_set_strings(r, "files", paths, 1);
    driver_set_int(r, "readers", 2);
    driver_set_int(r, "frame_samples", how & 1 ? 100 : 16);
    driver_set_int(r, "loop", how & 2 ? 1 : 2);
    if (how & 4)
        r->hints = (struct br_stream_hints){
            .sample_ns = {2560, 1}, .have_epoch = true, .epoch_ns = 1600000000000000000};
    if (how & 8) {
        r->hints.nfreq = (size_t)1 << (how >> 4 & 3);
        r->hints.freq_mhz = mhz;
    }
    int status = driver_configure(r);
    if (status != BR_OK && r->error[0] == '\0') abort();
    if (status == BR_OK) play(r);
    driver_free(r);
    return 0;
}
