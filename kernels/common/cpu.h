/* cpu.h - what the processor that runs us can do.
 *
 * Fast paths are compiled with __attribute__((target("..."))) and chosen when a plan is made, so that one
 * binary serves every x86-64 machine. On other architectures every answer is 0. */
#ifndef BEAMRING_KERNELS_COMMON_CPU_H
#define BEAMRING_KERNELS_COMMON_CPU_H

#ifdef __cplusplus
extern "C" {
#endif

/* Defined to 1 where the x86 intrinsics and target attributes exist. */
#if defined(__x86_64__)
#define BR_X86_64 1
#else
#define BR_X86_64 0
#endif

/* Non-zero if the instruction set is there and the operating system saves its registers. Setting the
 * environment variable BEAMRING_CPU=generic before the first call makes all of them 0: the portable
 * loops can be tested and compared anywhere. */
int br_cpu_has_avx2(void);
int br_cpu_has_fma(void);
int br_cpu_has_f16c(void);

#ifdef __cplusplus
}
#endif
#endif
