/* history.c - what has passed, as stages see it: see runtime/stage.h. */
#include "buffers/history.h"
#include "runtime/run/state.h"
#include "runtime/stage_history.h"

#include <stdlib.h>

static const struct br_link *link_of(const struct br_stage *stage, unsigned i)
{
    bool good = i < stage->nin && stage->in[i].policy == BR_POLICY_HISTORY;
    return good ? &stage->in[i] : NULL;
}

static struct br_reader *reader_of(const struct br_stage *stage, unsigned i)
{
    const struct br_link *link = link_of(stage, i);
    return link != NULL ? link->reader : NULL;
}

uint64_t br_stage_history(const struct br_stage *stage, unsigned i)
{
    const struct br_link *link = link_of(stage, i);
    if (link == NULL || link->edge == NULL) return 0;
    return (uint64_t)(link->history_s / br_stream_sample_s(&link->edge->stream));
}

struct br_kept br_stage_kept(const struct br_stage *stage, unsigned i)
{
    struct br_history_span span = {0};
    const struct br_reader *reader = reader_of(stage, i);
    if (reader != NULL) br_history_look(reader, &span);
    return (struct br_kept){span.first, span.whole, span.end};
}

struct br_pin *br_stage_pin(struct br_stage *stage, unsigned i, uint64_t first, uint64_t end)
{
    struct br_reader *reader = reader_of(stage, i);
    struct br_pin *pin = reader != NULL ? malloc(sizeof *pin) : NULL;
    if (pin != NULL) br_pin(reader, pin, first, end);
    return pin;
}

void br_stage_pin_advance(struct br_pin *pin, uint64_t first)
{
    if (pin != NULL) br_pin_advance(pin, first);
}

uint64_t br_stage_pin_taken(const struct br_pin *pin)
{
    uint64_t frames = 0, samples;
    if (pin != NULL) br_pin_taken(pin, &frames, &samples);
    return frames;
}

void br_stage_unpin(struct br_pin *pin)
{
    if (pin != NULL) br_pin_end(pin);
    free(pin);
}

const struct br_frame *br_stage_hold(struct br_stage *stage, unsigned i, uint64_t at)
{
    struct br_reader *reader = reader_of(stage, i);
    return reader != NULL ? br_history_hold(reader, at) : NULL;
}

void br_stage_let_go(struct br_stage *stage, unsigned i, const struct br_frame *frame)
{
    struct br_reader *reader = reader_of(stage, i);
    if (reader != NULL && frame != NULL) br_history_let_go(reader, frame);
}

void br_stage_count_dump(struct br_stage *stage, enum br_dump_number which, int64_t count)
{
    if ((unsigned)which < BR_DUMP_COUNT)
        atomic_fetch_add_explicit(&stage->state->counters.dumps[which], count, memory_order_relaxed);
}
