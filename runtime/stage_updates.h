/* stage_updates.h - new values while a stage runs, and the updates with which its input was made. UPDATES in
 * runtime/stage.h describes the callbacks. */
#ifndef BEAMRING_RUNTIME_STAGE_UPDATES_H
#define BEAMRING_RUNTIME_STAGE_UPDATES_H

#include "runtime/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- for configure and prepare --- */

/* True while the struct of an update is configured or prepared; then the pipeline already runs. */
BR_API bool br_stage_is_update(const struct br_stage *stage);

/* The struct that runs, while the struct of an update is configured; otherwise NULL. As in prepare, configure
 * may read those parts of it that neither process nor commit changes. */
BR_API const void *br_stage_running(const struct br_stage *stage);

/* --- for process of stages with BR_STAGE_COMMITS --- */

/* The base sample from which the next new values shall hold, or `end` if that is not earlier. It counts
 * samples of input 0; for a source, of output 0. After a loss it may lie before the current frame. A source
 * that calls it announces that it makes its samples up to `end`: from then on, values for an earlier sample
 * come too late. So a source calls it before it begins a frame, and first commits what is due there. */
BR_API uint64_t br_stage_next_update(struct br_stage *stage, uint64_t end);

/* Commits these values. They hold from `sample` on, which may be later than requested. Then call
 * br_stage_next_update again. */
BR_API void br_stage_update(struct br_stage *stage, uint64_t sample);

/* --- the updates with which data were made ---
 *
 * The updates of the stages upstream, as one text for headers: STAGE:SAMPLE:DIGEST:ID for each, separated by
 * commas. STAGE is the stage, SAMPLE the base sample from which the update holds, DIGEST 16 hexadecimal
 * digits over its values and files, ID its id. In names, all characters except letters, digits and _-.+ are
 * written as %XX. An update is listed as long as a parameter has the value that it set. From start to the end
 * of stop, any thread; the functions hold a lock for microseconds. _held and _begun write at most `size`
 * bytes, including the terminating 0, and return the length of the whole text; 0: no update. */

/* True if there may be updates: a stage upstream accepts them. */
BR_API bool br_stage_follows_updates(const struct br_stage *stage);

/* The updates that hold at base sample `sample` of input 0, which must have reached this stage. */
BR_API size_t br_stage_updates_held(const struct br_stage *stage, uint64_t sample, char *text, size_t size);

/* The updates that begin to hold in base samples [first, end). */
BR_API size_t br_stage_updates_begun(const struct br_stage *stage, uint64_t first, uint64_t end, char *text,
                                     size_t size);

/* --- marks: what a stage does to some samples, as one more update in these texts ---
 *
 * For a stage with updates that changes data for a while, such as one that adds test signals. Base samples
 * [first, end) of output 0 are marked with `id` (cut at 79 characters): br_stage_updates_held has the mark
 * for a sample of them, br_stage_updates_begun for a span in which they begin, with the digest 0. Mark
 * samples before they are published. The last 512 marks of a pipeline are kept. Any thread. */
BR_API void br_stage_mark(const struct br_stage *stage, uint64_t first, uint64_t end, const char *id);

#ifdef __cplusplus
}
#endif
#endif
