/* hub.c - rank 0 keeps the membership: it gathers what all are to know, and tells all who has failed, and
 * when nobody has more to do. */
#include "runtime/ranks/parts.h"

#include <stdlib.h>

static void tell_all(struct br_ranks *ranks, const struct wire_head *head, const void *payload)
{
    for (unsigned r = 1; r < ranks->count; r++) ranks_say(ranks, r, head, payload);
    ranks_told(ranks, head, payload);
}

/* Sends the parts of all ranks to all ranks, once all are here. False: no memory. */
static bool share_parts(struct br_ranks *ranks)
{
    struct wire_bytes all = {0};
    bool ok = true;
    for (unsigned r = 0; r < ranks->count; r++)
        if (ranks->peer[r].part.data == NULL) return true;
    for (unsigned r = 0; r < ranks->count; r++) {
        struct wire_bytes *part = &ranks->peer[r].part;
        uint64_t bytes = part->used;
        ok = ok && wire_append(&all, &bytes, sizeof bytes) && wire_append(&all, part->data, part->used);
        free(part->data);
        *part = (struct wire_bytes){0};
    }
    if (ok) tell_all(ranks, &(struct wire_head){.type = WIRE_GATHERED, .length = all.used}, all.data);
    free(all.data);
    return ok;
}

void hub_hears(struct br_ranks *ranks, unsigned from, const struct wire_head *head, const void *payload)
{
    struct peer *peer = &ranks->peer[from];
    switch (head->type) {
    case WIRE_GATHER:
        peer->part.used = 0;
        if (wire_append(&peer->part, payload, head->length) && share_parts(ranks)) break;
        ranks_fail(ranks, 1, "has no memory for what the ranks tell each other");
        break;
    case WIRE_FAILED: /* the first failure is what helps; all hear of it, the one that failed too */
        if (!ranks->failed)
            tell_all(ranks, &(struct wire_head){WIRE_FAILED, from, head->number, 0, head->length}, payload);
        break;
    case WIRE_BYE:
        peer->done = true;
        if ((int)head->number > ranks->worst) ranks->worst = (int)head->number;
        break;
    default:
        break;
    }
}

void hub_look_for_end(struct br_ranks *ranks)
{
    for (unsigned r = 0; r < ranks->count; r++)
        if (!ranks->peer[r].done && !ranks->peer[r].gone) return;
    if (ranks->all_done) return;
    tell_all(ranks, &(struct wire_head){.type = WIRE_ALL_DONE, .number = (uint32_t)ranks->worst}, NULL);
}
