/* Shared by the fuzz targets of packets: the memory of a layout or stream, and a check. */
#ifndef BEAMRING_TESTS_FUZZ_PIECES_H
#define BEAMRING_TESTS_FUZZ_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

enum { PIECES = 64 };
static void *piece[PIECES];
static unsigned npieces;

/* For struct packet_memory and streams: zeroed, until free_pieces(). */
static void *keep(void *owner, size_t bytes)
{
    (void)owner;
    if (npieces == PIECES) abort();
    return piece[npieces++] = calloc(1, bytes + 1);
}

static void free_pieces(void)
{
    while (npieces > 0) free(piece[--npieces]);
}

static void must(bool holds)
{
    if (!holds) abort();
}

#endif
