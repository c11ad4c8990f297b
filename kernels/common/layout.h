/* layout.h - what layouts of shared memory and register assignments are written with.
 *
 * A kernel's layouts are plain functions in kernels/KERNEL/gpu/layout.h or gpu/METHOD/layout.h, compiled for
 * the host and the device:
 *
 *   static inline BR_HD unsigned kernel_place(unsigned row, unsigned column) { ... }
 *
 * The kernel calls them, and so does tools/layouts/NAME.c, which tries every access of every variant on
 * the CPU. Such a header is both C17 and CUDA C++: no namespaces, no templates; what a variant fixes is an
 * argument, and folds away. */
#ifndef BEAMRING_KERNELS_COMMON_LAYOUT_H
#define BEAMRING_KERNELS_COMMON_LAYOUT_H

#include <stdint.h>

#ifdef __CUDACC__
#define BR_HD __host__ __device__
#else
#define BR_HD
#endif

/* swizzle<B, M, S>: 2^M elements stay together as a group, 2^S groups are a row, and within each 2^B rows
 * the group's number in its row is xor-ed with (the low B bits of) the row's number: B bits from M + S on
 * are xor-ed into those from M on. Its own inverse, as long as B <= S. With groups of 16 bytes and rows of
 * 128, a column of groups spreads over all banks. */
static inline BR_HD unsigned br_swizzle(unsigned b, unsigned m, unsigned s, unsigned offset)
{
    return offset ^ ((offset & (((1u << b) - 1) << (m + s))) >> s);
}

/* The swizzles of the tensor memory accelerator and of wgmma, in bytes: rows of 128, 64 or 32 bytes of
 * which 8 rows make a pattern of 1024, 512 or 256 bytes (they allow no other); addresses count from
 * a multiple of the pattern. */
static inline BR_HD unsigned br_swizzle_128_bytes(unsigned offset)
{
    return br_swizzle(3, 4, 3, offset);
}

static inline BR_HD unsigned br_swizzle_64_bytes(unsigned offset)
{
    return br_swizzle(2, 4, 3, offset);
}

static inline BR_HD unsigned br_swizzle_32_bytes(unsigned offset)
{
    return br_swizzle(1, 4, 3, offset);
}

/* Bit `bit` of a value, 0 or 1. */
static inline BR_HD unsigned br_bit(unsigned value, unsigned bit)
{
    return value >> bit & 1;
}

#endif
