/* info.c - facts of DADA files. */
#include "buffers/regular_file.h"
#include "formats/common/gaps.h"
#include "formats/dada/dada_reader.h"
#include "formats/tables/beam_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_frequencies(struct caller *caller, const struct br_stream *s)
{
    double low = s->freq_mhz[0], high = low;
    for (size_t i = 0; i < s->nchannels; i++) {
        low = s->freq_mhz[i] < low ? s->freq_mhz[i] : low;
        high = s->freq_mhz[i] > high ? s->freq_mhz[i] : high;
    }
    caller_fact(caller, "channels", "%zu, centres %.10g to %.10g MHz, the first %.10g MHz and %.6g kHz wide",
                s->nchannels, low, high, s->freq_mhz[0], 1e3 * s->width_mhz[0]);
    caller_sideband(caller, s->sideband);
    for (unsigned i = 0; i < s->nzones && (s->nzones > 1 || s->zone[0].factor > 1); i++)
        caller_fact(caller, i == 0 ? "zones" : "",
                    "channels %zu to %zu: upchannelized by %u, %u base samples a step",
                    s->zone[i].first_channel, s->zone[i].first_channel + s->zone[i].nchannels - 1,
                    s->zone[i].factor, s->zone[i].downsample);
}

static void print_array(struct caller *caller, const struct br_telescope *t)
{
    if (t->dishes != NULL)
        caller_fact(caller, "dishes", "%u on a grid of %u x %u, %g x %g m", t->ndishes, t->grid_m, t->grid_n,
                    t->spacing_m_m, t->spacing_n_m);
    else
        caller_fact(caller, "dishes", "%u, each at a place of its own", t->ndishes);
    if (isfinite(t->latitude_deg) && isfinite(t->longitude_deg))
        caller_fact(caller, "site", "latitude %.8g, longitude %.9g degrees", t->latitude_deg,
                    t->longitude_deg);
}

/* How many of the file's samples a gap covers: the last step may reach beyond them. */
static uint64_t covered(const struct gap *gap, uint64_t first, uint64_t samples)
{
    uint64_t begin = gap->first > first ? gap->first : first, end = gap->first + gap->count;
    if (end > first + samples) end = first + samples;
    return end > begin ? end - begin : 0;
}

/* Sums up the sidecar. */
static int print_gaps(struct caller *caller, const struct recording *r, const char *path, uint64_t samples)
{
    struct gaps gaps;
    struct br_error error = {0};
    if (gaps_read(&gaps, caller_beside(caller, path, ".gaps"), r->stream.nchannels, &error) != BR_OK)
        return caller_fail(caller, error.status, "%s", error.text);
    double missing = 0, partly = 0;
    for (size_t i = 0; i < gaps.count; i++) {
        double cells = (double)covered(&gaps.gap[i], r->first, samples) * gaps.gap[i].nchannels;
        *(gaps.gap[i].weight == 0 ? &missing : &partly) += cells;
    }
    double all = (double)samples * (double)r->stream.nchannels;
    if (gaps.count == 0)
        caller_fact(caller, "missing", "nothing");
    else
        caller_fact(caller, "missing", "%.4g %% missing, %.4g %% partly valid (lines of .gaps: %zu)",
                    100 * missing / all, 100 * partly / all, gaps.count);
    gaps_free(&gaps);
    return BR_OK;
}

/* Those that began within the file: its sidecar. */
static void print_later_updates(struct caller *caller, const char *path)
{
    char line[1024];
    FILE *file = br_fopen_regular(caller_beside(caller, path, ".updates"), NULL, NULL);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        caller_fact(caller, "then", "%s", line);
    }
    if (file != NULL) fclose(file);
}

static void print_truncated(struct caller *caller, uint64_t payload, uint64_t left, uint64_t announced)
{
    char rest[80] = "";
    if (left > 0) snprintf(rest, sizeof rest, "; the last %" PRIu64 " are not a whole sample", left);
    if (payload < announced)
        caller_fact(caller, "truncated", "%" PRIu64 " of %" PRIu64 " announced bytes are there%s", payload,
                    announced, rest);
    else
        caller_fact(caller, "truncated", "%" PRIu64 " bytes%s", payload, rest);
}

/* Where beams looked at the start, as the header says: look[s->nbeams]; whether it does. */
static bool find_looks(const struct br_stream *s, const struct dada_header *header, struct br_look *look,
                       double (*pair)[2])
{
    struct br_stream moving = *s;
    struct br_error error = {0};
    size_t n = s->nbeams;
    if (dada_get_reals(header, "BEAMS_START", 2 * n, pair[0], &error) > 0) {
        struct br_beam *beams = (struct br_beam *)(pair + n);
        for (size_t b = 0; b < n; b++) beams[b] = (struct br_beam){pair[b][0], pair[b][1]};
        moving.beams = beams;
    }
    if (!beams_are_known(&moving) || beams_look(&moving, NULL, 0, look, &error) != BR_OK) return false;
    bool known = dada_get_reals(header, "BEAMS_RADEC", 2 * n, pair[0], &error) > 0;
    for (size_t b = 0; b < n; b++) {
        if (look[b].x >= RECORDING_NOWHERE) look[b].x = look[b].y = NAN;
        if (!known || pair[b][0] >= RECORDING_NOWHERE) continue;
        look[b].ra_deg = pair[b][0];
        look[b].dec_deg = pair[b][1];
    }
    return true;
}

/* Where beams are: the first ones, or all of them. */
static void print_beams(struct caller *caller, const struct br_stream *s, const struct dada_header *header)
{
    enum { FEW = 16 };
    if (s->nbeams == 0) return;
    struct br_look *look = caller_alloc(caller, s->nbeams * sizeof *look);
    double(*pair)[2] = caller_alloc(caller, 2 * s->nbeams * sizeof *pair);
    bool known = find_looks(s, header, look, pair), moves = known && s->beams == NULL;
    if (s->beams_x > 0)
        caller_fact(caller, "beams", "%zu, a grid of %zu x %zu: number = ix x %zu + iy", s->nbeams,
                    s->beams_x, s->beams_y, s->beams_y);
    else
        caller_fact(caller, "beams", "%zu, directions %s", s->nbeams,
                    moves   ? "at the start as listed; they move"
                    : known ? "as listed"
                            : "unknown");
    if (!known) return;
    size_t some = !caller->in_full && s->nbeams > FEW ? FEW : s->nbeams;
    caller_fact(caller, "", "number  x  y  azimuth  zenith angle  RA  Dec (degrees)");
    char *table = NULL, *rest;
    size_t length;
    FILE *memory = open_memstream(&table, &length);
    if (memory == NULL) return;
    beam_table_print(memory, look, some, "  ");
    fclose(memory);
    for (char *line = strtok_r(table, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        caller_fact(caller, "", "%s", line);
    free(table);
    if (some < s->nbeams) caller_fact(caller, "", "...; all of them: beamring info --beams FILE");
}

static int print_recording(struct caller *caller, const struct recording *r, const char *path,
                           uint64_t file_bytes, const struct dada_header *header)
{
    const struct br_stream *s = &r->stream;
    char text[160];
    uint64_t payload, behind, left = 0;
    struct br_error error = {0};
    if (recording_payload(r, path, file_bytes, &payload, &behind, &error) != BR_OK)
        return caller_fail(caller, error.status, "%s", error.text);
    uint64_t samples = recording_samples(r, payload, &left);
    if (r->own) {
        caller_fact(caller, "array", "%s, %s", br_array_format(&s->array, text, sizeof text),
                    r->flat ? "sample after sample" : "frame after frame");
        caller_fact(caller, "frames", "%" PRIu64 " base samples", s->frame_samples);
    } else {
        char order[40], coding[80] = "";
        if (s->array.dtype == BR_INT4X2)
            snprintf(coding, sizeof coding, ", coding %s unless the pipeline says otherwise",
                     coding_name(r->coding));
        caller_fact(caller, "array", "%s of time, %zu freq, %zu pol, %zu dish, in the order %s%s",
                    br_dtype_name(s->array.dtype), s->nchannels, br_array_length(&s->array, "pol"),
                    br_array_length(&s->array, "dish"), axis_order_format(&r->order, order, sizeof order),
                    coding);
    }
    if (s->side.naxes > 0)
        caller_fact(caller, "next to them", "%s in each frame", br_array_format(&s->side, text, sizeof text));
    if (r->array != NULL) print_array(caller, r->array);
    print_frequencies(caller, s);
    print_beams(caller, s, header);
    if (s->scale < 1 || s->scale > 1) caller_fact(caller, "scale", "%g x stored value", s->scale);
    double sample_us = 1e-3 * (double)s->sample_ns.num / (double)s->sample_ns.den;
    if (s->sample_ns.den == 1)
        caller_fact(caller, "base sample", "%.10g us", sample_us);
    else
        caller_fact(caller, "base sample", "%.10g us (%" PRId64 "/%" PRId64 " ns)", sample_us,
                    s->sample_ns.num, s->sample_ns.den);
    caller_fact(caller, "samples", "%" PRIu64 " to %" PRIu64 ": %" PRIu64 ", %.6g s", r->first,
                r->first + samples, samples, (double)samples * br_stream_sample_s(s));
    caller_time(caller, "start", br_stream_time_ns(s, r->first));
    caller_fact(caller, "size", "%" PRIu64 " bytes of data", payload);
    if (behind > 0)
        caller_fact(caller, "behind them",
                    "%" PRIu64 " bytes more than FILE_SIZE announces; they are left out", behind);
    if (left > 0 || samples < r->samples || payload < r->announced)
        print_truncated(caller, payload, left, r->announced);
    return samples > 0 ? print_gaps(caller, r, path, samples) : BR_OK;
}

int dada_info(struct caller *caller, const char *path)
{
    struct dada_header header;
    struct recording recording;
    struct br_error error = {0};
    uint64_t file_bytes;
    if (dada_read(&header, path, &file_bytes, &error) != BR_OK)
        return caller_fail(caller, error.status, "%s", error.text);
    const char *names[] = {"SOURCE", "TELESCOPE", "INSTRUMENT", "OBS_ID", "FILE_NUMBER"};
    caller_fact(caller, NULL, "DADA");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = dada_get(&header, names[i]);
        if (value != NULL && strcmp(value, "unset") != 0) caller_fact(caller, names[i], "%s", value);
    }
    int status = recording_describe(&recording, &header, NULL, NULL, NULL,
                                    (struct recording_memory){caller->alloc, caller->owner}, &error);
    struct br_telescope site;
    double degrees[2];
    if (status == BR_OK && recording.array == NULL &&
        dada_get_reals(&header, "SITE_DEG", 2, degrees, &error) > 0) {
        site = (struct br_telescope){.latitude_deg = degrees[0], .longitude_deg = degrees[1]};
        recording.stream.telescope = &site;
    }
    if (status == BR_OK) {
        status = print_recording(caller, &recording, path, file_bytes, &header);
        const char *updates = dada_get(&header, "UPDATES");
        if (updates != NULL) caller_fact(caller, "updates", "%s", updates);
        print_later_updates(caller, path);
    } else {
        for (size_t i = 0; i < header.count; i++)
            caller_fact(caller, header.entry[i].key, "%s", header.entry[i].value);
        /* what a pipeline can supply is not a fault of the file */
        if (status == BR_E_INVALID) {
            caller_warn(caller, "%s", error.text);
            status = BR_OK;
        } else {
            caller_fail(caller, status, "%s", error.text);
        }
    }
    dada_free(&header);
    return status;
}
