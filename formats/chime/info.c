/* info.c - facts of CHIME's baseband files. */
#include "formats/chime/chime_hdf5.h"
#include "formats/chime/chime_reader.h"

#include <inttypes.h>
#include <math.h>

int chime_info(struct caller *caller, const char *path)
{
    struct chime_file f;
    struct br_error error = {0};
    if (chime_open(&f, &path, 1, &error) != BR_OK) return caller_fail(caller, error.status, "%s", error.text);
    const struct chime_chunks *c = &f.chunks;
    uint64_t chunks = c->down * c->across, there = 0;
    for (uint64_t i = 0; i < chunks; i++) there += c->chunk[i].offset != UINT64_MAX;
    caller_fact(caller, NULL, "CHIME baseband (HDF5)");
    if (f.event_id >= 0) caller_fact(caller, "event", "%" PRId64, f.event_id);
    caller_fact(caller, "array", "int4x2 [time %" PRIu64 "][input %" PRIu64 "], coding chime", c->rows,
                c->columns);
    caller_fact(caller, "stored", "%s; %" PRIu64 " of %" PRIu64 " pieces written",
                c->bitshuffle ? c->lz4 ? "bitshuffle and LZ4" : "bitshuffle" : "plain", there, chunks);
    double mhz = isnan(f.freq_mhz) ? 800 - 0.390625 * (double)f.freq_id : f.freq_mhz;
    caller_fact(caller, "channel", "number %" PRId64 ", %.10g MHz", f.freq_id, mhz);
    caller_sideband(caller, f.sideband);
    caller_fact(caller, "base sample", "%.10g us", 1e6 * f.delta_time);
    caller_fact(caller, "samples", "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s", f.time0_fpga_count,
                f.time0_fpga_count + c->rows, c->rows, (double)c->rows * f.delta_time);
    if (isnan(f.time0_ctime)) {
        caller_fact(caller, "start", "not in the file: give `stream: {epoch_ns: ...}`");
    } else {
        double whole = floor(f.time0_ctime);
        caller_time(caller, "start",
                    (int64_t)whole * 1000000000 +
                        llround((f.time0_ctime - whole + f.time0_ctime_offset) * 1e9));
    }
    caller_fact(caller, "updates", "%s", f.updates);
    chime_free(&f);
    return BR_OK;
}
