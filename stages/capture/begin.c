/* begin.c - which sample the counters mean, when they start again, and when the stream's first sample was
 * taken. See capture.h and sample_clock.h. */
#include "buffers/clock.h"
#include "formats/common/text.h"
#include "stages/capture/capture.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLOCK_S = 2 }; /* so far off the time may be before somebody is told */

int capture_place(struct br_stage *stage, struct capture *c, bool wait, int64_t *sample)
{
    struct br_error error = {0};
    int64_t now = br_unix_ns(), late, by_clock = *sample;
    if (c->clock.period == 0 && c->watch == NULL) return BR_OK;
    enum sample_clock_verdict verdict = sample_clock_place(&c->clock, &by_clock, now, &late);
    c->periods_by = "this machine's clock";
    if (verdict != SAMPLE_CLOCK_SURE && c->start_utc != NULL) {
        struct sample_clock from_epoch = {0, c->clock.sample_ns, 0};
        int64_t stated = c->epoch_ns + sample_clock_span_ns(&from_epoch, c->start_sample);
        c->periods_by = "start_utc";
        by_clock = *sample;
        now = stated;
        verdict = sample_clock_place(&c->clock, &by_clock, now, &late);
    }
    bool off = verdict != SAMPLE_CLOCK_FIRST_PERIOD && llabs(late) > CLOCK_S * INT64_C(1000000000);
    if (off && wait) return 1;
    if (verdict == SAMPLE_CLOCK_UNSURE)
        return br_stage_fail(stage, sample_clock_refuse(&c->clock, by_clock, now, c->periods_by, &error),
                             "%s", error.text);
    c->doubt_ns = off ? br_clock_ns() : 0;
    c->confirmed = verdict == SAMPLE_CLOCK_SURE && !off;
    if (off)
        br_stage_warn(
            stage,
            "by %s the first packets come %.3g s %s than by their counter and its epoch: one of them "
            "is not right, or there is another F-engine",
            c->periods_by, 1e-9 * (double)llabs(late), late > 0 ? "later" : "earlier");
    if (verdict == SAMPLE_CLOCK_FIRST_PERIOD)
        br_stage_warn(
            stage,
            "by %s the first packets come %.6g s earlier than by their counter; the counter is taken "
            "not to have started again since the epoch",
            c->periods_by, -1e-9 * (double)late);
    *sample = by_clock;
    return BR_OK;
}

void capture_say_begin(struct br_stage *stage, struct capture *c, int64_t frame)
{
    char text[TEXT_TIME], periods[160] = "";
    int64_t sample = frame * c->frame_samples;
    const char *epoch = c->epoch_url != NULL ? "epoch_url" : "stream: epoch_ns";
    if (c->clock.period > 0)
        snprintf(periods, sizeof periods, "; the counter had started again %lld times by %s",
                 (long long)(sample / c->clock.period),
                 c->periods_by != NULL ? c->periods_by : "start_sample");
    br_stage_note(stage,
                  "begins with sample %lld, which was taken at %s UTC, by the packets' counter and `%s`%s",
                  (long long)sample,
                  text_utc_format(text, br_stream_time_ns(br_stage_output(stage, 0), (uint64_t)sample)),
                  epoch, periods);
}
