/* Checks everything that the protocol demands of a document: a document that a receiver refuses stops it for
 * all senders. */
#include "formats/common/order.h"
#include "formats/frb_node/frb_node.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far a vector's squared length and a dot product may be off. */
static const double vector_slack = 1e-6;

static int64_t sum(const struct frb_node_ints *list)
{
    int64_t total = 0;
    for (size_t i = 0; i < list->count; i++) total += list->value[i];
    return total;
}

static int check_distinct(const char *name, const struct frb_node_ints *list, struct br_error *error)
{
    int64_t *sorted = malloc(list->count * sizeof *sorted + 1);
    int status = BR_OK;
    if (sorted == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %zu numbers", list->count);
    memcpy(sorted, list->value, list->count * sizeof *sorted);
    qsort(sorted, list->count, sizeof *sorted, order_int64);
    for (size_t i = 1; i < list->count && status == BR_OK; i++)
        if (sorted[i] == sorted[i - 1])
            status = br_fail(error, BR_E_FORMAT, "%s: %" PRId64 " stands there twice", name, sorted[i]);
    free(sorted);
    return status;
}

static double dot(const struct frb_node_reals *a, const struct frb_node_reals *b)
{
    return a->value[0] * b->value[0] + a->value[1] * b->value[1] + a->value[2] * b->value[2];
}

static int check_axis(const char *name, const struct frb_node_reals *axis, struct br_error *error)
{
    if (axis->count != 3)
        return br_fail(error, BR_E_FORMAT, "%s: %zu numbers; expected 3: East, North, Up", name, axis->count);
    double squared = dot(axis, axis);
    if (!(fabs(squared - 1) <= vector_slack))
        return br_fail(error, BR_E_FORMAT, "%s: its length is %.9g; expected 1, to 5e-7", name,
                       sqrt(squared));
    return BR_OK;
}

static int check_geometry(const struct frb_node_document *d, struct br_error *error)
{
    int status = check_axis("tel_grid_x_axis", &d->tel_grid_x_axis, error);
    if (status == BR_OK) status = check_axis("tel_grid_y_axis", &d->tel_grid_y_axis, error);
    if (status == BR_OK) status = check_axis("tel_dish_elev_axis", &d->tel_dish_elev_axis, error);
    if (status == BR_OK) status = check_axis("tel_dish_vert_axis", &d->tel_dish_vert_axis, error);
    if (status != BR_OK) return status;
    if (!(fabs(dot(&d->tel_grid_x_axis, &d->tel_grid_y_axis)) <= vector_slack))
        return br_fail(error, BR_E_FORMAT, "tel_grid_x_axis and tel_grid_y_axis are not orthogonal");
    if (!(fabs(dot(&d->tel_dish_elev_axis, &d->tel_dish_vert_axis)) <= vector_slack))
        return br_fail(error, BR_E_FORMAT, "tel_dish_elev_axis and tel_dish_vert_axis are not orthogonal");
    const struct {
        const char *name;
        double value, least, most;
        const char *expected;
    } numbers[] = {
        {"tel_dish_coelev_deg", d->tel_dish_coelev_deg, -90, 90, "-90 to 90 degrees"},
        {"tel_origin_itrs_lat_deg", d->tel_origin_itrs_lat_deg, -90, 90, "-90 to 90 degrees"},
        {"tel_origin_itrs_lon_deg", d->tel_origin_itrs_lon_deg, -180, 360, "-180 to 360 degrees"},
        {"tel_dish_separation_x_m", d->tel_dish_separation_x_m, DBL_MIN, DBL_MAX, "a positive distance"},
        {"tel_dish_separation_y_m", d->tel_dish_separation_y_m, DBL_MIN, DBL_MAX, "a positive distance"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return br_fail(error, BR_E_FORMAT, "%s: %g; expected %s", numbers[i].name, numbers[i].value,
                           numbers[i].expected);
    return BR_OK;
}

static int check_channels(const struct frb_node_document *d, struct br_error *error)
{
    size_t zones = d->zone_nfreq.count;
    if (zones < 1) return br_fail(error, BR_E_FORMAT, "zone_nfreq: it is empty; expected at least one zone");
    if (d->zone_freq_edges.count != zones + 1)
        return br_fail(error, BR_E_FORMAT, "zone_freq_edges: %zu edges for %zu zones; expected %zu",
                       d->zone_freq_edges.count, zones, zones + 1);
    for (size_t z = 0; z < zones; z++) {
        if (d->zone_nfreq.value[z] < 1 || d->zone_nfreq.value[z] > INT32_MAX)
            return br_fail(error, BR_E_FORMAT,
                           "zone_nfreq: %" PRId64 " channels in zone %zu; expected at least 1",
                           d->zone_nfreq.value[z], z);
        if (!(d->zone_freq_edges.value[z] > 0) ||
            !(d->zone_freq_edges.value[z + 1] > d->zone_freq_edges.value[z]) ||
            !isfinite(d->zone_freq_edges.value[z + 1]))
            return br_fail(error, BR_E_FORMAT,
                           "zone_freq_edges: %g is followed by %g; expected positive, increasing MHz",
                           d->zone_freq_edges.value[z], d->zone_freq_edges.value[z + 1]);
    }
    int64_t total = sum(&d->zone_nfreq);
    if (d->freq_channels.count < 1) return br_fail(error, BR_E_FORMAT, "freq_channels: it is empty");
    for (size_t i = 0; i < d->freq_channels.count; i++)
        if (d->freq_channels.value[i] < 0 || d->freq_channels.value[i] >= total)
            return br_fail(error, BR_E_FORMAT,
                           "freq_channels: %" PRId64 "; expected 0 to %" PRId64 ", the zones' channels",
                           d->freq_channels.value[i], total - 1);
    if (d->noise_variance.count != 1 && d->noise_variance.count != zones)
        return br_fail(error, BR_E_FORMAT,
                       "noise_variance: %zu numbers for %zu zones; expected one, or one per zone",
                       d->noise_variance.count, zones);
    for (size_t z = 0; z < d->noise_variance.count; z++)
        if (!(d->noise_variance.value[z] > 0) || !isfinite(d->noise_variance.value[z]))
            return br_fail(error, BR_E_FORMAT, "noise_variance: %g; expected a positive number",
                           d->noise_variance.value[z]);
    return check_distinct("freq_channels", &d->freq_channels, error);
}

static int check_beams(const struct frb_node_document *d, struct br_error *error)
{
    size_t beams = d->beam_ids.count;
    if (beams < 1) return br_fail(error, BR_E_FORMAT, "beam_ids: it is empty");
    if (d->beam_positions_x.count != beams || d->beam_positions_y.count != beams)
        return br_fail(error, BR_E_FORMAT, "beam_positions_x, _y: %zu and %zu positions for %zu beams",
                       d->beam_positions_x.count, d->beam_positions_y.count, beams);
    for (size_t b = 0; b < beams; b++) {
        double x = d->beam_positions_x.value[b], y = d->beam_positions_y.value[b];
        if (!(x * x + y * y <= 1))
            return br_fail(
                error, BR_E_FORMAT,
                "beam_positions_x, _y: beam %zu at (%g, %g); expected direction cosines, x^2 + y^2 <= 1", b,
                x, y);
    }
    return check_distinct("beam_ids", &d->beam_ids, error);
}

int frb_node_check(const struct frb_node_document *d, struct br_error *error)
{
    if (d->version != 2) return br_fail(error, BR_E_FORMAT, "version: %" PRId64 "; expected 2", d->version);
    if (d->unix_ns_at_seq_0 <= 0)
        return br_fail(error, BR_E_FORMAT, "unix_ns_at_seq_0: %" PRId64 "; expected a positive time",
                       d->unix_ns_at_seq_0);
    if (d->dt_ns_per_seq <= 0)
        return br_fail(error, BR_E_FORMAT, "dt_ns_per_seq: %" PRId64 "; expected at least 1",
                       d->dt_ns_per_seq);
    if (d->seq_per_frb_time_sample <= 0 || d->seq_per_frb_time_sample > INT32_MAX)
        return br_fail(error, BR_E_FORMAT, "seq_per_frb_time_sample: %" PRId64 "; expected at least 1",
                       d->seq_per_frb_time_sample);
    int status = check_channels(d, error);
    if (status == BR_OK) status = check_beams(d, error);
    return status == BR_OK ? check_geometry(d, error) : status;
}
