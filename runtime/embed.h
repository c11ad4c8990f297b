/* embed.h - a pipeline within another program, such as a Python interpreter, and streams as JSON.
 *
 * Nothing here takes signals, ends the process or writes to its standard streams. Exit statuses are those of
 * `beamring run`: 0, 1 (failed), 2 (the file is wrong), 130 (stopped before its end). */
#ifndef BEAMRING_RUNTIME_EMBED_H
#define BEAMRING_RUNTIME_EMBED_H

#include "buffers/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pipeline, and where its messages go. The texts must live until the call returns. */
struct br_embed_source {
    const char *name; /* the pipeline's file, or what stands in its place before messages */
    const char *text; /* what the file would hold; NULL: it is read */
    const char *more; /* stages to append to the pipeline, a list in YAML or JSON; NULL: none */
    size_t nset;
    const char *const *set; /* [nset] texts of --set */
    int log_fd;             /* messages, a JSON object a line: time, level, stage, message */
    int errors_fd;          /* mistakes of the file: "file:line:column: message" a line */
    int report_fd;          /* a JSON document: of check the graph, of run the counters at its end */
};

struct br_embed; /* a run, for other threads to look at and to stop */

/* The graph with its streams, memory and readers. Returns an exit status. */
BR_API int br_embed_check(const struct br_embed_source *source);

/* NULL: no memory. */
BR_API struct br_embed *br_embed_create(void);
BR_API void br_embed_destroy(struct br_embed *embed);

/* Runs the pipeline to its end; once for each br_embed. Returns an exit status. */
BR_API int br_embed_run(struct br_embed *embed, const struct br_embed_source *source);

/* Any thread, while br_embed_destroy is not called: drains (or aborts) the pipeline as soon as it runs. */
BR_API void br_embed_stop(struct br_embed *embed, bool abort);

/* Any thread: the line that a terminal shows; "" while nothing runs. */
BR_API void br_embed_progress(struct br_embed *embed, char *text, size_t size);

/* A description as JSON, from malloc; NULL: no memory. Keys: dtype, axes and shape of a full frame (slowest
 * first), frame_samples, epoch_ns, sample_ns [num, den], freq_mhz, width_mhz, zones, scale, sideband
 * ("upper", "lower" or null), beams [[x, y], ...] or null, telescope (its name) or null, side (null, or
 * dtype, axes and shape), packets (true: frames hold packets as received). */
BR_API char *br_stream_json(const struct br_stream *stream);

struct br_stage;

/* The memory of the pipeline's queues stays when it ends: somebody still refers to its frames. Any callback.
 */
BR_API void br_stage_keep_memory(struct br_stage *stage);

/* Changes output i of a stage, in configure, by the keys of such a text that are there; zones and packets
 * stay. `downsample`: base samples per step of all zones. With other channels (freq_mhz, width_mhz) there is
 * one zone. Errors: BR_E_INVALID, which names the key. */
BR_API int br_stream_from_json(struct br_stage *stage, unsigned i, const char *text, struct br_error *error);

#ifdef __cplusplus
}
#endif
#endif
