/* axis_order.h - the order in which the axes of an electric field lie in a file of others: ORDER of a DADA
 * header, `order` of `stream:`.
 *
 * Letters T, F, P, A (time, frequency, polarisation, antenna), or the words time, freq, pol, dish, with
 * commas between them or not, slowest first. A number behind time makes heaps: "pol,freq,time:256" and
 * "TPFT:256" are heaps of 256 samples, one after the other, each [pol][freq][256]. An axis that is not
 * named has length 1. */
#ifndef BEAMRING_FORMATS_COMMON_AXIS_ORDER_H
#define BEAMRING_FORMATS_COMMON_AXIS_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AXIS_T, AXIS_F, AXIS_P, AXIS_A, AXIS_COUNT };

struct axis_order {
    unsigned naxes;
    unsigned char axis[AXIS_COUNT]; /* slowest first; within a heap where there are heaps */
    uint64_t heap;                  /* samples of a heap; 0: there are none */
};

/* 0, or -1 if the text is not an order; `why`, if not NULL, then receives the mistake. */
int axis_order_parse(const char *text, struct axis_order *order, const char **why);

/* True when both place the elements of an array alike: axes of length 1 do not count. `length` by AXIS_*; of
 * time any number above 1. */
bool axis_order_same(const struct axis_order *a, const struct axis_order *b, const size_t length[AXIS_COUNT]);

/* The first axis of more than one element that `order` does not name, or -1. */
int axis_order_lacks(const struct axis_order *order, const size_t length[AXIS_COUNT]);

/* True when samples follow each other: time is slower than all other axes of more than one element. */
bool axis_order_time_slowest(const struct axis_order *order, const size_t length[AXIS_COUNT]);

/* Distances in bytes of neighbours along each axis, in a block with length[AXIS_T] samples. */
void axis_order_strides(const struct axis_order *order, const size_t length[AXIS_COUNT], size_t element_bytes,
                        uint64_t stride[AXIS_COUNT]);

/* "TFPA", "PFT:256"; into `text`, of at least 32 bytes. */
char *axis_order_format(const struct axis_order *order, char *text, size_t size);

#endif
