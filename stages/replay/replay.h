/* replay.h - what the stage `replay` and its readers share: the files, what the user wants of them, and a
 * reader's callbacks.
 *
 * A reader fills one output frame after the other, in time, without holes: what the files lack becomes
 * missing samples. replay.c chooses the reader; a frame goes from process() into the reader's fill() and
 * comes back filled. */
#ifndef BEAMRING_STAGES_REPLAY_H
#define BEAMRING_STAGES_REPLAY_H

#include "formats/common/gaps.h"
#include "formats/dada/recording.h"
#include "runtime/stage.h"
#include "stages/common/stage/pool.h"

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

/* `stream: sample0` against the first sample that a recording counts itself. */
int replay_check_first(struct br_stage *stage, const char *path, uint64_t first);

/* Bytes of the data of a DADA file of `bytes` bytes: those behind FILE_SIZE are left out, with a warning.
 * Errors are the stage's, at `files`. */
int replay_payload(struct br_stage *stage, const struct recording *recording, const char *path,
                   uint64_t bytes, uint64_t *payload);

/* The coding that a recording has by its own word `own`, against `coding` of the stage (option, or NULL)
 * and of `stream:`. */
int replay_coding(struct br_stage *stage, const char *path, const char *key, const char *own,
                  const char *option, enum coding *coding);

/* Number of samples so that a frame of rows of `row_bytes` has about 1 MiB, for recordings that do not say.
 */
uint64_t files_frame_samples(size_t row_bytes);

/* Whether frames of so many bytes do better without the caches: some of them are in a queue. */
bool files_are_far(size_t frame_bytes);

/* Which part of the recording's frequencies is replayed: `index` of `count`. count = 1: all of them. */
struct part {
    uint64_t index, count;
};

/* "R/N", or NULL for all. Errors: no two numbers, R not below N. */
int part_parse(struct br_stage *stage, const char *text, struct part *part);

/* The part's share: bands [begin, end) in the order in which they are joined, or channels of the only one. */
struct share {
    size_t begin, end;
    bool of_channels;
};

/* Errors: more parts than bands, or than channels of the only band. `path`: a file, for the message. */
int part_divide(struct br_stage *stage, const struct part *part, const char *path, size_t bands,
                size_t channels, struct share *share);

/* About how many of all channels the largest part has: frames are of the same length for all parts. */
size_t part_most_channels(const struct part *part, size_t channels);

/* What the user wants of the reader, whatever it is; see the stage's parameters. */
struct replay_options {
    const char *coding; /* NULL: what the files say */
    const struct br_ints *threads;
    const struct br_strings *bands;
    uint64_t frame_samples; /* 0: the reader's choice */
    uint64_t passes;        /* 0: without end */
    double max_gap_s;
    struct part part;
    unsigned readers;                   /* threads that read; 0: the reader's choice */
    bool direct;                        /* past the page cache */
    const char *packet, *values, *real; /* of packets, see `capture` */
    const struct br_ints *sources, *streams;
    const char *start_utc;  /* of packets: when they began; NULL: by the file */
    const char **time_from; /* the reader says there what the time of the first sample is by */
};

/* A reader. `self` is a zeroed struct of its own, that begins with the struct br_stream that configure
 * describes. */
struct replay_reader {
    /* Looks at all files, describes the stream, opens nothing that stays open. */
    int (*configure)(struct br_stage *stage, void *self, const struct file_list *files,
                     const struct replay_options *options);
    int (*start)(struct br_stage *stage, void *self);
    /* BR_PRODUCED, BR_FINISHED at the end, or a failure. */
    int (*fill)(struct br_stage *stage, void *self, struct br_frame *out);
    /* After start, even one that failed. */
    void (*stop)(struct br_stage *stage, void *self);
};

extern const struct replay_reader replay_dada;    /* struct dada_reader */
extern const struct replay_reader replay_bands;   /* struct extents: DADA files of different channels */
extern const struct replay_reader replay_vdif;    /* struct vdif_reader */
extern const struct replay_reader replay_chime;   /* struct extents */
extern const struct replay_reader replay_guppi;   /* struct extents */
extern const struct replay_reader replay_kotekan; /* struct extents: the electric field */
extern const struct replay_reader replay_arrays;  /* struct kotekan_arrays: kotekan's other arrays */

/* One file of a DADA recording. */
struct segment {
    const char *path;
    uint64_t payload_offset;
    uint64_t first; /* base sample at the start of the payload */
    /* base samples delivered from this file: later than `first` where an earlier file reaches over it */
    uint64_t begin, end;
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
    bool direct, fd_direct; /* wanted; what the open file is */
    bool told;              /* that they are not the same */
    unsigned nthreads;      /* that read */
    struct pool *pool;
    struct br_feed *feed;    /* NULL: frames are in the host's memory */
    struct br_frame scratch; /* of a file whose first frame an earlier file covers in part */
    bool needs_scratch;
};

/* Locked memory that the reader takes when it writes frames on a GPU. */
size_t dada_feed_bytes(const struct dada_reader *reader);

#endif
