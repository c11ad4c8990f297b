/* blocks.c - frb_grid's stream: where blocks lie in its frames. An output frame is filled over several calls,
 * and an input frame may be spread over several output frames. All zones complete the same blocks of base
 * samples. */
#include "runtime/stage_updates.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/shape.h"
#include "stages/frb_grid/frb_grid.h"

#include <string.h>

static void open_frame(struct frb_grid *fg, uint64_t start)
{
    fg->open = true;
    fg->start = start;
    fg->first_block = start / fg->block;
    fg->length = fg->nblocks - (size_t)(fg->first_block % fg->nblocks);
    memset(fg->done, 0, sizeof fg->done);
}

static uint16_t *row_of(const struct frb_grid *fg, const struct br_frame *out, size_t channel, size_t block)
{
    return (uint16_t *)out->data + (channel * fg->length + block) * fg->cells;
}

/* Says what the frame holds, [start, end), and leaves it to be published. */
static int emit(struct br_stage *stage, struct frb_grid *fg, struct br_frame *out, uint64_t end)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    size_t steps = br_time_steps(fg->start, end - fg->start, (unsigned)fg->block);
    int status = br_shorten_rows(stage, out, stream->nchannels, fg->length, steps,
                                 fg->cells * sizeof *fg->row, fg->row);
    if (status != BR_OK) return status;
    out->first = fg->start;
    out->samples = end - fg->start;
    out->complete = false;
    br_frame_close_validity(stream, out);
    fg->open = false;
    return BR_PRODUCED;
}

/* The stream ends here, or is interrupted: unfinished blocks are finished as they are. */
static int cut(struct br_stage *stage, struct frb_grid *fg, struct br_frame *out)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    for (unsigned z = 0; z < stream->nzones; z++) {
        size_t channel = stream->zone[z].first_channel;
        if (fg->done[z] < fg->length)
            fg->done[z] += br_frb_grid_flush(fg->plan[z], row_of(fg, out, channel, fg->done[z]), fg->length,
                                             out->valid + channel * fg->length + fg->done[z], fg->length);
    }
    fg->running = false;
    int result = emit(stage, fg, out, fg->cursor), status = br_stage_gpu_check(stage, fg->cuda);
    return status != BR_OK ? status : result;
}

/* A frame begins that does not go on where the last one ended, or the first one. */
static void begin(const struct br_stream *from, struct frb_grid *fg, uint64_t first)
{
    for (unsigned z = 0; z < from->nzones; z++)
        br_frb_grid_begin(fg->plan[z], (unsigned)(first % fg->block / from->zone[z].downsample));
    fg->running = true;
    fg->cursor = first;
}

/* The part of the frame that zone z can take, up to row `end` of the output. False: nothing. */
static bool call_of(const struct br_stream *from, const struct frb_grid *fg, unsigned z,
                    const struct br_frame *in, struct br_frame *out, size_t end,
                    struct br_frb_grid_call *call)
{
    const struct br_zone *zone = &from->zone[z];
    struct br_part part = br_stream_part(from, br_stream_is_zoned(from) ? z : 0, in->first, in->samples);
    size_t row = part.nchannels * fg->spectators, within = zone->first_channel - part.first_channel;
    size_t left = part.nsteps - fg->taken[z];
    if (fg->done[z] >= end || left == 0) return false;
    *call = (struct br_frb_grid_call){
        .plan = fg->plan[z],
        .e = (const uint8_t *)in->data + part.offset + fg->taken[z] * row + within * fg->spectators,
        .row = row,
        .e_valid =
            in->complete ? NULL : in->valid + part.valid_offset + fg->taken[z] * part.nchannels + within,
        .valid_row = part.nchannels,
        .nsteps = left,
        .max_blocks = end - fg->done[z],
        .out = row_of(fg, out, zone->first_channel, fg->done[z]),
        .out_stride = fg->length,
        .out_valid = out->valid + zone->first_channel * fg->length + fg->done[z],
        .valid_stride = fg->length};
    return true;
}

/* Takes all zones up to row `end` of the output, or as far as the frame goes: all at once, since few channels
 * with long blocks do not fill a GPU. True: they are there. */
static bool run_zones(const struct br_stream *from, struct frb_grid *fg, const struct br_frame *in,
                      struct br_frame *out, size_t end)
{
    struct br_frb_grid_call call[BR_MAX_ZONES];
    unsigned zone_of[BR_MAX_ZONES]; /* of a call */
    size_t ncalls = 0;
    bool there = true;
    for (unsigned z = 0; z < from->nzones; z++) {
        zone_of[ncalls] = z;
        ncalls += call_of(from, fg, z, in, out, end, &call[ncalls]);
    }
    br_frb_grid_execute_all(call, ncalls);
    for (size_t i = 0; i < ncalls; i++) {
        fg->done[zone_of[i]] += call[i].blocks;
        fg->taken[zone_of[i]] += call[i].taken;
    }
    for (unsigned z = 0; z < from->nzones; z++) there = there && fg->done[z] >= end;
    return there;
}

/* Works on the frame until the output is full or the input used up. New gains hold from the first block on
 * that begins at the sample or after it; of a block in which samples are already, that is the next one. */
static void fill(struct br_stage *stage, struct frb_grid *fg, const struct br_frame *in, struct br_frame *out)
{
    const struct br_stream *from = br_stage_input(stage, 0);
    uint64_t in_end = in->first + in->samples;
    for (;;) {
        uint64_t due = br_stage_next_update(stage, in_end), block = (due + fg->block - 1) / fg->block;
        bool within = due < in_end && block < fg->first_block + fg->length;
        size_t end = !within ? fg->length : block > fg->first_block ? (size_t)(block - fg->first_block) : 0;
        if (!run_zones(from, fg, in, out, end) || !within) return;
        br_stage_update(stage, block * fg->block);
    }
}

int frb_grid_process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct frb_grid *fg = self;
    const struct br_stream *from = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) {
        int result = fg->open ? cut(stage, fg, out) : 0;
        return result < 0 ? result : result | BR_FINISHED;
    }

    if (!fg->resumed) {
        if (fg->running && !br_goes_on(fg->cursor, in->first, fg->boundary)) {
            fg->running = false;
            if (fg->open) return cut(stage, fg, out); /* the same input comes again */
        }
        memset(fg->taken, 0, sizeof fg->taken);
        fg->resumed = true;
        if (!fg->running) begin(from, fg, in->first);
    }
    if (!fg->open) open_frame(fg, fg->cursor);

    fill(stage, fg, in, out);
    bool full = true, used = true;
    for (unsigned z = 0; z < from->nzones; z++) {
        struct br_part part = br_stream_part(from, br_stream_is_zoned(from) ? z : 0, in->first, in->samples);
        full = full && fg->done[z] == fg->length;
        used = used && fg->taken[z] == part.nsteps;
    }
    uint64_t in_end = in->first + in->samples, frame_end = (fg->first_block + fg->length) * fg->block;
    fg->cursor = full && frame_end < in_end ? frame_end : in_end;
    int result = 0;
    int status = br_stage_gpu_check(stage, fg->cuda);
    if (status == BR_OK && full) result = emit(stage, fg, out, fg->cursor);
    if (status != BR_OK || result < 0) return status != BR_OK ? status : result;
    if (used) {
        fg->resumed = false;
        result |= BR_CONSUMED;
    }
    return result;
}
