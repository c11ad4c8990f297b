/* replay.h - the two readers behind the stage `replay`.
 *
 * A reader fills one output frame after the other, in time, without holes: what the files lack becomes
 * missing samples. */
#ifndef BEAMRING_STAGES_REPLAY_H
#define BEAMRING_STAGES_REPLAY_H

#include "runtime/stage.h"
#include "stages/common/formats/gaps.h"
#include "stages/common/formats/recording.h"
#include "stages/replay/pool.h"

/* Files in the order of their names; NULL-terminated copies in the pipeline's memory. */
struct file_list {
    size_t count;
    const char **path;
};

/* Expands names and glob patterns. A pattern without a match is an error at the parameter `files`. */
int files_expand(struct br_stage *stage, const struct br_strings *patterns, struct file_list *list);

/* Reads exactly `length` bytes. Errors: BR_E_IO, with the file's name. */
int files_read(struct br_stage *stage, int fd, const char *path, void *buffer, size_t length,
               uint64_t offset);

/* The same for any thread: the message goes to `error`. */
int files_pread(int fd, const char *path, void *buffer, size_t length, uint64_t offset,
                struct br_error *error);

/* Number of samples so that a frame of rows of `row_bytes` has about 1 MiB, for recordings that do not say.
 */
uint64_t files_frame_samples(size_t row_bytes);

/* Whether frames of so many bytes do better without the caches: some of them are in a queue. */
bool files_are_far(size_t frame_bytes);

/* One file of a DADA recording. */
struct segment {
    const char *path;
    uint64_t payload_offset;
    uint64_t first;      /* base sample at the start of the payload */
    uint64_t begin, end; /* base samples delivered from this file: later than `first` where an earlier file
                            reaches over it */
    struct gaps gaps;
};

struct dada_reader {
    struct br_stream stream;
    enum coding coding;
    bool flat;
    size_t row_bytes;
    uint8_t missing_byte;
    size_t count;
    struct segment *segment;
    uint64_t first, end; /* base samples of one pass */
    uint64_t period;     /* by which a pass follows the one before */
    uint64_t passes;     /* 0: without end */
    /* while running */
    uint64_t pass, cursor;
    size_t at;    /* segment */
    bool counted; /* the overlap of the segment `at` is counted */
    int fd;
    size_t fd_segment;
    unsigned threads;
    struct pool *pool;
    struct br_frame scratch; /* of a file whose first frame an earlier file covers in part */
    bool needs_scratch;
};

int dada_reader_configure(struct br_stage *stage, struct dada_reader *reader, const struct file_list *files,
                          const char *coding, uint64_t frame_samples, uint64_t passes, double max_gap_s,
                          unsigned threads);
int dada_reader_start(struct br_stage *stage, struct dada_reader *reader);
int dada_reader_fill(struct br_stage *stage, struct dada_reader *reader, struct br_frame *out);
void dada_reader_stop(struct dada_reader *reader);

#endif
