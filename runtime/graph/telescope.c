/* telescope.c - `telescope:` and `stream:` of a pipeline file. */
#include "runtime/graph/positions.h"

#include <math.h>
#include <string.h>

struct pair_of_ints {
    int64_t m, n;
};
struct pair_of_reals {
    double m, n;
};

struct telescope_params {
    const char *name;
    struct pair_of_ints *grid;
    struct pair_of_reals *spacing;
    double latitude, longitude, height;
    const char *eop;
};

static const struct br_param grid_params[] = {
    BR_PARAM("m", BR_P_INT, struct pair_of_ints, m, NULL, .required = true, .min = 1, .max = 1024),
    BR_PARAM("n", BR_P_INT, struct pair_of_ints, n, NULL, .required = true, .min = 1, .max = 1024),
    {0},
};
static const struct br_param spacing_params[] = {
    BR_PARAM("m", BR_P_REAL, struct pair_of_reals, m, NULL, .required = true, .min = 1e-3, .max = 1e6,
             .unit = "m"),
    BR_PARAM("n", BR_P_REAL, struct pair_of_reals, n, NULL, .required = true, .min = 1e-3, .max = 1e6,
             .unit = "m"),
    {0},
};
static const struct br_param telescope_params[] = {
    BR_PARAM("name", BR_P_STRING, struct telescope_params, name, NULL, .required = true),
    BR_PARAM("grid", BR_P_MAP, struct telescope_params, grid, NULL, .fields = grid_params,
             .size = sizeof(struct pair_of_ints)),
    BR_PARAM("spacing_m", BR_P_MAP, struct telescope_params, spacing, NULL, .fields = spacing_params,
             .size = sizeof(struct pair_of_reals)),
    BR_PARAM("latitude_deg", BR_P_REAL, struct telescope_params, latitude, NULL, .min = -90, .max = 90,
             .unit = "degrees"),
    BR_PARAM("longitude_deg", BR_P_REAL, struct telescope_params, longitude, NULL, .min = -360, .max = 360,
             .unit = "degrees"),
    BR_PARAM("height_m", BR_P_REAL, struct telescope_params, height, NULL, .min = -1e4, .max = 1e5,
             .unit = "m"),
    BR_PARAM("eop", BR_P_PATH, struct telescope_params, eop, NULL),
    {0},
};

static void read_dishes(struct br_graph *graph, const struct br_node *list, struct br_telescope *telescope)
{
    static const struct br_param cell[] = {
        {.name = "dish", .type = BR_P_INTS, .min = 0, .max = 65535, .min_count = 2, .max_count = 2}, {0}};
    struct br_config *config = graph->config;
    if (list->kind != BR_NODE_LIST || list->count == 0 || list->count > 65535) {
        br_config_error(config, list,
                        "telescope: dishes: expected a list of grid cells [m, n], one per dish");
        return;
    }
    struct br_dish *dishes = br_config_alloc(config, list->count * sizeof *dishes);
    double(*position)[3] = br_config_alloc(config, list->count * sizeof *position);
    size_t cells = (size_t)telescope->grid_m * telescope->grid_n;
    uint32_t *taken = br_config_alloc(config, cells * sizeof *taken); /* dish + 1 */
    for (size_t d = 0; d < list->count; d++) {
        const struct br_node *at = list->item[d];
        struct br_ints at_cell = {0};
        if (!br_config_fill_one(config, at, cell, &at_cell)) continue;
        int64_t m = at_cell.value[0], n = at_cell.value[1];
        if (m >= telescope->grid_m || n >= telescope->grid_n) {
            br_config_error(
                config, at,
                "telescope: dish %zu at [%lld, %lld] is outside the grid; expected m from 0 to %u and "
                "n from 0 to %u (grid m: %u, n: %u)",
                d, (long long)m, (long long)n, telescope->grid_m - 1, telescope->grid_n - 1,
                telescope->grid_m, telescope->grid_n);
            continue;
        }
        uint32_t *owner = &taken[(size_t)m * telescope->grid_n + (size_t)n];
        if (*owner != 0) {
            br_config_error(
                config, at,
                "telescope: dish %zu is on the same cell [%lld, %lld] as dish %u; expected one dish "
                "per cell",
                d, (long long)m, (long long)n, *owner - 1);
            continue;
        }
        *owner = (uint32_t)d + 1;
        dishes[d] = (struct br_dish){(uint16_t)m, (uint16_t)n};
        position[d][0] = (double)n * telescope->spacing_n_m;
        position[d][1] = (double)m * telescope->spacing_m_m;
    }
    telescope->ndishes = (unsigned)list->count;
    telescope->dishes = dishes;
    telescope->position = (const double(*)[3])position;
}

/* The grid, which comes as a whole or not at all. */
static void read_grid(struct br_graph *graph, const struct br_node *node, const struct telescope_params *p,
                      struct br_telescope *telescope)
{
    const struct br_node *dishes = br_node_get(node, "dishes");
    if (p->grid == NULL || p->spacing == NULL || dishes == NULL) {
        br_config_error(
            graph->config, node,
            "telescope: '%s' is missing; expected grid, spacing_m and dishes (a list of grid cells "
            "[m, n]) together, or positions_m without them",
            p->grid == NULL      ? "grid"
            : p->spacing == NULL ? "spacing_m"
                                 : "dishes");
        return;
    }
    telescope->grid_m = (unsigned)p->grid->m;
    telescope->grid_n = (unsigned)p->grid->n;
    telescope->spacing_m_m = p->spacing->m;
    telescope->spacing_n_m = p->spacing->n;
    read_dishes(graph, dishes, telescope);
}

void br_graph_read_telescope(struct br_graph *graph, const struct br_node *node)
{
    static const char *const also[] = {"dishes", "positions_m", NULL};
    struct br_config *config = graph->config;
    struct telescope_params p = {0};
    if (node == NULL) return;
    if (node->kind != BR_NODE_MAP) {
        br_config_error(config, node,
                        "telescope: expected a map with name, and positions_m or grid, spacing_m and dishes");
        return;
    }
    size_t errors = br_config_fill(config, node, telescope_params, also, &p);
    const struct br_node *positions = br_node_get(node, "positions_m"), *dishes = br_node_get(node, "dishes");
    bool grid = p.grid != NULL || p.spacing != NULL || dishes != NULL;
    if (positions == NULL && !grid)
        br_config_error(config, node,
                        "telescope: it does not say where its dishes are; expected positions_m ([[east, "
                        "north, up], ...] or a file), or grid, spacing_m and dishes");
    if (errors > 0 || (positions == NULL && !grid)) return;
    struct br_telescope *telescope = br_config_alloc(config, sizeof *telescope);
    if (strlen(p.name) >= sizeof telescope->name)
        br_config_error(config, node, "telescope: the name is longer than %zu bytes",
                        sizeof telescope->name - 1);
    *telescope = (struct br_telescope){.spacing_m_m = NAN,
                                       .spacing_n_m = NAN,
                                       .latitude_deg = p.latitude,
                                       .longitude_deg = p.longitude,
                                       .height_m = p.height,
                                       .eop = p.eop};
    snprintf(telescope->name, sizeof telescope->name, "%s", p.name);
    if (grid) read_grid(graph, node, &p, telescope);
    unsigned cells = telescope->ndishes;
    if (positions != NULL) br_positions_read(config, positions, telescope);
    if (grid && cells > 0 && telescope->ndishes != cells)
        br_config_error(config, positions,
                        "telescope: positions_m has %u places, `dishes` %u cells; expected one of each for "
                        "every dish",
                        telescope->ndishes, cells);
    graph->telescope = telescope;
}

struct freq_params {
    double first, step;
    int64_t count;
};
static const struct br_param freq_params[] = {
    BR_PARAM("first", BR_P_REAL, struct freq_params, first, NULL, .required = true, .min = 1e-3, .max = 1e6,
             .unit = "MHz"),
    BR_PARAM("step", BR_P_REAL, struct freq_params, step, NULL, .required = true, .unit = "MHz"),
    BR_PARAM("count", BR_P_INT, struct freq_params, count, NULL, .required = true, .min = 1, .max = 1 << 20),
    {0},
};

/* A list of MHz, or {first, step, count}. */
static void read_frequencies(struct br_graph *graph, const struct br_node *node)
{
    static const struct br_param list[] = {
        {.name = "freq_mhz", .type = BR_P_REALS, .min = 1e-3, .max = 1e6, .unit = "MHz"}, {0}};
    struct br_stream_hints *hints = &graph->hints;
    if (node->kind != BR_NODE_MAP) {
        struct br_reals values = {0};
        if (!br_config_fill_one(graph->config, node, list, &values)) return;
        hints->nfreq = values.count;
        hints->freq_mhz = values.value;
        return;
    }
    struct freq_params p = {0};
    if (br_config_fill(graph->config, node, freq_params, NULL, &p) > 0) return;
    double last = p.first + p.step * (double)(p.count - 1);
    if (!(fabs(p.step) > 0) || !(last > 0)) {
        br_config_error(graph->config, node,
                        "stream: freq_mhz: the channels run from %g to %g MHz in steps of %g; expected "
                        "positive frequencies and a step that is not 0",
                        p.first, last, p.step);
        return;
    }
    double *mhz = br_config_alloc(graph->config, (size_t)p.count * sizeof *mhz);
    for (int64_t i = 0; i < p.count; i++) mhz[i] = p.first + p.step * (double)i;
    hints->nfreq = (size_t)p.count;
    hints->freq_mhz = mhz;
}

struct hint_params {
    int64_t epoch, sample0, npol;
    struct br_rational sample;
    double width;
    const char *coding, *order, *sideband;
    struct br_strings override;
};
static const char *const codings[] = {"int4x2", "chime", "vdif", NULL};
static const struct br_param hint_params[] = {
    BR_PARAM("epoch_ns", BR_P_INT, struct hint_params, epoch, NULL, .unit = "ns"),
    BR_PARAM("sample_ns", BR_P_RATIONAL, struct hint_params, sample, NULL, .unit = "ns"),
    BR_PARAM("width_mhz", BR_P_REAL, struct hint_params, width, NULL, .min = 1e-9, .max = 1e6, .unit = "MHz"),
    BR_PARAM("sample0", BR_P_INT, struct hint_params, sample0, NULL, .min = 0, .max = 9e18),
    BR_PARAM("npol", BR_P_INT, struct hint_params, npol, NULL, .min = 1, .max = 2),
    BR_PARAM("coding", BR_P_CHOICE, struct hint_params, coding, NULL, .choices = codings),
    BR_PARAM("order", BR_P_STRING, struct hint_params, order, NULL),
    BR_PARAM("sideband", BR_P_CHOICE, struct hint_params, sideband, NULL, .choices = br_sideband_names),
    BR_PARAM("override", BR_P_STRINGS, struct hint_params, override, NULL),
    {0},
};

/* The keys that go before what a recording says: each must be one that a recording can contradict, and be
 * given. */
static unsigned read_override(struct br_config *config, const struct br_node *node,
                              const struct br_strings *keys)
{
    static const struct {
        const char *key;
        enum br_hint bit;
    } known[] = {{"epoch_ns", BR_HINT_EPOCH},   {"sample_ns", BR_HINT_SAMPLE}, {"freq_mhz", BR_HINT_FREQ},
                 {"width_mhz", BR_HINT_WIDTH},  {"coding", BR_HINT_CODING},    {"order", BR_HINT_ORDER},
                 {"sideband", BR_HINT_SIDEBAND}};
    unsigned bits = 0;
    const struct br_node *at = br_node_get(node, "override");
    for (size_t i = 0; i < keys->count; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(known[k].key, keys->value[i]) != 0) k++;
        if (k == sizeof known / sizeof *known)
            br_config_error(
                config, at,
                "stream: override: '%s'; expected some of epoch_ns, sample_ns, freq_mhz, width_mhz, "
                "coding, order, sideband",
                keys->value[i]);
        else if (br_node_get(node, known[k].key) == NULL)
            br_config_error(
                config, at,
                "stream: override: '%s' is not given; expected keys that `stream:` has, to go before "
                "what the recording says",
                keys->value[i]);
        else
            bits |= known[k].bit;
    }
    return bits;
}

/* An epoch in other units than nanoseconds would be in January 1970: an error if it is a time of our days in
 * seconds, milliseconds or microseconds. */
static void check_epoch(struct br_graph *graph, const struct br_node *at, int64_t epoch)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"seconds", 1000000000}, {"milliseconds", 1000000}, {"microseconds", 1000}};
    static const int64_t year_2000 = 946684800, year_2100 = 4102444800;
    for (size_t i = 0; at != NULL && i < sizeof units / sizeof *units; i++) {
        int64_t per_s = 1000000000 / units[i].ns;
        if (epoch < year_2000 * per_s || epoch > year_2100 * per_s) continue;
        br_config_error(graph->config, at,
                        "stream: epoch_ns: %lld looks like Unix time in %s; expected nanoseconds: %lld",
                        (long long)epoch, units[i].name, (long long)epoch * units[i].ns);
    }
}

void br_graph_read_hints(struct br_graph *graph, const struct br_node *node)
{
    static const char *const also[] = {"freq_mhz", NULL};
    struct br_stream_hints *hints = &graph->hints;
    struct hint_params p = {0};
    if (node == NULL) return;
    if (node->kind != BR_NODE_MAP) {
        br_config_error(graph->config, node,
                        "stream: expected a map such as {sample_ns: 5120, freq_mhz: [400.0, 400.2]}");
        return;
    }
    if (br_config_fill(graph->config, node, hint_params, also, &p) > 0) return;
    const struct br_node *freq = br_node_get(node, "freq_mhz");
    if (freq != NULL) read_frequencies(graph, freq);
    check_epoch(graph, br_node_get(node, "epoch_ns"), p.epoch);
    hints->have_epoch = br_node_get(node, "epoch_ns") != NULL;
    hints->epoch_ns = p.epoch;
    hints->sample_ns = p.sample;
    if (br_node_get(node, "width_mhz") != NULL) hints->width_mhz = p.width;
    hints->have_sample0 = br_node_get(node, "sample0") != NULL;
    hints->sample0 = (uint64_t)p.sample0;
    hints->npol = (unsigned)p.npol;
    hints->coding = p.coding;
    hints->order = p.order;
    if (p.sideband != NULL) hints->sideband = br_sideband_named(p.sideband);
    hints->override = read_override(graph->config, node, &p.override);
}
