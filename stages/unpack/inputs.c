/* inputs.c - where in E[pol][dish] each input of the packets goes. See unpack.h. */
#include "stages/unpack/unpack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const unpack_orders[] = {"pol_dish", "dish_pol", NULL};

/* Polarisations and dishes, as the parameter, the packets or the telescope have them. */
static int find_shape(struct br_stage *stage, struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    const struct br_telescope *t = br_stage_telescope(stage);
    size_t dishes = t != NULL ? t->ndishes : 0;
    u->npol = u->pols > 0 ? (size_t)u->pols : l->npol;
    if (u->npol == 0 && dishes > 0 && l->ninputs % dishes == 0) u->npol = l->ninputs / dishes;
    char two[80] = "write ";
    if (l->ninputs % 2 == 0)
        snprintf(two, sizeof two, "write `pols: 2` for %zu dishes with two polarisations, ", l->ninputs / 2);
    if (u->npol == 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the number of polarisations is not known: neither the packets nor the "
                             "telescope say how %zu inputs "
                             "divide; %s`pols: 1` for %zu dishes, or add `telescope:` with its dishes",
                             l->ninputs, two, l->ninputs);
    if (u->pols > 0 && l->npol > 0 && u->npol != l->npol)
        return br_stage_fail_at(stage, "pols", "%" PRId64 " polarisations, but the packets have %zu", u->pols,
                                l->npol);
    u->ndish = dishes > 0 ? dishes : l->ninputs / u->npol;
    if (u->positions.count > 0 && u->ndish > 0) return BR_OK;
    if (u->npol * u->ndish != l->ninputs)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the packets bring %zu inputs, which are not %zu polarisations of %zu dishes; "
                             "give `positions`, one for each input, -1 for those that are no dish",
                             l->ninputs, u->npol, u->ndish > 0 ? u->ndish : 1);
    return BR_OK;
}

/* The position of input i, or -1. */
static int64_t position_of(const struct unpack *u, size_t i)
{
    if (u->positions.count > 0) return u->positions.value[i];
    if (u->layout->npol > 0 || strcmp(u->order, "pol_dish") == 0) return u->layout->position[i];
    return (int64_t)(i % u->npol * u->ndish + i / u->npol);
}

static int check_parameters(struct br_stage *stage, const struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    if (br_stage_given(stage, "order") && (l->npol > 0 || u->positions.count > 0))
        return br_stage_fail_at(stage, "order", "%s",
                                l->npol > 0 ? "the packets say themselves which polarisation an input has"
                                            : "`positions` says already where every input goes");
    if (u->positions.count > 0 && u->positions.count != l->ninputs)
        return br_stage_fail_at(stage, "positions", "%zu positions; expected one for each of %zu inputs",
                                u->positions.count, l->ninputs);
    return BR_OK;
}

int unpack_place_inputs(struct br_stage *stage, struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    int status = check_parameters(stage, u);
    if (status == BR_OK) status = find_shape(stage, u);
    if (status != BR_OK) return status;
    size_t n = l->ninputs, all = u->npol * u->ndish;
    size_t *first = br_stage_alloc(stage, all * sizeof *first); /* 1 + the input that has a position */
    u->input_offset = br_stage_alloc(stage, n * sizeof *u->input_offset);
    u->input_source = br_stage_alloc(stage, n * sizeof *u->input_source);
    u->position = br_stage_alloc(stage, n * sizeof *u->position);
    u->ninputs = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t at = position_of(u, i);
        if (at < 0) continue;
        if ((size_t)at >= all)
            return br_stage_fail_at(stage, "positions",
                                    "input %zu goes to position %" PRId64 "; expected less than %zu "
                                    "polarisations x %zu dishes, or -1",
                                    i, at, u->npol, u->ndish);
        if (first[at] > 0)
            return br_stage_fail_at(stage, "positions", "inputs %zu and %zu both go to position %" PRId64,
                                    first[at] - 1, i, at);
        first[at] = i + 1;
        u->input_offset[u->ninputs] = l->input_offset[i];
        u->input_source[u->ninputs] = l->input_source[i];
        u->position[u->ninputs++] = (uint32_t)at;
    }
    return u->ninputs > 0 ? BR_OK : br_stage_fail_at(stage, "positions", "no input has a position");
}
