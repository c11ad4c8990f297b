#include "stages/simulate/places.h"

#include <math.h>

int place_take(struct br_stage *stage, const char *param, size_t i, const struct place_param *p,
               struct sky_source *source, size_t *said)
{
    struct br_error error = {0};
    bool x = isfinite(p->x_deg), y = isfinite(p->y_deg);
    bool other = p->at.xy.count + p->at.azel.count + p->at.radec.count > 0 || p->at.name != NULL;
    if (x != y || x == other)
        return br_stage_fail_at(
            stage, param, "number %zu: expected x_deg and y_deg, or one of xy, azel, radec and name", i + 1);
    if (other) {
        if (br_towards_source(&p->at, source, said, &error) == BR_OK) return BR_OK;
        return br_stage_fail_at(stage, param, "number %zu: %s", i + 1, error.text);
    }
    *source = (struct sky_source){.x = sin(p->x_deg * M_PI / 180), .y = sin(p->y_deg * M_PI / 180)};
    if (source->x * source->x + source->y * source->y <= 1 + 1e-12) return BR_OK;
    return br_stage_fail_at(
        stage, param,
        "number %zu is below the horizon: the sines of x_deg and y_deg are %.6g and %.6g; the sum of "
        "their squares must not exceed 1",
        i + 1, source->x, source->y);
}

static bool any_on_sky(const struct sky_source *source, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) any = any || source[i].kind != SKY_FIXED;
    return any;
}

int places_configure(struct br_stage *stage, const struct br_stream *out, const struct sky_source *sources,
                     size_t nsources, struct sky_source *bursts, size_t nbursts, const int64_t *arrival_ns,
                     size_t said, struct br_motion *motion)
{
    const struct apparent_site *site;
    bool moves = any_on_sky(sources, nsources);
    *motion = (struct br_motion){.nbeams = nsources};
    if (!moves && !any_on_sky(bursts, nbursts)) return BR_OK;
    const char *param = moves ? "sources" : "bursts";
    int status = br_stage_site(stage, param, &site);
    if (status == BR_OK) status = br_stage_follows(stage, param, site, said, out->epoch_ns);
    for (size_t i = 0; i < nbursts && status == BR_OK; i++) {
        struct br_beam there;
        struct br_error error = {0};
        double up = 1;
        if (apparent_places(site, arrival_ns[i], &bursts[i], 1, &there, &up, &error) != BR_OK)
            status = br_stage_fail_at(stage, "bursts", "number %zu: %s", i + 1, error.text);
        else if (!(up >= 0))
            status =
                br_stage_fail_at(stage, "bursts", "number %zu is below the horizon when it arrives", i + 1);
        bursts[i] = (struct sky_source){.x = there.x, .y = there.y};
    }
    if (!moves || status != BR_OK) return status;
    motion->sources = sources;
    motion->site = site;
    motion->epoch_ns = out->epoch_ns;
    motion->sample_s = br_stream_sample_s(out);
    motion->every = br_sky_interval(out, 0.1);
    return BR_OK;
}
