/* arena.h - memory that is freed all at once. */
#ifndef BEAMRING_RUNTIME_CONFIG_ARENA_H
#define BEAMRING_RUNTIME_CONFIG_ARENA_H

#include <stddef.h>

struct br_arena_block;

/* A zeroed struct is an empty arena. */
struct br_arena {
    struct br_arena_block *newest;
};

/* Zeroed memory, aligned for any type, that lives until br_arena_free; NULL if memory is exhausted. Not
 * thread-safe. */
void *br_arena_alloc(struct br_arena *arena, size_t bytes);

/* Frees all memory of the arena, which is then empty and can be used again. */
void br_arena_free(struct br_arena *arena);

#endif
