#include "stages/common/sky/horizon.h"
#include "formats/common/text.h"

#include <math.h>

void br_horizon_configure(struct br_stage *stage, size_t nbeams, struct br_horizon *h)
{
    static const struct br_counter counters[] = {{"beams", "below_horizon"}, {"directions", "outside_eop"}};
    h->nbeams = nbeams;
    h->there = br_stage_alloc(stage, nbeams * sizeof *h->there);
    h->rose = br_stage_alloc(stage, nbeams * sizeof *h->rose);
    br_stage_has_counters(stage, counters, 2);
}

static int64_t middle_ns(const struct br_motion *motion, uint64_t interval)
{
    double ns = ((double)interval + 0.5) * (double)motion->every * motion->sample_s * 1e9;
    return fabs(ns) < 0x1p62 ? motion->epoch_ns + (int64_t)ns : INT64_MAX;
}

void br_horizon_look(struct br_stage *stage, struct br_horizon *h, const struct br_motion *motion,
                     uint64_t interval)
{
    char when[TEXT_TIME], end[TEXT_TIME];
    size_t first = h->nbeams;
    h->nbelow = 0;
    for (size_t b = h->nbeams; b-- > 0;) {
        bool up = isfinite(h->there[b].x);
        h->rose[b] = h->rose[b] || up;
        if (up) continue;
        h->nbelow++;
        first = b;
    }
    if (motion->sources == NULL) return;
    int64_t now = middle_ns(motion, interval);
    double off = motion->site->eop != NULL ? eop_error_arcsec(motion->site->eop, now) : 0;
    h->old = off > 0;
    if (h->nbelow > 0 && !h->told_below)
        br_stage_warn(stage,
                      "%zu of %zu beams, the first of them beam %zu, point below the horizon at %s UTC: "
                      "their samples are missing, and counted (below_horizon)",
                      h->nbelow, h->nbeams, first, text_utc_format(when, now));
    if (h->old && !h->told_old)
        br_stage_warn(
            stage,
            "the file of the Earth's orientation has the days until %s, and it is %s: directions may "
            "be off by %.2g arc seconds. Fetch a new finals2000A.all; an update of `beams` reads it",
            text_utc_format(end, eop_end_ns(motion->site->eop)), text_utc_format(when, now), off);
    h->told_below = h->told_below || h->nbelow > 0;
    h->told_old = h->told_old || h->old;
}

void br_horizon_count(struct br_stage *stage, struct br_horizon *h, uint64_t samples)
{
    if (h->nbelow > 0) br_stage_count(stage, 0, h->below += samples * h->nbelow);
    if (h->old) br_stage_count(stage, 1, h->aged += samples);
}

bool br_horizon_below(const struct br_horizon *h, size_t *first, size_t *count)
{
    size_t b = *first, end;
    if (h->nbelow == 0) return false;
    while (b < h->nbeams && isfinite(h->there[b].x)) b++;
    for (end = b; end < h->nbeams && !isfinite(h->there[end].x);) end++;
    *first = b;
    *count = end - b;
    return end > b;
}

int br_horizon_clear(struct br_stage *stage, const struct br_horizon *h, void *data, size_t nsteps,
                     size_t begin, size_t end)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    size_t pitch = stream->nbeams * sizeof(uint16_t);
    int status = BR_OK;
    for (size_t b = 0, n; begin < end && br_horizon_below(h, &b, &n); b += n)
        for (size_t f = 0; f < stream->nchannels && status == BR_OK; f++)
            status = br_stage_set_rows(stage, (uint8_t *)data + (f * nsteps + begin) * pitch + 2 * b, pitch,
                                       0, n * sizeof(uint16_t), end - begin);
    return status;
}

void br_horizon_commit(struct br_horizon *now, const struct br_horizon *with)
{
    now->there = with->there;
    now->rose = with->rose;
    now->nbelow = 0;
    now->old = now->told_below = now->told_old = false;
}

void br_horizon_end(struct br_stage *stage, const struct br_horizon *h)
{
    size_t never = 0, first = 0;
    if (h->below == 0) return;
    for (size_t b = h->nbeams; b-- > 0;)
        if (!h->rose[b]) {
            never++;
            first = b;
        }
    if (never > 0)
        br_stage_warn(stage,
                      "%zu of %zu beams, the first of them beam %zu, were below the horizon all the time",
                      never, h->nbeams, first);
}
