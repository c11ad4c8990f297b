/* recording.h - a stream's description as the header of a DADA file, and back.
 *
 * THE PAYLOAD. With time slowest and one zone table for all, it is time step after time step ("flat").
 * Otherwise it is a sequence of frames, each row-major with its own number of steps: frames end at multiples
 * of FRAME_SAMPLES in the base counter, so that only the first and the last one of a file can be shorter, and
 * SAMPLE0 and SAMPLES say how much. A side array stands behind the data of each frame. */
#ifndef BEAMRING_FORMATS_DADA_RECORDING_H
#define BEAMRING_FORMATS_DADA_RECORDING_H

#include "buffers/frame.h"
#include "buffers/hints.h"
#include "formats/common/axis_order.h"
#include "formats/common/coding.h"
#include "formats/dada/dada.h"

/* Zeroed memory that outlives the descriptions made in it; never NULL. */
struct recording_memory {
    void *(*alloc)(void *owner, size_t bytes);
    void *owner;
};

/* The contents of a header, completed from the pipeline. */
struct recording {
    struct br_stream stream;
    enum coding coding; /* of the payload; the stream is always int4x2 if this is not CODING_INT4X2 */
    bool own;           /* written by `record`: carries our keys */
    bool flat;          /* see above; then row_bytes is the size of a time step */
    size_t row_bytes;
    bool plain; /* [time][freq][pol][dish] as the stream is; else `order` says how, always flat */
    struct axis_order order; /* of files of others */
    const char *freq_key;    /* where the frequencies stand, and to what precision */
    double freq_precision;   /* MHz */
    uint64_t first;          /* base sample at the start of the payload */
    uint64_t samples;        /* SAMPLES; 0 when the writer did not come to it */
    uint64_t payload_offset;
    uint64_t number;                         /* FILE_NUMBER */
    uint64_t announced;                      /* FILE_SIZE: payload bytes, 0 if absent */
    const char *obs_id, *telescope, *source; /* empty when absent */
    const struct br_telescope *array;        /* where its dishes are; NULL: it does not say */
};

/* Fills `recording` from a header. `hints`, `telescope` may be NULL; `coding` is NULL, or goes before
 * hints->coding. The hints supply values that the header lacks; if both give a value, they must agree
 * (hints.h). An electric field of others is refused when neither says how its axes lie, and a recording of
 * ours whose keys for other readers (NCHAN, TSAMP, UTC_START, ...) contradict ours. Errors: BR_E_FORMAT
 * naming file and field, BR_E_INVALID for what is missing. The stream's telescope is `telescope`, or that of
 * the recording if it is NULL. */
int recording_describe(struct recording *recording, const struct dada_header *header,
                       const struct br_stream_hints *hints, const struct br_telescope *telescope,
                       const char *coding, struct recording_memory memory, struct br_error *error);

/* The bytes of a block of such a file of others within which its order holds (a heap; all of `payload` where
 * time is not slowest and there are no heaps), and the distances of neighbours in it by AXIS_*. Returns the
 * samples of a block, 0 when the payload has none. */
uint64_t recording_block(const struct recording *recording, uint64_t payload, uint64_t stride[AXIS_COUNT]);

/* The source of the time of its first sample, for people. */
const char *recording_time_from(const struct recording *recording, const struct br_stream_hints *hints);

/* Checks that two files can follow each other in one stream. Errors: BR_E_FORMAT naming file and field. */
int recording_same(const struct recording *a, const char *file_a, const struct recording *b,
                   const char *file_b, struct br_error *error);

/* True when a file of `other`, whose payload starts at sample `first` of its own epoch, can be placed in
 * the counter of `stream`: the epochs are a whole number of samples apart, *later, and it starts at sample
 * first + *later >= 0. */
bool recording_epochs_agree(const struct br_stream *stream, const struct br_stream *other, uint64_t first,
                            int64_t *later);

enum { RECORDING_NOWHERE = 999 };

/* The file-specific part of a header. */
struct recording_file {
    const char *name, *obs_id;
    uint64_t number;
    uint64_t first, samples;        /* samples 0: not known yet */
    uint64_t payload_bytes;         /* planned or final */
    uint64_t obs_first, obs_offset; /* first sample of the observation; bytes of payload before this file */
    size_t header_bytes;            /* HDR_SIZE */
    const char *updates;            /* that it was made with (made_with.h); NULL or "": none */
    /* [nbeams][2] where beams look at `first`: x and y of beams that move; right ascension and declination,
     * degrees. RECORDING_NOWHERE: not known. NULL: of none of them */
    const double *beams_start, *beams_radec;
};

/* The site and the dishes' places, for the header. */
void recording_put_telescope(struct dada_writer *w, const struct br_telescope *t);

/* The letters of ORDER for an array: "TFPA"; '?' for an axis that has none. */
void recording_order(const struct br_array *array, char letters[BR_MAX_AXES + 1]);

/* FREQ and BW: the middle of the band, and its width, negative where channels fall, or where the only channel
 * holds a lower sideband; MHz. */
void recording_band(const struct br_stream *stream, double *centre, double *width);

/* Writes all keys; not padded. */
void recording_format(struct dada_writer *writer, const struct br_stream *stream,
                      const struct recording_file *file);

/* --- frames of a payload ------------------------------------------------------------------------- */

/* True when the payload of such a stream is flat, and the bytes of one of its time steps. */
bool recording_is_flat(const struct br_stream *stream, size_t *row_bytes);

/* Last base sample + 1 of the frame that holds base sample `at`: the next multiple of frame_samples. */
uint64_t recording_frame_end(const struct br_stream *stream, uint64_t at);

/* Bytes of the data and the side array of a frame. */
uint64_t recording_frame_bytes(const struct br_stream *stream, uint64_t first, uint64_t samples);

/* Base samples that `bytes` of payload hold from `first` on, in whole frames (or whole rows of a flat
 * payload). */
uint64_t recording_count_samples(const struct br_stream *stream, uint64_t first, uint64_t bytes);

/* Byte offset in the payload, which starts at `first`, of the frame (or row) that starts at base sample `at`.
 */
uint64_t recording_offset(const struct br_stream *stream, uint64_t first, uint64_t at);

/* Bytes of payload of base samples [first, first + samples). */
uint64_t recording_payload_bytes(const struct br_stream *stream, uint64_t first, uint64_t samples);

/* Bytes of data of the file at `path`, of `file_bytes` in all: those behind the header, at most FILE_SIZE
 * of them in a file of others (`record` may have been killed before it wrote the right FILE_SIZE);
 * *behind: how many follow. Errors: BR_E_FORMAT when another header follows. */
int recording_payload(const struct recording *recording, const char *path, uint64_t file_bytes,
                      uint64_t *payload, uint64_t *behind, struct br_error *error);

/* Base samples in a payload of `bytes`, by its length and by what the header says; a recording that was cut
 * off is as long as its bytes are. `left` receives the bytes at the end that make no whole step or frame. */
uint64_t recording_samples(const struct recording *recording, uint64_t bytes, uint64_t *left);

/* The byte that stands for "missing" under a gap: zero where a validity byte says it alone, else the code of
 * the format. */
uint8_t recording_missing_byte(const struct br_stream *stream);

/* Copies the time steps that base samples [from, to) touch from one frame into another, data and validity.
 * Both must have room for them; `to` must not have `complete` set, `source` may. */
void recording_place(const struct br_stream *stream, struct br_frame *target, const struct br_frame *source,
                     uint64_t from, uint64_t to);

#endif
