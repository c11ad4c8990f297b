/* The rules of the document, read from its text: a table of what each key holds, and what holds between
 * them. */
#include "formats/frb_node/frb_node.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum form { ONE, LIST, ONE_OR_LIST };

/* The rules for every number of a key: whole or not, within [low, high]; `above`: low itself is not allowed.
 * */
static const struct rule {
    const char *key;
    enum form form;
    bool whole, above;
    double low, high;
} rules[] = {
    {"version", ONE, true, false, 2, 2},
    {"zone_nfreq", LIST, true, false, 1, INFINITY},
    {"zone_freq_edges", LIST, false, true, 0, INFINITY},
    {"freq_channels", LIST, true, false, 0, INFINITY},
    {"beamset", ONE, true, false, -INFINITY, INFINITY},
    {"beam_ids", LIST, true, false, -INFINITY, INFINITY},
    {"beam_positions_x", LIST, false, false, -1, 1},
    {"beam_positions_y", LIST, false, false, -1, 1},
    {"unix_ns_at_seq_0", ONE, true, false, 1, INFINITY},
    {"dt_ns_per_seq", ONE, true, false, 1, INFINITY},
    {"seq_per_frb_time_sample", ONE, true, false, 1, INFINITY},
    {"tel_origin_itrs_lat_deg", ONE, false, false, -90, 90},
    {"tel_origin_itrs_lon_deg", ONE, false, false, -180, 360},
    {"tel_grid_x_axis", LIST, false, false, -1.1, 1.1},
    {"tel_grid_y_axis", LIST, false, false, -1.1, 1.1},
    {"tel_dish_elev_axis", LIST, false, false, -1.1, 1.1},
    {"tel_dish_vert_axis", LIST, false, false, -1.1, 1.1},
    {"tel_dish_coelev_deg", ONE, false, false, -90, 90},
    {"tel_dish_separation_x_m", ONE, false, true, 0, INFINITY},
    {"tel_dish_separation_y_m", ONE, false, true, 0, INFINITY},
    {"noise_variance", ONE_OR_LIST, false, true, 0, INFINITY},
};
enum { RULES = sizeof rules / sizeof *rules };

/* The numbers of a key: in `real`, and in `whole` where they are whole. */
struct values {
    size_t count;
    bool listed; /* in a list, of one number or more */
    double *real;
    long long *whole;
};

struct reading {
    yaml_document_t yaml;
    struct values of[RULES];
    struct br_error *error;
};

static struct values *values_of(struct reading *r, const char *key)
{
    size_t i = 0;
    while (strcmp(rules[i].key, key) != 0) i++;
    return &r->of[i];
}

static int take(struct reading *r, const struct rule *rule, struct values *v, const yaml_node_t *node)
{
    if (node == NULL || node->type != YAML_SCALAR_NODE)
        return br_fail(r->error, BR_E_FORMAT, "%s: expected numbers", rule->key);
    const char *text = (const char *)node->data.scalar.value;
    const char *allowed = rule->whole ? "+-0123456789" : "+-.eE0123456789";
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                 strlen(text) == node->data.scalar.length && text[strspn(text, allowed)] == '\0' &&
                 strpbrk(text, "0123456789") != NULL;
    char *end = NULL;
    errno = 0;
    if (plain && rule->whole) {
        v->whole[v->count] = strtoll(text, &end, 10);
        v->real[v->count] = (double)v->whole[v->count];
    } else if (plain) {
        v->real[v->count] = strtod(text, &end);
    }
    if (!plain || *end != '\0' || (rule->whole && errno == ERANGE) || !isfinite(v->real[v->count]))
        return br_fail(r->error, BR_E_FORMAT, "%s: '%.40s'; expected %s number", rule->key, text,
                       rule->whole ? "a whole" : "a finite");
    double x = v->real[v->count++];
    if (x < rule->low || x > rule->high || (rule->above && x == rule->low))
        return br_fail(r->error, BR_E_FORMAT, "%s: %.17g; expected %s %g up to %g", rule->key, x,
                       rule->above ? "more than" : "from", rule->low, rule->high);
    return BR_OK;
}

static int take_all(struct reading *r, size_t i, const yaml_node_t *node)
{
    const struct rule *rule = &rules[i];
    struct values *v = &r->of[i];
    if (v->real != NULL) return br_fail(r->error, BR_E_FORMAT, "%s: it stands there twice", rule->key);
    bool list = node != NULL && node->type == YAML_SEQUENCE_NODE;
    if ((list && rule->form == ONE) || (!list && rule->form == LIST))
        return br_fail(r->error, BR_E_FORMAT, "%s: expected a %s", rule->key, list ? "number" : "list");
    size_t n = list ? (size_t)(node->data.sequence.items.top - node->data.sequence.items.start) : 1;
    v->listed = list;
    v->real = calloc(n + 1, sizeof *v->real);
    v->whole = calloc(n + 1, sizeof *v->whole);
    if (v->real == NULL || v->whole == NULL)
        return br_fail(r->error, BR_E_NO_MEMORY, "no memory for %zu numbers", n);
    if (!list) return take(r, rule, v, node);
    int status = BR_OK;
    for (size_t k = 0; k < n && status == BR_OK; k++)
        status = take(r, rule, v, yaml_document_get_node(&r->yaml, node->data.sequence.items.start[k]));
    return status;
}

static int take_keys(struct reading *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(&r->yaml);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return br_fail(r->error, BR_E_FORMAT, "it is not a mapping");
    const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
    for (; pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&r->yaml, pair->key);
        size_t i = 0;
        if (key == NULL || key->type != YAML_SCALAR_NODE)
            return br_fail(r->error, BR_E_FORMAT, "a key is not a text");
        const char *name = (const char *)key->data.scalar.value;
        while (i < RULES && strcmp(rules[i].key, name) != 0) i++;
        if (i == RULES) return br_fail(r->error, BR_E_FORMAT, "%.60s: there is no such key", name);
        int status = take_all(r, i, yaml_document_get_node(&r->yaml, pair->value));
        if (status != BR_OK) return status;
    }
    for (size_t i = 0; i < RULES; i++)
        if (r->of[i].real == NULL) return br_fail(r->error, BR_E_FORMAT, "%s: it is not there", rules[i].key);
    return BR_OK;
}

static int count_is(struct reading *r, const char *key, size_t count)
{
    size_t n = values_of(r, key)->count;
    if (n == count) return BR_OK;
    return br_fail(r->error, BR_E_FORMAT, "%s: %zu numbers; expected %zu", key, n, count);
}

static int ascending(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

/* At least one, none twice. Sorts them. */
static int distinct(struct reading *r, const char *key)
{
    struct values *v = values_of(r, key);
    if (v->count == 0) return br_fail(r->error, BR_E_FORMAT, "%s: it is empty", key);
    qsort(v->whole, v->count, sizeof *v->whole, ascending);
    for (size_t i = 0; i + 1 < v->count; i++)
        if (v->whole[i] == v->whole[i + 1])
            return br_fail(r->error, BR_E_FORMAT, "%s: %lld stands there twice", key, v->whole[i]);
    return BR_OK;
}

static int check_band(struct reading *r)
{
    const struct values *zones = values_of(r, "zone_nfreq"), *edges = values_of(r, "zone_freq_edges"),
                        *channels = values_of(r, "freq_channels");
    long long total = 0;
    if (zones->count == 0) return br_fail(r->error, BR_E_FORMAT, "zone_nfreq: it is empty");
    for (size_t i = 0; i < zones->count; i++)
        if (__builtin_add_overflow(total, zones->whole[i], &total))
            return br_fail(r->error, BR_E_FORMAT, "zone_nfreq: more channels than can be counted");
    int status = count_is(r, "zone_freq_edges", zones->count + 1);
    for (size_t i = 0; i < zones->count && status == BR_OK; i++)
        if (edges->real[i] >= edges->real[i + 1])
            status = br_fail(r->error, BR_E_FORMAT, "zone_freq_edges: %.17g is followed by %.17g",
                             edges->real[i], edges->real[i + 1]);
    if (status == BR_OK) status = distinct(r, "freq_channels"); /* sorted now */
    if (status == BR_OK && channels->whole[channels->count - 1] >= total)
        status = br_fail(r->error, BR_E_FORMAT, "freq_channels: %lld; the zones have %lld channels",
                         channels->whole[channels->count - 1], total);
    if (status == BR_OK && values_of(r, "noise_variance")->listed)
        status = count_is(r, "noise_variance", zones->count);
    return status;
}

static int check_beams(struct reading *r)
{
    const struct values *x = values_of(r, "beam_positions_x"), *y = values_of(r, "beam_positions_y");
    size_t beams = values_of(r, "beam_ids")->count;
    int status = distinct(r, "beam_ids");
    if (status == BR_OK) status = count_is(r, "beam_positions_x", beams);
    if (status == BR_OK) status = count_is(r, "beam_positions_y", beams);
    for (size_t b = 0; b < beams && status == BR_OK; b++)
        if (hypot(x->real[b], y->real[b]) > 1 + 4e-16) /* an ulp or two for the root */
            status =
                br_fail(r->error, BR_E_FORMAT,
                        "beam_positions_x: beam %zu is outside the unit circle, with y at (%.17g, %.17g)", b,
                        x->real[b], y->real[b]);
    return status;
}

/* Two vectors of length 1 at right angles. */
static int check_axes(struct reading *r, const char *first, const char *second)
{
    const char *const names[2] = {first, second};
    double across = 0;
    for (int a = 0; a < 2; a++) {
        int status = count_is(r, names[a], 3);
        if (status != BR_OK) return status;
        const double *v = values_of(r, names[a])->real;
        double squared = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
        if (fabs(squared - 1) > 1e-6)
            return br_fail(r->error, BR_E_FORMAT, "%s: its squared length is %.9g; expected 1", names[a],
                           squared);
    }
    for (int i = 0; i < 3; i++) across += values_of(r, first)->real[i] * values_of(r, second)->real[i];
    if (fabs(across) > 1e-6)
        return br_fail(r->error, BR_E_FORMAT, "%s: it is not orthogonal to %s: their product is %.9g", first,
                       second, across);
    return BR_OK;
}

static int check_all(struct reading *r)
{
    int status = take_keys(r);
    if (status == BR_OK) status = check_band(r);
    if (status == BR_OK) status = check_beams(r);
    if (status == BR_OK) status = check_axes(r, "tel_grid_x_axis", "tel_grid_y_axis");
    if (status == BR_OK) status = check_axes(r, "tel_dish_elev_axis", "tel_dish_vert_axis");
    return status;
}

int frb_node_rules(const char *text, size_t length, struct br_error *error)
{
    struct br_error local = {0};
    struct reading r = {.error = error != NULL ? error : &local};
    yaml_parser_t parser;
    if (length == 0 || length > FRB_NODE_YAML_MAX || text[length - 1] != '\0')
        return br_fail(error, BR_E_FORMAT, "%zu bytes; expected 1 to %d, the last one 0", length,
                       FRB_NODE_YAML_MAX);
    if (!yaml_parser_initialize(&parser)) return br_fail(error, BR_E_NO_MEMORY, "no memory for a document");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    int status = BR_OK;
    if (yaml_parser_load(&parser, &r.yaml)) {
        status = check_all(&r);
        yaml_document_delete(&r.yaml);
    } else {
        status = br_fail(error, BR_E_FORMAT, "it is not YAML: %s",
                         parser.problem != NULL ? parser.problem : "no memory");
    }
    yaml_parser_delete(&parser);
    for (size_t i = 0; i < RULES; i++) {
        free(r.of[i].real);
        free(r.of[i].whole);
    }
    return status;
}
