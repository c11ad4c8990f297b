/* format.h - the formats of recordings, and how they are read.
 *
 * A format is one folder of formats/ with one `struct format`. `probe` says whether a file is of it. Its
 * reader describes files: the stream that they make, and where the samples lie. Then it fills one frame after
 * the other, in time, without holes: samples that the files lack become missing samples. A reader knows
 * nothing of the stage that reads; it asks its caller (caller.h). */
#ifndef BEAMRING_FORMATS_FORMAT_H
#define BEAMRING_FORMATS_FORMAT_H

#include "formats/caller.h"
#include "formats/pieces/part.h"

/* Files in the order of their names; NULL-terminated copies in the caller's memory. */
struct file_list {
    size_t count;
    const char **path;
};

/* The user's choices for any reader; see the parameters of `replay`. */
struct read_options {
    const char *coding;     /* NULL: as the files say */
    uint64_t frame_samples; /* 0: the reader's choice */
    uint64_t passes;        /* 0: without end */
    double max_gap_s;
    struct part part;
    unsigned readers; /* threads that read; 0: the reader's choice */
    bool direct;      /* past the page cache */

    /* of one format each; never NULL */
    const struct vdif_options *vdif;
    const struct pcap_options *pcap;
};

/* What a reader says of the files. */
struct description {
    struct br_stream *stream; /* the reader's own: the caller may complete it before start */
    const char *time_from;    /* what the time of the first sample is by; may change until the first frame */
    size_t feed_bytes;        /* of a buffer, if frames can be made on a GPU; else 0 */
    unsigned feed_buffers;
    unsigned depth; /* frames that the caller's queue shall have; 0: as usual */
};

enum { READER_FRAME = 1, READER_FINISHED = 2 }; /* of fill */

struct reader {
    size_t size;    /* of the reader's own struct, which is `self` below and starts zeroed */
    unsigned takes; /* bits: which options it takes, of those below */
    /* Looks at all files and describes them; nothing stays open. `description` starts with `time_from` only
     * and lives as long as `self`. Status; errors are the caller's, mostly at the parameter `files`. */
    int (*describe)(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description);
    int (*start)(struct caller *caller, void *self);
    /* READER_FRAME, READER_FINISHED at the end, or a negative status. Does not allocate. */
    int (*fill)(struct caller *caller, void *self, struct br_frame *out);
    void (*stop)(struct caller *caller, void *self); /* after start, even one that failed */
};

/* What a reader takes. */
enum {
    READER_PARTS = 1,  /* `part`: the frequencies can be divided */
    READER_DIRECT = 2, /* `direct` */
    READER_ORDER = 4   /* `stream: order` */
};

struct format {
    const char *name;     /* in `format: NAME` */
    const char *sideband; /* where a file says which sideband it holds; NULL: nowhere */

    /* True for the first bytes of a file of it; NULL: it has no mark, and probe_file looks at a whole file: a
     * status, with the reason. */
    bool (*probe)(const void *start, size_t length);
    int (*probe_file)(const char *path, struct br_error *error);

    /* Says what a file holds: caller_fact; a status. */
    int (*info)(struct caller *caller, const char *path);

    /* The reader of its files; or `choose` says which. Neither: such files are not replayed. */
    const struct reader *reader;
    const struct reader *(*choose)(struct caller *caller, const struct file_list *files,
                                   const struct read_options *options);
};

/* "auto" and the names of all formats with a reader, with NULL at the end. */
extern const char *const format_names[];

/* The format of a file; NULL after an error at the parameter `files`. */
const struct format *format_recognise(struct caller *caller, const char *path);

/* A recording that has been described. */
struct reading {
    const struct format *format;
    const struct reader *reader;
    void *self;
    struct description description;
};

/* Describes files of the format `name`, completed and checked against `stream:` (hints.h), in the caller's
 * memory. Nothing stays open. Status; errors are the caller's. */
int format_open(struct caller *caller, const char *name, const struct file_list *files,
                const struct read_options *options, struct reading *reading);

#endif
