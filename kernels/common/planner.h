/* planner.h - one lock for FFTW's planner, which is not safe to use from two threads at once.
 *
 * Everything of FFTW but its execute functions is called between these two: several stages make their plans
 * at the same time. */
#ifndef BEAMRING_KERNELS_COMMON_PLANNER_H
#define BEAMRING_KERNELS_COMMON_PLANNER_H

#ifdef __cplusplus
extern "C" {
#endif

void br_planner_lock(void);
void br_planner_unlock(void);

#ifdef __cplusplus
}
#endif
#endif
