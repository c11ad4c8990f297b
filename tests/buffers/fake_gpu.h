/* fake_gpu.h - a GPU that is none: memory from malloc, and events that happen when a test says so. */
#ifndef BEAMRING_TESTS_BUFFERS_FAKE_GPU_H
#define BEAMRING_TESTS_BUFFERS_FAKE_GPU_H

#include "buffers/gpu.h"

#include <stdatomic.h>

extern _Atomic bool fake_events_happen; /* all that are recorded, at once; else never */
extern bool fake_events_last;           /* what happened when it was recorded stays so */
extern int fake_record_status;          /* what recording an event returns */
extern void (*fake_on_record)(void *);  /* called while an event is recorded, once; may be NULL */
extern void *fake_on_record_arg;

#endif
