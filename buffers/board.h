/* board.h - a few numbers that one thread keeps up to date and any other reads, without a lock on either
 * side. Private to this repository.
 *
 * The writer never waits. A reader that finds a write in progress tries again, so the numbers that it
 * returns always belong together. Two threads must not write one board at a time: the caller sees to that. */
#ifndef BEAMRING_BUFFERS_BOARD_H
#define BEAMRING_BUFFERS_BOARD_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* Odd while the board is being written. */
typedef _Atomic uint64_t br_board_version;

/* Every store is a release and every load an acquire, instead of fences: a thread that sees a new number also
 * sees that the version has changed. On x86 these are plain instructions.
 *
 * br_board_write copies `count` numbers to the board, and br_board_read copies them from it. */
static inline void br_board_write(br_board_version *version, _Atomic uint64_t *board, const uint64_t *numbers,
                                  unsigned count)
{
    uint64_t before = atomic_load_explicit(version, memory_order_relaxed);
    atomic_store_explicit(version, before + 1, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) atomic_store_explicit(&board[i], numbers[i], memory_order_release);
    atomic_store_explicit(version, before + 2, memory_order_release);
}

static inline void br_board_read(const br_board_version *version, const _Atomic uint64_t *board,
                                 uint64_t *numbers, unsigned count)
{
    for (unsigned tries = 1;; tries++) {
        uint64_t before = atomic_load_explicit(version, memory_order_acquire);
        for (unsigned i = 0; i < count; i++)
            numbers[i] = atomic_load_explicit(&board[i], memory_order_acquire);
        if ((before & 1) == 0 && atomic_load_explicit(version, memory_order_relaxed) == before) return;
        if (tries % 64 == 0) sched_yield(); /* the writer may need this processor */
    }
}

#endif
