#include "stages/packetize/document.h"
#include "formats/tables/beam_table.h"
#include "stages/common/stage/export.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct br_param zones_fields[] = {
    PARAM(INTS, struct zones_param, nfreq, "channels in each frequency zone of the whole band",
          .required = true, .min = 1, .max = 1 << 20),
    PARAM(REALS, struct zones_param, edges_mhz, "edges of the zones, ascending, one more than zones",
          .required = true, .min = 1e-3, .max = 1e6, .unit = "MHz"),
    {0},
};
const struct br_param site_fields[] = {
    PARAM(REALS, struct site_param, m_axis, "unit vector [East, North, Up] along which the grid's m grows",
          .def = "[0, 1, 0]", .min_count = 3, .max_count = 3),
    PARAM(REALS, struct site_param, n_axis, "the same for n", .def = "[1, 0, 0]", .min_count = 3,
          .max_count = 3),
    PARAM(REALS, struct site_param, elev_axis, "axis about which dishes change their elevation",
          .def = "[1, 0, 0]", .min_count = 3, .max_count = 3),
    PARAM(REALS, struct site_param, vert_axis, "where dishes point at coelevation 0", .def = "[0, 0, 1]",
          .min_count = 3, .max_count = 3),
    PARAM(REAL, struct site_param, coelev_deg, "coelevation at which dishes point", .def = "0", .min = -90,
          .max = 90, .unit = "degrees"),
    PARAM(REALS, struct site_param, separation_m,
          "[along m, along n]: distance between dishes, for an array without a grid; default: the grid's",
          .unit = "m", .min = 1e-3, .max = 1e6, .min_count = 2, .max_count = 2),
    {0},
};

static void *list_of(size_t count)
{
    return calloc(count > 0 ? count : 1, 8);
}

struct channel {
    double low, width;
    size_t index;
};

static int by_low(const void *a, const void *b)
{
    double x = ((const struct channel *)a)->low, y = ((const struct channel *)b)->low;
    return (x > y) - (x < y);
}

/* Zones of a stream whose channels cover a band without holes: runs of equal width. */
static int zones_of_stream(struct frb_node_document *d, const struct br_stream *stream,
                           struct br_error *error)
{
    size_t F = stream->nchannels, zones = 0;
    struct channel *c = malloc(F * sizeof *c);
    d->zone_nfreq.value = list_of(F);
    d->zone_freq_edges.value = list_of(F + 1);
    if (c == NULL || d->zone_nfreq.value == NULL || d->zone_freq_edges.value == NULL) {
        free(c);
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu channels", F);
    }
    for (size_t f = 0; f < F; f++)
        c[f] = (struct channel){stream->freq_mhz[f] - stream->width_mhz[f] / 2, stream->width_mhz[f], f};
    qsort(c, F, sizeof *c, by_low);
    int status = BR_OK;
    for (size_t f = 0; f < F && status == BR_OK; f++) {
        double end = f > 0 ? c[f - 1].low + c[f - 1].width : c[f].low;
        if (fabs(c[f].low - end) > 1e-3 * c[f].width)
            status =
                br_fail(error, BR_E_INVALID,
                        "zones: the channels of the stream leave out %.6f to %.6f MHz; give the zones of the "
                        "whole band: zones: {nfreq: [...], edges_mhz: [...]}",
                        end, c[f].low);
        if (f == 0 || fabs(c[f].width / c[f - 1].width - 1) > 1e-6) {
            d->zone_freq_edges.value[zones] = c[f].low;
            d->zone_nfreq.value[zones++] = 0;
        }
        d->zone_nfreq.value[zones - 1]++;
    }
    d->zone_freq_edges.value[zones] = c[F - 1].low + c[F - 1].width;
    d->zone_nfreq.count = zones;
    d->zone_freq_edges.count = zones + 1;
    free(c);
    return status;
}

static int zones_of_user(struct frb_node_document *d, const struct zones_param *zones, struct br_error *error)
{
    size_t n = zones->nfreq.count;
    if (zones->edges_mhz.count != n + 1)
        return br_fail(error, BR_E_INVALID, "zones: %zu edges for %zu zones; expected %zu",
                       zones->edges_mhz.count, n, n + 1);
    d->zone_nfreq = (struct frb_node_ints){n, list_of(n)};
    d->zone_freq_edges = (struct frb_node_reals){n + 1, list_of(n + 1)};
    if (d->zone_nfreq.value == NULL || d->zone_freq_edges.value == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for zones");
    memcpy(d->zone_nfreq.value, zones->nfreq.value, n * 8);
    memcpy(d->zone_freq_edges.value, zones->edges_mhz.value, (n + 1) * 8);
    return BR_OK;
}

/* The number of each channel of the stream in the zones' table. */
static int number_channels(struct frb_node_document *d, const struct br_stream *stream,
                           struct br_error *error)
{
    d->freq_channels = (struct frb_node_ints){stream->nchannels, list_of(stream->nchannels)};
    if (d->freq_channels.value == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for channels");
    for (size_t f = 0; f < stream->nchannels; f++) {
        double mhz = stream->freq_mhz[f];
        size_t zone = 0;
        int64_t before = 0;
        while (zone + 1 < d->zone_nfreq.count && mhz >= d->zone_freq_edges.value[zone + 1])
            before += d->zone_nfreq.value[zone++];
        double low = d->zone_freq_edges.value[zone];
        double width = (d->zone_freq_edges.value[zone + 1] - low) / (double)d->zone_nfreq.value[zone];
        double place = (mhz - low) / width - 0.5;
        if (fabs(place - round(place)) > 1e-3 || place < -0.5 ||
            place > (double)d->zone_nfreq.value[zone] - 0.5 || fabs(stream->width_mhz[f] / width - 1) > 1e-6)
            return br_fail(
                error, BR_E_INVALID,
                "zones: channel %zu of the stream (%.9g MHz wide at %.9g MHz) is not a channel of zone %zu, "
                "whose channels are %.9g MHz wide from %.9g to %.9g MHz",
                f, stream->width_mhz[f], mhz, zone, width, low, d->zone_freq_edges.value[zone + 1]);
        d->freq_channels.value[f] = before + (int64_t)round(place);
    }
    return BR_OK;
}

static int take_times(struct frb_node_document *d, const struct br_stream *stream, struct br_error *error)
{
    /* A sequence number is the shortest whole number of nanoseconds that whole base samples take. */
    unsigned step = stream->zone[0].downsample;
    if (step % stream->sample_ns.den != 0)
        return br_fail(
            error, BR_E_INVALID,
            "a sample of %u base samples of %lld/%lld ns is not a whole number of nanosecond steps; "
            "integrate a multiple of %lld base samples",
            step, (long long)stream->sample_ns.num, (long long)stream->sample_ns.den,
            (long long)stream->sample_ns.den);
    d->dt_ns_per_seq = stream->sample_ns.num;
    d->seq_per_frb_time_sample = step / stream->sample_ns.den;
    d->unix_ns_at_seq_0 = stream->epoch_ns;
    if (stream->epoch_ns <= 0)
        return br_fail(error, BR_E_INVALID,
                       "the stream has no epoch; add stream: {epoch_ns: ...} to the pipeline");
    return BR_OK;
}

static int take_telescope(struct frb_node_document *d, const struct br_stream *stream,
                          const struct site_param *site, struct br_error *error)
{
    static const double m_axis[] = {0, 1, 0}, n_axis[] = {1, 0, 0}, vert[] = {0, 0, 1};
    const struct site_param standard = {{3, m_axis}, {3, n_axis}, {3, n_axis}, {3, vert}, 0, {0}};
    const struct br_telescope *t = stream->telescope;
    if (site == NULL) site = &standard;
    if (t == NULL)
        return br_fail(error, BR_E_INVALID,
                       "the receivers need to know the dish grid: add `telescope:` to the pipeline");
    if (isnan(t->latitude_deg) || isnan(t->longitude_deg))
        return br_fail(error, BR_E_INVALID,
                       "telescope '%s' has no latitude_deg and longitude_deg, which the receivers need",
                       t->name);
    /* East is x on the wire and north is y, so that x, y and up are right-handed: n and m here. */
    const struct br_reals *from[] = {&site->n_axis, &site->m_axis, &site->elev_axis, &site->vert_axis};
    struct frb_node_reals *to[] = {&d->tel_grid_x_axis, &d->tel_grid_y_axis, &d->tel_dish_elev_axis,
                                   &d->tel_dish_vert_axis};
    for (size_t i = 0; i < 4; i++) {
        *to[i] = (struct frb_node_reals){3, list_of(3)};
        if (to[i]->value == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for a vector");
        memcpy(to[i]->value, from[i]->value, 3 * sizeof(double));
    }
    d->tel_origin_itrs_lat_deg = t->latitude_deg;
    d->tel_origin_itrs_lon_deg = t->longitude_deg < -180 ? t->longitude_deg + 360 : t->longitude_deg;
    d->tel_dish_coelev_deg = site->coelev_deg;
    const double *given = site->separation_m.count > 0 ? site->separation_m.value : NULL;
    if (given == NULL && t->dishes == NULL)
        return br_fail(
            error, BR_E_INVALID,
            "the dishes of telescope '%s' are not on a grid, whose spacing the receivers want to know; "
            "expected site: {separation_m: [along m, along n]}",
            t->name);
    d->tel_dish_separation_x_m = given != NULL ? given[1] : t->spacing_n_m;
    d->tel_dish_separation_y_m = given != NULL ? given[0] : t->spacing_m_m;
    return BR_OK;
}

static int take_beams(struct frb_node_document *d, const struct br_stream *stream, int64_t first_id,
                      size_t first, size_t count, struct br_error *error)
{
    if (beams_move(stream))
        return br_fail(error, BR_E_INVALID,
                       "its beams move, which frb-node cannot describe: the document has one direction for "
                       "each beam; expected beams that stand still, or another format");
    if (stream->beams == NULL)
        return br_fail(error, BR_E_INVALID,
                       "the directions of the beams are not known, which the receivers need");
    d->beam_ids = (struct frb_node_ints){count, list_of(count)};
    d->beam_positions_x = (struct frb_node_reals){count, list_of(count)};
    d->beam_positions_y = (struct frb_node_reals){count, list_of(count)};
    if (!d->beam_ids.value || !d->beam_positions_x.value || !d->beam_positions_y.value)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu beams", count);
    for (size_t b = 0; b < count; b++) {
        d->beam_ids.value[b] = first_id + (int64_t)(first + b);
        d->beam_positions_x.value[b] = stream->beams[first + b].y;
        d->beam_positions_y.value[b] = stream->beams[first + b].x;
    }
    return BR_OK;
}

int document_make(struct frb_node_document *d, const struct br_stream *stream,
                  const struct document_param *param, size_t first, size_t count, struct br_error *error)
{
    *d = (struct frb_node_document){.version = 2, .beamset = param->beamset};
    int status =
        param->zones != NULL ? zones_of_user(d, param->zones, error) : zones_of_stream(d, stream, error);
    if (status == BR_OK) status = number_channels(d, stream, error);
    if (status == BR_OK) status = take_times(d, stream, error);
    if (status == BR_OK) status = take_telescope(d, stream, param->site, error);
    if (status == BR_OK) status = take_beams(d, stream, param->first_beam_id, first, count, error);
    if (status == BR_OK) {
        d->noise_variance =
            (struct frb_node_reals){param->noise_variance.count, list_of(param->noise_variance.count)};
        if (d->noise_variance.value == NULL)
            status = br_fail(error, BR_E_NO_MEMORY, "no memory for noise_variance");
        else
            memcpy(d->noise_variance.value, param->noise_variance.value,
                   param->noise_variance.count * sizeof(double));
    }
    if (status == BR_OK) status = frb_node_check(d, error);
    if (status != BR_OK) frb_node_free(d);
    return status;
}
