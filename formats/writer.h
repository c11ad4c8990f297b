/* writer.h - one interface for all that write a stream into files: DADA recordings, which say everything, and
 * the electric field as kotekan's raw frames, CHIME baseband files, GUPPI RAW and VDIF.
 *
 * A format that cannot say all of a stream names what would be lost, and refuses it unless the user wants it
 * (`lossy`): writer_refuses finds what the stream's description shows, writer_put the rest.
 *
 * The calls come in this order: writer_refuses, writer_open, writer_put for each frame, writer_close. All
 * return a status; the message is in file_writer.error. writer_close follows writer_open even if that failed,
 * and completes what can be completed after any failure. One thread at a time uses a writer. */
#ifndef BEAMRING_FORMATS_WRITER_H
#define BEAMRING_FORMATS_WRITER_H

#include "buffers/error.h"
#include "buffers/frame.h"
#include "formats/common/text.h"
#include "formats/sky/apparent.h"

#include <stdbool.h>
#include <stdio.h>

enum { WRITER_PATH = 2048, WRITER_UPDATES = 2048 };

struct file_writer;

struct writer_format {
    const char *name, *suffix; /* of `format:`, and of the files: PREFIX_NNNNNNN.suffix */
    size_t size;               /* bytes of its state */
    bool everything;           /* takes any stream, and says all of it */
    bool wide;                 /* takes int8x2 as well */
    bool arrays;               /* takes other arrays than the electric field; `refuses` says which */
    bool only_receipts;        /* writes no samples: which packets came */
    bool says_missing;         /* a sample that is missing in all inputs of a channel */
    bool says_missing_rows;    /* a sample that is missing in all inputs of all channels */
    bool says_sideband;        /* which one the channels hold */
    /* Names what would be lost (writer_loses), and notes what a reader must be told (writer_note). NULL: it
     * refuses nothing. */
    int (*refuses)(struct file_writer *w);
    int (*open)(struct file_writer *w); /* NULL: nothing to do */
    int (*put)(struct file_writer *w, const struct br_frame *frame);
    int (*close)(struct file_writer *w); /* NULL: nothing to do */
};

/* A writer whose state is a `struct own_state`, with the file's `put`; then any other fields. */
#define WRITER_FORMAT(own_name, own_suffix, own_state, ...)                                                  \
    {                                                                                                        \
        .name = own_name, .suffix = own_suffix, .size = sizeof(struct own_state), .put = put, __VA_ARGS__    \
    }

extern const struct writer_format dada_files, kotekan_files, guppi_files, chime_files, vdif_files,
    sources_files;

/* The format called `name`, or NULL. */
const struct writer_format *writer_format_of(const char *name);

/* Whoever has a writer. Functions that are NULL are not called. */
struct writer_host {
    void *owner;
    void (*note)(void *owner, const char *text);
    /* Brackets what may wait for a disk: true before, false after it. In between the writer touches nothing
     * but its own memory. Returns false when nobody wants the file any more; the writer then ends with
     * BR_E_STOPPED. */
    bool (*disk)(void *disk_owner, bool there);
    void *disk_owner;
    /* The updates that data are made with, as text for headers: those that hold at base sample `first` or
     * begin before `end`; and those that begin in [first, end). Both return the text's length, and write at
     * most `size` bytes with the final zero. */
    size_t (*held)(void *owner, uint64_t first, uint64_t end, char *text, size_t size);
    size_t (*begun)(void *owner, uint64_t first, uint64_t end, char *text, size_t size);
    size_t updates_room; /* bytes that a header keeps for them, at most WRITER_UPDATES; 0: there are none */
};

/* Where an event comes from, when it begins. NAN: not known. */
struct writer_direction {
    bool known;
    char name[64]; /* of the source; "": none */
    double azimuth_deg, altitude_deg, ra_deg, dec_deg;
};

/* A part of a stream that is cut out into one file: its name and span are known before its data come. Samples
 * of the span that do not come are missing in the file. */
struct writer_window {
    const char *path;    /* of the file while it is written */
    const char *name;    /* the path that it will have; .gaps stands beside that one */
    uint64_t first, end; /* base samples, multiples of the time step */
    int64_t number;      /* of its channel */
    uint64_t event;      /* which event it is of, */
    double dm, dm_error; /* and along which sweep: pc cm^-3, */
    double ref_mhz;      /* infinite: none */
    struct writer_direction direction;
    const size_t *dish; /* [ndishes] the stream's dishes that are in the file, of `all_dishes`; */
    size_t ndishes;     /* 0: all of them */
    size_t all_dishes;
};

struct file_writer {
    const struct writer_format *format;
    const struct br_stream *stream; /* of the frames */
    struct writer_host host;
    void *state; /* [format->size] zeros at first; the caller's */

    /* options */
    const char *directory, *prefix;
    bool lossy, overwrite;
    bool int4p4chime;                   /* kotekan: the coding of the electric field */
    uint64_t vdif_samples;              /* in a VDIF frame; 0: as few as can be */
    const char *vdif_station;           /* id of the station in VDIF headers; NULL: 0 */
    uint64_t file_bytes;                /* DADA: data after which a new file is begun; 0: never */
    const struct apparent_site *site;   /* of the telescope; NULL: not known */
    const struct writer_window *window; /* DADA, CHIME; NULL: a recording of all that comes */

    /* results */
    struct br_error error;
    const char *at;    /* the option that an error is about, or NULL */
    char losses[768];  /* what of the description is lost, "; " before each */
    uint64_t files;    /* that were begun */
    uint64_t samples;  /* base samples of frames that came */
    uint64_t lacking;  /* base samples of the window that did not come */
    uint64_t unmarked; /* channel-samples whose validity the format cannot say */
    uint64_t changed;  /* bytes of samples whose value it cannot say */
    uint64_t frames;   /* that were written */
    uint64_t first;    /* base sample of the first frame */
    uint64_t next;     /* the window's first sample that has not come yet */
    bool opened, started;

    /* for the formats */
    size_t ndish, npol, nchannels, cell; /* cell: bytes of a channel's sample */
    uint8_t *bytes;                      /* [bytes_room] of a frame, in the format's order */
    size_t bytes_room;
    char path[WRITER_PATH];
};

/* Whether the format takes such a stream at all, whatever may be lost. Errors: BR_E_INVALID. */
int writer_takes(const struct writer_format *format, const struct br_stream *stream, struct br_error *error);

int writer_refuses(struct file_writer *w);
int writer_open(struct file_writer *w);
int writer_put(struct file_writer *w, const struct br_frame *frame);
int writer_close(struct file_writer *w);

/* --- for the formats ----------------------------------------------------------------------------- */

/* Refuses the stream because of an option (or NULL). Returns BR_E_INVALID. */
#define writer_refuse(w, option, ...) ((w)->at = (option), br_fail(&(w)->error, BR_E_INVALID, __VA_ARGS__))

/* Adds to what would be lost. */
#define writer_loses(w, ...) text_append((w)->losses, sizeof(w)->losses, "; " __VA_ARGS__)

void writer_note(struct file_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "cannot WHAT PATH: why", an errno; BR_E_IO, or BR_E_STOPPED for ECANCELED. */
int writer_failed(struct file_writer *w, const char *what, const char *path, int why);
int writer_no_memory(struct file_writer *w, size_t bytes);

/* Makes w->bytes as large. False: w->error. */
bool writer_room(struct file_writer *w, size_t bytes);

/* PREFIX_NNNNNNN.suffix, in w->path; and whether it may be made: an earlier file is replaced only with
 * `overwrite`. Errors: BR_E_IO. */
const char *writer_path(struct file_writer *w, uint64_t number);
int writer_name(struct file_writer *w, uint64_t number);

/* Makes that file, and counts it. NULL: w->error. */
FILE *writer_stream(struct file_writer *w, uint64_t number);

/* Closes that file, with what is still to be written of it. After a failure, `why` (an errno; 0: so far all
 * is well) or now, the file is cut back to the blocks of `unit` bytes that are whole, and the message says
 * how many `blocks`; without one it goes. Errors: BR_E_IO. */
int writer_end_stream(struct file_writer *w, FILE *file, uint64_t unit, const char *blocks, int why);

/* Makes the window's file with room for `bytes`, so that a full disk is known now. The descriptor, or -1:
 * w->error. */
int writer_reserve(struct file_writer *w, uint64_t bytes);

/* To the disk, and back (writer_host.disk), with the errno of what was done there. Returns that, or ECANCELED
 * when nobody wants the file any more. */
void writer_to_disk(const struct file_writer *w);
int writer_from_disk(const struct file_writer *w, int why);

#endif
