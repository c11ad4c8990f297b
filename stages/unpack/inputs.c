/* inputs.c - where in E[pol][dish] each input of the packets goes. See unpack.h. */
#include "stages/common/stage/packet.h"
#include "stages/unpack/unpack.h"

#include <inttypes.h>
#include <stdio.h>

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
                             "give `positions`, one for each input, -1 for those that are not a dish",
                             l->ninputs, u->npol, u->ndish > 0 ? u->ndish : 1);
    return BR_OK;
}

int unpack_place_inputs(struct br_stage *stage, struct unpack *u)
{
    const struct packet_layout *l = u->layout;
    size_t n = l->ninputs;
    int status = find_shape(stage, u);
    if (status != BR_OK) return status;
    const struct packet_places places = {u->positions, u->order, u->npol, u->ndish};
    const int64_t *position = packet_place_inputs(stage, l, &places);
    if (position == NULL) return BR_E_INVALID;
    u->input_offset = br_stage_alloc(stage, n * sizeof *u->input_offset);
    u->input_source = br_stage_alloc(stage, n * sizeof *u->input_source);
    u->position = br_stage_alloc(stage, n * sizeof *u->position);
    u->ninputs = 0;
    for (size_t i = 0; i < n; i++) {
        if (position[i] < 0) continue;
        u->input_offset[u->ninputs] = l->input_offset[i];
        u->input_source[u->ninputs] = l->input_source[i];
        u->position[u->ninputs++] = (uint32_t)position[i];
    }
    return u->ninputs > 0 ? BR_OK : br_stage_fail_at(stage, "positions", "no input has a position");
}
