/* jump.c - counters that jump, or begin again, and from which sample on the stream goes on then. See
 * capture.h.
 *
 * The controller knows when the counters began again, and may say so only later. Until then the stream goes
 * on by this machine's clock, and is set right as soon as the controller does. */
#include "buffers/clock.h"
#include "stages/capture/capture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_BACK_S = 10, /* by so much at most the stream waits until its time is there again */
    CLOCK_S = 2,      /* an epoch by which the sources are farther from this machine's clock is doubted */
};

static int64_t epoch_of_controller(const struct capture *c)
{
    uint64_t failures;
    return c->watch != NULL ? epoch_watch_latest(c->watch, &failures) : c->shift_epoch_ns;
}

/* How far from now is what the sources send, which are at `raw` by their counters, if sample 0 was then. */
static int64_t off_clock_ns(const struct capture *c, int64_t epoch_ns, int64_t raw)
{
    struct sample_clock clock = {epoch_ns, c->clock.sample_ns, c->clock.period};
    int64_t late;
    sample_clock_place(&clock, &raw, br_unix_ns(), &late);
    return llabs(late);
}

static bool fits_clock(const struct capture *c, int64_t epoch_ns, int64_t raw)
{
    return off_clock_ns(c, epoch_ns, raw) < CLOCK_S * INT64_C(1000000000);
}

/* The controller says another epoch, and the counters have not jumped: they began again before, unseen or
 * when it did not say so yet. It is believed where the count is by the clock, and where the clock says so:
 * counters that began again about when they would have started again fit both epochs, but one better.
 * Where the count is by the clock, and by the same epoch the sources are at the present time, they did not
 * begin again: the machine was late. */
static void look_for_epoch(struct capture *c)
{
    int64_t epoch = epoch_of_controller(c), at;
    bool other = epoch != c->shift_epoch_ns;
    if ((!other && !c->by_clock) || !window_position(&c->window, 1, &at)) return;
    int64_t raw = at - atomic_load(&c->window.shift);
    if ((!other || !c->by_clock) && !fits_clock(c, epoch, raw)) return;
    if (other && !c->by_clock && off_clock_ns(c, c->shift_epoch_ns, raw) <= off_clock_ns(c, epoch, raw))
        return;
    c->resume_raw = raw;
    c->anew = true;
    c->state = CAPTURE_FLUSHING;
}

int capture_look_for_jump(struct br_stage *stage, struct capture *c)
{
    if (!window_has_jumped(&c->window, &c->resume_raw)) {
        look_for_epoch(c);
        return BR_OK;
    }
    int64_t end = (atomic_load(&c->window.base) + c->open) * c->frame_samples;
    int64_t now = c->resume_raw + atomic_load(&c->window.shift);
    c->resets++;
    if (strcmp(c->on_reset, "stop") == 0)
        return br_stage_fail(stage, BR_E_FORMAT,
                             "most sources jumped from sample %" PRId64 " to %" PRId64
                             "; `on_reset: restart` would go on",
                             end, now);
    c->state = CAPTURE_FLUSHING;
    if (c->watch != NULL) c->asked = epoch_watch_hurry(c->watch);
    return BR_OK;
}

/* Whether the sources, which by our count are at `sample`, began again: they are back, or a counter that
 * starts again says no more than where in a period they are, and they cannot be ahead of the clock. */
static bool began_again(const struct capture *c, int64_t sample)
{
    if (sample < c->last_sample) return true;
    if (c->clock.period == 0) return false;
    struct sample_clock since = {0, c->clock.sample_ns, 0};
    return epoch_of_controller(c) != c->shift_epoch_ns ||
           sample > c->last_sample + sample_clock_at(&since, (int64_t)(br_clock_ns() - c->last_ns)) +
                        c->window.far;
}

/* Where the sources are by our count, if sample 0 of their counters was at `epoch_ns`. */
static int64_t sample_by_epoch(const struct capture *c, int64_t epoch_ns)
{
    __int128_t samples =
        (__int128_t)(epoch_ns - c->epoch_ns) * c->clock.sample_ns.den / c->clock.sample_ns.num;
    struct sample_clock fresh = {epoch_ns, c->clock.sample_ns, c->clock.period};
    int64_t raw = c->resume_raw, late;
    sample_clock_place(&fresh, &raw, br_unix_ns(), &late);
    return raw + (int64_t)samples;
}

/* Counts on at the true time: by what the controller says, or by this machine's clock. */
static int count_anew(struct br_stage *stage, struct capture *c)
{
    struct sample_clock since = {0, c->clock.sample_ns, 0};
    int64_t epoch = epoch_of_controller(c), before = atomic_load(&c->window.shift);
    int64_t step = (int64_t)c->layout.packet_samples;
    int64_t most = sample_clock_at(&since, MOST_BACK_S * INT64_C(1000000000));
    bool other = epoch != c->shift_epoch_ns;
    bool same = !other && fits_clock(c, epoch, c->resume_raw); /* they did not: packets were missing */
    int64_t sample = other || same
                         ? sample_by_epoch(c, epoch)
                         : c->mark_sample + sample_clock_at(&since, (int64_t)(br_clock_ns() - c->mark_ns));
    if ((other || same) && sample < c->last_sample - most)
        return br_stage_fail(
            stage, BR_E_FORMAT,
            "most sources are at sample %" PRId64 ", and samples up to %" PRId64
            " are out already: the stream was ahead of its time, perhaps by another F-engine "
            "with the same ids; expected is a new run, which begins at the right time",
            sample, c->last_sample);
    int64_t shift = sample - c->resume_raw, rest = shift % step; /* which may be negative */
    shift += rest > 0 ? step - rest : -rest;
    if (c->anew)
        br_stage_warn(stage, "%s: from sample %" PRId64 " on the count was off by %" PRId64 " samples",
                      other ? "the controller says when the counters began again"
                            : "the counters had not begun again",
                      c->clock_sample, shift - before);
    c->by_clock = c->watch != NULL && !other && !same;
    c->shift_epoch_ns = epoch;
    c->clock_sample = c->resume_raw + shift;
    br_stage_warn(stage, "the counters of most sources %s sample %" PRId64 " by our count%s",
                  same ? "jumped, to" : "began again, at", c->clock_sample,
                  c->by_clock ? " and this machine's clock, until the controller says when that was"
                  : c->watch != NULL || same
                      ? ""
                      : " and this machine's clock: without `epoch_url` the time is not "
                        "exact");
    window_set_shift(&c->window, shift);
    return BR_OK;
}

int capture_resume(struct br_stage *stage, struct capture *c)
{
    int status = BR_OK;
    if (c->watch != NULL && !epoch_watch_asked(c->watch, c->asked)) return BR_OK;
    window_has_jumped(&c->window, &c->resume_raw); /* where they are by now */
    int64_t sample = c->resume_raw + atomic_load(&c->window.shift);
    bool counted = c->anew || began_again(c, sample);
    if (counted)
        status = count_anew(stage, c);
    else
        br_stage_warn(stage, "the counters of most sources jumped to sample %" PRId64, sample);
    if (status != BR_OK) return status;
    c->anew = false;
    sample = c->resume_raw + atomic_load(&c->window.shift);
    int64_t frame = sample / c->frame_samples + 1;
    int64_t behind = (c->last_sample + c->frame_samples - 1) / c->frame_samples; /* no sample comes twice */
    if (behind > frame) frame = behind;
    if (counted)
        br_stage_note(stage, "the frames from sample %" PRId64 " on are counted so",
                      frame * c->frame_samples);
    capture_begin_with(stage, c, frame);
    c->ready = false;
    return BR_OK;
}
