/* extents.h - recordings whose headers are few and whose samples lie in large regular pieces: kotekan's raw
 * frames, GUPPI RAW blocks, CHIME baseband files. They become E[time][freq][pol][dish].
 *
 * An extent is one such piece: some samples of some channels. Extents of the same channels form a track;
 * tracks lie side by side along frequency, each with its own start, end and holes. A format's reader finds
 * the extents when the pipeline is configured; all the rest happens here. */
#ifndef BEAMRING_FORMATS_PIECES_EXTENTS_H
#define BEAMRING_FORMATS_PIECES_EXTENTS_H

#include "formats/chime/chime_hdf5.h"
#include "formats/common/coding.h"
#include "formats/common/gaps.h"
#include "formats/format.h"
#include "formats/pieces/pool.h"

struct extent {
    size_t file;
    uint64_t offset;     /* of its first sample in the file, bytes */
    uint64_t first, end; /* base samples */
    uint64_t begin;      /* delivered from here on: an earlier extent reaches over what is before */
    uint32_t channel, nchannels;
    uint64_t stride_time, stride_freq, stride_pol, stride_dish; /* bytes in the file */
    const struct chime_chunks *chunks; /* NULL: the bytes are in the file as they are */
    const struct gaps *gaps; /* samples that are marked otherwise, in channels of the stream; or NULL */
    bool overlap_meant;      /* the format repeats samples on purpose: not counted as duplicate */
};

struct extents {
    struct br_stream stream;
    enum coding coding;
    /* rows: time steps, of one base sample each but in flat recordings; cell: one channel of a row */
    size_t npol, ndish, element_bytes, cell_bytes, row_bytes;
    bool flat; /* any array whose rows lie one after the other in the files, of one track */
    uint8_t missing_byte;
    bool direct; /* past the page cache, where the file system can */
    struct file_list files;
    size_t count, room;
    struct extent *extent; /* sorted by channel, then time */
    size_t ntracks;
    struct track {
        size_t extent, count; /* its extents */
        size_t at;            /* the next one, counted from `extent` */
    } * track;
    bool has_gaps;        /* some extent has */
    bool has_chunks;      /* some extent has */
    bool all_there;       /* extents cover all of the frame that is being filled */
    bool far;             /* frames are written past the caches */
    uint64_t first, last; /* base samples of one pass; last is exclusive */
    uint64_t period;      /* by which a pass follows the one before: whole rows */
    uint64_t passes;
    unsigned threads;

    /* while running */
    uint64_t pass, cursor;
    uint64_t duplicates; /* channel-samples not counted yet */
    int *fd;             /* [files], -1: closed */
    bool *fd_direct;     /* [files] open for direct reads */
    bool told;           /* that they are not, though wanted */
    unsigned nthreads;
    uint64_t *needed; /* [files] end of its last extent */
    size_t nopen;
    size_t *open; /* [files] indices of open files */
    struct pool *pool;
    struct chime_stop *stop; /* [extents] in whose chunk reading goes on */
    struct piece *piece;
    size_t npieces, pieces_room;
    struct br_frame *out;
    struct br_error error; /* the first one of a piece */
    int failed;
};

/* Sorts and joins what the caller has filled in: coding, npol, ndish, element_bytes, files, extents, passes,
 * threads, and of the stream everything but the array, frame_samples and zones; then leaves what is of the
 * part that is wanted. `row_samples`: samples that are cheap to read at once (a chunk), or 0. Errors: two
 * extents that have some, not all channels in common; holes longer than max_gap_s; more parts than bands. */
int extents_configure(struct caller *caller, struct extents *e, const struct read_options *options,
                      uint64_t row_samples);

/* The second half of it, for extents whose stream is complete: sorts and joins. */
int extents_join(struct caller *caller, struct extents *e, double max_gap_s);

/* Keeps the tracks of a part, or some channels of the only track. Joined tracks stay whole. */
int extents_take_part(struct caller *caller, struct extents *e, const struct part *part);

/* A reader whose `self` is a struct extents: what is its own is how it describes files. */
int extents_start(struct caller *caller, void *self);
int extents_fill(struct caller *caller, void *self, struct br_frame *out);
void extents_stop(struct caller *caller, void *self);
#define EXTENTS_READER(own_describe, options)                                                                \
    {                                                                                                        \
        .size = sizeof(struct extents), .takes = options, .describe = own_describe, .start = extents_start,  \
        .fill = extents_fill, .stop = extents_stop                                                           \
    }

/* The channels of one file: those of one node, or one of many. Files of one observation have the same ones or
 * quite others. */
struct channel_group {
    size_t n;
    int64_t *id;      /* [n] what tells channels apart: a channel number, or hertz */
    double *mhz;      /* [n] centres */
    uint32_t channel; /* of the first one in the stream, once all are known */
};

struct channel_groups {
    size_t count, room;
    struct channel_group *group;
};

/* The group of these channels, added if it is new: its index, for extent.channel until channels_join. */
size_t channels_add(struct caller *caller, struct channel_groups *groups, size_t n, const int64_t *id,
                    const double *mhz);

/* Where a format's headers say frequencies and widths, as messages name it, and to what precision. INFINITY:
 * they do not, what is known is a convention, and `stream:` goes before it. */
struct channel_words {
    const char *freq_key, *width_key;
    double width_mhz, freq_precision, width_precision;
};

/* Puts the groups side by side in the order of their first ids, into the stream's channel table, and replaces
 * the group indices in the extents by channels. `stream:` must agree (hints.h). Errors: groups with
 * some channels in common; frequencies that are not above 0; another number of channels than the user's. */
int channels_join(struct caller *caller, struct extents *e, struct channel_groups *groups,
                  const struct channel_words *words);

/* Number of dishes from `elements` inputs, with the user's npol and the telescope. Errors when they disagree.
 */
int extents_elements(struct caller *caller, const char *file, size_t elements, size_t npol_found,
                     size_t *npol, size_t *ndish);

/* How the bytes of an extent lie: all inputs of a channel's sample side by side; and all channels of a
 * sample, too (other channels may lie between one sample and the next). */
bool extent_is_contiguous(const struct extents *e, const struct extent *x); /* rows as in the frame */
bool extent_cell_is_whole(const struct extents *e, const struct extent *x);
bool extent_is_row_wise(const struct extents *e, const struct extent *x);

/* --- within the reading of extents ------------------------------------------------------------------ */

enum {
    EXTENTS_PLANE_PAD = 64,   /* bytes between planes, so that they do not meet in the same sets of a cache */
    EXTENTS_PLANES = 16,      /* channels of a plane-wise piece: of 4 bytes, a cache line */
    EXTENTS_PLANE = 64 << 10, /* bytes of each that are read at once */
    EXTENTS_PAGE = 4096,      /* the kernel copies fastest between equal places in a page */
    EXTENTS_PIECE = 256 << 10 /* bytes of the frame that make a piece of work */
};

/* Some samples of an extent, for one thread. */
struct piece {
    size_t extent;
    uint64_t from, to;           /* base samples of the files; of a contiguous extent, bytes */
    uint64_t row;                /* of the output frame, of `from`; or the byte of its data */
    uint32_t channel, nchannels; /* of the extent */
    struct chime_stop stop;      /* where an earlier piece of it ended */
};

/* Reads e->piece[job]; of pool.h. A failure is noted in e, the first one with its message. */
void extents_read_piece(void *arg, size_t job, void *scratch);

/* Samples of channels that do not lie as in the stream. */
int extents_read_planes(struct extents *e, const struct piece *p, uint8_t *scratch, struct br_error *error);

/* How many channels a piece of such an extent has at most. */
uint32_t extents_across(const struct extents *e, const struct extent *x);

/* Bytes of one cell after the other, `pitch` apart, from the file's coding to ours; marks cells in which
 * nothing was written. */
void extents_put_cells(const struct extents *e, const uint8_t *in, size_t in_pitch, uint8_t *out,
                       size_t out_pitch, size_t bytes, size_t n, uint8_t *valid, size_t valid_pitch);

/* Room for one more extent of a list that grows while files are looked at; NULL without memory. */
struct extent *extents_add(struct extents *e);

#endif
