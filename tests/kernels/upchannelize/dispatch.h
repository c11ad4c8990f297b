/* dispatch.h - which kernel select.cuh takes for a plan; needs no GPU. */
#ifndef BEAMRING_TESTS_KERNELS_UPCHANNELIZE_DISPATCH_H
#define BEAMRING_TESTS_KERNELS_UPCHANNELIZE_DISPATCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The file in kernels/upchannelize/gpu/ for factor U, M taps and X spectators with the default window and
 * gain sqrt(U) times `strength`, on Hopper or on another GPU. NULL: a kernel that is in none of them. */
const char *pfb_file(unsigned factor, unsigned taps, size_t nspectators, double strength, int on_hopper);

#ifdef __cplusplus
}
#endif
#endif
