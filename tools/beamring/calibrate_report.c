/* calibrate_report.c - what `beamring calibrate` prints, draws and posts. */
#include "formats/common/text.h"
#include "tools/beamring/calibrate.h"
#include "tools/beamring/remote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const flag_names[] = {"good", "dead", "weak", "misfit", "no result"};

/* --- the table ------------------------------------------------------------------------------------ */

static void print_polarisation(const struct calibration *c, size_t p, const char *name)
{
    size_t solved = 0, good = 0, count[BR_GAIN_UNSOLVED + 1] = {0};
    double low = INFINITY, high = 0, snr = 0, misfit = 0;
    for (size_t f = 0; f < c->nfreq; f++) {
        size_t row = f * c->npol + p;
        if (c->why[row].text[0] != '\0') continue;
        double s = (double)c->snr[row];
        solved++;
        snr += s;
        misfit += (double)c->misfit[row];
        low = fmin(low, s);
        high = fmax(high, s);
        for (size_t d = 0; d < c->ndishes; d++) count[c->flag[row * c->ndishes + d]]++;
    }
    good = count[BR_GAIN_GOOD];
    if (solved == 0) {
        printf("%zu %s %5zu of %-5zu no result\n", p, name, solved, c->nfreq);
        return;
    }
    double n = (double)solved;
    printf("%zu %s %5zu of %-5zu %6.1f of %-5zu %5.1f %5.1f %6.1f  %8.3g (%.3g to %.3g)  %12.2f\n", p, name,
           solved, c->nfreq, (double)good / n, c->ndishes, (double)count[BR_GAIN_DEAD] / n,
           (double)count[BR_GAIN_WEAK] / n, (double)count[BR_GAIN_MISFIT] / n, snr / n, low, high,
           misfit / n);
}

const char *calibrate_sideband(const struct visibilities *v)
{
    return br_sideband_name(v->shape.sideband == BR_SIDEBAND_UNKNOWN ? BR_SIDEBAND_UPPER : v->shape.sideband);
}

/* Why a dead input is dead, from the numbers of its samples. */
static const char *cause(const struct visibilities *v, size_t p, size_t d)
{
    size_t n = v->shape.ndishes;
    bool own = false, others = false;
    for (size_t f = 0; f < v->shape.nchannels; f++)
        for (size_t e = 0; e < n; e++) {
            size_t pair = e < d ? br_calibrate_pair(n, e, d) : br_calibrate_pair(n, d, e);
            bool any = v->samples[(p * v->shape.nchannels + f) * v->npairs + pair] > 0;
            own = own || (any && e == d);
            others = others || (any && e != d);
        }
    return !own && !others ? " (no data)" : !own ? " (no autocorrelation)" : "";
}

static void print_flagged(const struct visibilities *v, const struct calibration *c, size_t p)
{
    for (size_t d = 0; d < c->ndishes; d++) {
        char antenna[40] = "";
        size_t count[BR_GAIN_UNSOLVED + 1] = {0};
        for (size_t f = 0; f < c->nfreq; f++) count[c->flag[(f * c->npol + p) * c->ndishes + d]]++;
        if (v->antenna[d] != (int64_t)d)
            snprintf(antenna, sizeof antenna, " (antenna %lld)", (long long)v->antenna[d]);
        for (int k = BR_GAIN_DEAD; k < BR_GAIN_UNSOLVED; k++)
            if (count[k] > 0)
                printf("flagged: dish %zu%s, polarisation %zu (%s): %s%s in %zu of %zu channels\n", d,
                       antenna, p, v->shape.pol[p], flag_names[k], k == BR_GAIN_DEAD ? cause(v, p, d) : "",
                       count[k], c->nfreq);
    }
}

const char *calibrate_place_kind(const struct source_place *place)
{
    enum sky_kind kind = place->source[0].kind;
    return kind == SKY_FIXED ? "direction " : kind == SKY_RADEC ? "source " : "the ";
}

void calibrate_warn_inputs(const struct visibilities *v)
{
    const struct left_out *out = &v->left_out;
    if (v->shape.sideband == BR_SIDEBAND_UNKNOWN)
        fputs("beamring calibrate: the files do not state the sideband of their stream; upper is assumed. "
              "Gains for a lower sideband are the conjugates: state it with --sideband upper or lower\n",
              stderr);
    if (out->not_finite > 0)
        fprintf(stderr,
                "beamring calibrate: %llu values of the visibilities are not finite numbers; they are "
                "left out\n",
                (unsigned long long)out->not_finite);
}

void calibrate_warn_winding(const struct calibrate_request *r, const struct visibilities *v, size_t p,
                            const struct winding *w)
{
    const char *pol = v->shape.pol[p];
    fprintf(stderr,
            "beamring calibrate: warning: polarisation %zu (%s): the gains wind across the array: they "
            "are coherent (%.2f) for a source ",
            p, pol, w->coherence);
    if (w->mirror)
        fprintf(stderr,
                "in the mirror image of the direction given, and less (%.2f) for %s%s. The visibilities "
                "are probably conjugated: the sideband of the stream, or the phases of the file, are the "
                "other way round\n",
                w->given, calibrate_place_kind(&r->place), r->source);
    else
        fprintf(stderr,
                "at direction cosines %.4f north, %.4f east (azimuth %.1f, elevation %.1f degrees, or an "
                "alias of it), and less (%.2f) for %s%s. Check the direction, the time and the "
                "positions\n",
                w->s[0], w->s[1], fmod(atan2(w->s[1], w->s[0]) * 180 / M_PI + 360, 360),
                asin(fmin(w->s[2], 1)) * 180 / M_PI, w->given, calibrate_place_kind(&r->place), r->source);
}

void calibrate_report(const struct calibrate_request *r, const struct visibilities *v,
                      const struct calibration *c)
{
    char from[TEXT_TIME], to[TEXT_TIME];
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (size_t i = 0; i < v->nspans; i++) {
        begin = v->span[i].begin_ns < begin ? v->span[i].begin_ns : begin;
        end = v->span[i].end_ns > end ? v->span[i].end_ns : end;
    }
    printf("%s: %zu dishes, %zu polarisation%s, %zu channel%s from %.9g MHz, %s sideband%s\n",
           v->shape.telescope, c->ndishes, c->npol, c->npol == 1 ? "" : "s", c->nfreq,
           c->nfreq == 1 ? "" : "s", v->freq_mhz[0], calibrate_sideband(v),
           v->shape.sideband == BR_SIDEBAND_UNKNOWN ? " (taken)" : "");
    printf("%s%s: %zu integration%s, %s to %s UTC", calibrate_place_kind(&r->place), r->source,
           v->nintegrations, v->nintegrations == 1 ? "" : "s", text_utc_format(from, begin),
           text_utc_format(to, end));
    if (v->lowest <= 1) printf(", at least %.1f degrees above the horizon", asin(v->lowest) * 180 / M_PI);
    printf("\n\npol     channels   good inputs    dead  weak misfit  S/N of a visibility   residual/noise\n");
    for (size_t p = 0; p < c->npol; p++) print_polarisation(c, p, v->shape.pol[p]);
    putchar('\n');
    for (size_t p = 0; p < c->npol; p++) print_flagged(v, c, p);
    for (size_t row = 0; row < c->nfreq * c->npol; row++)
        if (c->why[row].text[0] != '\0')
            printf("no result: %.9g MHz, polarisation %zu (%s): %s\n", v->freq_mhz[row / c->npol],
                   row % c->npol, v->shape.pol[row % c->npol], c->why[row].text);
}

/* --- a node that runs ----------------------------------------------------------------------------- */

/* The stages that take gains, from the node's own graph. */
static json_t *stages_of_node(const struct remote *remote)
{
    size_t i;
    const json_t *stage;
    json_t *graph = remote_get(remote, "calibrate", "/v1/graph"), *found = json_array();
    json_array_foreach(json_object_get(graph, "stages"), i, stage)
    {
        const char *type = json_string_value(json_object_get(stage, "stage"));
        if (type != NULL && (strcmp(type, "frb_grid") == 0 || strcmp(type, "baseband_beamform") == 0 ||
                             strcmp(type, "power_beams") == 0))
            json_array_append(found, json_object_get(stage, "name"));
    }
    if (graph != NULL && json_array_size(found) == 0)
        fprintf(stderr,
                "beamring calibrate: %s: no frb_grid, baseband_beamform or power_beams runs there; name the "
                "stages with --stages NAME:PARAMETER,...\n",
                remote->url);
    json_decref(graph);
    return found;
}

/* Adds {NAME: {PARAMETER: file}}. */
static void add_stage(json_t *stages, const char *name, const char *parameter, const char *file)
{
    json_object_set_new(stages, name, json_pack("{ss}", parameter, file));
}

/* Of "frb_grid:gains,beams:gains", or of what the node has. NULL after a message. */
static json_t *stages_for(const struct calibrate_request *r, const struct remote *remote, const char *file)
{
    json_t *stages = json_object();
    if (r->stages != NULL) {
        char *list = strdup(r->stages), *rest = NULL;
        for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
            char *colon = strchr(word, ':');
            if (colon != NULL) *colon = '\0';
            add_stage(stages, word, colon != NULL ? colon + 1 : "gains", file);
        }
        free(list);
        if (json_object_size(stages) == 0)
            fputs("beamring calibrate: --stages: expected NAME:PARAMETER,...\n", stderr);
    } else {
        size_t i;
        const json_t *name;
        json_t *names = stages_of_node(remote);
        json_array_foreach(names, i, name) add_stage(stages, json_string_value(name), "gains", file);
        json_decref(names);
    }
    if (json_object_size(stages) > 0) return stages;
    json_decref(stages);
    return NULL;
}

static json_t *moment(const char *at)
{
    if (at == NULL || strcmp(at, "now") == 0) return json_string("now");
    const char *number = strchr(at, ':') + 1;
    json_int_t value = strtoll(number, NULL, 10);
    return at[0] == 's' ? json_pack("{sI}", "sample", value) : json_pack("{sI}", "time_ns", value);
}

int calibrate_post(const struct calibrate_request *r, uint64_t digest)
{
    struct remote remote = {.url = r->post, .token_file = r->token_file};
    char id[64], *path = realpath(r->out, NULL);
    snprintf(id, sizeof id, "calibrate-%08x-%lld", (unsigned)(digest >> 32), (long long)time(NULL));
    json_t *stages = path != NULL ? stages_for(r, &remote, path) : NULL;
    free(path);
    if (stages == NULL) return 1;
    json_t *body = json_pack("{ss so so}", "id", id, "at", moment(r->at), "stages", stages);
    json_t *answer = remote_submit(&remote, "calibrate", "/v1/update", body);
    json_decref(body);
    if (answer == NULL) return 1;
    printf("posted to %s as '%s': %s, from sample %" JSON_INTEGER_FORMAT " on\n", r->post, id,
           json_string_value(json_object_get(answer, "state")),
           json_integer_value(json_object_get(answer, "sample")));
    json_decref(answer);
    return 0;
}
