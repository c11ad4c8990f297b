/* embed.h - a pipeline within another program, such as a Python interpreter, and streams as JSON.
 *
 * No function here handles signals, ends the process or writes to its standard streams. Exit statuses are
 * those of `beamring run`: 0, 1 (failed), 2 (the file is wrong), 130 (stopped before its end). */
#ifndef BEAMRING_RUNTIME_EMBED_H
#define BEAMRING_RUNTIME_EMBED_H

#include "buffers/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pipeline, and the descriptors that receive its messages. The caller owns all texts and descriptors, which
 * must stay valid until the call returns. */
struct br_embed_source {
    const char *name; /* path of the pipeline file; with `text`, the name that messages use */
    const char *text; /* contents of the file; NULL: the file is read */
    const char *more; /* stages to append to the pipeline, a list in YAML or JSON; NULL: none */
    size_t nset;
    const char *const *set; /* [nset] texts of --set */
    int log_fd;             /* messages, one JSON object per line: time, level, stage, message */
    int errors_fd;          /* mistakes of the file, one per line: "file:line:column: message" */
    int report_fd;          /* a JSON document: the graph (check), or the counters at the end (run) */
};

struct br_embed; /* a run, which other threads can watch and stop */

/* Checks the pipeline and writes its graph, with streams, memory and readers, to report_fd. Returns an exit
 * status. */
BR_API int br_embed_check(const struct br_embed_source *source);

/* Creates the handle of one run; br_embed_destroy frees it. NULL: no memory. */
BR_API struct br_embed *br_embed_create(void);
BR_API void br_embed_destroy(struct br_embed *embed);

/* Runs the pipeline to its end. May be called once for each br_embed. Returns an exit status. */
BR_API int br_embed_run(struct br_embed *embed, const struct br_embed_source *source);

/* Drains the pipeline, or aborts it; if it does not run yet, as soon as it does. Any thread, before
 * br_embed_destroy. */
BR_API void br_embed_stop(struct br_embed *embed, bool abort);

/* Copies the progress line that a terminal would show into `text` [size]; "" if nothing runs. Any thread. */
BR_API void br_embed_progress(struct br_embed *embed, char *text, size_t size);

/* Returns a description as JSON, which the caller frees; NULL: no memory. Keys: dtype, axes and shape of a
 * full frame (slowest first), frame_samples, epoch_ns, sample_ns [num, den], freq_mhz, width_mhz, zones,
 * scale, sideband ("upper", "lower" or null), beams [[x, y], ...] or null, telescope (its name) or null, side
 * (null, or dtype, axes and shape), packets (true: frames hold packets as received). */
BR_API char *br_stream_json(const struct br_stream *stream);

struct br_stage;

/* Keeps the memory of the pipeline's queues after its end, because its frames are still referred to. May be
 * called in any callback. */
BR_API void br_stage_keep_memory(struct br_stage *stage);

/* In configure: changes the description of output i of a stage by the keys that `text` contains (JSON in the
 * form of br_stream_json). Zones and packets stay. The additional key `downsample` sets the base samples per
 * step of all zones. New channels (freq_mhz, width_mhz) form one zone. Errors: BR_E_INVALID, which names the
 * key. */
BR_API int br_stream_from_json(struct br_stage *stage, unsigned i, const char *text, struct br_error *error);

#ifdef __cplusplus
}
#endif
#endif
