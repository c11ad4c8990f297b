/* epoch.h - the time of base sample 0, from the F-engine's controller: GET URL answers {"frame0_nano":
 * nanoseconds}, or {"error": text}. */
#ifndef BEAMRING_STAGES_CAPTURE_EPOCH_H
#define BEAMRING_STAGES_CAPTURE_EPOCH_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Asks once. Errors: BR_E_IO when nobody answers in time, BR_E_FORMAT for another answer. */
int epoch_ask(const char *url, int64_t *epoch_ns, struct br_error *error);

/* Asks again and again in a thread of its own. */
struct epoch_watch;
int epoch_watch_start(struct epoch_watch **watch, const char *url, int64_t epoch_ns, struct br_error *error);

/* Asks at once, beside the regular times. The result is for epoch_watch_asked, which is true when an attempt
 * that began after this call has ended: within some seconds, with an answer or without. */
uint64_t epoch_watch_hurry(struct epoch_watch *watch);
bool epoch_watch_asked(const struct epoch_watch *watch, uint64_t enough);

/* The latest answer; *failures counts attempts that brought none. */
int64_t epoch_watch_latest(const struct epoch_watch *watch, uint64_t *failures);
void epoch_watch_stop(struct epoch_watch *watch); /* NULL is allowed */

#endif
