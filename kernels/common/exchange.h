/* exchange.h - two plans give each other what they hold: new values for old ones, without a copy. */
#ifndef BEAMRING_KERNELS_COMMON_EXCHANGE_H
#define BEAMRING_KERNELS_COMMON_EXCHANGE_H

/* Exchanges one field of two structs. */
#define BR_EXCHANGE(type, a, b, field)                                                                       \
    do {                                                                                                     \
        type br_kept = (a)->field;                                                                           \
        (a)->field = (b)->field;                                                                             \
        (b)->field = br_kept;                                                                                \
    } while (0)

#endif
