/* part.c - a rank's share of a recording: some of its bands, or some channels of its only one. */
#include "formats/pieces/extents.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS = 9 };

/* The number at *text, which it moves behind it; false: there is none, or it is too long. */
static bool number(const char **text, uint64_t *value)
{
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > DIGITS) return false;
    *value = strtoull(*text, NULL, 10);
    *text += digits;
    return true;
}

int part_parse(struct caller *caller, const char *text, struct part *part)
{
    *part = (struct part){0, 1};
    if (text == NULL) return BR_OK;
    const char *at = text;
    bool good = number(&at, &part->index) && *at++ == '/' && number(&at, &part->count) && *at == '\0';
    if (!good)
        return caller_fail_at(caller, "part",
                              "'%s'; expected \"R/N\" in whole numbers: part R, counted from 0, of N", text);
    if (part->index < part->count) return BR_OK;
    return caller_fail_at(caller, "part", "%s; expected R/N with R below N: parts are counted from 0", text);
}

int part_divide(struct caller *caller, const struct part *part, const char *path, size_t bands,
                size_t channels, struct share *share)
{
    bool one = bands == 1;
    size_t n = one ? channels : bands;
    if (part->count > n) {
        if (one)
            return caller_fail_at(
                caller, "part",
                "%llu parts; %s and all files with it have the same band, of %zu channels: expected at most "
                "as many parts",
                (unsigned long long)part->count, path, n);
        return caller_fail_at(
            caller, "part",
            "%llu parts; %s and the files with it make %zu bands: expected at most as many parts as bands. "
            "Use fewer ranks, or cut the files into more bands",
            (unsigned long long)part->count, path, n);
    }
    *share = (struct share){.begin = (size_t)(part->index * n / part->count),
                            .end = (size_t)((part->index + 1) * n / part->count),
                            .of_channels = one};
    return BR_OK;
}

size_t part_most_channels(const struct part *part, size_t channels)
{
    return (size_t)((channels + part->count - 1) / part->count);
}

/* Lines of a file's gaps within channels [begin, end), counted from there. */
static const struct gaps *take_gaps(struct caller *caller, const struct gaps *all, uint32_t begin,
                                    uint32_t end)
{
    struct gaps *some = caller_alloc(caller, sizeof *some);
    some->gap = caller_alloc(caller, (all->count + 1) * sizeof *some->gap);
    for (size_t i = 0; i < all->count; i++) {
        struct gap gap = all->gap[i];
        uint32_t from = gap.channel > begin ? gap.channel : begin,
                 to = gap.channel + gap.nchannels < end ? gap.channel + gap.nchannels : end;
        if (from >= to) continue;
        gap.channel = from - begin;
        gap.nchannels = to - from;
        some->gap[some->count++] = gap;
    }
    return some;
}

static void take_channels(struct caller *caller, struct extents *e, uint32_t begin, uint32_t end)
{
    const struct gaps **taken = caller_alloc(caller, e->files.count * sizeof *taken); /* extents share them */
    for (size_t i = 0; i < e->count; i++) {
        struct extent *x = &e->extent[i];
        uint32_t from = x->channel > begin ? x->channel : begin,
                 to = x->channel + x->nchannels < end ? x->channel + x->nchannels : end;
        x->offset += (from - x->channel) * x->stride_freq;
        x->nchannels = to - from;
        x->channel = from - begin;
        if (x->gaps == NULL) continue;
        if (taken[x->file] == NULL) taken[x->file] = take_gaps(caller, x->gaps, begin, end);
        x->gaps = taken[x->file];
    }
    e->stream.nchannels = end - begin;
    e->stream.freq_mhz += begin;
    e->stream.width_mhz += begin;
}

/* Times stay those of all files: the parts begin and end together, and come again together. */
int extents_take_part(struct caller *caller, struct extents *e, const struct part *part)
{
    struct share share = {0};
    if (part->count == 1) return BR_OK;
    int status = part_divide(caller, part, e->files.path[0], e->ntracks, e->stream.nchannels, &share);
    if (status != BR_OK) return status;
    if (share.of_channels) {
        take_channels(caller, e, (uint32_t)share.begin, (uint32_t)share.end);
        return BR_OK;
    }
    const struct track *first = &e->track[share.begin], *last = &e->track[share.end - 1];
    const struct extent *low = &e->extent[first->extent], *high = &e->extent[last->extent];
    uint32_t begin = low->channel, end = high->channel + high->nchannels;
    size_t skipped = first->extent;
    e->count = last->extent + last->count - skipped;
    e->extent += skipped;
    e->track += share.begin;
    e->ntracks = share.end - share.begin;
    for (size_t i = 0; i < e->ntracks; i++) e->track[i].extent -= skipped;
    take_channels(caller, e, begin, end);
    return BR_OK;
}
