#include "formats/common/permute.h"

#include <stdint.h>
#include <string.h>

enum { TILE = 32 }; /* elements: a cache line or two in both directions */

void permutation_init(struct permutation *p, unsigned naxes, const size_t *lengths, const unsigned *order,
                      size_t element)
{
    size_t stride[BR_MAX_AXES], to = 1, from = 1;
    *p = (struct permutation){.naxes = naxes, .element = element};
    for (unsigned i = naxes; i-- > 0; from *= lengths[i]) stride[i] = from;
    for (unsigned i = naxes; i-- > 0; to *= p->length[i]) {
        p->length[i] = lengths[order[i]];
        p->from[i] = stride[order[i]];
        p->to[i] = to;
    }
}

bool permutation_is_copy(unsigned naxes, const unsigned *order)
{
    for (unsigned i = 0; i < naxes; i++)
        if (order[i] != i) return false;
    return true;
}

/* Moves a x b elements. Along a the input is contiguous (or a is short), along b the output. */
#define TRANSPOSE(type)                                                                                      \
    for (size_t a0 = 0; a0 < na; a0 += TILE)                                                                 \
        for (size_t b0 = 0; b0 < nb; b0 += TILE)                                                             \
            for (size_t a = a0; a < na && a < a0 + TILE; a++)                                                \
                for (size_t b = b0; b < nb && b < b0 + TILE; b++)                                            \
    ((type *)out)[a * p->to[fast] + b * p->to[last]] =                                                       \
        ((const type *)in)[a * p->from[fast] + b * p->from[last]]

static void plane(const struct permutation *p, unsigned fast, const void *in, void *out)
{
    unsigned last = p->naxes - 1;
    size_t na = fast == last ? 1 : p->length[fast], nb = p->length[last];
    if (p->element == 1)
        TRANSPOSE(uint8_t);
    else if (p->element == 2)
        TRANSPOSE(uint16_t);
    else
        TRANSPOSE(uint32_t);
}

void permute(const struct permutation *p, const void *in, void *out)
{
    unsigned fast = 0, last = p->naxes - 1;
    size_t count = 1, at[BR_MAX_AXES] = {0};
    for (unsigned i = 0; i < p->naxes; i++) {
        if (p->from[i] == 1 && p->length[i] > 1) fast = i; /* contiguous in the input */
        if (p->length[i] == 0) return;
    }
    if (p->naxes == 1) fast = last;
    for (unsigned i = 0; i < last; i++)
        if (i != fast) count *= p->length[i];
    for (size_t n = 0; n < count; n++) {
        size_t from = 0, to = 0;
        for (unsigned i = 0; i < last; i++) {
            from += at[i] * p->from[i];
            to += at[i] * p->to[i];
        }
        const uint8_t *source = (const uint8_t *)in + from * p->element;
        uint8_t *target = (uint8_t *)out + to * p->element;
        if (fast == last)
            memcpy(target, source, p->length[last] * p->element);
        else
            plane(p, fast, source, target);
        for (unsigned i = last; i-- > 0;) { /* the next place of the other axes */
            if (i == fast) continue;
            if (++at[i] < p->length[i]) break;
            at[i] = 0;
        }
    }
}
