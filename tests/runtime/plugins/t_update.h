/* t_update.h - what tests look at in the stage t_update. */
#ifndef BEAMRING_TESTS_RUNTIME_PLUGINS_T_UPDATE_H
#define BEAMRING_TESTS_RUNTIME_PLUGINS_T_UPDATE_H

#include <stdint.h>

enum { T_UPDATE_SEEN = 256 };

struct t_update {
    const char *file;    /* NULL, or one that holds the number `add` */
    int64_t add, refuse; /* refuse: what prepare does with an `add` of this value */
    int64_t fixed;
    int64_t *table; /* made by prepare, exchanged by commit */
    unsigned nseen;
    struct {
        uint64_t first; /* of a frame */
        int64_t add, fixed, table;
    } seen[T_UPDATE_SEEN]; /* frames at which the values were others than before */
};

#endif
