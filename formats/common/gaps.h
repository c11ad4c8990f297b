/* gaps.h - the sidecar FILE.gaps of a recording: which samples are missing or partly valid.
 *
 * Text, sorted by the first number, # starts a comment:
 *     FIRST COUNT                              base samples [FIRST, FIRST + COUNT) are missing in all
 * channels FIRST COUNT CHANNEL NCHANNELS WEIGHT     their validity is WEIGHT (0 missing ... 255 complete) in
 * these channels A line covers every time step that its base samples touch. Steps without a line are
 * complete.
 */
#ifndef BEAMRING_FORMATS_COMMON_GAPS_H
#define BEAMRING_FORMATS_COMMON_GAPS_H

#include "buffers/frame.h"

struct gap {
    uint64_t first, count;
    uint32_t channel, nchannels;
    uint8_t weight;
    uint64_t reach; /* the furthest end of this line and all before it: lets a search stop */
};

struct gaps {
    struct gap *gap; /* [count], sorted by first */
    size_t count;
};

/* Reads the file at `path`; one that does not exist is an empty list. Free with gaps_free.
 * Errors: BR_E_IO, BR_E_FORMAT as "path:line: ...", BR_E_NO_MEMORY. */
int gaps_read(struct gaps *gaps, const char *path, size_t nchannels, struct br_error *error);

/* The same for a text in memory, named `path` in messages. */
int gaps_parse(struct gaps *gaps, const char *path, const char *text, size_t length, size_t nchannels,
               struct br_error *error);
void gaps_free(struct gaps *gaps);

/* True when some line touches base samples [first, first + samples). */
bool gaps_touch(const struct gaps *gaps, uint64_t first, uint64_t samples);

/* Sets the validity of all steps of the frame that lines touch, within base samples [from, to). `shift` is
 * added to the samples of the lines (a recording played again); it is a multiple of every time step, and
 * `from` is not below it. The frame must not be marked complete (br_frame_open_validity). */
void gaps_apply(const struct gaps *gaps, const struct br_stream *stream, struct br_frame *frame,
                uint64_t shift, uint64_t from, uint64_t to);

/* Calls `line(arg, gap)` for each line that describes the validity of one frame, sorted; stops at the first
 * result that is not 0 and returns it. Steps that agree in all channels share lines. Needs scratch of 2 bytes
 * per channel. */
int gaps_describe(const struct br_stream *stream, const struct br_frame *frame, uint8_t *scratch,
                  int (*line)(void *arg, const struct gap *gap), void *arg);

enum { GAPS_LINE = 96 };

/* One line of text with its newline into a buffer of GAPS_LINE; returns its length. nchannels 0 means all. */
size_t gaps_format(char *buffer, const struct gap *gap);

#endif
