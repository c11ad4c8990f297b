#include "formats/links/assembly.h"

#include <stdlib.h>
#include <string.h>

int assembly_create(struct assembly *a, struct br_error *error)
{
    size_t cells = a->nbeams * a->nchannels;
    a->block = calloc(a->window, sizeof *a->block);
    bool enough = a->block != NULL;
    for (unsigned i = 0; enough && i < a->window; i++) {
        struct assembly_block *b = &a->block[i];
        b->levels = malloc(cells * a->row);
        b->side = malloc(cells * 2 * sizeof *b->side);
        b->arrived = malloc(a->units);
        enough = b->levels != NULL && b->side != NULL && b->arrived != NULL;
    }
    if (enough) return BR_OK;
    assembly_free(a);
    return br_fail(error, BR_E_NO_MEMORY,
                   "no memory for %u blocks of %zu beams and %zu channels (%zu bytes each)", a->window,
                   a->nbeams, a->nchannels, cells * (a->row + 8));
}

void assembly_free(struct assembly *a)
{
    for (unsigned i = 0; a->block != NULL && i < a->window; i++) {
        free(a->block[i].levels);
        free(a->block[i].side);
        free(a->block[i].arrived);
    }
    free(a->block);
    a->block = NULL;
}

bool assembly_pass(struct assembly *a, uint64_t number)
{
    for (unsigned i = 0; i < a->window; i++)
        if (a->block[i].open) return false;
    a->counts->missing += (number - a->tail) * a->units;
    a->tail = number;
    return true;
}

enum assembly_answer assembly_open(struct assembly *a, uint64_t number, struct assembly_block **block)
{
    if (!a->started) a->tail = a->from = number;
    a->started = true;
    if (number < a->tail) {
        a->counts->late++;
        return ASSEMBLY_LATE;
    }
    if (number - a->tail >= a->window) {
        if (!assembly_pass(a, number - a->window + 1)) { /* leave room for what comes a little later */
            a->pressed = true;
            a->wanted = number;
            return ASSEMBLY_FULL;
        }
    }
    struct assembly_block *b = *block = &a->block[number % a->window];
    if (!b->open) {
        b->open = true;
        b->number = number;
        b->narrived = 0;
        memset(b->arrived, 0, a->units);
        memset(b->levels, a->missing, a->nbeams * a->nchannels * a->row);
        memset(b->side, 0, a->nbeams * a->nchannels * 2 * sizeof *b->side);
    }
    return ASSEMBLY_OPEN;
}

bool assembly_mark(struct assembly_block *block, size_t unit)
{
    if (block->arrived[unit]) return false;
    block->arrived[unit] = 1;
    block->narrived++;
    return true;
}

struct assembly_block *assembly_ready(struct assembly *a, bool flush)
{
    struct assembly_block *oldest = NULL;
    for (unsigned i = 0; i < a->window; i++) {
        struct assembly_block *b = &a->block[i];
        if (b->open && (oldest == NULL || b->number < oldest->number)) oldest = b;
    }
    bool pressed = a->pressed && a->wanted - a->tail >= a->window;
    if (oldest == NULL || flush || pressed) return oldest;
    return oldest->number == a->tail && oldest->narrived == a->units ? oldest : NULL;
}

void assembly_forget(struct assembly *a)
{
    for (unsigned i = 0; i < a->window; i++) a->block[i].open = false;
    a->counts->missing -= (a->tail - a->from) * a->units;
    a->tail = a->from;
    a->pressed = false;
    a->started = a->counts->blocks > 0;
}

void assembly_done(struct assembly *a, struct assembly_block *block)
{
    a->counts->missing += (block->number - a->tail) * a->units + (a->units - block->narrived);
    a->counts->blocks++;
    a->tail = a->from = block->number + 1;
    block->open = false;
    if (a->pressed && (a->wanted < a->tail || a->wanted - a->tail < a->window)) a->pressed = false;
}

void assembly_fill(const struct assembly *a, const struct assembly_block *block,
                   const struct br_stream *stream, struct br_frame *frame)
{
    size_t cells = a->nbeams * a->nchannels, steps = a->nibbles ? 2 * a->row : a->row;
    memcpy(frame->data, block->levels, cells * a->row);
    memcpy(frame->side, block->side, cells * 2 * sizeof *block->side);
    frame->complete = false;
    uint8_t seen[4096];
    for (size_t f = 0; f < a->nchannels; f++) {
        uint8_t *valid = frame->valid + f * steps;
        for (size_t from = 0; from < a->row; from += sizeof seen) {
            size_t n = a->row - from < sizeof seen ? a->row - from : sizeof seen;
            memset(seen, 0, n);
            for (size_t b = 0; b < a->nbeams; b++) {
                const uint8_t *levels = block->levels + (b * a->nchannels + f) * a->row + from;
                for (size_t t = 0; t < n; t++) seen[t] |= levels[t] ^ a->missing;
            }
            for (size_t t = 0; t < n; t++) {
                if (!a->nibbles) {
                    valid[from + t] = seen[t] ? BR_VALID : BR_MISSING;
                } else {
                    valid[2 * (from + t)] = seen[t] & 0x0f ? BR_VALID : BR_MISSING;
                    valid[2 * (from + t) + 1] = seen[t] & 0xf0 ? BR_VALID : BR_MISSING;
                }
            }
        }
    }
    br_frame_close_validity(stream, frame);
}

bool assembly_take(struct assembly *a, const struct br_stream *stream, bool flush, struct br_frame *frame)
{
    struct assembly_block *block = assembly_ready(a, flush);
    if (block == NULL) return false;
    frame->first = block->number * stream->frame_samples;
    frame->samples = stream->frame_samples;
    assembly_fill(a, block, stream, frame);
    assembly_done(a, block);
    return true;
}
