/* positions.c - where the dishes of any array are. See positions.h. */
#include "runtime/graph/positions.h"

#include "buffers/regular_file.h"
#include "runtime/base/beside.h"
#include "runtime/base/positions.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DISHES = 65535 };
static const double degrees = 57.29577951308232;

struct row {
    double a[3]; /* east, north, up; or x, y, z */
};
#define COORDINATE(NAME, I, LIMIT)                                                                           \
    BR_PARAM(NAME, BR_P_REAL, struct row, a[I], NULL, .required = true, .min = -(LIMIT), .max = (LIMIT),     \
             .unit = "m")
static const struct br_param local[] = {
    COORDINATE("east", 0, 1e7), COORDINATE("north", 1, 1e7), COORDINATE("up", 2, 1e7), {0}};
static const struct br_param local_m[] = {
    COORDINATE("east_m", 0, 1e7), COORDINATE("north_m", 1, 1e7), COORDINATE("up_m", 2, 1e7), {0}};
static const struct br_param earth[] = {
    COORDINATE("x", 0, 7e6), COORDINATE("y", 1, 7e6), COORDINATE("z", 2, 7e6), {0}};
static const struct br_param earth_m[] = {
    COORDINATE("x_m", 0, 7e6), COORDINATE("y_m", 1, 7e6), COORDINATE("z_m", 2, 7e6), {0}};

/* --- axes fixed to the Earth --- */

/* Latitude and longitude, degrees, and height above the ellipsoid of WGS84, of a point in ITRS, metres. */
static void geodetic(const double p[3], double *latitude, double *longitude, double *height)
{
    static const double a = 6378137, f = 1 / 298.257223563, e2 = f * (2 - f);
    double r = hypot(p[0], p[1]), lat = atan2(p[2], r * (1 - e2));
    for (int i = 0; i < 10; i++) {
        double s = sin(lat), n = a / sqrt(1 - e2 * s * s);
        lat = atan2(p[2] + e2 * n * s, r);
    }
    double s = sin(lat);
    *latitude = degrees * lat;
    *longitude = degrees * atan2(p[1], p[0]);
    *height = r * cos(lat) + p[2] * s - a * sqrt(1 - e2 * s * s);
}

static void geocentric(double latitude, double longitude, double height, double p[3])
{
    static const double a = 6378137, f = 1 / 298.257223563, e2 = f * (2 - f);
    double lat = latitude / degrees, lon = longitude / degrees, n = a / sqrt(1 - e2 * sin(lat) * sin(lat));
    p[0] = (n + height) * cos(lat) * cos(lon);
    p[1] = (n + height) * cos(lat) * sin(lon);
    p[2] = (n * (1 - e2) + height) * sin(lat);
}

/* From x, y, z to east, north and up of the site; a site that is not given is the mean of all dishes. */
static bool to_local(struct br_config *config, const struct br_node *at, const char *file,
                     struct br_telescope *t, double (*position)[3])
{
    double mean[3] = {0, 0, 0}, origin[3], latitude, longitude, height;
    for (size_t d = 0; d < t->ndishes; d++)
        for (int k = 0; k < 3; k++) mean[k] += position[d][k] / t->ndishes;
    geodetic(mean, &latitude, &longitude, &height);
    if (!(fabs(height) < 2e4)) {
        br_config_error(config, at,
                        "telescope: positions_m: %s: the columns x, y and z put the array %.6g m from the "
                        "surface of the Earth; expected metres from the centre of the Earth (ITRS)",
                        file, height);
        return false;
    }
    if (!isfinite(t->latitude_deg) && !isfinite(t->longitude_deg)) {
        t->latitude_deg = latitude;
        t->longitude_deg = longitude;
    }
    if (!isfinite(t->height_m)) t->height_m = height;
    geocentric(t->latitude_deg, t->longitude_deg, t->height_m, origin);
    double lat = t->latitude_deg / degrees, lon = t->longitude_deg / degrees;
    for (size_t d = 0; d < t->ndishes; d++) {
        double r[3];
        for (int k = 0; k < 3; k++) r[k] = position[d][k] - origin[k];
        double outward = cos(lon) * r[0] + sin(lon) * r[1]; /* from the Earth's axis */
        position[d][0] = -sin(lon) * r[0] + cos(lon) * r[1];
        position[d][1] = -sin(lat) * outward + cos(lat) * r[2];
        position[d][2] = cos(lat) * outward + sin(lat) * r[2];
    }
    return true;
}

/* --- reading --- */

static bool has_columns(const struct br_node *row, const struct br_param *schema)
{
    for (; schema->name != NULL; schema++)
        if (br_node_get(row, schema->name) == NULL) return false;
    return true;
}

/* The columns of the table that are positions, or NULL after a mistake. */
static const struct br_param *columns_of(struct br_config *config, const struct br_node *row)
{
    static const struct br_param *const schemas[] = {local, local_m, earth, earth_m};
    char names[300] = "";
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        if (has_columns(row, schemas[i])) return schemas[i];
    for (size_t i = 0; i < row->count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.40s", i > 0 ? ", " : "", row->key[i]->text);
    }
    br_config_error(config, row->key[0],
                    "the columns are %s; expected east, north and up, or x, y and z (ITRS), in metres",
                    names);
    return NULL;
}

/* Returns the rows, or NULL after a mistake. */
static const struct br_node *read_table(struct br_config *config, const struct br_node *at, const char *path,
                                        struct br_telescope *t)
{
    const char *also[65] = {NULL};
    const struct br_node *table = br_config_read_table(config, at, path);
    const struct br_param *schema = table != NULL ? columns_of(config, table->item[0]) : NULL;
    if (schema == NULL) return NULL;
    if (table->count > MAX_DISHES) {
        br_config_error(config, at, "telescope: positions_m: %s has %zu rows; expected at most %d", path,
                        table->count, MAX_DISHES);
        return NULL;
    }
    for (size_t i = 0; i < table->item[0]->count; i++) also[i] = table->item[0]->key[i]->text;
    double(*position)[3] = br_config_alloc(config, table->count * sizeof *position);
    size_t errors = 0;
    for (size_t d = 0; d < table->count; d++) {
        struct row row = {{0}};
        errors += br_config_fill(config, table->item[d], schema, also, &row);
        memcpy(position[d], row.a, sizeof row.a);
    }
    t->ndishes = (unsigned)table->count;
    t->position = (const double(*)[3])position;
    if (errors > 0) return NULL;
    bool good = schema == local || schema == local_m || to_local(config, at, path, t, position);
    return good ? table : NULL;
}

static bool read_list(struct br_config *config, const struct br_node *list, struct br_telescope *t)
{
    static const struct br_param place[] = {{.name = "position",
                                             .type = BR_P_REALS,
                                             .min = -1e7,
                                             .max = 1e7,
                                             .min_count = 3,
                                             .max_count = 3,
                                             .unit = "m"},
                                            {0}};
    double(*position)[3] = br_config_alloc(config, list->count * sizeof *position);
    bool good = true;
    for (size_t d = 0; d < list->count; d++) {
        struct br_reals at = {0};
        if (br_config_fill_one(config, list->item[d], place, &at))
            memcpy(position[d], at.value, sizeof position[d]);
        else
            good = false;
    }
    t->ndishes = (unsigned)list->count;
    t->position = (const double(*)[3])position;
    return good;
}

/* Takes what the file says of the site, or compares it: positions hold for the site of their file. */
static bool take_site(struct br_config *config, const struct br_node *at, const char *path, double from,
                      const char *key, double *value)
{
    if (!isfinite(*value)) *value = from;
    if (!(fabs(*value - from) > 1e-3)) return true;
    br_config_error(config, at,
                    "telescope: %s is %.9g, but %s says %.9g, and its positions are relative to that; leave "
                    "%s out of `telescope:`",
                    key, *value, path, from, key);
    return false;
}

static bool read_uvh5(struct br_config *config, const struct br_node *at, const char *path,
                      struct br_telescope *t)
{
    struct br_error error = {0};
    struct br_positions read = {0};
    const char *reason;
    void *library = br_open_beside("formats", "beamring_positions.so", RTLD_NOW | RTLD_NODELETE, &reason);
    br_read_positions *reader = NULL;
    if (library != NULL) *(void **)&reader = dlsym(library, "beamring_read_positions");
    if (reader == NULL) {
        br_config_error(config, at,
                        "telescope: positions_m: %s cannot be read: %s; install beamring as a whole, or give "
                        "a table of text",
                        path, reason != NULL ? reason : "there is no beamring_positions.so");
        return false;
    }
    if (reader(path, &read, &error) != BR_OK) {
        br_config_error(config, at, "telescope: positions_m: %s", error.text);
        return false;
    }
    double(*position)[3] = br_config_alloc(config, read.count * sizeof *position);
    memcpy(position, read.position, read.count * sizeof *position);
    free(read.position);
    t->ndishes = (unsigned)read.count; /* at most MAX_DISHES, which the caller checks */
    t->position = (const double(*)[3])position;
    if (!isfinite(t->height_m)) t->height_m = read.height_m;
    return take_site(config, at, path, read.latitude_deg, "latitude_deg", &t->latitude_deg) &&
           take_site(config, at, path, read.longitude_deg, "longitude_deg", &t->longitude_deg);
}

static bool is_hdf5(const char *path)
{
    static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char start[sizeof magic] = {0};
    FILE *file = br_fopen_regular(path, NULL, NULL);
    if (file == NULL) return false;
    size_t length = fread(start, 1, sizeof start, file);
    fclose(file);
    return length == sizeof start && memcmp(start, magic, sizeof magic) == 0;
}

/* --- mistakes that only all positions together show --- */

struct along {
    double m; /* of a dish, along one direction */
    size_t dish;
};

static int by_m(const void *a, const void *b)
{
    const struct along *p = a, *q = b;
    return p->m != q->m ? (p->m > q->m) - (p->m < q->m) : (p->dish > q->dish) - (p->dish < q->dish);
}

static double distance(const double a[3], const double b[3])
{
    return hypot(hypot(a[0] - b[0], a[1] - b[1]), a[2] - b[2]);
}

/* `rows`: the list of the dishes' nodes, or the only node that there is. */
static void check_apart(struct br_config *config, const struct br_node *rows, const char *file,
                        const struct br_telescope *t)
{
    /* Dishes in one place are neighbours along any direction; arrays seldom have an arm across this one. */
    static const double apart = 1e-3, unit[3] = {0.5389, 0.6403, 0.5474};
    struct along *order = br_config_alloc(config, t->ndishes * sizeof *order);
    for (size_t d = 0; d < t->ndishes; d++) {
        const double *r = t->position[d];
        order[d] = (struct along){r[0] * unit[0] + r[1] * unit[1] + r[2] * unit[2], d};
    }
    qsort(order, t->ndishes, sizeof *order, by_m);
    for (size_t i = 0; i < t->ndishes; i++)
        for (size_t k = i + 1; k < t->ndishes && order[k].m - order[i].m < apart; k++) {
            size_t a = order[i].dish < order[k].dish ? order[i].dish : order[k].dish,
                   b = order[i].dish + order[k].dish - a;
            const double *at = t->position[b];
            if (!(distance(at, t->position[a]) < apart)) continue;
            br_config_error(
                config, rows->kind == BR_NODE_LIST ? rows->item[b] : rows,
                "telescope: positions_m: %s%sdish %zu is in the place of dish %zu, %.9g m east, "
                "%.9g m north and %.9g m up; expected dishes at least 1 mm apart, and metres, not "
                "degrees",
                file != NULL ? file : "", file != NULL ? ": " : "", b, a, at[0], at[1], at[2]);
            return;
        }
}

void br_positions_read(struct br_config *config, const struct br_node *node, struct br_telescope *t)
{
    const struct br_node *rows = NULL;
    const char *path = NULL;
    if (node->kind == BR_NODE_LIST && node->count > 0 && node->count <= MAX_DISHES) {
        if (read_list(config, node, t)) rows = node;
    } else if (node->kind == BR_NODE_SCALAR && node->text[0] != '\0') {
        path = br_config_find(config, "telescope: positions_m", node);
        if (path == NULL) return;
        if (!is_hdf5(path))
            rows = read_table(config, node, path, t);
        else if (read_uvh5(config, node, path, t))
            rows = node;
    } else {
        br_config_error(
            config, node,
            "telescope: positions_m: expected a list of 1 to %d places [east, north, up] in metres, "
            "or the name of a file",
            MAX_DISHES);
    }
    if (rows == NULL) return;
    if (t->ndishes > MAX_DISHES)
        br_config_error(config, node, "telescope: positions_m: %s has %u dishes; expected at most %d", path,
                        t->ndishes, MAX_DISHES);
    else
        check_apart(config, rows, rows == node ? path : NULL, t);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Half of the dishes have a neighbour within this distance: judged by some of them in a large array. */
static double neighbour_m(const struct br_telescope *t)
{
    enum { SOME = 101 };
    double nearest[SOME];
    size_t n = t->ndishes < SOME ? t->ndishes : SOME;
    for (size_t i = 0; i < n; i++) {
        size_t d = i * t->ndishes / n;
        nearest[i] = INFINITY;
        for (size_t k = 0; k < t->ndishes; k++)
            if (k != d) nearest[i] = fmin(nearest[i], distance(t->position[d], t->position[k]));
    }
    qsort(nearest, n, sizeof *nearest, ascending);
    return nearest[n / 2];
}

void br_positions_check_size(const struct br_stream *s, struct br_log *log)
{
    const struct br_telescope *t = s->telescope;
    if (t == NULL || t->ndishes < 2 || s->nchannels == 0) return;
    double high = s->freq_mhz[0], near = neighbour_m(t), far = 0;
    for (size_t i = 1; i < s->nchannels; i++) high = fmax(high, s->freq_mhz[i]);
    double wavelength = 1e-6 * BR_LIGHT_M_PER_S / high;
    for (size_t d = 0; d < t->ndishes; d++) far = fmax(far, distance(t->position[d], t->position[0]));
    if (near < 0.1 * wavelength)
        br_log(log, BR_LOG_WARNING, NULL,
               "telescope '%s': neighbouring dishes are %.3g m apart, %.2g of a wavelength at %.6g MHz; are "
               "their positions in kilometres or degrees? expected metres",
               t->name, near, near / wavelength, high);
    if (far > 1e5)
        br_log(log, BR_LOG_WARNING, NULL,
               "telescope '%s': dishes are up to %.4g km apart, more than phases of one channel can make up "
               "for; are their positions in millimetres, or from the centre of the Earth? expected metres "
               "east, north and up of the site",
               t->name, 1e-3 * far);
}
