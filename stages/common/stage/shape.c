#include "stages/common/stage/shape.h"
#include "formats/common/axes.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FRAME_BYTES = 32 << 20 }; /* frames of more than one block stay below this */

int br_expect_input(struct br_stage *stage, unsigned dtypes, const char *axes, const char *want)
{
    const struct br_array *array = &br_stage_input(stage, 0)->array;
    bool same = axes_are(array, axes);
    char text[160];
    if ((dtypes >> array->dtype & 1) != 0 && same) return BR_OK;
    bool wide = array->dtype == BR_INT8X2 && (dtypes >> BR_INT4X2 & 1) != 0 && same;
    return br_stage_fail(stage, BR_E_INVALID, "its input is %s; it needs %s%s",
                         br_array_format(array, text, sizeof text), want,
                         wide ? " (the stage requantize makes 4 + 4 bits of 8 + 8)" : "");
}

int br_output_array(struct br_stage *stage, struct br_stream *stream, enum br_dtype dtype, const char *axes,
                    const size_t *lengths)
{
    struct br_error error = {0};
    int status = br_array_init(&stream->array, dtype, axes, lengths, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
}

size_t br_blocks_of_frame(const struct br_stream *in, uint64_t block, size_t block_bytes, int64_t asked)
{
    size_t most = MOST_FRAME_BYTES / block_bytes, near = (size_t)((in->frame_samples + block / 2) / block);
    if (asked > 0) return (size_t)asked;
    if (near > most) near = most;
    return near > 0 ? near : 1;
}

int br_shorten_rows(struct br_stage *stage, const struct br_frame *frame, size_t nchannels, size_t length,
                    size_t steps, size_t step_bytes, void *row)
{
    size_t bytes = steps * step_bytes;
    uint8_t *data = frame->data;
    int status = BR_OK;
    for (size_t c = 1; steps < length && c < nchannels && status == BR_OK; c++) {
        status = br_stage_copy_rows(stage, row, bytes, data + c * length * step_bytes, bytes, bytes, 1);
        if (status == BR_OK)
            status = br_stage_copy_rows(stage, data + c * bytes, bytes, row, bytes, bytes, 1);
        memmove(frame->valid + c * steps, frame->valid + c * length, steps);
    }
    return status;
}

void *br_stage_keep(struct br_stage *stage, void *memory, size_t bytes)
{
    if (memory == NULL) return NULL;
    void *kept = br_stage_alloc(stage, bytes > 0 ? bytes : 1);
    memcpy(kept, memory, bytes);
    free(memory);
    return kept;
}

int br_no_memory(struct br_stage *stage, size_t bytes)
{
    return br_stage_fail(stage, BR_E_NO_MEMORY, "not enough memory: %.1f MiB needed",
                         (double)bytes / 1048576);
}

int br_expect_one_factor(struct br_stage *stage)
{
    if (!br_stream_is_zoned(br_stage_input(stage, 0))) return BR_OK;
    return br_stage_fail(stage, BR_E_INVALID,
                         "the zones of its input have samples of different lengths; expected one "
                         "upchannelization factor for the whole band");
}
