/* shape.h - what several stages demand of their input's array, and how they cut their output's frames. */
#ifndef BEAMRING_STAGES_COMMON_STAGE_SHAPE_H
#define BEAMRING_STAGES_COMMON_STAGE_SHAPE_H

#include "runtime/stage.h"

/* Fails (BR_E_INVALID, naming both arrays) unless input 0 has one of the dtypes in the mask (1u << dtype,
 * or'ed) and exactly the axes "time,freq,pol,dish", in that order. `want` says it in the words of the
 * message: "int4x2 [time]...". */
int br_expect_input(struct br_stage *stage, unsigned dtypes, const char *axes, const char *want);

/* Fails (BR_E_INVALID) where the zones of input 0 have time steps of different lengths, so that its frames
 * are not one array. */
int br_expect_one_factor(struct br_stage *stage);

/* Gives an output's stream the array of these axes, slowest first. BR_OK, or BR_E_INVALID: the failure is the
 * stage's. */
int br_output_array(struct br_stage *stage, struct br_stream *stream, enum br_dtype dtype, const char *axes,
                    const size_t *lengths);

/* How many blocks of `block` base samples, block_bytes each, an output frame has: `asked`; for 0 what makes
 * it about as long as the input's frames, but not very large. */
size_t br_blocks_of_frame(const struct br_stream *in, uint64_t block, size_t block_bytes, int64_t asked);

/* Moves the rows, data and validity, of a frame [nchannels][time][...] together, which was made for `length`
 * time steps of step_bytes and ends after `steps` of them. Rows may overlap: `row` is scratch for one, where
 * the frames are. Status. */
int br_shorten_rows(struct br_stage *stage, const struct br_frame *frame, size_t nchannels, size_t length,
                    size_t steps, size_t step_bytes, void *row);

/* Moves `bytes` of malloc'ed memory into memory that lives as long as the pipeline, and frees it. NULL stays
 * NULL. */
void *br_stage_keep(struct br_stage *stage, void *memory, size_t bytes);

/* True when a frame that starts at `first` goes on where the last one ended (`cursor`), with nothing lost
 * between and on a boundary of `step` base samples: filters and blocks may carry on. */
static inline bool br_goes_on(uint64_t cursor, uint64_t first, unsigned step)
{
    return first == cursor && first % step == 0;
}

/* "<bytes> needed" failure of an allocation in start. */
int br_no_memory(struct br_stage *stage, size_t bytes);

#endif
