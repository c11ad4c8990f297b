/* kotekan_arrays.h - replays kotekan's frames of other arrays than the field as the F-engine gives it; see
 * kotekan_array.h. Frames of one node: the channels of all files are the same. They are cut anew, and what
 * lacks between them is missing. */
#ifndef BEAMRING_FORMATS_KOTEKAN_KOTEKAN_ARRAYS_H
#define BEAMRING_FORMATS_KOTEKAN_KOTEKAN_ARRAYS_H

#include "formats/kotekan/kotekan_array.h"
#include "formats/pieces/framed.h"

struct kotekan_arrays {
    struct framed framed;
    struct kotekan_array like; /* how all frames are made, but for the number of steps */
    size_t room;               /* of framed.block while frames are found */
};

/* True when the first file's first frame is no plain electric field, so that kotekan_arrays_reader reads it
 * or says what it is. */
bool kotekan_arrays_are(const char *path);

extern const struct reader kotekan_arrays_reader; /* with a struct kotekan_arrays */

/* Reads the headers of all frames of a raw file into `frame`, one after another, and calls take(self, file)
 * for each; a header that the file's end cuts is left out with a warning. Status of the first failure. */
struct kotekan_frame;
int kotekan_each_frame(struct caller *caller, const char *path, struct kotekan_frame *frame,
                       int (*take)(void *self, size_t file), void *self, size_t file);

int kotekan_info(struct caller *caller, const char *path);

#endif
