/* random.h - random bits that are a function of a counter, the same on a CPU and on a GPU. */
#ifndef BEAMRING_KERNELS_COMMON_RANDOM_H
#define BEAMRING_KERNELS_COMMON_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define BR_RANDOM_BOTH static __host__ __device__ __forceinline__
#else
#define BR_RANDOM_BOTH static inline
#endif

/* 128 random bits for (seed, sample, line, what): Philox4x32-10 of Salmon et al. (2011), counter = {sample
 * low, sample high, line, what}, key = seed. */
BR_RANDOM_BOTH void random_block(uint64_t seed, uint64_t sample, uint32_t line, uint32_t what,
                                 uint32_t out[4])
{
    uint32_t a = (uint32_t)sample, b = (uint32_t)(sample >> 32), c = line, d = what;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t x = (uint64_t)0xD2511F53u * a, y = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(y >> 32) ^ b ^ k0;
        b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ k1;
        d = (uint32_t)x;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

/* The purpose of a block of random bits: the low bits number the block of dishes,
 * source, burst, carrier or impulse. */
enum random_use {
    RANDOM_NOISE = 0,
    RANDOM_DRIFT = 0x30000000,
    RANDOM_SOURCE = 0x40000000,
    RANDOM_IMPULSE = 0x50000000,
    RANDOM_BURST = 0x60000000,
    RANDOM_CARRIER = 0x70000000,
    RANDOM_DITHER = 0x10000000,
    RANDOM_SCHEDULE = 0x20000000
};

#endif
