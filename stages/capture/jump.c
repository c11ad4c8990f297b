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
    LATE_S = 5,       /* by so much at most the machine was late where no packets were lost */
    WARN_S = 60,      /* a warning of what lasts is repeated so often */
};

static int64_t epoch_of_controller(const struct capture *c)
{
    uint64_t failures;
    return c->watch != NULL ? epoch_watch_latest(c->watch, &failures) : c->shift_epoch_ns;
}

static int64_t samples_of_s(const struct capture *c, int64_t s)
{
    struct sample_clock since = {0, c->clock.sample_ns, 0};
    return sample_clock_at(&since, s * INT64_C(1000000000));
}

/* Samples that have passed since the stream was seen going on, by the clock that nobody sets. */
static int64_t passed(const struct capture *c)
{
    struct sample_clock since = {0, c->clock.sample_ns, 0};
    return sample_clock_at(&since, (int64_t)(br_clock_ns() - c->mark_ns));
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

/* By our count: sample 0 of counters that began at `epoch_ns`. */
static int64_t sample_0_of(const struct capture *c, int64_t epoch_ns)
{
    return (int64_t)((__int128_t)(epoch_ns - c->epoch_ns) * c->clock.sample_ns.den / c->clock.sample_ns.num);
}

/* Where the sources are by our count, if sample 0 of their counters was at `epoch_ns`. */
static int64_t sample_by_epoch(const struct capture *c, int64_t epoch_ns, int64_t raw)
{
    struct sample_clock fresh = {epoch_ns, c->clock.sample_ns, c->clock.period};
    int64_t late;
    sample_clock_place(&fresh, &raw, br_unix_ns(), &late);
    return raw + sample_0_of(c, epoch_ns);
}

/* Sources at `raw` are at the present time by the stream until now, within `s`, if sample 0 was then. */
static bool fits_count(const struct capture *c, int64_t epoch_ns, int64_t raw, int64_t s)
{
    return llabs(sample_by_epoch(c, epoch_ns, raw) - c->mark_sample - passed(c)) < samples_of_s(c, s);
}

/* The same, or by this machine's clock. */
static bool fits(const struct capture *c, int64_t epoch_ns, int64_t raw)
{
    return fits_clock(c, epoch_ns, raw) || fits_count(c, epoch_ns, raw, CLOCK_S);
}

void capture_mark(struct capture *c, int64_t sample)
{
    struct sample_clock stream = {c->epoch_ns, c->clock.sample_ns, 0};
    c->mark_sample = sample;
    c->mark_ns = br_clock_ns();
    if (llabs(sample_clock_at(&stream, br_unix_ns()) - sample) < samples_of_s(c, CLOCK_S))
        c->confirmed = true;
}

/* The run has begun by packets that the clock did not confirm, not long ago, nor has it done so since. */
static bool is_doubtful(const struct capture *c)
{
    return c->doubt_ns != 0 && !c->confirmed &&
           br_clock_ns() - c->doubt_ns < MOST_BACK_S * UINT64_C(1000000000);
}

/* Sources that are at `raw` now are none of ours: this machine's clock has confirmed our stream, and what
 * they send is later than now, or is out already; nor can their counters have begun again meanwhile. */
static bool is_foreign(const struct capture *c, int64_t raw)
{
    int64_t epoch = epoch_of_controller(c), off = samples_of_s(c, CLOCK_S), now = c->mark_sample + passed(c);
    int64_t at = sample_by_epoch(c, epoch, raw);
    if (!c->confirmed || fits_clock(c, epoch, raw)) return false;
    if (at >= c->last_sample && at < now + off) return false; /* of now, or the machine was late */
    return (c->clock.period > 0 ? raw % c->clock.period : raw) >= passed(c) + off;
}

/* Most sources have jumped, to `raw`, and are not somebody else. */
static bool has_jumped(struct br_stage *stage, struct capture *c, int64_t *raw)
{
    int64_t to = *raw;
    if (!window_has_jumped(&c->window, &to)) return false;
    if (!is_foreign(c, to)) {
        *raw = to;
        return true;
    }
    uint64_t now = br_clock_ns();
    if (c->foreign_ns == 0 || now - c->foreign_ns > WARN_S * UINT64_C(1000000000))
        br_stage_warn(
            stage,
            "most sources send packets of sample %" PRId64 ", but this machine's clock and earlier packets "
            "expect sample %" PRId64 ": these packets seem to come from another F-engine with the same ids "
            "and count as stray; see which machines send (`tcpdump`)",
            to + atomic_load(&c->window.shift), c->mark_sample + passed(c));
    c->foreign_ns = now;
    return false;
}

static void begin_to_flush(struct capture *c)
{
    c->state = CAPTURE_FLUSHING;
    atomic_store(&c->window.lacking, WINDOW_EARLY); /* until the stream goes on */
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
    bool fit = other ? fits_clock(c, epoch, raw) || (c->by_clock && fits_count(c, epoch, raw, CLOCK_S))
                     : fits_count(c, epoch, raw, LATE_S);
    if (!fit) return;
    if (!c->by_clock && off_clock_ns(c, c->shift_epoch_ns, raw) <= off_clock_ns(c, epoch, raw)) return;
    c->resume_raw = raw;
    c->anew = true;
    begin_to_flush(c);
}

int capture_look_for_jump(struct br_stage *stage, struct capture *c)
{
    if (!has_jumped(stage, c, &c->resume_raw)) {
        look_for_epoch(c);
        return BR_OK;
    }
    int64_t end = (atomic_load(&c->window.base) + c->open) * c->frame_samples;
    int64_t now = c->resume_raw + atomic_load(&c->window.shift);
    c->resets++;
    if (strcmp(c->on_reset, "stop") == 0)
        return br_stage_fail(stage, BR_E_FORMAT,
                             "most sources jumped from sample %" PRId64 " to %" PRId64
                             "; `on_reset: restart` would continue",
                             end, now);
    begin_to_flush(c);
    c->window.disowns = true;
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

/* From where on the count has been off, as the counters began again at this epoch, and by so much: before the
 * run did, or unseen since. */
static int64_t off_from(const struct capture *c, int64_t epoch_ns, int64_t off)
{
    int64_t then = sample_0_of(c, epoch_ns), counted = then + off;
    if (counted <= c->clock_sample) return c->clock_sample;
    return counted > then ? counted : then;
}

/* Counts on at the true time: by what the controller says, or by this machine's clock. */
static int count_anew(struct br_stage *stage, struct capture *c)
{
    int64_t epoch = epoch_of_controller(c), before = atomic_load(&c->window.shift);
    int64_t step = (int64_t)c->layout.packet_samples;
    bool sure = fits(c, epoch, c->resume_raw), other = sure && epoch != c->shift_epoch_ns;
    bool same = sure && !other; /* they did not: packets were missing */
    int64_t sample = sure ? sample_by_epoch(c, epoch, c->resume_raw) : c->mark_sample + passed(c);
    if (!sure && is_doubtful(c))
        return br_stage_fail(
            stage, BR_E_FORMAT,
            "most sources jumped to sample %" PRId64
            ", and the run had begun by packets that this machine's clock does not confirm, perhaps those of "
            "another F-engine with the same ids; expected is a new run, which begins at the right time",
            c->resume_raw + before);
    if (sure && sample < c->last_sample - samples_of_s(c, MOST_BACK_S))
        return br_stage_fail(
            stage, BR_E_FORMAT,
            "most sources are at sample %" PRId64 ", and samples up to %" PRId64
            " are out already: the stream was ahead of its time, perhaps by another F-engine "
            "with the same ids; expected is a new run, which begins at the right time",
            sample, c->last_sample);
    int64_t shift = sample - c->resume_raw, rest = shift % step; /* which may be negative */
    shift += rest > 0 ? step - rest : -rest;
    if (c->anew)
        br_stage_warn(
            stage, "%s: from sample %" PRId64 " on the count was off by %" PRId64 " samples",
            other ? "the controller says when the counters began again" : "the counters had not begun again",
            other ? off_from(c, epoch, c->resume_raw + before - sample) : c->clock_sample, shift - before);
    c->by_clock = !sure;
    if (sure) c->shift_epoch_ns = epoch;
    c->clock_sample = c->resume_raw + shift;
    br_stage_warn(stage, "the counters of most sources %s sample %" PRId64 " by our count%s",
                  same ? "jumped, to" : "began again, at", c->clock_sample,
                  !c->by_clock ? ""
                  : c->watch != NULL
                      ? " and this machine's clock, until the controller says when that was"
                      : " and this machine's clock: without `epoch_url` the time is not exact");
    window_set_shift(&c->window, shift);
    return BR_OK;
}

int capture_resume(struct br_stage *stage, struct capture *c)
{
    int status = BR_OK;
    if (c->watch != NULL && !epoch_watch_asked(c->watch, c->asked)) return BR_OK;
    int64_t shift = atomic_load(&c->window.shift), sample;
    bool jumped = has_jumped(stage, c, &c->resume_raw); /* where they are by now, or that they are back */
    if (c->anew && !jumped && window_position(&c->window, 1, &sample)) c->resume_raw = sample - shift;
    sample = jumped || c->anew ? c->resume_raw + shift : c->mark_sample + passed(c);
    bool counted = c->anew || (jumped && (c->by_clock || began_again(c, sample)));
    if (counted)
        status = count_anew(stage, c);
    else
        br_stage_warn(stage, "the counters of most sources %s sample %" PRId64,
                      jumped ? "jumped to" : "are back, at", sample);
    if (status != BR_OK) return status;
    c->anew = false;
    if (counted) sample = c->resume_raw + atomic_load(&c->window.shift);
    int64_t frame = sample / c->frame_samples + 1;
    int64_t behind = (c->last_sample + c->frame_samples - 1) / c->frame_samples; /* no sample comes twice */
    if (behind > frame) frame = behind;
    if (counted)
        br_stage_note(stage, "the frames from sample %" PRId64 " on are counted so",
                      frame * c->frame_samples);
    atomic_store(&c->window.from, sample);
    capture_begin_with(stage, c, frame);
    capture_mark(c, sample);
    c->ready = false;
    return BR_OK;
}
