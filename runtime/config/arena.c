/* arena.c - see arena.h. Blocks come zeroed from calloc and no byte is given out twice, so nothing is cleared
 * again. */
#include "runtime/config/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 64 << 10, ALIGNMENT = alignof(max_align_t) };

struct br_arena_block {
    struct br_arena_block *older;
    size_t used, size;
    alignas(ALIGNMENT) unsigned char bytes[];
};

void *br_arena_alloc(struct br_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes == 0) bytes = ALIGNMENT; /* a pointer of its own for nothing, too */
    struct br_arena_block *block = arena->newest;
    if (block == NULL || bytes > block->size - block->used) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        struct br_arena_block *fresh = calloc(1, sizeof *fresh + size);
        if (fresh == NULL) return NULL;
        fresh->size = size;
        if (block != NULL && size > BLOCK_BYTES) { /* full at once: the older block goes on being filled */
            fresh->older = block->older;
            block->older = fresh;
        } else {
            fresh->older = block;
            arena->newest = fresh;
        }
        block = fresh;
    }
    void *memory = block->bytes + block->used;
    block->used += bytes;
    return memory;
}

void br_arena_free(struct br_arena *arena)
{
    while (arena->newest != NULL) {
        struct br_arena_block *block = arena->newest;
        arena->newest = block->older;
        free(block);
    }
}
