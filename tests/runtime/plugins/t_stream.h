/* t_stream.h - the stream of bytes that the tests' sources make. */
#ifndef BEAMRING_TESTS_RUNTIME_PLUGINS_T_STREAM_H
#define BEAMRING_TESTS_RUNTIME_PLUGINS_T_STREAM_H

#include <runtime/stage.h>

/* uint8 [time][freq 1] at 400 MHz, 1 us a sample. For configure. */
static void t_stream_describe(struct br_stage *stage, int64_t frame_samples)
{
    double *mhz = br_stage_alloc(stage, 2 * sizeof *mhz);
    mhz[0] = 400;
    mhz[1] = 0.5;
    *br_stage_output(stage, 0) = (struct br_stream){
        .array = {.dtype = BR_UINT8, .naxes = 2, .axis = {{"time", (size_t)frame_samples}, {"freq", 1}}},
        .frame_samples = (uint64_t)frame_samples,
        .sample_ns = {1000, 1},
        .nchannels = 1,
        .freq_mhz = mhz,
        .width_mhz = mhz + 1,
        .nzones = 1,
        .zone = {{0, 1, 1, 1, 0}},
        .scale = 1};
}

#endif
