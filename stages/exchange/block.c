/* block.c - one frame of the output: its validity, what is missing, its ends. See exchange.h. */
#include "stages/exchange/exchange.h"

#include <string.h>

/* Whether validity is [time][freq], or [freq][time]. */
static bool time_is_slow(const struct br_stream *s)
{
    return br_array_axis(&s->array, "time") < br_array_axis(&s->array, "freq");
}

static size_t cell(const struct br_part *part, bool time_slow, size_t step, size_t channel)
{
    size_t c = channel - part->first_channel;
    return part->valid_offset + (time_slow ? step * part->nchannels + c : c * part->nsteps + step);
}

static void mark(const struct br_stream *out, struct open *open)
{
    if (open->marked) return;
    br_frame_open_validity(out, open->frame);
    memset(open->frame->valid, BR_VALID, br_frame_cells(out, open->frame));
    open->frame->complete = false;
    open->marked = true;
}

void block_cover(struct exchange *x, struct open *open, unsigned rank, const struct piece *piece,
                 const uint8_t *valid)
{
    const struct plan *plan = &x->plan;
    const struct br_stream *from = &plan->from[rank], *to = &plan->to[plan->rank];
    struct cover *cover = &open->of[rank];
    uint64_t begin = block_begin(x, open->block);
    bool time_slow = time_is_slow(from);
    cover->piece[cover->count++] = *piece;
    if (valid == NULL) return;
    mark(to, open);
    const struct crossing *c = &plan->in[rank];
    for (unsigned i = 0; i < c->nstrips; i++) {
        const struct strip *s = &c->strip[i];
        struct br_part a = plan_part(from, s->from, piece->first, piece->end - piece->first);
        struct br_part b = plan_part(to, s->to, begin, to->frame_samples);
        size_t step = block_step(begin, piece, s->downsample);
        for (size_t t = 0; t < a.nsteps; t++)
            for (size_t f = 0; f < s->nfreq; f++) {
                uint8_t theirs = valid[cell(&a, time_slow, t, s->from + f)];
                uint8_t *ours = &open->frame->valid[cell(&b, time_slow, step + t, s->to + f)];
                if (theirs < *ours) *ours = theirs;
            }
    }
}

/* The byte that says "missing" in products; elsewhere validity alone does. */
static int missing_byte(enum br_dtype dtype)
{
    return dtype == BR_INT4X2 ? 0x88 : dtype == BR_INT8X2 ? 0x80 : 0;
}

/* A rank has nothing of base samples [gap.first, gap.end) of the block. Steps that it has in part stay. */
static int lack(struct br_stage *stage, struct exchange *x, struct open *open, unsigned rank,
                const struct piece *gap)
{
    const struct plan *plan = &x->plan;
    const struct br_stream *to = &plan->to[plan->rank];
    const struct crossing *c = &plan->in[rank];
    uint64_t begin = block_begin(x, open->block);
    bool time_slow = time_is_slow(to);
    for (unsigned i = 0; i < c->nstrips; i++) {
        const struct strip *s = &c->strip[i];
        struct br_part part = plan_part(to, s->to, begin, to->frame_samples);
        size_t first = (size_t)((gap->first - begin + s->downsample - 1) / s->downsample);
        size_t end = gap->end == begin + to->frame_samples ? part.nsteps
                                                           : (size_t)((gap->end - begin) / s->downsample);
        size_t length[BR_MAX_AXES];
        if (first >= end) continue;
        mark(to, open);
        plan_lengths(plan, c, i, end - first, length);
        struct view v = plan_view(to, s->to, c->beam_to, begin, to->frame_samples, first);
        int status = plan_set(stage, plan, length, open->frame->data, &v, missing_byte(to->array.dtype));
        if (status != BR_OK) return status;
        for (size_t t = first; t < end; t++)
            for (size_t f = 0; f < s->nfreq; f++)
                open->frame->valid[cell(&part, time_slow, t, s->to + f)] = BR_MISSING;
    }
    return BR_OK;
}

/* Cuts a frame, of which all ranks have [first, end) at most, to that. */
static int cut(struct br_stage *stage, struct exchange *x, struct open *open, uint64_t first, uint64_t end)
{
    const struct plan *plan = &x->plan;
    const struct br_stream *to = &plan->to[plan->rank];
    struct br_frame *frame = open->frame;
    uint64_t begin = block_begin(x, open->block), samples = end - first;
    bool time_slow = time_is_slow(to);
    size_t bytes = 0;
    for (unsigned p = 0; p < br_stream_nparts(to); p++) {
        struct br_part was = br_stream_part(to, p, begin, to->frame_samples);
        struct br_part is = br_stream_part(to, p, first, samples);
        struct crossing all = {.nbeam = to->nbeams, .nstrips = 1};
        all.strip[0] = (struct strip){0, 0, was.nchannels, was.downsample};
        size_t step = (size_t)(first / was.downsample - begin / was.downsample), length[BR_MAX_AXES];
        plan_lengths(plan, &all, 0, is.nsteps, length);
        struct view a = plan_view(to, was.first_channel, 0, begin, to->frame_samples, step);
        struct view b = plan_view(to, is.first_channel, 0, first, samples, 0);
        int status = plan_copy(stage, &x->copies, plan, length, x->scratch, &b, frame->data, &a);
        if (status != BR_OK) return status;
        bytes = is.offset + is.bytes;
        for (size_t t = 0; open->marked && t < is.nsteps; t++)
            for (size_t f = 0; f < is.nchannels; f++)
                x->cell_copy[cell(&is, time_slow, t, is.first_channel + f)] =
                    frame->valid[cell(&was, time_slow, step + t, is.first_channel + f)];
    }
    int status = copies_make(stage, &x->copies);
    if (status != BR_OK) return status;
    frame->first = first;
    frame->samples = samples;
    if (open->marked) memcpy(frame->valid, x->cell_copy, br_frame_cells(to, frame));
    return br_stage_copy_rows(stage, frame->data, bytes, x->scratch, bytes, bytes, 1);
}

int block_close(struct br_stage *stage, struct exchange *x, struct open *open)
{
    const struct plan *plan = &x->plan;
    const struct br_stream *to = &plan->to[plan->rank];
    uint64_t begin = block_begin(x, open->block), end = begin + to->frame_samples;
    uint64_t first = end, last = begin, own = 0;
    int status = BR_OK;
    for (unsigned r = 0; r < plan->ranks; r++) {
        uint64_t at = begin;
        for (unsigned i = 0; i < open->of[r].count && status == BR_OK; i++) {
            const struct piece *p = &open->of[r].piece[i];
            if (p->first > at) status = lack(stage, x, open, r, &(struct piece){at, p->first});
            at = p->end;
            if (p->first < first) first = p->first;
            if (p->end > last) last = p->end;
            if (r == plan->rank) own += p->end - p->first;
        }
        if (at < end && status == BR_OK) status = lack(stage, x, open, r, &(struct piece){at, end});
    }
    if (status == BR_OK && (first != begin || last != end)) status = cut(stage, x, open, first, last);
    if (status != BR_OK) return status;
    if (open->marked) br_frame_close_validity(to, open->frame);
    br_stage_count_gained(stage, last - first - own);
    return BR_OK;
}

enum { AS_IT_IS, RUNS };

size_t validity_pack(const uint8_t *valid, size_t cells, uint8_t *to)
{
    size_t n = 1;
    to[0] = RUNS;
    for (size_t i = 0; i < cells;) {
        uint32_t run = 1;
        while (i + run < cells && run < UINT32_MAX && valid[i + run] == valid[i]) run++;
        if (n + 5 > cells) { /* no shorter than it is */
            to[0] = AS_IT_IS;
            memcpy(to + 1, valid, cells);
            return cells + 1;
        }
        to[n] = valid[i];
        memcpy(to + n + 1, &run, sizeof run);
        n += 5;
        i += run;
    }
    return n;
}

bool validity_unpack(const uint8_t *packed, size_t bytes, uint8_t *valid, size_t cells)
{
    size_t at = 0;
    if (bytes < 1) return false;
    if (packed[0] == AS_IT_IS) {
        if (bytes != cells + 1) return false;
        memcpy(valid, packed + 1, cells);
        return true;
    }
    for (size_t n = 1; n + 5 <= bytes; n += 5) {
        uint32_t run;
        memcpy(&run, packed + n + 1, sizeof run);
        if (run > cells - at) return false;
        memset(valid + at, packed[n], run);
        at += run;
    }
    return at == cells;
}
