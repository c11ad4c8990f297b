#include "stages/common/stage/blocks.h"

#include "stages/common/stage/shape.h"

bool blocks_gap(const struct blocks *b, const struct br_frame *in)
{
    if (!b->open || b->taken > 0) return false;
    return b->bridges ? in->first / b->step / b->length != b->number
                      : !br_goes_on(b->cursor, in->first, b->step);
}

struct blocks_piece blocks_take(struct blocks *b, const struct br_frame *in)
{
    struct blocks_piece p = {.nsteps = br_time_steps(in->first, in->samples, b->step), .from = b->taken};
    uint64_t step = in->first / b->step + b->taken, in_end = in->first + in->samples;
    p.at = (size_t)(step % b->length);
    if (!b->open) {
        b->open = true;
        b->number = step / b->length;
        b->start = b->taken == 0 ? in->first : step * b->step;
        b->begin = b->fill = p.at;
    }
    size_t left = p.nsteps - b->taken, room = b->length - p.at;
    p.count = left < room ? left : room;
    /* the first step of the frame may have begun in another one, the last may go on in another one */
    bool first_shared = b->bridges && b->taken == 0 && in->first % b->step != 0,
         last_shared = b->bridges && p.count == left && in_end % b->step != 0;
    p.ends = p.at + p.count == b->length && !last_shared;
    p.whole = p.ends && b->fill == 0 && p.count == b->length && !first_shared;
    b->taken += p.count;
    b->fill = p.at + p.count;
    uint64_t end = (b->number + 1) * b->length * b->step;
    b->cursor = b->fill == b->length && end < in_end ? end : in_end;
    return p;
}

bool blocks_used(struct blocks *b, const struct br_frame *in)
{
    if (b->taken < br_time_steps(in->first, in->samples, b->step)) return false;
    b->taken = 0;
    return true;
}
