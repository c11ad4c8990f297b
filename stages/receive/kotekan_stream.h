/* kotekan_stream.h - what `receive` is told to expect of kotekan, and whether a frame is that. */
#ifndef BEAMRING_STAGES_RECEIVE_KOTEKAN_STREAM_H
#define BEAMRING_STAGES_RECEIVE_KOTEKAN_STREAM_H

#include "formats/kotekan/kotekan_array.h"
#include "stages/receive/receive.h"

/* Describes the output by `array`, `nbeams`, `factor`, `downsample`, the telescope and `stream:`. Status. */
int kotekan_configure(struct br_stage *stage, struct receive *r);

/* True for E as the F-engine gives it, which comes in rows of a sample. */
bool kotekan_is_plain(const struct br_stream *stream);

/* The mistake in the frame that the metadata describes; NULL: none. For E as the F-engine gives it,
 * and for other arrays, whose frames come in steps of several samples. */
const char *kotekan_unlike_plain(const struct br_array *wanted, const struct chord_metadata *metadata);
const char *kotekan_unlike(const struct br_stream *wanted, const struct kotekan_array *array);

#endif
