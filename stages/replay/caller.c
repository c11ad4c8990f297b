/* caller.c - what readers ask of their caller, answered by the stage. */
#include "stages/replay/replay.h"

static struct br_stage *stage_of(void *owner)
{
    return ((struct replay_caller *)owner)->stage;
}

static void *alloc(void *owner, size_t bytes)
{
    return br_stage_alloc(stage_of(owner), bytes);
}

static int fail(void *owner, int status, const char *param, const char *text)
{
    if (param != NULL) return br_stage_fail_at(stage_of(owner), param, "%s", text);
    return br_stage_fail(stage_of(owner), status, "%s", text);
}

static void say(void *owner, bool warning, const char *text)
{
    if (warning)
        br_stage_warn(stage_of(owner), "%s", text);
    else
        br_stage_note(stage_of(owner), "%s", text);
}

static void lost(void *owner, enum caller_loss reason, uint64_t samples)
{
    static const enum br_loss reasons[] = {[CALLER_DUPLICATE] = BR_LOST_DUPLICATE,
                                           [CALLER_LATE] = BR_LOST_LATE,
                                           [CALLER_CORRUPT] = BR_LOST_CORRUPT};
    br_stage_count_lost(stage_of(owner), reasons[reason], samples);
}

static bool stopping(void *owner)
{
    return br_stage_stopping(stage_of(owner));
}

static bool sleep_until(void *owner, uint64_t ns)
{
    return br_stage_sleep_until(stage_of(owner), ns);
}

static struct br_frame *lend_ahead(void *owner, unsigned ahead)
{
    return br_stage_lend_ahead(stage_of(owner), 0, ahead);
}

static unsigned threads(void *owner)
{
    return br_stage_threads(stage_of(owner));
}

static void parallel_begin(void *owner, unsigned most, size_t jobs, caller_work *work, void *arg)
{
    br_stage_parallel_begin(stage_of(owner), most, jobs, work, arg);
}

static void parallel_add(void *owner, size_t more)
{
    br_stage_parallel_add(stage_of(owner), more);
}

static void parallel_end(void *owner)
{
    br_stage_parallel_end(stage_of(owner));
}

static int set_rows(void *owner, void *to, size_t pitch, int byte, size_t width, size_t rows)
{
    return br_stage_set_rows(stage_of(owner), to, pitch, byte, width, rows);
}

static bool feed_ready(void *owner)
{
    return br_feed_ready(((struct replay_caller *)owner)->feed);
}

static void *feed_buffer(void *owner)
{
    return br_feed_buffer(((struct replay_caller *)owner)->feed);
}

static int feed_send(void *owner, void *to, size_t skip, size_t bytes)
{
    return br_feed_send(((struct replay_caller *)owner)->feed, to, skip, bytes);
}

static const struct caller_run run = {.lost = lost,
                                      .stopping = stopping,
                                      .sleep_until = sleep_until,
                                      .lend_ahead = lend_ahead,
                                      .threads = threads,
                                      .parallel_begin = parallel_begin,
                                      .parallel_add = parallel_add,
                                      .parallel_end = parallel_end,
                                      .set_rows = set_rows,
                                      .feed_ready = feed_ready,
                                      .feed_buffer = feed_buffer,
                                      .feed_send = feed_send};

void replay_caller(struct replay_caller *caller, struct br_stage *stage)
{
    *caller = (struct replay_caller){.caller = {.owner = caller,
                                                .hints = br_stage_hints(stage),
                                                .telescope = br_stage_telescope(stage),
                                                .alloc = alloc,
                                                .fail = fail,
                                                .say = say,
                                                .run = &run},
                                     .stage = stage};
}
