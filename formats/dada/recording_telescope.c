/* recording_telescope.c - the telescope in a recording's header: where its dishes are. */
#include "formats/dada/recording_describe.h"

#include "formats/common/text.h"

#include <math.h>
#include <stdio.h>

enum { MAX_DISHES = 65535, MAX_CELLS = 1024 };
static const double farthest_m = 1e7;

static bool on_cells(const struct br_telescope *t)
{
    for (size_t d = 0; d < t->ndishes; d++)
        if (t->position[d][0] != t->dishes[d].n * t->spacing_n_m ||
            t->position[d][1] != t->dishes[d].m * t->spacing_m_m || t->position[d][2] != 0)
            return false;
    return true;
}

void recording_put_telescope(struct dada_writer *w, const struct br_telescope *t)
{
    if (isfinite(t->latitude_deg) && isfinite(t->longitude_deg))
        dada_put_reals(w, "SITE_DEG", (double[]){t->latitude_deg, t->longitude_deg}, 2);
    if (isfinite(t->height_m))
        dada_put(w, "SITE_HEIGHT_M", "%s", text_real_format((char[TEXT_REAL]){0}, t->height_m));
    if (t->position == NULL) return;
    if (t->dishes != NULL) {
        dada_put(w, "GRID", "%u,%u", t->grid_m, t->grid_n);
        dada_put_reals(w, "GRID_SPACING_M", (double[]){t->spacing_m_m, t->spacing_n_m}, 2);
        dada_put_u16(w, "GRID_CELLS", &t->dishes[0].m, 2 * t->ndishes); /* struct br_dish is two numbers */
    }
    if (t->dishes == NULL || !on_cells(t)) dada_put_reals(w, "POSITIONS_M", t->position[0], 3 * t->ndishes);
}

/* Numbers of a list, `each` for every dish: as many as the key has, or those of *ndishes if it is not 0. NULL
 * with *status BR_OK: there is no such key. */
static double *take_list(struct describe *d, const char *key, size_t each, unsigned *ndishes, int *status)
{
    size_t max = each * MAX_DISHES, count = *ndishes > 0 ? each * *ndishes : 0;
    *status = BR_OK;
    if (dada_get(d->header, key) == NULL) return NULL;
    if (count == 0) count = dada_count_reals(d->header, key, max);
    if (count == 0 || count % each != 0) {
        *status =
            dada_bad(d->header, key, d->error, "%zu numbers for each of at most %d dishes", each, MAX_DISHES);
        return NULL;
    }
    double *values = d->memory.alloc(d->memory.owner, count * sizeof *values);
    int found = dada_get_reals(d->header, key, count, values, d->error);
    if (found < 0) *status = found;
    *ndishes = (unsigned)(count / each);
    return found < 0 ? NULL : values;
}

static int take_grid(struct describe *d, struct br_telescope *t)
{
    double size[2], spacing[2];
    int status, found = dada_get_reals(d->header, "GRID", 2, size, d->error);
    if (found <= 0) return found;
    for (int k = 0; k < 2; k++)
        if (!(size[k] >= 1 && size[k] <= MAX_CELLS && size[k] == floor(size[k])))
            return dada_bad(d->header, "GRID", d->error, "two whole numbers from 1 to %d", MAX_CELLS);
    found = dada_get_reals(d->header, "GRID_SPACING_M", 2, spacing, d->error);
    if (found < 0) return found;
    if (found == 0 ||
        !(spacing[0] > 0 && spacing[0] < farthest_m && spacing[1] > 0 && spacing[1] < farthest_m))
        return dada_bad(d->header, "GRID_SPACING_M", d->error, "two distances in metres");
    double *cell = take_list(d, "GRID_CELLS", 2, &t->ndishes, &status);
    if (status != BR_OK) return status;
    if (cell == NULL) return dada_bad(d->header, "GRID_CELLS", d->error, "two numbers for each dish");
    struct br_dish *dishes = d->memory.alloc(d->memory.owner, t->ndishes * sizeof *dishes);
    double(*position)[3] = d->memory.alloc(d->memory.owner, t->ndishes * sizeof *position);
    for (size_t i = 0; i < t->ndishes; i++) {
        for (int k = 0; k < 2; k++)
            if (!(cell[2 * i + k] >= 0 && cell[2 * i + k] < size[k] &&
                  cell[2 * i + k] == floor(cell[2 * i + k])))
                return dada_bad(d->header, "GRID_CELLS", d->error,
                                "cells of the grid, but dish %zu is at %g, %g", i, cell[2 * i],
                                cell[2 * i + 1]);
        dishes[i] = (struct br_dish){(uint16_t)cell[2 * i], (uint16_t)cell[2 * i + 1]};
        position[i][0] = cell[2 * i + 1] * spacing[1];
        position[i][1] = cell[2 * i] * spacing[0];
    }
    t->grid_m = (unsigned)size[0];
    t->grid_n = (unsigned)size[1];
    t->spacing_m_m = spacing[0];
    t->spacing_n_m = spacing[1];
    t->dishes = dishes;
    t->position = (const double(*)[3])position;
    return BR_OK;
}

static int take_positions(struct describe *d, struct br_telescope *t)
{
    int status;
    double *values = take_list(d, "POSITIONS_M", 3, &t->ndishes, &status);
    if (values == NULL) return status;
    for (size_t i = 0; i < 3 * t->ndishes; i++)
        if (!(fabs(values[i]) <= farthest_m))
            return dada_bad(d->header, "POSITIONS_M", d->error, "metres east, north and up of each dish");
    t->position = (const double(*)[3])values;
    return BR_OK;
}

static int take_site(struct describe *d, struct br_telescope *t)
{
    double site[2];
    int found = dada_get_reals(d->header, "SITE_DEG", 2, site, d->error);
    if (found > 0 && !(fabs(site[0]) <= 90 && fabs(site[1]) <= 360))
        return dada_bad(d->header, "SITE_DEG", d->error, "a latitude and a longitude in degrees");
    if (found > 0) {
        t->latitude_deg = site[0];
        t->longitude_deg = site[1];
    }
    if (found >= 0) found = dada_get_real(d->header, "SITE_HEIGHT_M", &t->height_m, d->error);
    return found < 0 ? found : BR_OK;
}

int describe_telescope(struct describe *d)
{
    struct br_telescope *t = d->memory.alloc(d->memory.owner, sizeof *t);
    *t = (struct br_telescope){
        .spacing_m_m = NAN, .spacing_n_m = NAN, .latitude_deg = NAN, .longitude_deg = NAN, .height_m = NAN};
    snprintf(t->name, sizeof t->name, "%s", d->out->telescope);
    int status = take_site(d, t);
    if (status == BR_OK) status = take_grid(d, t);
    if (status == BR_OK) status = take_positions(d, t);
    if (status == BR_OK && t->position != NULL) d->out->array = t;
    return status;
}
