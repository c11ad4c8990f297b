/* info.c - facts of VDIF files. */
#include "formats/vdif/vdif_reader.h"

#include <inttypes.h>
#include <stdio.h>

int vdif_info(struct caller *caller, const char *path)
{
    struct vdif_scan *scan = caller_alloc(caller, sizeof *scan);
    struct br_error error = {0};
    if (vdif_scan_file(scan, path, &error) != BR_OK)
        return caller_fail(caller, error.status, "%s", error.text);
    const struct vdif_header *h = &scan->first;
    caller_fact(caller, NULL, "VDIF%s", h->legacy ? ", legacy headers" : "");
    caller_fact(caller, "samples", "complex %u-bit, %zu channels, %zu samples in a frame of %zu bytes",
                h->bits, (size_t)1 << h->log2_channels, vdif_samples(h), h->frame_bytes);
    char threads[120];
    size_t used = 0;
    for (size_t i = 0; i < scan->nthreads && used + 12 < sizeof threads; i++)
        used +=
            (size_t)snprintf(threads + used, sizeof threads - used, i > 0 ? " %u" : "%u", scan->thread[i]);
    caller_fact(caller, "threads", "%zu: %s%s", scan->nthreads, threads,
                used + 12 >= sizeof threads ? " ..." : "");
    unsigned letter[2] = {h->station & 255, h->station >> 8};
    char name[8] = "";
    if (letter[0] > ' ' && letter[0] < 127 && letter[1] > ' ' && letter[1] < 127)
        snprintf(name, sizeof name, " (%c%c)", (int)letter[0], (int)letter[1]);
    caller_fact(caller, "station", "%u%s, extended data version %u", h->station, name, h->edv);
    if (h->rate_hz > 0)
        caller_fact(caller, "sample rate", "%" PRIu64 " Hz", h->rate_hz);
    else
        caller_fact(caller, "sample rate",
                    "not in the file: give `stream: {sample_ns: ...}`; the largest frame number seen is %u",
                    scan->max_number);
    caller_fact(caller, "frequencies", "not in the file: give `stream: {freq_mhz: ...}`");
    caller_sideband(caller, BR_SIDEBAND_UNKNOWN);
    caller_time(caller, "second", vdif_unix_seconds(&scan->earliest) * 1000000000);
    caller_fact(caller, "first frame", "number %u of that second", scan->earliest.number);
    caller_fact(caller, "frames", "%" PRIu64, scan->frames);
    if (scan->truncated_bytes > 0)
        caller_fact(caller, "truncated", "the last frame has %" PRIu64 " of %zu bytes", scan->truncated_bytes,
                    h->frame_bytes);
    return BR_OK;
}
