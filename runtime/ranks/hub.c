/* hub.c - rank 0 keeps the membership: it gathers what all are to know, and tells all who has failed, and
 * when nobody has more to do. */
#include "runtime/ranks/parts.h"

#include <stdlib.h>
#include <string.h>

static void tell_all(struct br_ranks *ranks, const struct wire_head *head, const void *payload)
{
    for (unsigned r = 1; r < ranks->count; r++) ranks_say(ranks, r, head, payload);
    ranks_told(ranks, head, payload);
}

static bool keep_part(struct peer *peer, const void *payload, size_t length)
{
    free(peer->part);
    peer->part_bytes = length;
    peer->part = malloc(length + 1);
    if (peer->part != NULL) memcpy(peer->part, payload, length);
    return peer->part != NULL;
}

/* Sends the parts of all ranks to all ranks, once all are here. */
static bool share_parts(struct br_ranks *ranks)
{
    size_t total = 0;
    for (unsigned r = 0; r < ranks->count; r++) {
        if (ranks->peer[r].part == NULL) return true;
        total += sizeof(uint64_t) + ranks->peer[r].part_bytes;
    }
    unsigned char *all = malloc(total), *at = all;
    if (all == NULL) return false;
    for (unsigned r = 0; r < ranks->count; r++) {
        struct peer *peer = &ranks->peer[r];
        uint64_t bytes = peer->part_bytes;
        memcpy(at, &bytes, sizeof bytes);
        memcpy(at + sizeof bytes, peer->part, bytes);
        at += sizeof bytes + bytes;
        free(peer->part);
        peer->part = NULL;
    }
    tell_all(ranks, &(struct wire_head){.type = WIRE_GATHERED, .length = total}, all);
    free(all);
    return true;
}

void hub_hears(struct br_ranks *ranks, unsigned from, const struct wire_head *head, const void *payload)
{
    struct peer *peer = &ranks->peer[from];
    switch (head->type) {
    case WIRE_GATHER:
        if (keep_part(peer, payload, head->length) && share_parts(ranks)) break;
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
