/* vdif_reader.h - VDIF recordings: frames of single threads, in roughly the order of their times, into
 * E[time][freq][pol][dish].
 *
 * A thread is an element: a polarisation of a dish, in one band of the frequencies. Files that share threads
 * follow each other and form a lane; lanes run side by side, joined by the times in the frames' headers. All
 * VDIF frames are of one size and hold `spread` samples, so that time is a row of slots of that many samples,
 * counted from the first one; a frame is one element of one slot.
 *
 * Files are read in windows of whole frames, kept in a ring for each lane: headers are looked at in order,
 * some frames ahead of what is handed on, so that threads that lag behind and frames that changed places
 * still find their time; the payloads then go to their places from the same windows, by several threads.
 * While one frame is handed on and the headers of the next are looked at, the others read the windows of the
 * one after it. */
#ifndef BEAMRING_FORMATS_VDIF_VDIF_READER_H
#define BEAMRING_FORMATS_VDIF_VDIF_READER_H

#include "formats/format.h"
#include "formats/pieces/pool.h"
#include "formats/vdif/vdif.h"

/* The user's choices for VDIF only; see the parameters of `replay`. */
struct vdif_options {
    struct {
        size_t count;
        const int64_t *value;
    } threads;
    struct {
        size_t count;
        const char *const *value;
    } bands;
};

struct vdif_file {
    const char *path;
    uint64_t bytes;
    uint64_t frames; /* counting a truncated one with a whole sample */
    uint32_t tail;   /* samples of the last one */
    uint16_t band;
    uint32_t lane;
    uint64_t window; /* in its lane, of its first frame */
};

struct vdif_window {
    uint64_t number; /* in its lane; UINT64_MAX: empty */
    uint8_t *room, *bytes;
    int status; /* of reading it */
    struct br_error error;
};

struct vdif_lane {
    size_t nfiles, elements; /* elements that its files have */
    size_t *file;            /* [nfiles] in the order of their times */
    uint64_t begin;          /* base sample of its first frame */
    /* the ring */
    uint64_t windows;       /* of one pass */
    uint32_t window_frames; /* VDIF frames in a window */
    uint32_t depth;         /* windows in memory */
    uint32_t need;          /* windows that one frame of the stream takes */
    uint8_t *memory;
    struct vdif_window *window; /* [depth]; number n is in n % depth */
    uint64_t asked;             /* windows of the pass below this one are read, or were, or are being read */
    uint64_t ready;             /* none below this one is being read */
    uint64_t oldest;            /* window that is still needed of those seen */
    /* where it is */
    size_t at;               /* of its files */
    uint64_t frame;          /* of that file */
    uint64_t here;           /* its window, ... */
    uint32_t in_window;      /* ... and place there */
    struct vdif_window *now; /* that window, after the first frame of it */
    uint64_t last_end;       /* base sample after the last one seen, of one pass */
    size_t ahead, ahead_room;
    int fd;
    size_t fd_file;
};

/* A VDIF frame whose header was seen. */
struct vdif_seen {
    uint64_t window;
    uint64_t slot;  /* of the pass */
    uint32_t frame; /* in the window */
    uint32_t samples;
    uint32_t element;
    uint32_t lane;
    bool invalid;
};

/* One element of one slot that is being placed. */
struct vdif_cell {
    uint64_t window;
    uint32_t samples; /* 0: nothing there */
    uint32_t frame : 31, invalid : 1;
    uint32_t lane;
};

enum { VDIF_UNKNOWN_THREAD = UINT16_MAX };

struct vdif_reader {
    struct br_stream stream;
    size_t nfiles;
    struct vdif_file *file; /* in the order of their times */
    struct vdif_header like;
    size_t nchannels;        /* of a thread */
    size_t unit;             /* bytes of a complex number: 1, or 2 of 8 + 8 bits */
    size_t pols;             /* the channels of a thread are as many polarisations of one channel; else 1 */
    size_t skipped, kept;    /* of these, those before the ones that are wanted, and the wanted ones */
    size_t nbands, elements; /* of a band: [pol][dish] */
    /* [VDIF_MAX_THREADS] place among all elements, [band][pol][dish]; of those of a file's band, where
     * files have bands */
    uint16_t *element_of;
    uint64_t rate;             /* base samples per second */
    size_t spread;             /* samples in a VDIF frame */
    uint32_t shared[4];        /* what all frames have in common: see vdif_windows.c */
    int64_t number0;           /* of the first frame, in its second, ... */
    int64_t second_frames;     /* ... which has so many frames */
    uint32_t second0;          /* second from which samples are counted, as in the headers, ... */
    int64_t sample_of_second0; /* ... and the base sample at its start (may be below 0) */
    uint64_t first, passes, max_gap;
    size_t nlanes;
    struct vdif_lane *lane;
    unsigned threads;

    /* while running */
    uint64_t pass, shift, cursor;
    struct vdif_seen *ahead; /* a ring would not do: they leave in any order */
    size_t nahead;
    struct vdif_cell *cell; /* [slots of a frame][nbands][elements] */
    uint64_t lost[3];       /* thread-samples not counted yet, by reason */
    uint64_t bad_frames, jumped;
    struct pool *pool;

    /* of the round */
    struct br_frame *out;
    uint64_t begin, end; /* base samples that are placed */
    uint64_t slot;       /* of cell[0] */
    uint64_t rows;       /* samples in a piece of work */
    bool far;            /* frames are written past the caches */
    size_t nplaces;      /* pieces */
    struct vdif_load {
        uint32_t lane;
        uint64_t window;
    } * load; /* windows to read */
    size_t nloads, loads_room;
    bool loading;          /* they are being read, in the background */
    struct br_error error; /* the first one of a piece */
    int failed;
};

/* The reader's start, fill and stop (struct reader's), in vdif_frames.c. */
int vdif_reader_start(struct caller *caller, void *self);
int vdif_reader_fill(struct caller *caller, void *self, struct br_frame *out);
void vdif_reader_stop(struct caller *caller, void *self);

/* Counts samples of one element as lost. */
void vdif_count(struct caller *caller, struct vdif_reader *r, enum caller_loss reason, uint64_t samples);

/* Which threads a file has. */
struct vdif_threads {
    uint64_t bit[VDIF_MAX_THREADS / 64];
};

/* --- windows: vdif_windows.c ---------------------------------------------------------------------- */

int vdif_windows_start(struct caller *caller, struct vdif_reader *r);
void vdif_windows_stop(struct vdif_reader *r);

/* The next frame of a lane: VDIF_FRAME, *frame is one that makes sense; VDIF_OTHER, it is not wanted or
 * corrupt (the caller comes back); VDIF_OVER, nothing more in this pass; negative: a failure. */
enum { VDIF_FRAME, VDIF_OTHER, VDIF_OVER };
int vdif_next(struct caller *caller, struct vdif_reader *r, uint32_t lane, struct vdif_seen *frame);

/* Begins to read, in the background, the windows that the frame of the stream after the next one will need,
 * as far as there is room for them. Nothing else may be going on. */
void vdif_look_ahead(struct vdif_reader *r);

/* Waits until no window is being read. */
void vdif_settle(struct vdif_reader *r);

/* Reads the listed window. For any thread. */
void vdif_load(struct vdif_reader *r, size_t load);

/* A job of the round: loads first, then pieces of the frame. */
void vdif_work(void *reader, size_t job, void *scratch);

/* Payload bytes [from, from + length) of a frame: from its window, else read into `room`. NULL: failed. For
 * any thread. */
const uint8_t *vdif_payload(struct vdif_reader *r, const struct vdif_cell *cell, size_t from, size_t length,
                            uint8_t *room, struct br_error *error);

/* Begins the next pass. */
void vdif_rewind(struct vdif_reader *r);

extern const struct format format_vdif;

int vdif_info(struct caller *caller, const char *path);

#endif
